// Slots whose OpenSlot has not been written yet, in the order in which they were opened. Each goes alone in a batch of its own, behind
// whatever was staged before it. Owns the line and the step out of it; it must never decide when a batcher drains, nor end a slot.

import { type BatchWriter, BLOCKED, OPEN_SLOT_RECORD_LEN } from './batch-writer.js';
import { type EgressSlot, INLET_LIVE, SLOT_OPEN } from './egress-slot.js';
import type { ReadyList } from './ready-list.js';
import type { Singletons } from './singletons.js';
import type { SlotLife } from './slot-life.js';

export class OpenQueue {
  /** Bounded by the slots. */
  private readonly line = new Set<EgressSlot>();

  constructor(
    private readonly writer: BatchWriter,
    private readonly life: SlotLife,
    private readonly ready: ReadyList,
    private readonly singletons: Singletons,
    /** Opens are singletons: the batcher does not wait for the answer to one. */
    private readonly asyncOpenAck: boolean,
  ) {}

  get isEmpty(): boolean {
    return this.line.size === 0;
  }

  add(slot: EgressSlot): void {
    this.line.add(slot);
  }

  /** The slot is over before its OpenSlot was written. */
  forget(slot: EgressSlot): void {
    this.line.delete(slot);
  }

  /** Every slot is closed. */
  clear(): void {
    this.line.clear();
  }

  /** Writes the opens that may go now. False when staging stopped before the end. */
  pump(): boolean {
    const { writer, singletons, asyncOpenAck } = this;
    for (const slot of this.line) {
      if (writer.parked || (writer.isOpen && !writer.flush())) return false;
      const singleton = asyncOpenAck ? singletons.prepare(slot, 'open', OPEN_SLOT_RECORD_LEN) : undefined;
      // As many as may be are on their way already. It is not the batcher that waits: replies and records go on.
      if (asyncOpenAck && singleton === undefined) return true;
      if (writer.makeRoom(OPEN_SLOT_RECORD_LEN) === BLOCKED) return false;
      this.line.delete(slot);
      writer.openSlot(slot);
      slot.nextSeq += 1;
      slot.state = SLOT_OPEN;
      slot.updateDirect();
      if (slot.inlet.length > 0 || slot.inletState !== INLET_LIVE) this.ready.push(slot);
      if (!(singleton === undefined ? writer.submitOpen() : singletons.submit(singleton))) return false;
      if (singleton !== undefined) this.life.opened(slot);
    }
    return true;
  }
}
