// Main's side of the messenger: frames from the lanes to handlers and callers, the hello between nodes, and the public ways to
// send. A peer is known to every lane before its hello is answered.

import { type ErrorCode, VeloError } from '../errors.js';
import type { MessageEvents } from '../lanes/client-plane.js';
import { HandlerTable } from '../messenger/handler-table.js';
import { type MessageHandler, unaryHandler } from '../messenger/handlers.js';
import { InboundClassifier, type InboundRequest } from '../messenger/inbound-message.js';
import { encodeReply } from '../messenger/replies.js';
import { MessengerMetrics } from '../metrics/messenger-metrics.js';
import { u64From } from '../wire/bytes.js';
import { RESPONSE_ACK, RESPONSE_UNARY } from '../wire/envelope.js';
import { decodeHandlerList, decodeHello, encodeHandlerList, encodeHello, expectNull } from '../wire/hello.js';
import { encodeJson, parseJson } from '../wire/json.js';
import {
  BATCH_HANDLERS,
  HANDLER_HELLO,
  HANDLER_LIST,
  HANDLER_STREAM_CANCEL,
  HANDLER_STREAM_STOP,
  HEADER_RENDEZVOUS,
  isSystemHandler,
} from '../wire/names.js';
import { PeerInfo } from '../wire/peer-info.js';
import type { CallOptions, Calls, SendOptions } from './calls.js';
import type { Peer, PeerBook, PeerTarget } from './peer-book.js';
import type { PeerFinder } from './peer-finder.js';

/** How long a hello may take. */
const HELLO_TIMEOUT_MS = 30_000;
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
const LANE_HANDLERS: readonly string[] = [...BATCH_HANDLERS, HANDLER_STREAM_CANCEL, HANDLER_STREAM_STOP];

export class Messenger implements Omit<MessageEvents, 'laneDied'> {
  readonly metrics = new MessengerMetrics();
  readonly handlers = new HandlerTable({
    observe: (request, handler, payloadBytes) => this.metrics.watch(request, handler, payloadBytes),
  });
  /** Answers to workers that nobody registered here. */
  repliesToNobody = 0;
  private readonly classifier: InboundClassifier;

  constructor(
    private readonly calls: Calls,
    private readonly peers: PeerBook,
    private readonly finder: PeerFinder,
    private readonly self: PeerInfo,
    workerHi: number,
    workerLo: number,
  ) {
    this.classifier = new InboundClassifier(workerHi, workerLo);
    this.system(HANDLER_HELLO, (payload) => this.onHello(payload));
    this.system(HANDLER_LIST, (payload) => {
      if (payload.length > 0) expectNull(payload);
      return encodeHandlerList(this.names());
    });
  }

  /** Registers a handler of the system whose answer is bytes. */
  system(name: string, fn: (payload: Uint8Array) => Uint8Array | Promise<Uint8Array>): void {
    this.handlers.registerSystem(name, unaryHandler(fn));
  }

  private names(): string[] {
    return [...this.handlers.names(), ...LANE_HANDLERS];
  }

  private onHello(payload: Uint8Array): Uint8Array {
    const peer = this.peers.register(decodeHello(payload));
    peer.knowsUs = true;
    return encodeHandlerList(this.names());
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
    const reply = (plan: Parameters<typeof encodeReply>[0]): boolean => {
      const map = frame.subarray(envelope.mapOffset, envelope.mapOffset + envelope.mapLength);
      const answer = encodeReply(plan, id, map);
      if (answer === undefined) return true;
      const peer = this.peers.worker(u64From(id.workerHi, id.workerLo));
      if (peer === undefined) {
        this.repliesToNobody += 1;
        return false;
      }
      this.calls.sendFrame(peer, answer);
      return true;
    };
    if (envelope.headers?.has(HEADER_RENDEZVOUS)) {
      if (envelope.responseType !== 0) reply({ reply: 'nack', text: 'Rendezvous resolver not configured on receiver' });
      return;
    }
    // The frame is this message's alone: what the application gets shares memory with nothing of ours.
    const payload = frame.subarray(payloadOffset, payloadOffset + payloadLength);
    this.handlers.dispatch(envelope, payload, reply);
  }

  // -- hello

  /** Makes sure that the peer can answer us. */
  async introduce(peer: Peer): Promise<void> {
    if (!peer.knowsUs) await this.answered(this.hello(peer));
  }

  /** Says hello, once at a time per peer, and keeps the list of handlers from the answer. */
  private hello(peer: Peer): Promise<void> {
    if (peer.hello !== undefined) return peer.hello;
    const { resolutions } = this.metrics;
    resolutions['handshake attempt'] += 1;
    peer.hello = this.calls
      .call(peer, HANDLER_HELLO, RESPONSE_UNARY, encodeHello(this.self), { timeoutMs: HELLO_TIMEOUT_MS })
      .then((answer) => {
        peer.knowsUs = true;
        peer.handlers = new Set(decodeHandlerList(answer));
        resolutions['handshake success'] += 1;
      })
      .finally(() => {
        peer.hello = undefined;
      });
    return peer.hello;
  }

  /** The peer serves the handler, as far as its list says; a missing name is asked for once more. */
  private async requireHandler(peer: Peer, handler: string): Promise<void> {
    if (peer.knowsUs && peer.handlers?.has(handler)) return;
    await this.hello(peer);
    if (peer.handlers?.has(handler)) return;
    throw new VeloError('ERR_UNKNOWN_HANDLER', `Handler '${handler}' not found on instance ${peer.info.instanceId}`);
  }

  /** Counts what asking a peer came to, when it came to nothing. */
  private async answered(asking: Promise<void>): Promise<void> {
    try {
      await asking;
    } catch (error) {
      this.metrics.resolutions['handshake error'] += 1;
      throw error;
    }
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
    if (typeof handler !== 'string' || handler === '' || isSystemHandler(handler))
      throw new VeloError('ERR_INVALID_ARGUMENT', `'${handler}' is not the name of an application's handler`);
    const peer = this.finder.known(target);
    return peer?.knowsUs && peer.handlers?.has(handler) ? peer : undefined;
  }

  /** Finds the peer and makes it ready, in the time of the call; says what of that is left. */
  private async reach(
    target: PeerTarget,
    handler: string,
    options: CallOptions,
  ): Promise<{ peer: Peer; left: CallOptions }> {
    let peer!: Peer;
    const label = target instanceof PeerInfo ? target.instanceId : String(target);
    const left = await this.calls.prepare(label, handler, options, async () => {
      peer = await this.find(target);
      await this.answered(this.requireHandler(peer, handler));
    });
    return { peer, left };
  }

  /** A worker's peer, for a message of the system: registered, or found in the time of a call. */
  async locate(workerId: bigint, handler: string, options: SendOptions): Promise<Peer> {
    const known = this.finder.known(workerId);
    if (known !== undefined) return known;
    let peer!: Peer;
    await this.calls.prepare(String(workerId), handler, options, async () => {
      peer = await this.find(workerId);
    });
    return peer;
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
