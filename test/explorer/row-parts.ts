// What the programs around rows share: the layout of their memory, the parts that a planted bug replaces, and how one thread
// tells another that something is done.

import { Doorbell } from '../../lib/plane/doorbell.js';
import type { Memory } from '../../lib/plane/memory.js';
import { RowSet } from '../../lib/plane/row-set.js';
import { type ClaimedBind, ReceiverRows, ROW_WORDS, SenderRows } from '../../lib/plane/rows.js';
import { sleep } from './models.js';

export interface RowParts {
  rowSet: typeof RowSet;
  senders: typeof SenderRows;
  receivers: typeof ReceiverRows;
  sleep: typeof sleep;
  /** A visit asks for requests first and takes the drains then: what was drained before the request is counted. */
  requestsFirst: boolean;
  /** A visit takes the drains before it says "retired": afterwards they are the next life's. */
  drainsBeforeRetired: boolean;
  /** A visit for one peer keeps the bits of the others for their own visits. */
  filesOthers: boolean;
  /** A worker that muted its clients asks to be rung again, and looks then. */
  clearBeforeLook: boolean;
  /** A client puts the work down, and asks then whether the worker is muted. */
  muteAfterAdd: boolean;
  /** A lane asks who watches a row after it said that the row is retired. */
  watchedAfterRetired: boolean;
}

export const SHIPPED_ROWS: RowParts = {
  rowSet: RowSet,
  senders: SenderRows,
  receivers: ReceiverRows,
  sleep,
  requestsFirst: true,
  drainsBeforeRetired: true,
  filesOthers: true,
  clearBeforeLook: true,
  muteAfterAdd: true,
  watchedAfterRetired: true,
};

export const SET_ROWS = 1024;
export const ROWS = 34;
/** A row behind the first word of the bitmap. */
export const FAR_ROW = 33;

export const SET = 0;
export const SET_2 = 64;
export const BELL_A = 128;
export const BELL_B = 144;
export const BELL_C = 160;
export const OWN = 176;
export const MUTE = 184;
export const TABLE = 192;
export const WORDS = TABLE + ROWS * ROW_WORDS;

export const ROW = 2;

export const SESSION_1 = 101;
export const SESSION_2 = 102;
export const CREDIT_1 = 11;
export const CREDIT_2 = 22;

export function bind(rows: ReceiverRows, session: number, credit: number): void {
  rows.allocate(ROW);
  rows.bind(ROW, 1, 2, 3, session, credit, 1000, 5000);
}

export function claim(rows: ReceiverRows, worker: number, session: number): ClaimedBind | undefined {
  const into: ClaimedBind = { row: -1, generation: 0, credit: 0, byteBudget: 0, heartbeatMs: 0 };
  return rows.claim(ROW, worker, 1, 2, 3, session, into) ? into : undefined;
}

/** A word that one thread sets and another sleeps for. */
export function announce(memory: Memory, word: number, bell: number): void {
  memory.store(word, 1);
  new Doorbell(memory, bell).ring();
}

export function awaitWord(memory: Memory, parts: RowParts, word: number, bell: number): void {
  const own = new Doorbell(memory, bell);
  while (memory.load(word) === 0) parts.sleep(memory, own, () => memory.load(word) !== 0);
}

export function expectTotal(total: number | undefined, expected: number): void {
  if (total !== expected) throw new Error(`${total} drains were taken of ${expected}`);
}
