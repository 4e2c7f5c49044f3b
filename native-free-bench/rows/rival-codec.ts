// Owns the rivals' item codec and framing, written as a careful team would write it for a plain socket: their own Packr in reuse mode,
// no buffer per token where none is needed, no copy of a chunk that splits a frame. Must never be used by the project's own rows.

import { Packr, Unpackr } from 'msgpackr';
import type { Token } from '../workload.js';

/** Encode options of msgpackr: return the shared buffer with `start` and `end`, and begin at the same place next time. */
const REUSE_BUFFER_MODE = 512;
const RESET_BUFFER_MODE = 1024;
const IN_PLACE = REUSE_BUFFER_MODE | RESET_BUFFER_MODE;

/** The bytes before an item in every row: a map of one entry whose key is "Item". */
const ITEM_PREFIX = Uint8Array.of(0x81, 0xa4, 0x49, 0x74, 0x65, 0x6d);

interface InPlace extends Uint8Array {
  start: number;
  end: number;
}

const OPTIONS = { useRecords: false, variableMapSize: true };
const packr = new Packr(OPTIONS);
const unpackr = new Unpackr(OPTIONS);

let encoded: InPlace;

/** Encodes a token and returns the length of its frame body (prefix included). `putToken` then copies it out; nothing may come between. */
export function encodeToken(token: Token): number {
  encoded = packr.pack(token, IN_PLACE) as Uint8Array as InPlace;
  return ITEM_PREFIX.length + encoded.end - encoded.start;
}

/** Copies the token encoded last into `out`; returns the offset after it. A byte loop wins at this size. */
export function putToken(out: Uint8Array, offset: number): number {
  let at = offset;
  for (let i = 0; i < ITEM_PREFIX.length; i++) out[at++] = ITEM_PREFIX[i]!;
  const source = encoded;
  for (let i = source.start, end = source.end; i < end; i++) out[at++] = source[i]!;
  return at;
}

const range = { start: 0, end: 0 };

/** Decodes the frame body `[start, end)` without a subarray. */
export function decodeToken(buffer: Uint8Array, start: number, end: number): Token {
  for (let i = 0; i < ITEM_PREFIX.length; i++) {
    if (buffer[start + i] !== ITEM_PREFIX[i]) throw new Error('a frame does not begin with the item prefix');
  }
  range.start = start + ITEM_PREFIX.length;
  range.end = end;
  return unpackr.unpack(buffer, range) as Token;
}

export function putU32(out: Uint8Array, offset: number, value: number): void {
  out[offset] = value >>> 24;
  out[offset + 1] = value >>> 16;
  out[offset + 2] = value >>> 8;
  out[offset + 3] = value;
}

export function getU32(buffer: Uint8Array, offset: number): number {
  return (
    ((buffer[offset]! << 24) | (buffer[offset + 1]! << 16) | (buffer[offset + 2]! << 8) | buffer[offset + 3]!) >>> 0
  );
}

/** Frames are `[u32 stream][u32 length][body]` on a shared connection. */
export const MUX_HEADER_LEN = 8;
/** And `[u32 length][body]` on a connection of one stream, after a u32 that names the stream. */
export const STREAM_HEADER_LEN = 4;

const MAX_BODY = 64 * 1024;

/** Cuts a byte stream into frames. A frame that spans chunks is put together in a small buffer of its own; the rest is read in place. */
export class FrameReader {
  private readonly carry: Uint8Array;
  private held = 0;

  /** `headerLen` bytes of which the last four are the body's length. */
  constructor(
    private readonly headerLen: number,
    private readonly onFrame: (buffer: Uint8Array, header: number, bodyStart: number, bodyEnd: number) => void,
  ) {
    this.carry = new Uint8Array(headerLen + MAX_BODY);
  }

  push(chunk: Uint8Array): void {
    let at = this.held > 0 ? this.completeHeld(chunk) : 0;
    while (chunk.length - at >= this.headerLen) {
      const bodyStart = at + this.headerLen;
      const bodyEnd = bodyStart + this.bodyLength(chunk, at);
      if (bodyEnd > chunk.length) break;
      this.onFrame(chunk, at, bodyStart, bodyEnd);
      at = bodyEnd;
    }
    for (; at < chunk.length; at++) this.carry[this.held++] = chunk[at]!;
  }

  /** Fills up the held frame from the chunk and delivers it; returns how much of the chunk it took. */
  private completeHeld(chunk: Uint8Array): number {
    let at = 0;
    while (this.held < this.headerLen && at < chunk.length) this.carry[this.held++] = chunk[at++]!;
    if (this.held < this.headerLen) return at;
    const total = this.headerLen + this.bodyLength(this.carry, 0);
    while (this.held < total && at < chunk.length) this.carry[this.held++] = chunk[at++]!;
    if (this.held < total) return at;
    this.held = 0;
    this.onFrame(this.carry, 0, this.headerLen, total);
    return at;
  }

  private bodyLength(buffer: Uint8Array, header: number): number {
    const length = getU32(buffer, header + this.headerLen - 4);
    if (length > MAX_BODY) throw new Error(`a frame of ${length} bytes`);
    return length;
  }
}
