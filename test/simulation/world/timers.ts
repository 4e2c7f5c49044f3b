// Timers and immediates on the virtual clock, with the ways of Node's: whole milliseconds counted from the start of the turn, so
// that a timer may fire up to a millisecond before its time; equal ones in the order they were set; immediates in order.

import {
  type Holding,
  type Process,
  RANK_IMMEDIATE,
  RANK_TIMER,
  type Schedule,
  type ScheduledEvent,
} from './schedule.js';

const IMMEDIATE_MS_MAX = 0.05;
const TIMER_MS_MAX = 2 ** 31 - 1;

type Callback = (...args: unknown[]) => void;

/** What the simulated `setTimeout`, `setInterval` and `setImmediate` return. */
export class SimTimer implements Holding {
  readonly what: string;
  private event: ScheduledEvent | undefined;
  private referenced = true;

  constructor(
    private readonly schedule: Schedule,
    readonly owner: Process,
    kind: string,
    private readonly run: () => void,
  ) {
    this.what = kind;
    owner.holdings.add(this);
  }

  arm(at: number, rank: typeof RANK_TIMER | typeof RANK_IMMEDIATE): void {
    this.event = this.schedule.at(at, rank, this.owner, this.what, () => {
      this.owner.holdings.delete(this);
      this.run();
    });
  }

  cancel(): void {
    if (this.event !== undefined) this.event.cancelled = true;
    this.owner.holdings.delete(this);
  }

  die(): void {
    this.cancel();
  }

  ref(): this {
    this.referenced = true;
    return this;
  }

  unref(): this {
    this.referenced = false;
    return this;
  }

  hasRef(): boolean {
    return this.referenced;
  }
}

export class SimTimers {
  constructor(
    private readonly schedule: Schedule,
    /** Something was asked for while no event of a process ran. */
    private readonly orphan: (what: string) => Process,
  ) {}

  private owner(what: string): Process {
    return this.schedule.current ?? this.orphan(what);
  }

  private due(owner: Process, ms: number | undefined): number {
    const whole = Math.trunc(Number(ms));
    const delay = whole >= 1 && whole <= TIMER_MS_MAX ? whole : 1;
    return Math.floor(this.schedule.now) + delay + owner.phase;
  }

  readonly setTimeout = (callback: Callback, ms?: number, ...args: unknown[]): SimTimer => {
    const owner = this.owner('setTimeout');
    const timer = new SimTimer(this.schedule, owner, 'timeout', () => callback(...args));
    timer.arm(this.due(owner, ms), RANK_TIMER);
    return timer;
  };

  readonly setInterval = (callback: Callback, ms?: number, ...args: unknown[]): SimTimer => {
    const owner = this.owner('setInterval');
    const timer = new SimTimer(this.schedule, owner, 'interval', () => {
      owner.holdings.add(timer);
      timer.arm(this.due(owner, ms), RANK_TIMER);
      callback(...args);
    });
    timer.arm(this.due(owner, ms), RANK_TIMER);
    return timer;
  };

  readonly setImmediate = (callback: Callback, ...args: unknown[]): SimTimer => {
    const owner = this.owner('setImmediate');
    const timer = new SimTimer(this.schedule, owner, 'immediate', () => callback(...args));
    const soon = this.schedule.now + this.schedule.random.within(0.001, IMMEDIATE_MS_MAX);
    owner.lastImmediate = Math.max(owner.lastImmediate, soon);
    timer.arm(owner.lastImmediate, RANK_IMMEDIATE);
    return timer;
  };

  readonly clear = (timer: unknown): void => {
    if (timer instanceof SimTimer) timer.cancel();
  };

  /** `setTimeout` of `node:timers/promises`. */
  readonly pause = (ms?: number, value?: unknown, options?: { signal?: AbortSignal }): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const signal = options?.signal;
      const give = () => {
        signal?.removeEventListener('abort', stop);
        resolve(value);
      };
      const timer = this.setTimeout(give, ms);
      const stop = () => {
        timer.cancel();
        reject(Object.assign(new Error('The operation was aborted'), { name: 'AbortError', code: 'ABORT_ERR' }));
      };
      if (signal?.aborted) stop();
      else signal?.addEventListener('abort', stop, { once: true });
    });
}
