// The rendezvous of a lane: what its node owns and others pull, what others own and it pulls, and the calls for that. It is the one
// object of all this that lane and router know; it must never hold a rule of its own.

import { VeloError } from '../errors.js';
import type { DataKind } from '../messenger/data-store.js';
import type { ReplyPlan } from '../messenger/dispatch-plan.js';
import type { InboundAnswer, InboundRefusal } from '../messenger/inbound-message.js';
import type { RendezvousMetrics } from '../metrics/rendezvous-metrics.js';
import type { RequestEnvelope } from '../wire/envelope.js';
import { HEADER_RENDEZVOUS } from '../wire/names.js';
import type { BatchShelf, BatchSource, StagedAccount } from './batch-shelf.js';
import type { ClientLink } from './client-link.js';
import { DataOwner } from './data-owner.js';
import type { DrainGate } from './drain-gate.js';
import type { RendezvousLimits } from './host.js';
import { LaneCalls } from './lane-calls.js';
import { MeshHub, type MeshLane } from './lane-mesh.js';
import type { LaneMetrics } from './lane-metrics.js';
import { type RendezvousRouter, StagedIntake } from './staged-intake.js';

const NO_HEAD = new Uint8Array(0);

/** What the rendezvous needs from its lane. */
export interface RendezvousLane extends MeshLane {
  readonly lane: number;
  /** Which lane of that number this is. */
  readonly life: number;
  readonly workerHi: number;
  readonly workerLo: number;
  readonly gate: DrainGate;
  readonly laneMetrics: LaneMetrics;
  now(): number;
  /** Room for staged batches came back. */
  stagingFreed(): void;
}

export class LaneRendezvous implements BatchShelf {
  readonly isGone = false;
  /** What is pulled for the streams of this lane. */
  readonly source: BatchSource;
  /** The other lanes. */
  readonly mesh: MeshHub;
  private readonly owner: DataOwner;
  private readonly intake: StagedIntake;
  private readonly calls: LaneCalls;

  constructor(
    private readonly lane: RendezvousLane,
    router: RendezvousRouter,
    limits: RendezvousLimits,
    metrics: RendezvousMetrics,
    private readonly account: StagedAccount,
  ) {
    const { workerHi, workerLo, gate, laneMetrics: counts } = lane;
    const shared = { metrics, now: () => lane.now(), touched: () => lane.touch() };
    this.calls = new LaneCalls(lane.lane, lane.life, workerHi, workerLo);
    this.owner = new DataOwner({ ...limits, ...shared, workerHi, workerLo });
    this.intake = new StagedIntake(
      { ...limits, ...shared, fail: (error) => lane.fail(error), gate, counts },
      router,
      this.calls,
    );
    this.source = this.intake;
    this.mesh = new MeshHub(lane, {
      keep: (id, batch, gone) => this.owner.stageBatch(id, batch, gone),
      drop: (id) => this.owner.over(id),
      pull: (handle) => this.intake.take({ headers: new Map([[HEADER_RENDEZVOUS, handle]]) }, NO_HEAD),
    });
  }

  // ---- what this lane's own streams stage

  reserve(bytes: number): boolean {
    return this.account.reserve(bytes);
  }

  release(bytes: number): void {
    this.account.release(bytes);
  }

  stage(batch: Uint8Array, gone: () => void): number {
    const id = this.account.nextId();
    this.owner.stageBatch(id, batch, () => {
      this.account.release(batch.length);
      gone();
      this.lane.stagingFreed();
    });
    return id;
  }

  drop(id: number): void {
    this.owner.over(id);
  }

  /** No batch is staged, on any lane, and none will be. */
  get batchesGone(): boolean {
    return this.mesh.ended && !this.owner.keepsBatches;
  }

  // ---- what the client hands over and asks

  stagePayload(link: ClientLink, id: number, bytes: Uint8Array, kind: DataKind): void {
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
    // What another lane staged before it announced it must be here before it is asked for.
    this.mesh.drain();
    return this.owner.answer(envelope, payload);
  }

  resolve(envelope: RequestEnvelope, buffer: Uint8Array, at: number, length: number, link: ClientLink): void {
    this.intake.accept(envelope, buffer, at, length, link);
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
    this.mesh.close();
    return this.intake.close(new VeloError('ERR_CLOSED', 'the node was closed'));
  }
}
