// Item codecs: what an application sends ↔ the MessagePack value inside an `Item` frame. Owns the three kinds of codec
// and the terms on which their bytes are lent; it must never hand out memory that another use of msgpackr in the same
// thread may write to, and never let an error of an item escape under another code.

/// <reference path="./msgpackr-no-eval.d.ts" />
import { Packr, RESET_BUFFER_MODE, REUSE_BUFFER_MODE } from 'msgpackr/index-no-eval';
import { VeloError } from '../errors.js';
import { MsgpackReader, MsgpackWriter } from './msgpack.js';
import { type ExtensionRules, scanValue } from './msgpack-scan.js';
import { writeMsgpackValue } from './msgpack-value.js';

/** Where the value that was encoded last stands. */
export interface EncodedValue {
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly end: number;
}

/**
 * Turns items into bytes and back. After {@link encode} the value stands in `bytes[start..end)`, only until the next
 * encode on this thread: copy it at once. One codec object serves one thread.
 */
export interface ItemCodec<T> extends EncodedValue {
  /** @throws VeloError `ERR_SERIALIZATION`, with the cause. */
  encode(item: T): void;

  /**
   * Decodes the one value in `bytes[start..end)`. The result shares no memory with `bytes`. The bytes must be private to
   * this thread while the call runs.
   *
   * @throws VeloError `ERR_DESERIALIZATION`, with the cause; also for bytes after the value.
   */
  decode(bytes: Uint8Array, start: number, end: number): T;
}

const NO_BYTES = new Uint8Array(0);

/** Extension types an item may hold: undefined (0, written by some peers) and timestamp (−1). */
const EXTENSION_UNDEFINED = 0x00;
const EXTENSION_TIMESTAMP = 0xff;
const ITEM_EXTENSIONS: ExtensionRules = new Uint8Array(256);
ITEM_EXTENSIONS[EXTENSION_UNDEFINED] = 1;
ITEM_EXTENSIONS[EXTENSION_TIMESTAMP] = 1;

const ENCODE_MODE = REUSE_BUFFER_MODE | RESET_BUFFER_MODE;

/**
 * The default codec: any value of MessagePack, by way of msgpackr.
 *
 * Its entry without code generation is a bundle of its own: module state, and the buffer it encodes into, are not those
 * of an application that uses msgpackr too, and its native string reader (slower on small items, and forty times slower
 * on shared memory) is never installed there.
 *
 * - Numbers that are integers of 32 bits go out as integers, all others as float64, **also safe integers from 2^32 up**:
 *   msgpackr has no option for it. Use a bigint for a u64 field of a Rust peer, or {@link exactMsgpackCodec}.
 * - Integers decode as numbers, as bigints beyond 2^53. Maps decode as objects. Uint8Array ↔ bin, and decoded binaries
 *   are copies. undefined goes out as nil, Set as array, Map as map, Date as a timestamp. Functions and symbols are refused.
 * - An item may be nested 128 levels deep. This codec does not count them as it encodes: the reader of a deeper one ends with
 *   `ERR_DESERIALIZATION`. {@link exactMsgpackCodec} refuses it at the sender.
 * - Strings that are not UTF-8 decode with U+FFFD in place of the bad bytes.
 */
export function msgpackCodec<T = unknown>(): ItemCodec<T> {
  return new MsgpackrCodec<T>();
}

class MsgpackrCodec<T> implements ItemCodec<T> {
  bytes: Uint8Array = NO_BYTES;
  start = 0;
  end = 0;
  private readonly packr = newPackr();
  private readonly range = { start: 0, end: 0 };

  encode(item: T): void {
    try {
      const target = this.packr.encode(item, ENCODE_MODE);
      this.bytes = target;
      this.start = target.start;
      this.end = target.end;
    } catch (cause) {
      throw cannotEncode(cause);
    }
  }

  decode(bytes: Uint8Array, start: number, end: number): T {
    return unpackItem(this.packr, this.range, bytes, start, end) as T;
  }
}

/**
 * A codec that writes every safe integer, and every bigint of 64 bits, as an integer of minimal width: byte for byte what
 * a Rust peer writes for the same value. Slower to encode than {@link msgpackCodec}; decodes alike. A Date is written as
 * the string its toJSON gives; functions and symbols are refused.
 */
export function exactMsgpackCodec<T = unknown>(): ItemCodec<T> {
  return new ExactCodec<T>();
}

class ExactCodec<T> implements ItemCodec<T> {
  private busy = false;
  bytes: Uint8Array = NO_BYTES;
  readonly start = 0;
  end = 0;
  private readonly writer = new MsgpackWriter();
  private readonly packr = newPackr();
  private readonly range = { start: 0, end: 0 };

  encode(item: T): void {
    const writer = this.writer;
    // A getter or toJSON of an item that encodes another one with this codec would write into the middle of its own item.
    if (this.busy) throw cannotEncode(new Error('the codec is at work on another item'));
    this.busy = true;
    writer.reset();
    try {
      writeMsgpackValue(writer, item);
    } catch (cause) {
      throw cannotEncode(cause);
    } finally {
      this.busy = false;
    }
    this.bytes = writer.storage;
    this.end = writer.length;
  }

  decode(bytes: Uint8Array, start: number, end: number): T {
    return unpackItem(this.packr, this.range, bytes, start, end) as T;
  }
}

/** A codec for items that are bytes already: Uint8Array ↔ one MessagePack byte string. */
export function rawCodec(): ItemCodec<Uint8Array> {
  return new RawCodec();
}

class RawCodec implements ItemCodec<Uint8Array> {
  bytes: Uint8Array = NO_BYTES;
  readonly start = 0;
  end = 0;
  private readonly writer = new MsgpackWriter();

  encode(item: Uint8Array): void {
    if (!(item instanceof Uint8Array)) throw cannotEncode(new TypeError('rawCodec encodes Uint8Array only'));
    const writer = this.writer;
    writer.reset();
    writer.bin(item);
    this.bytes = writer.storage;
    this.end = writer.length;
  }

  decode(bytes: Uint8Array, start: number, end: number): Uint8Array {
    try {
      const reader = new MsgpackReader(bytes, start, end);
      const item = reader.binOrByteArray();
      reader.expectEnd();
      return item;
    } catch (cause) {
      throw cannotDecode(cause);
    }
  }
}

/** An application's own codec. Both functions deal in the value alone, the bytes behind the `Item` prefix. */
export interface CustomCodecFunctions<T> {
  /** Must return exactly one MessagePack value when a Rust peer is to read it. */
  encode(item: T): Uint8Array;
  /** Is given a copy of its own. */
  decode(bytes: Uint8Array): T;
}

export function customCodec<T>(functions: CustomCodecFunctions<T>): ItemCodec<T> {
  return new CustomCodec<T>(functions);
}

class CustomCodec<T> implements ItemCodec<T> {
  bytes: Uint8Array = NO_BYTES;
  readonly start = 0;
  end = 0;
  private readonly functions: CustomCodecFunctions<T>;

  constructor(functions: CustomCodecFunctions<T>) {
    this.functions = functions;
  }

  encode(item: T): void {
    let bytes: unknown;
    try {
      bytes = this.functions.encode(item);
    } catch (cause) {
      throw cannotEncode(cause);
    }
    if (!(bytes instanceof Uint8Array)) throw cannotEncode(new TypeError('a custom codec must encode to Uint8Array'));
    this.bytes = bytes;
    this.end = bytes.length;
  }

  decode(bytes: Uint8Array, start: number, end: number): T {
    try {
      return this.functions.decode(new Uint8Array(bytes.subarray(start, end)));
    } catch (cause) {
      throw cannotDecode(cause);
    }
  }
}

function newPackr(): Packr {
  return new Packr({
    useRecords: false,
    variableMapSize: true,
    copyBuffers: true,
    int64AsType: 'auto',
    encodeUndefinedAsNil: true,
    structuredClone: false,
    writeFunction: () => {
      throw new TypeError('a function has no MessagePack form');
    },
  });
}

/** True for what this module made: those keep the terms of {@link ItemCodec}. */
export function isOwnCodec(codec: unknown): boolean {
  return (
    codec instanceof MsgpackrCodec ||
    codec instanceof ExactCodec ||
    codec instanceof RawCodec ||
    codec instanceof CustomCodec ||
    codec instanceof CheckedCodec
  );
}

/** A codec of the application's own making, held to the terms of {@link ItemCodec}: what it lends must be there. */
export class CheckedCodec<T> implements ItemCodec<T> {
  bytes: Uint8Array = NO_BYTES;
  start = 0;
  end = 0;

  constructor(private readonly inner: ItemCodec<T>) {}

  encode(item: T): void {
    const { inner } = this;
    try {
      inner.encode(item);
    } catch (cause) {
      throw cannotEncode(cause);
    }
    const { bytes, start, end } = inner;
    const isThere =
      bytes instanceof Uint8Array &&
      Number.isInteger(start) &&
      Number.isInteger(end) &&
      start >= 0 &&
      start <= end &&
      end <= bytes.length;
    if (!isThere) throw cannotEncode(new RangeError('the codec names bytes that are not there'));
    this.bytes = bytes;
    this.start = start;
    this.end = end;
  }

  decode(bytes: Uint8Array, start: number, end: number): T {
    return this.inner.decode(bytes, start, end);
  }
}

/** The structure is judged first: what reaches msgpackr is one complete value with no length that its bytes do not hold. */
function unpackItem(
  packr: Packr,
  range: { start: number; end: number },
  bytes: Uint8Array,
  start: number,
  end: number,
): unknown {
  const scanned = scanValue(bytes, start, end, ITEM_EXTENSIONS);
  if (scanned !== end) throw cannotDecode(new Error(scanned < 0 ? 'not a MessagePack value' : 'bytes after the value'));
  range.start = start;
  range.end = end;
  try {
    return packr.unpack(bytes, range);
  } catch (cause) {
    throw cannotDecode(cause);
  }
}

function cannotEncode(cause: unknown): VeloError {
  return new VeloError('ERR_SERIALIZATION', `item cannot be encoded: ${textOf(cause)}`, { cause });
}

function cannotDecode(cause: unknown): VeloError {
  return new VeloError('ERR_DESERIALIZATION', `item cannot be decoded: ${textOf(cause)}`, { cause });
}

function textOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : 'an error that is not an Error';
}
