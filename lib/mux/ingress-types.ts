// What an ingress table needs from whoever drives it, and how it hands records to a consumer. Owns the contracts and
// the outcome numbers; it must never hold logic.
//
// Callbacks note what happened and return: none of them may call back into the table.

import type { ControlSink } from './batcher-types.js';
import type { IngressSlot } from './ingress-slot.js';

/** The record is in the consumer's buffer; its bytes were copied. */
export const DELIVERED = 0;
/** The buffer is full although credit was granted: a bug of one of the two sides. */
export const FULL = 1;
/** Nobody will ever take it. */
export const GONE = 2;

export type DeliverOutcome = typeof DELIVERED | typeof FULL | typeof GONE;

/** One claimed bind: the buffer of C+1 records of one stream and the consumer behind it. */
export interface Receiver {
  /** C: data records that may be outstanding. */
  readonly limit: number;
  /** B: watermark of delivered bytes and hold budget of the slot. */
  readonly byteBudget: number;
  /** The routing session of the bind, the one OpenSlot named. */
  readonly sessionHi: number;
  readonly sessionLo: number;
  /** The consumer cancelled before the OpenSlot came. Read once, at the claim. */
  readonly earlyCancel: boolean;
  /** The consumer asked to stop before the OpenSlot came. Read once, at the claim. */
  readonly earlyStop: boolean;
  /**
   * The slot that claimed the bind; keep it for `noteDrained`, `closeSlot` and `requestStop`. Called once, before any
   * delivery.
   */
  opened(slot: IngressSlot): void;
  /**
   * Takes one frame; copies what it keeps, `src` belongs to the caller again afterwards. At most one call has
   * `terminal` set, the last.
   */
  deliver(src: Uint8Array, off: number, len: number, terminal: boolean): DeliverOutcome;
  /**
   * How many records the consumer took since the last call, exchanged to zero. Called for every slot a batch touched,
   * so look at the shared counter with a plain read first: a stale zero only costs a later visit.
   */
  takeDrained(): number;
  /** No delivery follows. Called exactly once. */
  slotClosed(): void;
}

/** Why a slot of the peer is refused: nobody waits for it, it broke the rules, or a staged record of it cannot be had. */
export type Refusal = 'unknownSlot' | 'protocolError' | 'stagedRecord';

/** What a lane gives an ingress table. */
export interface IngressPort {
  now(): number;
  /** Removes and returns the bind of (anchor, session), or undefined when nobody registered it. Write-once. */
  claim(anchorHi: number, anchorLo: number, sessionHi: number, sessionLo: number): Receiver | undefined;
  /** A bind with this session waits to be claimed. A look: it decides nothing by itself. */
  isBound(sessionHi: number, sessionLo: number): boolean;
  /**
   * The control inbox of our batcher for this (peer, lane), resolved at every use so that a writer never meets a
   * retired one. With `create`, one is made when there is none: a reply must go out. Without it, control about our own
   * slots finds none and is refused.
   */
  control(create: boolean): ControlSink | undefined;
  /** What the peer opened, or sent for a slot, is refused. For observers. */
  refused?(slotId: number, reason: Refusal): void;
  /** The peer began a new epoch: `slots` of the old one are over. For observers. */
  epochEnded?(slots: number): void;
}

/** Bytes reserved against a bound that several holders share; the shared-memory version and ByteBudget both are one. */
export interface ByteReservation {
  /** Takes `bytes` when they fit now. False leaves everything as it was. */
  tryReserve(bytes: number): boolean;
  /** Gives bytes back. */
  release(bytes: number): void;
}
