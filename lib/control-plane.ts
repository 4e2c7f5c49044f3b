// The control plane of one node, wired together: who is told of what, and in which order the parts are made. It must never do the
// work of a part.

import { performance } from 'node:perf_hooks';
import { AnchorRegistry } from './control/anchor-registry.js';
import { Attacher } from './control/attach.js';
import { Calls } from './control/calls.js';
import { DataClient } from './control/data-client.js';
import { Diagnostics } from './control/diagnostics.js';
import { HelloGate } from './control/hello-gate.js';
import { Messenger } from './control/messenger.js';
import { Outbox } from './control/outbox.js';
import { type Peer, PeerBook, type Reach } from './control/peer-book.js';
import { PeerFinder } from './control/peer-finder.js';
import { Shutdown } from './control/shutdown.js';
import { Staging } from './control/staging.js';
import { StreamCensus } from './control/stream-census.js';
import { VeloError } from './errors.js';
import { ClientPlane } from './lanes/client-plane.js';
import {
  CMD_CANCEL_SLOT,
  CMD_PEER,
  CMD_SHOW_EPOCH,
  encodeText,
  MESSENGER_LANE,
  routeLane,
  routePeer,
  writeU32,
} from './lanes/commands.js';
import type { LaneHost, LaneLink } from './lanes/host.js';
import type { MessageEvents } from './lanes/message-events.js';
import { SilenceWatch } from './lanes/silence-watch.js';
import { buryCells } from './metrics/series-cells.js';
import type { MetricsSource } from './metrics/source.js';
import type { ResolvedOptions } from './options.js';
import type { ClientRows } from './plane/conduit.js';
import type { NodeBlock } from './plane/node-block.js';
import { Abandoned } from './streaming/abandoned.js';
import { u64High, u64Low } from './wire/bytes.js';
import type { PeerInfo } from './wire/peer-info.js';

export class ControlPlane {
  readonly plane: ClientPlane;
  /** Lanes that took the place of dead ones. */
  laneRestarts = 0;
  private silence: SilenceWatch | undefined;
  private silenceTimer: NodeJS.Timeout | undefined;
  readonly peers: PeerBook;
  readonly finder: PeerFinder;
  readonly staging: Staging;
  readonly outbox: Outbox;
  private readonly usesUds: boolean;
  readonly calls: Calls;
  readonly gate: HelloGate;
  readonly messenger: Messenger;
  readonly data: DataClient;
  readonly registry: AnchorRegistry;
  readonly attacher: Attacher;
  /** Here, and not with the node that the application holds: what it drops with its node must be found too. */
  readonly abandoned = new Abandoned();
  readonly shutdown: Shutdown;
  readonly diagnostics: Diagnostics;
  readonly census: StreamCensus;

  constructor(
    options: ResolvedOptions,
    host: LaneHost,
    private readonly node: NodeBlock,
    readonly peerInfo: PeerInfo,
    reach: Reach,
    rows: ClientRows,
  ) {
    this.usesUds = reach.uds;
    const { workerId } = peerInfo;
    const hi = u64High(workerId);
    const lo = u64Low(workerId);
    const events: MessageEvents = {
      frame: (type, frame, headerLength) => this.messenger.frame(type, frame, headerLength),
      hello: (frame, headerLength, socket, token) => this.messenger.hello(frame, headerLength, socket, token),
      admitted: (token, error) => this.calls.admitted(token, error),
      frameFailed: (type, responseId, error) => this.messenger.frameFailed(type, responseId, error),
      unstaged: (id) => this.staging.gone(id),
      laneDied: (lane, error) => {
        this.shutdown.markPassed(lane);
        this.census.laneDied(lane);
        // Without the lane that messages ride no answer can come, and what it staged is gone.
        if (lane !== MESSENGER_LANE) return;
        this.staging.failAll(error);
        this.calls.failAll(error);
      },
      laneBroken: (lane, error) => host.terminate(lane, error.message),
      marked: (lane) => this.shutdown.markPassed(lane),
      streams: (lane, token, report) => this.census.answered(lane, token, report),
      diagnostic: (lane, event) => this.diagnostics.fromLane(lane, event),
    };
    this.diagnostics = new Diagnostics(node, peerInfo.instanceId);
    const deferred = options.mux.flushPolicy.kind === 'manual';
    this.plane = new ClientPlane(rows, host.links, events, options.maxStreams, deferred);
    this.peers = new PeerBook(peerInfo, reach, (peer) => this.announce(peer));
    this.finder = new PeerFinder(this.peers, options.discovery);
    this.staging = new Staging(this.plane, node, workerId, options.stagedBytesMax);
    this.outbox = new Outbox(this.plane, hi, lo, this.staging);
    this.calls = new Calls(this.outbox, options.callTimeoutMs);
    this.gate = new HelloGate(this.peers, options.acceptPeer, options.allowPeers);
    this.messenger = new Messenger(
      this.calls,
      this.outbox,
      this.peers,
      this.finder,
      this.gate,
      peerInfo,
      options.requestBytes,
    );
    const { calls, messenger, staging } = this;
    this.data = new DataClient(peerInfo, staging, messenger, calls, options.stagedPayloadMax);
    const terms = {
      initialCredit: options.mux.initialCredit,
      slotByteBudget: options.mux.slotByteBudget,
      heartbeatIntervalMs: options.heartbeatIntervalMs,
      acceptWindowMs: options.acceptWindowMs,
      unattachedTimeoutMs: options.unattachedTimeoutMs,
      lanes: options.lanes,
    };
    this.registry = new AnchorRegistry(workerId, this.plane, this.peers, this.calls, terms, options.maxStreams);
    this.registry.registerHandlers(this.messenger);
    this.census = new StreamCensus(this.plane, this.registry, peerInfo.instanceId);
    this.observe();
    this.attacher = new Attacher(
      workerId,
      options.lanes,
      this.plane,
      this.messenger,
      this.calls,
      this.registry.metrics,
    );
    this.shutdown = new Shutdown(host, this.plane, this.messenger.handlers, this.registry, [
      this.finder.close.bind(this.finder),
      this.staging.failAll.bind(this.staging),
      this.calls.failAll.bind(this.calls),
      this.census.end.bind(this.census),
      () => {
        clearInterval(this.silenceTimer);
        this.diagnostics.stop();
        for (let lane = 0; lane < node.lanes; lane++) buryCells(node, lane);
      },
    ]);
    host.onLaneDeath = (lane, reason) => {
      this.silence?.ended(lane);
      buryCells(node, lane);
      this.diagnostics.laneDied(lane, reason);
      this.plane.laneDied(lane, new VeloError('ERR_LANE_DIED', `lane ${lane} of this node died: ${reason}`));
    };
    host.onLaneRestart = (lane, link) => this.laneBack(lane, link);
    host.onLaneRunning = (lane) => {
      this.laneRestarts += 1;
      this.silence?.started(lane);
      this.plane.laneRuns(lane);
      if (lane === MESSENGER_LANE) this.registry.messengerBack();
    };
    if (options.laneSilenceMs > 0 && options.host !== 'inline') this.watchLanes(host, options.laneSilenceMs);
    this.plane.start();
  }

  /** A new lane: it knows every peer before it reads a frame, and shows those of the dead one that their slots are over. */
  private laneBack(lane: number, link: LaneLink): void {
    const { routes, orphans } = this.plane.laneBack(lane, link);
    const port = this.plane.port(lane);
    for (const peer of this.peers.all()) port.command(CMD_PEER, peer.number, encodeText(JSON.stringify(peer.route)));
    for (const route of routes) {
      port.command(CMD_SHOW_EPOCH, routePeer(route), words(routeLane(route)));
    }
    for (const { slot, route, sessionHi, sessionLo } of orphans)
      port.command(CMD_CANCEL_SLOT, routePeer(route), words(routeLane(route), slot, sessionHi, sessionLo));
    if (lane === MESSENGER_LANE) this.staging.reopen();
  }

  /** Ends lanes that do nothing any more. */
  private watchLanes(host: LaneHost, boundMs: number): void {
    const silence = new SilenceWatch(boundMs, this.node.lanes, performance.now());
    this.silence = silence;
    const look = () =>
      silence.look(
        performance.now(),
        (lane) => this.node.beats(lane),
        (lane) => host.terminate(lane, `it did nothing for ${boundMs} ms (laneSilenceMs)`),
      );
    this.silenceTimer = setInterval(look, silence.intervalMs).unref();
  }

  /** Registers a peer that the directory told of, if it can be: nobody asked for it, so nobody hears of a failure. */
  welcome(info: PeerInfo): void {
    if (info.workerId === this.peerInfo.workerId) return;
    try {
      this.peers.register(info);
    } catch (error) {
      if (!VeloError.is(error)) throw error;
    }
  }

  /** Whoever observes hears what main itself refuses or gives up. */
  private observe(): void {
    const { diagnostics, gate, peers, registry } = this;
    registry.onRefused = (peer, reason) => diagnostics.refused('attach', peer, reason);
    registry.onStreamBegins = () => diagnostics.look();
    registry.onNeverOpened = ({ lane, row }, sender) => {
      const peer = peers.worker(sender)?.info.instanceId ?? String(sender);
      diagnostics.neverOpened(peer, lane, BigInt(row.identity));
    };
    gate.onRefused = (peer) => diagnostics.refused('hello', peer, 'not admitted');
  }

  metricsSource(): MetricsSource {
    const { node, messenger, calls, peers, registry, data } = this;
    return {
      cell: (cell) => node.total(cell),
      transports: this.usesUds ? ['tcp', 'uds'] : ['tcp'],
      messenger: messenger.metrics,
      streaming: registry.metrics,
      rendezvous: data.metrics,
      peers: (transport) => (transport === 'uds' ? peers.onUnixSockets : peers.size - peers.onUnixSockets),
      orderedLanes: (handler) => messenger.handlers.ordered.describe(handler),
      pendingResponses: () => calls.pending,
      responseSlotsExhausted: () => calls.slotsExhausted,
      activeAnchors: () => registry.active,
      bindsNeverOpened: () => registry.neverOpened,
      laneRestarts: () => this.laneRestarts,
      bindsReaped: () => registry.bindsReaped,
    };
  }

  /** Every lane knows a peer before anything is sent to it. */
  private announce(peer: Peer): void {
    const route = encodeText(JSON.stringify(peer.route));
    for (const port of this.plane.ports) if (port.isOpen) port.command(CMD_PEER, peer.number, route);
  }
}

/** A body of u32 numbers. */
function words(...values: number[]): Uint8Array {
  const body = new Uint8Array(4 * values.length);
  values.forEach((value, i) => {
    writeU32(body, 4 * i, value);
  });
  return body;
}
