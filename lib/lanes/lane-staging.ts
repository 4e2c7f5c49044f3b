// Everything staged that a lane has to do with: on lane 0 the node's own rendezvous, on the others a port to it. Owns the difference
// between the two; it must never hold a rule of either.

import type { RendezvousMetrics } from '../metrics/rendezvous-metrics.js';
import type { NodeBlock } from '../plane/node-block.js';
import { type BatchShelf, StagedAccount } from './batch-shelf.js';
import { MESSENGER_LANE } from './commands.js';
import type { RendezvousLimits } from './host.js';
import { MeshEnd, type MeshPort } from './lane-mesh.js';
import { LaneRendezvous, type RendezvousLane } from './rendezvous.js';
import { StagedBatches } from './staged-batches.js';
import type { RendezvousRouter } from './staged-intake.js';

export class LaneStaging {
  /** Payloads are staged where messages ride, on lane 0. */
  readonly rendezvous: LaneRendezvous | undefined;
  /** Where this lane leaves what its streams stage. */
  readonly shelf: BatchShelf;
  /** What peers staged for its streams. */
  readonly batches: StagedBatches;
  private readonly end: MeshEnd | undefined;

  constructor(
    lane: RendezvousLane,
    router: RendezvousRouter,
    limits: RendezvousLimits,
    metrics: RendezvousMetrics,
    node: NodeBlock,
  ) {
    const account = new StagedAccount(node, lane.lane, limits.stagedBytesMax);
    if (lane.lane === MESSENGER_LANE) {
      this.rendezvous = new LaneRendezvous(lane, router, limits, metrics, account);
      this.batches = new StagedBatches(this.rendezvous.source);
      this.shelf = this.rendezvous;
    } else {
      this.end = new MeshEnd(lane, account, () => lane.stagingFreed());
      this.batches = new StagedBatches(this.end);
      this.shelf = this.end;
    }
  }

  /** The lane at the other end of the port has started, or started again. */
  join(mesh: MeshPort): void {
    this.rendezvous?.mesh.join(mesh);
    this.end?.join(mesh);
  }

  /** Lane 0 stays dead: what this lane should stage never leaves. */
  alone(): void {
    this.end?.alone();
  }

  /** Receivers have pulled everything, and no lane will stage more. What other lanes staged lies on lane 0, which therefore ends last. */
  get gone(): boolean {
    return this.rendezvous?.batchesGone ?? true;
  }

  /** The streams of this lane are over: it stages nothing more. */
  streamsEnded(): void {
    this.end?.ended();
  }

  /** What is pulled rejects, and leases are given back. Resolves when that is on its way. */
  async close(): Promise<void> {
    this.end?.close();
    await this.rendezvous?.close();
  }
}
