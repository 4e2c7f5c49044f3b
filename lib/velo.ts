// A node: it puts lanes, control plane and streams together, and takes them down again in order.

import { randomBytes } from 'node:crypto';
import type { AttachOptions } from './control/attach.js';
import type { CallOptions, SendOptions } from './control/calls.js';
import type { DataInfo, DataLease, GetOptions } from './control/data-client.js';
import type { AskOptions } from './control/hellos.js';
import { Membership } from './control/membership.js';
import { ownAddress, ownEndpoints } from './control/own-address.js';
import type { PeerTarget } from './control/peer-book.js';
import type { CloseOptions, CloseReport } from './control/shutdown.js';
import type { StreamInfo } from './control/stream-census.js';
import { unattachedTimeout } from './control/unattached-timer.js';
import { ControlPlane } from './control-plane.js';
import { VeloError } from './errors.js';
import type { MessageHandler } from './messenger/handlers.js';
import { CELL_COUNT } from './metrics/series-cells.js';
import { METRICS_SOURCE, type Measured, type MetricsSource } from './metrics/source.js';
import { SCHEME_LOCAL } from './metrics/streaming-metrics.js';
import { readStats, type VeloStats } from './node-stats.js';
import { heartbeatInterval, type ResolvedOptions, resolveOptions, rowsFor, type VeloOptions } from './options.js';
import { ClientRows, createClientRows } from './plane/conduit.js';
import { createNodeBlock, NodeBlock } from './plane/node-block.js';
import { startLanes } from './start-lanes.js';
import {
  ANCHOR_FIELDS,
  ATTACH_FIELDS,
  checkFields,
  checkKey,
  checkSignal,
  codecOf,
  handleOf,
} from './streaming/checks.js';
import { LocalOutlet } from './streaming/local-outlet.js';
import { MuxOutlet } from './streaming/mux-outlet.js';
import { StreamAnchor } from './streaming/stream-anchor.js';
import { type Outlet, StreamSender } from './streaming/stream-sender.js';
import type { ItemCodec } from './wire/codec.js';
import { senderErrorFrame } from './wire/frame.js';
import type { DataHandle, StreamAnchorHandle } from './wire/handle.js';
import { MESSENGER_MUX_KEY } from './wire/names.js';
import { PeerInfo } from './wire/peer-info.js';
import { generateInstanceId, workerIdOf } from './wire/worker-id.js';

export interface AnchorOptions<T> {
  /** How items become bytes. Default: MessagePack of any value. Both ends must agree. */
  codec?: ItemCodec<T> | undefined;
  /** How often the sender proves that it lives, in milliseconds, 10 at the least. Default: the node's. */
  heartbeatIntervalMs?: number | undefined;
  /**
   * How long the anchor is kept while no sender is attached, in milliseconds. Default: the node's. `setTimeout` of the anchor changes
   * it.
   */
  unattachedTimeoutMs?: number | undefined;
}

export interface AttachStreamOptions<T> extends AttachOptions {
  /** How items become bytes. Default: MessagePack of any value. Both ends must agree. */
  codec?: ItemCodec<T> | undefined;
}

/**
 * A node that holds token streams to other nodes. See the README for a first program.
 *
 * Everything that waits takes an `AbortSignal` where it says so; everything that is owned is an `AsyncDisposable`.
 */
export class Velo implements AsyncDisposable, Measured {
  /** Who this node is and how it is reached: give it to peers. */
  readonly peerInfo: PeerInfo;
  /** What `registerMetrics` of `velomux/metrics` reads. Its shape is not part of the public interface. */
  readonly [METRICS_SOURCE]: MetricsSource;
  private closing: Promise<CloseReport> | undefined;
  private membership: Membership | undefined;

  private constructor(
    private readonly options: ResolvedOptions,
    private readonly node: NodeBlock,
    private readonly parts: ControlPlane,
  ) {
    this.peerInfo = parts.peerInfo;
    this[METRICS_SOURCE] = parts.metricsSource();
  }

  /**
   * Starts a node: its lanes, its listeners.
   *
   * @throws VeloError `ERR_INVALID_ARGUMENT` (names the option), `ERR_LISTEN_FAILED` (port or socket path in use), `ERR_WORKER_FILE`,
   * and what the directory of the option `discovery` rejects with; then nothing is left of the node.
   */
  static async create(options: VeloOptions = {}): Promise<Velo> {
    const resolved = resolveOptions(options);
    const instanceId = generateInstanceId((length) => randomBytes(length));
    const workerId = workerIdOf(instanceId);
    const sizes = { ringBytes: resolved.ringBytes, rows: rowsFor(resolved.maxStreams) };
    const nodeBlock = createNodeBlock(resolved.lanes, CELL_COUNT);
    const rows = createClientRows(sizes);
    const host = await startLanes(resolved, workerId, { node: nodeBlock, rows, sizes });
    const ports = host.links.map((link) => link.port);
    const endpoints = ownEndpoints(resolved.bindAddress, ports[0]!);
    const peerInfo = new PeerInfo(instanceId, ownAddress(endpoints, ports, resolved.udsPath));
    const reach = { local: endpoints, numaNode: resolved.numaNode, uds: resolved.udsPath !== undefined };
    const block = new NodeBlock(nodeBlock);
    const parts = new ControlPlane(resolved, host, block, peerInfo, reach, new ClientRows(rows, sizes));
    const node = new Velo(resolved, block, parts);
    try {
      await node.join();
    } catch (error) {
      await node.close({ timeoutMs: 0 });
      throw error;
    }
    return node;
  }

  private async join(): Promise<void> {
    const { discovery, registerDiscovered } = this.options;
    if (discovery === undefined) return;
    this.membership = await Membership.join(
      discovery,
      this.peerInfo,
      registerDiscovered ? (info) => this.parts.welcome(info) : undefined,
    );
  }

  get instanceId(): string {
    return this.peerInfo.instanceId;
  }

  get workerId(): bigint {
    return this.peerInfo.workerId;
  }

  // -- peers and messages

  /**
   * Makes a peer known, or renews its address. Nothing is sent.
   *
   * @throws VeloError `ERR_BAD_ADDRESS`, `ERR_LIMIT`, `ERR_INVALID_ARGUMENT` for this node itself.
   */
  registerPeer(info: PeerInfo): void {
    this.open().peers.register(info);
  }

  /**
   * Serves messages by name; the same name again replaces the handler.
   *
   * @throws VeloError `ERR_INVALID_ARGUMENT` for an empty name or one that starts with `_`, and for what `amHandler`, `unaryHandler`
   * or `typedUnary` did not make.
   */
  registerHandler(name: string, handler: MessageHandler): void {
    this.open().messenger.register(name, handler);
  }

  /** Names of the handlers served here, the system's included. */
  handlers(): string[] {
    return this.open().messenger.names();
  }

  /**
   * Names of the handlers that a peer serves, the system's included: those it named last, or else those it names now. Rejects as
   * `unary` does.
   */
  async availableHandlers(target: PeerTarget, options?: AskOptions): Promise<string[]> {
    return await this.open().messenger.availableHandlers(target, options);
  }

  /** The same, and always asks. */
  async refreshHandlers(target: PeerTarget, options?: AskOptions): Promise<string[]> {
    return await this.open().messenger.refreshHandlers(target, options);
  }

  /**
   * Resolves when the peer serves `handler`. Asks ten times, 100 ms apart; with `timeoutMs` until that is over. Rejects with
   * `ERR_TIMEOUT` then, at once when the peer cannot be asked, and as `unary` does.
   */
  async waitForHandler(target: PeerTarget, handler: string, options?: AskOptions): Promise<void> {
    await this.open().messenger.waitForHandler(target, handler, options);
  }

  /**
   * Sends a message that nobody answers. Resolves once the connection took it. A payload above 262,144 bytes is staged, here and in
   * every call: the peer's lane fetches it from this node's lane, and it may then overtake or be overtaken by others.
   */
  async send(target: PeerTarget, handler: string, payload?: Uint8Array, options?: SendOptions): Promise<void> {
    await this.open().messenger.send(target, handler, payload, options);
  }

  /** Sends a message and resolves when the peer's handler is done; rejects with `ERR_HANDLER_FAILED` when it threw. */
  async sync(target: PeerTarget, handler: string, payload?: Uint8Array, options?: CallOptions): Promise<void> {
    await this.open().messenger.sync(target, handler, payload, options);
  }

  /**
   * Calls a peer's handler: bytes in, bytes out. Rejects with `ERR_UNKNOWN_PEER`, `ERR_UNKNOWN_HANDLER`, `ERR_HANDLER_FAILED`,
   * `ERR_TIMEOUT`, `ERR_ABORTED`, `ERR_CONNECT_FAILED`, `ERR_CONNECTION_CLOSED`, `ERR_PEER_SHUTTING_DOWN`,
   * `ERR_PAYLOAD_TOO_LARGE` (above `stagedBytesMax`), `ERR_LIMIT` (`stagedBytesMax` are staged already), `ERR_RESPONSE_SLOTS_EXHAUSTED`, `ERR_LANE_DIED`, `ERR_CLOSED`.
   */
  async unary(target: PeerTarget, handler: string, payload?: Uint8Array, options?: CallOptions): Promise<Uint8Array> {
    return await this.open().messenger.unary(target, handler, payload, options);
  }

  /** Calls a peer's handler with JSON both ways; integers beyond 2^53 are bigint. Rejects as `unary` does, and with `ERR_BAD_JSON`. */
  async typedUnary<R = unknown>(
    target: PeerTarget,
    handler: string,
    value: unknown,
    options?: CallOptions,
  ): Promise<R> {
    return await this.open().messenger.typedUnary<R>(target, handler, value, options);
  }

  // -- data by handle

  /**
   * Offers a copy of `bytes` to whoever has the handle. It stays, with one reference, until that reference is released
   * (`releaseData`, or a lease's `release`), or the node closes.
   *
   * @throws VeloError `ERR_PAYLOAD_TOO_LARGE`, `ERR_LIMIT` when `stagedBytesMax` is reached, `ERR_LANE_DIED`, `ERR_CLOSED`.
   */
  registerData(bytes: Uint8Array): DataHandle {
    return this.open().data.register(bytes);
  }

  /**
   * Fetches data from its owner, which may be this node. Rejects with `ERR_UNKNOWN_DATA`, `ERR_PAYLOAD_TOO_LARGE`, `ERR_ABORTED`,
   * `ERR_TIMEOUT`, `ERR_UNKNOWN_PEER`, and what a call rejects with; then no lease is held.
   */
  async get(handle: DataHandle, options?: GetOptions): Promise<DataLease> {
    return await this.open().data.get(handle, options);
  }

  /** Asks the owner for length and references. Rejects with `ERR_UNKNOWN_DATA` and what a call rejects with. */
  async metadata(handle: DataHandle, options?: CallOptions): Promise<DataInfo> {
    return await this.open().data.metadata(handle, options);
  }

  /** Adds a reference; resolves when the owner has counted it. Rejects as `metadata` does. */
  async refHandle(handle: DataHandle, options?: CallOptions): Promise<void> {
    await this.open().data.ref(handle, options);
  }

  /** Gives up a reference without fetching the data: the first one, or one that `refHandle` added. Rejects as `metadata` does. */
  async releaseData(handle: DataHandle, options?: CallOptions): Promise<void> {
    await this.open().data.release(handle, options);
  }

  // -- streams

  /**
   * Makes an anchor: the consumer's end of a stream. Give its `handle` to the producer, and keep the anchor: one that is
   * garbage-collected is cancelled, counted and warned about.
   *
   * @throws VeloError `ERR_LIMIT` above `maxStreams`, `ERR_INVALID_ARGUMENT` for a time out of range, and for an option that there is not.
   */
  createAnchor<T = unknown>(options: AnchorOptions<T> = {}): StreamAnchor<T> {
    const { registry } = this.open();
    checkFields('createAnchor', options, ANCHOR_FIELDS);
    const codec = codecOf(options.codec);
    const entry = registry.create(
      heartbeatInterval(options.heartbeatIntervalMs, this.options.heartbeatIntervalMs),
      unattachedTimeout(options.unattachedTimeoutMs) ?? this.options.unattachedTimeoutMs,
    );
    const anchor = new StreamAnchor<T>(entry, codec);
    this.parts.abandoned.watchAnchor(anchor, entry);
    return anchor;
  }

  /**
   * Attaches to an anchor, as its one sender. On the anchor's own node the sender writes straight to it, without a transport.
   * Rejects with `ERR_ANCHOR_NOT_FOUND` and `ERR_ALREADY_ATTACHED` (own node), `ERR_ATTACH_REFUSED` (the other node's reason),
   * `ERR_WRONG_HANDLE_KIND`, `ERR_NO_WINDOW`, `ERR_UNSUPPORTED_TRANSPORT`, `ERR_LIMIT`, `ERR_ABORTED`, `ERR_CHANNEL_CLOSED` (the
   * stream ended while its slot was being opened), `ERR_INVALID_ARGUMENT` and `ERR_BAD_HANDLE` for a handle or option that is none, and
   * what a call rejects with.
   */
  async attachAnchor<T = unknown>(
    anchor: StreamAnchorHandle,
    options: AttachStreamOptions<T> = {},
  ): Promise<StreamSender<T>> {
    const { registry, attacher, diagnostics } = this.open();
    checkFields('attachAnchor', options, ATTACH_FIELDS);
    checkSignal(options.signal);
    checkKey(options.key);
    const codec = codecOf(options.codec);
    const handle = handleOf(anchor);
    diagnostics.look();
    if (handle.worker === this.workerId) {
      const { signal } = options;
      if (signal?.aborted) throw new VeloError('ERR_ABORTED', 'attach was aborted', { cause: signal.reason });
      let outlet!: LocalOutlet<T>;
      registry.attachLocal(handle, (entry) => {
        outlet = new LocalOutlet<T>(entry, codec);
        return outlet;
      });
      return this.sender(outlet, handle);
    }
    const core = await attacher.attach(handle, options);
    const { host, mux } = this.options;
    return this.sender(new MuxOutlet<T>(core, codec, host === 'inline', mux.maxRecordBytes), handle);
  }

  private sender<T>(outlet: Outlet<T>, handle: StreamAnchorHandle): StreamSender<T> {
    const waits =
      this.parts.registry.metrics.sendsThatWaited[outlet.transport === undefined ? SCHEME_LOCAL : MESSENGER_MUX_KEY];
    const sender = new StreamSender<T>(outlet, handle, senderErrorFrame, waits);
    this.parts.abandoned.watchSender(sender, outlet);
    return sender;
  }

  /** Everything sent so far leaves now: one write per peer that has any. Returns at once, waits for nothing, never throws. */
  flushBatch(): void {
    this.parts.plane.flush();
  }

  // -- the rest

  /**
   * Every live stream of this node, in and out, as it stands: who waits for credit, who holds what back, who is slow. Lanes are asked
   * between their turns, some hundred streams at a time, so rows are of slightly different moments. Rows of a lane that died, or does
   * not answer within 2 s, are missing. Rejects with `ERR_CLOSED` only.
   */
  async streams(): Promise<StreamInfo[]> {
    return await this.open().census.take();
  }

  /** Numbers of this node, for people and tests. Counters only grow. */
  stats(): VeloStats {
    return readStats(this.node, this.parts);
  }

  /**
   * Refuses new requests from now on: their callers hear `ERR_PEER_SHUTTING_DOWN` at once, also while this thread computes. What was
   * admitted goes on, and so do streams that are open and everything this node itself calls and sends. Peers can neither say hello
   * nor attach any more, so an anchor made from here on is only of use on this node. There is no way back but `close`. Idempotent.
   *
   * @throws VeloError `ERR_CLOSED`.
   */
  beginDrain(): void {
    this.open();
    this.node.closeGate();
  }

  /**
   * Takes the node down, in phases.
   *
   * 1. Gate: as `beginDrain`. The node leaves its directory.
   * 2. Drain: waits until every request that was admitted is answered. Open streams flow on meanwhile, and are not waited for. The
   *    node can be used as before.
   * 3. Teardown: everything rejects with `ERR_CLOSED`. Requests that no handler has begun are dropped. Streams end in order: what
   *    senders had sent and finalized is written as far as readers take it, senders that are open end as dropped, and so do anchors
   *    whose sender had not finished. Then sockets are written out and closed, and calls in flight reject with `ERR_CLOSED`.
   *
   * All of it takes `timeoutMs` milliseconds: 5,000 by default, at most a day; `Infinity` lets the drain wait for ever. The teardown
   * has what the drain left, but 250 at the least, and 5,000 after a drain without a limit. A further call may shorten the time and
   * resolves with the first. A handler must not await this: it would wait for itself. Never rejects.
   */
  close(options: CloseOptions = {}): Promise<CloseReport> {
    const { shutdown } = this.parts;
    shutdown.limit(options);
    this.node.closeGate();
    this.closing ??= shutdown.run(this.membership);
    return this.closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  private open(): ControlPlane {
    if (this.parts.shutdown.tornDown) throw new VeloError('ERR_CLOSED', 'the node is closed');
    return this.parts;
  }
}
