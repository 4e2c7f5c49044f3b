// Where an inbound frame goes: a batch to its ingress table, a cancel or stop to the sender row it names, an answer to the thread
// that waits for it, everything else to the client. What a busy client could not answer in time is answered here.

import { VeloError } from '../errors.js';
import { LANE_FULL_TEXT, NO_RESOLVER_TEXT, type ReplyPlan } from '../messenger/dispatch-plan.js';
import { type InboundBatch, InboundClassifier, type InboundRequest } from '../messenger/inbound-message.js';
import { encodeReply } from '../messenger/replies.js';
import { ORIGIN_FIRST_WORKER } from '../messenger/response-origin.js';
import { isForLane } from '../mux/ingress-table.js';
import type { MuxMetrics } from '../mux/mux-metrics.js';
import { SENDER_CANCELLED, SENDER_STOPPED } from '../plane/rows.js';
import { batchLaneOf, RESPONSE_NONE, RESPONSE_TYPE_OFFSET, type RequestEnvelope } from '../wire/envelope.js';
import { parseJson } from '../wire/json.js';
import { JsonFields } from '../wire/json-fields.js';
import { MAX_CONTROL_BYTES } from '../wire/message-codec.js';
import { type MuxSlotName, parseMuxSlot } from '../wire/mux-slot.js';
import {
  HANDLER_HELLO,
  HANDLER_STREAM_CANCEL,
  HANDLER_STREAM_STOP,
  HEADER_MUX_SLOT,
  HEADER_RENDEZVOUS,
  isSystemHandler,
} from '../wire/names.js';
import { FRAME_MESSAGE } from '../wire/transport-frame.js';
import type { ClientLink } from './client-link.js';
import { parseRowIdentity } from './commands.js';
import type { DrainGate } from './drain-gate.js';
import type { FrameSource, IntakeHooks } from './frame-intake.js';
import { HelloSockets } from './hello-sockets.js';
import type { LaneDrops, LaneMetrics } from './lane-metrics.js';
import { MessageFrame } from './message-frame.js';
import type { PeerLink } from './peer-link.js';
import type { LaneRendezvous } from './rendezvous.js';
import type { StagedBatches } from './staged-batches.js';
import { Suspicion } from './suspicion.js';

/** What the router needs from its lane. */
export interface RouterLane {
  readonly lane: number;
  /** Which lane of that number this is. */
  readonly life: number;
  readonly workerHi: number;
  readonly workerLo: number;
  readonly links: readonly ClientLink[];
  readonly laneCount: number;
  readonly metrics: MuxMetrics;
  readonly laneMetrics: LaneMetrics;
  beforeFrames(): void;
  endTurn(): void;
  guard(turn: () => void): void;
  touch(): void;
}

/** Requests go to the client thread that made the node. */
const MAIN_THREAD = 0;
const NO_BYTES = new Uint8Array(0);

export class InboundRouter {
  readonly hooks: IntakeHooks;
  /** Hellos that the client thread has not answered yet. */
  readonly hellos: HelloSockets;
  private readonly classifier: InboundClassifier;
  private readonly peers = new Map<number, PeerLink[]>();
  private lastPeer: PeerLink | undefined;
  private readonly suspicion: Suspicion;
  /** Staged payloads, on the lane that messages ride. */
  rendezvous: LaneRendezvous | undefined;
  /** Batches of this lane's streams that come as a handle. */
  stagedBatches!: Pick<StagedBatches, 'accept'>;

  constructor(
    private readonly lane: RouterLane,
    private readonly drops: LaneDrops,
    private readonly gate: DrainGate,
  ) {
    this.classifier = new InboundClassifier(lane.workerHi, lane.workerLo);
    this.hellos = new HelloSockets(lane.life);
    this.suspicion = new Suspicion(drops);
    this.hooks = {
      onReadable: () => {
        lane.laneMetrics.batchWaits.arrived();
        lane.guard(() => lane.beforeFrames());
      },
      onChunkEnd: () => lane.guard(() => lane.endTurn()),
      // Not guarded: what a peer's bytes may still upset costs that peer its connection, never the lane.
      onFrame: (type, buffer, headerAt, headerLength, payloadAt, payloadLength, source) =>
        this.onFrame(type, buffer, headerAt, headerLength, payloadAt, payloadLength, source),
    };
  }

  addPeer(peer: PeerLink): void {
    const same = this.peers.get(peer.workerLo);
    if (same === undefined) this.peers.set(peer.workerLo, [peer]);
    else same.push(peer);
  }

  peerOf(hi: number, lo: number): PeerLink | undefined {
    const last = this.lastPeer;
    if (last !== undefined && last.workerLo === lo && last.workerHi === hi) return last;
    const peer = this.peers.get(lo)?.find((candidate) => candidate.workerHi === hi);
    if (peer !== undefined) this.lastPeer = peer;
    return peer;
  }

  private onFrame(
    type: number,
    buffer: Uint8Array,
    headerAt: number,
    headerLength: number,
    payloadAt: number,
    payloadLength: number,
    source: FrameSource,
  ): void {
    if (type === FRAME_MESSAGE && !this.gate.admits(buffer, headerAt, headerLength, payloadLength, source)) return;
    const message = this.classifier.classify(type, buffer, headerAt, headerLength, payloadAt, payloadLength);
    if (message === undefined) {
      this.drops.badMessage += 1;
      if (type === FRAME_MESSAGE) this.lane.laneMetrics.messagesUndecoded += 1;
      return;
    }
    switch (message.kind) {
      case 'batch':
        this.onBatch(message, buffer, source);
        return;
      case 'request':
        this.onRequest(message, type, buffer, headerAt, headerLength, source);
        return;
      case 'answer':
      case 'refused': {
        if (message.origin >= ORIGIN_FIRST_WORKER) {
          // The refusal of a batch comes here too, and has nobody who waits.
          if (!this.rendezvous?.ended(message, buffer)) this.drops.badMessage += 1;
          return;
        }
        this.rendezvous?.requestEnded(message.slot, message.generation);
        // Nobody waits for a message without an answer, so nobody needs to hear that it was refused.
        if (message.kind === 'refused' && buffer[headerAt + RESPONSE_TYPE_OFFSET] === RESPONSE_NONE) return;
        const link = this.lane.links[message.origin];
        // Only an answer to a call that is out: nobody else may fill a client's queue in the name of answers.
        if (!link?.messages.takeExpected(message.slot, message.generation)) this.drops.badMessage += 1;
        else
          link.messages.frame(
            type,
            whole(buffer, headerAt, headerLength, payloadAt, payloadLength),
            headerLength,
            true,
          );
        return;
      }
      default: {
        const never: never = message;
        throw new VeloError('ERR_INTERNAL', `unknown message ${String(never)}`);
      }
    }
  }

  private onBatch(batch: InboundBatch, buffer: Uint8Array, source: FrameSource): void {
    const peer = this.peerOf(batch.senderHi, batch.senderLo);
    if (peer !== undefined) this.suspicion.note(peer, source);
    if (!this.isHomeOf(peer, batch.lane)) return;
    this.handleBatch(peer, batch.lane, buffer, batch.payloadOffset, batch.payloadOffset + batch.payloadLength);
  }

  /** Counts a batch that does not belong here. */
  private isHomeOf(peer: PeerLink | undefined, lane: number): peer is PeerLink {
    if (peer === undefined) this.drops.unknownPeer += 1;
    else if (peer.homeOf(lane, this.lane.laneCount) !== this.lane.lane) this.drops.wrongHome += 1;
    else return true;
    return false;
  }

  private handleBatch(
    peer: PeerLink,
    lane: number,
    buffer: Uint8Array,
    start: number,
    end: number,
    arrivedAt?: number,
  ): void {
    this.lane.laneMetrics.batchWaits.turn(lane, arrivedAt);
    if (isForLane(buffer, start, end, lane, this.lane.metrics)) peer.table(lane).handleBatch(buffer, start, end);
  }

  /** A batch with headers: its payload is staged, or its sender adds headers to everything. */
  private onBatchRequest(
    { envelope, payloadOffset, payloadLength }: InboundRequest,
    lane: number,
    buffer: Uint8Array,
    peer: PeerLink | undefined,
  ): void {
    if (!this.isHomeOf(peer, lane)) return;
    if (!envelope.headers?.has(HEADER_RENDEZVOUS)) {
      this.handleBatch(peer, lane, buffer, payloadOffset, payloadOffset + payloadLength);
      return;
    }
    const { arrivedAt } = this.lane.laneMetrics.batchWaits;
    const deliver = (bytes: Uint8Array) => this.handleBatch(peer, lane, bytes, 0, bytes.length, arrivedAt);
    const name = envelope.headers.get(HEADER_MUX_SLOT);
    const stream = name === undefined ? undefined : parseMuxSlot(name);
    const badName = name !== undefined && stream === undefined;
    const refuse = (text: string) => this.refuseStaged(stream, badName, peer, lane, text);
    this.stagedBatches.accept(envelope, peer, deliver, refuse);
  }

  /** A staged batch does not come: the stream that it names ends, instead of waiting for its record until the watchdog ends it. */
  private refuseStaged(
    stream: MuxSlotName | undefined,
    badName: boolean,
    peer: PeerLink,
    lane: number,
    text: string,
  ): void {
    this.drops.stagedBatch += 1;
    if (badName) this.drops.badMessage += 1;
    if (stream !== undefined) peer.table(lane).refuseStaged(stream, `a staged record was refused: ${text}`);
  }

  private onRequest(
    request: InboundRequest,
    type: number,
    buffer: Uint8Array,
    headerAt: number,
    headerLength: number,
    source: FrameSource,
  ): void {
    const { envelope, payloadOffset, payloadLength } = request;
    const sender = this.peerOf(envelope.id.workerHi, envelope.id.workerLo);
    if (sender !== undefined) this.suspicion.note(sender, source);
    const batchLane = batchLaneOf(buffer, headerAt, headerLength);
    if (batchLane >= 0) {
      this.onBatchRequest(request, batchLane, buffer, sender);
      return;
    }
    if (isSystemHandler(envelope.handler) && !this.admitsControl(request, source)) return;
    if (envelope.handler === HANDLER_STREAM_CANCEL || envelope.handler === HANDLER_STREAM_STOP) {
      const flag = envelope.handler === HANDLER_STREAM_CANCEL ? SENDER_CANCELLED : SENDER_STOPPED;
      this.flagSender(buffer, payloadOffset, payloadLength, flag);
      return;
    }
    if (this.rendezvous?.serves(envelope.handler)) {
      this.serve(this.rendezvous, request, buffer);
      return;
    }
    if (envelope.headers?.has(HEADER_RENDEZVOUS)) {
      if (this.rendezvous === undefined) this.nack(envelope, NO_RESOLVER_TEXT);
      else this.rendezvous.resolve(envelope, buffer, headerAt, headerLength, this.lane.links[MAIN_THREAD]!);
      return;
    }
    const frame = whole(buffer, headerAt, headerLength, payloadOffset, payloadLength);
    if (envelope.handler === HANDLER_HELLO) {
      const token = this.hellos.hold(source);
      if (this.lane.links[MAIN_THREAD]!.messages.hello(token, { ends: source.ends, headerLength, frame })) {
        this.lane.laneMetrics.messagesToClients += 1;
        return;
      }
      this.hellos.answer(token, NO_BYTES);
      this.drops.queueFull += 1;
      this.answerOn(source, request, { reply: 'nack', text: LANE_FULL_TEXT });
      return;
    }
    if (this.lane.links[MAIN_THREAD]!.messages.frame(type, frame, headerLength, false)) {
      this.lane.laneMetrics.messagesToClients += 1;
      return;
    }
    this.drops.queueFull += 1;
    this.nack(envelope, LANE_FULL_TEXT);
  }

  /** Messages of the system are short, and come inline. One that is not is counted, and whoever waits for an answer is told. */
  private admitsControl(request: InboundRequest, source: FrameSource): boolean {
    const { envelope, payloadLength } = request;
    const { handler, headers } = envelope;
    const staged = headers?.has(HEADER_RENDEZVOUS) === true && !this.rendezvous?.serves(handler);
    if (payloadLength <= MAX_CONTROL_BYTES && !staged) return true;
    this.drops.badMessage += 1;
    const text = staged
      ? `${handler} must come inline`
      : `${handler} of ${payloadLength} bytes: this node reads ${MAX_CONTROL_BYTES}`;
    if (handler === HANDLER_HELLO) this.answerOn(source, request, { reply: 'responseError', text });
    else this.nack(envelope, text);
    return false;
  }

  /** Answers on the socket that the request came in on: nobody may be registered under its name. */
  private answerOn(source: FrameSource, { envelope }: InboundRequest, plan: ReplyPlan): void {
    if (envelope.responseType === RESPONSE_NONE) return;
    const frame = encodeReply(plan, envelope.id);
    if (frame !== undefined && !source.writeBack(frame)) this.drops.replyToNobody += 1;
  }

  /** `_rv_*`: answered here, so that a busy client keeps no peer waiting for what it staged. */
  private serve(
    rendezvous: LaneRendezvous,
    { envelope, payloadOffset, payloadLength }: InboundRequest,
    buffer: Uint8Array,
  ): void {
    const { id, mapOffset, mapLength, responseType } = envelope;
    // Leases go to peers that can be told of them, so a stranger has none to end, and takes none, nor a reference, by a message.
    if (this.peerOf(id.workerHi, id.workerLo) === undefined) {
      if (responseType === RESPONSE_NONE) this.drops.unknownPeer += 1;
      else this.drops.replyToNobody += 1;
      return;
    }
    const plan = rendezvous.answer(envelope, buffer.subarray(payloadOffset, payloadOffset + payloadLength));
    this.reply(envelope, plan, buffer.subarray(mapOffset, mapOffset + mapLength));
  }

  private nack(envelope: RequestEnvelope, text: string): void {
    if (envelope.responseType !== RESPONSE_NONE) this.reply(envelope, { reply: 'nack', text });
  }

  /** Sends a reply to the requester, if there is one to send and the requester is known. */
  reply({ id }: RequestEnvelope, plan: ReplyPlan, map?: Uint8Array): void {
    const reply = encodeReply(plan, id, map);
    if (reply === undefined) return;
    const peer = this.peerOf(id.workerHi, id.workerLo);
    if (peer === undefined) this.drops.replyToNobody += 1;
    else peer.send(new MessageFrame(this.lane.links[MAIN_THREAD]!, 0, reply, () => this.lane.touch()));
  }

  /** Cancel and stop name a sender row; a worker sets the flag itself, so a producer that computes sees it. */
  private flagSender(buffer: Uint8Array, offset: number, length: number, flag: number): void {
    let id: bigint;
    try {
      const text = buffer.subarray(offset, offset + length);
      id = new JsonFields(parseJson(text), 'stream cancel').u64('sender_stream_id');
    } catch {
      this.drops.badMessage += 1;
      return;
    }
    const sender = parseRowIdentity(id);
    const link = sender === undefined ? undefined : this.lane.links[sender.thread];
    if (sender === undefined || link === undefined || sender.row >= link.rows.senders.count) return; // not ours, or long over
    link.flagSender(sender.row, sender.generation, flag);
  }
}

/** Header and payload in memory of their own. */
function whole(
  buffer: Uint8Array,
  headerAt: number,
  headerLength: number,
  payloadAt: number,
  payloadLength: number,
): Uint8Array {
  const bytes = new Uint8Array(headerLength + payloadLength);
  bytes.set(buffer.subarray(headerAt, headerAt + headerLength));
  bytes.set(buffer.subarray(payloadAt, payloadAt + payloadLength), headerLength);
  return bytes;
}
