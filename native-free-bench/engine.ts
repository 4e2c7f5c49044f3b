// Whole-engine benchmark: velomux beside what a team would write with plain sockets, two processes, loopback TCP, the same item bytes in every row.
// Owns the command line. Must never write to stdout anything but the report; progress goes to stderr.
//
//   npm run bench:engine                                       all rows and modes, three rounds, a table
//   npm run --silent bench:engine -- --json                    one JSON object: rows, machine, ratios
//   npm run bench:engine -- --rows velomux,net-batch --modes throughput,busy --rounds 5 --seconds 3
//   npm run bench:engine -- --rows velomux --modes throughput --rounds 1 --profile producer
//
// See USAGE for every option, README of the project for the figures.

import { parseArgs } from 'node:util';
import type { Role } from './child.js';
import type { BenchOptions } from './harness.js';
import { runBench } from './harness.js';
import { makeReport, renderReport } from './report.js';
import { ROW_NAMES } from './rows/index.js';
import type { Mode } from './rows/row.js';
import { MODES } from './rows/row.js';

const USAGE = `Usage: node dist/native-free-bench/engine.js [options]

  --rows a,b      rows to run (default: all): ${ROW_NAMES.join(', ')}
  --modes a,b     throughput, lone, busy (default: all). throughput also runs velomux with a reader of single items
                  (mode throughput-items, which can be named by itself)
  --rounds n      rounds, all rows interleaved in rotating order (3)
  --seconds s     measured length of a throughput run (3); lone sends 400 tokens and busy runs 100 passes at 3 s, in proportion otherwise
  --streams n     open streams in throughput (256); lone has 1, busy 64
  --profile role  producer or consumer: runs that process with --cpu-prof into the current folder, its lanes under the same profiler, and
                  names the files
  --json          one JSON object on stdout and nothing else
  --help

Rows
  velomux         credit 32, one lane, piscina host        velomux-256     initial credit 256
  velomux-2       two lanes                                velomux-inline  the lane on the main thread
  net-per-stream  a TCP connection per stream              net-token       one socket, one write per token
  net-batch       one socket, one hand-made buffer and one write per pass

Modes
  throughput      back-to-back passes, one token per stream; the loop turns between passes. tokens/s from first to last receipt, CPU of both
                  processes, CPU of the producer's main thread alone (Linux)
  lone            one stream, one token each 5 ms: one-way latency
  busy            passes of 20 ms of synchronous work, tokens evenly spread: latency, and time of each send on the main thread

Every stream's count, order and contents are checked in every run; a wrong run ends the benchmark with exit code 1.
`;

const EXIT_FAILED = 1;
const EXIT_USAGE = 2;

class UsageError extends Error {}

interface CommandLine {
  readonly help: boolean;
  readonly json: boolean;
  readonly bench: BenchOptions;
}

function parseCommandLine(argv: readonly string[]): CommandLine {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      rows: { type: 'string', default: ROW_NAMES.join(',') },
      modes: { type: 'string', default: 'throughput,lone,busy' },
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '3' },
      streams: { type: 'string', default: '256' },
      profile: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const bench: BenchOptions = {
    rows: listOf('rows', values.rows, ROW_NAMES),
    modes: withItems(listOf('modes', values.modes, MODES)),
    rounds: numberOf('rounds', values.rounds, 1, 1000, true),
    seconds: numberOf('seconds', values.seconds, 0.05, 60, false),
    streams: numberOf('streams', values.streams, 1, 16_384, true),
    profile:
      values.profile === undefined ? undefined : oneOf<Role>('profile', values.profile, ['producer', 'consumer']),
  };
  return { help: values.help, json: values.json, bench };
}

function oneOf<T extends string>(option: string, text: string, allowed: readonly T[]): T {
  const found = allowed.find((value) => value === text);
  if (found === undefined)
    throw new UsageError(`--${option}: ${JSON.stringify(text)} is none of ${allowed.join(', ')}`);
  return found;
}

function listOf<T extends string>(option: string, text: string, allowed: readonly T[]): T[] {
  return text.split(',').map((part) => oneOf(option, part.trim(), allowed));
}

function numberOf(option: string, text: string, min: number, max: number, whole: boolean): number {
  const value = Number(text);
  if (!(value >= min && value <= max) || (whole && !Number.isInteger(value))) {
    throw new UsageError(
      `--${option}: ${JSON.stringify(text)} is no ${whole ? 'whole ' : ''}number from ${min} to ${max}`,
    );
  }
  return value;
}

/** Throughput brings its reader of single items along. */
function withItems(modes: readonly Mode[]): Mode[] {
  return MODES.filter((mode) => modes.includes(mode) || (mode === 'throughput-items' && modes.includes('throughput')));
}

async function main(): Promise<void> {
  const { help, json, bench } = parseCommandLine(process.argv.slice(2));
  if (help) {
    process.stdout.write(USAGE);
    return;
  }
  const cells = await runBench(bench, (line) => process.stderr.write(`${line}\n`));
  const report = makeReport(cells, bench);
  process.stdout.write(json ? `${JSON.stringify(report)}\n` : `${renderReport(report, bench.modes)}\n`);
}

try {
  await main();
} catch (error) {
  const usage = error instanceof UsageError || (error as { code?: string }).code?.startsWith('ERR_PARSE_ARGS') === true;
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n${usage ? `\n${USAGE}` : ''}`);
  process.exitCode = usage ? EXIT_USAGE : EXIT_FAILED;
}
