// A foreign node, played byte by byte: it listens, dials, speaks frames and batches, and answers an attach with whatever a
// test gives it. It knows the wire and nothing of the package's lanes, so that a node is tested against bytes.

import { randomBytes } from 'node:crypto';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { PeerInfo as NodeInfo } from '../../lib/index.js';
import {
  decodeLanePorts,
  decodeTcpEndpoints,
  encodeLanePorts,
  encodeTcpEndpoints,
  encodeUdsPath,
  encodeWorkerAddress,
} from '../../lib/wire/address.js';
import { BatchDecoder, BatchEncoder, FLAGS_LANE_MASK } from '../../lib/wire/batch.js';
import { u64From, u64High, u64Low } from '../../lib/wire/bytes.js';
import {
  type AnchorAttachResponse,
  type AttachAccepted,
  type AttachRequest,
  anchorAttachRequest,
  anchorAttachResponse,
} from '../../lib/wire/control.js';
import {
  decodeAckHeader,
  decodeRequestHeader,
  decodeResponseHeader,
  encodeAckHeader,
  encodeRequestHeader,
  encodeResponseHeader,
  RESPONSE_NONE,
  RESPONSE_UNARY,
} from '../../lib/wire/envelope.js';
import { type StreamAnchorHandle, StreamCancelHandle } from '../../lib/wire/handle.js';
import { encodeHeaderMap } from '../../lib/wire/header-map.js';
import { encodeHandlerList, encodeHello } from '../../lib/wire/hello.js';
import {
  ADDRESS_KEY_LANES,
  ADDRESS_KEY_TCP,
  ADDRESS_KEY_UDS,
  BATCH_HANDLERS,
  HANDLER_ANCHOR_ATTACH,
  HANDLER_HELLO,
  HEADER_RENDEZVOUS,
  MESSENGER_MUX_KEY,
} from '../../lib/wire/names.js';
import { PeerInfo } from '../../lib/wire/peer-info.js';
import type { ResponseId } from '../../lib/wire/response-id.js';
import {
  encodeFrame,
  FRAME_ACK,
  FRAME_MESSAGE,
  FRAME_RESPONSE,
  FRAME_SHUTTING_DOWN,
  FrameReader,
  MAX_FRAME_BODY,
} from '../../lib/wire/transport-frame.js';
import { generateInstanceId } from '../../lib/wire/worker-id.js';
import { closed, listenOn } from './socket-files.js';

const LOOPBACK = '127.0.0.1';
const BATCH_BYTES = 256 * 1024;
const NO_BYTES = new Uint8Array(0);
const utf8 = new TextEncoder();
const fromUtf8 = new TextDecoder();

type Headers = Readonly<Record<string, string>>;

/** One record as it came, with copies of its bytes. */
export interface SeenRecord {
  readonly type: number;
  readonly slot: number;
  readonly frameSeq: number;
  readonly body: Uint8Array;
  readonly anchor: bigint;
  readonly session: bigint;
  readonly closeReason: number;
  readonly delta: number;
  readonly action: number;
}

export interface SeenBatch {
  /** Lane of the handler it was addressed to. */
  readonly lane: number;
  /** Lane in its header. */
  readonly headerLane: number;
  readonly epoch: bigint;
  readonly batchSeq: number;
  readonly records: readonly SeenRecord[];
}

export interface SeenRequest {
  readonly handler: string;
  readonly payload: Uint8Array;
  readonly id: ResponseId;
  readonly responseType: number;
  readonly headers: ReadonlyMap<string, string> | undefined;
}

/** What a service of the peer answers: bytes, an error's text, or nothing at all. */
export type ServiceAnswer = Uint8Array | string | undefined;
export type PeerService = (payload: Uint8Array, request: SeenRequest) => ServiceAnswer | Promise<ServiceAnswer>;
export interface Echo {
  readonly header: Uint8Array;
  readonly payload: Uint8Array;
}

/** How a call to the node ended: a response, or an ack or nack. */
export interface Answer {
  readonly via: 'response' | 'ack';
  readonly ok: boolean;
  readonly payload: Uint8Array;
  readonly text: string;
  /** Header map of a response. */
  readonly headers: ReadonlyMap<string, string> | undefined;
}

export interface WirePeerOptions {
  /** Publishes its one port as so many lanes; undefined: it has never heard of lane ports. */
  readonly lanes?: number;
  /** Listens on a Unix socket too, and publishes it. */
  readonly udsPath?: string;
}

export interface BatchOptions {
  readonly epoch?: bigint;
  /** Next number of the (lane, epoch) by default. */
  readonly seq?: number;
  /** What the header says, where it lies. */
  readonly headerLane?: number;
  /** Port to send it to, where it is not the node's first. */
  readonly port?: number;
  /** Changes the finished bytes before they are framed. */
  readonly spoil?: (bytes: Uint8Array) => Uint8Array;
}

/** What the peer does with an attach: an answer, raw bytes as one, or nothing at all. */
export type AttachAnswer = AnchorAttachResponse | Uint8Array | undefined;

export class WirePeer {
  readonly info: PeerInfo;
  readonly batches: SeenBatch[] = [];
  readonly requests: SeenRequest[] = [];
  readonly attaches: AttachRequest[] = [];
  /** Answers to nothing it asked. */
  unasked = 0;
  /** Names it says it serves. */
  handlers: string[] = [HANDLER_ANCHOR_ATTACH];
  /** Connections the node has made to this peer. */
  readonly accepted = { tcp: 0, uds: 0 };
  /** Its own handlers, by name. */
  services: Record<string, PeerService> = {};
  /** False: it reads everything and answers nothing. */
  answers = true;
  /** A hello is answered after this. */
  beforeHello: Promise<void> = Promise.resolve();
  onAttach: (request: AttachRequest) => AttachAnswer | Promise<AttachAnswer> = () => accept({ routingSessionId: 77n });
  onBatch: (batch: SeenBatch) => void = () => {};
  /** Frames that answer a request for any other handler. */
  onCall: (request: SeenRequest) => readonly Uint8Array[] = () => [];
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();
  /** Sockets that the node dialed, and that stand. */
  readonly dialedHere = new Set<Socket>();
  /** Requests that a draining node sent back: header and payload, as they came. */
  readonly echoes: Echo[] = [];
  private readonly dialed = new Map<number, Socket>();
  private readonly calls = new Map<number, (answer: Answer) => void>();
  private readonly sequences = new Map<string, number>();
  private nextCall = 0;
  private node: NodeInfo | undefined;

  private constructor(
    server: Server,
    private readonly udsServer: Server | undefined,
    options: WirePeerOptions,
  ) {
    this.server = server;
    const { port } = this;
    const instanceId = generateInstanceId((length) => randomBytes(length));
    const endpoint = { name: '', host: LOOPBACK, port, prefixLength: 32, numaNode: null };
    const entries: [string, Uint8Array][] = [[ADDRESS_KEY_TCP, encodeTcpEndpoints([endpoint])]];
    if (options.udsPath !== undefined) entries.push([ADDRESS_KEY_UDS, encodeUdsPath(options.udsPath)]);
    if (options.lanes !== undefined)
      entries.push([ADDRESS_KEY_LANES, encodeLanePorts(Array.from({ length: options.lanes }, () => port))]);
    this.info = new PeerInfo(instanceId, encodeWorkerAddress(entries));
    server.on('connection', (socket) => {
      this.accepted.tcp += 1;
      this.dialedHere.add(socket);
      socket.on('close', () => this.dialedHere.delete(socket));
      this.adopt(socket);
    });
    udsServer?.on('connection', (socket) => {
      this.accepted.uds += 1;
      this.adopt(socket);
    });
  }

  static async listen(options: WirePeerOptions = {}): Promise<WirePeer> {
    const server = createServer({ noDelay: true });
    await new Promise<void>((resolve) => server.listen(0, LOOPBACK, resolve));
    const { udsPath } = options;
    const udsServer = udsPath === undefined ? undefined : await listenOn(udsPath);
    return new WirePeer(server, udsServer, options);
  }

  get workerId(): bigint {
    return this.info.workerId;
  }

  /** Every record that came, in order of arrival. */
  get records(): SeenRecord[] {
    return this.batches.flatMap((batch) => batch.records);
  }

  get port(): number {
    const address = this.server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** Leaves what comes in its sockets unread. */
  pauseReading(): void {
    for (const socket of this.sockets) socket.pause();
  }

  resumeReading(): void {
    for (const socket of this.sockets) socket.resume();
  }

  /** Cuts every connection; it listens on. */
  hangUp(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.hangUp();
    if (this.udsServer !== undefined) await closed(this.udsServer);
    await new Promise<void>((resolve) => {
      this.server.close(() => resolve());
    });
  }

  // -- toward the node

  /** The node that everything below is sent to. */
  faces(node: { readonly peerInfo: NodeInfo }): this {
    this.node = node.peerInfo;
    return this;
  }

  /** Ports of the node's lanes; the first is its plain one. */
  get nodePorts(): number[] {
    const entries = this.node!.entries();
    const lanes = entries.get(ADDRESS_KEY_LANES);
    return lanes === undefined ? [decodeTcpEndpoints(entries.get(ADDRESS_KEY_TCP)!)[0]!.port] : decodeLanePorts(lanes);
  }

  /** Raw bytes on the connection to a port of the node. Resolves with the socket they went out on. */
  async write(bytes: Uint8Array, port = this.nodePorts[0]!): Promise<Socket> {
    let socket = this.dialed.get(port);
    if (socket === undefined || socket.destroyed) {
      socket = connect({ host: LOOPBACK, port, noDelay: true });
      this.dialed.set(port, socket);
      this.adopt(socket);
      await new Promise<void>((resolve, reject) => socket!.once('connect', resolve).once('error', reject));
    }
    socket.write(bytes);
    return socket;
  }

  /** Calls a handler of the node and resolves with what it answered. */
  async call(
    handler: string,
    payload: Uint8Array = NO_BYTES,
    responseType: number = RESPONSE_UNARY,
    headers?: Headers,
  ): Promise<Answer> {
    const slot = this.nextCall++ % 65_535;
    const answered = this.answerTo(slot);
    await this.write(this.request(handler, payload, responseType, slot, headers));
    return answered;
  }

  /** The answer to a request with this slot, however it is sent. */
  answerTo(slot: number): Promise<Answer> {
    return new Promise((resolve) => this.calls.set(slot, resolve));
  }

  /** Sends a message that nobody answers. */
  async fire(handler: string, payload: Uint8Array | string, headers?: Headers): Promise<void> {
    const bytes = typeof payload === 'string' ? utf8.encode(payload) : payload;
    await this.write(this.request(handler, bytes, RESPONSE_NONE, 0, headers));
  }

  /** A request in this peer's name, as a whole frame. */
  request(handler: string, payload: Uint8Array, responseType: number, slot = 0, headers?: Headers): Uint8Array {
    const id = { workerHi: u64High(this.workerId), workerLo: u64Low(this.workerId), slot, generation: 0 };
    const map = headers === undefined ? NO_BYTES : encodeHeaderMap(Object.entries(headers));
    return encodeFrame(FRAME_MESSAGE, encodeRequestHeader(responseType, id, handler, map), payload);
  }

  /** Answers a request of the node with a refusal, as a node that shuts down does. */
  async refuse({ handler, responseType, id }: SeenRequest): Promise<void> {
    await this.write(encodeFrame(FRAME_SHUTTING_DOWN, encodeRequestHeader(responseType, id, handler), NO_BYTES));
  }

  /** Says hello: the node knows this peer from here on. */
  hello(): Promise<Answer> {
    return this.call(HANDLER_HELLO, encodeHello(this.info));
  }

  /** Asks for a way into an anchor of the node. The peer must be known there. */
  async attach(handle: StreamAnchorHandle, request: Partial<AttachRequest> = {}): Promise<AnchorAttachResponse> {
    const sessionId = request.sessionId ?? 9n;
    const payload = anchorAttachRequest.encodeJson({
      handle,
      sessionId,
      streamCancelHandle: new StreamCancelHandle(this.workerId, sessionId),
      supportedTransportKeys: [MESSENGER_MUX_KEY],
      ...request,
    });
    return anchorAttachResponse.decodeJson((await this.call(HANDLER_ANCHOR_ATTACH, payload)).payload);
  }

  /** Attaches, and opens slot `slot` in a batch of its own. */
  async open(handle: StreamAnchorHandle, slot: number, options: BatchOptions & { lane?: number } = {}) {
    const answer = await this.attach(handle);
    if (!answer.ok) throw new Error(answer.reason);
    const session = answer.value.routingSessionId;
    await this.batch(options.lane ?? 0, (batch) => openRecord(batch, slot, handle.local, session), options);
    return answer.value;
  }

  /** Sends one batch to the handler of `lane`. */
  async batch(lane: number, fill: (batch: BatchEncoder) => void, options: BatchOptions = {}): Promise<void> {
    const { epoch = 1n, headerLane = lane, spoil = (bytes) => bytes } = options;
    const key = `${lane}/${epoch}`;
    const seq = options.seq ?? this.sequences.get(key) ?? 0;
    this.sequences.set(key, seq + 1);
    const buffer = new Uint8Array(BATCH_BYTES);
    const encoder = new BatchEncoder();
    encoder.begin(buffer, 0, headerLane, u64High(epoch), u64Low(epoch), seq);
    fill(encoder);
    const bytes = spoil(buffer.slice(0, encoder.finish()));
    await this.write(this.request(BATCH_HANDLERS[lane]!, bytes, RESPONSE_NONE, 0), options.port);
  }

  // -- from the node

  private adopt(socket: Socket): void {
    this.sockets.add(socket);
    const reader = new FrameReader((type, buffer, headerAt, headerLength, payloadAt, payloadLength) =>
      this.onFrame(type, buffer, headerAt, headerLength, payloadAt, payloadLength),
    );
    socket.on('data', (chunk) => reader.push(chunk));
    socket.on('error', () => {});
    socket.on('close', () => this.sockets.delete(socket));
  }

  private onFrame(type: number, buffer: Uint8Array, at: number, length: number, bodyAt: number, body: number): void {
    const payload = buffer.slice(bodyAt, bodyAt + body);
    if (type === FRAME_MESSAGE) this.onRequest(buffer, at, length, payload);
    else if (type === FRAME_SHUTTING_DOWN) this.echoes.push({ header: buffer.slice(at, at + length), payload });
    else if (type === FRAME_RESPONSE || type === FRAME_ACK) {
      const via = type === FRAME_RESPONSE ? 'response' : 'ack';
      const header =
        type === FRAME_RESPONSE ? decodeResponseHeader(buffer, at, length) : decodeAckHeader(buffer, at, length);
      const { id, ok } = header;
      const headers = 'headers' in header ? header.headers : undefined;
      const resolve = this.calls.get(id.slot);
      this.calls.delete(id.slot);
      if (resolve === undefined) this.unasked += 1;
      resolve?.({ via, ok, payload, text: fromUtf8.decode(payload), headers });
    }
  }

  private onRequest(buffer: Uint8Array, at: number, length: number, payload: Uint8Array): void {
    const { handler, id, responseType, headers } = decodeRequestHeader(buffer, at, length);
    const request: SeenRequest = { handler, payload, id, responseType, headers };
    this.requests.push(request);
    const lane = BATCH_HANDLERS.indexOf(handler);
    // A staged batch is its handle only: whoever wants it pulls it.
    if (lane >= 0 && headers?.has(HEADER_RENDEZVOUS)) return;
    if (lane >= 0) {
      const batch = decodeBatch(lane, payload);
      this.batches.push(batch);
      this.onBatch(batch);
      return;
    }
    const service = this.services[handler];
    if (service !== undefined) {
      void this.serve(service, request);
      return;
    }
    if (!this.answers) return;
    for (const frame of this.onCall(request)) void this.write(frame);
    if (responseType !== RESPONSE_UNARY) return;
    const reply = (bytes: Uint8Array) =>
      void this.write(encodeFrame(FRAME_RESPONSE, encodeResponseHeader(id, true), bytes));
    if (handler === HANDLER_HELLO) void this.beforeHello.then(() => reply(encodeHandlerList(this.handlers)));
    else if (handler === HANDLER_ANCHOR_ATTACH) void this.answerAttach(payload, reply);
  }

  private async serve(service: PeerService, request: SeenRequest): Promise<void> {
    const answer = await service(request.payload, request);
    if (answer === undefined || request.responseType === RESPONSE_NONE) return;
    const ok = typeof answer !== 'string';
    const bytes = ok ? answer : utf8.encode(answer);
    const [type, header] =
      request.responseType === RESPONSE_UNARY
        ? ([FRAME_RESPONSE, encodeResponseHeader(request.id, ok)] as const)
        : ([FRAME_ACK, encodeAckHeader(request.id, ok)] as const);
    await this.write(encodeFrame(type, header, bytes));
  }

  private async answerAttach(payload: Uint8Array, reply: (bytes: Uint8Array) => void): Promise<void> {
    const request = anchorAttachRequest.decodeJson(payload);
    this.attaches.push(request);
    const answer = await this.onAttach(request);
    if (answer === undefined) return;
    reply(answer instanceof Uint8Array ? answer : anchorAttachResponse.encodeJson(answer));
  }
}

/** The records of one type that came to the peer, each with the lane it came on. */
export function recordsOf(peer: WirePeer, type: number) {
  return peer.batches.flatMap((batch) =>
    batch.records.filter((record) => record.type === type).map((record) => ({ ...record, lane: batch.lane })),
  );
}

/** A positive answer to an attach, on the mux with a window of 32 unless said otherwise. */
export function accept(terms: Partial<AttachAccepted>): AnchorAttachResponse {
  return {
    ok: true,
    value: {
      streamingTransportKey: MESSENGER_MUX_KEY,
      heartbeatIntervalMs: 5_000,
      routingSessionId: 0n,
      initialCredit: 32,
      slotByteBudget: 1_048_576,
      lane: 0,
      ...terms,
    },
  };
}

export function openRecord(batch: BatchEncoder, slot: number, anchor: bigint, session: bigint): void {
  batch.openSlot(slot, 0, u64High(anchor), u64Low(anchor), u64High(session), u64Low(session));
}

export function dataRecord(batch: BatchEncoder, slot: number, frameSeq: number, frame: Uint8Array): void {
  batch.data(slot, frameSeq, frame, 0, frame.length);
}

/** The preamble of a frame one byte above what any peer may send. */
export function oversizedPreamble(): Uint8Array {
  const bytes = encodeFrame(FRAME_MESSAGE, NO_BYTES, NO_BYTES);
  new DataView(bytes.buffer).setUint32(7, MAX_FRAME_BODY + 1);
  return bytes;
}

export function decodeBatch(lane: number, payload: Uint8Array): SeenBatch {
  const decoder = new BatchDecoder();
  decoder.reset(payload, 0, payload.length);
  if (!decoder.readHeader() || !decoder.checkVersion()) throw new Error(`bad batch: ${JSON.stringify(decoder.error)}`);
  const records: SeenRecord[] = [];
  while (decoder.next()) {
    const { type, slot, frameSeq, bodyOffset, bodyLength, closeReason, delta, action } = decoder;
    records.push({
      type,
      slot,
      frameSeq,
      body: payload.slice(bodyOffset, bodyOffset + bodyLength),
      anchor: u64From(decoder.anchorHi, decoder.anchorLo),
      session: u64From(decoder.sessionHi, decoder.sessionLo),
      closeReason,
      delta,
      action,
    });
  }
  if (decoder.error !== undefined) throw new Error(`bad batch: ${JSON.stringify(decoder.error)}`);
  const { flags, epochHi, epochLo, batchSeq } = decoder;
  return { lane, headerLane: flags & FLAGS_LANE_MASK, epoch: u64From(epochHi, epochLo), batchSeq, records };
}
