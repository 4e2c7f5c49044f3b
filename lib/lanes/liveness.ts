// The heartbeats that a lane makes for its senders, and the watch it keeps on the senders of peers. Owns the look into the sockets
// before anybody is given up; what is due, and what counts as silence, are the machines' own.

import { Heartbeats } from '../mux/heartbeats.js';
import type { IngressSlot } from '../mux/ingress-slot.js';
import type { MuxMetrics } from '../mux/mux-metrics.js';
import { type SlotWatch, Watchdog } from '../mux/watchdog.js';
import type { EgressStream } from './egress-stream.js';
import { IngressStream } from './ingress-stream.js';

/** What is needed of the lane. */
export interface LivingLane {
  now(): number;
  guard(turn: () => void): void;
  beforeFrames(): void;
  endTurn(): void;
}

export class Liveness {
  private readonly heartbeats = new Heartbeats();
  private readonly watchdog: Watchdog;
  private lookQueued = false;

  constructor(
    private readonly lane: LivingLane,
    metrics: MuxMetrics,
  ) {
    this.watchdog = new Watchdog(metrics, ({ receiver }) => {
      if (receiver instanceof IngressStream) receiver.silent();
    });
  }

  deadline(): number {
    return Math.min(this.heartbeats.deadline(), this.watchdog.deadline());
  }

  run(now: number): void {
    this.heartbeats.run(now);
    if (this.watchdog.run(now)) this.lookBeforeFiring();
  }

  /** A sender opened its slot: it beats until that is over. */
  beat(stream: EgressStream, intervalMs: number): void {
    stream.beat = this.heartbeats.start(stream, intervalMs, this.lane.now());
  }

  /** A slot of a peer opened: its windows count from now on. */
  readonly watch = ({ table, heartbeatMs }: IngressStream, slot: IngressSlot): SlotWatch =>
    this.watchdog.watch(table, slot, heartbeatMs, this.lane.now());

  /**
   * A sender had its last window. Whatever lies in a socket speaks for it: this thread may have been stopped, or busy. A check phase
   * comes behind a poll of all sockets, and the second one behind the first read of connections that the first poll accepted.
   */
  private lookBeforeFiring(): void {
    if (this.lookQueued) return;
    this.lookQueued = true;
    const { lane } = this;
    const decide = () => {
      this.lookQueued = false;
      lane.guard(() => {
        lane.beforeFrames();
        this.watchdog.decide();
        lane.endTurn();
      });
    };
    setImmediate(() => setImmediate(decide));
  }
}
