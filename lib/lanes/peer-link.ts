// One peer as a lane sees it: how to reach it, and per mux lane its connection, its batcher and its ingress table. Each is made
// at first use. It carries out what the protocol machines ask and decides nothing of the protocol.

import { wireGeneration, workerOrigin } from '../messenger/response-origin.js';
import { ADMITTED, type BatcherPort, PENDING, type Runnable, type SubmitOutcome } from '../mux/batcher-types.js';
import type { EgressSlot } from '../mux/egress-slot.js';
import { IngressTable } from '../mux/ingress-table.js';
import type { ByteReservation, IngressPort } from '../mux/ingress-types.js';
import { BATCH_HEADROOM, type MuxConfig } from '../mux/mux-config.js';
import type { MuxMetrics } from '../mux/mux-metrics.js';
import { PeerBatcher } from '../mux/peer-batcher.js';
import { RecentCancels } from '../mux/recent-cancels.js';
import type { Singleton } from '../mux/singletons.js';
import { REQUEST_ID_OFFSET, RESPONSE_NONE, requestHeaderLength, writeRequestHeader } from '../wire/envelope.js';
import { usableLanes } from '../wire/lane-hash.js';
import { BATCH_HANDLERS } from '../wire/names.js';
import { STAGING_THRESHOLD } from '../wire/rendezvous-messages.js';
import { writeResponseId } from '../wire/response-id.js';
import { FRAME_MESSAGE, PREAMBLE_LEN, writePreamble } from '../wire/transport-frame.js';
import { encodeUtf8 } from '../wire/utf8.js';
import type { BatchShelf } from './batch-shelf.js';
import { CancelRepeats } from './cancel-repeats.js';
import { MESSENGER_LANE, type PeerRoute } from './commands.js';
import { ADMITTED as FRAME_ADMITTED, type OutgoingConnection } from './connection.js';
import type { Endpoint } from './endpoint.js';
import { type AdmissionListener, type FramePool, POOLED_BUFFER_BYTES } from './frame-pool.js';
import type { LaneBinds } from './lane-binds.js';
import type { LaneEvents } from './lane-events.js';
import type { NodePressure } from './node-pressure.js';
import type { OutFrame } from './out-frame.js';
import { isCancelMessage, SignalFrame } from './signal-frame.js';
import { lanePath } from './socket-file.js';
import { encodeStagedBatch, StagedBatchFrame } from './staged-batch-frame.js';

/**
 * How far the generations of successors are apart, modulo 256: of the batchers of a lane that follow each other, and of those of the lane
 * that takes the place of a dead one.
 */
const GENERATIONS_PER_BATCHER = 61;
const GENERATIONS_PER_LIFE = 97;

/** What a peer link needs from its lane. */
export interface PeerLane {
  readonly lane: number;
  readonly laneCount: number;
  /** Which lane of that number this is. */
  readonly life: number;
  readonly workerHi: number;
  readonly workerLo: number;
  readonly config: MuxConfig;
  readonly metrics: MuxMetrics;
  readonly pool: FramePool;
  readonly pressure: NodePressure;
  readonly shelf: BatchShelf;
  /** What peers may open streams to. */
  readonly binds: LaneBinds;
  now(): number;
  nextEpoch(): number;
  schedule(runnable: Runnable): void;
  connect(to: Endpoint, onLost: () => void): OutgoingConnection;
  touch(): void;
  /** A record of the slot can never be staged: its stream must end. */
  cannotStage(slot: EgressSlot): void;
  batcherMade(batcher: PeerBatcher, peer: PeerLink): void;
  /** Who hears of epochs that end, and of refusals. */
  readonly events: LaneEvents;
}

export class PeerLink {
  readonly tables: (IngressTable | undefined)[] = [];
  readonly batchers: (PeerBatcher | undefined)[] = [];
  private readonly batcherPorts: (LaneBatcherPort | undefined)[] = [];
  /** Batchers that there were, by mux lane. */
  private readonly made: number[] = [];
  /** Those that went as messages; what went in batches, its batcher remembers. */
  private readonly recentCancels = new RecentCancels<Uint8Array>();
  private readonly connections: (OutgoingConnection | undefined)[] = [];
  private readonly repeats: (CancelRepeats | undefined)[] = [];
  /** Its address has changed since the first. */
  private moved = false;

  constructor(
    private readonly lane: PeerLane,
    /** Its number between clients and lanes. */
    readonly number: number,
    private route: PeerRoute,
    /** What all lanes of this node may hold for the peer. */
    private readonly peerBudget: ByteReservation,
  ) {}

  get label(): string {
    return this.route.label;
  }

  get workerHi(): number {
    return this.route.workerHi;
  }

  get workerLo(): number {
    return this.route.workerLo;
  }

  get hosts(): readonly string[] {
    return this.route.hosts;
  }

  /** A newer address of the same peer. Connections that stand are kept; whatever is dialed from now on is dialed there. */
  update(route: PeerRoute): void {
    this.route = route;
    this.moved = true;
  }

  /** The lane that is home to this peer's mux lane `k`. */
  homeOf(k: number, lanes: number): number {
    return this.route.lanePorts.length > 0 ? k % lanes : 0;
  }

  connection(k: number): OutgoingConnection {
    let connection = this.connections[k];
    // An idle connection holds nothing but the address that it would dial.
    if (connection === undefined || (this.moved && connection.state === 'idle')) {
      const repeats = this.repeats[k] ?? this.repeatsOf(k);
      this.repeats[k] = repeats;
      connection = this.lane.connect(this.endpoint(k), () => repeats.lost());
      this.connections[k] = connection;
    }
    return connection;
  }

  /** A connection to the peer stands on which that mux lane's batches go. */
  isConnected(k: number): boolean {
    return this.connections[k]?.state === 'open';
  }

  /** Where that mux lane's batches go. */
  endpoint(k: number): Endpoint {
    const { lanePorts, host, port, udsPath } = this.route;
    // A peer that publishes no lanes has one listener for all of them.
    const lane = lanePorts.length > 0 ? k % lanePorts.length : 0;
    return udsPath === undefined ? { host, port: lanePorts[lane] ?? port } : { path: lanePath(udsPath, lane) };
  }

  private repeatsOf(k: number): CancelRepeats {
    const { lane, recentCancels } = this;
    const messages = k === MESSENGER_LANE;
    return new CancelRepeats({
      now: () => lane.now(),
      any: () => this.batchers[k]?.mayRepeatCancels === true || (messages && recentCancels.any(lane.now())),
      again: () => {
        this.batchers[k]?.repeatCancels();
        if (messages) this.repeatCancels();
        lane.touch();
      },
    });
  }

  /** Sends a frame of the messenger; it rides lane 0. */
  send(frame: OutFrame): boolean {
    return this.connection(MESSENGER_LANE).submit(frame) === FRAME_ADMITTED;
  }

  /** A client's message goes to the peer: a cancel must not be lost with its connection. */
  noteMessage(frame: Uint8Array): void {
    if (isCancelMessage(frame)) this.recentCancels.note(frame, this.lane.now());
  }

  private repeatCancels(): void {
    for (const cancel of this.recentCancels.take(this.lane.now())) {
      this.noteMessage(cancel);
      this.send(new SignalFrame(cancel));
    }
  }

  batcher(k: number): PeerBatcher {
    let batcher = this.batchers[k];
    if (batcher === undefined) {
      const port = new LaneBatcherPort(this, this.lane, k);
      this.batcherPorts[k] = port;
      const { config, metrics, pressure } = this.lane;
      const meter = pressure.egress;
      const made = this.made[k] ?? 0;
      this.made[k] = made + 1;
      const firstGeneration = this.lane.life * GENERATIONS_PER_LIFE + made * GENERATIONS_PER_BATCHER;
      const lanes = usableLanes(this.lane.laneCount);
      const peerLabel = this.label;
      batcher = new PeerBatcher({ peerLabel, lane: k, lanes, config, port, metrics, meter, firstGeneration });
      port.batcher = batcher;
      this.batchers[k] = batcher;
      this.lane.batcherMade(batcher, this);
    }
    return batcher;
  }

  table(k: number): IngressTable {
    let table = this.tables[k];
    if (table === undefined) {
      const { lane, peerBudget } = this;
      const port: IngressPort = {
        now: () => lane.now(),
        claim: (anchorHi, anchorLo, sessionHi, sessionLo) =>
          lane.binds.claim(this.number, this.tables[k]!, anchorHi, anchorLo, sessionHi, sessionLo),
        isBound: (sessionHi, sessionLo) => lane.binds.isBound(sessionHi, sessionLo),
        control: (create) => (create ? this.batcher(k) : this.batchers[k])?.control,
        refused: (slot, reason) => lane.events.refused(this.tables[k]!, slot, reason),
        epochEnded: (slots) => lane.events.epochEnded('in', this.tables[k]!, 'the peer began another', slots),
      };
      const { config, metrics, pressure } = lane;
      const meter = pressure.ingress;
      table = new IngressTable({ peerLabel: this.label, lane: k, config, port, metrics, peerBudget, meter });
      this.tables[k] = table;
    }
    return table;
  }

  /** Slots that the peer has open on that mux lane. */
  ingressSlots(k: number): number {
    return this.tables[k]?.liveSlots ?? 0;
  }

  /** Nobody finds the batcher any more: who asks from now on gets a new one, with a higher epoch. */
  forgetBatcher(batcher: PeerBatcher): void {
    if (this.batchers[batcher.lane] === batcher) this.batchers[batcher.lane] = undefined;
  }

  dropStaged(lane: number): void {
    this.batcherPorts[lane]?.dropStaged();
  }

  /** Writes what is queued, within the caller's deadline. */
  closeConnections(): Promise<unknown> {
    for (const repeats of this.repeats) repeats?.stop();
    return Promise.all(this.connections.map((connection) => connection?.close({ drain: true })));
  }

  destroyConnections(): void {
    for (const connection of this.connections) connection?.destroy();
  }
}

/** Turns batches into `_stream_batch` frames on the connection of one (peer, lane). */
class LaneBatcherPort implements BatcherPort {
  batcher!: PeerBatcher;
  private readonly name: Uint8Array;
  private readonly header: Uint8Array;
  private readonly headerLength: number;
  private generation = 0;
  /** Batches that lie staged, by data id, and the slots they are of. */
  private readonly staged = new Map<number, EgressSlot>();

  constructor(
    private readonly peer: PeerLink,
    private readonly lane: PeerLane,
    private readonly k: number,
  ) {
    const name = encodeUtf8(BATCH_HANDLERS[k]!);
    this.name = name;
    this.headerLength = requestHeaderLength(name.length, 0);
    this.header = new Uint8Array(this.headerLength);
    writeRequestHeader(this.header, 0, RESPONSE_NONE, lane.workerHi, lane.workerLo, 0, 0, name);
  }

  now(): number {
    return this.lane.now();
  }

  nextEpoch(): number {
    return this.lane.nextEpoch();
  }

  eagerBudget(): number {
    // A batch stays below what peers would stage.
    return STAGING_THRESHOLD - this.headerLength;
  }

  acquireBuffer(): Uint8Array {
    return this.lane.pool.buffer();
  }

  acquireLarge(size: number): Uint8Array | undefined {
    if (size <= POOLED_BUFFER_BYTES) return this.lane.pool.buffer();
    try {
      return Buffer.allocUnsafeSlow(size);
    } catch {
      return undefined;
    }
  }

  releaseBuffer(buffer: Uint8Array): void {
    this.lane.pool.release(buffer);
  }

  reserveStaging(bytes: number, slot: EgressSlot): boolean {
    const { shelf } = this.lane;
    if (shelf.reserve(bytes)) return true;
    if (shelf.isGone) this.lane.cannotStage(slot);
    return false;
  }

  releaseStaging(bytes: number): void {
    this.lane.shelf.release(bytes);
  }

  submit(buffer: Uint8Array, start: number, end: number): SubmitOutcome {
    return this.submitInline(buffer, start, end, this.batcher);
  }

  submitSingleton(buffer: Uint8Array, start: number, end: number, singleton: Singleton): SubmitOutcome {
    if (!singleton.staged) return this.submitInline(buffer, start, end, singleton);
    const { shelf, workerHi, workerLo, pool } = this.lane;
    // The bytes first: whoever reads the handle finds them.
    const batch = new Uint8Array(buffer.buffer, buffer.byteOffset + start, end - start);
    const id = shelf.stage(batch, () => {
      this.staged.delete(id);
      singleton.fetched();
    });
    this.staged.set(id, singleton.slot);
    const bytes = encodeStagedBatch(this.name, workerHi, workerLo, this.nextGeneration(), id, singleton);
    const frame = new StagedBatchFrame(bytes, singleton, () => shelf.drop(id), pool.admissionResolved);
    return this.peer.connection(this.k).submit(frame) === FRAME_ADMITTED ? ADMITTED : PENDING;
  }

  /** Lets go of what is staged for a slot, or for all of them. */
  dropStaged(slot?: EgressSlot): void {
    for (const [id, of] of [...this.staged]) if (slot === undefined || of === slot) this.lane.shelf.drop(id);
  }

  private submitInline(buffer: Uint8Array, start: number, end: number, listener: AdmissionListener): SubmitOutcome {
    const frameStart = start - this.headerLength - PREAMBLE_LEN;
    writePreamble(buffer, frameStart, FRAME_MESSAGE, this.headerLength, end - start);
    const headerAt = frameStart + PREAMBLE_LEN;
    for (let i = 0; i < this.headerLength; i++) buffer[headerAt + i] = this.header[i]!;
    const { workerHi, workerLo } = this.lane;
    writeResponseId(buffer, headerAt + REQUEST_ID_OFFSET, workerHi, workerLo, 0, this.nextGeneration());
    const frame = this.lane.pool.frame(buffer, frameStart, end, listener);
    return this.peer.connection(this.k).submit(frame) === FRAME_ADMITTED ? ADMITTED : PENDING;
  }

  /** Nobody answers a batch: its id only has to name the sender and to differ from the last one. */
  private nextGeneration(): number {
    this.generation += 1;
    return wireGeneration(workerOrigin(this.lane.lane), this.generation);
  }

  schedule(runnable: Runnable): void {
    this.lane.schedule(runnable);
  }

  epochEnded(reason: string, slots: number): void {
    this.lane.events.epochEnded('out', this.batcher, reason, slots);
  }
}

if (
  BATCH_HEADROOM <
  PREAMBLE_LEN + requestHeaderLength(encodeUtf8(BATCH_HANDLERS[BATCH_HANDLERS.length - 1]!).length, 0)
)
  throw new RangeError('the headroom of a batch buffer does not hold its frame header');
