// What happens to the records of one slot of the peer: admission against the window, delivery in order, the hold, the
// end. Owns these rules; it must never read a batch or choose a slot.

import { CLOSE_PROTOCOL_ERROR, CLOSE_UNKNOWN_SLOT, LIFECYCLE_CANCEL, LIFECYCLE_STOP } from '../wire/batch.js';
import { MAX_U32 } from '../wire/bytes.js';
import { DROPPED_BYTES, transportErrorFrame } from '../wire/frame.js';
import type { ByteMeter } from './byte-meter.js';
import type { CreditReturn } from './credit-return.js';
import type { SlotDirectory } from './ingress-directory.js';
import { IngressHold } from './ingress-hold.js';
import { IngressSlot, NO_DEFERRED_CLOSE } from './ingress-slot.js';
import {
  type ByteReservation,
  DELIVERED,
  FULL,
  type IngressPort,
  type Receiver,
  type Refusal,
} from './ingress-types.js';
import type { MuxMetrics } from './mux-metrics.js';
import { isTerminal } from './terminal-test.js';

export class IngressDelivery {
  private readonly port: IngressPort;
  private readonly metrics: MuxMetrics;
  private readonly peerBudget: ByteReservation;
  private readonly directory: SlotDirectory;
  private readonly credit: CreditReturn;
  private readonly meter: ByteMeter;

  constructor(
    port: IngressPort,
    metrics: MuxMetrics,
    peerBudget: ByteReservation,
    directory: SlotDirectory,
    credit: CreditReturn,
    meter: ByteMeter,
  ) {
    this.port = port;
    this.metrics = metrics;
    this.peerBudget = peerBudget;
    this.directory = directory;
    this.credit = credit;
    this.meter = meter;
  }

  /** A claimed slot begins. No credit is granted: its window was quoted when it was bound. It may be over when this returns. */
  start(id: number, index: number, receiver: Receiver, openSeq: number): IngressSlot {
    const slot = new IngressSlot(id, index, receiver, openSeq);
    advance(slot);
    this.directory.add(slot);
    this.metrics.liveSlots += 1;
    receiver.opened(slot);
    if (receiver.earlyCancel) {
      this.end(slot, false);
      this.port.control(true)?.replyLifecycle(id, slot.sessionHi, slot.sessionLo, LIFECYCLE_CANCEL);
    } else if (receiver.earlyStop) {
      this.port.control(true)?.replyLifecycle(id, slot.sessionHi, slot.sessionLo, LIFECYCLE_STOP);
    }
    return slot;
  }

  /** The record whose turn it is. */
  inOrder(slot: IngressSlot, src: Uint8Array, off: number, len: number): void {
    const terminal = isTerminal(src, off, len);
    if (slot.terminalDelivered) {
      this.metrics.droppedClosedSlot += 1;
      advance(slot);
    } else if (!(terminal ? slot.admitTerminal() : slot.admitData())) {
      this.refuse(slot);
      return;
    } else if (!this.put(slot, src, off, len, terminal)) {
      return;
    }
    if (slot.hold !== undefined || slot.closeSeq !== NO_DEFERRED_CLOSE) this.closeGap(slot);
  }

  /** A record ahead of its turn waits, charged against both byte budgets, on credit it has already spent. */
  ahead(slot: IngressSlot, frameSeq: number, src: Uint8Array, off: number, len: number): void {
    if (slot.hold === undefined) slot.hold = new IngressHold(slot.byteBudget, this.peerBudget, this.meter);
    else if (slot.hold.has(frameSeq)) {
      this.metrics.droppedDuplicate += 1;
      return;
    }
    const admitted = isTerminal(src, off, len) ? slot.admitTerminal() : slot.admitData();
    if (!admitted || !slot.hold.add(frameSeq, src, off, len)) {
      this.refuse(slot);
      return;
    }
    this.metrics.heldRecords += 1;
    this.credit.touch(slot);
  }

  /** The owner's close. It waits for records it has overtaken. */
  close(slot: IngressSlot, frameSeq: number, injectDropped: boolean): void {
    if (frameSeq <= slot.next) {
      this.end(slot, injectDropped);
    } else if (slot.closeSeq === NO_DEFERRED_CLOSE) {
      slot.closeSeq = frameSeq;
      slot.closeInjects = injectDropped;
    }
  }

  /**
   * Takes the slot out and tells its consumer that nothing follows. With `injectDropped` it gets Dropped, unless it had
   * a terminal.
   */
  end(slot: IngressSlot, injectDropped: boolean): void {
    if (!slot.live) return;
    slot.live = false;
    this.directory.remove(slot);
    this.metrics.liveSlots -= 1;
    if (slot.hold !== undefined) {
      this.metrics.heldRecords -= slot.hold.size;
      slot.hold.clear();
    }
    if (injectDropped && !slot.terminalDelivered) {
      slot.terminalDelivered = true;
      slot.droppedHere = true;
      slot.receiver.deliver(DROPPED_BYTES, 0, DROPPED_BYTES.length, true);
    }
    slot.receiver.slotClosed();
  }

  /**
   * A record of the slot will never come: its consumer gets TransportError behind what was delivered, and the sender is told to cancel
   * that session (a close would name the id alone, and might meet a later stream). What is held goes with the slot, a terminal
   * included, so the error is delivered though that one has spent the reserve; a consumer that had its terminal gets no second one.
   */
  fail(slot: IngressSlot, text: string): void {
    this.port.refused?.(slot.id, 'stagedRecord');
    if (!slot.terminalDelivered) {
      const frame = transportErrorFrame(text);
      slot.terminalDelivered = true;
      slot.droppedHere = true;
      slot.receiver.deliver(frame, 0, frame.length, true);
    }
    this.end(slot, false);
    this.port.control(true)?.replyLifecycle(slot.id, slot.sessionHi, slot.sessionLo, LIFECYCLE_CANCEL);
  }

  /** False: the slot is over. */
  private put(slot: IngressSlot, src: Uint8Array, off: number, len: number, terminal: boolean): boolean {
    const outcome = slot.receiver.deliver(src, off, len, terminal);
    if (outcome === DELIVERED) {
      slot.delivered(len);
      slot.terminalDelivered = terminal;
      advance(slot);
      this.credit.touch(slot);
      return true;
    }
    if (outcome === FULL) {
      this.metrics.readerStalls += 1;
      this.refuse(slot);
    } else {
      this.fault(slot, CLOSE_UNKNOWN_SLOT);
    }
    return false;
  }

  /** The turn moved: what waited for it is delivered, and then a close that waited for that. */
  private closeGap(slot: IngressSlot): void {
    const hold = slot.hold;
    while (hold !== undefined && hold.size > 0) {
      const bytes = hold.take(slot.next);
      if (bytes === undefined) break;
      this.metrics.heldRecords -= 1;
      if (slot.terminalDelivered) {
        this.metrics.droppedClosedSlot += 1;
        advance(slot);
      } else if (!this.put(slot, bytes, 0, bytes.length, isTerminal(bytes, 0, bytes.length))) {
        return;
      }
    }
    if (slot.closeSeq !== NO_DEFERRED_CLOSE && slot.next >= slot.closeSeq) this.end(slot, slot.closeInjects);
  }

  /** The sender broke its window or a hold has no room. */
  private refuse(slot: IngressSlot): void {
    this.metrics.holdOverflow += 1;
    this.fault(slot, CLOSE_PROTOCOL_ERROR);
  }

  private fault(slot: IngressSlot, reason: number): void {
    this.port.refused?.(slot.id, refusalOf(reason));
    this.end(slot, true);
    this.port.control(true)?.replyClose(slot.id, slot.sessionHi, slot.sessionLo, reason);
  }
}

function advance(slot: IngressSlot): void {
  if (slot.next < MAX_U32) slot.next += 1;
}

/** What observers hear of a close with this reason. */
export function refusalOf(closeReason: number): Refusal {
  return closeReason === CLOSE_PROTOCOL_ERROR ? 'protocolError' : 'unknownSlot';
}
