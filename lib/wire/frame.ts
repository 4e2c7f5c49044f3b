// Stream frames: the seven variants, their bytes, and the tests that tell them apart without decoding (streaming
// specification §2). Owns the variant names and the item prefix; it must never decide what a frame does to a stream.

import { VeloError } from '../errors.js';
import { ByteCopier, viewOf } from './byte-copier.js';
import { copyBytes, startsWithAt } from './bytes.js';
import type { EncodedValue, ItemCodec } from './codec.js';
import { MsgpackReader, MsgpackWriter } from './msgpack.js';
import { FIXMAP, FIXSTR } from './msgpack-scan.js';

/** One element of a stream. */
export type StreamFrame<T> =
  | { readonly kind: 'item'; readonly value: T }
  | { readonly kind: 'senderError'; readonly message: string }
  | { readonly kind: 'dropped' }
  | { readonly kind: 'detached' }
  | { readonly kind: 'finalized' }
  | { readonly kind: 'heartbeat' }
  | { readonly kind: 'transportError'; readonly message: string };

/** What {@link frameKind} tells; the numbers are the variants in declared order. */
export const FRAME_INVALID = -1;
export const FRAME_ITEM = 0;
export const FRAME_SENDER_ERROR = 1;
export const FRAME_DROPPED = 2;
export const FRAME_DETACHED = 3;
export const FRAME_FINALIZED = 4;
export const FRAME_HEARTBEAT = 5;
export const FRAME_TRANSPORT_ERROR = 6;

const ONE_ENTRY_MAP = FIXMAP | 1;
const FOUR_BYTE_STR = FIXSTR | 4;
const CHAR_I = 0x49;
const CHAR_T = 0x74;
const CHAR_E = 0x65;
const CHAR_M = 0x6d;

/** A map of one entry whose key is "Item"; the value follows. */
export const ITEM_PREFIX: Uint8Array = Uint8Array.of(ONE_ENTRY_MAP, FOUR_BYTE_STR, CHAR_I, CHAR_T, CHAR_E, CHAR_M);
export const ITEM_PREFIX_LEN = ITEM_PREFIX.length;

/** Bytes of the frames that carry nothing. Shared: never write to them. */
export const DROPPED_BYTES = stringFrame('Dropped');
export const DETACHED_BYTES = stringFrame('Detached');
export const FINALIZED_BYTES = stringFrame('Finalized');
export const HEARTBEAT_BYTES = stringFrame('Heartbeat');

/** Map of one entry with the variant's name; the text follows. */
const SENDER_ERROR_PREFIX = variantPrefix('SenderError');
const TRANSPORT_ERROR_PREFIX = variantPrefix('TransportError');

/** True for the bytes of an `Item` frame, whatever its value. Allocates nothing. */
export function isItem(buffer: Uint8Array, offset: number, length: number): boolean {
  return (
    length >= ITEM_PREFIX_LEN &&
    buffer[offset] === ONE_ENTRY_MAP &&
    buffer[offset + 1] === FOUR_BYTE_STR &&
    buffer[offset + 2] === CHAR_I &&
    buffer[offset + 3] === CHAR_T &&
    buffer[offset + 4] === CHAR_E &&
    buffer[offset + 5] === CHAR_M
  );
}

/**
 * The variant of a frame, or {@link FRAME_INVALID}. Items are told by their prefix alone; a frame with a text must be
 * whole and valid. Allocates nothing but for frames with a text.
 */
export function frameKind(buffer: Uint8Array, offset: number, length: number): number {
  if (isItem(buffer, offset, length)) return FRAME_ITEM;
  if (length === 0) return FRAME_INVALID;
  if (buffer[offset] === ONE_ENTRY_MAP) {
    if (isTextFrame(buffer, offset, length, SENDER_ERROR_PREFIX)) return FRAME_SENDER_ERROR;
    return isTextFrame(buffer, offset, length, TRANSPORT_ERROR_PREFIX) ? FRAME_TRANSPORT_ERROR : FRAME_INVALID;
  }
  if (isExactly(buffer, offset, length, HEARTBEAT_BYTES)) return FRAME_HEARTBEAT;
  if (isExactly(buffer, offset, length, FINALIZED_BYTES)) return FRAME_FINALIZED;
  if (isExactly(buffer, offset, length, DETACHED_BYTES)) return FRAME_DETACHED;
  return isExactly(buffer, offset, length, DROPPED_BYTES) ? FRAME_DROPPED : FRAME_INVALID;
}

/** True for Finalized, Detached, Dropped and TransportError. Allocates nothing for items and for the first three. */
export function isTerminalSentinel(buffer: Uint8Array, offset: number, length: number): boolean {
  if (isItem(buffer, offset, length)) return false;
  return isTerminalKind(frameKind(buffer, offset, length));
}

/** True for the kinds that end a stream or an attachment. */
export function isTerminalKind(kind: number): boolean {
  return (
    kind === FRAME_FINALIZED || kind === FRAME_DETACHED || kind === FRAME_DROPPED || kind === FRAME_TRANSPORT_ERROR
  );
}

/** Bytes of a SenderError frame. */
export function senderErrorFrame(message: string): Uint8Array {
  return new MsgpackWriter().mapHeader(1).str('SenderError').str(message).finish();
}

/** Bytes of a TransportError frame. */
export function transportErrorFrame(message: string): Uint8Array {
  return new MsgpackWriter().mapHeader(1).str('TransportError').str(message).finish();
}

/** Bytes an `Item` frame takes for what `codec` encoded last. */
export function itemFrameLength(codec: EncodedValue): number {
  return ITEM_PREFIX_LEN + codec.end - codec.start;
}

/** Writes the `Item` frame of what `codec` encoded last; the room must be there. Returns its length. */
export function writeItemFrame(target: Uint8Array, offset: number, codec: EncodedValue): number {
  target[offset] = ONE_ENTRY_MAP;
  target[offset + 1] = FOUR_BYTE_STR;
  target[offset + 2] = CHAR_I;
  target[offset + 3] = CHAR_T;
  target[offset + 4] = CHAR_E;
  target[offset + 5] = CHAR_M;
  const length = codec.end - codec.start;
  copyBytes(target, offset + ITEM_PREFIX_LEN, codec.bytes, codec.start, length);
  return ITEM_PREFIX_LEN + length;
}

/** The item prefix as a word and a half, big-endian. */
const ITEM_PREFIX_WORD = 0x81a44974;
const ITEM_PREFIX_REST = 0x656d;

/** Writes `Item` frames into one buffer, again and again: what {@link writeItemFrame} does, for the per-record path. */
export class ItemFrameWriter {
  private readonly view: DataView;
  private readonly copier = new ByteCopier();

  constructor(private readonly target: Uint8Array) {
    this.view = viewOf(target);
  }

  /** Writes the frame of what `codec` encoded last at `offset`; the room must be there. */
  write(offset: number, codec: EncodedValue): void {
    this.view.setUint32(offset, ITEM_PREFIX_WORD);
    this.view.setUint16(offset + 4, ITEM_PREFIX_REST);
    const body = offset + ITEM_PREFIX_LEN;
    this.copier.copy(this.target, this.view, body, codec.bytes, codec.start, codec.end - codec.start);
  }
}

/** Any frame in an array of its own. */
export function encodeStreamFrame<T>(frame: StreamFrame<T>, codec: ItemCodec<T>): Uint8Array {
  switch (frame.kind) {
    case 'item': {
      codec.encode(frame.value);
      const bytes = new Uint8Array(itemFrameLength(codec));
      writeItemFrame(bytes, 0, codec);
      return bytes;
    }
    case 'senderError':
      return senderErrorFrame(frame.message);
    case 'dropped':
      return DROPPED_BYTES.slice();
    case 'detached':
      return DETACHED_BYTES.slice();
    case 'finalized':
      return FINALIZED_BYTES.slice();
    case 'heartbeat':
      return HEARTBEAT_BYTES.slice();
    case 'transportError':
      return transportErrorFrame(frame.message);
    default: {
      const never: never = frame;
      throw new VeloError('ERR_INVALID_ARGUMENT', `unknown frame ${String(never)}`);
    }
  }
}

/**
 * Decodes one frame. The value of an item goes to the codec in place.
 *
 * @throws VeloError `ERR_DESERIALIZATION` for anything that is not exactly one frame.
 */
export function decodeStreamFrame<T>(
  buffer: Uint8Array,
  offset: number,
  length: number,
  codec: ItemCodec<T>,
): StreamFrame<T> {
  const kind = frameKind(buffer, offset, length);
  switch (kind) {
    case FRAME_ITEM:
      return { kind: 'item', value: codec.decode(buffer, offset + ITEM_PREFIX_LEN, offset + length) };
    case FRAME_SENDER_ERROR:
      return { kind: 'senderError', message: frameText(buffer, offset, length) };
    case FRAME_DROPPED:
      return { kind: 'dropped' };
    case FRAME_DETACHED:
      return { kind: 'detached' };
    case FRAME_FINALIZED:
      return { kind: 'finalized' };
    case FRAME_HEARTBEAT:
      return { kind: 'heartbeat' };
    case FRAME_TRANSPORT_ERROR:
      return { kind: 'transportError', message: frameText(buffer, offset, length) };
    default:
      throw new VeloError('ERR_DESERIALIZATION', `${length} bytes that are not a stream frame`);
  }
}

/** The text of a SenderError or TransportError frame that {@link frameKind} has recognised. */
export function frameText(buffer: Uint8Array, offset: number, length: number): string {
  const reader = new MsgpackReader(buffer, offset, offset + length);
  reader.mapHeader();
  reader.str();
  return reader.str();
}

function isTextFrame(buffer: Uint8Array, offset: number, length: number, prefix: Uint8Array): boolean {
  if (!startsWithAt(buffer, offset, offset + length, prefix)) return false;
  try {
    const reader = new MsgpackReader(buffer, offset + prefix.length, offset + length);
    reader.str();
    return reader.remaining === 0;
  } catch {
    return false;
  }
}

function isExactly(buffer: Uint8Array, offset: number, length: number, bytes: Uint8Array): boolean {
  return length === bytes.length && startsWithAt(buffer, offset, offset + length, bytes);
}

function stringFrame(name: string): Uint8Array {
  return new MsgpackWriter().str(name).finish();
}

function variantPrefix(name: string): Uint8Array {
  return new MsgpackWriter().mapHeader(1).str(name).finish();
}
