// When cancels are said again that went down with a connection, or with a dial that failed. Owns the pace, which a peer that takes and
// drops one connection after another must not set, and when it is enough. It must never know what is said.

import { RECENT_CANCEL_MS } from '../mux/recent-cancels.js';

/** Two repetitions are at least so far apart. */
export const REPEAT_INTERVAL_MS = 1_000;
/** Repetitions on end, each lost within `RECENT_CANCEL_MS`, before the peer is left alone. */
export const MAX_REPETITIONS = 10;

/** What is needed of the peer link, for one of its connections. */
export interface Repeating {
  now(): number;
  /** Something was said of late that may be lost. */
  any(): boolean;
  /** Says it again. */
  again(): void;
}

export class CancelRepeats {
  private last = Number.NEGATIVE_INFINITY;
  private onEnd = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly link: Repeating) {}

  /** The connection is gone, or did not come about. */
  lost(): void {
    const { link } = this;
    if (this.timer !== undefined || !link.any()) return;
    const since = link.now() - this.last;
    if (since > RECENT_CANCEL_MS) this.onEnd = 0;
    if (this.onEnd === MAX_REPETITIONS) return;
    this.onEnd += 1;
    if (since >= REPEAT_INTERVAL_MS) {
      this.repeat();
      return;
    }
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.repeat();
    }, REPEAT_INTERVAL_MS - since);
    this.timer.unref();
  }

  /** Nothing is repeated from now on. */
  stop(): void {
    clearTimeout(this.timer);
    this.onEnd = MAX_REPETITIONS;
    this.last = Number.POSITIVE_INFINITY;
  }

  private repeat(): void {
    this.last = this.link.now();
    this.link.again();
  }
}
