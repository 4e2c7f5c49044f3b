// How long an anchor waits for a sender: runs from the anchor's birth and from each detach, stands still while a sender is attached.
// Owns that alarm and nothing of the anchor.

import { VeloError } from '../errors.js';
import { Alarm, type Alarms } from './alarms.js';

/** What timers take. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** @throws VeloError `ERR_INVALID_ARGUMENT` for what is neither undefined nor a time. */
export function unattachedTimeout(given: number | undefined): number | undefined {
  if (given === undefined || (Number.isInteger(given) && given >= 1 && given <= MAX_TIMEOUT_MS)) return given;
  const expected = `undefined, or an integer from 1 to ${MAX_TIMEOUT_MS}`;
  throw new VeloError('ERR_INVALID_ARGUMENT', `unattachedTimeoutMs = ${String(given)}: expected ${expected}`);
}

class UnattachedAlarm extends Alarm {
  constructor(
    timeoutMs: number,
    private readonly expire: () => void,
  ) {
    super(timeoutMs);
  }

  ring(): void {
    this.stop();
    this.expire();
  }
}

export class UnattachedTimer {
  private alarm: UnattachedAlarm | undefined;
  private running = false;

  constructor(
    private readonly alarms: Alarms,
    /** Nobody came. */
    private readonly expire: () => void,
    /** Undefined: the anchor waits for ever. */
    private timeoutMs: number | undefined,
  ) {}

  /** The anchor has no sender from now on. */
  start(): void {
    this.running = true;
    if (this.timeoutMs === undefined) return;
    this.alarm ??= new UnattachedAlarm(this.timeoutMs, this.expire);
    this.alarms.set(this.alarm);
  }

  /** A sender came, or will; or the anchor is over. */
  pause(): void {
    this.running = false;
    this.alarm?.stop();
  }

  /** Another time, from now on if nobody is attached, else from the next detach. */
  change(timeoutMs: number | undefined): void {
    this.alarm?.stop();
    this.alarm = undefined;
    this.timeoutMs = timeoutMs;
    if (this.running) this.start();
  }
}
