// Planted bugs: what ships, with one method changed. The explorer must find every one of them. The word numbers repeat those of
// the layouts, because a layout tells them to nobody else.

import { addToCell, readCell } from '../../lib/plane/cells.js';
import { Doorbell } from '../../lib/plane/doorbell.js';
import type { Memory } from '../../lib/plane/memory.js';
import { RingConsumer, RingProducer } from '../../lib/plane/ring.js';
import { RowSet } from '../../lib/plane/row-set.js';
import { ReceiverRows, ROW_WORDS, SenderRows } from '../../lib/plane/rows.js';

// ---- ring ------------------------------------------------------------------------------------------------------------

const RING_TAIL = 16;
const RING_WAITING = 32;
const RING_KICK = 48;
const RING_KICK_COUNT = 49;

/** The tail moves over a record before its body is written. */
export class PublishBeforeWrite extends RingProducer {
  override reserve(kind: number, tag: number, length: number): number {
    const at = super.reserve(kind, tag, length);
    if (at >= 0) {
      super.commit();
      super.publish();
    }
    return at;
  }
  override commit(): void {}
  /** The record was shown already; only the bell is left. */
  override publish(): boolean {
    return true;
  }
}

/** The head moves over a record before its body is read. */
export class ReleaseBeforeRead extends RingConsumer {
  private mustWake = false;
  override next(): boolean {
    if (!super.next()) return false;
    if (super.release()) this.mustWake = true;
    return true;
  }
  override release(): boolean {
    const wake = this.mustWake;
    this.mustWake = false;
    return wake;
  }
}

/** A kick is a position and nothing else: the next one erases it. */
export class KickWithoutFlag extends RingProducer {
  override kick(): void {
    super.kick();
    this.kickNext = false;
  }
}

/** A kick is shown before the records in front of it. */
export class KickBeforePublish extends RingProducer {
  override kick(): void {
    const tail = this.memory.load(this.base + RING_TAIL);
    const number = this.memory.load(this.base + RING_KICK_COUNT) + 1;
    this.memory.store(this.base + RING_KICK, tail | (number & 7));
    super.publish();
    this.memory.store(this.base + RING_KICK_COUNT, number);
    this.kickNext = true;
  }
}

/** Takes the position of a kick that is not counted yet for that of the one before it. */
export class KickOfTwoWords extends RingConsumer {
  protected override loadKick(): boolean {
    this.kickNumber = this.memory.load(this.base + RING_KICK_COUNT);
    if (this.kickNumber === this.kicksSeen) return false;
    this.kickPosition = this.memory.load(this.base + RING_KICK) & ~7;
    return true;
  }
}

/** The consumer believes that kicks made before it existed were taken. */
export class LateConsumer extends RingConsumer {
  constructor(memory: Memory, base: number, capacity: number) {
    super(memory, base, capacity);
    this.kicksSeen = memory.load(base + RING_KICK_COUNT);
  }
}

/** Looks for a waiting producer first, and frees the records then. */
export class LookBeforeRelease extends RingConsumer {
  override release(): boolean {
    const waiting = this.memory.load(this.base + RING_WAITING) !== 0;
    super.release();
    return waiting;
  }
}

// ---- doorbell --------------------------------------------------------------------------------------------------------

const BELL_PARKED = 0;
const BELL_BELL = 1;

/** Wakes without changing the word: whoever is between the look and the wait sleeps through it. */
export class SilentBell extends Doorbell {
  override ring(): boolean {
    if (this.memory.exchange(this.base + BELL_PARKED, 0) === 0) return false;
    this.memory.notify(this.base + BELL_BELL);
    return true;
  }
}

/** Looks first, parks then: what comes in between rings nobody. */
export function parkAfterLook(memory: Memory, bell: Doorbell, hasWork: () => boolean): void {
  if (hasWork()) return;
  const value = bell.park();
  memory.wait(bell.bellWord, value, Number.POSITIVE_INFINITY);
}

/** Waits on the value that the word has after the look: a ring in between is taken for an old one. */
export function readBellAfterLook(memory: Memory, bell: Doorbell, hasWork: () => boolean): void {
  bell.park();
  if (hasWork()) bell.unpark();
  else memory.wait(bell.bellWord, memory.load(bell.bellWord), Number.POSITIVE_INFINITY);
}

// ---- row set ---------------------------------------------------------------------------------------------------------

/** Clears the levels from below: a bit set behind the taker's back is never looked at again. */
export class TakeFromBelow extends RowSet {
  override take(out: Int32Array): number {
    let count = 0;
    for (let word = 0; word < this.summaryWords << 5; word++) {
      if (this.memory.load(this.bits + word) === 0) continue;
      let rows = this.memory.exchange(this.bits + word, 0);
      for (; rows !== 0; rows &= rows - 1) out[count++] = (word << 5) + (31 - Math.clz32(rows & -rows));
      this.memory.and(this.summary + (word >>> 5), ~(1 << (word & 31)));
    }
    this.memory.store(this.base, 0);
    return count;
  }
}

/** Says "not empty" before it names the row. */
export class AnyBeforeBit extends RowSet {
  override add(row: number): boolean {
    this.memory.store(this.base, 1);
    const word = row >>> 5;
    const mask = 1 << (row & 31);
    this.memory.or(this.summary + (word >>> 5), 1 << (word & 31));
    return (this.memory.or(this.bits + word, mask) & mask) === 0;
  }
}

// ---- rows ------------------------------------------------------------------------------------------------------------

const S_PULLED = 1;
const S_FLAGS = 4;
const S_BLOCKED = 7;
const FLAG_BITS = 8;
const R_DRAINED = 7;
const WORKER_SHIFT = 3;

/** A cancel sets its flag and forgets the sender that blocks. */
export class CancelWithoutWake extends SenderRows {
  private silent = false;
  override setFlags(row: number, generation: number, flags: number): boolean {
    this.silent = true;
    const set = super.setFlags(row, generation, flags);
    this.silent = false;
    return set;
  }
  protected override wakeBlocked(row: number): void {
    if (!this.silent) super.wakeBlocked(row);
  }
}

/** Looks for a blocked sender first, and publishes the room then. */
export class LookBeforePulled extends SenderRows {
  override setPulled(row: number, pulled: number): boolean {
    const blocked = this.memory.load(this.base + row * ROW_WORDS + S_BLOCKED) !== 0;
    this.memory.store(this.base + row * ROW_WORDS + S_PULLED, pulled);
    if (blocked) this.wakeBlocked(row);
    return false;
  }
}

/** Flags go to whoever lives in the row now. */
export class FlagsWithoutLife extends SenderRows {
  override setFlags(row: number, _generation: number, flags: number): boolean {
    const at = this.base + row * ROW_WORDS + S_FLAGS;
    return super.setFlags(row, this.memory.load(at) >>> FLAG_BITS, flags);
  }
}

/** The life is checked, but the flags are set without it. */
export class FlagsByStore extends SenderRows {
  override setFlags(row: number, generation: number, flags: number): boolean {
    const at = this.base + row * ROW_WORDS + S_FLAGS;
    const before = this.memory.load(at);
    if (before >>> FLAG_BITS !== generation) return false;
    this.memory.store(at, before | flags);
    this.wakeBlocked(row);
    return true;
  }
}

/** The state word does not say which life it belongs to. */
export class ClaimWithoutGeneration extends ReceiverRows {
  protected override stateWord(_row: number, state: number, worker: number): number {
    return (worker << WORKER_SHIFT) | state;
  }
}

/** Reads the count, and sets it to zero in a second step. */
export class DrainedByStore extends ReceiverRows {
  override takeDrained(row: number): number {
    const at = this.base + row * ROW_WORDS + R_DRAINED;
    const drained = this.memory.load(at);
    if (drained !== 0) this.memory.store(at, 0);
    return drained;
  }
}

/** A bind is taken back without asking whether a worker was first. */
export class ReleaseByStore extends ReceiverRows {
  override release(row: number): boolean {
    if (this.claimedBy(row) >= 0) return false;
    this.free(row);
    return true;
  }
}

// ---- cells -----------------------------------------------------------------------------------------------------------

export interface CellParts {
  add: typeof addToCell;
  read: typeof readCell;
}

export const SHIPPED_CELLS: CellParts = { add: addToCell, read: readCell };

/** The upper half is kept once, and read before and after the lower one. */
export const CELLS_OF_TWO_WORDS: CellParts = {
  add: (memory, at, n) => {
    const low = (memory.load(at) >>> 0) + n;
    if (low > 0xffffffff) memory.add(at + 1, 1);
    memory.store(at, low | 0);
  },
  read: (memory, at) => {
    for (;;) {
      const high = memory.load(at + 1);
      const low = memory.load(at) >>> 0;
      if (memory.load(at + 1) === high) return high * 0x1_0000_0000 + low;
    }
  },
};
