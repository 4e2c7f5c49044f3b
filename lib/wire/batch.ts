// The mux batch: 16-byte header, then records of 13 bytes plus body, all big-endian (streaming specification §6). Owns
// the byte layout, the encoder and the decoder; it must never know a slot table, a clock or a socket, and neither class
// allocates per record. u64 fields are pairs of unsigned halves.

import { VeloError } from '../errors.js';
import { ByteCopier, viewOf } from './byte-copier.js';
import { MAX_U32, readU16BE, readU32BE, writeU16BE, writeU32BE } from './bytes.js';

/** First byte of every batch of the era this package speaks. */
export const MUX_VERSION = 2;
/** version u8, flags u8, record count u16, epoch u64, batch sequence u32. */
export const BATCH_HEADER_LEN = 16;
/** type u8, slot u32, frame sequence u32, body length u32. */
export const RECORD_HEADER_LEN = 13;
/** The record count is a u16. */
export const MAX_RECORDS_PER_BATCH = 65_535;
/** Bits of `flags` that carry the lane; the upper four are written as zero and ignored by readers. */
export const FLAGS_LANE_MASK = 0x0f;

/** A stream frame; spends the slot's credit (owner → receiver). */
export const RECORD_DATA = 0;
/** Opens a slot for (anchor, session) (owner → receiver). */
export const RECORD_OPEN_SLOT = 1;
/** Ends a slot; the direction stands in the reason (both ways). */
export const RECORD_CLOSE_SLOT = 2;
/** Gives credit back (receiver → owner). */
export const RECORD_CREDIT_UPDATE = 3;
/** Liveness without a frame; never sent, read as a heartbeat (owner → receiver). */
export const RECORD_SLOT_HEARTBEAT = 4;
/** Stop or cancel of a stream by its consumer (receiver → owner). */
export const RECORD_LIFECYCLE = 5;
/** Highest record type this version knows. */
export const MAX_RECORD_TYPE = RECORD_LIFECYCLE;

export const CLOSE_TERMINAL_SENT = 0;
export const CLOSE_PEER_GONE = 1;
export const CLOSE_UNKNOWN_SLOT = 2;
export const CLOSE_PROTOCOL_ERROR = 3;

export const LIFECYCLE_STOP = 0;
export const LIFECYCLE_CANCEL = 1;

/** Body lengths of the fixed-size records. */
export const OPEN_SLOT_BODY_LEN = 16;
export const CLOSE_SLOT_BODY_LEN = 1;
export const CREDIT_UPDATE_BODY_LEN = 4;
export const LIFECYCLE_BODY_LEN = 9;

const OFFSET_FLAGS = 1;
const OFFSET_COUNT = 2;
const OFFSET_EPOCH = 4;
const OFFSET_BATCH_SEQ = 12;

const OFFSET_SLOT = 1;
const OFFSET_FRAME_SEQ = 5;
const OFFSET_BODY_LEN = 9;

const EMPTY = new Uint8Array(0);

/** Records whose body length is free are marked with this. */
const ANY_LENGTH = -1;
const BODY_LENGTHS: readonly number[] = [
  ANY_LENGTH,
  OPEN_SLOT_BODY_LEN,
  CLOSE_SLOT_BODY_LEN,
  CREDIT_UPDATE_BODY_LEN,
  0,
  LIFECYCLE_BODY_LEN,
];

/** True for records that carry control; Data and SlotHeartbeat do not. */
export function isControlRecord(type: number): boolean {
  return (
    type === RECORD_OPEN_SLOT ||
    type === RECORD_CLOSE_SLOT ||
    type === RECORD_CREDIT_UPDATE ||
    type === RECORD_LIFECYCLE
  );
}

/** Length of a batch of `records` records with `bodyBytes` of bodies, or undefined when no exact number holds it. */
export function encodedBatchLength(records: number, bodyBytes: number): number | undefined {
  const length = BATCH_HEADER_LEN + records * RECORD_HEADER_LEN + bodyBytes;
  return Number.isSafeInteger(length) ? length : undefined;
}

/** True when `a` was made after `b`, modulo 2^32. Equal is not newer; neither is the antipode. */
export function batchSeqNewer(a: number, b: number): boolean {
  const distance = (a - b) >>> 0;
  return distance !== 0 && distance < 0x8000_0000;
}

/** How many batches are missing when `got` arrives and `expected` was due, modulo 2^32. */
export function batchSeqGap(expected: number, got: number): number {
  return (got - expected) >>> 0;
}

/**
 * Writes one batch into a caller's buffer. Reusable: {@link begin} starts over. A record that does not fit throws and
 * leaves `length` and `count` as they were.
 */
export class BatchEncoder {
  /** Bytes so far, header included. */
  length = 0;
  /** Records so far. */
  count = 0;
  private buffer: Uint8Array = EMPTY;
  private view = viewOf(EMPTY);
  private start = 0;
  private readonly copier = new ByteCopier();

  /** @throws VeloError `ERR_BATCH_FULL` when the buffer has no room for a header. */
  begin(buffer: Uint8Array, start: number, flags: number, epochHi: number, epochLo: number, batchSeq: number): void {
    if (start < 0 || buffer.length - start < BATCH_HEADER_LEN) throw noRoom(BATCH_HEADER_LEN, buffer.length - start);
    if (this.buffer !== buffer) {
      this.buffer = buffer;
      this.view = viewOf(buffer);
    }
    this.start = start;
    this.length = BATCH_HEADER_LEN;
    this.count = 0;
    buffer[start] = MUX_VERSION;
    buffer[start + OFFSET_FLAGS] = flags;
    writeU16BE(buffer, start + OFFSET_COUNT, 0);
    writeU32BE(buffer, start + OFFSET_EPOCH, epochHi);
    writeU32BE(buffer, start + OFFSET_EPOCH + 4, epochLo);
    writeU32BE(buffer, start + OFFSET_BATCH_SEQ, batchSeq);
  }

  /** Appends a Data record with `len` bytes of `src` from `srcOff`. */
  data(slot: number, frameSeq: number, src: Uint8Array, srcOff: number, len: number): void {
    if (len > MAX_U32) throw new VeloError('ERR_BODY_TOO_LARGE', `record body of ${len} bytes exceeds ${MAX_U32}`);
    if (len < 0 || srcOff < 0 || srcOff + len > src.length) throw badSource(srcOff, len, src.length);
    const body = this.record(RECORD_DATA, slot, frameSeq, len);
    this.copier.copy(this.buffer, this.view, body, src, srcOff, len);
  }

  openSlot(
    slot: number,
    frameSeq: number,
    anchorHi: number,
    anchorLo: number,
    sessionHi: number,
    sessionLo: number,
  ): void {
    const body = this.record(RECORD_OPEN_SLOT, slot, frameSeq, OPEN_SLOT_BODY_LEN);
    const buffer = this.buffer;
    writeU32BE(buffer, body, anchorHi);
    writeU32BE(buffer, body + 4, anchorLo);
    writeU32BE(buffer, body + 8, sessionHi);
    writeU32BE(buffer, body + 12, sessionLo);
  }

  closeSlot(slot: number, frameSeq: number, reason: number): void {
    const body = this.record(RECORD_CLOSE_SLOT, slot, frameSeq, CLOSE_SLOT_BODY_LEN);
    this.buffer[body] = reason;
  }

  creditUpdate(slot: number, delta: number): void {
    const body = this.record(RECORD_CREDIT_UPDATE, slot, 0, CREDIT_UPDATE_BODY_LEN);
    writeU32BE(this.buffer, body, delta);
  }

  lifecycle(slot: number, sessionHi: number, sessionLo: number, action: number): void {
    const body = this.record(RECORD_LIFECYCLE, slot, 0, LIFECYCLE_BODY_LEN);
    const buffer = this.buffer;
    writeU32BE(buffer, body, sessionHi);
    writeU32BE(buffer, body + 4, sessionLo);
    buffer[body + 8] = action;
  }

  /** Present for completeness; peers accept it, this package sends heartbeats as Data. */
  slotHeartbeat(slot: number, frameSeq: number): void {
    this.record(RECORD_SLOT_HEARTBEAT, slot, frameSeq, 0);
  }

  /** Writes the record count into the header and returns the total length. */
  finish(): number {
    writeU16BE(this.buffer, this.start + OFFSET_COUNT, this.count);
    return this.length;
  }

  /** Writes a record header after checking the count and the room; returns where the body goes. */
  private record(type: number, slot: number, frameSeq: number, bodyLength: number): number {
    const need = RECORD_HEADER_LEN + bodyLength;
    const buffer = this.buffer;
    const at = this.start + this.length;
    if (this.count >= MAX_RECORDS_PER_BATCH) throw countFull();
    if (at + need > buffer.length) throw noRoom(need, buffer.length - at);
    const view = this.view;
    buffer[at] = type;
    view.setUint32(at + OFFSET_SLOT, slot);
    view.setUint32(at + OFFSET_FRAME_SEQ, frameSeq);
    view.setUint32(at + OFFSET_BODY_LEN, bodyLength);
    this.length += need;
    this.count += 1;
    return at + RECORD_HEADER_LEN;
  }
}

function countFull(): VeloError {
  return new VeloError('ERR_BATCH_FULL', `a batch holds at most ${MAX_RECORDS_PER_BATCH} records`);
}

function noRoom(need: number, room: number): VeloError {
  return new VeloError('ERR_BATCH_FULL', `the batch buffer has room for ${room} bytes, the record needs ${need}`);
}

function badSource(offset: number, length: number, available: number): VeloError {
  return new VeloError(
    'ERR_INVALID_ARGUMENT',
    `record body ${offset}+${length} is outside its ${available}-byte source`,
  );
}

/** Why a batch could not be read further. Offsets count from the start of the batch. */
export type DecodeError =
  | { readonly kind: 'TruncatedBatchHeader'; readonly len: number }
  | { readonly kind: 'UnsupportedVersion'; readonly version: number }
  | { readonly kind: 'RecordCountMismatch'; readonly declared: number; readonly decoded: number }
  | { readonly kind: 'TruncatedRecordHeader'; readonly offset: number; readonly remaining: number }
  | { readonly kind: 'UnknownRecordType'; readonly offset: number; readonly value: number }
  | {
      readonly kind: 'TruncatedRecordBody';
      readonly offset: number;
      readonly declaredLen: number;
      readonly remaining: number;
    }
  | {
      readonly kind: 'BodyLengthMismatch';
      readonly offset: number;
      readonly recordType: number;
      readonly expected: number;
      readonly actual: number;
    }
  | { readonly kind: 'UnknownCloseReason'; readonly offset: number; readonly value: number }
  | { readonly kind: 'TrailingBytes'; readonly offset: number; readonly remaining: number };

const STATE_FRESH = 0;
const STATE_HEADER = 1;
const STATE_RECORDS = 2;
const STATE_DONE = 3;

/**
 * Reads one batch record by record, in place. The fields describe the record that {@link next} just found; body fields
 * (`anchorHi` …) are only meaningful for its type. Records before a malformed one are delivered; after the first error
 * the decoder is finished.
 *
 * | state   | readHeader       | checkVersion | next                     |
 * |---------|------------------|--------------|--------------------------|
 * | fresh   | → header or done | reads header | reads header and version |
 * | header  | true             | → records or done | checks version      |
 * | records | true             | true         | record, or → done        |
 * | done    | error is unset   | error is unset | false                  |
 */
export class BatchDecoder {
  version = 0;
  flags = 0;
  recordCount = 0;
  epochHi = 0;
  epochLo = 0;
  batchSeq = 0;
  /** Records delivered so far. */
  decoded = 0;

  type = 0;
  slot = 0;
  frameSeq = 0;
  /** Where the body starts, absolute in the buffer. */
  bodyOffset = 0;
  bodyLength = 0;
  anchorHi = 0;
  anchorLo = 0;
  sessionHi = 0;
  sessionLo = 0;
  closeReason = 0;
  delta = 0;
  action = 0;

  error: DecodeError | undefined = undefined;

  private buffer: Uint8Array = EMPTY;
  private start = 0;
  private end = 0;
  private position = 0;
  private state = STATE_FRESH;

  /** Points the cursor at `buffer[start..end)` and forgets everything about the batch before. */
  reset(buffer: Uint8Array, start: number, end: number): void {
    this.buffer = buffer;
    this.start = start;
    this.end = Math.min(end, buffer.length);
    this.position = start;
    this.state = STATE_FRESH;
    this.decoded = 0;
    this.recordCount = 0;
    this.error = undefined;
  }

  /**
   * Reads the 16 header bytes. False when they are not there. The version is read, not judged: epoch and sequence of a
   * batch from another era are still of use to a meter.
   */
  readHeader(): boolean {
    if (this.state !== STATE_FRESH) return this.error === undefined;
    const start = this.start;
    const available = this.end - start;
    if (available < BATCH_HEADER_LEN) return this.fail({ kind: 'TruncatedBatchHeader', len: Math.max(available, 0) });
    const buffer = this.buffer;
    this.version = buffer[start]!;
    this.flags = buffer[start + OFFSET_FLAGS]!;
    this.recordCount = readU16BE(buffer, start + OFFSET_COUNT);
    this.epochHi = readU32BE(buffer, start + OFFSET_EPOCH);
    this.epochLo = readU32BE(buffer, start + OFFSET_EPOCH + 4);
    this.batchSeq = readU32BE(buffer, start + OFFSET_BATCH_SEQ);
    this.position = start + BATCH_HEADER_LEN;
    this.state = STATE_HEADER;
    return true;
  }

  /** False, with the error set, for a batch of another version. */
  checkVersion(): boolean {
    if (this.state === STATE_FRESH && !this.readHeader()) return false;
    if (this.state === STATE_HEADER) {
      if (this.version !== MUX_VERSION) return this.fail({ kind: 'UnsupportedVersion', version: this.version });
      this.state = STATE_RECORDS;
    }
    return this.error === undefined;
  }

  /** Moves to the next record. False at the end and at the first error; `error` tells which. */
  next(): boolean {
    if (this.state !== STATE_RECORDS && (this.state === STATE_DONE || !this.checkVersion())) return false;
    const buffer = this.buffer;
    const at = this.position;
    const remaining = this.end - at;
    if (this.decoded === this.recordCount) return this.endOfBatch(at, remaining);
    if (remaining < RECORD_HEADER_LEN) return this.shortRecord(at, remaining);
    const type = buffer[at]!;
    if (type > MAX_RECORD_TYPE) {
      return this.fail({ kind: 'UnknownRecordType', offset: at - this.start, value: type });
    }
    const bodyLength = readU32BE(buffer, at + OFFSET_BODY_LEN);
    const bodyOffset = at + RECORD_HEADER_LEN;
    if (bodyLength > this.end - bodyOffset) {
      const left = this.end - bodyOffset;
      return this.fail({
        kind: 'TruncatedRecordBody',
        offset: at - this.start,
        declaredLen: bodyLength,
        remaining: left,
      });
    }
    this.type = type;
    this.slot = readU32BE(buffer, at + OFFSET_SLOT);
    this.frameSeq = readU32BE(buffer, at + OFFSET_FRAME_SEQ);
    this.bodyOffset = bodyOffset;
    this.bodyLength = bodyLength;
    if (type !== RECORD_DATA && !this.readBody(type, at)) return false;
    this.position = bodyOffset + bodyLength;
    this.decoded += 1;
    return true;
  }

  /** Bounds of what is still to come. The lower one is always 0: a count on the wire is a claim, not a promise. */
  sizeHint(): readonly [lower: number, upper: number] {
    if (this.state === STATE_DONE) return [0, 0];
    return [0, this.state === STATE_FRESH ? MAX_RECORDS_PER_BATCH : this.recordCount - this.decoded];
  }

  private readBody(type: number, at: number): boolean {
    const expected = BODY_LENGTHS[type]!;
    if (this.bodyLength !== expected) return this.badBody(at, expected);
    const buffer = this.buffer;
    const body = this.bodyOffset;
    switch (type) {
      case RECORD_OPEN_SLOT:
        this.anchorHi = readU32BE(buffer, body);
        this.anchorLo = readU32BE(buffer, body + 4);
        this.sessionHi = readU32BE(buffer, body + 8);
        this.sessionLo = readU32BE(buffer, body + 12);
        return true;
      case RECORD_CLOSE_SLOT: {
        const reason = buffer[body]!;
        if (reason > CLOSE_PROTOCOL_ERROR) {
          return this.fail({ kind: 'UnknownCloseReason', offset: at - this.start, value: reason });
        }
        this.closeReason = reason;
        return true;
      }
      case RECORD_CREDIT_UPDATE:
        this.delta = readU32BE(buffer, body);
        return true;
      case RECORD_LIFECYCLE: {
        const action = buffer[body + 8]!;
        if (action > LIFECYCLE_CANCEL) return this.badBody(at, expected);
        this.sessionHi = readU32BE(buffer, body);
        this.sessionLo = readU32BE(buffer, body + 4);
        this.action = action;
        return true;
      }
      default:
        return true;
    }
  }

  private endOfBatch(at: number, remaining: number): boolean {
    if (remaining > 0) return this.fail({ kind: 'TrailingBytes', offset: at - this.start, remaining });
    this.state = STATE_DONE;
    return false;
  }

  private shortRecord(at: number, remaining: number): boolean {
    if (remaining === 0) {
      return this.fail({ kind: 'RecordCountMismatch', declared: this.recordCount, decoded: this.decoded });
    }
    return this.fail({ kind: 'TruncatedRecordHeader', offset: at - this.start, remaining });
  }

  private badBody(at: number, expected: number): boolean {
    return this.fail({
      kind: 'BodyLengthMismatch',
      offset: at - this.start,
      recordType: this.type,
      expected,
      actual: this.bodyLength,
    });
  }

  private fail(error: DecodeError): false {
    this.error = error;
    this.state = STATE_DONE;
    return false;
  }
}
