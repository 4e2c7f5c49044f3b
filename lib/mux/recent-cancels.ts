// The cancels that were said to a peer of late, as lifecycle replies or as messages. A connection that is lost takes with it what was
// written last, and a cancel is said once: a sender without credit would wait for ever. Saying it again is harmless, because it names the
// session. Owns which are remembered, and for how long; it must never write one.

/** Cancels that are remembered; the oldest go first. */
export const MAX_RECENT_CANCELS = 1_024;
/** What was written longer ago has arrived, or its reader has stood still for longer than its own streams outlive. In milliseconds. */
export const RECENT_CANCEL_MS = 10_000;

export class RecentCancels<T> {
  private readonly said: { readonly cancel: T; readonly at: number }[] = [];
  private next = 0;

  /** This cancel goes to the peer. It does not change any more. */
  note(cancel: T, now: number): void {
    this.said[this.next] = { cancel, at: now };
    this.next = (this.next + 1) % MAX_RECENT_CANCELS;
  }

  /** One was written of late, so it may have to be said again. */
  any(now: number): boolean {
    const last = this.said[(this.next + MAX_RECENT_CANCELS - 1) % MAX_RECENT_CANCELS];
    return last !== undefined && now - last.at <= RECENT_CANCEL_MS;
  }

  /** Those that may not have arrived, in the order in which they were said. They are forgotten. */
  take(now: number): T[] {
    const { next } = this;
    const inOrder = [...this.said.slice(next), ...this.said.slice(0, next)];
    this.said.length = 0;
    this.next = 0;
    return inOrder.filter(({ at }) => now - at <= RECENT_CANCEL_MS).map(({ cancel }) => cancel);
  }
}
