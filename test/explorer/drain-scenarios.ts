// The programs around drains: a client counts what its consumers took and names the rows, workers visit them.

import { Doorbell, Mute } from '../../lib/plane/doorbell.js';
import type { Memory } from '../../lib/plane/memory.js';
import { RECEIVER_CANCEL, ReceiverRows } from '../../lib/plane/rows.js';
import type { Scenario } from './explorer.js';
import {
  announce,
  awaitWord,
  BELL_A,
  BELL_B,
  BELL_C,
  bind,
  CREDIT_1,
  CREDIT_2,
  claim,
  expectTotal,
  MUTE,
  OWN,
  ROW,
  ROWS,
  type RowParts,
  SESSION_1,
  SESSION_2,
  SET,
  SET_2,
  SET_ROWS,
  TABLE,
  WORDS,
} from './row-parts.js';

function drainTo(memory: Memory, parts: RowParts, setAt: number, bell: number, drained: readonly number[]): void {
  const rows = new parts.receivers(memory, TABLE, ROWS);
  const set = new parts.rowSet(memory, setAt, SET_ROWS);
  const ringer = new Doorbell(memory, bell);
  for (const row of drained) {
    rows.addDrained(row, 1);
    if (set.add(row)) ringer.ring();
  }
}

function collect(memory: Memory, parts: RowParts, setAt: number, bell: number, expected: number): number {
  const rows = new parts.receivers(memory, TABLE, ROWS);
  const set = new parts.rowSet(memory, setAt, SET_ROWS);
  const own = new Doorbell(memory, bell);
  const out = new Int32Array(SET_ROWS);
  let total = 0;
  for (;;) {
    const count = set.take(out);
    for (let i = 0; i < count; i++) total += rows.takeDrained(out[i]!);
    if (total >= expected) return total;
    parts.sleep(memory, own, () => !set.isEmpty());
  }
}

/** Drains of a client reach a worker that sleeps, each once. `clients` share one set. */
export function drainScenario(clients: readonly (readonly number[])[], parts: RowParts): Scenario<number> {
  const expected = clients.flat().length;
  return {
    words: WORDS,
    threads: [
      ...clients.map((drained) => (memory: Memory) => {
        drainTo(memory, parts, SET, BELL_A, drained);
        return 0;
      }),
      (memory) => collect(memory, parts, SET, BELL_A, expected),
    ],
    check: (totals) => expectTotal(totals.at(-1), expected),
  };
}

/** Two peers' rows are named in one set; a visit is for one peer. */
export function peersScenario(parts: RowParts): Scenario<number[]> {
  const expected = [2, 1];
  return {
    words: WORDS,
    threads: [
      (memory) => {
        drainTo(memory, parts, SET, BELL_A, [0, 1, 0]);
        return [];
      },
      (memory) => {
        const rows = new parts.receivers(memory, TABLE, ROWS);
        const set = new parts.rowSet(memory, SET, SET_ROWS);
        const own = new Doorbell(memory, BELL_A);
        const out = new Int32Array(SET_ROWS);
        const totals = [0, 0];
        const filed: number[][] = [[], []];
        const visit = (peer: number): void => {
          const count = set.take(out);
          for (let i = 0; i < count; i++) if (out[i] === peer || parts.filesOthers) filed[out[i]!]!.push(out[i]!);
          for (const row of filed[peer]!) totals[peer]! += rows.takeDrained(row);
          filed[peer]!.length = 0;
        };
        for (let turn = 0; ; turn++) {
          visit(turn & 1);
          if (totals[0] === expected[0] && totals[1] === expected[1]) return totals;
          // What is filed for a later visit is work too: nobody rings for it again.
          if ((turn & 1) === 1) parts.sleep(memory, own, () => !set.isEmpty() || filed.flat().length > 0);
        }
      },
    ],
  };
}

/** One life is cancelled and retired by worker B, the next one is served by worker C; each counts its own drains. */
export function successorScenario(parts: RowParts): Scenario<number> {
  const [retired, bound, claimed] = [OWN, OWN + 1, OWN + 2];
  return {
    words: WORDS,
    setup: (memory) => {
      const rows = new ReceiverRows(memory, TABLE, ROWS);
      bind(rows, SESSION_1, CREDIT_1);
      claim(rows, 1, SESSION_1);
    },
    threads: [
      (memory) => {
        drainTo(memory, parts, SET, BELL_B, [ROW, ROW]);
        const rows = new parts.receivers(memory, TABLE, ROWS);
        rows.request(ROW, RECEIVER_CANCEL);
        if (new parts.rowSet(memory, SET, SET_ROWS).add(ROW)) new Doorbell(memory, BELL_B).ring();
        awaitWord(memory, parts, retired, BELL_A);
        rows.free(ROW);
        bind(rows, SESSION_2, CREDIT_2);
        announce(memory, bound, BELL_C);
        awaitWord(memory, parts, claimed, BELL_A);
        drainTo(memory, parts, SET_2, BELL_C, [ROW, ROW, ROW]);
        return 0;
      },
      (memory) => retire(memory, parts, retired),
      (memory) => {
        awaitWord(memory, parts, bound, BELL_C);
        const rows = new parts.receivers(memory, TABLE, ROWS);
        const won = claim(rows, 2, SESSION_2);
        if (won?.credit !== CREDIT_2) throw new Error('the next life was not claimed as it was bound');
        announce(memory, claimed, BELL_A);
        return collect(memory, parts, SET_2, BELL_C, 3);
      },
    ],
    check: ([, first, second]) => {
      expectTotal(first, 2);
      expectTotal(second, 3);
    },
  };
}

/** Worker B: visits its row until the consumer left, then gives the row back. */
function retire(memory: Memory, parts: RowParts, retired: number): number {
  const rows = new parts.receivers(memory, TABLE, ROWS);
  const set = new parts.rowSet(memory, SET, SET_ROWS);
  const own = new Doorbell(memory, BELL_B);
  const out = new Int32Array(SET_ROWS);
  let total = 0;
  for (;;) {
    while (set.take(out) > 0) {
      if (!parts.requestsFirst) total += rows.takeDrained(ROW);
      const left = (rows.requests(ROW) & RECEIVER_CANCEL) !== 0;
      if (parts.requestsFirst && parts.drainsBeforeRetired) total += rows.takeDrained(ROW);
      if (!left) continue;
      announce(memory, retired, BELL_A);
      if (!parts.drainsBeforeRetired) total += rows.takeDrained(ROW);
      return total;
    }
    parts.sleep(memory, own, () => !set.isEmpty());
  }
}

/** A worker that waits mutes its clients until a time it knows; what they drain meanwhile is found then, without a ring. */
export function muteScenario(drained: readonly number[], parts: RowParts): Scenario<number> {
  return {
    words: WORDS,
    threads: [
      (memory) => {
        const rows = new parts.receivers(memory, TABLE, ROWS);
        const set = new parts.rowSet(memory, SET, SET_ROWS);
        const bell = new Doorbell(memory, BELL_A);
        const mute = new Mute(memory, MUTE);
        for (const row of drained) {
          rows.addDrained(row, 1);
          const muted = !parts.muteAfterAdd && mute.isSet;
          if (set.add(row) && !muted && !(parts.muteAfterAdd && mute.isSet)) bell.ring();
        }
        return 0;
      },
      (memory) => mutedVisits(memory, parts, drained.length),
    ],
    check: ([, total]) => expectTotal(total, drained.length),
  };
}

function mutedVisits(memory: Memory, parts: RowParts, expected: number): number {
  const rows = new parts.receivers(memory, TABLE, ROWS);
  const set = new parts.rowSet(memory, SET, SET_ROWS);
  const bell = new Doorbell(memory, BELL_A);
  const mute = new Mute(memory, MUTE);
  const out = new Int32Array(SET_ROWS);
  let total = 0;
  const look = (): void => {
    const count = set.take(out);
    for (let i = 0; i < count; i++) total += rows.takeDrained(out[i]!);
  };
  for (;;) {
    look();
    if (total >= expected) return total;
    const value = bell.park();
    if (!set.isEmpty()) {
      bell.unpark();
      continue;
    }
    // While the wait stands, a turn that something else caused queues a visit, and the visit's time comes.
    mute.set();
    if (parts.clearBeforeLook) mute.clear();
    look();
    if (!parts.clearBeforeLook) mute.clear();
    if (total >= expected) return total;
    memory.wait(bell.bellWord, value, Number.POSITIVE_INFINITY);
  }
}
