// Time as this process had it: while it is stopped, or its thread gets no turn, hardly any passes. Owns the streams that are watched for
// progress, and the list of times it stood still, with any of its threads: a lane that waits for a processor cannot beat.

import { readdirSync, readFileSync } from 'node:fs';
import type { Standstill } from './protocol.js';

const TICK_MS = 50;
/** Looks at the threads, in ticks. */
const THREADS_EVERY = 5;
const THREADS = '/proc/self/task';
const NS_PER_MS = 1e6;

/** Something that must make progress. */
export interface Watched {
  /** Called once, when there was none for the bound. */
  readonly hung: () => void;
}

export class AwakeClock {
  private readonly last = new Map<Watched, number>();
  private readonly standstills: Standstill[] = [];
  private awakeMs = 0;
  private before = Date.now();
  private ticks = 0;
  /** What each thread has waited for a processor, in milliseconds. */
  private waited = new Map<string, number>();
  private readonly timer: NodeJS.Timeout;

  constructor(
    private readonly hangMs: number,
    private readonly lateMs: number,
  ) {
    this.timer = setInterval(() => this.tick(), TICK_MS);
  }

  get watched(): number {
    return this.last.size;
  }

  /** Watches from now on; progress again. */
  progress(watched: Watched): void {
    this.last.set(watched, this.awakeMs);
  }

  release(watched: Watched): void {
    this.last.delete(watched);
  }

  /** Those since the last call. */
  takeStandstills(): Standstill[] {
    return this.standstills.splice(0);
  }

  stop(): void {
    clearInterval(this.timer);
  }

  private tick(): void {
    const now = Date.now();
    const passed = now - this.before;
    if (passed > TICK_MS + this.lateMs) this.standstills.push({ from: this.before, to: now });
    this.before = now;
    if (this.ticks++ % THREADS_EVERY === 0) this.lookAtThreads(now);
    this.awakeMs += Math.min(passed, 2 * TICK_MS);
    for (const [watched, at] of this.last) {
      if (this.awakeMs - at < this.hangMs) continue;
      this.last.delete(watched);
      watched.hung();
    }
  }

  /** The kernel counts what each thread waits for a processor. */
  private lookAtThreads(now: number): void {
    const waited = waitingTimes();
    for (const [thread, ms] of waited) {
      const more = ms - (this.waited.get(thread) ?? ms);
      if (more > this.lateMs) this.standstills.push({ from: now - more - THREADS_EVERY * TICK_MS, to: now });
    }
    this.waited = waited;
  }
}

function waitingTimes(): Map<string, number> {
  const times = new Map<string, number>();
  try {
    for (const thread of readdirSync(THREADS)) {
      const [, waitedNs] = readFileSync(`${THREADS}/${thread}/schedstat`, 'utf8').split(' ');
      times.set(thread, Number(waitedNs) / NS_PER_MS);
    }
  } catch {
    // A thread has just ended, or this kernel does not count.
  }
  return times;
}
