// One lane: the sockets, protocol machines, timers and client links of one worker (or of the calling thread). It owns the order
// of a turn: empty the rings, handle what came, run the machines at the published tail, publish, ring once, sleep.
// It decides nothing of the protocol and never waits for a client.

import { performance } from 'node:perf_hooks';
import type { Runnable } from '../mux/batcher-types.js';
import type { EgressSlot } from '../mux/egress-slot.js';
import type { MuxConfig } from '../mux/mux-config.js';
import type { MuxMetrics } from '../mux/mux-metrics.js';
import type { PeerBatcher } from '../mux/peer-batcher.js';
import { abandonSender } from '../plane/burial.js';
import { type ClientConduit, ClientRows, WorkerConduit } from '../plane/conduit.js';
import { NodeBlock } from '../plane/node-block.js';
import { ParcelReceiver, ParcelSender } from '../plane/parcels.js';
import type { BatchShelf } from './batch-shelf.js';
import { BatcherCare } from './batcher-care.js';
import { ClientLink } from './client-link.js';
import { OutgoingConnection } from './connection.js';
import { DrainGate } from './drain-gate.js';
import type { EgressStream } from './egress-stream.js';
import type { Endpoint } from './endpoint.js';
import { FramePool } from './frame-pool.js';
import { probeEndpoint } from './health-probe.js';
import type { LaneOptions } from './host.js';
import { InboundRouter, type RouterLane } from './inbound-router.js';
import { LaneBinds } from './lane-binds.js';
import type { LaneBoot, ListeningLane } from './lane-boot.js';
import { LaneClients } from './lane-clients.js';
import { LaneEnd } from './lane-end.js';
import { LaneEvents } from './lane-events.js';
import type { MeshPort } from './lane-mesh.js';
import { LaneMetrics, type TransportKey } from './lane-metrics.js';
import { LanePeers } from './lane-peers.js';
import { LaneStaging } from './lane-staging.js';
import { LaneTimer } from './lane-timer.js';
import { Listener } from './listener.js';
import { Liveness } from './liveness.js';
import { NodePressure } from './node-pressure.js';
import type { PeerLane, PeerLink } from './peer-link.js';
import type { LaneRendezvous } from './rendezvous.js';
import { Sleeper } from './sleeper.js';
import type { SocketFile } from './socket-file.js';
import type { StreamEnds, StreamsEnd } from './streams-end.js';

export class Lane implements PeerLane, RouterLane {
  readonly lane: number;
  readonly life: number;
  readonly workerHi: number;
  readonly workerLo: number;
  readonly laneCount: number;
  readonly config: MuxConfig;
  readonly metrics: MuxMetrics;
  readonly pool: FramePool;
  readonly links: ClientLink[] = [];
  readonly laneMetrics: LaneMetrics;
  readonly pressure: NodePressure;
  readonly events: LaneEvents;
  readonly staging: LaneStaging;
  readonly rendezvous: LaneRendezvous | undefined;
  readonly shelf: BatchShelf;
  readonly peers: LanePeers;
  readonly binds: LaneBinds;

  private readonly options: LaneOptions;
  private readonly node: NodeBlock;
  readonly gate: DrainGate;
  private readonly router: InboundRouter;
  private readonly listener: Listener;
  private readonly udsListener: Listener;
  private readonly sleepers: Sleeper[] = [];
  private readonly clients: LaneClients;
  private readonly care: BatcherCare;
  private readonly leaving: LaneEnd;
  private readonly timer = new LaneTimer(() => this.onTimer());
  private readonly liveness: Liveness;
  private scheduled: Runnable[] = [];
  /** Streams with a record that can never leave: a turn at the most. */
  private readonly stranded: EgressStream[] = [];
  private lastRecordAt = 0;
  private nextSweep = 0;
  private nextBeat = 0;
  private turnQueued = false;
  private closed = false;
  /** A close has begun. */
  private ending: StreamsEnd | undefined;
  private readonly lookAgainMs: number;

  constructor(
    boot: LaneBoot,
    sameThread: boolean,
    /** The lane cannot go on: its thread must end. */
    private readonly fatal: (error: Error) => void,
  ) {
    const { options, memory } = boot;
    this.options = options;
    this.lane = options.lane;
    this.life = options.life;
    this.laneCount = options.lanes;
    this.workerHi = options.workerHi;
    this.workerLo = options.workerLo;
    this.config = options.mux;
    this.node = new NodeBlock(memory.node);
    this.laneMetrics = new LaneMetrics(this.node, options.lane);
    this.metrics = this.laneMetrics.mux;
    this.pressure = new NodePressure(this.node, options.lane, options.nodeBufferBytes);
    const leftOut = () => this.laneMetrics.diagnosticLeftOut();
    this.events = new LaneEvents(this.node, options.lane, () => this.links[0], leftOut);
    this.liveness = new Liveness(this, this.metrics);
    this.pool = new FramePool(() => this.touch());
    this.care = new BatcherCare(this, probeEndpoint);
    this.lookAgainMs = sameThread ? 0 : options.lookAgainMs;
    this.gate = new DrainGate(this.node);
    this.router = new InboundRouter(this, this.laneMetrics.drops, this.gate);
    const { router, node, laneMetrics } = this;
    this.staging = new LaneStaging(this, router, options.rendezvous, laneMetrics.rendezvous, node);
    this.rendezvous = router.rendezvous = this.staging.rendezvous;
    this.shelf = this.staging.shelf;
    router.stagedBatches = this.staging.batches;
    for (const mesh of boot.mesh) this.staging.join(mesh);
    this.peers = new LanePeers(this, node, router);
    this.binds = new LaneBinds(this, this.liveness);
    this.clients = new LaneClients(this, this.care, this.liveness, router.hellos);
    this.listener = this.makeListener('tcp');
    this.udsListener = this.makeListener('uds');
    this.leaving = new LaneEnd(this, [this.listener, this.udsListener]);
    memory.conduits.forEach((buffer, thread) => {
      this.addLink(thread, new WorkerConduit(buffer, options.sizes), memory.rows[thread]!, boot, sameThread);
    });
  }

  private makeListener(transport: TransportKey): Listener {
    const { maxInboundConnections } = this.options;
    return new Listener({
      metrics: this.laneMetrics.sockets[transport],
      hooks: this.router.hooks,
      maxInboundConnections,
    });
  }

  private addLink(
    thread: number,
    conduit: WorkerConduit,
    rows: SharedArrayBuffer,
    boot: LaneBoot,
    sameThread: boolean,
  ): void {
    const link = new ClientLink(
      this.clients,
      thread,
      conduit,
      new ClientRows(rows, this.options.sizes),
      new ParcelSender(boot.parcelsOut),
      new ParcelReceiver(boot.parcelsIn),
      this.options.messageQueueBytes,
    );
    this.links.push(link);
    const source = { work: () => this.work(link), hasWork: () => this.hasWork(link) };
    this.sleepers.push(new Sleeper(conduit.memory, conduit.workerBell, source, sameThread));
  }

  /** Listens and starts to look at the rings. Rejects with `ERR_LISTEN_FAILED`; then nothing listens. */
  async start(): Promise<ListeningLane> {
    const { bindAddress, port: wanted, udsPath } = this.options;
    const port = await this.listener.listen(bindAddress, wanted);
    let socketFile: SocketFile | undefined;
    try {
      if (udsPath !== undefined) socketFile = await this.udsListener.listenAt(udsPath);
    } catch (error) {
      await this.listener.close();
      throw error;
    }
    this.beat(this.now());
    this.nextSweep = this.now() + this.config.creditSweepIntervalMs;
    this.timer.at(Math.min(this.nextSweep, this.nextBeat));
    for (const sleeper of this.sleepers) sleeper.run();
    return { port, socketFile };
  }

  /** On the calling thread: the client's rings wake this lane by a function call. */
  joinThread(conduit: ClientConduit): void {
    const link = this.links[0]!;
    conduit.workerBell.hook = this.sleepers[0]!.hook;
    this.hookClient = (wake) => {
      link.conduit.clientBell.hook = wake;
    };
  }

  /** On the calling thread: what the lane calls instead of ringing the client. */
  hookClient: (wake: () => void) => void = () => {};

  // ---- turns

  now(): number {
    return performance.now();
  }

  nextEpoch(): number {
    return this.node.nextEpoch();
  }

  schedule(runnable: Runnable): void {
    this.scheduled.push(runnable);
  }

  /** Something happened outside a turn (an admission, a failed write): end a turn soon. */
  touch(): void {
    if (this.turnQueued || this.closed) return;
    this.turnQueued = true;
    queueMicrotask(() => {
      this.turnQueued = false;
      this.guard(() => this.endTurn());
    });
  }

  private work(link: ClientLink): boolean {
    if (this.closed) return false;
    try {
      const any = link.drain();
      this.endTurn();
      if (this.lookAgainMs === 0) return false;
      const now = this.now();
      if (any) this.lastRecordAt = now;
      return now - this.lastRecordAt < this.lookAgainMs;
    } catch (error) {
      this.fail(error);
      return false;
    }
  }

  private hasWork(link: ClientLink): boolean {
    return link.hasWork() || link.roomCame();
  }

  /** Before the first frame of a socket read: whatever the clients published before it happened before it. */
  beforeFrames(): void {
    for (const link of this.links) link.drain();
  }

  /** Runs the machines at the published tail, then shows the clients what came of it. */
  endTurn(): void {
    if (this.stranded.length > 0) for (const stream of this.stranded.splice(0)) stream.strand();
    const scheduled = this.scheduled;
    for (let i = 0; i < scheduled.length; i++) scheduled[i]!.run();
    scheduled.length = 0;
    // Numbers first: whoever reads a record finds it counted.
    this.laneMetrics.publish();
    for (const link of this.links) link.publish();
    this.pressure.look();
    this.arm();
    this.ending?.look();
  }

  private arm(): void {
    let due = Math.min(this.nextSweep, this.nextBeat, this.liveness.deadline(), this.care.deadline());
    for (const batcher of this.batchers) due = Math.min(due, batcher.deadline());
    if (this.rendezvous !== undefined) due = Math.min(due, this.rendezvous.deadline());
    const visit = this.clients.visits.deadline();
    // While a visit is queued, drains wait for it: ringing for them would only wake this lane to queue them again.
    for (const link of this.links) link.muteDrains(visit !== Number.POSITIVE_INFINITY);
    this.timer.at(Math.min(due, visit));
  }

  private onTimer(): void {
    this.guard(() => {
      const now = this.now();
      const { visits } = this.clients;
      this.beat(now);
      // Before the look: a client that drains from here on rings again.
      if (visits.deadline() <= now) for (const link of this.links) link.muteDrains(false);
      for (const link of this.links) link.drain();
      for (let table = visits.takeDue(now); table !== undefined; table = visits.takeDue(now)) table.visitDrained();
      this.liveness.run(now);
      this.care.run(now);
      for (const batcher of this.batchers) if (batcher.deadline() <= now) batcher.run();
      if (now >= this.nextSweep) this.sweep(now);
      this.rendezvous?.sweep(now);
      this.endTurn();
    });
  }

  /** Shows whoever watches that this lane does something. */
  private beat(now: number): void {
    this.node.beat(this.lane);
    this.nextBeat = now + this.options.beatMs;
  }

  private sweep(now: number): void {
    this.nextSweep = now + this.config.creditSweepIntervalMs;
    this.clients.visits.prune(now);
    this.care.evictIdle();
    if (this.metrics.liveSlots === 0 && this.metrics.waitingRefusals === 0) return;
    this.peers.sweep();
  }

  /** A turn that throws has broken an invariant: the lane ends instead of guessing. */
  guard(turn: () => void): void {
    if (this.closed) return;
    try {
      turn();
    } catch (error) {
      this.fail(error);
    }
  }

  inTurn(turn: () => void): void {
    this.guard(() => {
      turn();
      this.endTurn();
    });
  }

  /** The lane at the other end of the port has started again. */
  joinMesh(mesh: MeshPort): void {
    this.inTurn(() => this.staging.join(mesh));
  }

  /** Lane 0 stays dead. */
  leftAlone(): void {
    this.inTurn(() => this.staging.alone());
  }

  cannotStage({ owner }: EgressSlot): void {
    // Not now: whoever asks is in the middle of serving the slot.
    this.stranded.push(owner as EgressStream);
    this.touch();
  }

  /** Room for staged batches came back. */
  stagingFreed(): void {
    for (const batcher of this.batchers) batcher.stagingFreed();
  }

  fail(error: unknown): void {
    if (this.closed) return;
    this.closed = true;
    this.fatal(error instanceof Error ? error : new Error(String(error)));
  }

  // ---- what the machines ask

  connect(to: Endpoint, onLost: () => void): OutgoingConnection {
    return new OutgoingConnection({
      to,
      metrics: this.laneMetrics.sockets['path' in to ? 'uds' : 'tcp'],
      hooks: this.router.hooks,
      onLost,
      connectTimeoutMs: this.options.connectTimeoutMs,
      connectionQueueBytes: this.options.connectionQueueBytes,
    });
  }

  batcherMade(batcher: PeerBatcher, peer: PeerLink): void {
    this.care.made(batcher, peer);
  }

  get batchers(): readonly PeerBatcher[] {
    return this.care.batchers;
  }

  // ---- the end

  /**
   * Ends every stream in order, writes what is queued, and lets go of everything; at the deadline it lets go anyway. A further call
   * may move the deadline closer. Resolves with what it had to end.
   */
  close(timeoutMs: number): Promise<StreamEnds> {
    return this.leaving.run(timeoutMs);
  }

  /** From here on every turn is a step of the end. False when the lane cannot run any more. */
  beginEnd(ending: StreamsEnd): boolean {
    if (!this.closed) this.ending = ending;
    return !this.closed;
  }

  /** A close has begun. */
  get isEnding(): boolean {
    return this.ending !== undefined;
  }

  /** It failed, or was stopped. */
  get isOver(): boolean {
    return this.closed;
  }

  /** No turn comes any more. */
  stop(): void {
    this.closed = true;
    this.timer.stop();
    for (const sleeper of this.sleepers) sleeper.stop();
  }

  /**
   * The thread ends without a close: its senders see it in their rows, also those that block their client thread, which hears of
   * nothing else.
   */
  abandon(): void {
    for (const { senders, rows } of this.links) {
      for (const stream of senders)
        if (stream !== undefined) abandonSender(rows.senders, stream.row, stream.generation);
    }
  }
}
