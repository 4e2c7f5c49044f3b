// The consumer's end of soak streams: it keeps a number of them open, asks writers for them, reads each by its plan, and checks every
// item and every ending.

import { setTimeout as pause } from 'node:timers/promises';
import { PeerInfo, type PeerInfoJson, rawCodec, type StreamAnchor, type Velo, VeloError } from '../../lib/index.js';
import type { AwakeClock, Watched } from './awake.js';
import { PrefixCheck } from './items.js';
import { planOf, type StreamPlan } from './plan.js';
import type { ChildSetup, StreamReport } from './protocol.js';
import { codeOf, GENERATE, type GenerateRequest, uncoded } from './writing.js';

/** A reader that pauses before some of its items does so before one in so many. */
const SLOW_EVERY = 16;
const NO_WRITER_PAUSE_MS = 10;
/** After a call that failed: as an application would not ask again at once. */
const BACK_OFF_MS = 50;

export class Reading {
  readonly open = new Set<StreamReading>();
  opened = 0;
  private readonly writers = new Map<string, string>();
  private budget = 0;
  private nextStream: number;
  private turn = 0;

  constructor(
    private readonly node: Velo,
    private readonly setup: ChildSetup,
    private readonly clock: AwakeClock,
    private readonly report: (report: StreamReport) => void,
  ) {
    this.nextStream = setup.firstStream;
    for (let i = 0; i < setup.width; i += 1) void this.keepOne();
  }

  addWriter(name: string, info: PeerInfoJson): void {
    const peer = PeerInfo.fromJSON(info);
    this.node.registerPeer(peer);
    this.writers.set(name, peer.instanceId);
  }

  removeWriter(name: string): void {
    this.writers.delete(name);
  }

  begin(streams: number): void {
    this.budget = streams;
  }

  rest(): void {
    this.budget = 0;
  }

  /** One stream after the other, for ever. */
  private async keepOne(): Promise<void> {
    for (;;) {
      if (this.budget === 0 || this.writers.size === 0) {
        await pause(NO_WRITER_PAUSE_MS);
        continue;
      }
      this.budget -= 1;
      this.opened += 1;
      const [writer, instanceId] = [...this.writers][this.turn++ % this.writers.size]!;
      const plan = planOf(this.setup.seed, this.nextStream++);
      const stream = new StreamReading(this.node, this.clock, plan, this.setup.name, writer);
      this.open.add(stream);
      const report = await stream.run(instanceId);
      this.open.delete(stream);
      this.report(report);
      if (report.outcome.startsWith('call')) await pause(BACK_OFF_MS);
    }
  }
}

class StreamReading implements Watched {
  private readonly check: PrefixCheck;
  private readonly from = Date.now();
  private anchor!: StreamAnchor<Uint8Array>;
  /** Why this end cancelled, if it did. */
  private cancelledFor: string | undefined;
  private wrong: string | undefined;
  /** The last sender left, and none has come. */
  private left = false;

  constructor(
    private readonly node: Velo,
    private readonly clock: AwakeClock,
    private readonly plan: StreamPlan,
    private readonly reader: string,
    private readonly writer: string,
  ) {
    this.check = new PrefixCheck(plan.stream);
  }

  /** No item and no end came for long. An anchor that waits for its next sender may wait for ever; any other may not. */
  readonly hung = (): void => this.cancel(this.left || this.plan.detachAt.length > 0 ? 'deserted' : 'hung');

  async run(instanceId: string): Promise<StreamReport> {
    let outcome: string;
    try {
      this.anchor = this.node.createAnchor({ codec: rawCodec() });
      const request: GenerateRequest = { handle: this.anchor.handle.toJSON(), plan: this.plan, reader: this.reader };
      const asked = this.node.typedUnary(instanceId, GENERATE, request).catch((error: unknown) => {
        this.wrong ??= uncoded(error);
        this.cancel(`call ${codeOf(error)}`);
      });
      outcome = await this.read();
      await asked;
    } catch (error) {
      outcome = 'broken';
      this.wrong ??= String(error instanceof Error ? error.stack : error);
    } finally {
      this.clock.release(this);
    }
    const { reader, writer, from, wrong } = this;
    return { stream: this.plan.stream, reader, writer, outcome, from, to: Date.now(), items: this.check.count, wrong };
  }

  private cancel(why: string): void {
    if (this.anchor.ended) return;
    this.cancelledFor ??= why;
    this.anchor.cancel();
  }

  private async read(): Promise<string> {
    const { plan, anchor } = this;
    if (plan.reader === 'late' || plan.reader === 'absent') await pause(plan.pauseMs);
    if (plan.reader === 'absent') this.cancel('cancelled');
    if (plan.reader === 'cancelling' && plan.after === 0) this.cancel('cancelled');
    this.clock.progress(this);
    let finalized = false;
    try {
      if (plan.readsBy === 'items') for await (const item of anchor) await this.take(item);
      else if (plan.readsBy === 'batches') {
        for await (const items of anchor.batches()) for (const item of items) await this.take(item);
      } else
        for await (const frame of anchor.frames()) {
          if (finalized) this.wrong ??= `a ${frame.kind} behind the end`;
          if (frame.kind === 'item') await this.take(frame.value);
          this.left = frame.kind === 'detached';
          finalized = frame.kind === 'finalized';
        }
    } catch (error) {
      return this.failed(error);
    }
    if (this.cancelledFor !== undefined) return this.cancelledFor;
    if (!this.check.complete) this.wrong ??= `finalized after ${this.check.count} items, without the last`;
    if (plan.readsBy === 'frames' && !finalized) this.wrong ??= 'the frames ended without an end';
    const over = await anchor[Symbol.asyncIterator]().next();
    if (over.done !== true) this.wrong ??= 'an item behind the end';
    return 'finalized';
  }

  private failed(error: unknown): string {
    this.wrong ??= uncoded(error);
    if (!VeloError.is(error, 'ERR_SENDER_DROPPED')) {
      this.wrong ??= `its reader got ${String(error)}`;
      return codeOf(error);
    }
    return this.plan.ending === 'drop' && this.check.complete ? 'dropped as planned' : error.code;
  }

  private async take(item: Uint8Array): Promise<void> {
    const { plan, check } = this;
    // The rest of a batch that a cancel cut short.
    if (this.cancelledFor !== undefined) return;
    const wrong = check.fault(item);
    if (wrong !== undefined) {
      this.wrong ??= wrong;
      this.cancel('broken');
      return;
    }
    this.left = false;
    this.clock.progress(this);
    if (plan.reader === 'slow' && check.count % SLOW_EVERY === 0) await pause(plan.pauseMs / SLOW_EVERY);
    if (check.count !== plan.after) return;
    if (plan.reader === 'pausing') await pause(plan.pauseMs);
    if (plan.reader === 'cancelling') this.cancel('cancelled');
    if (plan.reader === 'stopping') this.anchor.controller.requestStop();
  }
}
