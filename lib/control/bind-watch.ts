// Binds that a sender was let in for and did not open: main's part of the watchdog, since no lane has a slot to watch; and the accept
// window, which is the longest that a bind may wait, watched or not. Claims, releases and ends belong to their owners.

import { DETECTION_MULTIPLIER } from '../mux/watchdog.js';
import { Alarm, type Alarms } from './alarms.js';

/** A window that ends so much of itself too late says nothing: this process was busy, or stopped, and its lanes with it. */
const LATE = 0.5;

/** What is watched. */
export interface Bind {
  /** True once its slot was opened. */
  isClaimed(): boolean;
  /** Its sender was silent for so many windows, and the slot is not open. */
  silent(): void;
  /** The accept window closed, and the slot is not open. */
  unclaimed(): void;
}

/** How long a bind may wait. */
export interface BindTerms {
  /** A heartbeat interval of the sender that was let in; undefined: nobody was, so silence says nothing. */
  readonly heartbeatMs: number | undefined;
  readonly acceptWindowMs: number;
}

/** The accept window of a bind, whoever may come. */
class AcceptAlarm extends Alarm {
  private extended = false;

  constructor(
    windowMs: number,
    private readonly bind: Bind,
    private readonly from: number,
  ) {
    super(windowMs);
  }

  ring(now: number): void {
    const claimed = this.bind.isClaimed();
    // A window that ended late has another one behind it, in which a lane may find the opening.
    if (!claimed && !this.extended && now - this.from > this.intervalMs * (1 + LATE)) {
      this.extended = true;
      return;
    }
    this.stop();
    if (!claimed) this.bind.unclaimed();
  }
}

/** The heartbeat windows of a bind whose sender is known. */
class SilenceAlarm extends Alarm {
  private misses = 0;

  constructor(
    windowMs: number,
    private readonly bind: Bind,
    private readonly accept: AcceptAlarm,
    /** End of its last window. */
    private last: number,
  ) {
    super(windowMs);
  }

  ring(now: number): void {
    if (this.bind.isClaimed()) {
      this.stop();
      this.accept.stop();
    } else if (this.isOver(now)) {
      this.stop();
      this.bind.silent();
    }
  }

  /** True when nobody came for so long. A last window that ended late has one more behind it, in which a lane may find the opening. */
  private isOver(now: number): boolean {
    const late = now - this.last > this.intervalMs * (1 + LATE);
    this.last = now;
    this.misses += 1;
    return this.misses > DETECTION_MULTIPLIER || (this.misses === DETECTION_MULTIPLIER && !late);
  }
}

/** One bind, watched from now on until it is claimed, expires, or `stop`. */
export class BindWatch {
  private readonly silence: SilenceAlarm | undefined;
  private readonly accept: AcceptAlarm;

  constructor(alarms: Alarms, bind: Bind, terms: BindTerms, now: number) {
    const { heartbeatMs, acceptWindowMs } = terms;
    this.accept = new AcceptAlarm(acceptWindowMs, bind, now);
    alarms.set(this.accept);
    if (heartbeatMs === undefined) return;
    this.silence = new SilenceAlarm(heartbeatMs, bind, this.accept, now);
    alarms.set(this.silence);
  }

  stop(): void {
    this.silence?.stop();
    this.accept.stop();
  }
}
