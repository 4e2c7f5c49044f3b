// Faults, one after the other, from the schedule of the seed. Each is known to the verdict from before it strikes until it is over. It
// must leave every place filled and running.

import { setTimeout as pause } from 'node:timers/promises';
import type { Fleet } from './fleet.js';
import { faultsOf, type PlannedFault } from './plan.js';
import type { Verdict } from './verdict.js';

/** Heartbeat intervals that a process stands still: within what a watchdog allows, and far beyond. */
const SHORT_STOP_INTERVALS = 1.5;
const LONG_STOP_INTERVALS = 7;
/** How long a cut waits for its frame. */
const CUT_PATIENCE_MS = 1_000;

export class Faults {
  readonly counts = { kills: 0, stops: 0, cuts: 0 };
  private readonly schedule: Generator<PlannedFault, never>;

  constructor(
    private readonly fleet: Fleet,
    private readonly verdict: Verdict,
    seed: number,
    private readonly heartbeatMs: number,
  ) {
    this.schedule = faultsOf(seed, fleet.places);
  }

  /** Strikes until the time is over. */
  async until(deadline: number): Promise<void> {
    for (;;) {
      const fault = this.schedule.next().value;
      if (Date.now() + fault.afterMs >= deadline) return;
      await pause(fault.afterMs);
      await this.strike(fault);
    }
  }

  async strike(fault: PlannedFault): Promise<void> {
    const { fleet } = this;
    const member = fleet.members[fault.place]!;
    const excuse = this.verdict.strike(fault.kind, [member.name]);
    switch (fault.kind) {
      case 'kill':
        this.counts.kills += 1;
        await fleet.kill(fault.place);
        await fleet.fill(fault.place);
        break;
      case 'stopShort':
      case 'stopLong':
        this.counts.stops += 1;
        member.child.kill('SIGSTOP');
        await pause(this.heartbeatMs * (fault.kind === 'stopShort' ? SHORT_STOP_INTERVALS : LONG_STOP_INTERVALS));
        member.child.kill('SIGCONT');
        break;
      case 'cutBefore':
      case 'cutWithin': {
        const within = fault.kind === 'cutBefore' ? 0 : fault.within;
        const { frames } = fault;
        if (await fleet.proxy.cut(member.real.instanceId, frames, { frames, within }, CUT_PATIENCE_MS))
          this.counts.cuts += 1;
        break;
      }
      default:
        fault.kind satisfies never;
    }
    excuse.to = Date.now();
  }
}
