// How many runs of one ordered handler may be under way at once, over all its lanes: a semaphore in order of arrival. It must
// never hold a timer, and never let one in before another that came earlier.

import { VeloError } from '../errors.js';

export class RunLimiter {
  #running = 0;
  /** Those who wait; each lane of the handler waits once at most, so lanes bound it. */
  readonly #waiting = new Set<() => void>();

  /** @throws VeloError `ERR_INVALID_ARGUMENT` unless `limit` is an integer of at least 1. */
  constructor(readonly limit: number) {
    if (!Number.isInteger(limit) || limit < 1) {
      throw new VeloError('ERR_INVALID_ARGUMENT', `maxConcurrent must be an integer of at least 1, not ${limit}`);
    }
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** `undefined`: in, at once. Else resolves when it is the caller's turn. Every entry needs one `leave`. */
  enter(): Promise<void> | undefined {
    if (this.#running < this.limit) {
      this.#running += 1;
      return undefined;
    }
    return new Promise((resolve) => {
      this.#waiting.add(resolve);
    });
  }

  /** Gives the place to whoever has waited longest. */
  leave(): void {
    for (const next of this.#waiting) {
      this.#waiting.delete(next);
      next();
      return;
    }
    this.#running -= 1;
  }
}
