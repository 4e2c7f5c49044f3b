// What main counts about streams: operations on anchors, round trips of attaches, sends that found no room. Labels are of closed
// sets, so that no peer can add a series. It must never decide anything, and nothing here runs per record.

import { performance } from 'node:perf_hooks';
import { MESSENGER_MUX_KEY } from '../wire/names.js';
import { HANDLER_SECONDS, Histogram } from './histogram.js';

export type AnchorOperation = 'attach' | 'detach' | 'finalize' | 'cancel' | 'prebind' | 'open';
export type OperationOutcome = 'success' | 'error';

/** `transport_scheme` of what needs no transport: streams within a node, and operations on an anchor by message. */
export const SCHEME_LOCAL = 'velo';
/** `transport_scheme` of an attach that failed before the two sides had agreed on one. */
export const SCHEME_UNKNOWN = 'unknown';
export type TransportScheme = typeof MESSENGER_MUX_KEY | typeof SCHEME_LOCAL | typeof SCHEME_UNKNOWN;

/** Round trips of attaches, in seconds. */
export const ATTACH_SECONDS: readonly number[] = [
  0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10,
];
const MILLISECONDS = 1_000;

/** How many sends had to wait. */
export interface WaitCount {
  count: number;
}

/** Histograms by the values of their labels, joined by blanks; each is made when it is first needed. */
class LabelledHistograms {
  readonly byLabels = new Map<string, Histogram>();

  constructor(private readonly edges: readonly number[]) {}

  observe(labels: string, seconds: number): void {
    let histogram = this.byLabels.get(labels);
    if (histogram === undefined) {
      histogram = new Histogram(this.edges);
      this.byLabels.set(labels, histogram);
    }
    histogram.observe(seconds);
  }
}

export class StreamingMetrics {
  private readonly operationTimes = new LabelledHistograms(HANDLER_SECONDS);
  private readonly attachTimes = new LabelledHistograms(ATTACH_SECONDS);
  /** Calls of `send` and its kin that found no room and waited, by where their records go. */
  readonly sendsThatWaited: Readonly<Record<typeof MESSENGER_MUX_KEY | typeof SCHEME_LOCAL, WaitCount>> = {
    [MESSENGER_MUX_KEY]: { count: 0 },
    [SCHEME_LOCAL]: { count: 0 },
  };
  /** Attaches of other nodes that were refused. */
  attachesRefused = 0;

  constructor(readonly now: () => number = () => performance.now()) {}

  /** By `operation outcome transport_scheme`. The count of a histogram is the number of operations. */
  get operations(): ReadonlyMap<string, Histogram> {
    return this.operationTimes.byLabels;
  }

  /** By `outcome transport_scheme`. */
  get attachRoundTrips(): ReadonlyMap<string, Histogram> {
    return this.attachTimes.byLabels;
  }

  /** An operation on an anchor that began at `startedAt` (of `now`) is over. */
  operation(operation: AnchorOperation, outcome: OperationOutcome, scheme: TransportScheme, startedAt: number): void {
    this.operationTimes.observe(`${operation} ${outcome} ${scheme}`, this.since(startedAt));
  }

  /** An attach of this node to another one was answered, or failed. */
  attachAnswered(outcome: OperationOutcome, scheme: TransportScheme, startedAt: number): void {
    this.attachTimes.observe(`${outcome} ${scheme}`, this.since(startedAt));
  }

  private since(startedAt: number): number {
    return (this.now() - startedAt) / MILLISECONDS;
  }
}
