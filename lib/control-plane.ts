// The control plane of one node, wired together: who is told of what, and in which order the parts are made. It must never do the
// work of a part.

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
import { ClientPlane, type MessageEvents } from './lanes/client-plane.js';
import { CMD_PEER, encodeText, MESSENGER_LANE } from './lanes/commands.js';
import type { LaneHost } from './lanes/host.js';
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
        this.diagnostics.stop();
        for (let lane = 0; lane < node.lanes; lane++) buryCells(node, lane);
      },
    ]);
    host.onLaneDeath = (lane, reason) => {
      buryCells(node, lane);
      this.diagnostics.laneDied(lane, reason);
      this.plane.laneDied(lane, new VeloError('ERR_LANE_DIED', `lane ${lane} of this node died: ${reason}`));
    };
    this.plane.start();
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
      bindsReaped: () => registry.bindsReaped,
    };
  }

  /** Every lane knows a peer before anything is sent to it. */
  private announce(peer: Peer): void {
    const route = encodeText(JSON.stringify(peer.route));
    for (const port of this.plane.ports) if (port.isOpen) port.command(CMD_PEER, peer.number, route);
  }
}
