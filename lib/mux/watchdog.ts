// Ends slots whose senders have gone silent (streaming specification §7.17). Owns the windows and the rule what silence is; it must
// never act on a last miss before its lane has looked at the sockets and rings once more, and it has no clock and no timer.

import { MAX_U32 } from '../wire/bytes.js';
import type { IngressSlot } from './ingress-slot.js';
import type { MuxMetrics } from './mux-metrics.js';
import { Tick, TickQueue } from './tick-queue.js';

/** Windows in a row without a sign of life that end a slot. */
export const DETECTION_MULTIPLIER = 3;

/** Who ends the slot: its table. */
export interface SlotReaper {
  giveUp(slot: IngressSlot): void;
}

/** The windows of one slot, until `stop`. */
export class SlotWatch extends Tick {
  /** Dead windows in a row. */
  misses = 0;
  /** What the slot expected next when it was looked at last. */
  seen: number;

  constructor(
    windowMs: number,
    readonly table: SlotReaper,
    readonly slot: IngressSlot,
  ) {
    super(windowMs);
    this.seen = slot.next;
  }

  /**
   * True when the window was alive: a record of any kind was delivered (one that is held was not), or the sender has no credit left
   * to send one, and no gap of its own to blame for that.
   */
  lives(): boolean {
    const { slot } = this;
    // After 2^32−1 records the number stands still, and silence cannot be told from traffic.
    const arrived = slot.next !== this.seen || slot.next === MAX_U32;
    const parked = slot.outstanding + slot.ungranted >= slot.limit && slot.heldRecords === 0;
    if (!arrived && !parked) return false;
    this.seen = slot.next;
    this.misses = 0;
    return true;
  }
}

/** One entry per slot that is not over. */
export class Watchdog {
  private readonly windows = new TickQueue<SlotWatch>();
  private suspects: SlotWatch[] = [];

  constructor(
    private readonly metrics: MuxMetrics,
    /** A slot ends because its sender is silent. For observers. */
    private readonly onFiring: (slot: IngressSlot) => void = () => {},
  ) {}

  get size(): number {
    return this.windows.size;
  }

  /** Windows count from `now` on. */
  watch(table: SlotReaper, slot: IngressSlot, windowMs: number, now: number): SlotWatch {
    const watch = new SlotWatch(windowMs, table, slot);
    this.windows.add(watch, now);
    return watch;
  }

  deadline(): number {
    return this.windows.deadline();
  }

  /** Judges the windows that are over. True when slots had their last: `decide` must follow, after one more look at everything. */
  run(now: number): boolean {
    for (let watch = this.windows.takeDue(now); watch !== undefined; watch = this.windows.takeDue(now)) {
      if (watch.lives()) continue;
      watch.misses += 1;
      if (watch.misses === DETECTION_MULTIPLIER) this.suspects.push(watch);
    }
    return this.suspects.length > 0;
  }

  /** Ends the suspects that are still silent. */
  decide(): void {
    const { suspects } = this;
    this.suspects = [];
    for (const watch of suspects) {
      if (!watch.slot.live || watch.lives()) continue;
      // A stream that is at its end is only tidied away.
      if (!watch.slot.terminalDelivered) {
        this.metrics.watchdogFirings += 1;
        this.onFiring(watch.slot);
      }
      watch.table.giveUp(watch.slot);
    }
  }
}
