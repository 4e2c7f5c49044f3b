// Bugs planted into the shipped functions, or into the way their owners use them. Each must be found, and its printed schedule
// must show it again. The same programs without the bug are in plane.test.ts.

import * as drains from './drain-scenarios.js';
import { finds } from './expectations.js';
import { type RingParts, SHIPPED } from './models.js';
import * as bugs from './mutants.js';
import * as ring from './ring-scenarios.js';
import { FAR_ROW, type RowParts, SHIPPED_ROWS as shipped } from './row-parts.js';
import * as rows from './row-scenarios.js';
import { cellScenario, endingScenario, SHIPPED_STREAM } from './stream-scenarios.js';

const OPTIONS = { preemptions: 2, points: 'atomic' } as const;
/** Not shown by fewer preemptions. */
const DEEP = { preemptions: 3, points: 'atomic' } as const;
const LOST_WAKE = /waits on word \d+ for ever/;

type RingBug = [title: string, program: ring.RingProgram, bug: Partial<RingParts>];

describe('planted bugs are found: bells', () => {
  const bells: RingBug[] = [
    ['a wake between look and wait that leaves the bell unchanged', ring.SLEEP, { bell: bugs.SilentBell }],
    ['a look before parking', ring.SLEEP, { sleep: bugs.parkAfterLook }],
    ['a bell value read after the look', ring.SLEEP, { sleep: bugs.readBellAfterLook }],
    ['a ring before the publish', ring.SLEEP, { ringAfterPublish: false }],
    ['a consumer that looks for a wish before it frees room', ring.ROOM, { consumer: bugs.LookBeforeRelease }],
    ['a producer that does not look again after its wish', ring.ROOM, { lookAfterWish: false }],
    ['a producer that sleeps without looking whether room came', ring.ROOM, { lookForRoom: false }],
    ['an unpublished record behind a send that failed', ring.UNPUBLISHED, { publishBeforeWaiting: false }],
  ];
  for (const [title, program, bug] of bells)
    finds(title, 'deadlock', LOST_WAKE, ring.ringScenario(program, { ...SHIPPED, ...bug }), OPTIONS);
});

describe('planted bugs are found: rings and kicks', () => {
  const ringBug = (program: ring.RingProgram, bug: Partial<RingParts>) =>
    ring.ringScenario(program, { ...SHIPPED, ...bug });
  const early = ringBug(ring.WRAP, { producer: bugs.PublishBeforeWrite });
  finds('a record published before it is written', 'race', /read of word/, early, OPTIONS);
  const torn = ringBug(ring.ROOM, { consumer: bugs.ReleaseBeforeRead });
  finds('a head stored before the record is read', 'race', /races with/, torn, OPTIONS);
  const erased = ringBug(ring.KICKS, { producer: bugs.KickWithoutFlag });
  finds('a kick erased by a later one', 'failure', /no flush after record/, erased, OPTIONS);
  const before = ringBug(ring.KICKS, { producer: bugs.KickBeforePublish });
  finds('a kick shown before the records in front of it', 'deadlock', LOST_WAKE, before, OPTIONS);
  const twice = ringBug(ring.KICKS, { consumer: bugs.KickOfTwoWords });
  finds('a kick taken twice, before and after it is counted', 'failure', /a flush without a kick/, twice, DEEP);
  const late = ringBug(ring.KICKS, { consumer: bugs.LateConsumer });
  finds('a consumer that takes kicks from before its time for old ones', 'deadlock', LOST_WAKE, late, OPTIONS);
});

describe('planted bugs are found: drains', () => {
  const drainBug = (title: string, bug: Partial<RowParts>): void =>
    finds(title, 'deadlock', LOST_WAKE, drains.drainScenario([[0, FAR_ROW, 0, 0]], { ...shipped, ...bug }), OPTIONS);
  drainBug('a taker that clears the levels from below', { rowSet: bugs.TakeFromBelow });
  drainBug('a set that says "not empty" before it names the row', { rowSet: bugs.AnyBeforeBit });
  drainBug('a count that is read and cleared in two steps', { receivers: bugs.DrainedByStore });

  const peers = drains.peersScenario({ ...shipped, filesOthers: false });
  finds('bits of one peer taken by the visit of another', 'deadlock', LOST_WAKE, peers, OPTIONS);
  const muted = (bug: Partial<RowParts>) => drains.muteScenario([0, 1], { ...shipped, ...bug });
  const deaf = muted({ clearBeforeLook: false });
  finds('a worker that looks before it asks to be rung again', 'deadlock', LOST_WAKE, deaf, OPTIONS);
  const stale = muted({ muteAfterAdd: false });
  finds('a client that asks for the mute before it put the work down', 'deadlock', LOST_WAKE, stale, OPTIONS);
  const after = drains.successorScenario({ ...shipped, drainsBeforeRetired: false });
  finds('drains taken after the row was given back', 'failure', /drains were taken of/, after, OPTIONS);
  const before = drains.successorScenario({ ...shipped, requestsFirst: false });
  finds('drains taken before the release mark is read', 'failure', /drains were taken of 2/, before, OPTIONS);
});

describe('planted bugs are found: senders and lives', () => {
  const silent = rows.blockAtEndScenario('cancel', { ...shipped, senders: bugs.CancelWithoutWake });
  finds('a blocking sender missed at cancel', 'deadlock', LOST_WAKE, silent, OPTIONS);
  const early = rows.blockAtPullScenario({ ...shipped, senders: bugs.LookBeforePulled });
  finds('a look for a blocked sender before the room is shown', 'deadlock', LOST_WAKE, early, OPTIONS);
  const unasked = rows.retireScenario({ ...shipped, watchedAfterRetired: false });
  finds('a watch that is looked for before the row is retired', 'deadlock', LOST_WAKE, unasked, OPTIONS);
  const stores = rows.blockAtEndScenario('close', { ...shipped, senders: bugs.FlagsByStore });
  finds('a flag that overwrites the flag of another worker', 'failure', /a flag is missing/, stores, OPTIONS);
  const lifeless = rows.lateFlagScenario({ ...shipped, senders: bugs.FlagsWithoutLife });
  finds('a late flag without its generation', 'failure', /starts with flags/, lifeless, OPTIONS);
  const ageless = rows.rebindScenario({ ...shipped, receivers: bugs.ClaimWithoutGeneration });
  finds('a claim without the generation in the state word', 'failure', /old session was won/, ageless, OPTIONS);
  const stored = rows.claimRaceScenario({ ...shipped, receivers: bugs.ReleaseByStore });
  finds('a bind taken back with a store', 'failure', /2 parties hold one bind/, stored, OPTIONS);
});

describe('planted bugs are found: endings and cells', () => {
  const blind = endingScenario({ records: 1, kick: false }, { ...SHIPPED_STREAM, lookAtOpen: false });
  finds('an ending named before its open is read, and never looked for again', 'deadlock', LOST_WAKE, blind, OPTIONS);
  const lazy = endingScenario({ records: 0, kick: true }, { ...SHIPPED_STREAM, endingsAtKick: false });
  finds('a flush that leaves out an ending before it', 'failure', /open flush end/, lazy, OPTIONS);
  const halves = cellScenario([1, 1, 1], bugs.CELLS_OF_TWO_WORDS);
  finds('a counter whose upper half is kept once', 'failure', /the cell never was/, halves, OPTIONS);
});
