// Slots that have something to do once their batcher may stage again: a queue threaded through the slots themselves.
// Owns the links; it must never look at what a slot has to do.

import type { EgressSlot } from './egress-slot.js';

/** First in, first out; a slot stands in it at most once. */
export class ReadyList {
  private head: EgressSlot | undefined;
  private tail: EgressSlot | undefined;

  get isEmpty(): boolean {
    return this.head === undefined;
  }

  push(slot: EgressSlot): void {
    if (slot.readyListed) return;
    slot.readyListed = true;
    if (this.tail === undefined) this.head = slot;
    else this.tail.nextReady = slot;
    this.tail = slot;
  }

  shift(): EgressSlot | undefined {
    const slot = this.head;
    if (slot === undefined) return undefined;
    this.head = slot.nextReady;
    if (this.head === undefined) this.tail = undefined;
    slot.nextReady = undefined;
    slot.readyListed = false;
    return slot;
  }
}
