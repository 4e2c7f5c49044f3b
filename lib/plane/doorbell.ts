// One side's bell: how the other side wakes it, and how it goes to sleep without missing a ring.
// The order is the whole point. Sleeper: read the bell, say "parked", look once more at everything, then wait on the value
// read. Ringer: publish first, then ring only if the sleeper said so. It never carries data.

import type { Memory } from './memory.js';

const PARKED = 0;
const BELL = 1;
/** Words a doorbell takes: a cache line of its own. */
export const DOORBELL_WORDS = 16;

export class Doorbell {
  /** Called instead of waking a thread when both sides live on one thread. */
  hook: (() => void) | undefined;

  constructor(
    protected readonly memory: Memory,
    protected readonly base: number,
  ) {}

  /** The word to wait on. */
  get bellWord(): number {
    return this.base + BELL;
  }

  /** Sleeper, first step: returns the bell value to wait on. Look at all sources of work after this call, not before. */
  park(): number {
    const bell = this.memory.load(this.base + BELL);
    this.memory.store(this.base + PARKED, 1);
    return bell;
  }

  /** Sleeper: work was found, or the wait ended. */
  unpark(): void {
    this.memory.store(this.base + PARKED, 0);
  }

  /** Ringer: call after publishing. Wakes the sleeper at most once for each time it parked. */
  ring(): boolean {
    if (this.memory.load(this.base + PARKED) === 0) return false;
    if (this.memory.exchange(this.base + PARKED, 0) === 0) return false;
    if (this.hook !== undefined) {
      this.hook();
      return true;
    }
    this.memory.add(this.base + BELL, 1);
    this.memory.notify(this.base + BELL);
    return true;
  }
}

/** Words a mute takes. */
export const MUTE_WORDS = 16;

/**
 * "Do not ring for this": set by a sleeper that will look by itself at a time it knows, cleared by it before it looks. Whoever
 * announces work puts the work down first and reads the mute after: a mute still set then means that the look is yet to come.
 */
export class Mute {
  constructor(
    private readonly memory: Memory,
    private readonly base: number,
  ) {}

  /** Sleeper: a look is queued. */
  set(): void {
    this.memory.store(this.base, 1);
  }

  /** Sleeper: ring again. Look at the work after this call, not before. */
  clear(): void {
    this.memory.store(this.base, 0);
  }

  /** Ringer: after the work was put down. */
  get isSet(): boolean {
    return this.memory.load(this.base) !== 0;
  }
}
