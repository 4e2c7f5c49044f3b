// The calls of one thread that wait for an answer: a table of response slots. It mints the private 64 bits of response
// ids and decides which answer still has a caller. It must never hold a timer, and never give one answer to two callers.
//
// A slot's life: free → in use (allocate) → free with the next generation (complete, failAll) → … → retired, once its
// generation is the highest there is. Free slots are reused first in, first out, so a late answer meets a generation that
// is as far away as possible.

import { VeloError } from '../errors.js';
import {
  generationProper,
  MAX_GENERATION,
  MAX_ORIGIN,
  ORIGIN_MAIN,
  originOf,
  wireGeneration,
} from './response-origin.js';

/** Slots of a full table: indices 0..65,534. Index 65,535 is never used. */
export const MAX_RESPONSE_SLOTS = 65_535;
/** Callers that may wait for a free slot at once. */
export const DEFAULT_MAX_CAPACITY_WAITERS = 4_096;

/** The private part of a response id. `generation` is the 48-bit wire field, origin included. */
export interface ResponseSlot {
  readonly slot: number;
  readonly generation: number;
}

export interface ResponseTableOptions {
  /** Generation that every slot begins with. Default 0. */
  readonly firstGeneration?: number;
  /** The thread this table belongs to, see `response-origin.ts`. Default: main. */
  readonly origin?: number;
  /** Slots, 1..65,535. Default 65,535. */
  readonly capacity?: number;
  /** Callers that may wait in `awaitCapacity`; one more is refused with `ERR_LIMIT`. Default 4,096. */
  readonly maxWaiters?: number;
  /** The generation at which a slot is retired, at most 2^40 − 1, which is the default. */
  readonly maxGeneration?: number;
}

/** Answers without a caller, by reason, and calls without a slot. */
export interface ResponseTableCounts {
  /** The answer names another thread's table. */
  foreign: number;
  /** The slot index lies outside the table. */
  outOfRange: number;
  /** Nobody waits on that slot: a duplicate, or a call that gave up. */
  notInUse: number;
  /** The slot has another caller by now: a late answer. */
  stale: number;
  /** Allocations that found no free slot (those that then waited included). */
  exhausted: number;
}

interface Waiter<T> {
  readonly entry: T;
  readonly resolve: (slot: ResponseSlot) => void;
  readonly reject: (error: unknown) => void;
  readonly signal: AbortSignal | undefined;
  onAbort: (() => void) | undefined;
}

const STATE_FREE = 0;
const STATE_IN_USE = 1;
const STATE_RETIRED = 2;

function checkOption(name: string, value: number, low: number, high: number): number {
  if (!Number.isInteger(value) || value < low || value > high) {
    throw new VeloError('ERR_INVALID_ARGUMENT', `${name} must be an integer in ${low}..${high}, not ${value}`);
  }
  return value;
}

export class ResponseTable<T> {
  readonly capacity: number;
  readonly origin: number;
  readonly counts: ResponseTableCounts = { foreign: 0, outOfRange: 0, notInUse: 0, stale: 0, exhausted: 0 };

  readonly #maxGeneration: number;
  readonly #maxWaiters: number;
  readonly #states: Uint8Array;
  readonly #generations: Float64Array;
  readonly #entries: (T | undefined)[] = [];
  readonly #waiters = new Set<Waiter<T>>();
  // Free slots: those never used (#fresh and up) come first, then the ring of returned ones. Together they behave as one
  // queue that was filled with 0..capacity-1 at the start.
  readonly #freed: Uint16Array;
  #freedHead = 0;
  #freedCount = 0;
  #fresh = 0;
  #size = 0;
  #retired = 0;

  constructor(options: ResponseTableOptions = {}) {
    this.origin = checkOption('origin', options.origin ?? ORIGIN_MAIN, 0, MAX_ORIGIN);
    this.capacity = checkOption('capacity', options.capacity ?? MAX_RESPONSE_SLOTS, 1, MAX_RESPONSE_SLOTS);
    this.#maxGeneration = checkOption('maxGeneration', options.maxGeneration ?? MAX_GENERATION, 0, MAX_GENERATION);
    this.#maxWaiters = checkOption(
      'maxWaiters',
      options.maxWaiters ?? DEFAULT_MAX_CAPACITY_WAITERS,
      0,
      Number.MAX_SAFE_INTEGER,
    );
    this.#states = new Uint8Array(this.capacity);
    this.#generations = new Float64Array(this.capacity).fill(options.firstGeneration ?? 0);
    this.#freed = new Uint16Array(this.capacity);
  }

  /** Calls in flight. */
  get size(): number {
    return this.#size;
  }

  /** No slot is free: `allocate` would throw. */
  get isFull(): boolean {
    return this.#fresh === this.capacity && this.#freedCount === 0;
  }

  /** Slots that came to the end of their generations. */
  get retired(): number {
    return this.#retired;
  }

  /** Callers in `awaitCapacity`. */
  get waiting(): number {
    return this.#waiters.size;
  }

  /** Takes a slot for a call; `ERR_RESPONSE_SLOTS_EXHAUSTED` when none is free. */
  allocate(entry: T): ResponseSlot {
    const slot = this.#take(entry);
    if (slot === undefined) {
      this.counts.exhausted += 1;
      throw this.#exhausted();
    }
    return slot;
  }

  /**
   * Takes a slot and gives it back at once: the id of a message that nobody answers. An answer to it (a draining peer
   * echoes such a message too) finds no caller.
   */
  issue(entry: T): ResponseSlot {
    const slot = this.allocate(entry);
    this.#release(slot.slot);
    return slot;
  }

  /**
   * Takes a slot as soon as one is free, in the order of the calls. Rejects with `ERR_ABORTED` (the signal fired),
   * `ERR_LIMIT` (too many callers wait already), `ERR_RESPONSE_SLOTS_EXHAUSTED` (every slot is retired) or with the
   * error given to `failAll`.
   */
  awaitCapacity(entry: T, signal?: AbortSignal): Promise<ResponseSlot> {
    if (signal?.aborted) return Promise.reject(aborted(signal));
    const free = this.#take(entry);
    if (free !== undefined) return Promise.resolve(free);
    this.counts.exhausted += 1;
    if (this.#retired === this.capacity) return Promise.reject(this.#exhausted());
    if (this.#waiters.size >= this.#maxWaiters) {
      return Promise.reject(
        new VeloError('ERR_LIMIT', `${this.#maxWaiters} callers already wait for a response slot (maxWaiters)`),
      );
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter<T> = { entry, resolve, reject, signal, onAbort: undefined };
      if (signal !== undefined) {
        waiter.onAbort = () => {
          this.#waiters.delete(waiter);
          reject(aborted(signal));
        };
        signal.addEventListener('abort', waiter.onAbort, { once: true });
      }
      this.#waiters.add(waiter);
    });
  }

  /**
   * The entry that waits for this answer, and the end of its slot; `undefined` (counted) for an answer that is late, a
   * duplicate or meant for another thread. `generation` is the 48-bit wire field. Also the way to give up on a call.
   */
  complete(slot: number, generation: number): T | undefined {
    if (originOf(generation) !== this.origin) {
      this.counts.foreign += 1;
      return undefined;
    }
    if (!Number.isInteger(slot) || slot < 0 || slot >= this.capacity) {
      this.counts.outOfRange += 1;
      return undefined;
    }
    if (this.#states[slot] !== STATE_IN_USE) {
      this.counts.notInUse += 1;
      return undefined;
    }
    if (this.#generations[slot] !== generationProper(generation)) {
      this.counts.stale += 1;
      return undefined;
    }
    const entry = this.#entries[slot];
    this.#release(slot);
    return entry;
  }

  /**
   * Ends every call that `select` names (all, when it is left out): frees the slots, then hands each entry to `visit` in
   * slot order, once. Without `select` the callers in `awaitCapacity` are rejected with `error` as well. `visit` may use
   * the table.
   */
  failAll(error: VeloError, visit: (entry: T, error: VeloError) => void, select?: (entry: T) => boolean): number {
    if (select === undefined) {
      const waiters = [...this.#waiters];
      this.#waiters.clear();
      for (const waiter of waiters) this.#reject(waiter, error);
    }
    const ended: T[] = [];
    for (let slot = 0; slot < this.#fresh; slot += 1) {
      if (this.#states[slot] !== STATE_IN_USE) continue;
      const entry = this.#entries[slot] as T;
      if (select !== undefined && !select(entry)) continue;
      ended.push(entry);
      this.#release(slot, false);
    }
    this.#serveWaiters();
    for (const entry of ended) visit(entry, error);
    return ended.length;
  }

  #take(entry: T): ResponseSlot | undefined {
    let slot: number;
    if (this.#fresh < this.capacity) {
      slot = this.#fresh;
      this.#fresh += 1;
    } else if (this.#freedCount > 0) {
      slot = this.#freed[this.#freedHead] as number;
      this.#freedHead = (this.#freedHead + 1) % this.capacity;
      this.#freedCount -= 1;
      this.#generations[slot] = (this.#generations[slot] as number) + 1;
    } else {
      return undefined;
    }
    this.#states[slot] = STATE_IN_USE;
    this.#entries[slot] = entry;
    this.#size += 1;
    return { slot, generation: wireGeneration(this.origin, this.#generations[slot] as number) };
  }

  #release(slot: number, serve = true): void {
    this.#entries[slot] = undefined;
    this.#size -= 1;
    if (this.#generations[slot] === this.#maxGeneration) {
      this.#states[slot] = STATE_RETIRED;
      this.#retired += 1;
    } else {
      this.#states[slot] = STATE_FREE;
      this.#freed[(this.#freedHead + this.#freedCount) % this.capacity] = slot;
      this.#freedCount += 1;
    }
    if (serve && this.#waiters.size > 0) this.#serveWaiters();
  }

  // The slot is taken here, in the caller's name, so that no synchronous allocate can come between.
  #serveWaiters(): void {
    for (const waiter of this.#waiters) {
      if (this.#retired === this.capacity) {
        this.#waiters.delete(waiter);
        this.#reject(waiter, this.#exhausted());
        continue;
      }
      const slot = this.#take(waiter.entry);
      if (slot === undefined) return;
      this.#waiters.delete(waiter);
      this.#forget(waiter);
      waiter.resolve(slot);
    }
  }

  #reject(waiter: Waiter<T>, error: VeloError): void {
    this.#forget(waiter);
    waiter.reject(error);
  }

  #forget(waiter: Waiter<T>): void {
    if (waiter.onAbort !== undefined) waiter.signal?.removeEventListener('abort', waiter.onAbort);
  }

  #exhausted(): VeloError {
    return new VeloError(
      'ERR_RESPONSE_SLOTS_EXHAUSTED',
      `all ${this.capacity} response slots are taken (${this.#size} in use, ${this.#retired} retired)`,
    );
  }
}

function aborted(signal: AbortSignal): VeloError {
  return new VeloError('ERR_ABORTED', 'aborted while waiting for a response slot', { cause: signal.reason });
}
