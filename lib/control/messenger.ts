// Main's side of the messenger: frames from the lanes to handlers and callers, the hello between nodes, and the public ways to
// send. A peer is known to every lane before its hello is answered.

import { DebugLog } from '../debug-log.js';
import { type ErrorCode, VeloError } from '../errors.js';
import type { MessageEvents } from '../lanes/message-events.js';
import type { SocketInfo } from '../lanes/socket-info.js';
import type { ReplyPlan } from '../messenger/dispatch-plan.js';
import { HandlerTable } from '../messenger/handler-table.js';
import { type MessageHandler, unaryHandler } from '../messenger/handlers.js';
import { InboundClassifier, type InboundRequest } from '../messenger/inbound-message.js';
import { encodeReply } from '../messenger/replies.js';
import { MessengerMetrics } from '../metrics/messenger-metrics.js';
import { u64From, u64High, u64Low } from '../wire/bytes.js';
import { RESPONSE_ACK, RESPONSE_NONE, RESPONSE_UNARY } from '../wire/envelope.js';
import { decodeHello, encodeHandlerList, expectNull } from '../wire/hello.js';
import { encodeJson, parseJson } from '../wire/json.js';
import {
  BATCH_HANDLERS,
  HANDLER_HELLO,
  HANDLER_LIST,
  HANDLER_STREAM_CANCEL,
  HANDLER_STREAM_STOP,
  isSystemHandler,
  RENDEZVOUS_HANDLERS,
} from '../wire/names.js';
import { PeerInfo } from '../wire/peer-info.js';
import { FRAME_MESSAGE } from '../wire/transport-frame.js';
import type { CallOptions, Calls, SendOptions } from './calls.js';
import type { HelloGate } from './hello-gate.js';
import { type AskOptions, Hellos, serves } from './hellos.js';
import type { Outbox } from './outbox.js';
import type { Peer, PeerBook, PeerTarget } from './peer-book.js';
import type { PeerFinder } from './peer-finder.js';

const NO_BYTES = new Uint8Array(0);

/** How a send ends that did not leave this node. */
const UNSENT: ReadonlySet<ErrorCode> = new Set([
  'ERR_CONNECT_FAILED',
  'ERR_CONNECTION_CLOSED',
  'ERR_FRAME_TOO_LARGE',
  'ERR_LIMIT',
  'ERR_RESPONSE_SLOTS_EXHAUSTED',
  'ERR_LANE_DIED',
]);

/** Handlers that lanes serve themselves; a peer must find them in the list. */
const LANE_HANDLERS: readonly string[] = [
  ...BATCH_HANDLERS,
  HANDLER_STREAM_CANCEL,
  HANDLER_STREAM_STOP,
  ...RENDEZVOUS_HANDLERS,
];

export class Messenger
  implements Omit<MessageEvents, 'laneDied' | 'laneBroken' | 'unstaged' | 'marked' | 'streams' | 'diagnostic'>
{
  readonly metrics = new MessengerMetrics();
  readonly handlers: HandlerTable;
  /** Answers to workers that nobody registered here. */
  repliesToNobody = 0;
  private readonly classifier: InboundClassifier;
  private readonly hellos: Hellos;
  private readonly log = new DebugLog();

  constructor(
    private readonly calls: Calls,
    private readonly outbox: Outbox,
    private readonly peers: PeerBook,
    private readonly finder: PeerFinder,
    private readonly gate: HelloGate,
    self: PeerInfo,
    /** Payload bytes of requests in handlers and in their queues. */
    maxInFlightBytes: number,
  ) {
    this.classifier = new InboundClassifier(u64High(self.workerId), u64Low(self.workerId));
    this.hellos = new Hellos(calls, self, this.metrics.resolutions);
    this.handlers = new HandlerTable({
      observe: (request, handler, payloadBytes) => this.metrics.watch(request, handler, payloadBytes),
      maxInFlightBytes,
      instanceOf: (workerId) => peers.worker(workerId)?.info.instanceId,
      warn: (message) => this.log.line(() => message),
    });
    // Its name stands in the list; lanes hand hellos over with their sockets.
    this.system(HANDLER_HELLO, () => {
      throw new VeloError('ERR_BAD_CONTROL_MESSAGE', 'a hello must come inline');
    });
    this.system(HANDLER_LIST, (payload) => {
      if (payload.length > 0) expectNull(payload);
      return encodeHandlerList(this.names());
    });
  }

  /** Registers a handler of the system whose answer is bytes. */
  system(name: string, fn: (payload: Uint8Array) => Uint8Array | Promise<Uint8Array>): void {
    this.handlers.registerSystem(name, unaryHandler(fn));
  }

  // -- frames from the lanes

  frame(type: number, frame: Uint8Array, headerLength: number): void {
    const payloadLength = frame.length - headerLength;
    const message = this.classifier.classify(type, frame, 0, headerLength, headerLength, payloadLength);
    if (message === undefined) return;
    switch (message.kind) {
      case 'request':
        this.onRequest(message, frame);
        return;
      case 'answer':
        this.calls.answered(message, frame);
        return;
      case 'refused':
        this.calls.refused(message);
        return;
      case 'batch':
        throw new VeloError('ERR_INTERNAL', 'a batch came to a client thread');
      default: {
        const never: never = message;
        throw new VeloError('ERR_INTERNAL', `unknown message ${String(never)}`);
      }
    }
  }

  admitted(token: number, error: VeloError | undefined): void {
    this.calls.admitted(token, error);
  }

  frameFailed(_type: number, responseId: Uint8Array, error: VeloError): void {
    this.calls.frameFailed(responseId, error);
  }

  private onRequest(request: InboundRequest, frame: Uint8Array): void {
    this.metrics.messagesTaken += 1;
    const { envelope, payloadOffset, payloadLength } = request;
    const { id } = envelope;
    // Apart from the frame, whose memory the application may write to or give away.
    const map = frame.slice(envelope.mapOffset, envelope.mapOffset + envelope.mapLength);
    const reply = (plan: ReplyPlan): boolean => {
      const answer = encodeReply(plan, id, map);
      if (answer === undefined) return true;
      const peer = this.peers.worker(u64From(id.workerHi, id.workerLo));
      if (peer === undefined) {
        this.repliesToNobody += 1;
        return false;
      }
      this.outbox.sendFrame(peer, answer);
      return true;
    };
    // The frame is this message's alone: what the application gets shares memory with nothing of ours.
    const payload = frame.subarray(payloadOffset, payloadOffset + payloadLength);
    this.handlers.dispatch(envelope, payload, reply);
  }

  // -- hello

  /**
   * A hello, and the socket it came in on. Its handler list goes to the peer as it is registered from then on; what fails it goes
   * back on that socket, because nobody may know the one who asked.
   */
  hello(frame: Uint8Array, headerLength: number, socket: SocketInfo, token: number): void {
    this.metrics.messagesTaken += 1;
    const payloadLength = frame.length - headerLength;
    const message = this.classifier.classify(FRAME_MESSAGE, frame, 0, headerLength, headerLength, payloadLength);
    if (message?.kind !== 'request') throw new VeloError('ERR_INTERNAL', 'a lane took something else for a hello');
    const { envelope, payloadOffset } = message;
    const { id } = envelope;
    const reply = (plan: ReplyPlan): void => {
      const answer = encodeReply(plan, id, frame.subarray(envelope.mapOffset, envelope.mapOffset + envelope.mapLength));
      const taken = plan.reply === 'response' || plan.reply === 'ack';
      const peer = taken ? this.peers.worker(u64From(id.workerHi, id.workerLo)) : undefined;
      if (peer !== undefined && answer !== undefined) this.outbox.sendFrame(peer, answer);
      this.outbox.answerHello(socket.lane, token, peer === undefined ? answer : undefined);
    };
    const answer = unaryHandler((payload) => this.onHello(payload, socket));
    if (envelope.responseType === RESPONSE_NONE) this.outbox.answerHello(socket.lane, token, undefined);
    this.handlers.dispatch(envelope, frame.subarray(payloadOffset), reply, answer);
  }

  private onHello(payload: Uint8Array, socket: SocketInfo): Uint8Array | Promise<Uint8Array> {
    const greeted = (peer: Peer): Uint8Array => {
      peer.knowsUs = true;
      return encodeHandlerList(this.names());
    };
    const admitted = this.gate.admit(decodeHello(payload), socket);
    return admitted instanceof Promise ? admitted.then(greeted) : greeted(admitted);
  }

  /** Makes sure that the peer can answer us. */
  introduce(peer: Peer): Promise<void> {
    return this.hellos.introduce(peer);
  }

  // -- what is served, here and there

  /** Names served here, the system's included. */
  names(): string[] {
    return [...this.handlers.names(), ...LANE_HANDLERS];
  }

  async availableHandlers(target: PeerTarget, options: AskOptions = {}): Promise<string[]> {
    const { peer, left } = await this.locate(target, HANDLER_HELLO, options);
    return await this.hellos.list(peer, false, left);
  }

  async refreshHandlers(target: PeerTarget, options: AskOptions = {}): Promise<string[]> {
    const { peer, left } = await this.locate(target, HANDLER_HELLO, options);
    return await this.hellos.list(peer, true, left);
  }

  async waitForHandler(target: PeerTarget, handler: string, options: AskOptions = {}): Promise<void> {
    if (typeof handler !== 'string' || handler === '') throw noName(handler);
    const { peer, left } = await this.locate(target, HANDLER_HELLO, options);
    // A time means that it looks for so long; without one it looks ten times.
    await this.hellos.waitFor(peer, handler, options.timeoutMs === undefined ? options : left);
  }

  // -- the public ways to send

  register(name: string, handler: MessageHandler): void {
    this.handlers.register(name, handler);
  }

  async send(
    target: PeerTarget,
    handler: string,
    payload: Uint8Array = NO_BYTES,
    options: SendOptions = {},
  ): Promise<void> {
    await this.deliver(target, handler, options, (peer, left) => this.calls.fire(peer, handler, payload, left));
  }

  async sync(
    target: PeerTarget,
    handler: string,
    payload: Uint8Array = NO_BYTES,
    options?: CallOptions,
  ): Promise<void> {
    await this.request(target, handler, RESPONSE_ACK, payload, options);
  }

  unary(
    target: PeerTarget,
    handler: string,
    payload: Uint8Array = NO_BYTES,
    options?: CallOptions,
  ): Promise<Uint8Array> {
    return this.request(target, handler, RESPONSE_UNARY, payload, options);
  }

  async typedUnary<R>(target: PeerTarget, handler: string, value: unknown, options?: CallOptions): Promise<R> {
    const answer = await this.request(target, handler, RESPONSE_UNARY, encodeJson(value), options);
    if (answer.length === 0) throw new VeloError('ERR_BAD_JSON', `'${handler}' answered without a value`);
    return parseJson(answer) as R;
  }

  private async request(
    target: PeerTarget,
    handler: string,
    responseType: number,
    payload: Uint8Array,
    options: CallOptions = {},
  ): Promise<Uint8Array> {
    return this.deliver(target, handler, options, (peer, left) =>
      this.calls.call(peer, handler, responseType, payload, left),
    );
  }

  /** Sends at once to a peer that is ready, else once it has been found and asked. Counts which of the two it was. */
  private async deliver<T>(
    target: PeerTarget,
    handler: string,
    options: CallOptions,
    send: (peer: Peer, left: CallOptions) => Promise<T>,
  ): Promise<T> {
    const { resolutions } = this.metrics;
    const ready = this.ready(target, handler);
    if (ready !== undefined) {
      resolutions['direct success'] += 1;
      return send(ready, options);
    }
    const { peer, left } = await this.reach(target, handler, options);
    try {
      return await send(peer, left);
    } catch (error) {
      if (VeloError.is(error) && UNSENT.has(error.code)) resolutions['send error'] += 1;
      throw error;
    }
  }

  /** The peer, if it can be called at once: it is registered, knows us, and serves the handler. */
  private ready(target: PeerTarget, handler: string): Peer | undefined {
    if (typeof handler !== 'string' || handler === '' || isSystemHandler(handler)) throw noName(handler);
    const peer = this.finder.known(target);
    return peer !== undefined && serves(peer, handler) ? peer : undefined;
  }

  /** Finds the peer and makes it ready, in the time of the call; says what of that is left. */
  private async reach(
    target: PeerTarget,
    handler: string,
    options: CallOptions,
  ): Promise<{ peer: Peer; left: CallOptions }> {
    let peer!: Peer;
    const left = await this.calls.prepare(labelOf(target), handler, options, async () => {
      peer = await this.find(target);
      await this.hellos.require(peer, handler);
    });
    return { peer, left };
  }

  /** A peer for a message of the system: registered, or found in the time of a call. Says what of that is left. */
  async locate<O extends CallOptions>(
    target: PeerTarget,
    handler: string,
    options: O,
  ): Promise<{ peer: Peer; left: O }> {
    const known = this.finder.known(target);
    if (known !== undefined) return { peer: known, left: options };
    let peer!: Peer;
    const left = await this.calls.prepare(labelOf(target), handler, options, async () => {
      peer = await this.find(target);
    });
    return { peer, left };
  }

  /** A peer that is registered, or that the directory knows. Counts what a lookup came to. */
  private async find(target: PeerTarget): Promise<Peer> {
    const known = this.finder.known(target);
    if (known !== undefined) return known;
    const { resolutions } = this.metrics;
    try {
      const peer = await this.finder.find(target);
      resolutions['discovery success'] += 1;
      return peer;
    } catch (error) {
      resolutions['discovery error'] += 1;
      throw error;
    }
  }
}

function labelOf(target: PeerTarget): string {
  return target instanceof PeerInfo ? target.instanceId : String(target);
}

function noName(handler: unknown): VeloError {
  return new VeloError('ERR_INVALID_ARGUMENT', `'${String(handler)}' is not the name of an application's handler`);
}
