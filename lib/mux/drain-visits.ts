// When a doorbell may visit a (peer, lane) (streaming specification §7.14): at most once per floor, one deferred visit
// each. Owns the schedule; it must never visit anything, and it has no clock and no timer of its own.

/** What to do about a wake. */
export type WakeAnswer =
  /** Visit now; the visit's start is noted. */
  | 'visit'
  /** Too early: one visit is queued for later. Leave the wake flag up. */
  | 'deferred'
  /** One is queued already. */
  | 'queued';

const NOT_QUEUED = Number.POSITIVE_INFINITY;

interface Entry {
  /** Start of the last visit. */
  last: number;
  /** Start of the queued visit. */
  due: number;
}

/**
 * Visits by key. The floor runs from visit start to visit start; a periodic walk is no visit. A key is forgotten when
 * its last visit is older than the floor and nothing is queued, which changes no answer.
 */
export class DrainVisits<K> {
  private readonly floorMs: number;
  private readonly entries = new Map<K, Entry>();
  private queuedCount = 0;

  /** @param floorMs least time between two visits of one key; 0: none. */
  constructor(floorMs: number) {
    this.floorMs = floorMs;
  }

  /** Visits that wait for their time. */
  get queued(): number {
    return this.queuedCount;
  }

  /** Keys remembered. */
  get size(): number {
    return this.entries.size;
  }

  /** A consumer of `key` drained something and raised the wake flag. */
  wake(key: K, now: number): WakeAnswer {
    const entry = this.entries.get(key);
    if (entry === undefined) {
      if (this.floorMs > 0) this.entries.set(key, { last: now, due: NOT_QUEUED });
      return 'visit';
    }
    if (entry.due !== NOT_QUEUED) return 'queued';
    if (now - entry.last < this.floorMs) {
      entry.due = entry.last + this.floorMs;
      this.queuedCount += 1;
      return 'deferred';
    }
    entry.last = now;
    return 'visit';
  }

  /** A key whose queued visit is due; its start is noted. Call until it returns undefined. */
  takeDue(now: number): K | undefined {
    if (this.queuedCount === 0) return undefined;
    for (const [key, entry] of this.entries) {
      if (entry.due > now) continue;
      entry.due = NOT_QUEUED;
      entry.last = now;
      this.queuedCount -= 1;
      return key;
    }
    return undefined;
  }

  /** When the next queued visit is due; Infinity: none. */
  deadline(): number {
    if (this.queuedCount === 0) return NOT_QUEUED;
    let earliest = NOT_QUEUED;
    for (const entry of this.entries.values()) earliest = Math.min(earliest, entry.due);
    return earliest;
  }

  /** Forgets keys that have nothing queued and whose floor is over. For the periodic walk. */
  prune(now: number): void {
    for (const [key, entry] of this.entries) {
      if (entry.due === NOT_QUEUED && now - entry.last >= this.floorMs) this.entries.delete(key);
    }
  }

  /** The peer is gone: nothing of it is visited any more. */
  forget(key: K): void {
    const entry = this.entries.get(key);
    if (entry === undefined) return;
    if (entry.due !== NOT_QUEUED) this.queuedCount -= 1;
    this.entries.delete(key);
  }
}
