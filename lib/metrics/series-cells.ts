// Cells for what only a scrape reads: counters by transport and message type, and histograms. They lie behind those of
// `CELL_NAMES`, in groups that change together, so that a look at one number tells whether a group must be written. Names and
// labels belong to the registry.

import type { NodeBlock } from '../plane/node-block.js';
import { MAX_LANES } from '../wire/names.js';
import { CELL_NAMES, type CellName, type CellPublisher } from './cells.js';
import { BATCH_RECORDS, EGRESS_SECONDS, HANDLER_SECONDS, type Histogram, RENDEZVOUS_SECONDS } from './histogram.js';
import { RENDEZVOUS_OPERATIONS, type RendezvousOperation } from './rendezvous-metrics.js';

/** Transports that a lane may have sockets of. */
export const TRANSPORTS = ['tcp', 'uds'] as const;
export type TransportKey = (typeof TRANSPORTS)[number];

/** Transport frame types 0..4 (message, response, ack, event, shutting down): the width of every per-type counter. */
export const FRAME_TYPES = 5;
/** Sums of seconds are kept in whole microseconds: a cell holds integers. */
const MICROSECONDS = 1_000_000;

let next = CELL_NAMES.length;
function cells(count: number): number {
  const first = next;
  next += count;
  return first;
}

/** First cells of the counters of one transport. */
export interface TransportCells {
  /** One cell per frame type, as in the three below. */
  readonly framesSent: number;
  readonly framesWritten: number;
  readonly bytesSent: number;
  /** Without requests that were refused because the node drains; so the bytes. */
  readonly framesReceived: number;
  readonly bytesReceived: number;
  readonly sendBackpressure: number;
  readonly sendErrors: number;
  readonly decodeErrors: number;
  readonly drainRejected: number;
  readonly routeFailures: number;
  /** Gauge. */
  readonly dialed: number;
  readonly writeSeconds: number;
  readonly queueWaitSeconds: number;
}

function transportCells(): TransportCells {
  return {
    framesSent: cells(FRAME_TYPES),
    framesWritten: cells(FRAME_TYPES),
    bytesSent: cells(FRAME_TYPES),
    framesReceived: cells(FRAME_TYPES),
    bytesReceived: cells(FRAME_TYPES),
    sendBackpressure: cells(1),
    sendErrors: cells(1),
    decodeErrors: cells(1),
    drainRejected: cells(1),
    routeFailures: cells(1),
    dialed: cells(1),
    writeSeconds: cells(histogramCells(EGRESS_SECONDS)),
    queueWaitSeconds: cells(histogramCells(EGRESS_SECONDS)),
  };
}

/** Its buckets, and its sum. */
function histogramCells(edges: readonly number[]): number {
  return edges.length + 2;
}

export const TRANSPORT_CELLS: Readonly<Record<TransportKey, TransportCells>> = {
  tcp: transportCells(),
  uds: transportCells(),
};
/** Buckets only: the sums are cells of `CELL_NAMES`. */
export const BATCH_BUCKETS_SENT = cells(BATCH_RECORDS.length + 1);
export const BATCH_BUCKETS_RECEIVED = cells(BATCH_RECORDS.length + 1);
/** Messages that a lane took off its sockets and was done with: batches, signals, what did not decode. */
export const MESSAGES_ENDED = cells(1);
/** Messages that did not decode. */
export const MESSAGES_UNDECODED = cells(1);

/** Histograms of the lane's own operations. */
export const RENDEZVOUS_CELLS = Object.fromEntries(
  RENDEZVOUS_OPERATIONS.map((operation) => {
    const histogram = () => cells(histogramCells(RENDEZVOUS_SECONDS));
    return [operation, { success: histogram(), error: histogram() }];
  }),
) as Readonly<Record<RendezvousOperation, { readonly success: number; readonly error: number }>>;
export const RENDEZVOUS_CELLS_END = next;
/** Waits of batches, a histogram for each mux lane. */
export const BATCH_WAIT_CELLS: readonly number[] = Array.from({ length: MAX_LANES }, () =>
  cells(histogramCells(HANDLER_SECONDS)),
);
/** Events for subscribers of `node:diagnostics_channel` that a lane left out, because main had not taken those before. */
export const DIAGNOSTICS_DROPPED = cells(1);
/** Cells of a lane. */
export const CELL_COUNT = next;

/** Cells that describe what a lane holds now. */
const GAUGES: readonly CellName[] = [
  'liveSlots',
  'heldRecords',
  'withheldRecords',
  'stagedRecords',
  'rendezvousSlots',
  'rendezvousSlotBytes',
];
const GAUGE_CELLS: readonly number[] = [
  ...GAUGES.map((name) => CELL_NAMES.indexOf(name)),
  ...TRANSPORTS.map((transport) => TRANSPORT_CELLS[transport].dialed),
];

/** A lane has died: it holds nothing any more, neither by its cells nor of any peer's budget, while what it counted stays counted. */
export function buryCells(node: NodeBlock, lane: number): void {
  node.buryBytes(lane);
  for (const cell of GAUGE_CELLS) node.setCell(lane, cell, 0);
}

/** A loop: `set` of a plain array costs several times as much. */
export function writeArray(values: Float64Array, first: number, array: readonly number[]): void {
  for (let i = 0; i < array.length; i++) values[first + i] = array[i]!;
}

export function writeHistogram(values: Float64Array, first: number, histogram: Histogram): void {
  writeArray(values, first, histogram.buckets);
  values[first + histogram.buckets.length] = Math.round(histogram.sum * MICROSECONDS);
}

/** Buckets and sum (in seconds) of a histogram, read cell by cell. */
export function readHistogram(
  read: (cell: number) => number,
  first: number,
  edges: readonly number[],
): { buckets: number[]; sum: number } {
  const buckets = Array.from({ length: edges.length + 1 }, (_, i) => read(first + i));
  return { buckets, sum: read(first + edges.length + 1) / MICROSECONDS };
}

/** Cells that change together. */
export class CellGroup {
  private seen = 0;

  constructor(
    private readonly cells: CellPublisher,
    private readonly first: number,
    private readonly end: number,
    /** Moves whenever one of the group's numbers does. */
    private readonly stamp: () => number,
    /** Writes the group's numbers, from `first` up. */
    private readonly sample: (values: Float64Array) => void,
  ) {}

  publish(): void {
    const stamp = this.stamp();
    if (stamp === this.seen) return;
    this.seen = stamp;
    this.sample(this.cells.values);
    this.cells.publish(this.first, this.end);
  }
}
