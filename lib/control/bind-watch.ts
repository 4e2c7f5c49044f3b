// Binds that a sender was let in for and did not open: main's part of the watchdog, since no lane has a slot to watch. Owns their
// windows and the one timer for all of them. Claims, releases and ends belong to their owners.

import { LaneTimer } from '../lanes/lane-timer.js';
import { Tick, TickQueue } from '../mux/tick-queue.js';
import { DETECTION_MULTIPLIER } from '../mux/watchdog.js';

/** A window that ends so much of itself too late says nothing: this process was busy, or stopped, and its lanes with it. */
const LATE = 0.5;

/** What is watched. */
export interface Bind {
  /** True once its slot was opened. */
  isClaimed(): boolean;
  /** Nobody came. */
  expire(): void;
}

class BindTick extends Tick {
  misses = 0;

  constructor(
    windowMs: number,
    readonly bind: Bind,
    /** End of its last window. */
    public last: number,
  ) {
    super(windowMs);
  }

  /** True when nobody came for so long. A last window that ended late has one more behind it, in which a lane may find the opening. */
  isOver(now: number): boolean {
    const late = now - this.last > this.intervalMs * (1 + LATE);
    this.last = now;
    this.misses += 1;
    return this.misses > DETECTION_MULTIPLIER || (this.misses === DETECTION_MULTIPLIER && !late);
  }
}

export class BindWatch {
  private readonly windows = new TickQueue<BindTick>();
  private readonly timer: LaneTimer;

  constructor(private readonly now: () => number) {
    this.timer = new LaneTimer(() => this.run(), { unref: true });
  }

  /** Binds that wait to be opened; one that was is forgotten with its window. */
  get size(): number {
    return this.windows.size;
  }

  /** Windows count from now on, until the bind is claimed or expires, or the tick that is returned is stopped. */
  watch(bind: Bind, windowMs: number): Tick {
    const now = this.now();
    const tick = new BindTick(windowMs, bind, now);
    this.windows.add(tick, now);
    this.timer.at(this.windows.deadline());
    return tick;
  }

  stop(): void {
    this.timer.stop();
  }

  /** Judges the windows that are over. The timer calls it. */
  run(): void {
    const now = this.now();
    for (let tick = this.windows.takeDue(now); tick !== undefined; tick = this.windows.takeDue(now)) {
      if (tick.bind.isClaimed()) tick.stop();
      else if (tick.isOver(now)) {
        tick.stop();
        tick.bind.expire();
      }
    }
    if (this.windows.size > 0) this.timer.at(this.windows.deadline());
  }
}
