// Every schedule of the shipped functions, within a bound on preemptions: no wake-up is lost, no record is lost, repeated or
// torn, no kick is lost or stands inside a pass, no drain is lost or counted twice, no life of a row meets another one.

import * as drains from './drain-scenarios.js';
import { holds } from './expectations.js';
import type { ExploreOptions } from './explorer.js';
import { SHIPPED } from './models.js';
import { SHIPPED_CELLS } from './mutants.js';
import * as ring from './ring-scenarios.js';
import { FAR_ROW, SHIPPED_ROWS as shipped } from './row-parts.js';
import * as rows from './row-scenarios.js';
import { cellScenario, endingScenario, SHIPPED_STREAM } from './stream-scenarios.js';

const DEEP: ExploreOptions = { preemptions: 3, points: 'atomic' };
const EVERY_ACCESS: ExploreOptions = { preemptions: 2, points: 'all' };
const EVERY_ACCESS_DEEP: ExploreOptions = { preemptions: 3, points: 'all' };

describe('plane under every schedule: rings and bells', () => {
  const ringHolds = (title: string, program: ring.RingProgram, options: ExploreOptions): void =>
    holds(title, ring.ringScenario(program, SHIPPED), options);
  ringHolds('a producer wakes a sleeping consumer for every burst', ring.SLEEP, EVERY_ACCESS_DEEP);
  const standing = ring.ringScenario(ring.SLEEP, { ...SHIPPED, turnWhileParked: true });
  holds('a turn from elsewhere does not disturb a standing wait', standing, EVERY_ACCESS_DEEP);
  ringHolds('records of several lengths wrap, over the end of the counters too', ring.WRAP, EVERY_ACCESS);
  ringHolds('records wrap: more preemptions', ring.WRAP, { preemptions: 5, points: 'atomic' });
  ringHolds('a consumer that frees room wakes the producer that wants it', ring.ROOM, DEEP);
  ringHolds('a send that finds the ring full publishes what stands before it', ring.UNPUBLISHED, DEEP);

  ringHolds('every kick with records before it is a flush right behind them', ring.KICKS, EVERY_ACCESS);
  ringHolds('kicks: more preemptions', ring.KICKS, { preemptions: 4, points: 'atomic' });
  ringHolds('a turn limit inside a pass is no flush', ring.KICKS_IN_TURNS, EVERY_ACCESS);
  ringHolds('kicks before the first record, and before the consumer exists', ring.KICK_FIRST, EVERY_ACCESS_DEEP);
  ringHolds('a kick in front of a record that wraps', ring.KICKS_AND_WRAP, EVERY_ACCESS_DEEP);
});

describe('plane under every schedule: drains', () => {
  const one = drains.drainScenario([[0, FAR_ROW, 0, 0]], shipped);
  holds('drains wake a sleeping worker and are counted once', one, EVERY_ACCESS_DEEP);
  const two = drains.drainScenario(
    [
      [0, FAR_ROW],
      [0, 1],
    ],
    shipped,
  );
  holds('two threads that share a set lose no drain', two, EVERY_ACCESS);
  holds('a visit for one peer leaves the drains of another', drains.peersScenario(shipped), EVERY_ACCESS_DEEP);
  holds('a muted worker finds what was drained meanwhile', drains.muteScenario([0, 1], shipped), EVERY_ACCESS_DEEP);
  holds('a life that ends and its successor count their own drains', drains.successorScenario(shipped), EVERY_ACCESS);
});

describe('plane under every schedule: senders that wait', () => {
  holds('a blocked sender hears of every pull', rows.blockAtPullScenario(shipped), EVERY_ACCESS_DEEP);
  for (const end of ['cancel', 'close'] as const)
    holds(
      `a blocked sender hears of a ${end} from another worker`,
      rows.blockAtEndScenario(end, shipped),
      EVERY_ACCESS,
    );
  for (const end of ['pull', 'cancel'] as const)
    holds(`a sender that waits without blocking hears of a ${end}`, rows.waitScenario(end, shipped), EVERY_ACCESS_DEEP);
});

describe('plane under every schedule: senders that are watched', () => {
  holds('AQ-06 whoever waits for a row to retire hears of it', rows.retireScenario(shipped), EVERY_ACCESS_DEEP);
});

describe('plane under every schedule: lives of rows', () => {
  holds('a late flag never lands in the next life', rows.lateFlagScenario(shipped), EVERY_ACCESS_DEEP);
  holds('one of two workers and the client gets a bind', rows.claimRaceScenario(shipped), EVERY_ACCESS_DEEP);
  const rebind = 'a claim with an old session never wins a row that was bound anew';
  holds(rebind, rows.rebindScenario(shipped), EVERY_ACCESS_DEEP);
  holds('a wish to stop that races with the claim is never lost', rows.earlyStopScenario(shipped), EVERY_ACCESS_DEEP);
  for (const records of [0, 1]) {
    const after = `an ending after ${records} records`;
    holds(`${after} is never missed`, endingScenario({ records, kick: false }, SHIPPED_STREAM), EVERY_ACCESS_DEEP);
    holds(
      `${after} is in the flush behind it`,
      endingScenario({ records, kick: true }, SHIPPED_STREAM),
      EVERY_ACCESS_DEEP,
    );
  }
});

describe('plane under every schedule: cells', () => {
  holds('a counter that crosses 2^32', cellScenario([1, 1, 1], SHIPPED_CELLS), EVERY_ACCESS_DEEP);
  holds('a gauge that crosses 2^32 and comes back', cellScenario([2, -1, -2], SHIPPED_CELLS), EVERY_ACCESS_DEEP);
});
