// Owns what a finished benchmark says: the JSON object and the table for people. Must never measure.

import os from 'node:os';
import type { BenchOptions, CellRuns, RunResult } from './harness.js';
import { BUSY_PASS_MS, LONE_EVERY_MS } from './harness.js';
import type { Mode } from './rows/row.js';
import type { Spread } from './stats.js';
import { formatNumber, formatSpread, formatTable, ratio, spread } from './stats.js';

const FIGURES = [
  'tokensPerSec',
  'cpuUsPerToken',
  'producerCpuNsPerToken',
  'p50Us',
  'p99Us',
  'maxUs',
  'nsPerSend',
  'medianNsPerSend',
  'othersCores',
] as const;
type Figure = (typeof FIGURES)[number];

/** One row in one mode: medians over the rounds, and `spread` with the least and greatest of each. */
export interface ReportRow extends Readonly<Record<Figure, number | null>> {
  readonly name: string;
  readonly mode: Mode;
  readonly streams: number;
  readonly rounds: number;
  readonly tokens: number;
  readonly spread: Readonly<Record<Figure, Spread | null>>;
}

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly node: string;
  readonly kernel: string;
  readonly platform: string;
}

/** Ratios of medians; null when a row they need was not run. Below 1 is better except for `throughput`. */
export interface Ratios {
  readonly throughput: number | null;
  readonly producerCpu: number | null;
  readonly busyP99: number | null;
  readonly busyNsPerSend: number | null;
}

export interface Report {
  readonly rows: readonly ReportRow[];
  readonly machine: Machine;
  readonly ratios: Ratios;
  readonly rounds: number;
  readonly seconds: number;
}

export function machine(): Machine {
  const cpus = os.cpus();
  return {
    cpu: cpus[0]?.model ?? 'unknown',
    cores: cpus.length,
    memoryGiB: Math.round((os.totalmem() / 2 ** 30) * 10) / 10,
    node: process.version,
    kernel: os.release(),
    platform: `${process.platform}-${process.arch}`,
  };
}

export function makeReport(cells: readonly CellRuns[], options: BenchOptions): Report {
  const rows = cells.map(reportRow);
  return { rows, machine: machine(), ratios: ratiosOf(rows), rounds: options.rounds, seconds: options.seconds };
}

function reportRow({ name, mode, streams, runs }: CellRuns): ReportRow {
  const perFigure = <T>(value: (figure: Figure) => T) =>
    Object.fromEntries(FIGURES.map((figure) => [figure, value(figure)])) as Record<Figure, T>;
  const spreads = perFigure((figure) => spread(runs.map((run: RunResult) => run[figure])));
  const medians = perFigure((figure) => spreads[figure]?.median ?? null);
  const tokens = runs.reduce((sum, run) => sum + run.tokens, 0);
  return { name, mode, ...medians, streams, rounds: runs.length, tokens, spread: spreads };
}

function ratiosOf(rows: readonly ReportRow[]): Ratios {
  const pick = (name: string, mode: Mode) => rows.find((row) => row.name === name && row.mode === mode);
  const compare = (mode: Mode, rival: string, figure: Figure) =>
    ratio(pick('velomux', mode)?.[figure], pick(rival, mode)?.[figure]);
  return {
    throughput: compare('throughput', 'net-batch', 'tokensPerSec'),
    producerCpu: compare('throughput', 'net-batch', 'producerCpuNsPerToken'),
    busyP99: compare('busy', 'net-token', 'p99Us'),
    busyNsPerSend: compare('busy', 'net-token', 'nsPerSend'),
  };
}

interface Column {
  readonly title: string;
  readonly figure: Figure;
  readonly digits: number;
}

const THROUGHPUT_COLUMNS: readonly Column[] = [
  { title: 'tokens/s', figure: 'tokensPerSec', digits: 0 },
  { title: 'CPU µs/token, both', figure: 'cpuUsPerToken', digits: 2 },
  { title: 'producer main thread CPU ns/token', figure: 'producerCpuNsPerToken', digits: 0 },
];
const LATENCY_COLUMNS: readonly Column[] = [
  { title: 'p50 µs', figure: 'p50Us', digits: 0 },
  { title: 'p99 µs', figure: 'p99Us', digits: 0 },
  { title: 'max µs', figure: 'maxUs', digits: 0 },
];
const CPU_COLUMN: Column = { title: 'CPU µs/token, both', figure: 'cpuUsPerToken', digits: 0 };
const SEND_COLUMNS: readonly Column[] = [
  { title: 'ns/send, mean', figure: 'nsPerSend', digits: 0 },
  { title: 'median', figure: 'medianNsPerSend', digits: 0 },
];
const OTHERS_COLUMN: Column = { title: "others' cores", figure: 'othersCores', digits: 2 };

/** Up to this many cores used by others, their effect is lost in the spread of the rounds. */
const QUIET_CORES = 0.15;

const COLUMNS: Readonly<Record<Mode, readonly Column[]>> = {
  throughput: [...THROUGHPUT_COLUMNS, OTHERS_COLUMN],
  'throughput-items': [...THROUGHPUT_COLUMNS, OTHERS_COLUMN],
  lone: [...LATENCY_COLUMNS, CPU_COLUMN, OTHERS_COLUMN],
  busy: [...LATENCY_COLUMNS, ...SEND_COLUMNS, OTHERS_COLUMN],
};

const EXPLANATIONS: Readonly<Record<Mode, string>> = {
  throughput: 'back-to-back passes, one token on every stream; readers take batches',
  'throughput-items': 'the same; readers take one item at a time (for await)',
  lone: `one token each ${LONE_EVERY_MS} ms, one-way latency`,
  busy: `passes of ${BUSY_PASS_MS} ms of synchronous work, tokens evenly spread, the loop turns only between passes; latency and send time`,
};

/** The tables and ratios as text. */
export function renderReport(report: Report, modes: readonly Mode[]): string {
  const { cpu, cores, memoryGiB, node, kernel, platform } = report.machine;
  const sections = modes.map((mode) => renderMode(report, mode)).filter((section) => section !== undefined);
  const { throughput, producerCpu, busyP99, busyNsPerSend } = report.ratios;
  const times = (value: number | null, digits = 2) => (value === null ? '–' : formatNumber(value, digits));
  return [
    `${cpu}, ${cores} cores, ${memoryGiB} GiB, ${platform}, kernel ${kernel}, Node ${node}`,
    ...sections,
    [
      'ratios of medians',
      `throughput, velomux / net-batch            ${times(throughput)}`,
      `producer main CPU, velomux / net-batch     ${times(producerCpu)}`,
      `busy p99, velomux / net-token              ${times(busyP99)}`,
      `busy ns per send, velomux / net-token      ${times(busyNsPerSend, 3)}`,
    ].join('\n'),
    ...disturbance(report.rows),
  ].join('\n\n');
}

/** Says so when the machine was not ours alone. */
function disturbance(rows: readonly ReportRow[]): string[] {
  const most = Math.max(0, ...rows.map((row) => row.spread.othersCores?.max ?? 0));
  if (most <= QUIET_CORES) return [];
  return [`Other processes kept up to ${formatNumber(most, 2)} cores busy during a run: take these figures as rough.`];
}

function renderMode(report: Report, mode: Mode): string | undefined {
  const rows = report.rows.filter((row) => row.mode === mode);
  if (rows.length === 0) return undefined;
  const columns = COLUMNS[mode];
  const head = ['row', ...columns.map((column) => column.title)];
  const body = rows.map((row) => [row.name, ...columns.map((c) => formatSpread(row.spread[c.figure], c.digits))]);
  const streams = rows[0]!.streams;
  const title = `${mode}: ${streams} ${streams === 1 ? 'stream' : 'streams'}, ${report.rounds} ${report.rounds === 1 ? 'round' : 'rounds'}, median (min–max)`;
  return `${title}\n${EXPLANATIONS[mode]}\n\n${formatTable(head, body)}`;
}
