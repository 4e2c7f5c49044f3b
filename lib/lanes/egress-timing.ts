// How long frames wait for the writer of one connection, and how long its writes take. Two clock readings per write and none per
// frame: of the frames that must wait only one is timed at once, the first that came since the last timed one was taken. It must
// never decide anything.

import { performance } from 'node:perf_hooks';
import type { ConnectionMetrics } from './connection-metrics.js';
import { FRAME_WRITING, type OutFrame } from './out-frame.js';

const MILLISECONDS = 1_000;

export class EgressTiming {
  private timed: OutFrame | undefined;
  private since = 0;
  private began = 0;

  constructor(
    private readonly metrics: ConnectionMetrics,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** The frame finds the writer idle. */
  atOnce(): void {
    this.metrics.queueWaitSeconds.observe(0);
  }

  /** The frame must wait: for the connection, for the write under way, or for room. */
  waits(frame: OutFrame): void {
    if (this.timed !== undefined) return;
    this.timed = frame;
    this.since = this.now();
  }

  /** The frame was withdrawn. */
  withdrawn(frame: OutFrame): void {
    if (this.timed === frame) this.timed = undefined;
  }

  /** A write begins. */
  begins(): void {
    this.began = this.now();
  }

  /** The write has its frames. */
  took(): void {
    if (this.timed?.state !== FRAME_WRITING) return;
    this.timed = undefined;
    this.metrics.queueWaitSeconds.observe((this.began - this.since) / MILLISECONDS);
  }

  /** The write is over, without error. */
  written(): void {
    this.metrics.writeSeconds.observe((this.now() - this.began) / MILLISECONDS);
  }

  /** The connection is lost, with everything that waited. */
  lost(): void {
    this.timed = undefined;
  }
}
