// A lock-free set of row numbers: a bitmap with one summary bit per 32 words and one word that says "not empty".
// A bit names a row and carries no quantity; a stale bit costs its taker a visit and nothing else.
//
// Order: a setter writes the row's bit, then its summary bit, then `any`; the taker clears in the opposite order. A setter
// that finds a level already set may stop there, because the taker has not yet passed that level and will still look below it.

import type { Memory } from './memory.js';

const ANY = 0;
const SUMMARY = 16;
const BITS = 32;
/** Rows come in multiples of what one summary word covers. */
export const ROW_SET_GRAIN = BITS * BITS;

/** Words a set of `rows` rows takes. `rows` is a multiple of 1,024. */
export function rowSetWords(rows: number): number {
  const summaryWords = rows / ROW_SET_GRAIN;
  return SUMMARY + ((summaryWords + 15) & ~15) + rows / BITS;
}

export class RowSet {
  protected readonly summary: number;
  protected readonly summaryWords: number;
  protected readonly bits: number;

  constructor(
    protected readonly memory: Memory,
    protected readonly base: number,
    rows: number,
  ) {
    this.summary = base + SUMMARY;
    this.summaryWords = rows / ROW_SET_GRAIN;
    this.bits = this.summary + ((this.summaryWords + 15) & ~15);
  }

  /** Adds a row. True when this call put it in: only then may the caller ring. */
  add(row: number): boolean {
    const mask = 1 << (row & 31);
    const word = row >>> 5;
    if ((this.memory.or(this.bits + word, mask) & mask) !== 0) return false;
    const summaryWord = this.summary + (word >>> 5);
    const summaryMask = 1 << (word & 31);
    if ((this.memory.load(summaryWord) & summaryMask) === 0) this.memory.or(summaryWord, summaryMask);
    if (this.memory.load(this.base + ANY) === 0) this.memory.store(this.base + ANY, 1);
    return true;
  }

  isEmpty(): boolean {
    return this.memory.load(this.base + ANY) === 0;
  }

  /** Takes every row out, into `out` (at least as long as the set has rows). Returns how many. */
  take(out: Int32Array): number {
    if (this.memory.load(this.base + ANY) === 0) return 0;
    this.memory.exchange(this.base + ANY, 0);
    let count = 0;
    for (let s = 0; s < this.summaryWords; s++) {
      if (this.memory.load(this.summary + s) === 0) continue;
      let words = this.memory.exchange(this.summary + s, 0);
      while (words !== 0) {
        const word = (s << 5) + (31 - Math.clz32(words & -words));
        words &= words - 1;
        let rows = this.memory.exchange(this.bits + word, 0);
        while (rows !== 0) {
          out[count++] = (word << 5) + (31 - Math.clz32(rows & -rows));
          rows &= rows - 1;
        }
      }
    }
    return count;
  }
}
