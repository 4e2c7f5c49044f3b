// What a real velo node sent and was sent, replayed without one: every frame decodes to what the capture's header tells, our writers
// give the same bytes, and the batches of either side make the machines of the mux deliver exactly the session's streams.

import { statSync } from 'node:fs';
import { expect } from 'chai';
import { rawCodec } from '../../../lib/wire/codec.js';
import {
  type AttachAccepted,
  type AttachRequest,
  anchorAttachRequest,
  anchorAttachResponse,
  streamSignal,
} from '../../../lib/wire/control.js';
import {
  decodeAckHeader,
  decodeRequestHeader,
  decodeResponseHeader,
  encodeAckHeader,
  encodeRequestHeader,
  encodeResponseHeader,
  RESPONSE_FIXED_LEN,
} from '../../../lib/wire/envelope.js';
import { decodeStreamFrame, encodeStreamFrame, type StreamFrame } from '../../../lib/wire/frame.js';
import { encodeHeaderMap } from '../../../lib/wire/header-map.js';
import { decodeHandlerList, decodeHello, encodeHandlerList, encodeHello } from '../../../lib/wire/hello.js';
import { encodeJson, parseJson } from '../../../lib/wire/json.js';
import {
  BATCH_HANDLERS,
  HANDLER_ANCHOR_ATTACH,
  HANDLER_HELLO,
  HANDLER_RV_ACQUIRE,
  HANDLER_RV_PULL,
  HANDLER_RV_RELEASE,
  HANDLER_STREAM_CANCEL,
  HANDLER_STREAM_STOP,
  isSystemHandler,
} from '../../../lib/wire/names.js';
import {
  type DataReference,
  dataLease,
  dataReference,
  decodeDataReady,
  encodeDataReady,
  pullRequest,
} from '../../../lib/wire/rendezvous-messages.js';
import { responseIdToU128 } from '../../../lib/wire/response-id.js';
import {
  encodeFrame,
  FRAME_ACK,
  FRAME_MESSAGE,
  FRAME_RESPONSE,
  FRAME_SHUTTING_DOWN,
  FrameReader,
} from '../../../lib/wire/transport-frame.js';
import { itemsOf, tokenCodec, tokenOf } from '../../interop/payload.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import {
  type Capture,
  type CapturedCall,
  type CapturedStream,
  captureFile,
  loadCaptures,
} from '../../support/captures.js';
import { CoreNode } from '../../support/core-pair.js';
import { decodeBatch, type FakeReceiver, type PlainBatch } from '../../support/mux-fakes.js';
import { toHex } from '../../support/vectors.js';

const utf8 = new TextDecoder('utf-8', { fatal: true });
/** A size of chunks that fits no frame: every boundary falls somewhere else. */
const CHUNK = 61;

interface Frame {
  readonly from: string;
  readonly connection: number;
  readonly back: boolean;
  readonly type: number;
  readonly header: Uint8Array;
  readonly payload: Uint8Array;
}

interface Request extends Frame {
  readonly handler: string;
  readonly headers: ReadonlyMap<string, string> | undefined;
  readonly answer: { kind: CapturedCall['answer']; ok: boolean; payload: Uint8Array };
}

/** A session taken apart. */
interface Conversation {
  readonly frames: readonly Frame[];
  /** In order, each with what answered it. */
  readonly requests: readonly Request[];
  readonly attaches: readonly {
    readonly from: string;
    readonly request: AttachRequest;
    readonly terms: AttachAccepted;
  }[];
}

/** The frames in order of arrival, read from each connection's bytes in chunks. */
function readFrames(capture: Capture): Frame[] {
  return capture.frames.map(({ from, connection, back, bytes }) => {
    const read: Frame[] = [];
    const reader = new FrameReader((type, buffer, headerAt, headerLength, payloadAt, payloadLength) => {
      const header = buffer.slice(headerAt, headerAt + headerLength);
      read.push({ from, connection, back, type, header, payload: buffer.slice(payloadAt, payloadAt + payloadLength) });
    });
    for (let at = 0; at < bytes.length; at += CHUNK) reader.push(bytes.subarray(at, at + CHUNK));
    expect(reader.finish(), 'the frame is whole').to.equal(true);
    expect(read).to.have.length(1);
    return read[0]!;
  });
}

function converse(capture: Capture): Conversation {
  const frames = readFrames(capture);
  const requests: Request[] = [];
  const open = new Map<bigint, Request>();
  for (const frame of frames) {
    const { header, payload, type } = frame;
    if (type === FRAME_MESSAGE) {
      const { handler, id, headers } = decodeRequestHeader(header, 0, header.length);
      const request: Request = { ...frame, handler, headers, answer: { kind: 'nothing', ok: true, payload } };
      requests.push(request);
      open.set(responseIdToU128(id), request);
      continue;
    }
    const { id, ok, kind } = answerOf(frame);
    const request = open.get(responseIdToU128(id));
    if (request === undefined) throw new Error(`${capture.name}: an answer to nothing`);
    expect(frame.from).to.not.equal(request.from);
    Object.assign(request.answer, { kind, ok, payload });
  }
  const attaches = requests
    .filter(({ handler }) => handler === HANDLER_ANCHOR_ATTACH)
    .map(({ from, payload, answer }) => {
      const outcome = anchorAttachResponse.decodeJson(answer.payload);
      if (!outcome.ok) throw new Error(outcome.reason);
      return { from, request: anchorAttachRequest.decodeJson(payload), terms: outcome.value };
    });
  return { frames, requests, attaches };
}

function answerOf({ type, header }: Frame) {
  if (type === FRAME_RESPONSE) return { ...decodeResponseHeader(header, 0, header.length), kind: 'response' as const };
  if (type === FRAME_ACK) return { ...decodeAckHeader(header, 0, header.length), kind: 'ack' as const };
  return { id: decodeRequestHeader(header, 0, header.length).id, ok: false, kind: 'shuttingDown' as const };
}

/** The same header by our writers. */
function rewriteHeader({ type, header }: Frame): Uint8Array {
  switch (type) {
    case FRAME_RESPONSE: {
      const { id, ok } = decodeResponseHeader(header, 0, header.length);
      return encodeResponseHeader(id, ok, header.subarray(RESPONSE_FIXED_LEN));
    }
    case FRAME_ACK: {
      const { id, ok } = decodeAckHeader(header, 0, header.length);
      return encodeAckHeader(id, ok);
    }
    default: {
      const { responseType, id, handler, headers } = decodeRequestHeader(header, 0, header.length);
      return encodeRequestHeader(
        responseType,
        id,
        handler,
        headers === undefined ? undefined : encodeHeaderMap(headers),
      );
    }
  }
}

function rewriteBatch(payload: Uint8Array): Uint8Array {
  const { epoch, seq, flags, records } = decodeBatch(payload);
  const builder = new BatchBuilder({ epoch, seq, flags });
  for (const record of records) {
    if (record.type === 'data') builder.data(record.slot, record.seq, record.body);
    else if (record.type === 'open') builder.open(record.slot, record.anchor!, record.session!, record.seq);
    else if (record.type === 'close') builder.close(record.slot, record.seq, record.reason!);
    else if (record.type === 'credit') builder.credit(record.slot, record.delta!);
    else if (record.type === 'lifecycle') builder.lifecycle(record.slot, record.session!, record.action!);
    else builder.heartbeat(record.slot, record.seq);
  }
  return builder.bytes;
}

/** A Rust node says that it does not ask for RDMA; we say nothing. */
function acquireOf({ handle }: DataReference, sent: object): Uint8Array {
  return 'rdma' in sent ? encodeJson({ handle, rdma: null }) : dataReference.encodeJson({ handle });
}

/** What a system handler was sent, by our writers; undefined for an application's payload. */
function rewriteRequest({ handler, payload }: Request): Uint8Array | undefined {
  if (BATCH_HANDLERS.includes(handler)) return rewriteBatch(payload);
  switch (handler) {
    case HANDLER_HELLO:
      return encodeHello(decodeHello(payload));
    case HANDLER_ANCHOR_ATTACH:
      return anchorAttachRequest.encodeJson(anchorAttachRequest.decodeJson(payload));
    case HANDLER_STREAM_CANCEL:
    case HANDLER_STREAM_STOP:
      return streamSignal.encodeJson(streamSignal.decodeJson(payload));
    case HANDLER_RV_ACQUIRE:
      return acquireOf(dataReference.decodeJson(payload), parseJson(payload) as object);
    case HANDLER_RV_PULL:
      return pullRequest.encodeJson(pullRequest.decodeJson(payload));
    case HANDLER_RV_RELEASE:
      return dataLease.encodeJson(dataLease.decodeJson(payload));
    default:
      return undefined;
  }
}

function rewriteAnswer({ handler, answer: { payload, ok } }: Request): Uint8Array | undefined {
  if (!ok) return undefined;
  switch (handler) {
    case HANDLER_HELLO:
      return encodeHandlerList(decodeHandlerList(payload));
    case HANDLER_ANCHOR_ATTACH:
      return anchorAttachResponse.encodeJson(anchorAttachResponse.decodeJson(payload));
    case HANDLER_RV_ACQUIRE:
      return encodeDataReady(decodeDataReady(payload));
    default:
      return undefined;
  }
}

/** Frames of a stream as its header tells them. */
function told(stream: CapturedStream): StreamFrame<unknown>[] {
  const { sizes, tokens, seed, marks, end } = stream;
  const items =
    sizes === undefined ? Array.from({ length: tokens! }, (_, i) => tokenOf(seed, i)) : itemsOf(sizes, seed);
  const frames: StreamFrame<unknown>[] = [];
  const mark = (at: number) => {
    for (const [before, what] of marks) {
      if (before === at)
        frames.push(what === 'detached' ? { kind: 'detached' } : { kind: 'senderError', message: what });
    }
  };
  items.forEach((value, i) => {
    mark(i);
    frames.push({ kind: 'item', value });
  });
  mark(items.length);
  if (end !== 'cancelled') frames.push({ kind: end });
  return frames;
}

function batchesTo(
  name: string,
  { requests }: Conversation,
): { lane: number; payload: Uint8Array; batch: PlainBatch }[] {
  return requests
    .filter(({ from, handler }) => from !== name && BATCH_HANDLERS.includes(handler))
    .map(({ handler, payload }) => ({ lane: BATCH_HANDLERS.indexOf(handler), payload, batch: decodeBatch(payload) }));
}

/** Lets the machines of a receiver have every batch that came to it; returns what each attachment's consumer took. */
function receive(
  name: string,
  conversation: Conversation,
): { anchor: bigint; frames: Uint8Array[]; receiver: FakeReceiver }[] {
  const nodes = new Map<number, CoreNode>();
  const nodeOf = (lane: number): CoreNode => {
    const node = nodes.get(lane) ?? new CoreNode({ lane });
    nodes.set(lane, node);
    return node;
  };
  const attached = conversation.attaches
    .filter(({ from }) => from !== name)
    .map(({ request, terms }) => {
      const node = nodeOf(terms.lane);
      const receiver = node.bind(request.handle.local, terms.routingSessionId, { limit: terms.initialCredit });
      return { anchor: request.handle.local, node, receiver };
    });
  for (const { lane, payload } of batchesTo(name, conversation)) {
    nodeOf(lane).receive(payload);
    for (const { node, receiver } of attached) {
      if (receiver.take(Number.POSITIVE_INFINITY) > 0) node.table.noteDrained(receiver.slot!);
    }
  }
  for (const { metrics } of nodes.values()) {
    for (const [counter, value] of Object.entries(metrics)) {
      if (/^dropped|malformed|readerStalls|holdOverflow|heldRecords/.test(counter)) expect(value, counter).to.equal(0);
    }
  }
  return attached.map(({ anchor, receiver }) => ({ anchor, frames: receiver.taken, receiver }));
}

const captures = loadCaptures();

describe('captures of a real velo node', () => {
  it('there are some, of one version, and they are small', () => {
    expect(captures.length).to.be.greaterThan(7);
    expect(new Set(captures.map(({ header }) => header.velo)).size).to.equal(1);
    const bytes = captures.reduce((sum, { name }) => sum + statSync(captureFile(name)).size, 0);
    expect(bytes).to.be.lessThan(200 * 1024);
  });

  for (const capture of captures) {
    describe(capture.name, () => {
      const conversation = converse(capture);
      const { calls, streams, sides } = capture.header;

      it('every frame is written again byte for byte', () => {
        conversation.frames.forEach((frame, i) => {
          const rewritten = encodeFrame(frame.type, rewriteHeader(frame), frame.payload);
          expect(toHex(rewritten)).to.equal(toHex(capture.frames[i]!.bytes));
        });
      });

      it('every message of the system is written again byte for byte', () => {
        for (const request of conversation.requests) {
          const rewritten = rewriteRequest(request);
          expect(rewritten !== undefined, request.handler).to.equal(isSystemHandler(request.handler));
          if (rewritten !== undefined) expect(toHex(rewritten), request.handler).to.equal(toHex(request.payload));
          const answer = rewriteAnswer(request);
          if (answer !== undefined) expect(toHex(answer), request.handler).to.equal(toHex(request.answer.payload));
        }
      });

      it('calls went as the header tells', () => {
        const seen = conversation.requests
          .filter(({ handler }) => !isSystemHandler(handler))
          .map(({ from, handler, payload, headers, answer }): CapturedCall => {
            const text = answer.kind === 'nothing' ? '' : utf8.decode(answer.payload);
            const call = { from, handler, payload: utf8.decode(payload), answer: answer.kind, ok: answer.ok, text };
            return headers === undefined ? call : { ...call, headers: Object.fromEntries(headers) };
          });
        expect(seen).to.deep.equal(calls);
      });

      it('answers come on a connection of the responder; only a refusal comes back on the requester’s', () => {
        for (const { back, type } of conversation.frames) expect(back).to.equal(type === FRAME_SHUTTING_DOWN);
      });

      it('batches come in sequence on their lane and the connection of it', () => {
        for (const name of Object.keys(sides)) {
          const next = new Map<string, number>();
          for (const { lane, batch } of batchesTo(name, conversation)) {
            expect(batch.flags).to.equal(lane);
            const key = `${lane}/${batch.epoch}`;
            expect(batch.seq).to.equal(next.get(key) ?? 0);
            next.set(key, batch.seq + 1);
          }
        }
      });

      it('the machines of the mux deliver the streams that the header tells, each once', () => {
        const codecs = { bytes: rawCodec(), token: tokenCodec() };
        const delivered = Object.keys(sides).flatMap((name) => receive(name, conversation));
        for (const stream of streams) {
          const parts = delivered.filter(({ anchor }) => anchor === BigInt(stream.anchor[1]));
          const frames = parts.flatMap((part) => part.frames);
          const codec = codecs[stream.kind] as ReturnType<typeof rawCodec>;
          const decoded = frames.map((frame) => decodeStreamFrame(frame, 0, frame.length, codec));
          expect(decoded).to.deep.equal(told(stream));
          for (const { receiver } of parts) {
            expect(receiver.terminals).to.equal(stream.end === 'cancelled' ? 0 : 1);
            expect(receiver.closedCalls).to.equal(stream.end === 'cancelled' ? 0 : 1);
          }
          // A float of 32 bits is one of 64 to us: those items cannot come out the same.
          if (stream.kind === 'token' && stream.producer === 'rust') continue;
          decoded.forEach((frame, i) => {
            expect(toHex(encodeStreamFrame(frame, codec))).to.equal(toHex(frames[i]!));
          });
        }
        expect(delivered.length, 'attachments').to.equal(
          streams.reduce((sum, { marks }) => sum + 1 + marks.filter(([, what]) => what === 'detached').length, 0),
        );
      });

      const cancelled = streams.filter(({ end }) => end === 'cancelled');
      if (cancelled.length === 0) return;

      it('a cancelled stream is told to its sender by message and by record', () => {
        for (const stream of cancelled) {
          const { request, terms } = conversation.attaches.find(
            ({ request: { handle } }) => handle.local === BigInt(stream.anchor[1]),
          )!;
          const toProducer = conversation.requests.filter(({ from }) => from !== stream.producer);
          const signals = toProducer
            .filter(({ handler }) => handler === HANDLER_STREAM_CANCEL)
            .map(({ payload }) => streamSignal.decodeJson(payload).senderStreamId);
          expect(signals).to.deep.equal([request.streamCancelHandle.senderStreamId]);
          const records = batchesTo(stream.producer, conversation)
            .flatMap(({ batch }) => batch.records)
            .filter(({ type, session }) => type === 'lifecycle' && session === terms.routingSessionId);
          expect(records.map(({ action }) => action)).to.include(1);
        }
      });
    });
  }
});
