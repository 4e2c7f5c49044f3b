// The runner: seeds one after the other for as long as it is told, from a random one on or one alone. Prints how to replay what
// failed. It must be the only thing that looks at real time here.
//
//   npm run simulate -- [--seconds 600] [--seed N] [--count N] [--json] [--trace]

import { parseArgs } from 'node:util';
import { type Failure, simulate } from './simulation.js';

const SEED_RANGE = 2 ** 31;
const realNow = Date.now.bind(Date);

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    seed: { type: 'string' },
    count: { type: 'string' },
    json: { type: 'boolean', default: false },
    trace: { type: 'boolean', default: false },
  },
});

const first = values.seed === undefined ? Math.floor(Math.random() * SEED_RANGE) : Number(values.seed);
const count =
  values.count !== undefined ? Number(values.count) : values.seed !== undefined ? 1 : Number.POSITIVE_INFINITY;
const until =
  values.seed !== undefined || values.count !== undefined
    ? Number.POSITIVE_INFINITY
    : realNow() + Number(values.seconds) * 1_000;

if (!values.json) console.log(`simulating from seed ${first}`);
const failures: Failure[] = [];
let seeds = 0;
let steps = 0;
for (; seeds < count && (seeds === 0 || realNow() < until); seeds++) {
  const seed = first + seeds;
  const began = realNow();
  const result = await simulate(seed, { trace: values.trace ? (line) => console.log(line) : undefined });
  steps += result.steps;
  failures.push(...result.failures);
  if (values.json) continue;
  if (values.seed !== undefined || values.count !== undefined) {
    const { mood, nodes } = result.scenario;
    const ends = JSON.stringify(result.ends);
    console.log(
      `seed ${seed}: ${mood}, ${nodes.length} nodes, ${result.streams} streams, ${result.records} records, ` +
        `${result.steps} events, ${ends}, hash ${result.hash}, ${realNow() - began} ms`,
    );
  }
  for (const { check, message, atMs, step } of result.failures) {
    console.log(`seed ${seed} failed at ${atMs.toFixed(3)} ms, event ${step}: ${check}: ${message}`);
  }
  if (result.failures.length > 0) console.log(`  replay: npm run simulate -- --seed ${seed} --trace`);
}
if (values.json) console.log(JSON.stringify({ seeds, steps, failures }));
else console.log(`${seeds} seeds, ${steps} events, ${failures.length} failures`);
process.exitCode = failures.length > 0 ? 1 : 0;
