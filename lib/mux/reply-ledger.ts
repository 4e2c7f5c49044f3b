// Credit and closes owed to the peer's slots, one entry per slot id, in the order of their first posting. Owns the
// merge rules; it must never grow beyond the slots that were admitted, and posting to a known slot allocates nothing.

import { slotIndex } from '../wire/slot-id.js';
import { saturatingAdd } from './credit.js';
import { MAX_TABLE_SLOTS } from './mux-config.js';

/** No close is owed for this entry. */
export const NO_CLOSE = -1;

const CHUNK_BITS = 8;
const CHUNK_SLOTS = 1 << CHUNK_BITS;
const CHUNK_MASK = CHUNK_SLOTS - 1;
/** Taken entries in front of the arrays before they are worth moving. */
const COMPACT_AT = 1_024;

/**
 * Entries stand in parallel arrays from `head` to `end`. The place of a slot's entry is found by its index; an entry of
 * another generation at the same index (an old occupant that still waits) is found by its full id.
 */
export class ReplyLedger {
  private readonly ids: number[] = [];
  private readonly credits: number[] = [];
  private readonly closes: number[] = [];
  private head = 0;
  private end = 0;
  /** Place + 1 by slot index, in chunks made on demand; 0: none. */
  private readonly chunks: (Uint32Array | undefined)[] = [];
  private readonly others = new Map<number, number>();

  /** Entries that wait. */
  get size(): number {
    return this.end - this.head;
  }

  /** Entries there is room for: bounded by what waited at once, not by what went through. */
  get memory(): number {
    return this.ids.length;
  }

  /** Slot id, credit and close of the entry that is next; only while `size` > 0. */
  get nextId(): number {
    return this.ids[this.head]!;
  }

  get nextCredit(): number {
    return this.credits[this.head]!;
  }

  /** The close reason owed, or NO_CLOSE. A close supersedes the credit of its slot. */
  get nextClose(): number {
    return this.closes[this.head]!;
  }

  addCredit(slotId: number, delta: number): void {
    const at = this.place(slotId);
    if (this.closes[at] === NO_CLOSE) this.credits[at] = saturatingAdd(this.credits[at]!, delta);
  }

  /** The first reason stands. */
  addClose(slotId: number, reason: number): void {
    const at = this.place(slotId);
    if (this.closes[at] === NO_CLOSE) this.closes[at] = reason;
  }

  /** Removes the entry that is next. */
  shift(): void {
    const id = this.ids[this.head]!;
    const chunk = this.chunks[slotIndex(id) >>> CHUNK_BITS];
    const cell = slotIndex(id) & CHUNK_MASK;
    if (chunk !== undefined && chunk[cell] === this.head + 1) chunk[cell] = 0;
    else this.others.delete(id);
    this.head += 1;
    if (this.head === this.end) {
      this.head = 0;
      this.end = 0;
    }
  }

  clear(): void {
    while (this.size > 0) this.shift();
  }

  private place(id: number): number {
    const index = slotIndex(id);
    if (index >= MAX_TABLE_SLOTS) return this.placeOther(id);
    let chunk = this.chunks[index >>> CHUNK_BITS];
    if (chunk === undefined) {
      chunk = new Uint32Array(CHUNK_SLOTS);
      this.chunks[index >>> CHUNK_BITS] = chunk;
    }
    const cell = index & CHUNK_MASK;
    const known = chunk[cell]!;
    if (known !== 0) return this.ids[known - 1] === id ? known - 1 : this.placeOther(id);
    if (this.others.size > 0 && this.others.has(id)) return this.others.get(id)!;
    const at = this.append(id);
    chunk[cell] = at + 1;
    return at;
  }

  private placeOther(id: number): number {
    const known = this.others.get(id);
    if (known !== undefined) return known;
    const at = this.append(id);
    this.others.set(id, at);
    return at;
  }

  private append(id: number): number {
    if (this.head >= COMPACT_AT && this.head >= this.size) this.compact();
    const at = this.end;
    this.ids[at] = id;
    this.credits[at] = 0;
    this.closes[at] = NO_CLOSE;
    this.end += 1;
    return at;
  }

  /** Moves the entries to the front of the arrays: a ledger that never runs empty must not grow either. */
  private compact(): void {
    const moved = this.head;
    for (let from = moved; from < this.end; from++) {
      const id = this.ids[from]!;
      const to = from - moved;
      this.ids[to] = id;
      this.credits[to] = this.credits[from]!;
      this.closes[to] = this.closes[from]!;
      const chunk = this.chunks[slotIndex(id) >>> CHUNK_BITS];
      const cell = slotIndex(id) & CHUNK_MASK;
      if (chunk !== undefined && chunk[cell] === from + 1) chunk[cell] = to + 1;
      else this.others.set(id, to);
    }
    this.end -= moved;
    this.head = 0;
  }
}
