// What a run is reported as: percentiles, the JSON object, the table. Pure: text in, text out.

import type { Options } from './options.js';
import { type Counts, predict } from './workload.js';

/** Everything that was measured in one run. Times in milliseconds. */
export interface Measured extends Counts {
  readonly wallMs: number;
  /** One per request: from the request sent to its first token received. */
  readonly firstTokenMs: readonly number[];
  /** One per further token: since the token before it, of the same request. */
  readonly interTokenMs: readonly number[];
}

export interface Percentiles {
  /** null when nothing was measured. */
  readonly p50: number | null;
  readonly p99: number | null;
}

export interface Report extends Counts {
  readonly policy: string;
  readonly tokensPerWrite: number;
  readonly wallMs: number;
  readonly ttftMs: Percentiles;
  readonly itlMs: Percentiles;
  readonly lanes: number;
  readonly host: string;
  readonly engines: number;
  readonly requests: number;
  readonly maxBatch: number;
  readonly passDelayMs: number;
  readonly busyMs: number;
  readonly predicted: Prediction;
}

/** What the workload must count. The writes follow from it only under the manual policy, with one lane to each frontend. */
export interface Prediction extends Omit<Counts, 'writes'> {
  readonly writes: number | null;
}

/** The smallest sample that is not below `fraction` of all samples (nearest rank). */
export function percentile(sorted: readonly number[], fraction: number): number | null {
  const rank = Math.max(1, Math.ceil(fraction * sorted.length));
  return sorted[rank - 1] ?? null;
}

export function percentilesOf(samples: readonly number[]): Percentiles {
  const sorted = [...samples].sort((a, b) => a - b);
  return { p50: rounded(percentile(sorted, 0.5)), p99: rounded(percentile(sorted, 0.99)) };
}

export function makeReport(options: Options, measured: Measured): Report {
  return {
    policy: options.policy,
    tokens: measured.tokens,
    passes: measured.passes,
    writes: measured.writes,
    tokensPerWrite: Number((measured.tokens / measured.writes).toFixed(2)),
    wallMs: Number(measured.wallMs.toFixed(1)),
    ttftMs: percentilesOf(measured.firstTokenMs),
    itlMs: percentilesOf(measured.interTokenMs),
    lanes: options.lanes,
    host: options.host,
    engines: options.engines,
    requests: options.requests,
    maxBatch: options.maxBatch,
    passDelayMs: options.passDelayMs,
    busyMs: options.busyMs,
    predicted: predictionFor(options),
  };
}

function predictionFor(options: Options): Prediction {
  const counts = predict(options);
  return options.policy === 'manual' && options.lanes === 1 ? counts : { ...counts, writes: null };
}

/** The report as lines of two columns. */
export function formatReport(report: Report): string {
  const predicted = report.predicted.writes === null ? '' : ` (predicted ${report.predicted.writes})`;
  const rows: [string, string][] = [
    ['policy', report.policy],
    ['tokens', String(report.tokens)],
    ['passes', String(report.passes)],
    ['wire writes', `${report.writes}${predicted}`],
    ['tokens per write', report.tokensPerWrite.toFixed(2)],
    ['wall time', `${report.wallMs.toFixed(0)} ms`],
    ['first token', formatPercentiles(report.ttftMs)],
    ['inter-token', formatPercentiles(report.itlMs)],
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  return rows.map(([name, value]) => `${name.padEnd(width)}  ${value}\n`).join('');
}

function formatPercentiles({ p50, p99 }: Percentiles): string {
  if (p50 === null || p99 === null) return 'none';
  return `p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms`;
}

function rounded(value: number | null): number | null {
  return value === null ? null : Number(value.toFixed(3));
}
