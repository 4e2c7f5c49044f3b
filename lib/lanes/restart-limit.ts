// How often a dead lane is replaced, and how soon: at once the first time, later and later when it dies again and again, and not any
// more when it did so too often. Pure: it must never read a clock or start anything.

/** Deaths are remembered so long. */
export const RESTART_WINDOW_MS = 60_000;
export const DEFAULT_MAX_LANE_RESTARTS = 4;
/** The second restart within the window waits so long, and each further one twice as long as the one before it. */
export const RESTART_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 5_000;

/** The lane stays dead. */
export const NO_RESTART = -1;

export class RestartLimit {
  private readonly deaths: number[] = [];
  private over = false;

  constructor(
    /** Restarts within the window; 0: a dead lane stays dead. */
    private readonly maxRestarts: number,
  ) {}

  /** The lane died at `now`. Returns how many milliseconds later it is replaced, or `NO_RESTART`, and then that for ever. */
  died(now: number): number {
    const { deaths } = this;
    while (deaths.length > 0 && now - deaths[0]! >= RESTART_WINDOW_MS) deaths.shift();
    this.over ||= deaths.length >= this.maxRestarts;
    if (this.over) return NO_RESTART;
    deaths.push(now);
    const again = deaths.length - 1;
    return again === 0 ? 0 : Math.min(RESTART_BACKOFF_MS * 2 ** (again - 1), MAX_BACKOFF_MS);
  }
}
