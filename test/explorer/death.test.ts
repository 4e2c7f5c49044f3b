// The death of a lane under every schedule: whoever waits in a row of it comes back, no row is left behind, no late write reaches the
// row's next life, and no other lane loses one. And bugs planted into that, each of which must be found.

import { burySender } from '../../lib/plane/burial.js';
import { SENDER_CLOSED, type SenderRows } from '../../lib/plane/rows.js';
import * as death from './death-scenarios.js';
import { finds, holds } from './expectations.js';
import type { ExploreOptions } from './explorer.js';
import * as bugs from './mutants.js';

const EVERY_ACCESS_DEEP: ExploreOptions = { preemptions: 3, points: 'all' };
const OPTIONS = { preemptions: 2, points: 'atomic' } as const;
const LOST_WAKE = /waits on word \d+ for ever/;
const shipped = death.SHIPPED_DEATH;

describe('plane under every schedule: the death of a lane', () => {
  holds('a blocked sender comes back once main knows', death.blockedAtDeathScenario(false, shipped), EVERY_ACCESS_DEEP);
  holds('a main thread that blocks itself comes back', death.blockedAtDeathScenario(true, shipped), EVERY_ACCESS_DEEP);
  holds('the last writes of a lane miss the next life', death.nextLifeScenario(shipped), EVERY_ACCESS_DEEP);
  holds('a word said too late misses the next life', death.lateWordScenario(shipped), EVERY_ACCESS_DEEP);
  holds('a bind that the lane may have claimed is buried once', death.bindAtDeathScenario(shipped), EVERY_ACCESS_DEEP);
  holds('a lane that lives keeps what it claimed', death.otherLaneScenario(shipped), EVERY_ACCESS_DEEP);
});

describe('planted bugs are found: the death of a lane', () => {
  const bug = (change: Partial<death.DeathParts>): death.DeathParts => ({ ...shipped, ...change });
  for (const says of [false, true])
    finds(
      `a sender that blocks is not woken ${says ? 'by its lane' : 'by main'}`,
      'deadlock',
      LOST_WAKE,
      death.blockedAtDeathScenario(says, bug({ senders: bugs.CancelWithoutWake })),
      OPTIONS,
    );
  const early = bug({ awaitDeath: false });
  finds('rows buried while the lane still writes', 'failure', /records pulled/, death.nextLifeScenario(early), OPTIONS);
  finds(
    'a bind looked at while the lane may still claim it',
    'failure',
    /was not told/,
    death.bindAtDeathScenario(early),
    OPTIONS,
  );
  const lifeless = bug({ senders: bugs.FlagsWithoutLife });
  finds(
    'a last word without its generation',
    'failure',
    /starts a row with/,
    death.lateWordScenario(lifeless),
    OPTIONS,
  );
  const unretired = bug({
    burySender: (rows: SenderRows, row: number) => void rows.setFlags(row, rows.generation(row), SENDER_CLOSED),
  });
  finds(
    'a burial that retires nothing',
    'failure',
    /without being retired/,
    death.nextLifeScenario(unretired),
    OPTIONS,
  );
  const silent = bug({
    abandonSender: () => {},
    burySender,
  });
  const dumb = death.blockedAtDeathScenario(true, silent);
  finds('a lane that leaves without a word', 'deadlock', LOST_WAKE, dumb, OPTIONS);
  const unclaimed = bug({ buryReceiver: (rows, row) => rows.release(row) });
  finds('a claim of the dead lane left behind', 'failure', /not told/, death.bindAtDeathScenario(unclaimed), OPTIONS);
  const stored = bug({
    buryReceiver: (rows, row) => {
      rows.free(row);
      return true;
    },
  });
  finds('a row taken from a lane that lives', 'failure', /buried: true/, death.otherLaneScenario(stored), OPTIONS);
});
