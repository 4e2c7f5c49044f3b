// The rendezvous of a lane: what its node owns and others pull, what others own and it pulls, and the calls for that. It is the one
// object of all this that lane and router know; it must never hold a rule of its own.

import { VeloError } from '../errors.js';
import type { DataKind } from '../messenger/data-store.js';
import type { ReplyPlan } from '../messenger/dispatch-plan.js';
import type { InboundAnswer, InboundRefusal } from '../messenger/inbound-message.js';
import type { RendezvousMetrics } from '../metrics/rendezvous-metrics.js';
import type { RequestEnvelope } from '../wire/envelope.js';
import type { ClientLink } from './client-link.js';
import { DataOwner } from './data-owner.js';
import type { DrainGate } from './drain-gate.js';
import type { RendezvousLimits } from './host.js';
import { LaneCalls } from './lane-calls.js';
import type { LaneMetrics } from './lane-metrics.js';
import type { PeerLink } from './peer-link.js';
import { type BatchDelivery, type BatchRefusal, StagedBatches } from './staged-batches.js';
import { type RendezvousRouter, StagedIntake } from './staged-intake.js';

/** What the rendezvous needs from its lane. */
export interface RendezvousLane {
  readonly lane: number;
  /** Which lane of that number this is. */
  readonly life: number;
  readonly workerHi: number;
  readonly workerLo: number;
  readonly gate: DrainGate;
  readonly laneMetrics: LaneMetrics;
  now(): number;
  /** Ends a turn soon, so that whoever must hear does. */
  touch(): void;
  /** An invariant is broken: the lane cannot go on. */
  fail(error: unknown): void;
}

export class LaneRendezvous {
  private readonly owner: DataOwner;
  private readonly intake: StagedIntake;
  private readonly batches: StagedBatches;
  private readonly calls: LaneCalls;

  constructor(lane: RendezvousLane, router: RendezvousRouter, limits: RendezvousLimits, metrics: RendezvousMetrics) {
    const { workerHi, workerLo, gate, laneMetrics: counts } = lane;
    const shared = { metrics, now: () => lane.now(), touched: () => lane.touch() };
    this.calls = new LaneCalls(lane.lane, lane.life, workerHi, workerLo);
    this.owner = new DataOwner({ ...limits, ...shared, workerHi, workerLo });
    this.intake = new StagedIntake(
      { ...limits, ...shared, fail: (error) => lane.fail(error), gate, counts },
      router,
      this.calls,
    );
    this.batches = new StagedBatches(this.intake);
  }

  // ---- what the client hands over and asks

  stage(link: ClientLink, id: number, bytes: Uint8Array, kind: DataKind): void {
    this.owner.stage(link, id, bytes, kind);
  }

  announce(id: number, slot: number, generation: number): void {
    this.owner.announce(id, slot, generation);
  }

  over(id: number): void {
    this.owner.over(id);
  }

  answerClient(link: ClientLink, token: number, frame: Uint8Array): void {
    this.owner.answerClient(link, token, frame);
  }

  // ---- what peers send

  serves(handler: string): boolean {
    return this.owner.serves(handler);
  }

  answer(envelope: RequestEnvelope, payload: Uint8Array): ReplyPlan {
    return this.owner.answer(envelope, payload);
  }

  resolve(envelope: RequestEnvelope, buffer: Uint8Array, at: number, length: number, link: ClientLink): void {
    this.intake.accept(envelope, buffer, at, length, link);
  }

  /** The same for a batch, which goes to the mux. */
  resolveBatch(envelope: RequestEnvelope, peer: PeerLink, deliver: BatchDelivery, refuse: BatchRefusal): void {
    this.batches.accept(envelope, peer, deliver, refuse);
  }

  /** A client's request was answered or refused. */
  requestEnded(slot: number, generation: number): void {
    this.owner.requestEnded(slot, generation);
  }

  /** The end of one of the lane's own calls. False when nobody waits for it. */
  ended(message: InboundAnswer | InboundRefusal, buffer: Uint8Array): boolean {
    return message.kind === 'answer' ? this.calls.answered(message, buffer) : this.calls.refused(message);
  }

  // ---- time

  deadline(): number {
    return this.owner.deadline();
  }

  sweep(now: number): void {
    this.owner.sweep(now);
  }

  close(): Promise<void> {
    return this.intake.close(new VeloError('ERR_CLOSED', 'the node was closed'));
  }
}
