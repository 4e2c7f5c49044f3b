// The programs around rows: senders that wait for room, lives that follow each other in one row, binds that several parties
// race for.

import { Doorbell } from '../../lib/plane/doorbell.js';
import type { Memory } from '../../lib/plane/memory.js';
import {
  type ClaimedBind,
  RECEIVER_STOP,
  ReceiverRows,
  SENDER_CANCELLED,
  SENDER_CLOSED,
  SENDER_OVER,
  SENDER_RETIRED,
  SENDER_SENT,
  SENDER_STOPPED,
  SenderRows,
} from '../../lib/plane/rows.js';
import type { Scenario } from './explorer.js';
import {
  announce,
  awaitWord,
  BELL_A,
  BELL_B,
  bind,
  CREDIT_1,
  CREDIT_2,
  claim,
  expectTotal,
  OWN,
  ROW,
  ROWS,
  type RowParts,
  SESSION_1,
  SESSION_2,
  SET,
  SET_ROWS,
  TABLE,
  WORDS,
} from './row-parts.js';

const DEPTH = 1;
/** More slices than there are wakes: a sender that gives up was forgotten. */
const SLICES = 50;
// ---- senders that wait -----------------------------------------------------------------------------------------------

const SENT = OWN;
const ENDED = OWN + 1;

function senderSetup(memory: Memory): void {
  new SenderRows(memory, TABLE, ROWS).allocate(ROW);
}

/** Sends up to `records`, blocking while the inlet is full. Returns how many were sent. */
function sendBlocking(memory: Memory, parts: RowParts, records: number): number {
  const rows = new parts.senders(memory, TABLE, ROWS);
  const bell = new Doorbell(memory, BELL_B);
  let sent = 0;
  while (sent < records && (rows.flags(ROW) & SENDER_OVER) === 0) {
    if (sent - rows.pulled(ROW) < DEPTH) {
      memory.store(SENT, ++sent);
      bell.ring();
    } else if (!rows.block(ROW, sent, DEPTH, SLICES)) throw new Error('a blocked sender gave up');
  }
  announce(memory, ENDED, BELL_B);
  return sent;
}

/** Pulls until `records` were taken. `told` hears when a sender that waits without blocking must be told. */
function pull(memory: Memory, parts: RowParts, records: number, told?: () => void): void {
  const rows = new parts.senders(memory, TABLE, ROWS);
  const bell = new Doorbell(memory, BELL_B);
  let pulled = 0;
  for (;;) {
    const sent = memory.load(SENT);
    if (sent !== pulled) {
      pulled = sent;
      if (rows.setPulled(ROW, pulled)) told?.();
    }
    if (pulled >= records || memory.load(ENDED) !== 0) return;
    parts.sleep(memory, bell, () => memory.load(SENT) !== pulled || memory.load(ENDED) !== 0);
  }
}

/** A sender blocks for room that the worker makes. */
export function blockAtPullScenario(parts: RowParts): Scenario<number> {
  return {
    words: WORDS,
    setup: senderSetup,
    threads: [
      (memory) => sendBlocking(memory, parts, 3),
      (memory) => {
        pull(memory, parts, 3);
        return 0;
      },
    ],
    check: ([sent]) => expectTotal(sent, 3),
  };
}

/** A sender blocks, room comes once, and another worker ends the stream with `flag`. */
export function blockAtEndScenario(flag: 'cancel' | 'close', parts: RowParts): Scenario<number> {
  const over = flag === 'cancel' ? SENDER_CANCELLED : SENDER_CLOSED;
  return {
    words: WORDS,
    setup: senderSetup,
    threads: [
      (memory) => sendBlocking(memory, parts, 3),
      (memory) => {
        pull(memory, parts, 1);
        new parts.senders(memory, TABLE, ROWS).setFlags(ROW, 1, SENDER_STOPPED);
        return 0;
      },
      (memory) => Number(new parts.senders(memory, TABLE, ROWS).setFlags(ROW, 1, over)),
    ],
    check: ([sent, , set], memory) => {
      if (sent! > 2 || set !== 1) throw new Error(`${sent} records were sent into an inlet of ${DEPTH}`);
      if (new SenderRows(memory, TABLE, ROWS).flags(ROW) !== (over | SENDER_STOPPED))
        throw new Error('a flag is missing');
    },
  };
}

/** A sender waits on its thread's bell, without blocking; the worker pulls, or cancels. */
export function waitScenario(end: 'pull' | 'cancel', parts: RowParts): Scenario<number> {
  return {
    words: WORDS,
    setup: (memory) => {
      senderSetup(memory);
      memory.store(SENT, 1);
    },
    threads: [
      (memory) => {
        const rows = new parts.senders(memory, TABLE, ROWS);
        const attention = new parts.rowSet(memory, SET, SET_ROWS);
        const own = new Doorbell(memory, BELL_A);
        const out = new Int32Array(SET_ROWS);
        const mayGoOn = (): boolean => rows.pulled(ROW) === 1 || (rows.flags(ROW) & SENDER_OVER) !== 0;
        while (!mayGoOn()) {
          rows.setWaiting(ROW);
          if (mayGoOn()) break;
          while (attention.take(out) === 0) parts.sleep(memory, own, () => !attention.isEmpty());
        }
        return 1;
      },
      (memory) => {
        const attention = new parts.rowSet(memory, SET, SET_ROWS);
        const clientBell = new Doorbell(memory, BELL_A);
        const tell = (): void => {
          attention.add(ROW);
          clientBell.ring();
        };
        if (end === 'pull') pull(memory, parts, 1, tell);
        else if (new parts.senders(memory, TABLE, ROWS).setFlags(ROW, 1, SENDER_CANCELLED)) tell();
        return 1;
      },
    ],
  };
}

/** A client waits for its row to retire; a lane that nobody asked does not ring. */
export function retireScenario(parts: RowParts): Scenario<number> {
  return {
    words: WORDS,
    setup: senderSetup,
    threads: [
      (memory) => {
        const rows = new parts.senders(memory, TABLE, ROWS);
        const attention = new parts.rowSet(memory, SET, SET_ROWS);
        const own = new Doorbell(memory, BELL_A);
        const out = new Int32Array(SET_ROWS);
        rows.watch(ROW);
        while ((rows.flags(ROW) & SENDER_RETIRED) === 0)
          while (attention.take(out) === 0) parts.sleep(memory, own, () => !attention.isEmpty());
        return rows.flags(ROW);
      },
      (memory) => {
        const rows = new parts.senders(memory, TABLE, ROWS);
        const clientBell = new Doorbell(memory, BELL_A);
        const askedTooSoon = rows.watched(ROW);
        rows.setFlags(ROW, 1, SENDER_RETIRED | SENDER_SENT);
        new parts.rowSet(memory, SET, SET_ROWS).add(ROW);
        if (parts.watchedAfterRetired ? rows.watched(ROW) : askedTooSoon) clientBell.ring();
        return 0;
      },
    ],
    check: ([flags]) => {
      if (flags !== (SENDER_RETIRED | SENDER_SENT)) throw new Error(`the row retired with flags ${flags}`);
    },
  };
}

// ---- lives -----------------------------------------------------------------------------------------------------------

/** A flag that comes too late must not land in the row's next life. */
export function lateFlagScenario(parts: RowParts): Scenario<number> {
  const retired = OWN;
  return {
    words: WORDS,
    setup: senderSetup,
    threads: [
      (memory) => {
        awaitWord(memory, parts, retired, BELL_A);
        return new parts.senders(memory, TABLE, ROWS).allocate(ROW);
      },
      (memory) => {
        new parts.senders(memory, TABLE, ROWS).setFlags(ROW, 1, SENDER_RETIRED);
        announce(memory, retired, BELL_A);
        return 0;
      },
      (memory) => Number(new parts.senders(memory, TABLE, ROWS).setFlags(ROW, 1, SENDER_CANCELLED)),
    ],
    check: ([generation], memory) => {
      const rows = new SenderRows(memory, TABLE, ROWS);
      if (generation !== 2 || rows.generation(ROW) !== 2) throw new Error(`the second life is number ${generation}`);
      if (rows.flags(ROW) !== 0) throw new Error(`the second life starts with flags ${rows.flags(ROW)}`);
      if (!rows.setFlags(ROW, 2, SENDER_STOPPED)) throw new Error('the second life takes no flags');
    },
  };
}

type ClaimResult = { won: ClaimedBind | undefined; released?: boolean };

function checkClaimed(memory: Memory, result: ClaimResult | undefined, worker: number, credit: number): void {
  if (result?.won === undefined) return;
  const rows = new ReceiverRows(memory, TABLE, ROWS);
  if (rows.claimedBy(ROW) !== worker)
    throw new Error(`worker ${worker} won, worker ${rows.claimedBy(ROW)} holds the row`);
  if (result.won.credit !== credit || result.won.generation !== rows.generation(ROW))
    throw new Error(`worker ${worker} won a life that it was not offered`);
}

/** Two workers claim one bind while its client takes it back: exactly one of the three has it. */
export function claimRaceScenario(parts: RowParts): Scenario<ClaimResult> {
  const worker = (number: number) => (memory: Memory) => ({
    won: claim(new parts.receivers(memory, TABLE, ROWS), number, SESSION_1),
  });
  return {
    words: WORDS,
    setup: (memory) => bind(new parts.receivers(memory, TABLE, ROWS), SESSION_1, CREDIT_1),
    threads: [
      (memory) => ({ won: undefined, released: new parts.receivers(memory, TABLE, ROWS).release(ROW) }),
      worker(1),
      worker(2),
    ],
    check: ([client, first, second], memory) => {
      const holders = [client!.released, first!.won !== undefined, second!.won !== undefined].filter(Boolean);
      if (holders.length !== 1) throw new Error(`${holders.length} parties hold one bind`);
      checkClaimed(memory, first, 1, CREDIT_1);
      checkClaimed(memory, second, 2, CREDIT_1);
    },
  };
}

/** A bind is taken back and made anew for another session, while one worker claims the old one and one the new one. */
export function rebindScenario(parts: RowParts): Scenario<ClaimResult> {
  return {
    words: WORDS,
    setup: (memory) => bind(new parts.receivers(memory, TABLE, ROWS), SESSION_1, CREDIT_1),
    threads: [
      (memory) => {
        const rows = new parts.receivers(memory, TABLE, ROWS);
        const released = rows.release(ROW);
        if (released) bind(rows, SESSION_2, CREDIT_2);
        return { won: undefined, released };
      },
      (memory) => ({ won: claim(new parts.receivers(memory, TABLE, ROWS), 1, SESSION_1) }),
      (memory) => ({ won: claim(new parts.receivers(memory, TABLE, ROWS), 2, SESSION_2) }),
    ],
    check: ([client, older, newer], memory) => {
      if ((older!.won !== undefined) === client!.released) throw new Error('the old session was won and taken back');
      if (newer!.won !== undefined && !client!.released) throw new Error('the new session was won before it existed');
      checkClaimed(memory, older, 1, CREDIT_1);
      checkClaimed(memory, newer, 2, CREDIT_2);
    },
  };
}

/** A wish to stop that races with the claim is seen by the claimer, or the claimer is told. */
export function earlyStopScenario(parts: RowParts): Scenario<boolean> {
  const done = OWN;
  return {
    words: WORDS,
    setup: (memory) => bind(new parts.receivers(memory, TABLE, ROWS), SESSION_1, CREDIT_1),
    threads: [
      (memory) => {
        const rows = new parts.receivers(memory, TABLE, ROWS);
        rows.request(ROW, RECEIVER_STOP);
        const told = rows.claimedBy(ROW) >= 0;
        if (told && new parts.rowSet(memory, SET, SET_ROWS).add(ROW)) new Doorbell(memory, BELL_B).ring();
        memory.store(done, 1);
        return told;
      },
      (memory) => {
        const rows = new parts.receivers(memory, TABLE, ROWS);
        const set = new parts.rowSet(memory, SET, SET_ROWS);
        const own = new Doorbell(memory, BELL_B);
        const out = new Int32Array(SET_ROWS);
        claim(rows, 1, SESSION_1);
        while ((rows.requests(ROW) & RECEIVER_STOP) === 0) {
          if (set.take(out) === 0) parts.sleep(memory, own, () => !set.isEmpty());
        }
        return true;
      },
    ],
  };
}
