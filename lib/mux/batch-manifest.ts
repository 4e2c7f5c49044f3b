// What one batch carries beyond its bytes: counts by record type, the replies to post again when it is lost, and the
// slots that wait for its admission. Owns the list and nothing else; it must never write a batch.

import type { EgressSlot } from './egress-slot.js';

/** A close we owe the peer for one of its slots. */
export interface CloseReply {
  readonly slotId: number;
  readonly reason: number;
}

/** A stop or cancel of one of the peer's sessions. */
export interface LifecycleReply {
  readonly slotId: number;
  readonly sessionHi: number;
  readonly sessionLo: number;
  readonly action: number;
}

/** Reused from batch to batch; nothing in it is allocated per data record. */
export class BatchManifest {
  /** All records; known when the batch is finished. */
  records = 0;
  openSlots = 0;
  closes = 0;
  lifecycles = 0;
  /** Credit replies: the first `creditReplies` entries of the two arrays. */
  creditReplies = 0;
  readonly creditSlots: number[] = [];
  readonly creditDeltas: number[] = [];
  readonly closeReplies: CloseReply[] = [];
  readonly lifecycleReplies: LifecycleReply[] = [];
  /** Slots whose terminal is in the batch: they retire with it. */
  readonly terminals: EgressSlot[] = [];
  /** The slot whose OpenSlot is the batch. */
  opened: EgressSlot | undefined;
  /** The epoch ended while the batch was on its way: its answer changes no slot. */
  stale = false;

  /** Data records of a finished batch. */
  get dataRecords(): number {
    return this.records - this.openSlots - this.closes - this.lifecycles - this.creditReplies;
  }

  addCredit(slotId: number, delta: number): void {
    this.creditSlots[this.creditReplies] = slotId;
    this.creditDeltas[this.creditReplies] = delta;
    this.creditReplies += 1;
  }

  /** All credit in the batch. */
  creditTotal(): number {
    let total = 0;
    for (let i = 0; i < this.creditReplies; i++) total += this.creditDeltas[i]!;
    return total;
  }

  reset(): void {
    this.records = 0;
    this.openSlots = 0;
    this.closes = 0;
    this.lifecycles = 0;
    this.creditReplies = 0;
    this.opened = undefined;
    this.stale = false;
    if (this.closeReplies.length > 0) this.closeReplies.length = 0;
    if (this.lifecycleReplies.length > 0) this.lifecycleReplies.length = 0;
    if (this.terminals.length > 0) this.terminals.length = 0;
  }
}
