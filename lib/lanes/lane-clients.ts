// What a lane does for its clients: streams they open and end, frames they send, records they take. It brings each wish to the machine
// that answers it, and keeps nothing but the tables whose drains a turn has found; it must never read or write a ring.

import { VeloError } from '../errors.js';
import { DrainVisits } from '../mux/drain-visits.js';
import { SLOT_CLOSED } from '../mux/egress-slot.js';
import type { IngressTable } from '../mux/ingress-table.js';
import type { MuxConfig } from '../mux/mux-config.js';
import { ENDING_DETACHED, ENDING_FINALIZED, SENDER_CLOSED, SENDER_OPEN_FAILED, SENDER_RETIRED } from '../plane/rows.js';
import { LIFECYCLE_CANCEL } from '../wire/batch.js';
import { DETACHED_BYTES, DROPPED_BYTES, FINALIZED_BYTES } from '../wire/frame.js';
import type { BatcherCare } from './batcher-care.js';
import type { ClientLink, LinkLane } from './client-link.js';
import { type OpenCommand, type PeerRoute, SELF_PEER } from './commands.js';
import type { DrainGate } from './drain-gate.js';
import { EgressStream } from './egress-stream.js';
import type { HelloSockets } from './hello-sockets.js';
import type { IngressStream } from './ingress-stream.js';
import type { LaneEvents } from './lane-events.js';
import type { LaneMetrics } from './lane-metrics.js';
import type { LanePeers } from './lane-peers.js';
import type { Liveness } from './liveness.js';
import { MessageFrame } from './message-frame.js';
import type { LaneRendezvous } from './rendezvous.js';
import { type ReportPlace, reportStreams, type StreamReport } from './stream-report.js';

/** What is needed of the lane. */
export interface ServingLane {
  readonly config: MuxConfig;
  readonly links: readonly ClientLink[];
  readonly peers: LanePeers;
  readonly gate: DrainGate;
  readonly events: LaneEvents;
  readonly laneMetrics: LaneMetrics;
  /** Staged payloads, on the lane that messages ride. */
  readonly rendezvous: LaneRendezvous | undefined;
  /** A close has begun: nothing opens any more. */
  readonly isEnding: boolean;
  now(): number;
  touch(): void;
}

export class LaneClients implements LinkLane {
  readonly rendezvous: LaneRendezvous | undefined;
  readonly events: LaneEvents;
  /** When drained tables may be looked at; the lane runs what is due. */
  readonly visits: DrainVisits<IngressTable>;
  private readonly drainedTables: IngressTable[] = [];

  constructor(
    private readonly lane: ServingLane,
    private readonly care: BatcherCare,
    private readonly liveness: Liveness,
    private readonly hellos: HelloSockets,
  ) {
    this.rendezvous = lane.rendezvous;
    this.events = lane.events;
    this.visits = new DrainVisits(lane.config.drainVisitFloorMs);
  }

  // ---- streams to peers

  kickAll(): void {
    for (const batcher of this.care.batchers) batcher.kick();
  }

  open(link: ClientLink, row: number, command: OpenCommand): void {
    const peer = this.lane.peers.at(command.peer);
    if (peer === undefined) throw new VeloError('ERR_CONDUIT_BROKEN', `open names peer ${command.peer}`);
    const batcher = peer.batcher(command.lane);
    const stream = new EgressStream(link, row, command.generation, batcher, command.credit);
    link.senders[row] = stream;
    const { anchorHi, anchorLo, sessionHi, sessionLo, credit, byteBudget } = command;
    try {
      if (this.lane.isEnding) throw new VeloError('ERR_CLOSED', 'the lane is closing');
      stream.slot = batcher.open(stream, anchorHi, anchorLo, sessionHi, sessionLo, credit, byteBudget);
      // Refused at once, it is over already.
      if (stream.slot.state !== SLOT_CLOSED) {
        this.liveness.beat(stream, command.heartbeatMs);
        this.care.opened(batcher);
      }
      link.lookForEnding(stream);
    } catch (error) {
      if (!VeloError.is(error)) throw error;
      link.dropSender(stream);
      link.flagSender(row, command.generation, SENDER_OPEN_FAILED | SENDER_CLOSED | SENDER_RETIRED);
    }
  }

  end(stream: EgressStream, ending: number): void {
    const { batcher, slot } = stream;
    if (ending === ENDING_FINALIZED) batcher.terminal(slot, FINALIZED_BYTES);
    else if (ending === ENDING_DETACHED) batcher.terminal(slot, DETACHED_BYTES);
    else batcher.terminal(slot, DROPPED_BYTES);
  }

  // ---- streams of peers

  drained(stream: IngressStream): void {
    const { slot, table } = stream;
    if (slot === undefined) return;
    table.noteDrained(slot);
    if (table.drainsNoted) return;
    table.drainsNoted = true;
    this.drainedTables.push(table);
  }

  drainsTaken(): void {
    const now = this.lane.now();
    for (const table of this.drainedTables) {
      table.drainsNoted = false;
      if (this.visits.wake(table, now) === 'visit') table.visitDrained();
    }
    this.drainedTables.length = 0;
  }

  cancelReceiver(stream: IngressStream): void {
    stream.discard();
    if (stream.slot !== undefined) stream.table.closeSlot(stream.slot);
  }

  stopReceiver(stream: IngressStream): void {
    if (stream.slot !== undefined) stream.table.requestStop(stream.slot);
  }

  reportStreams(from: ReportPlace): StreamReport {
    return reportStreams(this.lane.links, from, this.lane.now());
  }

  // ---- peers, and what the lane before this one left open with them

  peer(number: number, route: PeerRoute): void {
    this.lane.peers.learn(number, route);
  }

  cancelSlot(peer: number, lane: number, slot: number, sessionHi: number, sessionLo: number): void {
    this.lane.peers.at(peer)?.batcher(lane).control.replyLifecycle(slot, sessionHi, sessionLo, LIFECYCLE_CANCEL);
  }

  showEpoch(peer: number, lane: number): void {
    this.lane.peers.at(peer)?.batcher(lane).showEpoch();
  }

  // ---- messages

  sendFrame(link: ClientLink, token: number, peerNumber: number, bytes: Uint8Array, dataId: number): void {
    const { lane, rendezvous } = this;
    if (peerNumber === SELF_PEER) {
      rendezvous?.answerClient(link, token, bytes);
      return;
    }
    const lost = dataId === 0 ? undefined : () => rendezvous?.over(dataId);
    const frame = new MessageFrame(link, token, bytes, () => lane.touch(), lost);
    if (dataId !== 0) rendezvous?.announce(dataId, frame.slot, frame.generation);
    if (frame.awaitsAnswer) link.messages.expectAnswer(frame.slot, frame.generation);
    const peer = lane.peers.at(peerNumber);
    if (peer === undefined) frame.failed(new VeloError('ERR_UNKNOWN_PEER', `peer ${peerNumber} is not registered`));
    else {
      if (!frame.isAnswer) peer.noteMessage(bytes);
      if (peer.send(frame)) frame.admitted(undefined);
      else if (frame.isAnswer) {
        lane.gate.hold();
        frame.whenDecided = () => lane.gate.release();
      }
    }
  }

  mark(link: ClientLink, tag: number): void {
    this.lane.gate.mark(link, tag);
  }

  answerHello(token: number, frame: Uint8Array): void {
    if (!this.hellos.answer(token, frame)) this.lane.laneMetrics.drops.replyToNobody += 1;
  }
}
