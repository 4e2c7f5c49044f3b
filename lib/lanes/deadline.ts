// A moment by which something must be over, that may still be moved closer. It owns its one timer and nothing else.

import { performance } from 'node:perf_hooks';

export class Deadline {
  /** Resolves when the time is over. Never resolves while no limit is set. */
  readonly passed: Promise<void>;
  private at = Number.POSITIVE_INFINITY;
  private timer: NodeJS.Timeout | undefined;
  private pass: () => void = () => {};

  constructor() {
    this.passed = new Promise((resolve) => {
      this.pass = resolve;
    });
  }

  /** Milliseconds left; Infinity without a limit, never negative. */
  get left(): number {
    return Math.max(0, this.at - performance.now());
  }

  /** The time is over in `ms` at the latest; a later moment than the one set changes nothing. */
  limit(ms: number): void {
    const at = performance.now() + ms;
    if (at >= this.at) return;
    this.at = at;
    clearTimeout(this.timer);
    this.timer = setTimeout(this.pass, ms);
  }

  /** Nobody waits any more, and no further limit counts. */
  clear(): void {
    this.at = Number.NEGATIVE_INFINITY;
    clearTimeout(this.timer);
  }
}
