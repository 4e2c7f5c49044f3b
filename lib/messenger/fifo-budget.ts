// A quantity that many want a share of: bytes, places. Shares are granted strictly in the order they were asked for. It knows
// no clock; it must never grant what it does not have, except one share that is larger than everything, alone.

import { VeloError } from '../errors.js';

/** A share, or a place in the queue for one. */
export interface Claim {
  readonly amount: number;
  /** Resolves when the share is granted, never once the claim was ended before; rejects with the error of `rejectAll`. */
  readonly granted: Promise<void>;
  /** Gives the share back, or leaves the queue. Idempotent. */
  end(): void;
}

interface Waiting {
  readonly amount: number;
  readonly grant: () => void;
  readonly reject: (error: VeloError) => void;
}

const GRANTED = Promise.resolve();

export class FifoBudget {
  private taken = 0;
  private readonly queue = new Set<Waiting>();
  private closedBy: VeloError | undefined;

  constructor(
    readonly total: number,
    /** Name of the limit, for messages. */
    private readonly name: string,
    /** Claims that may wait; one more is refused with `ERR_LIMIT`. */
    private readonly maxWaiting: number,
  ) {}

  get used(): number {
    return this.taken;
  }

  get waiting(): number {
    return this.queue.size;
  }

  /** The share at once, or `undefined` when it is not there or others wait for theirs. */
  tryTake(amount: number): Claim | undefined {
    if (this.queue.size > 0 || !this.fits(amount)) return undefined;
    this.taken += amount;
    return { amount, granted: GRANTED, end: this.giver(amount) };
  }

  /** The share as soon as it is there. Throws `ERR_LIMIT` when too many wait, and the error of `rejectAll` after that. */
  take(amount: number): Claim {
    if (this.closedBy !== undefined) throw this.closedBy;
    const now = this.tryTake(amount);
    if (now !== undefined) return now;
    if (this.queue.size >= this.maxWaiting)
      throw new VeloError('ERR_LIMIT', `${this.queue.size} already wait for a share of ${this.name} = ${this.total}`);
    let give: (() => void) | undefined;
    let waiting!: Waiting;
    const granted = new Promise<void>((resolve, reject) => {
      const grant = (): void => {
        give = this.giver(amount);
        resolve();
      };
      waiting = { amount, grant, reject };
      this.queue.add(waiting);
    });
    const end = (): void => {
      if (give !== undefined) give();
      else if (this.queue.delete(waiting)) this.serve();
    };
    return { amount, granted, end };
  }

  /** Whoever waits, now or later, gives up with `error`. What was granted stays granted. */
  rejectAll(error: VeloError): void {
    this.closedBy = error;
    const waiting = [...this.queue];
    this.queue.clear();
    for (const { reject } of waiting) reject(error);
  }

  /** Shares are given again: what was in the way of that is over. */
  reopen(): void {
    this.closedBy = undefined;
  }

  private fits(amount: number): boolean {
    return this.taken === 0 || this.taken + amount <= this.total;
  }

  private giver(amount: number): () => void {
    let given = false;
    return () => {
      if (given) return;
      given = true;
      this.taken -= amount;
      this.serve();
    };
  }

  private serve(): void {
    for (const waiting of this.queue) {
      if (!this.fits(waiting.amount)) return;
      this.queue.delete(waiting);
      this.taken += waiting.amount;
      waiting.grant();
    }
  }
}
