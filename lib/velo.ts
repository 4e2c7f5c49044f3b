// A node: it puts lanes, control plane and streams together, and takes them down again in order.

import { randomBytes } from 'node:crypto';
import { networkInterfaces } from 'node:os';
import { AnchorRegistry } from './control/anchor-registry.js';
import { Attacher, type AttachOptions } from './control/attach.js';
import { type CallOptions, Calls, type SendOptions } from './control/calls.js';
import { Messenger } from './control/messenger.js';
import { type Peer, PeerBook, type PeerTarget } from './control/peer-book.js';
import { type CloseOptions, type CloseReport, Shutdown } from './control/shutdown.js';
import { VeloError } from './errors.js';
import { ClientPlane, type MessageEvents } from './lanes/client-plane.js';
import { CMD_PEER, encodeText } from './lanes/commands.js';
import type { LaneHost, LaneOptions } from './lanes/host.js';
import { startInlineHost } from './lanes/inline-host.js';
import { startThreadHost } from './lanes/thread-hosts.js';
import type { MessageHandler } from './messenger/handlers.js';
import { CELL_NAMES, type CellTotals, readTotals } from './metrics/cells.js';
import { heartbeatInterval, type ResolvedOptions, resolveOptions, rowsFor, type VeloOptions } from './options.js';
import { ClientRows, createClientRows } from './plane/conduit.js';
import { createNodeBlock, NodeBlock } from './plane/node-block.js';
import { LocalOutlet } from './streaming/local-outlet.js';
import { MuxOutlet } from './streaming/mux-outlet.js';
import { StreamAnchor } from './streaming/stream-anchor.js';
import { StreamSender } from './streaming/stream-sender.js';
import { encodeLanePorts, encodeTcpEndpoints, encodeWorkerAddress, type TcpEndpoint } from './wire/address.js';
import { u64High, u64Low } from './wire/bytes.js';
import { type ItemCodec, msgpackCodec } from './wire/codec.js';
import { senderErrorFrame } from './wire/frame.js';
import type { StreamAnchorHandle } from './wire/handle.js';
import { ADDRESS_KEY_LANES, ADDRESS_KEY_TCP } from './wire/names.js';
import { PeerInfo } from './wire/peer-info.js';
import { generateInstanceId, workerIdOf } from './wire/worker-id.js';

const IPV4_PREFIX = 32;
const IPV6_PREFIX = 128;

export interface AnchorOptions<T> {
  /** How items become bytes. Default: MessagePack of any value. Both ends must agree. */
  codec?: ItemCodec<T> | undefined;
  /** Advertised to the sender, in milliseconds. Default: the node's. */
  heartbeatIntervalMs?: number | undefined;
}

export interface AttachStreamOptions<T> extends AttachOptions {
  /** How items become bytes. Default: MessagePack of any value. Both ends must agree. */
  codec?: ItemCodec<T> | undefined;
}

/** A snapshot of a node's numbers, summed over its lanes. */
export interface VeloStats extends CellTotals {
  /** Records written, by type. */
  recordsSent: { data: number; openSlot: number; closeSlot: number; creditUpdate: number; lifecycle: number };
  /** Attaches from other nodes that were accepted, by transport key. */
  attaches: Readonly<Record<string, number>>;
  /** Anchors that exist, senders that are open, calls in flight, peers known. */
  anchors: number;
  senders: number;
  pendingCalls: number;
  peers: number;
}

/**
 * A node that holds token streams to other nodes. See the README for a first program.
 *
 * Everything that waits takes an `AbortSignal` where it says so; everything that is owned is an `AsyncDisposable`.
 */
export class Velo implements AsyncDisposable {
  /** Who this node is and how it is reached: give it to peers. */
  readonly peerInfo: PeerInfo;
  private closing: Promise<CloseReport> | undefined;

  private constructor(
    private readonly options: ResolvedOptions,
    private readonly node: NodeBlock,
    private readonly parts: NodeParts,
  ) {
    this.peerInfo = parts.peerInfo;
  }

  /**
   * Starts a node: its lanes, its listeners.
   *
   * @throws VeloError `ERR_INVALID_ARGUMENT` (names the option), `ERR_LISTEN_FAILED` (port in use), `ERR_WORKER_FILE`.
   */
  static async create(options: VeloOptions = {}): Promise<Velo> {
    const resolved = resolveOptions(options);
    const instanceId = generateInstanceId((length) => randomBytes(length));
    const workerId = workerIdOf(instanceId);
    const sizes = { ringBytes: resolved.ringBytes, rows: rowsFor(resolved.maxStreams) };
    const nodeBlock = createNodeBlock(resolved.lanes, CELL_NAMES.length);
    const rows = createClientRows(sizes);
    const lanes: LaneOptions[] = Array.from({ length: resolved.lanes }, (_, lane) => ({
      lane,
      lanes: resolved.lanes,
      workerHi: u64High(workerId),
      workerLo: u64Low(workerId),
      bindAddress: resolved.bindAddress,
      port: lane === 0 ? resolved.port : 0,
      mux: resolved.mux,
      sizes,
      maxInboundConnections: resolved.maxInboundConnections,
      connectionQueueBytes: resolved.connectionQueueBytes,
      connectTimeoutMs: resolved.connectTimeoutMs,
      messageQueueBytes: resolved.messageQueueBytes,
      lookAgainMs: resolved.mux.flushPolicy.kind === 'auto' ? resolved.lookAgainMs : 0,
    }));
    const host =
      resolved.host === 'inline'
        ? await startInlineHost(lanes, nodeBlock, rows)
        : await startThreadHost(resolved.host, lanes, nodeBlock, rows, resolved.worker);
    const ports = host.links.map((link) => link.port);
    const peerInfo = new PeerInfo(instanceId, ownAddress(resolved.bindAddress, ports));
    const parts = new NodeParts(resolved, host, peerInfo, new ClientRows(rows, sizes));
    return new Velo(resolved, new NodeBlock(nodeBlock), parts);
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
   * @throws VeloError `ERR_INVALID_ARGUMENT` for an empty name or one that starts with `_`.
   */
  registerHandler(name: string, handler: MessageHandler): void {
    this.open().messenger.register(name, handler);
  }

  /** Sends a message that nobody answers. Resolves once the connection took it. */
  async send(target: PeerTarget, handler: string, payload?: Uint8Array, options?: SendOptions): Promise<void> {
    await this.open().messenger.send(target, handler, payload, options);
  }

  /** Sends a message and resolves when the peer's handler is done; rejects with `ERR_HANDLER_FAILED` when it threw. */
  async sync(target: PeerTarget, handler: string, payload?: Uint8Array, options?: CallOptions): Promise<void> {
    await this.open().messenger.sync(target, handler, payload, options);
  }

  /**
   * Calls a peer's handler: bytes in, bytes out. Rejects with `ERR_UNKNOWN_PEER`, `ERR_UNKNOWN_HANDLER`, `ERR_HANDLER_FAILED`,
   * `ERR_TIMEOUT`, `ERR_ABORTED`, `ERR_CONNECT_FAILED`, `ERR_CONNECTION_CLOSED`, `ERR_PEER_SHUTTING_DOWN`, `ERR_FRAME_TOO_LARGE`,
   * `ERR_LIMIT`, `ERR_RESPONSE_SLOTS_EXHAUSTED`, `ERR_LANE_DIED`, `ERR_CLOSED`.
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

  // -- streams

  /**
   * Makes an anchor: the consumer's end of a stream. Give its `handle` to the producer.
   *
   * @throws VeloError `ERR_LIMIT` above `maxStreams`, `ERR_INVALID_ARGUMENT` for an interval out of range.
   */
  createAnchor<T = unknown>(options: AnchorOptions<T> = {}): StreamAnchor<T> {
    const { registry } = this.open();
    const entry = registry.create(heartbeatInterval(options.heartbeatIntervalMs, this.options.heartbeatIntervalMs));
    return new StreamAnchor<T>(entry, options.codec ?? msgpackCodec<T>());
  }

  /**
   * Attaches to an anchor, as its one sender. On the anchor's own node the sender writes straight to it, without a transport.
   * Rejects with `ERR_ANCHOR_NOT_FOUND` and `ERR_ALREADY_ATTACHED` (own node), `ERR_ATTACH_REFUSED` (the other node's reason),
   * `ERR_WRONG_HANDLE_KIND`, `ERR_NO_WINDOW`, `ERR_UNSUPPORTED_TRANSPORT`, `ERR_LIMIT`, `ERR_ABORTED`, `ERR_CHANNEL_CLOSED` (the
   * stream ended while its slot was being opened), and what a call rejects with.
   */
  async attachAnchor<T = unknown>(
    handle: StreamAnchorHandle,
    options: AttachStreamOptions<T> = {},
  ): Promise<StreamSender<T>> {
    const { registry, attacher } = this.open();
    const codec = options.codec ?? msgpackCodec<T>();
    if (handle.worker === this.workerId) {
      const { signal } = options;
      if (signal?.aborted) throw new VeloError('ERR_ABORTED', 'attach was aborted', { cause: signal.reason });
      let outlet!: LocalOutlet<T>;
      registry.attachLocal(handle, (entry) => {
        outlet = new LocalOutlet<T>(entry, codec);
        return outlet;
      });
      return new StreamSender<T>(outlet, handle, senderErrorFrame);
    }
    const core = await attacher.attach(handle, options);
    return new StreamSender<T>(new MuxOutlet<T>(core, codec, this.options.host === 'inline'), handle, senderErrorFrame);
  }

  /** Everything sent so far leaves now: one write per peer that has any. Returns at once, waits for nothing, never throws. */
  flushBatch(): void {
    this.parts.plane.flush();
  }

  // -- the rest

  /** Numbers of this node, for people and tests. Counters only grow. */
  stats(): VeloStats {
    const totals = readTotals(this.node);
    const { registry, plane, calls, peers } = this.parts;
    return {
      ...totals,
      recordsSent: {
        data: totals.recordsSentData,
        openSlot: totals.recordsSentOpenSlot,
        closeSlot: totals.recordsSentCloseSlot,
        creditUpdate: totals.recordsSentCreditUpdate,
        lifecycle: totals.recordsSentLifecycle,
      },
      attaches: { ...registry.attaches },
      anchors: registry.active,
      senders: plane.liveRows.senders,
      pendingCalls: calls.pending,
      peers: peers.size,
    };
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
   * 1. Gate: as `beginDrain`.
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
    this.closing ??= shutdown.run();
    return this.closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  private open(): NodeParts {
    if (this.parts.shutdown.tornDown) throw new VeloError('ERR_CLOSED', 'the node is closed');
    return this.parts;
  }
}

/** The control plane of one node, wired together. */
class NodeParts {
  readonly plane: ClientPlane;
  readonly peers: PeerBook;
  readonly calls: Calls;
  readonly messenger: Messenger;
  readonly registry: AnchorRegistry;
  readonly attacher: Attacher;
  readonly shutdown: Shutdown;

  constructor(
    options: ResolvedOptions,
    host: LaneHost,
    readonly peerInfo: PeerInfo,
    rows: ClientRows,
  ) {
    const { workerId } = peerInfo;
    const hi = u64High(workerId);
    const lo = u64Low(workerId);
    const events: MessageEvents = {
      frame: (type, frame, headerLength) => this.messenger.frame(type, frame, headerLength),
      admitted: (token, error) => this.calls.admitted(token, error),
      frameFailed: (type, responseId, error) => this.messenger.frameFailed(type, responseId, error),
      laneDied: (lane, error) => {
        // Messages ride lane 0: without it no answer can come.
        if (lane === 0) this.calls.failAll(error);
        this.shutdown.markPassed(lane);
      },
      marked: (lane) => this.shutdown.markPassed(lane),
    };
    const deferred = options.mux.flushPolicy.kind === 'manual';
    this.plane = new ClientPlane(rows, host.links, events, options.maxStreams, deferred);
    this.peers = new PeerBook(peerInfo, (peer) => this.announce(peer));
    this.calls = new Calls(this.plane, hi, lo, options.callTimeoutMs);
    this.messenger = new Messenger(this.calls, this.peers, peerInfo, hi, lo);
    const terms = {
      initialCredit: options.mux.initialCredit,
      slotByteBudget: options.mux.slotByteBudget,
      heartbeatIntervalMs: options.heartbeatIntervalMs,
      lanes: options.lanes,
    };
    this.registry = new AnchorRegistry(workerId, this.plane, this.peers, this.calls, terms, options.maxStreams);
    this.registry.registerHandlers(this.messenger);
    this.attacher = new Attacher(workerId, options.lanes, this.plane, this.peers, this.messenger, this.calls);
    this.shutdown = new Shutdown(host, this.plane, this.messenger.handlers, this.registry, this.calls);
    host.onLaneDeath = (lane, reason) =>
      this.plane.laneDied(lane, new VeloError('ERR_LANE_DIED', `lane ${lane} of this node died: ${reason}`));
    this.plane.start();
  }

  /** Every lane knows a peer before anything is sent to it. */
  private announce(peer: Peer): void {
    const route = encodeText(JSON.stringify(peer.route));
    for (const port of this.plane.ports) if (port.isOpen) port.command(CMD_PEER, peer.number, route);
  }
}

/** The address peers dial: lane 0 as the plain `tcp` entry, every lane's port beside it. */
function ownAddress(bindAddress: string, ports: readonly number[]): Uint8Array {
  const port = ports[0]!;
  return encodeWorkerAddress([
    [ADDRESS_KEY_TCP, encodeTcpEndpoints(ownEndpoints(bindAddress, port))],
    [ADDRESS_KEY_LANES, encodeLanePorts(ports)],
  ]);
}

function ownEndpoints(bindAddress: string, port: number): TcpEndpoint[] {
  const wildcard = bindAddress === '0.0.0.0' || bindAddress === '::';
  if (!wildcard) {
    const prefixLength = bindAddress.includes(':') ? IPV6_PREFIX : IPV4_PREFIX;
    return [{ name: '', host: bindAddress, port, prefixLength, numaNode: null }];
  }
  const family = bindAddress === '::' ? 'IPv6' : 'IPv4';
  const endpoints: TcpEndpoint[] = [];
  for (const [name, addresses] of Object.entries(networkInterfaces())) {
    for (const address of addresses ?? []) {
      if (address.family !== family || address.internal || address.address.startsWith('fe80:')) continue;
      const prefixLength = Number(address.cidr?.split('/')[1] ?? IPV4_PREFIX);
      endpoints.push({ name, host: address.address, port, prefixLength, numaNode: null });
    }
  }
  if (endpoints.length > 0) return endpoints;
  const loopback = family === 'IPv6' ? '::1' : '127.0.0.1';
  return [{ name: 'lo', host: loopback, port, prefixLength: family === 'IPv6' ? IPV6_PREFIX : 8, numaNode: null }];
}
