// Events of a node for subscribers of `node:diagnostics_channel`, and the lines of the main thread under NODE_DEBUG. Lanes tell main
// only what somebody subscribed to: their word for it is kept here. It must never keep an event, and never be what something
// else relies on.

import { type Channel, channel } from 'node:diagnostics_channel';
import { DebugLog } from '../debug-log.js';
import {
  type EventEnd,
  type LaneEvent,
  WATCH_CLOSE,
  WATCH_EPOCH,
  WATCH_OPEN,
  WATCH_REFUSAL,
  WATCH_WATCHDOG,
} from '../lanes/lane-events.js';
import type { NodeBlock } from '../plane/node-block.js';
import { u64From } from '../wire/bytes.js';

/** A channel does not say when it gets its first subscriber, so it is looked at. Streams that begin look at once. */
const LOOK_EVERY_MS = 500;

/** What every event names. */
interface NodeEvent {
  /** Instance id of the node that it happened on. */
  readonly node: string;
}

/** One end of a stream. */
export interface StreamEvent extends NodeEvent {
  readonly direction: 'out' | 'in';
  /** Instance id of the other end. */
  readonly peer: string;
  /** Mux lane. */
  readonly lane: number;
  readonly slot: number;
  /** The same number at both ends. */
  readonly session: bigint;
}

/** `velomux:stream:close`. */
export interface StreamCloseEvent extends StreamEvent {
  /**
   * `out`: `terminal`, `abandoned`, `unknownSlot`, `protocolError`, `cancelled`, `epochDeath`. `in`: `terminal` (what the sender said),
   * `dropped` (by this node: silence, epoch, refusal), `cancelled` (the consumer left).
   */
  readonly reason: string;
  readonly ageMs: number;
}

/** `velomux:epoch:death`. `out`: our epoch towards the peer. `in`: the peer began another. */
export interface EpochDeathEvent extends NodeEvent {
  readonly direction: 'out' | 'in';
  readonly peer: string;
  readonly lane: number;
  readonly reason: string;
  /** Streams that ended with it. */
  readonly streams: number;
}

/** `velomux:watchdog`. The slot is undefined when the sender was let in and never opened one. */
export interface WatchdogEvent extends NodeEvent {
  readonly peer: string;
  readonly lane: number;
  readonly slot: number | undefined;
  readonly session: bigint;
}

/** `velomux:refusal`. */
export interface RefusalEvent extends NodeEvent {
  /**
   * `slot`: an opening, or a stream that could not go on; its `reason` is `unknownSlot`, `protocolError` or `stagedRecord` (a large
   * record that could not be fetched). `attach`, `hello`: a request.
   */
  readonly what: 'slot' | 'attach' | 'hello';
  readonly peer: string;
  readonly reason: string;
  readonly lane: number | undefined;
  readonly slot: number | undefined;
}

/** `velomux:lane:death`. */
export interface LaneDeathEvent extends NodeEvent {
  readonly worker: number;
  readonly reason: string;
}

const CHANNELS = {
  open: channel('velomux:stream:open'),
  close: channel('velomux:stream:close'),
  epoch: channel('velomux:epoch:death'),
  watchdog: channel('velomux:watchdog'),
  refusal: channel('velomux:refusal'),
  laneDeath: channel('velomux:lane:death'),
} as const;

/** What lanes are asked to tell, bit by bit. */
const WATCHED: readonly (readonly [kind: number, channel: Channel])[] = [
  [WATCH_OPEN, CHANNELS.open],
  [WATCH_CLOSE, CHANNELS.close],
  [WATCH_EPOCH, CHANNELS.epoch],
  [WATCH_WATCHDOG, CHANNELS.watchdog],
  [WATCH_REFUSAL, CHANNELS.refusal],
];

export class Diagnostics {
  private watched = 0;
  private readonly timer: NodeJS.Timeout;
  private readonly log = { laneDeath: new DebugLog(), refusal: new DebugLog(), watchdog: new DebugLog() };

  constructor(
    private readonly block: NodeBlock,
    private readonly node: string,
  ) {
    this.look();
    this.timer = setInterval(() => this.look(), LOOK_EVERY_MS).unref();
  }

  /** Looks who subscribed, and tells the lanes. */
  look(): void {
    let watched = 0;
    for (const [kind, { hasSubscribers }] of WATCHED) if (hasSubscribers) watched |= kind;
    if (watched === this.watched) return;
    this.watched = watched;
    this.block.watch(watched);
  }

  /** The node is closed: nothing of it is told any more. */
  stop(): void {
    clearInterval(this.timer);
  }

  /** A lane told of an event. */
  fromLane(lane: number, text: string): void {
    this.block.takeEvent(lane);
    this.publish(JSON.parse(text) as LaneEvent);
  }

  private publish(event: LaneEvent): void {
    const { node } = this;
    switch (event.kind) {
      case WATCH_OPEN:
        tell<StreamEvent>(CHANNELS.open, { node, ...endOf(event) });
        return;
      case WATCH_CLOSE: {
        const { reason, ageMs } = event;
        tell<StreamCloseEvent>(CHANNELS.close, { node, ...endOf(event), reason, ageMs });
        return;
      }
      case WATCH_EPOCH: {
        const { direction, peer, lane, reason, streams } = event;
        tell<EpochDeathEvent>(CHANNELS.epoch, { node, direction, peer, lane, reason, streams });
        return;
      }
      case WATCH_WATCHDOG: {
        const { peer, lane, slot, session } = endOf(event);
        tell<WatchdogEvent>(CHANNELS.watchdog, { node, peer, lane, slot, session });
        return;
      }
      case WATCH_REFUSAL: {
        const { peer, lane, slot, reason } = event;
        tell<RefusalEvent>(CHANNELS.refusal, { node, what: 'slot', peer, reason, lane, slot });
        return;
      }
    }
  }

  // -- what main itself sees

  laneDied(worker: number, reason: string): void {
    this.log.laneDeath.line(() => `lane ${worker} died: ${reason}`);
    if (CHANNELS.laneDeath.hasSubscribers)
      tell<LaneDeathEvent>(CHANNELS.laneDeath, { node: this.node, worker, reason });
  }

  /** An attach or a hello of another node was refused. */
  refused(what: 'attach' | 'hello', peer: string, reason: string): void {
    if (what === 'attach') this.log.refusal.line(() => `refused an attach of ${peer}: ${reason}`);
    if (!CHANNELS.refusal.hasSubscribers) return;
    tell<RefusalEvent>(CHANNELS.refusal, { node: this.node, what, peer, reason, lane: undefined, slot: undefined });
  }

  /** A sender was let in and never opened its slot. */
  neverOpened(peer: string, lane: number, session: bigint): void {
    this.log.watchdog.line(() => `${peer} attached and never opened its slot on lane ${lane}`);
    if (!CHANNELS.watchdog.hasSubscribers) return;
    tell<WatchdogEvent>(CHANNELS.watchdog, { node: this.node, peer, lane, slot: undefined, session });
  }
}

function tell<T extends NodeEvent>(to: Channel, event: T): void {
  to.publish(event);
}

function endOf({ direction, peer, lane, slot, session }: EventEnd): Omit<StreamEvent, 'node'> {
  return { direction, peer, lane, slot, session: u64From(session[0], session[1]) };
}
