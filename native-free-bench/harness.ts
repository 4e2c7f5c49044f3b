// Owns a measured run: two fresh processes for one row in one mode, warm-up, the measured phase between CPU readings, the check of every
// stream, the end. And the rounds: all rows of a mode after each other, in another order each round.
// Must never keep a run whose counts or contents were wrong.

import type { Role } from './child.js';
import { RoleProcess } from './role-process.js';
import { hasMode, ROW_NAMES } from './rows/index.js';
import type { Mode } from './rows/row.js';
import type { CpuSnapshot } from './thread-cpu.js';
import { othersCores, snapshotMachine } from './thread-cpu.js';
import type { Phase, SendTimes, SinkReport } from './workload.js';

export interface BenchOptions {
  readonly rows: readonly string[];
  readonly modes: readonly Mode[];
  readonly rounds: number;
  /** Length of the measured throughput phase, seconds; the other modes' lengths are in proportion. */
  readonly seconds: number;
  /** Open streams in throughput. */
  readonly streams: number;
  readonly profile?: Role | undefined;
}

/** One run's figures; null where the mode or the system has none. */
export interface RunResult {
  readonly tokensPerSec: number | null;
  readonly cpuUsPerToken: number | null;
  readonly producerCpuNsPerToken: number | null;
  readonly p50Us: number | null;
  readonly p99Us: number | null;
  readonly maxUs: number | null;
  readonly nsPerSend: number | null;
  readonly medianNsPerSend: number | null;
  readonly othersCores: number | null;
  readonly tokens: number;
  readonly profiles: readonly string[];
}

export interface CellRuns {
  readonly name: string;
  readonly mode: Mode;
  readonly streams: number;
  readonly runs: RunResult[];
}

export const BUSY_STREAMS = 64;
export const BUSY_PASS_MS = 20;
export const LONE_EVERY_MS = 5;

/** At the default of 3 s: 400 lone tokens (2 s) and 100 busy passes (2 s). */
const LONE_TOKENS_PER_SECOND = 400 / 3;
const BUSY_PASSES_PER_SECOND = 100 / 3;
const LONE_TOKENS_MIN = 10;
const BUSY_PASSES_MIN = 5;
/** Warm-up: a third of the measured length, at most a second, of back-to-back passes; then a few of the mode's own. */
const WARM_UP_PART = 1 / 3;
const WARM_UP_MAX_SECONDS = 1;
const LONE_WARM_UP_TOKENS = 50;
const BUSY_WARM_UP_PASSES = 10;
const MAX_TOKENS = 50_000_000;
const RUN_LIMIT_MS = 45_000;
const RUN_LIMIT_PER_SECOND_MS = 8_000;
/** Rotation of the order between rounds; coprime with the number of rows, so that neighbours change too. */
const ROTATION = 3;

type Pair = Readonly<Record<Role, RoleProcess>>;

interface Cell {
  readonly name: string;
  readonly mode: Mode;
  readonly streams: number;
}

interface Measured {
  readonly tokens: number;
  readonly perStream: number;
  readonly sends: SendTimes | null;
  readonly cpuNs: number;
  readonly producerMainNs: number | null;
  readonly othersCores: number | null;
}

/** Runs every row in every mode, `rounds` times, interleaved. Throws at the first wrong run. */
export async function runBench(options: BenchOptions, progress: (line: string) => void): Promise<CellRuns[]> {
  const cells = cellsOf(options).map((cell) => ({ ...cell, runs: [] as RunResult[] }));
  for (let round = 0; round < options.rounds; round++) {
    for (const mode of options.modes) {
      const ofMode = cells.filter((cell) => cell.mode === mode);
      for (let k = 0; k < ofMode.length; k++) {
        const cell = ofMode[(k + round * ROTATION) % ofMode.length]!;
        const result = await runCell(cell, options);
        cell.runs.push(result);
        progress(`round ${round + 1}/${options.rounds}  ${mode}  ${cell.name}  ${brief(result)}`);
      }
    }
  }
  return cells;
}

function cellsOf(options: BenchOptions): Cell[] {
  const streamsOf = (mode: Mode) => (mode === 'lone' ? 1 : mode === 'busy' ? BUSY_STREAMS : options.streams);
  const names = ROW_NAMES.filter((name) => options.rows.includes(name));
  return options.modes.flatMap((mode) =>
    names.filter((name) => hasMode(name, mode)).map((name) => ({ name, mode, streams: streamsOf(mode) })),
  );
}

function brief(result: RunResult): string {
  const parts = [
    result.tokensPerSec === null ? '' : `${Math.round(result.tokensPerSec).toLocaleString('en-US')} tokens/s`,
    result.cpuUsPerToken === null ? '' : `${result.cpuUsPerToken.toFixed(2)} µs CPU`,
    result.producerCpuNsPerToken === null ? '' : `${Math.round(result.producerCpuNsPerToken)} ns producer main`,
    result.p50Us === null ? '' : `p50 ${result.p50Us.toFixed(0)} µs`,
    result.p99Us === null ? '' : `p99 ${result.p99Us.toFixed(0)} µs`,
    result.nsPerSend === null
      ? ''
      : `${Math.round(result.nsPerSend)} ns/send (median ${Math.round(result.medianNsPerSend ?? 0)})`,
    result.othersCores === null ? '' : `(others ${result.othersCores.toFixed(2)} cores)`,
    ...result.profiles,
  ];
  return parts.filter((part) => part !== '').join('  ');
}

async function runCell(cell: Cell, options: BenchOptions): Promise<RunResult> {
  const start = (role: Role) => new RoleProcess(role, cell.name, options.profile === role);
  const pair: Pair = { consumer: start('consumer'), producer: start('producer') };
  const limitMs = RUN_LIMIT_MS + options.seconds * RUN_LIMIT_PER_SECOND_MS;
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      const doing = `${pair.producer.status()}; ${pair.consumer.status()}`;
      reject(new Error(`no result within ${limitMs / 1000} s (${doing})`));
    }, limitMs);
  });
  const work = measureCell(pair, cell, options);
  work.catch(() => undefined); // a run that lost the race still ends, when its processes do
  try {
    const result = await Promise.race([work, limit]);
    await Promise.all([pair.consumer.end(), pair.producer.end()]);
    return { ...result, profiles: [...pair.consumer.profiles(), ...pair.producer.profiles()] };
  } catch (error) {
    throw new Error(`${cell.name}, ${cell.mode}: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    clearTimeout(timer);
    await Promise.all([pair.consumer.end(), pair.producer.end()]);
  }
}

async function measureCell(pair: Pair, cell: Cell, options: BenchOptions): Promise<Omit<RunResult, 'profiles'>> {
  await openStreams(pair, cell);
  const passesPerSecond = await warmUp(pair, cell, options);
  const measured = await measure(pair, cell, options, passesPerSecond);
  await pair.producer.ask({ cmd: 'finish' });
  await pair.consumer.ask({ cmd: 'finish' });
  // Every stream has ended: what the sink holds now is all that was ever delivered.
  const report = await pair.consumer.ask<SinkReport>({ cmd: 'report', perStream: measured.perStream });
  await Promise.all([pair.producer.ask({ cmd: 'close' }), pair.consumer.ask({ cmd: 'close' })]);
  return figures(cell.mode, measured, report);
}

async function openStreams(pair: Pair, cell: Cell): Promise<void> {
  const open = { cmd: 'open', row: cell.name, mode: cell.mode, streams: cell.streams } as const;
  const hello = await pair.consumer.ask({ ...open, role: 'consumer' });
  const reply = await pair.producer.ask({ ...open, role: 'producer', hello });
  await pair.consumer.ask({ cmd: 'join', reply });
  await pair.producer.ask({ cmd: 'attach' });
}

const isThroughput = (mode: Mode): boolean => mode === 'throughput' || mode === 'throughput-items';

/** Compiles the code on both sides and finds the rate. Returns whole passes per second, the receiver included. */
async function warmUp(pair: Pair, cell: Cell, options: BenchOptions): Promise<number> {
  const phase: Phase = isThroughput(cell.mode) ? 'numbered' : 'stamped';
  const seconds = Math.min(WARM_UP_MAX_SECONDS, options.seconds * WARM_UP_PART);
  await pair.consumer.ask({ cmd: 'arm', phase });
  const start = process.hrtime.bigint();
  const { passes } = await pair.producer.ask<{ passes: number }>({ cmd: 'passes', phase, ms: seconds * 1000 });
  await pair.consumer.ask({ cmd: 'expect', expected: passes * cell.streams });
  const elapsed = Number(process.hrtime.bigint() - start) / 1e9;
  await pair.consumer.ask({ cmd: 'report', perStream: passes });
  if (cell.mode === 'lone') await phaseOf(pair, cell, Math.ceil(LONE_WARM_UP_TOKENS * Math.min(1, options.seconds)));
  if (cell.mode === 'busy') await phaseOf(pair, cell, Math.ceil(BUSY_WARM_UP_PASSES * Math.min(1, options.seconds)));
  return passes / elapsed;
}

/** One phase of the mode's own, from the first token to the last receipt; `perStream` tokens on each stream. */
async function phaseOf(pair: Pair, cell: Cell, perStream: number): Promise<SendTimes | null> {
  const stamped = !isThroughput(cell.mode);
  const expected = perStream * cell.streams;
  await pair.consumer.ask({ cmd: 'arm', phase: stamped ? 'stamped' : 'plain', expected });
  const full = pair.consumer.ask({ cmd: 'full' });
  full.catch(() => undefined); // a failure of the producer's half is reported first
  let sends: SendTimes | null = null;
  if (cell.mode === 'lone') {
    await pair.producer.ask({ cmd: 'lone', count: perStream, everyMs: LONE_EVERY_MS });
  } else if (cell.mode === 'busy') {
    const busy = { cmd: 'busy', passes: perStream, passMs: BUSY_PASS_MS } as const;
    sends = await pair.producer.ask<SendTimes>(busy);
  } else {
    await pair.producer.ask({ cmd: 'passes', phase: 'plain', passes: perStream });
  }
  await full;
  return sends;
}

function passesToMeasure(cell: Cell, options: BenchOptions, passesPerSecond: number): number {
  if (cell.mode === 'lone') return Math.max(LONE_TOKENS_MIN, Math.round(LONE_TOKENS_PER_SECOND * options.seconds));
  if (cell.mode === 'busy') return Math.max(BUSY_PASSES_MIN, Math.round(BUSY_PASSES_PER_SECOND * options.seconds));
  const passes = Math.max(2, Math.ceil(passesPerSecond * options.seconds));
  return Math.min(passes, Math.floor(MAX_TOKENS / cell.streams));
}

async function measure(pair: Pair, cell: Cell, options: BenchOptions, passesPerSecond: number): Promise<Measured> {
  const perStream = passesToMeasure(cell, options, passesPerSecond);
  const machineBefore = snapshotMachine();
  const before = await snapshots(pair);
  const sends = await phaseOf(pair, cell, perStream);
  const after = await snapshots(pair);
  const machineAfter = snapshotMachine();
  const spentUs = (role: Role) => after[role].processUs - before[role].processUs;
  const cpuUs = spentUs('producer') + spentUs('consumer');
  const [main0, main1] = [before.producer.mainThreadNs, after.producer.mainThreadNs];
  return {
    perStream,
    tokens: perStream * cell.streams,
    sends,
    cpuNs: cpuUs * 1000,
    producerMainNs: main0 === null || main1 === null ? null : main1 - main0,
    othersCores: othersCores(machineBefore, machineAfter, cpuUs / 1e6),
  };
}

/** Reads both processes, and checks that their clock is ours: a child's reading must lie between two of our own. */
async function snapshots(pair: Pair): Promise<Readonly<Record<Role, CpuSnapshot>>> {
  const low = process.hrtime.bigint();
  const [producer, consumer] = await Promise.all([
    pair.producer.ask<CpuSnapshot>({ cmd: 'snapshot' }),
    pair.consumer.ask<CpuSnapshot>({ cmd: 'snapshot' }),
  ]);
  const high = process.hrtime.bigint();
  for (const { hrNs } of [producer, consumer]) {
    if (hrNs < low || hrNs > high) throw new Error('the monotonic clock differs between processes');
  }
  return { producer, consumer };
}

function figures(mode: Mode, measured: Measured, report: SinkReport): Omit<RunResult, 'profiles'> {
  const { tokens } = measured;
  const seconds = (report.lastNs - report.firstNs) / 1e9;
  const busy = mode === 'busy'; // its CPU time is the model's spinning
  return {
    tokensPerSec: isThroughput(mode) ? (tokens - 1) / seconds : null,
    cpuUsPerToken: busy ? null : measured.cpuNs / 1000 / tokens,
    producerCpuNsPerToken: busy || measured.producerMainNs === null ? null : measured.producerMainNs / tokens,
    p50Us: report.p50Us,
    p99Us: report.p99Us,
    maxUs: report.maxUs,
    nsPerSend: measured.sends?.nsPerSend ?? null,
    medianNsPerSend: measured.sends?.medianNsPerSend ?? null,
    othersCores: measured.othersCores,
    tokens,
  };
}
