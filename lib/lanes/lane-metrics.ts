// What one lane counts, and how it gets into the node's cells. Counting is an increment of a field; publishing happens once per
// turn, or a moment later for what only a scrape reads, and writes only what changed.

import { CELL_NAMES, CellPublisher } from '../metrics/cells.js';
import { RENDEZVOUS_OPERATIONS, RendezvousMetrics } from '../metrics/rendezvous-metrics.js';
import {
  BATCH_BUCKETS_RECEIVED,
  BATCH_BUCKETS_SENT,
  BATCH_WAIT_CELLS,
  CELL_COUNT,
  CellGroup,
  DIAGNOSTICS_DROPPED,
  FRAME_TYPES,
  MESSAGES_ENDED,
  MESSAGES_UNDECODED,
  RENDEZVOUS_CELLS,
  RENDEZVOUS_CELLS_END,
  TRANSPORT_CELLS,
  TRANSPORTS,
  type TransportKey,
  writeArray,
  writeHistogram,
} from '../metrics/series-cells.js';
import { type BatchSizes, MuxMetrics } from '../mux/mux-metrics.js';
import type { NodeBlock } from '../plane/node-block.js';
import { FRAME_MESSAGE } from '../wire/transport-frame.js';
import { BatchWaits } from './batch-waits.js';
import { type ConnectionMetrics, connectionMetrics } from './connection-metrics.js';

export type { TransportKey };

/** What lanes drop before any protocol machine sees it. */
export interface LaneDrops {
  /** Batches of a peer that nobody registered, and its messages to what this node stages. */
  unknownPeer: number;
  /** Batches of a (peer, lane) whose home is another worker. */
  wrongHome: number;
  /** Staged batches that did not come: too large, not to be had, not in time, or too many wait. */
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

/** How far behind a scrape may be. */
const PUBLISH_SOON_MS = 20;

export class LaneMetrics {
  readonly mux = new MuxMetrics();
  readonly rendezvous = new RendezvousMetrics();
  /** By transport key. */
  readonly sockets: Readonly<Record<TransportKey, ConnectionMetrics>> = {
    tcp: connectionMetrics(() => this.publishSoon()),
    uds: connectionMetrics(() => this.publishSoon()),
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
  readonly batchWaits = new BatchWaits();
  /** Events that main was not told of, because it had not taken those before. */
  diagnosticsDropped = 0;
  /** Messages handed on to client threads. */
  messagesToClients = 0;
  /** Messages that did not decode; part of `drops.badMessage`. */
  messagesUndecoded = 0;
  private readonly cells: CellPublisher;
  private readonly groups: readonly CellGroup[];
  private publishing = false;
  private stopped = false;
  private rendezvousSeen = 0;

  constructor(node: NodeBlock, lane: number) {
    this.cells = new CellPublisher(node, lane, CELL_COUNT);
    this.groups = [
      ...TRANSPORTS.flatMap((transport) => this.socketGroups(transport)),
      this.batchGroup(BATCH_BUCKETS_SENT, this.mux.sent),
      this.batchGroup(BATCH_BUCKETS_RECEIVED, this.mux.received),
      this.rendezvousGroup(),
      ...BATCH_WAIT_CELLS.map((first, lane) => this.batchWaitGroup(first, lane)),
    ];
  }

  /** What `stats()` shows. Once per turn. */
  publish(): void {
    if (this.stopped) return;
    this.sample();
    this.cells.publish(0, CELL_NAMES.length);
    // What main registers moves no socket.
    if (this.rendezvous.total !== this.rendezvousSeen) this.publishSoon();
  }

  /** The rest too. A scrape is rare and a turn is not, so this is done a moment after something moved, and at the end. */
  publishAll(): void {
    this.publish();
    const { values } = this.cells;
    const { tcp, uds } = this.sockets;
    values[MESSAGES_ENDED] = messagesAccepted(tcp) + messagesAccepted(uds) - this.messagesToClients;
    values[MESSAGES_UNDECODED] = this.messagesUndecoded;
    this.cells.publish(MESSAGES_ENDED, MESSAGES_UNDECODED + 1);
    values[DIAGNOSTICS_DROPPED] = this.diagnosticsDropped;
    this.cells.publish(DIAGNOSTICS_DROPPED, DIAGNOSTICS_DROPPED + 1);
    this.rendezvousSeen = this.rendezvous.total;
    for (const group of this.groups) group.publish();
  }

  /** The lane is gone, and its cells may be another one's: nothing is written any more. */
  stop(): void {
    this.publishing = true;
    this.stopped = true;
  }

  /** An event for subscribers was left out. */
  diagnosticLeftOut(): void {
    this.diagnosticsDropped += 1;
    this.publishSoon();
  }

  private publishSoon(): void {
    if (this.publishing) return;
    this.publishing = true;
    setTimeout(() => {
      if (this.stopped) return;
      this.publishing = false;
      this.publishAll();
    }, PUBLISH_SOON_MS).unref();
  }

  private socketGroups(transport: TransportKey): CellGroup[] {
    const sockets = this.sockets[transport];
    const at = TRANSPORT_CELLS[transport];
    const { writeSeconds, queueWaitSeconds } = sockets;
    const counters = new CellGroup(
      this.cells,
      at.framesSent,
      at.dialed + 1,
      () => socketStamp(sockets),
      (values) => {
        writeArray(values, at.framesSent, sockets.framesSent);
        writeArray(values, at.framesWritten, sockets.framesWritten);
        writeArray(values, at.bytesSent, sockets.bytesSent);
        writeArray(values, at.framesReceived, sockets.framesReceived);
        values[at.framesReceived + FRAME_MESSAGE] = messagesAccepted(sockets);
        writeArray(values, at.bytesReceived, sockets.bytesReceived);
        values[at.bytesReceived + FRAME_MESSAGE]! -= sockets.drainRejectedBytes;
        values[at.sendBackpressure] = sockets.sendBackpressure;
        values[at.sendErrors] = sockets.sendErrors;
        values[at.decodeErrors] = sockets.decodeErrors;
        values[at.drainRejected] = sockets.drainRejected;
        values[at.routeFailures] = sockets.handlerErrors;
        values[at.dialed] = sockets.dialed;
      },
    );
    const times = new CellGroup(
      this.cells,
      at.writeSeconds,
      at.queueWaitSeconds + queueWaitSeconds.buckets.length + 1,
      () => writeSeconds.count + queueWaitSeconds.count,
      (values) => {
        writeHistogram(values, at.writeSeconds, writeSeconds);
        writeHistogram(values, at.queueWaitSeconds, queueWaitSeconds);
      },
    );
    return [counters, times];
  }

  private batchGroup(first: number, sizes: BatchSizes): CellGroup {
    return new CellGroup(
      this.cells,
      first,
      first + sizes.buckets.length,
      () => sizes.count,
      (values) => writeArray(values, first, sizes.buckets),
    );
  }

  private batchWaitGroup(first: number, lane: number): CellGroup {
    const waits = this.batchWaits.byLane[lane]!;
    return new CellGroup(
      this.cells,
      first,
      first + waits.buckets.length + 1,
      () => waits.count,
      (values) => writeHistogram(values, first, waits),
    );
  }

  private rendezvousGroup(): CellGroup {
    const { rendezvous } = this;
    return new CellGroup(
      this.cells,
      RENDEZVOUS_CELLS.register.success,
      RENDEZVOUS_CELLS_END,
      () => rendezvous.total,
      (values) => {
        for (const operation of RENDEZVOUS_OPERATIONS) {
          const at = RENDEZVOUS_CELLS[operation];
          writeHistogram(values, at.success, rendezvous.operations[operation].success);
          writeHistogram(values, at.error, rendezvous.operations[operation].error);
        }
      },
    );
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
    now[cell++] = mux.watchdogFirings;
  }
}

/** Messages that this node did not refuse because it drains. */
function messagesAccepted(sockets: ConnectionMetrics): number {
  return sockets.framesReceived[FRAME_MESSAGE]! - sockets.drainRejected;
}

/** Whatever happens to a connection moves one of these, and bytes move with their frames. */
function socketStamp(sockets: ConnectionMetrics): number {
  const { framesSent, framesWritten, framesReceived } = sockets;
  let sum = sockets.sendBackpressure + sockets.sendErrors + sockets.decodeErrors;
  sum += sockets.handlerErrors + sockets.drainRejected + sockets.connectionsOpened + sockets.connectionsClosed;
  for (let type = 0; type < FRAME_TYPES; type++)
    sum += framesSent[type]! + framesWritten[type]! + framesReceived[type]!;
  return sum;
}
