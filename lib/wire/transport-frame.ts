// Frames of the TCP and Unix transports: an 11-byte big-endian preamble, a header, a payload (messenger specification
// §2). Owns the preamble and the reassembly of frames from arbitrary chunks; it must never read what is inside a header,
// and never hold more memory than the bytes that came (times two) for a frame that passed the limit.

import { VeloError } from '../errors.js';
import { readU16BE, readU32BE, writeU16BE, writeU32BE } from './bytes.js';

/** The only transport version there is. */
export const FRAME_VERSION = 1;
/** version u16, type u8, header length u32, payload length u32. */
export const PREAMBLE_LEN = 11;
/** Header and payload together, in bytes; the preamble is not counted. Peers close the connection above it. */
export const MAX_FRAME_BODY = 16 * 1024 * 1024;

/** A request; its header is the active-message envelope. */
export const FRAME_MESSAGE = 0;
/** The answer of a unary request. */
export const FRAME_RESPONSE = 1;
/** Ack or nack of a request of any kind. */
export const FRAME_ACK = 2;
/** An event; no current peer sends it. */
export const FRAME_EVENT = 3;
/** A draining listener's refusal: the refused request's header, verbatim, and no payload. */
export const FRAME_SHUTTING_DOWN = 4;
const MAX_FRAME_TYPE = FRAME_SHUTTING_DOWN;

const OFFSET_TYPE = 2;
const OFFSET_HEADER_LEN = 3;
const OFFSET_PAYLOAD_LEN = 7;

/** First guess for a frame that arrives in pieces; grows by doubling as its bytes come. */
const FIRST_ASSEMBLY_BYTES = 64 * 1024;
/** An assembly buffer up to this size is kept for the next split frame, a larger one goes with its frame. */
const KEPT_ASSEMBLY_BYTES = 256 * 1024;

/**
 * Writes the 11 bytes before a header of `headerLength` and a payload of `payloadLength` bytes.
 *
 * @throws VeloError `ERR_FRAME_TOO_LARGE` when the two together exceed `maxBody`.
 */
export function writePreamble(
  buffer: Uint8Array,
  offset: number,
  type: number,
  headerLength: number,
  payloadLength: number,
  maxBody: number = MAX_FRAME_BODY,
): void {
  if (headerLength + payloadLength > maxBody) throw tooLarge(headerLength, payloadLength, maxBody);
  writeU16BE(buffer, offset, FRAME_VERSION);
  buffer[offset + OFFSET_TYPE] = type;
  writeU32BE(buffer, offset + OFFSET_HEADER_LEN, headerLength);
  writeU32BE(buffer, offset + OFFSET_PAYLOAD_LEN, payloadLength);
}

/** One whole frame in an array of its own; for control traffic and tests. */
export function encodeFrame(
  type: number,
  header: Uint8Array,
  payload: Uint8Array,
  maxBody: number = MAX_FRAME_BODY,
): Uint8Array {
  if (header.length + payload.length > maxBody) throw tooLarge(header.length, payload.length, maxBody);
  const frame = new Uint8Array(PREAMBLE_LEN + header.length + payload.length);
  writePreamble(frame, 0, type, header.length, payload.length, maxBody);
  frame.set(header, PREAMBLE_LEN);
  frame.set(payload, PREAMBLE_LEN + header.length);
  return frame;
}

/**
 * Receives a frame. The bytes are only lent for the call: copy what is kept. When `owned` is true the reader has given
 * the buffer away and will not write into it again.
 */
export type FrameHandler = (
  type: number,
  buffer: Uint8Array,
  headerOffset: number,
  headerLength: number,
  payloadOffset: number,
  payloadLength: number,
  owned: boolean,
) => void;

/**
 * Cuts a byte stream into frames. A frame that lies wholly in one chunk is delivered in place; one that is split is
 * assembled in a buffer that grows with the bytes that came. Version, type and size are judged as soon as the preamble
 * is there. After an error or {@link close} the reader delivers nothing more.
 */
export class FrameReader {
  /** Why the stream was given up. */
  error: VeloError | undefined = undefined;

  private readonly onFrame: FrameHandler;
  private readonly maxBody: number;
  private closed = false;

  /** Preamble bytes of a frame whose preamble was split. */
  private readonly preamble = new Uint8Array(PREAMBLE_LEN);
  private preambleHave = 0;

  /** The frame being assembled: `bodyNeed` is −1 when there is none. */
  private type = 0;
  private headerLength = 0;
  private bodyNeed = -1;
  private bodyHave = 0;
  private body: Uint8Array = NO_BYTES;

  constructor(onFrame: FrameHandler, options?: { maxBody?: number }) {
    this.onFrame = onFrame;
    this.maxBody = options?.maxBody ?? MAX_FRAME_BODY;
  }

  /** Bytes held for a frame that is not complete, preamble included. */
  get pendingBytes(): number {
    if (this.bodyNeed >= 0) return PREAMBLE_LEN + this.bodyHave;
    return this.preambleHave;
  }

  /** Takes the next chunk. False once the stream is given up; `error` tells why. */
  push(chunk: Uint8Array): boolean {
    const end = chunk.length;
    let at = 0;
    while (!this.closed) {
      if (this.bodyNeed >= 0) {
        if (this.bodyHave === 0 && end - at >= this.bodyNeed) {
          const bodyAt = at;
          at += this.bodyNeed;
          this.deliver(chunk, bodyAt, false);
          continue;
        }
        if (at === end) break;
        at = this.fillBody(chunk, at, end);
      } else if (at === end) {
        break;
      } else if (this.preambleHave === 0 && end - at >= PREAMBLE_LEN) {
        this.readPreamble(chunk, at);
        at += PREAMBLE_LEN;
      } else {
        at = this.fillPreamble(chunk, at, end);
      }
    }
    return !this.closed;
  }

  /** The stream has ended. False when it ended inside a frame, or had been given up before. */
  finish(): boolean {
    if (!this.closed && this.pendingBytes > 0) {
      this.fail(new VeloError('ERR_BAD_FRAME', `stream ended inside a frame, after ${this.pendingBytes} of its bytes`));
    }
    const clean = this.error === undefined;
    this.close();
    return clean;
  }

  /** Delivers nothing more and lets go of what was assembled; may be called from inside the handler. */
  close(): void {
    this.closed = true;
    this.bodyNeed = -1;
    this.preambleHave = 0;
    this.body = NO_BYTES;
  }

  private fillPreamble(chunk: Uint8Array, at: number, end: number): number {
    const take = Math.min(PREAMBLE_LEN - this.preambleHave, end - at);
    for (let i = 0; i < take; i++) this.preamble[this.preambleHave + i] = chunk[at + i]!;
    this.preambleHave += take;
    if (this.preambleHave === PREAMBLE_LEN) {
      this.preambleHave = 0;
      this.readPreamble(this.preamble, 0);
    }
    return at + take;
  }

  private fillBody(chunk: Uint8Array, at: number, end: number): number {
    const take = Math.min(this.bodyNeed - this.bodyHave, end - at);
    this.reserve(this.bodyHave + take);
    this.body.set(chunk.subarray(at, at + take), this.bodyHave);
    this.bodyHave += take;
    if (this.bodyHave < this.bodyNeed) return end;
    const owned = this.body.length > KEPT_ASSEMBLY_BYTES;
    const body = this.body;
    if (owned) this.body = NO_BYTES;
    this.deliver(body, 0, owned);
    return at + take;
  }

  /** Judges a preamble and starts its frame, or gives the stream up. */
  private readPreamble(buffer: Uint8Array, at: number): void {
    const version = readU16BE(buffer, at);
    if (version !== FRAME_VERSION) {
      this.fail(new VeloError('ERR_UNSUPPORTED_VERSION', `transport version ${version} is not supported`));
      return;
    }
    const type = buffer[at + OFFSET_TYPE]!;
    if (type > MAX_FRAME_TYPE) {
      this.fail(new VeloError('ERR_UNKNOWN_TYPE', `frame type ${type} is unknown`));
      return;
    }
    const headerLength = readU32BE(buffer, at + OFFSET_HEADER_LEN);
    const payloadLength = readU32BE(buffer, at + OFFSET_PAYLOAD_LEN);
    if (headerLength + payloadLength > this.maxBody) {
      this.fail(tooLarge(headerLength, payloadLength, this.maxBody));
      return;
    }
    this.type = type;
    this.headerLength = headerLength;
    this.bodyNeed = headerLength + payloadLength;
    this.bodyHave = 0;
  }

  private deliver(buffer: Uint8Array, bodyAt: number, owned: boolean): void {
    const length = this.bodyNeed;
    const headerLength = this.headerLength;
    this.bodyNeed = -1;
    this.bodyHave = 0;
    let returned = false;
    try {
      this.onFrame(this.type, buffer, bodyAt, headerLength, bodyAt + headerLength, length - headerLength, owned);
      returned = true;
    } finally {
      // the rest of the chunk is lost with the exception, so the stream cannot go on
      if (!returned) this.fail(new VeloError('ERR_INTERNAL', 'the frame handler threw'));
    }
  }

  /** Makes room for `bytes` of the body, never more than twice of what has come (above a first guess). */
  private reserve(bytes: number): void {
    if (bytes <= this.body.length) return;
    const wanted = Math.max(bytes, this.body.length * 2, FIRST_ASSEMBLY_BYTES);
    const useful = Math.max(this.bodyNeed, FIRST_ASSEMBLY_BYTES);
    const grown = new Uint8Array(Math.min(wanted, useful));
    if (this.bodyHave > 0) grown.set(this.body.subarray(0, this.bodyHave));
    this.body = grown;
  }

  private fail(error: VeloError): void {
    this.error ??= error;
    this.close();
  }
}

const NO_BYTES = new Uint8Array(0);

function tooLarge(headerLength: number, payloadLength: number, maxBody: number): VeloError {
  return new VeloError(
    'ERR_FRAME_TOO_LARGE',
    `frame of ${headerLength} header and ${payloadLength} payload bytes exceeds the limit of ${maxBody}`,
  );
}
