// The rows of one client thread: one per sender and one per receiver, shared by the client and every worker of its node.
// A row is written by few and in named words only; who writes which word stands beside it. Rows never move, and a row number
// together with its generation names one life of the row, for ever.
//
// Sender row:   client allocates → worker opens the slot → records flow → `ending` names the last record →
//               worker sets RETIRED → client may use the row again (generation + 1).
// Receiver row: client binds (BOUND) → a worker claims (CLAIMED) → records flow → the worker's last record is "retired" →
//               client frees the row. An unclaimed bind is released by the client with the same compare-exchange.

import { invariant } from './invariant.js';
import type { Memory } from './memory.js';

/** Words per row: a cache line, so that two streams never share one. */
export const ROW_WORDS = 16;

// ---- sender rows ----------------------------------------------------------------------------------------------------
const S_GENERATION = 0; // client
const S_PULLED = 1; // worker: records taken from the inlet, free-running
const S_ENDING = 2; // client: how the stream ends, `Ending`
const S_ENDING_AT = 3; // client: after how many records
const S_FLAGS = 4; // workers set, client clears at allocation: generation << FLAG_BITS | flags
const S_WAITING = 5; // client: a sender waits for room without blocking
const S_SEQ = 6; // worker: bumped on every change a blocked sender waits for
const S_BLOCKED = 7; // client: a sender blocks on `seq`
const S_WATCHED = 8; // client: somebody waits for the row to retire

/** The flags word carries the low bits of the row's generation, so that no late flag can land in the row's next life. */
const FLAG_BITS = 8;
const FLAG_MASK = (1 << FLAG_BITS) - 1;

/** How a sender ends its stream. */
export const ENDING_NONE = 0;
export const ENDING_FINALIZED = 1;
export const ENDING_DETACHED = 2;
export const ENDING_DROPPED = 3;

/** The slot is open: its OpenSlot was admitted. */
export const SENDER_OPENED = 1;
/** The consumer cancelled; every further send fails. */
export const SENDER_CANCELLED = 2;
/** The consumer asked to stop; sends still work. */
export const SENDER_STOPPED = 4;
/** The slot is gone (peer closed it, epoch death, lane death); every further send fails. */
export const SENDER_CLOSED = 8;
/** The worker is done with the row. Nothing of this life comes any more. */
export const SENDER_RETIRED = 16;
/** The batch with the terminal was admitted. Without it a retired row's output was discarded. */
export const SENDER_SENT = 32;
/** The slot could not be opened. */
export const SENDER_OPEN_FAILED = 64;
/** With `SENDER_CLOSED`: the thread of its lane ended. Set by that thread on its way out, where it can. */
export const SENDER_LANE_DIED = 128;

/** Any of these ends a sender: sends fail with "channel closed". */
export const SENDER_OVER = SENDER_CANCELLED | SENDER_CLOSED | SENDER_OPEN_FAILED;

invariant(S_WATCHED < ROW_WORDS, 'a sender row fits its words');
invariant(SENDER_LANE_DIED <= FLAG_MASK, 'the sender flags fit beside the generation');

/** How long one slice of a blocking wait lasts: the bound on a missed wake that should not happen. */
export const BLOCK_SLICE_MS = 100;

/** Both sides' view of the sender rows of one client thread. */
export class SenderRows {
  constructor(
    protected readonly memory: Memory,
    protected readonly base: number,
    readonly count: number,
  ) {}

  // -- client

  /** Starts a new life of the row. Returns its generation (1 up). */
  allocate(row: number): number {
    const at = this.base + row * ROW_WORDS;
    const generation = (this.memory.load(at + S_GENERATION) + 1) >>> 0 || 1;
    this.memory.store(at + S_PULLED, 0);
    this.memory.store(at + S_ENDING, ENDING_NONE);
    this.memory.store(at + S_ENDING_AT, 0);
    this.memory.store(at + S_WAITING, 0);
    this.memory.store(at + S_WATCHED, 0);
    this.memory.store(at + S_GENERATION, generation | 0);
    this.memory.store(at + S_FLAGS, generation << FLAG_BITS);
    return generation;
  }

  flags(row: number): number {
    return this.memory.load(this.base + row * ROW_WORDS + S_FLAGS) & FLAG_MASK;
  }

  pulled(row: number): number {
    return this.memory.load(this.base + row * ROW_WORDS + S_PULLED);
  }

  /** The stream ends after its `at`-th record. The worker must be told to look (an ending row set, then its bell). */
  end(row: number, ending: number, at: number): void {
    const word = this.base + row * ROW_WORDS;
    this.memory.store(word + S_ENDING_AT, at);
    this.memory.store(word + S_ENDING, ending);
  }

  /** Says that a sender waits for room without blocking. Look at `pulled` and `flags` again after it. */
  setWaiting(row: number): void {
    this.memory.store(this.base + row * ROW_WORDS + S_WAITING, 1);
  }

  /** Says that somebody waits for the row to retire. Look at `flags` again after it. */
  watch(row: number): void {
    this.memory.store(this.base + row * ROW_WORDS + S_WATCHED, 1);
  }

  /**
   * Blocks until the inlet may have room (`sent - pulled < depth`), the stream is over, or `slices` waits have passed.
   * Returns false only when it gave up.
   */
  block(row: number, sent: number, depth: number, slices: number): boolean {
    const at = this.base + row * ROW_WORDS;
    for (let i = 0; i < slices; i++) {
      const seq = this.memory.load(at + S_SEQ);
      this.memory.store(at + S_BLOCKED, 1);
      const room = ((sent - this.memory.load(at + S_PULLED)) | 0) < depth;
      if (room || (this.memory.load(at + S_FLAGS) & SENDER_OVER) !== 0) {
        this.memory.store(at + S_BLOCKED, 0);
        return true;
      }
      this.memory.wait(at + S_SEQ, seq, BLOCK_SLICE_MS);
    }
    this.memory.store(at + S_BLOCKED, 0);
    const room = ((sent - this.memory.load(at + S_PULLED)) | 0) < depth;
    return room || (this.memory.load(at + S_FLAGS) & SENDER_OVER) !== 0;
  }

  // -- worker

  generation(row: number): number {
    return this.memory.load(this.base + row * ROW_WORDS + S_GENERATION) >>> 0;
  }

  /** How the row ends, or `ENDING_NONE`. Its count is valid once this is set. */
  ending(row: number): number {
    return this.memory.load(this.base + row * ROW_WORDS + S_ENDING);
  }

  /** After how many records the row ends. */
  endingCount(row: number): number {
    return this.memory.load(this.base + row * ROW_WORDS + S_ENDING_AT);
  }

  /** Publishes how many records were taken. Returns true when a sender that waits without blocking must be told. */
  setPulled(row: number, pulled: number): boolean {
    const at = this.base + row * ROW_WORDS;
    this.memory.store(at + S_PULLED, pulled | 0);
    if (this.memory.load(at + S_BLOCKED) !== 0) this.wakeBlocked(row);
    if (this.memory.load(at + S_WAITING) === 0) return false;
    return this.memory.exchange(at + S_WAITING, 0) !== 0;
  }

  /** The sender blocks its thread until it has room: it cannot ask again. */
  isBlocked(row: number): boolean {
    return this.memory.load(this.base + row * ROW_WORDS + S_BLOCKED) !== 0;
  }

  /** Sets flags of one life and wakes a blocked sender. False when they stood already, or the life is over. */
  setFlags(row: number, generation: number, flags: number): boolean {
    const at = this.base + row * ROW_WORDS + S_FLAGS;
    const life = (generation << FLAG_BITS) | 0;
    for (;;) {
      const before = this.memory.load(at);
      if ((before & ~FLAG_MASK) !== life || (before & flags) === flags) return false;
      if (this.memory.compareExchange(at, before, before | flags) === before) break;
    }
    this.wakeBlocked(row);
    return true;
  }

  /** Somebody waits for the row to retire. Look after its flags were set. */
  watched(row: number): boolean {
    return this.memory.load(this.base + row * ROW_WORDS + S_WATCHED) !== 0;
  }

  protected wakeBlocked(row: number): void {
    const at = this.base + row * ROW_WORDS;
    this.memory.store(at + S_BLOCKED, 0);
    this.memory.add(at + S_SEQ, 1);
    this.memory.notify(at + S_SEQ);
  }
}

// ---- receiver rows --------------------------------------------------------------------------------------------------
const R_STATE = 0; // both, by compare-exchange: generation << STATE_BITS | worker << WORKER_SHIFT | state
const R_ANCHOR_HI = 1; // client, before BOUND
const R_ANCHOR_LO = 2;
const R_SESSION_HI = 3;
const R_SESSION_LO = 4;
const R_CREDIT = 5;
const R_BYTE_BUDGET = 6;
const R_DRAINED = 7; // client adds, worker exchanges
const R_REQUESTS = 8; // client sets, worker reads
const R_GENERATION = 9; // client
const R_HEARTBEAT = 10; // client, before BOUND
const R_SLOT = 11; // worker, once: id of the slot at the peer that has it
const R_ROUTE = 12; // worker, after R_SLOT: which peer and mux lane that is, plus one

export const BIND_FREE = 0;
export const BIND_BOUND = 1;
export const BIND_CLAIMED = 2;
const STATE_MASK = 0x7;
const WORKER_SHIFT = 3;
const WORKER_MASK = 0x1f;
const STATE_GENERATION_SHIFT = 8;

invariant(R_ROUTE < ROW_WORDS, 'a receiver row fits its words');
invariant((STATE_MASK & (WORKER_MASK << WORKER_SHIFT)) === 0, 'bind state and worker have bits of their own');
invariant(
  (WORKER_MASK << WORKER_SHIFT) >> STATE_GENERATION_SHIFT === 0,
  'worker and generation have bits of their own',
);
invariant(BIND_CLAIMED <= STATE_MASK, 'the bind states fit their bits');

/** The consumer left: close the slot and cancel its producer. */
export const RECEIVER_CANCEL = 1;
/** The consumer asks the producer to stop; the slot stays open. */
export const RECEIVER_STOP = 2;

/** What a worker learns from a won claim. */
export interface ClaimedBind {
  row: number;
  generation: number;
  credit: number;
  byteBudget: number;
  heartbeatMs: number;
}

/** Both sides' view of the receiver rows, which are also the node's bind table: a session names its row. */
export class ReceiverRows {
  constructor(
    protected readonly memory: Memory,
    protected readonly base: number,
    readonly count: number,
  ) {}

  // -- client

  /** Starts a new life. The row cannot be found before `bind`. Returns its generation (1 up). */
  allocate(row: number): number {
    const at = this.base + row * ROW_WORDS;
    const generation = (this.memory.load(at + R_GENERATION) + 1) >>> 0 || 1;
    this.memory.store(at + R_GENERATION, generation | 0);
    this.memory.store(at + R_DRAINED, 0);
    this.memory.store(at + R_REQUESTS, 0);
    this.memory.store(at + R_ROUTE, 0);
    return generation;
  }

  /**
   * Makes the row claimable under (anchor, session), with a window of `credit` records and `byteBudget` bytes, for a
   * sender that beats every `heartbeatMs`. Once in a life:
   * a bind that was taken back needs a new `allocate`, or a claim that began before it could win the wrong session.
   */
  bind(
    row: number,
    anchorHi: number,
    anchorLo: number,
    sessionHi: number,
    sessionLo: number,
    credit: number,
    byteBudget: number,
    heartbeatMs: number,
  ): void {
    const at = this.base + row * ROW_WORDS;
    this.memory.store(at + R_ANCHOR_HI, anchorHi | 0);
    this.memory.store(at + R_ANCHOR_LO, anchorLo | 0);
    this.memory.store(at + R_SESSION_HI, sessionHi | 0);
    this.memory.store(at + R_SESSION_LO, sessionLo | 0);
    this.memory.store(at + R_CREDIT, credit | 0);
    this.memory.store(at + R_BYTE_BUDGET, byteBudget | 0);
    this.memory.store(at + R_HEARTBEAT, heartbeatMs | 0);
    this.memory.store(at + R_STATE, this.stateWord(row, BIND_BOUND, 0));
  }

  /** Takes an unclaimed bind back. False when a worker claimed it first: then it must be asked to let go. */
  release(row: number): boolean {
    const at = this.base + row * ROW_WORDS;
    const bound = this.stateWord(row, BIND_BOUND, 0);
    return this.memory.compareExchange(at + R_STATE, bound, this.stateWord(row, BIND_FREE, 0)) === bound;
  }

  /** Ends a claimed life, after the worker's "retired" was read. */
  free(row: number): void {
    this.memory.store(this.base + row * ROW_WORDS + R_STATE, this.stateWord(row, BIND_FREE, 0));
  }

  /** The worker that claimed the row, or -1. */
  claimedBy(row: number): number {
    const state = this.memory.load(this.base + row * ROW_WORDS + R_STATE);
    return (state & STATE_MASK) === BIND_CLAIMED ? (state >>> WORKER_SHIFT) & WORKER_MASK : -1;
  }

  /**
   * The slot of a claimed row, for whoever must name it when the worker cannot: its id, and the number that the worker gave its peer and
   * mux lane. Undefined while the worker has not said.
   */
  slotOf(
    row: number,
  ): { readonly slot: number; readonly route: number; sessionHi: number; sessionLo: number } | undefined {
    const at = this.base + row * ROW_WORDS;
    const route = this.memory.load(at + R_ROUTE) - 1;
    if (route < 0) return undefined;
    const slot = this.memory.load(at + R_SLOT) >>> 0;
    const sessionHi = this.memory.load(at + R_SESSION_HI) >>> 0;
    return { slot, route, sessionHi, sessionLo: this.memory.load(at + R_SESSION_LO) >>> 0 };
  }

  /** Counts `n` records as taken. The row must then be named in the dirty set. */
  addDrained(row: number, n: number): void {
    this.memory.add(this.base + row * ROW_WORDS + R_DRAINED, n);
  }

  /** Asks the worker for something; the row must then be named in the dirty set. */
  request(row: number, requests: number): void {
    this.memory.or(this.base + row * ROW_WORDS + R_REQUESTS, requests);
  }

  // -- worker

  generation(row: number): number {
    return this.memory.load(this.base + row * ROW_WORDS + R_GENERATION) >>> 0;
  }

  /** Claims the bind of (anchor, session) for `worker`. Fills `into` and returns true for the one caller that wins. */
  claim(
    row: number,
    worker: number,
    anchorHi: number,
    anchorLo: number,
    sessionHi: number,
    sessionLo: number,
    into: ClaimedBind,
  ): boolean {
    if (row < 0 || row >= this.count) return false;
    const at = this.base + row * ROW_WORDS;
    const state = this.memory.load(at + R_STATE);
    if ((state & STATE_MASK) !== BIND_BOUND) return false;
    const same =
      this.memory.load(at + R_ANCHOR_HI) === (anchorHi | 0) &&
      this.memory.load(at + R_ANCHOR_LO) === (anchorLo | 0) &&
      this.memory.load(at + R_SESSION_HI) === (sessionHi | 0) &&
      this.memory.load(at + R_SESSION_LO) === (sessionLo | 0);
    if (!same) return false;
    const credit = this.memory.load(at + R_CREDIT) >>> 0;
    const byteBudget = this.memory.load(at + R_BYTE_BUDGET) >>> 0;
    const heartbeatMs = this.memory.load(at + R_HEARTBEAT) >>> 0;
    const claimed = (state & ~(STATE_MASK | (WORKER_MASK << WORKER_SHIFT))) | (worker << WORKER_SHIFT) | BIND_CLAIMED;
    // The generation inside the state word makes a bind that was released and made anew lose here.
    if (this.memory.compareExchange(at + R_STATE, state, claimed) !== state) return false;
    into.row = row;
    into.generation = this.generation(row);
    into.credit = credit;
    into.byteBudget = byteBudget;
    into.heartbeatMs = heartbeatMs;
    return true;
  }

  /** Says which slot of the peer has the claimed row, so that it can be named when this worker is dead. */
  setSlot(row: number, slot: number, route: number): void {
    const at = this.base + row * ROW_WORDS;
    this.memory.store(at + R_SLOT, slot | 0);
    this.memory.store(at + R_ROUTE, route + 1);
  }

  /** Somebody may still claim the row under this session. It may be claimed, or taken back, right after the look. */
  isBound(row: number, sessionHi: number, sessionLo: number): boolean {
    if (row < 0 || row >= this.count) return false;
    const at = this.base + row * ROW_WORDS;
    const state = this.memory.load(at + R_STATE);
    return (
      (state & STATE_MASK) === BIND_BOUND &&
      this.memory.load(at + R_SESSION_HI) === (sessionHi | 0) &&
      this.memory.load(at + R_SESSION_LO) === (sessionLo | 0)
    );
  }

  /** Takes the count of drained records and sets it to zero. */
  takeDrained(row: number): number {
    const at = this.base + row * ROW_WORDS + R_DRAINED;
    return this.memory.load(at) === 0 ? 0 : this.memory.exchange(at, 0);
  }

  requests(row: number): number {
    return this.memory.load(this.base + row * ROW_WORDS + R_REQUESTS);
  }

  protected stateWord(row: number, state: number, worker: number): number {
    const generation = this.memory.load(this.base + row * ROW_WORDS + R_GENERATION);
    return (generation << STATE_GENERATION_SHIFT) | (worker << WORKER_SHIFT) | state;
  }
}
