// Finds lanes that do nothing any more: each moves a word when it comes round, and this looks whether the words move. Time counts only
// while the watcher itself comes on time: a process that was stopped, a machine that slept and a main thread that computes say nothing
// about a lane. Pure; it must never read a clock or end a thread.

/** Looks per bound: a lane is found out at most this part of the bound too late. */
const LOOKS = 8;
/** A look that comes later than this many intervals after the one before it was held up. */
const LATE = 2;

export class SilenceWatch {
  /** How often `look` wants to be called, and lanes should move their words, in milliseconds. */
  readonly intervalMs: number;
  private readonly running: boolean[] = [];
  private readonly seen: number[] = [];
  private readonly silentMs: number[] = [];
  private lookedAt: number;

  constructor(
    private readonly boundMs: number,
    lanes: number,
    now: number,
  ) {
    this.intervalMs = lookInterval(boundMs);
    this.lookedAt = now;
    for (let lane = 0; lane < lanes; lane++) this.started(lane);
  }

  /** A lane runs under that number: whatever was known of the one before it is forgotten. */
  started(lane: number): void {
    this.running[lane] = true;
    this.seen[lane] = Number.NaN;
    this.silentMs[lane] = 0;
  }

  /** No lane runs under that number, until `started`. */
  ended(lane: number): void {
    this.running[lane] = false;
  }

  /** Calls `silent` for each lane that has not moved its word for the bound; once, and again only after another bound. */
  look(now: number, beats: (lane: number) => number, silent: (lane: number) => void): void {
    const elapsed = now - this.lookedAt;
    this.lookedAt = now;
    const late = elapsed > LATE * this.intervalMs;
    for (let lane = 0; lane < this.seen.length; lane++) {
      if (!this.running[lane]) continue;
      const beat = beats(lane);
      if (late || beat !== this.seen[lane]) {
        this.seen[lane] = beat;
        this.silentMs[lane] = 0;
        continue;
      }
      this.silentMs[lane]! += elapsed;
      if (this.silentMs[lane]! < this.boundMs) continue;
      this.silentMs[lane] = 0;
      silent(lane);
    }
  }
}

/** How often a lane comes round at the least, and is looked at, under a bound on its silence. */
export function lookInterval(boundMs: number): number {
  return Math.max(1, Math.floor(boundMs / LOOKS));
}
