// The virtual clock of a run and what is to happen on it: one event at a time, each belonging to one process, in an order that
// the seed decides. It must never look at real time, and it knows neither sockets nor the code under test.
//
// A process that is frozen misses its events; when it goes on it gets them all at once, in the order of a real event loop: timers
// first, then sockets, then immediates.

import type { Random } from './random.js';

/** What an event is, in the order in which one process gets those of one instant. */
export const RANK_TIMER = 0;
export const RANK_NET = 1;
export const RANK_IMMEDIATE = 2;
export const RANK_APP = 3;

export type Rank = typeof RANK_TIMER | typeof RANK_NET | typeof RANK_IMMEDIATE | typeof RANK_APP;

/** Anything that a process holds open in the world; closed with it. */
export interface Holding {
  readonly what: string;
  /** The process died: whatever it is, it never calls back. */
  die(): void;
}

/** One simulated process. Whatever the code under test makes while one of its events runs belongs to it. */
export class Process {
  /** Events wait until then. */
  frozenUntil = 0;
  dead = false;
  lastImmediate = 0;
  readonly holdings = new Set<Holding>();

  constructor(
    readonly number: number,
    readonly host: string,
    /** Where its timers fall between two milliseconds. */
    readonly phase: number,
  ) {}
}

export interface ScheduledEvent {
  at: number;
  readonly rank: Rank;
  /** When it was to happen, before its process was frozen. */
  readonly was: number;
  readonly order: number;
  readonly owner: Process | undefined;
  readonly label: string;
  readonly run: () => void;
  cancelled: boolean;
}

export class Schedule {
  now = 0;
  /** The process whose event runs. */
  current: Process | undefined;
  private readonly heap: ScheduledEvent[] = [];
  private orders = 0;

  constructor(readonly random: Random) {}

  get size(): number {
    return this.heap.length;
  }

  at(time: number, rank: Rank, owner: Process | undefined, label: string, run: () => void): ScheduledEvent {
    const at = Math.max(time, this.now);
    const event = { at, rank, was: at, order: this.orders++, owner, label, run, cancelled: false };
    this.push(event);
    return event;
  }

  after(ms: number, rank: Rank, owner: Process | undefined, label: string, run: () => void): ScheduledEvent {
    return this.at(this.now + ms, rank, owner, label, run);
  }

  /** The next event, with the clock moved to it; undefined: nothing happens up to `until`. */
  next(until: number): ScheduledEvent | undefined {
    for (;;) {
      const event = this.heap[0];
      if (event === undefined || event.at > until) return undefined;
      this.pop();
      const { owner } = event;
      if (event.cancelled || owner?.dead) continue;
      if (owner !== undefined && owner.frozenUntil > event.at) {
        event.at = owner.frozenUntil;
        this.push(event);
        continue;
      }
      this.now = Math.max(this.now, event.at);
      return event;
    }
  }

  private before(a: ScheduledEvent, b: ScheduledEvent): boolean {
    if (a.at !== b.at) return a.at < b.at;
    if (a.rank !== b.rank) return a.rank < b.rank;
    if (a.was !== b.was) return a.was < b.was;
    return a.order < b.order;
  }

  private push(event: ScheduledEvent): void {
    const { heap } = this;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (!this.before(event, heap[up]!)) break;
      heap[at] = heap[up]!;
      at = up;
    }
    heap[at] = event;
  }

  private pop(): void {
    const { heap } = this;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= heap.length) break;
      if (down + 1 < heap.length && this.before(heap[down + 1]!, heap[down]!)) down += 1;
      if (!this.before(heap[down]!, last)) break;
      heap[at] = heap[down]!;
      at = down;
    }
    heap[at] = last;
  }
}
