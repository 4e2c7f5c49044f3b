// Gives credit back (streaming specification §7.14): which slots to look at, what their consumers took, what may be
// granted. Owns the private sets of one (peer, lane); it must never invent a quantity: a set names slots, the
// consumer's counter has the number.

import type { ControlSink } from './batcher-types.js';
import type { ByteMeter } from './byte-meter.js';
import type { IngressSlot } from './ingress-slot.js';
import type { IngressPort } from './ingress-types.js';

/** A list that is emptied in place: no allocation once it has grown, no reference kept. */
class SlotSet {
  count = 0;
  private readonly items: (IngressSlot | undefined)[] = [];

  add(slot: IngressSlot): void {
    this.items[this.count] = slot;
    this.count += 1;
  }

  take(at: number): IngressSlot {
    const slot = this.items[at]!;
    this.items[at] = undefined;
    return slot;
  }
}

export class CreditReturn {
  /** Slots looked at since the start: what a visit costs. */
  visitedSlots = 0;
  private readonly port: IngressPort;
  private readonly touched = new SlotSet();
  private readonly drained = new SlotSet();
  private sink: ControlSink | undefined;

  constructor(
    port: IngressPort,
    private readonly meter: ByteMeter,
  ) {
    this.port = port;
  }

  /** The current batch delivered into the slot or held a record of it. */
  touch(slot: IngressSlot): void {
    if (slot.touched) return;
    slot.touched = true;
    this.touched.add(slot);
  }

  /** The consumer of the slot took something. A stale note costs a visit, never credit. */
  noteDrained(slot: IngressSlot): void {
    if (slot.drainListed || !slot.live) return;
    slot.drainListed = true;
    this.drained.add(slot);
  }

  /** After a batch: the slots it touched and those with drains, each once. */
  afterBatch(): void {
    this.visitTouched();
    if (this.drained.count > 0) this.visitDrained();
    this.sink = undefined;
  }

  /** The slots with drains. */
  visitDrained(): void {
    const drained = this.drained;
    for (let i = 0; i < drained.count; i++) {
      const slot = drained.take(i);
      slot.drainListed = false;
      this.visit(slot);
    }
    drained.count = 0;
    this.sink = undefined;
  }

  /** All slots given; the set of drains is thrown away first, since this covers it. */
  sweep(live: readonly IngressSlot[]): void {
    const drained = this.drained;
    for (let i = 0; i < drained.count; i++) drained.take(i).drainListed = false;
    drained.count = 0;
    for (const slot of live) this.visit(slot);
    this.sink = undefined;
  }

  private visitTouched(): void {
    const touched = this.touched;
    for (let i = 0; i < touched.count; i++) {
      const slot = touched.take(i);
      slot.touched = false;
      // A slot with drains as well is visited once, with those.
      if (!slot.drainListed) this.visit(slot);
    }
    touched.count = 0;
  }

  private visit(slot: IngressSlot): void {
    if (!slot.live) return;
    this.visitedSlots += 1;
    const taken = slot.receiver.takeDrained();
    if (taken > 0) slot.release(taken);
    const grant = slot.takeGrant(this.meter.over ? levelUnderPressure(slot) : slot.byteBudget);
    if (grant === 0) return;
    if (this.sink === undefined) this.sink = this.port.control(true);
    this.sink?.replyCredit(slot.id, grant);
  }
}

/**
 * The watermark while the node keeps too much: a slot whose reader has taken everything adds nothing to that and goes on, any other gets
 * no credit until it is read empty. So one slow reader, or a gap that does not close, stalls nobody else.
 */
function levelUnderPressure(slot: IngressSlot): number {
  return slot.heldRecords > 0 ? 0 : Math.min(1, slot.byteBudget);
}
