// Time as this process had it: while it is stopped, or its thread gets no turn, hardly any passes. Owns the streams that are watched for
// progress, and the list of times it stood still.

import type { Standstill } from './protocol.js';

const TICK_MS = 50;

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
    this.awakeMs += Math.min(passed, 2 * TICK_MS);
    for (const [watched, at] of this.last) {
      if (this.awakeMs - at < this.hangMs) continue;
      this.last.delete(watched);
      watched.hung();
    }
  }
}
