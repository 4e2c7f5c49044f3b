// How long batches wait between their arrival in a socket read and their turn: the ordered lane of this engine. One sample per
// batch, whatever it carries. It must never be asked about a record.

import { performance } from 'node:perf_hooks';
import { HANDLER_SECONDS, Histogram } from '../metrics/histogram.js';
import { MAX_LANES } from '../wire/names.js';

const MILLISECONDS = 1_000;

export class BatchWaits {
  /** By mux lane. */
  readonly byLane: readonly Histogram[] = Array.from({ length: MAX_LANES }, () => new Histogram(HANDLER_SECONDS));
  /** When the socket read came whose frames are handled now. */
  arrivedAt = 0;

  constructor(private readonly now: () => number = () => performance.now()) {}

  /** A socket read has come, and the first of its frames is handled next. */
  arrived(): void {
    this.arrivedAt = this.now();
  }

  /** A batch of `lane` has its turn. One that was pulled first came with an earlier read. */
  turn(lane: number, arrivedAt = this.arrivedAt): void {
    this.byLane[lane]!.observe((this.now() - arrivedAt) / MILLISECONDS);
  }
}
