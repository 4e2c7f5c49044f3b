// `npm run fuzz -- --seconds N [--seed N]`: every target in turn, with one seed after another, until the time is over. The first
// finding ends it, with what replays it.

import { parseArgs } from 'node:util';
import { INGRESS_TARGET } from './ingress-world.js';
import { type FuzzTarget, SEED_VARIABLE } from './random.js';
import { WIRE_TARGET } from './wire-world.js';

const DEFAULT_SECONDS = 60;
const TARGETS: readonly FuzzTarget[] = [INGRESS_TARGET, WIRE_TARGET];

const { values } = parseArgs({ options: { seconds: { type: 'string' }, seed: { type: 'string' } } });
const seconds = Number(values.seconds ?? DEFAULT_SECONDS);
const first = Number(values.seed ?? Date.now() % 0x1_0000_0000);
if (!(seconds > 0) || !Number.isInteger(first)) throw new RangeError('--seconds and --seed take numbers');

const runs = new Map(TARGETS.map(({ name }) => [name, 0]));
const end = Date.now() + seconds * 1_000;
process.stdout.write(`fuzzing for ${seconds} s from seed ${first}\n`);
for (let seed = first; Date.now() < end; seed += 1) {
  for (const target of TARGETS) {
    try {
      await target.run(seed);
    } catch (error) {
      process.stdout.write(`${target.name} failed with seed ${seed}: replay with ${SEED_VARIABLE}=${seed} npm test\n`);
      throw error;
    }
    runs.set(target.name, runs.get(target.name)! + 1);
  }
}
process.stdout.write(`${[...runs].map(([name, count]) => `${name}: ${count} runs`).join(', ')}, no finding\n`);
process.exit(0);
