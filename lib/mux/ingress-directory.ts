// Where the peer's slots are found: by index, aside by full id, and in one list for walks. Owns membership only; it
// must never end a slot or deliver to it.

import { slotIndex } from '../wire/slot-id.js';
import type { IngressSlot } from './ingress-slot.js';

export class SlotDirectory {
  /** Every live slot once, in no particular order. */
  readonly live: IngressSlot[] = [];
  /** By index; never longer than the highest index that was opened needs. */
  private readonly slots: (IngressSlot | undefined)[] = [];
  /** Old occupants whose close has come and whose records have not, by full id. */
  private readonly aside = new Map<number, IngressSlot>();

  /** The live slot of an id, in the table or aside. */
  find(id: number): IngressSlot | undefined {
    const slot = this.slots[slotIndex(id)];
    if (slot !== undefined && slot.id === id) return slot;
    return this.aside.size === 0 ? undefined : this.aside.get(id);
  }

  /** The occupant of an index, whatever its generation. */
  at(index: number): IngressSlot | undefined {
    return this.slots[index];
  }

  findAside(id: number): IngressSlot | undefined {
    return this.aside.size === 0 ? undefined : this.aside.get(id);
  }

  /** The index must be free. */
  add(slot: IngressSlot): void {
    while (this.slots.length <= slot.index) this.slots.push(undefined);
    this.slots[slot.index] = slot;
    slot.listAt = this.live.length;
    this.live.push(slot);
  }

  moveAside(slot: IngressSlot): void {
    this.slots[slot.index] = undefined;
    this.aside.set(slot.id, slot);
  }

  remove(slot: IngressSlot): void {
    if (this.slots[slot.index] === slot) this.slots[slot.index] = undefined;
    else this.aside.delete(slot.id);
    const last = this.live.pop();
    if (last !== undefined && last !== slot) {
      this.live[slot.listAt] = last;
      last.listAt = slot.listAt;
    }
  }

  /** Gives the index array back. No slot may be live. */
  forgetIndices(): void {
    if (this.live.length === 0) this.slots.length = 0;
  }
}
