// The subset of MessagePack that the protocol itself needs: a writer with minimal widths and a strict, bounded reader.
// Owns no message; it must never decode items (that is the codec's work) and never believe a length before its bytes
// are there. Every refusal is a VeloError `ERR_BAD_MSGPACK`.

import { VeloError } from '../errors.js';
import {
  MAX_U16,
  MAX_U32,
  MAX_U64,
  readU16BE,
  readU32BE,
  u64From,
  u64High,
  u64Low,
  writeU16BE,
  writeU32BE,
} from './bytes.js';
import {
  ANY_EXTENSION,
  ARRAY16,
  ARRAY32,
  BIN8,
  BIN16,
  BIN32,
  FALSE,
  FIXARRAY,
  FIXMAP,
  FIXSTR,
  FLOAT32,
  FLOAT64,
  INT8,
  INT16,
  INT32,
  INT64,
  MAP16,
  MAP32,
  NEGATIVE_FIXINT,
  NEVER_USED,
  NIL,
  STR8,
  STR16,
  STR32,
  scanValue,
  TRUE,
  UINT8,
  UINT16,
  UINT32,
  UINT64,
} from './msgpack-scan.js';
import { decodeUtf8, writeUtf8 } from './utf8.js';

const INITIAL_BYTES = 128;
/** A reused writer gives memory above this back, in bytes. */
const KEPT_BYTES = 1024 * 1024;
/** Longest header of any value this writer makes: a format byte and eight bytes. */
const MAX_HEADER_BYTES = 9;
const MAX_UTF8_BYTES_PER_CHAR = 3;

const MAX_FIXINT = 0x7f;
const MIN_FIXINT = -0x20;
const MAX_FIXSTR = 31;
const MAX_FIX_COUNT = 15;
const MAX_U8 = 0xff;
const MIN_I64 = -0x8000_0000_0000_0000n;

/** Builds one MessagePack value in a growing buffer. */
export class MsgpackWriter {
  private buffer: Uint8Array;
  private position = 0;

  constructor(initialBytes: number = INITIAL_BYTES) {
    this.buffer = new Uint8Array(Math.max(initialBytes, MAX_HEADER_BYTES));
  }

  /** Bytes written so far. */
  get length(): number {
    return this.position;
  }

  /** The bytes written since the last call, as an array of their own. */
  finish(): Uint8Array {
    const bytes = this.buffer.slice(0, this.position);
    this.position = 0;
    return bytes;
  }

  /** Forgets what was written; keeps the memory, unless one large value made it large. */
  reset(): void {
    this.position = 0;
    if (this.buffer.length > KEPT_BYTES) this.buffer = new Uint8Array(INITIAL_BYTES);
  }

  /** The memory written to; its first `length` bytes are the value, until the next write. */
  get storage(): Uint8Array {
    return this.buffer;
  }

  nil(): this {
    return this.byte(NIL);
  }

  bool(value: boolean): this {
    return this.byte(value ? TRUE : FALSE);
  }

  /** An integer in its shortest form. Numbers must be safe integers, bigints must fit 64 bits. */
  int(value: number | bigint): this {
    if (typeof value === 'number') {
      if (!Number.isSafeInteger(value)) throw badArgument(`${value} is not a safe integer`);
      if (value > MAX_U32 || value < -0x8000_0000) return this.wide(BigInt(value));
      return value >= 0 ? this.uint32(value) : this.negative(value);
    }
    if (value > MAX_U64 || value < MIN_I64) throw badArgument(`${value} does not fit 64 bits`);
    if (value >= -0x8000_0000n && value <= BigInt(MAX_U32)) return this.int(Number(value));
    return this.wide(value);
  }

  float64(value: number): this {
    this.room(MAX_HEADER_BYTES);
    this.buffer[this.position] = FLOAT64;
    new DataView(this.buffer.buffer, this.buffer.byteOffset).setFloat64(this.position + 1, value);
    this.position += MAX_HEADER_BYTES;
    return this;
  }

  str(text: string): this {
    this.room(MAX_HEADER_BYTES + text.length * MAX_UTF8_BYTES_PER_CHAR);
    // written where the longest header would end, moved down once its length is known
    const at = this.position + MAX_HEADER_BYTES;
    const length = writeUtf8(this.buffer, at, text);
    if (length <= MAX_FIXSTR) this.byte(FIXSTR | length);
    else this.sized(length, STR8, STR16, STR32);
    this.buffer.copyWithin(this.position, at, at + length);
    this.position += length;
    return this;
  }

  bin(bytes: Uint8Array): this {
    this.room(MAX_HEADER_BYTES + bytes.length);
    this.sized(bytes.length, BIN8, BIN16, BIN32);
    this.buffer.set(bytes, this.position);
    this.position += bytes.length;
    return this;
  }

  /** The bytes as an array of integers, the form addresses have on the wire. */
  byteArray(bytes: Uint8Array): this {
    this.arrayHeader(bytes.length);
    for (let i = 0; i < bytes.length; i++) this.uint32(bytes[i]!);
    return this;
  }

  arrayHeader(count: number): this {
    if (count <= MAX_FIX_COUNT) return this.byte(FIXARRAY | count);
    return this.sized(count, undefined, ARRAY16, ARRAY32);
  }

  mapHeader(count: number): this {
    if (count <= MAX_FIX_COUNT) return this.byte(FIXMAP | count);
    return this.sized(count, undefined, MAP16, MAP32);
  }

  private byte(value: number): this {
    this.room(1);
    this.buffer[this.position] = value;
    this.position += 1;
    return this;
  }

  private uint32(value: number): this {
    if (value <= MAX_FIXINT) return this.byte(value);
    return this.sized(value, UINT8, UINT16, UINT32);
  }

  private negative(value: number): this {
    if (value >= MIN_FIXINT) return this.byte(value & MAX_U8);
    if (value >= -0x80) return this.byte(INT8).byte(value & MAX_U8);
    this.room(MAX_HEADER_BYTES);
    if (value >= -0x8000) {
      this.byte(INT16);
      writeU16BE(this.buffer, this.position, value);
      this.position += 2;
      return this;
    }
    this.byte(INT32);
    writeU32BE(this.buffer, this.position, value);
    this.position += 4;
    return this;
  }

  private wide(value: bigint): this {
    this.room(MAX_HEADER_BYTES);
    this.byte(value < 0n ? INT64 : UINT64);
    const bits = BigInt.asUintN(64, value);
    writeU32BE(this.buffer, this.position, u64High(bits));
    writeU32BE(this.buffer, this.position + 4, u64Low(bits));
    this.position += 8;
    return this;
  }

  private sized(value: number, token8: number | undefined, token16: number, token32: number): this {
    this.room(MAX_HEADER_BYTES);
    if (token8 !== undefined && value <= MAX_U8) return this.byte(token8).byte(value);
    if (value <= MAX_U16) {
      this.byte(token16);
      writeU16BE(this.buffer, this.position, value);
      this.position += 2;
      return this;
    }
    if (value > MAX_U32) throw badArgument(`length ${value} does not fit 32 bits`);
    this.byte(token32);
    writeU32BE(this.buffer, this.position, value);
    this.position += 4;
    return this;
  }

  private room(bytes: number): void {
    const need = this.position + bytes;
    if (need <= this.buffer.length) return;
    const grown = new Uint8Array(Math.max(need, this.buffer.length * 2));
    grown.set(this.buffer.subarray(0, this.position));
    this.buffer = grown;
  }
}

/** What the next value is. `end`: nothing left; `invalid`: a reserved byte. */
export type MsgpackKind =
  | 'nil'
  | 'bool'
  | 'int'
  | 'float'
  | 'str'
  | 'bin'
  | 'array'
  | 'map'
  | 'ext'
  | 'invalid'
  | 'end';

/** Reads `bytes[start..end)` value by value. */
export class MsgpackReader {
  private readonly bytes: Uint8Array;
  private readonly end: number;
  private at: number;

  constructor(bytes: Uint8Array, start = 0, end: number = bytes.length) {
    this.bytes = bytes;
    this.at = start;
    this.end = end;
  }

  /** Offset of the next value, absolute in the buffer. */
  get position(): number {
    return this.at;
  }

  get remaining(): number {
    return this.end - this.at;
  }

  kind(): MsgpackKind {
    if (this.at >= this.end) return 'end';
    return kindOf(this.bytes[this.at]!);
  }

  /** Consumes a nil if one is next. */
  takeNil(): boolean {
    if (this.kind() !== 'nil') return false;
    this.at += 1;
    return true;
  }

  bool(): boolean {
    if (this.kind() !== 'bool') throw this.unexpected('a boolean');
    const value = this.bytes[this.at] === TRUE;
    this.at += 1;
    return value;
  }

  /** An unsigned integer of at most `max`, which must be a safe integer. Any integer form of the value is taken. */
  uint(max: number): number {
    const value = this.integer();
    if (value < 0 || value > max) throw bad(`integer ${value} is outside 0..${max}`);
    return Number(value);
  }

  u64(): bigint {
    const value = BigInt(this.integer());
    if (value < 0n) throw bad(`integer ${value} is negative`);
    return value;
  }

  /** A signed integer inside `min..max`. */
  int(min: number, max: number): number {
    const value = this.integer();
    if (value < min || value > max) throw bad(`integer ${value} is outside ${min}..${max}`);
    return Number(value);
  }

  str(): string {
    const length = this.lengthOf('str', 'a string');
    const text = decodeUtf8(this.bytes, this.at, this.at + length);
    if (text === undefined) throw bad(`string at ${this.at} is not UTF-8`);
    this.at += length;
    return text;
  }

  /** A byte string, copied out. */
  bin(): Uint8Array {
    const length = this.lengthOf('bin', 'bytes');
    const bytes = new Uint8Array(this.bytes.subarray(this.at, this.at + length));
    this.at += length;
    return bytes;
  }

  /** Bytes in either of their forms: a byte string, or an array of integers 0..255. */
  binOrByteArray(): Uint8Array {
    if (this.kind() === 'bin') return this.bin();
    const length = this.arrayHeader();
    const bytes = new Uint8Array(length);
    for (let i = 0; i < length; i++) bytes[i] = this.uint(MAX_U8);
    return bytes;
  }

  /** Number of elements; never more than the bytes that are left. */
  arrayHeader(): number {
    if (this.kind() !== 'array') throw this.unexpected('an array');
    return this.countOf(FIXARRAY, ARRAY16, 1);
  }

  /** Number of entries; never more than half of the bytes that are left. */
  mapHeader(): number {
    if (this.kind() !== 'map') throw this.unexpected('a map');
    return this.countOf(FIXMAP, MAP16, 2);
  }

  /** Steps over one value of any kind. */
  skip(): void {
    const next = scanValue(this.bytes, this.at, this.end, ANY_EXTENSION);
    if (next < 0) throw bad(`no complete value at ${this.at}`);
    this.at = next;
  }

  /** Refuses bytes after the last value. */
  expectEnd(): void {
    if (this.remaining > 0) throw bad(`${this.remaining} bytes after the value`);
  }

  private integer(): number | bigint {
    const bytes = this.bytes;
    const token = this.at < this.end ? bytes[this.at]! : NIL;
    if (token <= MAX_FIXINT) return this.step(1, token);
    if (token >= NEGATIVE_FIXINT) return this.step(1, token - 0x100);
    if (token < UINT8 || token > INT64) throw this.unexpected('an integer');
    const width = 1 << ((token - UINT8) & 3);
    if (this.remaining < 1 + width) throw truncated(this.at);
    const body = this.at + 1;
    this.at = body + width;
    switch (token) {
      case UINT8:
        return bytes[body]!;
      case UINT16:
        return readU16BE(bytes, body);
      case UINT32:
        return readU32BE(bytes, body);
      case INT8:
        return (bytes[body]! << 24) >> 24;
      case INT16:
        return (readU16BE(bytes, body) << 16) >> 16;
      case INT32:
        return readU32BE(bytes, body) | 0;
      default: {
        const bits = u64From(readU32BE(bytes, body), readU32BE(bytes, body + 4));
        return token === INT64 ? BigInt.asIntN(64, bits) : bits;
      }
    }
  }

  private step(bytes: number, value: number): number {
    this.at += bytes;
    return value;
  }

  /** Consumes the header of a str or bin; the body is known to be there. */
  private lengthOf(kind: 'str' | 'bin', what: string): number {
    if (this.kind() !== kind) throw this.unexpected(what);
    const token = this.bytes[this.at]!;
    this.at += 1;
    let length = token & MAX_FIXSTR;
    if (token >= NIL) length = this.sizeField(1 << (token - (kind === 'str' ? STR8 : BIN8)));
    if (length > this.remaining) throw truncated(this.at);
    return length;
  }

  private countOf(fixToken: number, token16: number, bytesPerEntry: number): number {
    const token = this.bytes[this.at]!;
    this.at += 1;
    const count = token < fixToken + 16 ? token & MAX_FIX_COUNT : this.sizeField(token === token16 ? 2 : 4);
    if (count * bytesPerEntry > this.remaining) throw truncated(this.at);
    return count;
  }

  private sizeField(width: number): number {
    if (this.remaining < width) throw truncated(this.at);
    const at = this.at;
    this.at += width;
    if (width === 1) return this.bytes[at]!;
    return width === 2 ? readU16BE(this.bytes, at) : readU32BE(this.bytes, at);
  }

  private unexpected(what: string): VeloError {
    return bad(`expected ${what} at ${this.at}, found ${this.kind()}`);
  }
}

function kindOf(token: number): MsgpackKind {
  if (token < FIXMAP || token >= NEGATIVE_FIXINT) return 'int';
  if (token < FIXARRAY) return 'map';
  if (token < FIXSTR) return 'array';
  if (token < NIL) return 'str';
  if (token >= UINT8 && token <= INT64) return 'int';
  switch (token) {
    case NIL:
      return 'nil';
    case FALSE:
    case TRUE:
      return 'bool';
    case BIN8:
    case BIN16:
    case BIN32:
      return 'bin';
    case STR8:
    case STR16:
    case STR32:
      return 'str';
    case ARRAY16:
    case ARRAY32:
      return 'array';
    case MAP16:
    case MAP32:
      return 'map';
    case FLOAT32:
    case FLOAT64:
      return 'float';
    case NEVER_USED:
      return 'invalid';
    default:
      return 'ext';
  }
}

function bad(message: string): VeloError {
  return new VeloError('ERR_BAD_MSGPACK', message);
}

function truncated(at: number): VeloError {
  return bad(`value at ${at} is truncated`);
}

function badArgument(message: string): VeloError {
  return new VeloError('ERR_INVALID_ARGUMENT', message);
}
