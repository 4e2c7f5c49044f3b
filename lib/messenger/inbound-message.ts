// What a decoded frame is to a lane: a batch, a request, an answer to one of our calls, a refusal, or nothing. Owns that
// judgement and the counts of what was dropped. It must never act on a message, and never throw for bytes of a peer.

import { VeloError } from '../errors.js';
import {
  batchLaneOf,
  decodeAckHeader,
  decodeRequestHeader,
  decodeResponseHeader,
  REQUEST_ID_OFFSET,
  RESPONSE_NONE,
  RESPONSE_TYPE_OFFSET,
  type RequestEnvelope,
  refusedResponseId,
  requestMapLength,
} from '../wire/envelope.js';
import { type ResponseId, responseWorkerHi, responseWorkerLo } from '../wire/response-id.js';
import { FRAME_ACK, FRAME_EVENT, FRAME_MESSAGE, FRAME_RESPONSE, FRAME_SHUTTING_DOWN } from '../wire/transport-frame.js';
import { originOf } from './response-origin.js';

/** A fire-and-forget batch without headers: the hot kind. One object per classifier, valid until its next call. */
export interface InboundBatch {
  readonly kind: 'batch';
  /** The lane of the handler's name. */
  lane: number;
  senderHi: number;
  senderLo: number;
  payloadOffset: number;
  payloadLength: number;
}

/** Any other request. Offsets are into the frame's buffer. */
export interface InboundRequest {
  readonly kind: 'request';
  readonly envelope: RequestEnvelope;
  readonly payloadOffset: number;
  readonly payloadLength: number;
}

/** The end of one of our calls. A nack ends unary calls too; an ack's payload is passed on. */
export interface InboundAnswer {
  readonly kind: 'answer';
  /** The frame type it came as. */
  readonly via: 'response' | 'ack';
  readonly slot: number;
  /** The 48-bit wire field. */
  readonly generation: number;
  /** The thread that waits, see `response-origin.ts`. */
  readonly origin: number;
  readonly ok: boolean;
  readonly payloadOffset: number;
  readonly payloadLength: number;
}

/** The peer is shutting down and refused this call. */
export interface InboundRefusal {
  readonly kind: 'refused';
  readonly slot: number;
  readonly generation: number;
  readonly origin: number;
}

export type InboundMessage = InboundBatch | InboundRequest | InboundAnswer | InboundRefusal;

/** Frames that were dropped, by reason. The connection stays in every case. */
export interface InboundDrops {
  badRequest: number;
  badResponse: number;
  badAck: number;
  badRefusal: number;
  /** An answer or refusal whose id names another node. */
  foreignWorker: number;
  /** Events: no current peer sends them. */
  event: number;
}

/** Judges frames for one node. Every frame type may come over any connection. */
export class InboundClassifier {
  readonly drops: InboundDrops = {
    badRequest: 0,
    badResponse: 0,
    badAck: 0,
    badRefusal: 0,
    foreignWorker: 0,
    event: 0,
  };
  readonly #workerHi: number;
  readonly #workerLo: number;
  readonly #batch: InboundBatch = {
    kind: 'batch',
    lane: 0,
    senderHi: 0,
    senderLo: 0,
    payloadOffset: 0,
    payloadLength: 0,
  };

  /** The halves of this node's own worker id. */
  constructor(workerHi: number, workerLo: number) {
    this.#workerHi = workerHi >>> 0;
    this.#workerLo = workerLo >>> 0;
  }

  /** `undefined`: dropped and counted. */
  classify(
    type: number,
    buffer: Uint8Array,
    headerOffset: number,
    headerLength: number,
    payloadOffset: number,
    payloadLength: number,
  ): InboundMessage | undefined {
    switch (type) {
      case FRAME_MESSAGE:
        return (
          this.#asBatch(buffer, headerOffset, headerLength, payloadOffset, payloadLength) ??
          this.#asRequest(buffer, headerOffset, headerLength, payloadOffset, payloadLength)
        );
      case FRAME_RESPONSE: {
        const header = decoded(() => decodeResponseHeader(buffer, headerOffset, headerLength));
        if (header !== undefined) return this.#answer('response', header.id, header.ok, payloadOffset, payloadLength);
        this.drops.badResponse += 1;
        return undefined;
      }
      case FRAME_ACK:
      case FRAME_EVENT: {
        const header = decoded(() => decodeAckHeader(buffer, headerOffset, headerLength));
        if (header === undefined) this.drops.badAck += 1;
        else if (header.event) this.drops.event += 1;
        else return this.#answer('ack', header.id, header.ok, payloadOffset, payloadLength);
        return undefined;
      }
      case FRAME_SHUTTING_DOWN:
        return this.#asRefusal(buffer, headerOffset, headerLength);
      default:
        throw new VeloError('ERR_INTERNAL', `frame type ${type} came past the frame reader`);
    }
  }

  #asBatch(
    buffer: Uint8Array,
    headerOffset: number,
    headerLength: number,
    payloadOffset: number,
    payloadLength: number,
  ): InboundBatch | undefined {
    const lane = batchLaneOf(buffer, headerOffset, headerLength);
    if (lane < 0 || buffer[headerOffset + RESPONSE_TYPE_OFFSET] !== RESPONSE_NONE) return undefined;
    if (requestMapLength(buffer, headerOffset, headerLength) !== 0) return undefined;
    const batch = this.#batch;
    batch.lane = lane;
    batch.senderHi = responseWorkerHi(buffer, headerOffset + REQUEST_ID_OFFSET);
    batch.senderLo = responseWorkerLo(buffer, headerOffset + REQUEST_ID_OFFSET);
    batch.payloadOffset = payloadOffset;
    batch.payloadLength = payloadLength;
    return batch;
  }

  #asRequest(
    buffer: Uint8Array,
    headerOffset: number,
    headerLength: number,
    payloadOffset: number,
    payloadLength: number,
  ): InboundRequest | undefined {
    const envelope = decoded(() => decodeRequestHeader(buffer, headerOffset, headerLength));
    if (envelope !== undefined) return { kind: 'request', envelope, payloadOffset, payloadLength };
    this.drops.badRequest += 1;
    return undefined;
  }

  #answer(
    via: 'response' | 'ack',
    id: ResponseId,
    ok: boolean,
    payloadOffset: number,
    payloadLength: number,
  ): InboundAnswer | undefined {
    if (!this.#isOwn(id)) return undefined;
    const { slot, generation } = id;
    return { kind: 'answer', via, slot, generation, origin: originOf(generation), ok, payloadOffset, payloadLength };
  }

  #asRefusal(buffer: Uint8Array, headerOffset: number, headerLength: number): InboundRefusal | undefined {
    const id = refusedResponseId(buffer, headerOffset, headerLength);
    if (id === undefined) {
      this.drops.badRefusal += 1;
      return undefined;
    }
    if (!this.#isOwn(id)) return undefined;
    return { kind: 'refused', slot: id.slot, generation: id.generation, origin: originOf(id.generation) };
  }

  #isOwn(id: ResponseId): boolean {
    if (id.workerHi === this.#workerHi && id.workerLo === this.#workerLo) return true;
    this.drops.foreignWorker += 1;
    return false;
  }
}

/** What a decoder returns, or `undefined` when it refuses the bytes. Any other error is a bug of ours and passes. */
function decoded<T>(decode: () => T): T | undefined {
  try {
    return decode();
  } catch (error) {
    if (VeloError.is(error)) return undefined;
    throw error;
  }
}
