// What a peer batcher needs from whoever drives it, and what it tells the owner of each slot. Owns the contracts and
// the outcome numbers; it must never hold logic.
//
// Callbacks note what happened and return: none of them may call back into the batcher.

import type { ByteMeter } from './byte-meter.js';
import type { EgressSlot } from './egress-slot.js';
import type { MuxConfig } from './mux-config.js';
import type { MuxMetrics } from './mux-metrics.js';
import type { Singleton } from './singletons.js';

/** The transport took the batch; later batches of the lane follow behind it. */
export const ADMITTED = 0;
/** The transport queued the batch in order; `admission` will tell how it ended. */
export const PENDING = 1;
/** The transport did not take the batch; the buffer stays with the batcher. */
export const REFUSED = 2;

export type SubmitOutcome = typeof ADMITTED | typeof PENDING | typeof REFUSED;

/** Anything that asked to run at the end of the current turn. */
export interface Runnable {
  run(): void;
}

/** What a lane gives a batcher. */
export interface BatcherPort {
  /** Milliseconds of any monotonic clock; fractions are welcome. */
  now(): number;
  /** A safe integer above every one it gave before, on the whole node. */
  nextEpoch(): number;
  /** Largest payload that travels inline to this peer; Infinity while unknown. Read once per batch. */
  eagerBudget(): number;
  /** A pooled buffer with room for BATCH_HEADROOM and the effective cap. */
  acquireBuffer(): Uint8Array;
  /**
   * A buffer of at least `size` bytes, headroom included, for a record that no packed batch holds. Undefined: there is no memory
   * for it.
   */
  acquireLarge(size: number): Uint8Array | undefined;
  /** Takes back a buffer that was not handed over. */
  releaseBuffer(buffer: Uint8Array): void;
  /**
   * Hands over the batch `buffer[start..end)`; `start` is BATCH_HEADROOM. The buffer belongs to the port from here on,
   * unless the outcome is REFUSED. PENDING is answered later, exactly once, with `batcher.admission(ok)`, never from
   * inside submit.
   */
  submit(buffer: Uint8Array, start: number, end: number): SubmitOutcome;
  /**
   * As `submit`, for a batch of one record; PENDING is answered with `singleton.admission(ok)`. What is submitted later follows behind
   * it, answered or not. A `staged` one goes as a handle, under room that was reserved for it; once its bytes are let go of, the port
   * calls `singleton.fetched()`, exactly once and never from inside this call.
   */
  submitSingleton(buffer: Uint8Array, start: number, end: number, singleton: Singleton): SubmitOutcome;
  /** Sets room for a staged batch of the slot aside. False: the node keeps too much already. */
  reserveStaging(bytes: number, slot: EgressSlot): boolean;
  /** Gives back room that was reserved and not used: no handover, or one that was REFUSED. */
  releaseStaging(bytes: number): void;
  /** Nobody wants what lies staged for the slot any more: its stream is over at the peer. */
  dropStaged?(slot: EgressSlot): void;
  /** The epoch is over, and with it `slots` of ours. For observers. */
  epochEnded?(reason: string, slots: number): void;
  /** "Call my `run` at the end of this turn." Idempotent. */
  schedule(batcher: Runnable): void;
}

/** One (peer, lane), and what its batcher shares with others. */
export interface PeerBatcherOptions {
  /** Names the peer in errors. */
  readonly peerLabel: string;
  readonly lane: number;
  /** Lanes that streams to this peer ride, this one included; default 1. */
  readonly lanes?: number;
  readonly config: MuxConfig;
  readonly port: BatcherPort;
  readonly metrics: MuxMetrics;
  /**
   * Generation that slots begin with, default 0. A batcher that takes the place of another one begins elsewhere: grants carry no epoch, and
   * one that the peer sent for a slot of the old batcher must not count for a slot of this one.
   */
  readonly firstGeneration?: number;
  /** Counts what stands and is withheld; while it is over, a slot that withholds anything is paused. Without one, nothing is ever over. */
  readonly meter?: ByteMeter;
}

/** Why a slot is over, as its owner hears it. */
export type ClosedReason =
  /** The terminal and its close were written into a batch. */
  | 'terminal'
  /** The inlet ended without a terminal, or the owner abandoned the slot; the peer hears PeerGone. */
  | 'abandoned'
  /** The receiver does not know the slot (no bind, expired bind, consumer gone). */
  | 'unknownSlot'
  /** The receiver refused what came. */
  | 'protocolError'
  /** The receiver cancelled the stream. */
  | 'cancelled'
  /** The lane's epoch ended: refused batch, dead peer, teardown. */
  | 'epochDeath';

/** What became of a stream's output. */
export type Retirement = 'sent' | 'discarded';

/** Hears about one slot. `opened`, `closed` and `retired` come exactly once each, in this order. */
export interface SlotOwner {
  /** The batch with the OpenSlot was admitted (true), or never will be (false). May come before `open` returns. */
  opened(slot: EgressSlot, ok: boolean): void;
  closed(slot: EgressSlot, reason: ClosedReason): void;
  /** The consumer cancelled; `closed(slot, 'cancelled')` follows at once. */
  cancelled(slot: EgressSlot): void;
  /** The consumer asked to stop; the slot stays open. */
  stopped(slot: EgressSlot): void;
  /** 'sent' once the batch with the terminal was admitted, 'discarded' in every other end. */
  retired(slot: EgressSlot, outcome: Retirement): void;
  /**
   * Records left the slot's inlet outside `accept`: `slot.pulledTotal` moved. Once per slot and drain, not per record,
   * and only while `slot.notifyPull` is set. `accept` itself never calls it: compare `pulledTotal` after it.
   */
  pulledChanged(slot: EgressSlot): void;
}

/**
 * The side of a batcher's control inbox that ingress and the lane write. Coalesced state, not a queue: posting never
 * blocks and never grows beyond what was allocated.
 */
export interface ControlSink {
  /** Credit the peer granted to our slot. */
  postCredit(slotId: number, delta: number): void;
  /** The peer closed our slot (UnknownSlot or ProtocolError). */
  postClose(slotId: number, reason: number): void;
  /** The peer's consumer stops or cancels our slot's session. */
  postLifecycle(slotId: number, sessionHi: number, sessionLo: number, action: number): void;
  /** Credit for the peer's slot. */
  replyCredit(slotId: number, delta: number): void;
  /** We close the peer's slot of that session (UnknownSlot or ProtocolError); supersedes its credit. */
  replyClose(slotId: number, sessionHi: number, sessionLo: number, reason: number): void;
  /** Our consumer stops or cancels the peer's slot. Cancel wins over stop. */
  replyLifecycle(slotId: number, sessionHi: number, sessionLo: number, action: number): void;
  /** We refuse an OpenSlot we never admitted. Bounded: beyond the limit it is dropped and counted. */
  reject(slotId: number, reason: number): void;
  /**
   * The peer began a new epoch: replies about slots of the old one are void (lifecycle replies name a session and
   * stay).
   */
  forgetReplies(): void;
}
