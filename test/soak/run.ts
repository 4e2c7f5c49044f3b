// `npm run soak`: real processes under load and faults. Owns the command line. Exit code 1 on a failure.
//
//   npm run soak -- --seconds 180                     a line every five seconds, a table at the end
//   npm run --silent soak -- --seconds 60 --json      one JSON object on stdout; progress goes to stderr

import { parseArgs } from 'node:util';
import { runSoak, type SoakOptions, type SoakReport } from './soak.js';

const USAGE = `Usage: node dist/test/soak/run.js [options]

  --seconds n   how long there is load; closing and waiting come on top (60)
  --streams n   at most so many streams (no limit)
  --seed n      of plans and faults (drawn, and printed)
  --heartbeat n interval of heartbeats in milliseconds (200, with --quick 400); a busy machine needs longer ones
  --quick       small, and patient with a busy machine
  --json        one JSON object on stdout
  --help
`;
const DEFAULT_SECONDS = 60;
const MAX_SEED = 2 ** 32;
const EXIT_FAILED = 1;
const EXIT_USAGE = 2;

class UsageError extends Error {}

function positive(name: string, given: string | undefined, fallback: number): number {
  if (given === undefined) return fallback;
  const value = Number(given);
  if (Number.isInteger(value) && value >= 0 && value < MAX_SEED) return value;
  throw new UsageError(`--${name} ${given}: expected a number`);
}

function parseCommandLine(argv: readonly string[]): { help: boolean; json: boolean; soak: Omit<SoakOptions, 'log'> } {
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: {
        seconds: { type: 'string' },
        streams: { type: 'string' },
        seed: { type: 'string' },
        heartbeat: { type: 'string' },
        quick: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    });
    const soak = {
      seconds: positive('seconds', values.seconds, DEFAULT_SECONDS),
      streams: positive('streams', values.streams, Number.POSITIVE_INFINITY),
      seed: positive('seed', values.seed, Math.floor(Math.random() * MAX_SEED)),
      heartbeatMs: values.heartbeat === undefined ? undefined : positive('heartbeat', values.heartbeat, 0),
      quick: values.quick,
    };
    return { help: values.help, json: values.json, soak };
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

function table(report: SoakReport): string {
  const { seed, seconds, streams, items, rounds, kills, stops, cuts, standstills } = report;
  const lines = [
    `seed ${seed}: ${seconds} s, ${rounds} rounds, ${streams} streams, ${items} items read`,
    `faults: ${kills} kills, ${stops} stops, ${cuts} cuts; ${standstills} standstills of the machine`,
  ];
  for (const [side, ended] of [
    ['readers', report.ended],
    ['writers', report.endedAtWriters],
  ] as const) {
    lines.push('', `streams ended, as their ${side} saw it`);
    for (const [outcome, count] of Object.entries(ended).sort(([, a], [, b]) => b - a))
      lines.push(`${String(count).padStart(10)}  ${outcome}`);
  }
  lines.push('', 'processes, at their first rest and at their last');
  for (const { process: name, streams: ended, heapMiB, externalMiB, rssMiB, descriptors } of report.memory)
    lines.push(
      `${name.padEnd(16)} ${String(ended).padStart(7)} streams  heap ${heapMiB.join(' → ')} MiB  ` +
        `external ${externalMiB.join(' → ')} MiB  rss ${rssMiB.join(' → ')} MiB  descriptors ${descriptors.join(' → ')}`,
    );
  lines.push('', report.failures.length === 0 ? 'no failure' : `${report.failures.length} failures`);
  return [...lines, ...report.failures].join('\n');
}

try {
  const { help, json, soak } = parseCommandLine(process.argv.slice(2));
  if (help) process.stdout.write(USAGE);
  else {
    const progress = json ? process.stderr : process.stdout;
    const log = (line: string) => progress.write(`${line}\n`);
    log(`seed ${soak.seed}`);
    const report = await runSoak({ ...soak, log });
    process.stdout.write(`${json ? JSON.stringify(report) : table(report)}\n`);
    if (report.failures.length > 0) process.exitCode = EXIT_FAILED;
  }
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  process.stderr.write(`${error.message}\n\n${USAGE}`);
  process.exitCode = EXIT_USAGE;
}
