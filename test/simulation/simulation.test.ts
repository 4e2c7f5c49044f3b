import { connect } from 'node:net';
import { expect } from 'chai';
import { ADJUSTMENTS } from './adjustments.js';
import { FAULTS } from './faults.js';
import type { Mood } from './scenario.js';
import { type RunResult, simulate } from './simulation.js';

const SEEDS = 60;
const CHUNK = 10;
const PATIENCE_MS = 120_000;
/** Fixed seeds of every mood, for what is asked of each. */
const ONE_OF_EACH: Readonly<Record<Mood, number>> = { calm: 1, reorder: 11, lossy: 2, cuts: 3, chaos: 8 };
const CONTROL_SEEDS = [2, 12];
/** What the fixed seeds must have met somewhere, or they show less than they seem to. */
const MET = [
  'batchSeqGaps',
  'connectFailures',
  'connectionsClosed',
  'creditExhausted',
  'drainVisits',
  'droppedClosedSlot',
  'droppedDuplicate',
  'droppedGeneration',
  'droppedUnknownSlot',
  'epochDeaths',
  'holdOverflow',
  'recordsSentLifecycle',
  'sendBackpressure',
  'singletons',
  'watchdogFirings',
];

function failuresOf({ seed, failures }: RunResult): string[] {
  return failures.map(({ check, message }) => `seed ${seed}: ${check}: ${message}`);
}

describe('simulation: whole nodes on a virtual clock', function () {
  this.timeout(PATIENCE_MS);
  const met: Record<string, number> = {};
  const moods = new Set<Mood>();

  for (let first = 1; first <= SEEDS; first += CHUNK) {
    it(`nothing that may never happen happens in seeds ${first} to ${first + CHUNK - 1}`, async () => {
      for (let seed = first; seed < first + CHUNK; seed++) {
        const result = await simulate(seed);
        expect(failuresOf(result), `npm run simulate -- --seed ${seed} --trace`).to.deep.equal([]);
        moods.add(result.scenario.mood);
        for (const [name, value] of Object.entries(result.counters)) met[name] = (met[name] ?? 0) + value;
      }
    });
  }

  it('these seeds met what they are there to meet', () => {
    expect([...moods].sort()).to.deep.equal(Object.keys(ONE_OF_EACH).sort());
    expect(MET.filter((name) => !(met[name]! > 0))).to.deep.equal([]);
  });

  it('a slot index is used for 300 streams, through all generations of its id', async () => {
    const adjust = ADJUSTMENTS.calm!;
    const result = await simulate(12, {
      adjust: (scenario) => ({ ...adjust(scenario), streams: [], reuses: 300, activeMs: 9_000 }),
    });
    expect(failuresOf(result)).to.deep.equal([]);
    expect(result.ends).to.deep.equal({ finalized: 300 });
  });

  for (const [mood, seed] of Object.entries(ONE_OF_EACH)) {
    it(`the same seed gives the same events, twice (${mood})`, async () => {
      const [one, two] = [await simulate(seed), await simulate(seed)];
      expect(one.scenario.mood).to.equal(mood);
      expect(two.hash).to.equal(one.hash);
      expect(two.steps).to.equal(one.steps);
      expect(two.ends).to.deep.equal(one.ends);
    });
  }

  for (const name of ['largeRecords', 'dyingLanes']) {
    it(`the same seed gives the same run (${name})`, async () => {
      const adjust = ADJUSTMENTS[name]!;
      const [one, two] = [await simulate(CONTROL_SEEDS[1]!, { adjust }), await simulate(CONTROL_SEEDS[1]!, { adjust })];
      expect(two.hash).to.equal(one.hash);
      expect(two.ends).to.deep.equal(one.ends);
      expect(two.counters).to.deep.equal(one.counters);
    });
  }

  it("Node's own timers, clock and network are back after a run", async () => {
    const before = [setTimeout, setImmediate, performance.now, Date.now, connect];
    await simulate(ONE_OF_EACH.calm);
    expect([setTimeout, setImmediate, performance.now, Date.now, connect]).to.deep.equal(before);
    expect(Object.hasOwn(performance, 'now')).to.equal(false);
    await new Promise((resolve) => setTimeout(resolve, 1));
  });
});

describe('simulation: deliberate faults', function () {
  this.timeout(PATIENCE_MS);

  for (const { name, caughtBy, seeds, adjust, install } of FAULTS) {
    it(`finds that ${name}`, async () => {
      const found: string[] = [];
      for (const seed of seeds) {
        const takeOut = install();
        const { failures } = await simulate(seed, { adjust }).finally(takeOut);
        if (failures.length === 0) continue;
        found.push(failures[0]!.check);
        break;
      }
      expect(caughtBy, 'the check that found it').to.include(found[0]);
    });
  }

  for (const [name, adjust] of Object.entries(ADJUSTMENTS)) {
    it(`finds nothing where there is no fault (${name})`, async () => {
      for (const seed of CONTROL_SEEDS) {
        expect(failuresOf(await simulate(seed, { adjust }))).to.deep.equal([]);
      }
    });
  }
});
