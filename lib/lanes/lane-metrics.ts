// What one lane counts, and how it gets into the node's cells. Counting is an increment of a field; publishing happens once per
// turn and writes only what changed.

import { RendezvousMetrics } from '../messenger/rendezvous-metrics.js';
import { CellPublisher } from '../metrics/cells.js';
import { MuxMetrics } from '../mux/mux-metrics.js';
import type { NodeBlock } from '../plane/node-block.js';
import { type ConnectionMetrics, connectionMetrics } from './connection-metrics.js';

/** What lanes drop before any protocol machine sees it. */
export interface LaneDrops {
  /** Batches of a peer that nobody registered. */
  unknownPeer: number;
  /** Batches of a (peer, lane) whose home is another worker. */
  wrongHome: number;
  /** Staged batches, which this node does not pull yet. */
  stagedBatch: number;
  /** Requests and answers that did not decode. */
  badMessage: number;
  /** User messages refused because their client thread was busy and its queue full. */
  queueFull: number;
  /** Replies to workers that are not registered here. */
  replyToNobody: number;
  /** Requests and batches in the name of a registered peer that came from none of its hosts. Nothing was dropped. */
  spoofSuspected: number;
}

/** Transports that a lane has sockets of. */
export type TransportKey = 'tcp' | 'uds';

export class LaneMetrics {
  readonly mux = new MuxMetrics();
  readonly rendezvous = new RendezvousMetrics();
  /** By transport key. */
  readonly sockets: Readonly<Record<TransportKey, ConnectionMetrics>> = {
    tcp: connectionMetrics(),
    uds: connectionMetrics(),
  };
  readonly drops: LaneDrops = {
    unknownPeer: 0,
    wrongHome: 0,
    stagedBatch: 0,
    badMessage: 0,
    queueFull: 0,
    replyToNobody: 0,
    spoofSuspected: 0,
  };
  private readonly cells: CellPublisher;

  constructor(node: NodeBlock, lane: number) {
    this.cells = new CellPublisher(node, lane);
  }

  publish(): void {
    this.sample();
    this.cells.publish();
  }

  /** The order is that of `CELL_NAMES`. */
  private sample(): void {
    const { mux, drops, rendezvous } = this;
    const { operations, bytes } = rendezvous;
    const { tcp, uds } = this.sockets;
    const now = this.cells.values;
    let cell = 0;
    now[cell++] = mux.sent.count;
    now[cell++] = mux.received.count;
    now[cell++] = mux.sent.sum;
    now[cell++] = mux.received.sum;
    now[cell++] = mux.recordsSentData;
    now[cell++] = mux.recordsSentOpenSlot;
    now[cell++] = mux.recordsSentCloseSlot;
    now[cell++] = mux.recordsSentCreditUpdate;
    now[cell++] = mux.recordsSentLifecycle;
    now[cell++] = mux.singletons;
    now[cell++] = mux.liveSlots;
    now[cell++] = mux.heldRecords;
    now[cell++] = mux.withheldRecords;
    now[cell++] = mux.stagedRecords;
    now[cell++] = mux.creditExhausted;
    now[cell++] = mux.readerStalls;
    now[cell++] = mux.generationMismatch;
    now[cell++] = mux.droppedStaleEpoch;
    now[cell++] = mux.droppedGeneration;
    now[cell++] = mux.droppedUnknownSlot;
    now[cell++] = mux.droppedClosedSlot;
    now[cell++] = mux.droppedSlotCollision;
    now[cell++] = mux.droppedStaleSingleton;
    now[cell++] = mux.droppedDuplicate;
    now[cell++] = mux.droppedLaneMismatch;
    now[cell++] = mux.malformedBatches;
    now[cell++] = mux.controlRefused;
    now[cell++] = mux.holdOverflow;
    now[cell++] = mux.epochDeaths;
    now[cell++] = mux.creditReposted;
    now[cell++] = mux.creditLost;
    now[cell++] = mux.batchSeqGaps;
    now[cell++] = mux.drainVisits;
    now[cell++] = mux.wakesOpen;
    now[cell++] = mux.wakesControl;
    now[cell++] = mux.wakesFrame;
    now[cell++] = mux.wakesInletClosed;
    now[cell++] = mux.wakesLinger;
    now[cell++] = drops.unknownPeer;
    now[cell++] = drops.wrongHome;
    now[cell++] = drops.stagedBatch;
    now[cell++] = drops.badMessage;
    now[cell++] = drops.queueFull;
    now[cell++] = drops.replyToNobody;
    now[cell++] = tcp.writes + uds.writes;
    now[cell++] = tcp.sendBackpressure + uds.sendBackpressure;
    now[cell++] = tcp.sendErrors + uds.sendErrors;
    now[cell++] = tcp.decodeErrors + uds.decodeErrors;
    now[cell++] = tcp.handlerErrors + uds.handlerErrors;
    now[cell++] = tcp.connectFailures + uds.connectFailures;
    now[cell++] = tcp.connectionsOpened + uds.connectionsOpened;
    now[cell++] = tcp.connectionsClosed + uds.connectionsClosed;
    now[cell++] = tcp.inboundRefused + uds.inboundRefused;
    now[cell++] = drops.spoofSuspected;
    now[cell++] = operations.register.success.count;
    now[cell++] = operations.get.success.count;
    now[cell++] = operations.get.error.count;
    now[cell++] = operations.detach.success.count;
    now[cell++] = operations.release.success.count;
    now[cell++] = bytes.register;
    now[cell++] = bytes.get;
    now[cell++] = rendezvous.activeSlots;
    now[cell++] = rendezvous.activeBytes;
    now[cell++] = rendezvous.reapedLeases;
    now[cell++] = rendezvous.expiredSlots;
    now[cell++] = rendezvous.badLeases;
    now[cell++] = tcp.writeBackDropped + uds.writeBackDropped;
    now[cell++] = tcp.drainRejected + uds.drainRejected;
  }
}
