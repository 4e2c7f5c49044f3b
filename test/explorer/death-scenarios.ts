// The programs around the death of a lane: a client whose rows it served, the lane with its last writes, and main, which buries the
// rows once the lane is dead and lets the next lane have them. The last access of a lane that dies is a word that says so, as the
// closing of its control port does.

import { abandonSender, buryReceiver, burySender } from '../../lib/plane/burial.js';
import type { Memory } from '../../lib/plane/memory.js';
import { ReceiverRows, SENDER_CLOSED, SENDER_LANE_DIED, SENDER_OVER, SENDER_RETIRED } from '../../lib/plane/rows.js';
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
  OWN,
  ROW,
  ROWS,
  type RowParts,
  SESSION_1,
  SESSION_2,
  SHIPPED_ROWS,
  TABLE,
  WORDS,
} from './row-parts.js';

export interface DeathParts extends RowParts {
  /** Rows are buried when the lane is dead, and not before. */
  awaitDeath: boolean;
  burySender: typeof burySender;
  buryReceiver: typeof buryReceiver;
  abandonSender: typeof abandonSender;
}

export const SHIPPED_DEATH: DeathParts = {
  ...SHIPPED_ROWS,
  awaitDeath: true,
  burySender,
  buryReceiver,
  abandonSender,
};

/** The lane is dead. */
const DEAD = OWN;
/** Main has buried its rows. */
const BURIED = OWN + 1;
/** The client let go of the row. */
const FREE = OWN + 2;
const DEAD_LANE = 1;
const NEXT_LANE = 2;
const DEPTH = 1;

function awaitDeath(memory: Memory, parts: DeathParts): void {
  if (parts.awaitDeath) awaitWord(memory, parts, DEAD, BELL_B);
}

/**
 * A sender blocks without room while its lane dies: it comes back, and finds its stream over. `says`: the lane gets to say so itself.
 */
export function blockedAtDeathScenario(says: boolean, parts: DeathParts): Scenario<number> {
  return {
    words: WORDS,
    setup: (memory) => {
      new parts.senders(memory, TABLE, ROWS).allocate(ROW);
    },
    threads: [
      (memory) => {
        const rows = new parts.senders(memory, TABLE, ROWS);
        while ((rows.flags(ROW) & SENDER_OVER) === 0) rows.block(ROW, DEPTH, DEPTH, 1);
        return rows.flags(ROW);
      },
      (memory) => {
        const rows = new parts.senders(memory, TABLE, ROWS);
        if (says) parts.abandonSender(rows, ROW, 1);
        announce(memory, DEAD, BELL_B);
        return 0;
      },
      (memory) => {
        // With `says`, main is the very thread that blocks: nobody buries the row while it does.
        if (says) return 0;
        awaitDeath(memory, parts);
        parts.burySender(new parts.senders(memory, TABLE, ROWS), ROW);
        return 0;
      },
    ],
    check: ([flags]) => {
      if ((flags! & SENDER_CLOSED) === 0) throw new Error(`a sender of a dead lane came back with flags ${flags}`);
    },
  };
}

/**
 * The last writes of a lane meet the end of a row's life: what it pulled, and that it died. The client uses the row again as soon as
 * it is buried, and its next life begins with nothing.
 */
export function nextLifeScenario(parts: DeathParts): Scenario<number[]> {
  return {
    words: WORDS,
    setup: (memory) => {
      new parts.senders(memory, TABLE, ROWS).allocate(ROW);
    },
    threads: [
      (memory) => {
        const rows = new parts.senders(memory, TABLE, ROWS);
        awaitWord(memory, parts, BURIED, BELL_A);
        if ((rows.flags(ROW) & SENDER_RETIRED) === 0) throw new Error('a row was buried without being retired');
        rows.allocate(ROW);
        announce(memory, FREE, BELL_C);
        return [];
      },
      (memory) => {
        const rows = new parts.senders(memory, TABLE, ROWS);
        rows.setPulled(ROW, 1);
        parts.abandonSender(rows, ROW, 1);
        announce(memory, DEAD, BELL_B);
        return [];
      },
      (memory) => {
        awaitDeath(memory, parts);
        parts.burySender(new parts.senders(memory, TABLE, ROWS), ROW);
        announce(memory, BURIED, BELL_A);
        return [];
      },
    ],
    check: (_results, memory) => {
      const rows = new parts.senders(memory, TABLE, ROWS);
      if (rows.pulled(ROW) !== 0) throw new Error(`the next life starts with ${rows.pulled(ROW)} records pulled`);
      if (rows.flags(ROW) !== 0) throw new Error(`the next life starts with flags ${rows.flags(ROW)}`);
    },
  };
}

/**
 * Two lanes die one after the other with the same row: a lane that retired the row in order says that it died when the row may have
 * its next life already, under a lane that lives.
 */
export function lateWordScenario(parts: DeathParts): Scenario<number> {
  return {
    words: WORDS,
    setup: (memory) => {
      new parts.senders(memory, TABLE, ROWS).allocate(ROW);
    },
    threads: [
      (memory) => {
        const rows = new parts.senders(memory, TABLE, ROWS);
        awaitWord(memory, parts, FREE, BELL_A);
        rows.allocate(ROW);
        return 0;
      },
      (memory) => {
        const rows = new parts.senders(memory, TABLE, ROWS);
        rows.setFlags(ROW, 1, SENDER_RETIRED);
        announce(memory, FREE, BELL_A);
        parts.abandonSender(rows, ROW, 1);
        return 0;
      },
    ],
    check: (_results, memory) => {
      const flags = new parts.senders(memory, TABLE, ROWS).flags(ROW);
      if ((flags & SENDER_LANE_DIED) !== 0) throw new Error(`a lane that lives starts a row with flags ${flags}`);
    },
  };
}

interface BindResult {
  buried: boolean;
  won: boolean;
}

/**
 * A bind that a lane may claim before it dies. Its reader is told either way, and the row's next bind goes to the next lane, whole.
 */
export function bindAtDeathScenario(parts: DeathParts): Scenario<BindResult> {
  const result = (buried: boolean, won: boolean): BindResult => ({ buried, won });
  return {
    words: WORDS,
    setup: (memory) => bind(new parts.receivers(memory, TABLE, ROWS), SESSION_1, CREDIT_1),
    threads: [
      (memory) => {
        const rows = new parts.receivers(memory, TABLE, ROWS);
        awaitDeath(memory, parts);
        const buried = parts.buryReceiver(rows, ROW, DEAD_LANE, true);
        if (buried) bind(rows, SESSION_2, CREDIT_2);
        announce(memory, FREE, BELL_C);
        return result(buried, false);
      },
      (memory) => {
        const won = claim(new parts.receivers(memory, TABLE, ROWS), DEAD_LANE, SESSION_1) !== undefined;
        announce(memory, DEAD, BELL_B);
        return result(false, won);
      },
      (memory) => {
        awaitWord(memory, parts, FREE, BELL_C);
        const bound = claim(new parts.receivers(memory, TABLE, ROWS), NEXT_LANE, SESSION_2);
        return result(false, bound?.credit === CREDIT_2);
      },
    ],
    check: ([main, , next], memory) => {
      if (!main!.buried) throw new Error('the reader of a dead lane was not told');
      if (!next!.won) throw new Error('the next lane did not get the bind');
      const by = new ReceiverRows(memory, TABLE, ROWS).claimedBy(ROW);
      if (by !== NEXT_LANE) throw new Error(`the row belongs to lane ${by}`);
    },
  };
}

/** A stream of another lane stands beside the dead one's: its row stays as it is. */
export function otherLaneScenario(parts: DeathParts): Scenario<boolean> {
  return {
    words: WORDS,
    setup: (memory) => bind(new parts.receivers(memory, TABLE, ROWS), SESSION_1, CREDIT_1),
    threads: [
      (memory) => {
        awaitDeath(memory, parts);
        // The bind was expected on the dead lane; another one may have claimed it, as lane 0 does for peers with fewer lanes.
        return parts.buryReceiver(new parts.receivers(memory, TABLE, ROWS), ROW, DEAD_LANE, true);
      },
      (memory) => {
        announce(memory, DEAD, BELL_B);
        return false;
      },
      (memory) => claim(new parts.receivers(memory, TABLE, ROWS), NEXT_LANE, SESSION_1) !== undefined,
    ],
    check: ([buried, , claimed], memory) => {
      const by = new ReceiverRows(memory, TABLE, ROWS).claimedBy(ROW);
      if (buried === claimed) throw new Error(`buried: ${buried}, claimed by another lane: ${claimed}`);
      if (claimed && by !== NEXT_LANE) throw new Error(`a living lane lost its row to ${by}`);
    },
  };
}
