// The deadlines of a node's anchors: how long one waits for a sender, how long a bind waits to be claimed. Owns one queue and one
// timer for all of them, so that thousands of anchors cost no timer each. It must never keep the process alive, nor know what an
// alarm is about.

import { LaneTimer } from '../lanes/lane-timer.js';
import { Tick, TickQueue } from '../mux/tick-queue.js';

/** Something that is due after `intervalMs`, and again after each further one, until it is stopped. */
export abstract class Alarm extends Tick {
  /** `intervalMs` have passed, or more. */
  abstract ring(now: number): void;
}

export class Alarms {
  private readonly queue = new TickQueue<Alarm>();
  private readonly timer: LaneTimer;

  /** `now`: milliseconds of the clock that timers run by. */
  constructor(private readonly now: () => number) {
    this.timer = new LaneTimer(() => this.run(), { unref: true });
  }

  /** Alarms that were set and not stopped. */
  get size(): number {
    return this.queue.size;
  }

  /** Due `intervalMs` from now on. An alarm that stands already starts over. */
  set(alarm: Alarm): void {
    alarm.stop();
    this.queue.add(alarm, this.now());
    this.timer.at(this.queue.deadline());
  }

  /** No alarm rings any more, and no timer is left. */
  stop(): void {
    this.timer.stop();
  }

  /** Rings what is due. The timer calls it. */
  run(): void {
    const now = this.now();
    for (let alarm = this.queue.takeDue(now); alarm !== undefined; alarm = this.queue.takeDue(now)) alarm.ring(now);
    if (this.queue.size > 0) this.timer.at(this.queue.deadline());
  }
}
