// The care for the batchers of a lane: while one has slots, its peer is asked now and then whether it is still there; one that had
// nothing to do for long is let go. It must never write to a peer, and costs nothing per record.

import type { MuxConfig } from '../mux/mux-config.js';
import type { MuxMetrics } from '../mux/mux-metrics.js';
import type { PeerBatcher } from '../mux/peer-batcher.js';
import { Tick, TickQueue } from '../mux/tick-queue.js';
import type { Endpoint } from './endpoint.js';

/** How often the peer of a batcher with live slots is asked. */
export const HEALTH_PERIOD_MS = 5_000;

/** What is needed of the peer. */
export interface CaredPeer {
  readonly label: string;
  isConnected(lane: number): boolean;
  endpoint(lane: number): Endpoint;
  ingressSlots(lane: number): number;
  forgetBatcher(batcher: PeerBatcher): void;
  /** Lets go of everything that lies staged for the peer on that mux lane. */
  dropStaged(lane: number): void;
}

/** What is needed of the lane. */
export interface CaringLane {
  readonly config: MuxConfig;
  readonly metrics: MuxMetrics;
  now(): number;
  guard(turn: () => void): void;
  endTurn(): void;
}

/** Asks whether anybody is there. Never rejects. */
export type Probe = (to: Endpoint) => Promise<boolean>;

class HealthCheck extends Tick {
  asking = false;

  constructor(
    readonly peer: CaredPeer,
    readonly batcher: PeerBatcher,
  ) {
    super(HEALTH_PERIOD_MS);
  }
}

/** What the death of the peer would be the end of. */
function isAtStake(batcher: PeerBatcher): boolean {
  return batcher.liveSlots > 0 || batcher.hasUnfetched;
}

export class BatcherCare {
  /** Every batcher of the lane that was not let go. */
  readonly batchers: PeerBatcher[] = [];
  private readonly peers = new Map<PeerBatcher, CaredPeer>();
  private readonly checks = new TickQueue<HealthCheck>();
  private readonly checked = new Set<PeerBatcher>();
  private readonly ticksToLive: number;

  constructor(
    private readonly lane: CaringLane,
    private readonly probe: Probe,
  ) {
    const { batcherIdleTtlMs, creditSweepIntervalMs } = lane.config;
    this.ticksToLive = Math.max(1, Math.floor(batcherIdleTtlMs / creditSweepIntervalMs));
  }

  made(batcher: PeerBatcher, peer: CaredPeer): void {
    this.batchers.push(batcher);
    this.peers.set(batcher, peer);
  }

  /** The batcher has a live slot: from now on its peer is asked, until it has none, and has fetched what was staged for it. */
  opened(batcher: PeerBatcher): void {
    if (this.checked.has(batcher)) return;
    this.checked.add(batcher);
    this.checks.add(new HealthCheck(this.peers.get(batcher)!, batcher), this.lane.now());
  }

  /** When `run` must be called; Infinity while nothing is at stake. */
  deadline(): number {
    return this.checks.deadline();
  }

  run(now: number): void {
    for (let check = this.checks.takeDue(now); check !== undefined; check = this.checks.takeDue(now)) {
      if (!isAtStake(check.batcher)) {
        check.stop();
        this.checked.delete(check.batcher);
        continue;
      }
      this.lane.metrics.wakesLinger += 1;
      if (!check.asking) this.ask(check);
    }
  }

  /** A connection that stands is proof enough. Without one, somebody must accept a new one; whether there ever was one does not matter. */
  private ask(check: HealthCheck): void {
    const { peer, batcher } = check;
    if (peer.isConnected(batcher.lane)) return;
    check.asking = true;
    void this.probe(peer.endpoint(batcher.lane)).then((alive) => {
      check.asking = false;
      if (alive || !isAtStake(batcher) || peer.isConnected(batcher.lane)) return;
      this.lane.guard(() => {
        if (batcher.liveSlots > 0) batcher.epochDeath(`${peer.label} does not answer`);
        // Nobody comes for it: a peer that starts again is another one.
        peer.dropStaged(batcher.lane);
        this.lane.endTurn();
      });
    });
  }

  /**
   * Once per sweep: lets go of batchers that had nothing to do for `batcherIdleTtlMs` and whose peer has no slot here either. Nobody
   * finds such a batcher any more when it closes, so what is posted or opened from then on goes to a new one. Walks nothing when
   * there are none, and allocates nothing.
   */
  evictIdle(): void {
    const { batchers } = this;
    for (let i = batchers.length - 1; i >= 0; i--) {
      const batcher = batchers[i]!;
      if (batcher.idleTick() < this.ticksToLive) continue;
      const peer = this.peers.get(batcher)!;
      if (peer.ingressSlots(batcher.lane) > 0 || batcher.mayRepeatCancels) continue;
      batchers[i] = batchers[batchers.length - 1]!;
      batchers.pop();
      this.peers.delete(batcher);
      peer.forgetBatcher(batcher);
      batcher.shutdown();
    }
  }
}
