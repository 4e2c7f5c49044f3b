// The end of a node, in order: the drain, the teardown, the report. The gate is closed by its caller. It must never reject, and
// never wait longer than it was given.

import { VeloError } from '../errors.js';
import type { ClientPlane } from '../lanes/client-plane.js';
import { Deadline } from '../lanes/deadline.js';
import type { LaneHost } from '../lanes/host.js';
import type { HandlerTable } from '../messenger/handler-table.js';
import type { AnchorRegistry } from './anchor-registry.js';
import { Drain } from './drain.js';
import type { Membership } from './membership.js';

const DEFAULT_CLOSE_MS = 5_000;
/** A day: timers take no more than 25 of them. */
const MAX_CLOSE_MS = 86_400_000;
/** What the teardown has at least, also when the drain took all the time there was. */
const TEARDOWN_GRACE_MS = 250;

export interface CloseOptions {
  /** Milliseconds for all of it. Default 5,000; `Infinity`: the drain waits for ever. */
  timeoutMs?: number | undefined;
}

/** What a close came to. */
export interface CloseReport {
  /** Every request that had been admitted was answered in time. */
  readonly drained: boolean;
  /** Requests whose handler still ran, or had not begun, when the time was over. Nobody gets their answers. */
  readonly abandonedHandlers: number;
  /** Anchors whose sender had not finished: their readers see `ERR_SENDER_DROPPED`, their senders a cancel. */
  readonly endedAnchors: number;
  /** Senders that were open, or whose last records could not be written in time: their readers see `ERR_SENDER_DROPPED`. */
  readonly endedSenders: number;
}

export class Shutdown {
  /** The teardown has begun: the node takes nothing any more. */
  tornDown = false;
  private readonly drain: Drain;
  private readonly deadline = new Deadline();

  constructor(
    private readonly host: LaneHost,
    private readonly plane: ClientPlane,
    private readonly handlers: HandlerTable,
    private readonly registry: AnchorRegistry,
    /** Whoever waits for something of this node, told so at its end. */
    private readonly waiters: readonly ((error: VeloError) => void)[],
  ) {
    this.drain = new Drain(plane, handlers);
  }

  /** A mark of the drain came back, or never will. */
  markPassed(lane: number): void {
    this.drain.passed(lane);
  }

  /** Everything is over in this time at the latest; a later moment than the one set changes nothing. */
  limit({ timeoutMs = DEFAULT_CLOSE_MS }: CloseOptions): void {
    if (timeoutMs === Number.POSITIVE_INFINITY) return;
    this.deadline.limit(timeoutMs >= 0 ? Math.min(timeoutMs, MAX_CLOSE_MS) : 0);
    if (this.tornDown) void this.host.close(this.teardownMs);
  }

  private get teardownMs(): number {
    const { left } = this.deadline;
    return Math.max(TEARDOWN_GRACE_MS, left === Number.POSITIVE_INFINITY ? DEFAULT_CLOSE_MS : left);
  }

  /** Call it once, with the gate closed. `membership`: the node leaves its directory first. */
  async run(membership: Membership | undefined): Promise<CloseReport> {
    const left = membership?.leave(this.deadline.passed);
    const settled = this.drain.settled().then(
      () => true,
      () => false,
    );
    const drained = await Promise.race([settled, this.deadline.passed.then(() => false)]);
    this.tornDown = true;
    // A drain may wait for ever, what follows may not: the directory neither.
    this.deadline.limit(this.teardownMs);
    const abandoned = this.handlers.stop();
    const endedHere = this.registry.nodeCloses();
    this.plane.flush();
    const ends = await this.host.close(this.teardownMs);
    const closed = new VeloError('ERR_CLOSED', 'the node was closed');
    for (const end of this.waiters) end(closed);
    this.plane.endAll(closed);
    this.registry.leaveAll();
    this.plane.stop(closed);
    await left;
    this.deadline.clear();
    // Without a drain, admitted requests were still on their way from the lanes. After one, only what the gate lets through was.
    const abandonedHandlers = abandoned + (drained ? 0 : this.handlers.dropped);
    return { drained, abandonedHandlers, endedAnchors: endedHere + ends.anchors, endedSenders: ends.senders };
  }
}
