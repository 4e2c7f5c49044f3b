// The receiver's half of a slot: what is expected next, what is on account, what waits. Owns the state of one slot; it
// must never reply or touch the table.

import { IngressAccount } from './credit.js';
import type { IngressHold } from './ingress-hold.js';
import type { Receiver } from './ingress-types.js';
import { DEFAULT_SLOT_BYTE_BUDGET } from './mux-config.js';

/** No close waits for records in front of it. */
export const NO_DEFERRED_CLOSE = -1;

export class IngressSlot extends IngressAccount {
  // What every record touches stands first and together.
  readonly id: number;
  /**
   * frame_seq the next record in order has. Moves with every delivery: a watchdog sees by it that something arrived.
   */
  next: number;
  /** In the table, or aside. */
  live = true;
  /** The consumer was given a terminal, the peer's or an injected one. */
  terminalDelivered = false;
  /** That terminal was no word of the peer: this node ended the slot as dropped. */
  droppedHere = false;
  /** Stands in the set of slots the batch touched / of slots with drains. */
  touched = false;
  drainListed = false;
  readonly receiver: Receiver;
  hold: IngressHold | undefined;
  /** frame_seq of a close that overtook records in front of it, and whether it injects Dropped. */
  closeSeq = NO_DEFERRED_CLOSE;
  closeInjects = false;
  /** B: watermark of the buffer and hold budget. */
  readonly byteBudget: number;

  readonly index: number;
  readonly sessionHi: number;
  readonly sessionLo: number;
  /** Place in the table's list of live slots. */
  listAt = 0;

  constructor(id: number, index: number, receiver: Receiver, openSeq: number) {
    super(receiver.limit);
    this.id = id;
    this.index = index;
    this.receiver = receiver;
    this.sessionHi = receiver.sessionHi;
    this.sessionLo = receiver.sessionLo;
    this.byteBudget = receiver.byteBudget > 0 ? receiver.byteBudget : DEFAULT_SLOT_BYTE_BUDGET;
    this.next = openSeq;
  }

  /** Records that wait behind a gap. */
  get heldRecords(): number {
    return this.hold === undefined ? 0 : this.hold.size;
  }
}
