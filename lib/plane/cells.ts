// Counters of 64 bits in 32-bit words: one thread writes a cell, any thread reads it. Neither ever waits for the other.
//
// The upper half is kept twice. A writer that changes it counts the change, writes `high`, then `low`, then `high done`; a reader
// reads them in the opposite order between two looks at the count. Equal halves and an equal count mean that `low` is theirs.

import { invariant } from './invariant.js';
import type { Memory } from './memory.js';

const LOW = 0;
const HIGH = 1;
const HIGH_DONE = 2;
const CHANGES = 3;
/** Words a cell takes. */
export const CELL_WORDS = 4;

const TWO_POW_32 = 0x1_0000_0000;
const TWO_POW_31 = 0x8000_0000;
/** A reader does not wait for a writer that was stopped, or died, in the middle of a change. */
const READ_TRIES = 8;

invariant(CHANGES < CELL_WORDS, 'a cell fits its words');

/** Adds to a cell; `n` may be negative. Only the cell's own thread may call it. */
export function addToCell(memory: Memory, at: number, n: number): void {
  const low = (memory.read(at + LOW) >>> 0) + n;
  if (low >= 0 && low < TWO_POW_32) memory.store(at + LOW, low | 0);
  else writeCell(memory, at, memory.read(at + HIGH) * TWO_POW_32 + low);
}

/** Sets a cell. Only the cell's own thread may call it. */
export function writeCell(memory: Memory, at: number, value: number): void {
  const high = Math.floor(value / TWO_POW_32);
  if (memory.read(at + HIGH) === high && memory.read(at + HIGH_DONE) === high) {
    memory.store(at + LOW, value | 0);
    return;
  }
  memory.add(at + CHANGES, 1);
  memory.store(at + HIGH, high);
  memory.store(at + LOW, value | 0);
  memory.store(at + HIGH_DONE, high);
}

/** Reads a cell, from any thread. */
export function readCell(memory: Memory, at: number): number {
  for (let tries = 1; ; tries++) {
    const changes = memory.load(at + CHANGES);
    const done = memory.load(at + HIGH_DONE);
    const low = memory.load(at + LOW) >>> 0;
    const high = memory.load(at + HIGH);
    if (memory.load(at + CHANGES) !== changes || (done !== high && tries < READ_TRIES)) continue;
    // One change is still under way: a large `low` lies below the multiple of 2^32 that it crosses, a small one above it.
    return (low >= TWO_POW_31 ? Math.min(done, high) : Math.max(done, high)) * TWO_POW_32 + low;
  }
}
