// The one timer of a lane, or of whoever else has many deadlines. Deadlines change with every turn; arming a timer for each would
// cost more than the turn. So a standing timer that fires too early is left alone: it fires, finds nothing due, and is armed anew.

import { performance } from 'node:perf_hooks';

/** What timers take, in milliseconds. */
const MAX_DELAY_MS = 2 ** 31 - 1;

export class LaneTimer {
  private handle: NodeJS.Timeout | undefined;
  private due = Number.POSITIVE_INFINITY;
  private stopped = false;

  constructor(
    private readonly fire: () => void,
    /** `unref`: it does not keep the process alive. */
    private readonly options: { unref?: boolean } = {},
  ) {}

  /** Sees to it that `fire` is called at `time` or a little after, unless it is called before. */
  at(time: number): void {
    if (time >= this.due || this.stopped) return;
    clearTimeout(this.handle);
    this.due = time;
    // Timers count whole milliseconds and round down: one more, or it fires before the deadline and is armed twice.
    // More than MAX_DELAY_MS would fire at once.
    const delay = Math.min(Math.max(0, Math.ceil(time - performance.now())), MAX_DELAY_MS);
    this.handle = setTimeout(() => {
      this.due = Number.POSITIVE_INFINITY;
      this.fire();
    }, delay);
    if (this.options.unref) this.handle.unref();
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.handle);
  }
}
