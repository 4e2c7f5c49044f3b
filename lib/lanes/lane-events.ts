// What a lane tells about streams beside carrying them: events for whoever subscribed on the main thread, and lines for whoever
// debugs. Owns the bound on events that main has not taken. It must never queue one, never wake a thread for nobody, and it has
// nothing to say about a record.

import { performance } from 'node:perf_hooks';
import { DebugLog, isDebugging } from '../debug-log.js';
import type { ClosedReason } from '../mux/batcher-types.js';
import type { EgressSlot } from '../mux/egress-slot.js';
import type { IngressSlot } from '../mux/ingress-slot.js';
import type { Refusal } from '../mux/ingress-types.js';
import type { NodeBlock } from '../plane/node-block.js';
import { EV_DIAGNOSTIC, encodeText } from './commands.js';

// Bits of the node's watch word, one per kind of event; a lane sends what somebody subscribed to.
export const WATCH_OPEN = 1;
export const WATCH_CLOSE = 2;
export const WATCH_EPOCH = 4;
export const WATCH_WATCHDOG = 8;
export const WATCH_REFUSAL = 16;

/** Events of one lane that main may not have taken; further ones are left out and counted. */
export const MAX_EVENTS_UNTAKEN = 256;

/** How a stream of a peer ended here: with what its sender said, as dropped by this node, or because its consumer left. */
export type IngressEnd = 'terminal' | 'dropped' | 'cancelled';

/** One end of a stream, as it travels: session in two halves. */
export interface EventEnd {
  readonly direction: 'out' | 'in';
  readonly peer: string;
  readonly lane: number;
  readonly slot: number;
  readonly session: readonly [hi: number, lo: number];
}

export type LaneEvent =
  | ({ readonly kind: typeof WATCH_OPEN } & EventEnd)
  | ({
      readonly kind: typeof WATCH_CLOSE;
      readonly reason: ClosedReason | IngressEnd;
      readonly ageMs: number;
    } & EventEnd)
  | {
      readonly kind: typeof WATCH_EPOCH;
      readonly direction: 'out' | 'in';
      readonly peer: string;
      readonly lane: number;
      readonly reason: string;
      readonly streams: number;
    }
  | ({ readonly kind: typeof WATCH_WATCHDOG } & EventEnd)
  | {
      readonly kind: typeof WATCH_REFUSAL;
      readonly peer: string;
      readonly lane: number;
      readonly slot: number;
      readonly reason: Refusal;
    };

/** Who carries events to main: the link to it. */
export interface EventCarrier {
  /** Writes the record if there is room for it now. False: it is not written, and nothing waits. */
  offer(kind: number, tag: number, body: Uint8Array): boolean;
}

/** Where an event happened. */
export interface EventPlace {
  readonly peer: string;
  readonly lane: number;
}

export class LaneEvents {
  /** Counts on from what main took of a lane that had this place before: whatever that one had sent is taken or gone. */
  private sent: number;
  private readonly log = {
    open: new DebugLog(),
    close: new DebugLog(),
    epoch: new DebugLog(),
    watchdog: new DebugLog(),
    refusal: new DebugLog(),
  };

  constructor(
    private readonly node: NodeBlock,
    private readonly worker: number,
    /** The link to the main thread, once there is one. */
    private readonly main: () => EventCarrier | undefined,
    /** An event was left out. */
    private readonly onDropped: () => void,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.sent = node.eventsTaken(worker);
  }

  /** A slot of ours is open: its OpenSlot was admitted. */
  egressOpened(place: EventPlace, slot: EgressSlot): void {
    if (isDebugging()) this.log.open.line(() => `opened slot ${slot.id} to ${nameOf(place)}`);
    if (this.watches(WATCH_OPEN)) this.send({ kind: WATCH_OPEN, ...endOf('out', place, slot) });
  }

  egressClosed(place: EventPlace, slot: EgressSlot, reason: ClosedReason, openedAt: number): void {
    if (isDebugging()) this.log.close.line(() => `slot ${slot.id} to ${nameOf(place)} closed: ${reason}`);
    if (!this.watches(WATCH_CLOSE)) return;
    this.send({ kind: WATCH_CLOSE, reason, ageMs: this.now() - openedAt, ...endOf('out', place, slot) });
  }

  /** A slot of a peer is open. */
  ingressOpened(place: EventPlace, slot: IngressSlot): void {
    if (isDebugging()) this.log.open.line(() => `slot ${slot.id} of ${nameOf(place)} opened`);
    if (this.watches(WATCH_OPEN)) this.send({ kind: WATCH_OPEN, ...endOf('in', place, slot) });
  }

  ingressClosed(place: EventPlace, slot: IngressSlot, openedAt: number): void {
    const reason: IngressEnd = !slot.terminalDelivered ? 'cancelled' : slot.droppedHere ? 'dropped' : 'terminal';
    if (isDebugging()) this.log.close.line(() => `slot ${slot.id} of ${nameOf(place)} closed: ${reason}`);
    if (!this.watches(WATCH_CLOSE)) return;
    this.send({ kind: WATCH_CLOSE, reason, ageMs: this.now() - openedAt, ...endOf('in', place, slot) });
  }

  /** An epoch ended, and `streams` slots with it: ours to the peer, or the peer's to us. */
  epochEnded(direction: 'out' | 'in', { peer, lane }: EventPlace, reason: string, streams: number): void {
    const whose = direction === 'out' ? 'our epoch to' : 'an epoch of';
    if (isDebugging())
      this.log.epoch.line(() => `${whose} ${peer} lane ${lane} ended with ${streams} streams: ${reason}`);
    if (this.watches(WATCH_EPOCH)) this.send({ kind: WATCH_EPOCH, direction, peer, lane, reason, streams });
  }

  /** The sender of a slot was silent for too long; the close follows. */
  silent(place: EventPlace, slot: IngressSlot): void {
    if (isDebugging()) this.log.watchdog.line(() => `the sender of slot ${slot.id} of ${nameOf(place)} is silent`);
    if (this.watches(WATCH_WATCHDOG)) this.send({ kind: WATCH_WATCHDOG, ...endOf('in', place, slot) });
  }

  /** What a peer opened, or sent for a slot, was refused. */
  refused({ peer, lane }: EventPlace, slot: number, reason: Refusal): void {
    if (isDebugging()) this.log.refusal.line(() => `refused slot ${slot} of ${peer} lane ${lane}: ${reason}`);
    if (this.watches(WATCH_REFUSAL)) this.send({ kind: WATCH_REFUSAL, peer, lane, slot, reason });
  }

  private watches(kind: number): boolean {
    return (this.node.watched & kind) !== 0;
  }

  private send(event: LaneEvent): void {
    const untaken = (this.sent - this.node.eventsTaken(this.worker)) | 0;
    const body = untaken < MAX_EVENTS_UNTAKEN ? encodeText(JSON.stringify(event)) : undefined;
    if (body !== undefined && this.main()?.offer(EV_DIAGNOSTIC, 0, body)) this.sent = (this.sent + 1) | 0;
    else this.onDropped();
  }
}

function nameOf({ peer, lane }: EventPlace): string {
  return `${peer} lane ${lane}`;
}

function endOf(
  direction: 'out' | 'in',
  { peer, lane }: EventPlace,
  { id, sessionHi, sessionLo }: { id: number; sessionHi: number; sessionLo: number },
): EventEnd {
  return { direction, peer, lane, slot: id, session: [sessionHi, sessionLo] };
}
