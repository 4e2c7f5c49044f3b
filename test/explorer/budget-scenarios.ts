// Lanes that hold bytes for one peer against one budget, one of which dies and is buried. The functions that ship are parameters, so
// that a planted bug runs in the same programs.

import { buryHeldBytes, HeldBytes } from '../../lib/plane/held-bytes.js';
import type { Memory } from '../../lib/plane/memory.js';
import type { Scenario } from './explorer.js';
import { announce, awaitWord, SHIPPED_ROWS } from './row-parts.js';

export interface BudgetParts {
  held: typeof HeldBytes;
  bury: typeof buryHeldBytes;
}

export const SHIPPED_BUDGET: BudgetParts = { held: HeldBytes, bury: buryHeldBytes };

export const LANES = 2;
export const ROW = 0;
const LIMIT = 10;
/** Sum of what lanes know to hold. A lane adds to it after it was granted something, and takes it off before it gives it back. */
const GRANTED = 16;
/** Of the dead lane: what it had of that. */
const LOST = 17;
const DEAD = 18;
const BELL = 32;
const WORDS = 64;

function share(memory: Memory, parts: BudgetParts, lane: number): HeldBytes {
  return new parts.held(memory, ROW, LANES, lane, LIMIT);
}

/** Holds `bytes` if it may. No two lanes ever hold more than the budget together. */
function hold(memory: Memory, held: HeldBytes, bytes: number): boolean {
  if (!held.tryReserve(bytes)) return false;
  const granted = memory.add(GRANTED, bytes) + bytes;
  if (granted > LIMIT) throw new Error(`${granted} bytes are held of ${LIMIT}`);
  return true;
}

function letGo(memory: Memory, held: HeldBytes, bytes: number): void {
  memory.add(GRANTED, -bytes);
  held.release(bytes);
}

/** Holds and lets go of each in turn; returns what it holds at the end: the last, if it was granted. */
function holdInTurn(memory: Memory, held: HeldBytes, sizes: readonly number[]): number {
  let kept = 0;
  for (const bytes of sizes) {
    if (kept > 0) letGo(memory, held, kept);
    kept = hold(memory, held, bytes) ? bytes : 0;
  }
  return kept;
}

function expectHeld(memory: Memory, expected: number): void {
  const { used } = new HeldBytes(memory, ROW, LANES, 0, LIMIT);
  if (used !== expected) throw new Error(`the row says ${used} bytes, ${expected} are held`);
}

/** Two lanes hold and let go; what both want never fits at once. At the end the row says what they hold. */
export function sharedBudgetScenario(parts: BudgetParts): Scenario<number> {
  const lane = (number: number, sizes: readonly number[]) => (memory: Memory) =>
    holdInTurn(memory, share(memory, parts, number), sizes);
  return {
    words: WORDS,
    threads: [lane(0, [6, 7]), lane(1, [5, 8])],
    check: ([first, second], memory) => {
      if (first === 0 && second === 0 && memory.load(GRANTED) !== 0) throw new Error('something is held by nobody');
      expectHeld(memory, first! + second!);
    },
  };
}

/** Lane 0 dies while it holds something, or in the middle of a try. */
export type Death = 'holding' | 'trying';

function die(memory: Memory, parts: BudgetParts, death: Death): number {
  class Dying extends parts.held {
    protected override fits(): boolean {
      if (death === 'trying') throw new Error('dead');
      return super.fits();
    }
  }
  const held = new Dying(memory, ROW, LANES, 0, LIMIT);
  try {
    if (hold(memory, held, 4)) memory.store(LOST, 4);
  } catch (error) {
    if ((error as Error).message !== 'dead') throw error;
  }
  announce(memory, DEAD, BELL);
  return 0;
}

/**
 * Lane 0 dies and is buried, and the lane that takes its place holds something; lane 1 goes on meanwhile. Afterwards the row has what the
 * living hold, and not a byte of the dead. `late`: what the dead had is let go of once more after that.
 */
export function burialScenario(death: Death, parts: BudgetParts, late = false): Scenario<number> {
  return {
    words: WORDS,
    threads: [
      (memory) => die(memory, parts, death),
      (memory) => holdInTurn(memory, share(memory, parts, 1), [3, 5]),
      (memory) => {
        awaitWord(memory, SHIPPED_ROWS, DEAD, BELL);
        memory.add(GRANTED, -memory.load(LOST));
        parts.bury(memory, ROW, LANES, 0, 1);
        if (late) share(memory, parts, 0).release(4);
        return hold(memory, share(memory, parts, 0), 5) ? 5 : 0;
      },
    ],
    check: ([, survivor, successor], memory) => {
      // Without the dead lane both would have fitted.
      if (survivor === 0 && successor === 0) throw new Error('nobody may hold anything');
      expectHeld(memory, survivor! + successor!);
      const free = LIMIT - survivor! - successor!;
      if (!share(memory, SHIPPED_BUDGET, 1).tryReserve(free)) throw new Error(`${free} free bytes were refused`);
    },
  };
}
