// What stands in a frame's header: the request envelope, the response header, the ack header (messenger specification
// §3). Little-endian. Owns encode, decode and the peeks that need no decode; it must never dispatch, and never look into
// a payload.

import { VeloError } from '../errors.js';
import { readU16LE, startsWithAt, writeU16LE } from './bytes.js';
import { decodeHeaderMap, MAX_REQUEST_MAP_BYTES } from './header-map.js';
import { BATCH_HANDLERS, DRAIN_EXEMPT_HANDLERS } from './names.js';
import { RESPONSE_ID_LEN, type ResponseId, readResponseId, writeResponseId } from './response-id.js';
import { decodeUtf8, encodeUtf8 } from './utf8.js';

export const ENVELOPE_SCHEMA = 1;

/** Nothing comes back. */
export const RESPONSE_NONE = 0;
/** An ack or a nack comes back. */
export const RESPONSE_ACK = 1;
/** A response comes back (or a nack). */
export const RESPONSE_UNARY = 2;

/** Where the response id stands in a request header. */
export const REQUEST_ID_OFFSET = 2;
/** Offset of the response type in a request header. */
export const RESPONSE_TYPE_OFFSET = 1;
const OFFSET_NAME_LEN = REQUEST_ID_OFFSET + RESPONSE_ID_LEN;
const OFFSET_NAME = OFFSET_NAME_LEN + 2;
/** Schema, response type, id and the two length fields. */
export const REQUEST_FIXED_LEN = OFFSET_NAME + 2;
/** Bytes that must be there before a refusal names its call: schema, response type, id. */
const REFUSED_MIN_LEN = OFFSET_NAME_LEN;
const MAX_NAME_BYTES = 0xffff;

/** Outcome byte of a response; a reader takes every other value as an error too. */
export const OUTCOME_OK = 0;
export const OUTCOME_ERROR = 1;
const OFFSET_OUTCOME = RESPONSE_ID_LEN;
const OFFSET_RESPONSE_MAP_LEN = OFFSET_OUTCOME + 1;
export const RESPONSE_FIXED_LEN = OFFSET_RESPONSE_MAP_LEN + 2;

const ACK_FLAG_EVENT = 1;
const ACK_FLAG_ERROR = 2;
/** One flag byte and a u128. */
export const ACK_HEADER_LEN = 1 + RESPONSE_ID_LEN;

const NO_MAP = new Uint8Array(0);

/** A decoded request header. `mapOffset` and `mapLength` say where its raw map stands (for the echo in a response). */
export interface RequestEnvelope {
  readonly responseType: number;
  readonly id: ResponseId;
  readonly handler: string;
  readonly headers: ReadonlyMap<string, string> | undefined;
  readonly mapOffset: number;
  readonly mapLength: number;
}

/** Bytes a request header takes. */
export function requestHeaderLength(nameBytes: number, mapBytes: number): number {
  return REQUEST_FIXED_LEN + nameBytes + mapBytes;
}

/**
 * Writes a request header at `offset` and returns its length, {@link requestHeaderLength}. The caller chose the offset so
 * that the header ends where the payload begins. `name` is UTF-8; `map` is what `encodeHeaderMap` made.
 *
 * @throws VeloError `ERR_INVALID_ARGUMENT` for an empty or oversized name or an oversized map.
 */
export function writeRequestHeader(
  buffer: Uint8Array,
  offset: number,
  responseType: number,
  workerHi: number,
  workerLo: number,
  slot: number,
  generation: number,
  name: Uint8Array,
  map: Uint8Array = NO_MAP,
): number {
  if (name.length === 0 || name.length > MAX_NAME_BYTES) throw badName(name.length);
  if (map.length > MAX_REQUEST_MAP_BYTES) throw badMap(map.length);
  const length = requestHeaderLength(name.length, map.length);
  if (offset < 0 || offset + length > buffer.length) {
    throw new VeloError('ERR_INVALID_ARGUMENT', `request header of ${length} bytes does not fit at ${offset}`);
  }
  buffer[offset] = ENVELOPE_SCHEMA;
  buffer[offset + 1] = responseType;
  writeResponseId(buffer, offset + REQUEST_ID_OFFSET, workerHi, workerLo, slot, generation);
  writeU16LE(buffer, offset + OFFSET_NAME_LEN, name.length);
  buffer.set(name, offset + OFFSET_NAME);
  const mapAt = offset + OFFSET_NAME + name.length;
  writeU16LE(buffer, mapAt, map.length);
  if (map.length > 0) buffer.set(map, mapAt + 2);
  return length;
}

/** A request header in an array of its own. */
export function encodeRequestHeader(
  responseType: number,
  id: ResponseId,
  handler: string,
  map: Uint8Array = NO_MAP,
): Uint8Array {
  const name = encodeUtf8(handler);
  const header = new Uint8Array(requestHeaderLength(name.length, map.length));
  writeRequestHeader(header, 0, responseType, id.workerHi, id.workerLo, id.slot, id.generation, name, map);
  return header;
}

/**
 * Decodes a request header. Bytes after the map are ignored.
 *
 * @throws VeloError `ERR_BAD_ENVELOPE`.
 */
export function decodeRequestHeader(buffer: Uint8Array, offset: number, length: number): RequestEnvelope {
  if (length < REQUEST_FIXED_LEN) throw bad(`request header of ${length} bytes`);
  if (buffer[offset] !== ENVELOPE_SCHEMA) throw bad(`envelope schema ${buffer[offset]}`);
  const nameLength = readU16LE(buffer, offset + OFFSET_NAME_LEN);
  if (nameLength === 0) throw bad('empty handler name');
  if (REQUEST_FIXED_LEN + nameLength > length) throw bad(`handler name of ${nameLength} bytes is cut off`);
  const nameAt = offset + OFFSET_NAME;
  const handler = decodeUtf8(buffer, nameAt, nameAt + nameLength);
  if (handler === undefined) throw bad('handler name is not UTF-8');
  const responseType = buffer[offset + 1]!;
  if (responseType > RESPONSE_UNARY) throw bad(`response type ${responseType}`);
  const mapLength = readU16LE(buffer, nameAt + nameLength);
  const mapOffset = nameAt + nameLength + 2;
  if (mapLength > MAX_REQUEST_MAP_BYTES) throw bad(`header map of ${mapLength} bytes`);
  if (mapOffset + mapLength > offset + length) throw bad('header map is cut off');
  return {
    responseType,
    id: readResponseId(buffer, offset + REQUEST_ID_OFFSET),
    handler,
    headers: mapLength === 0 ? undefined : decodeHeaderMap(buffer, mapOffset, mapLength),
    mapOffset,
    mapLength,
  };
}

const BATCH_NAMES: readonly Uint8Array[] = BATCH_HANDLERS.map(encodeUtf8);
const BATCH_BASE_LEN = BATCH_NAMES[0]!.length;
const BATCH_LONGEST_LEN = BATCH_NAMES[BATCH_NAMES.length - 1]!.length;
const DRAIN_EXEMPT_NAMES: readonly Uint8Array[] = DRAIN_EXEMPT_HANDLERS.map(encodeUtf8);

/**
 * The lane a request header addresses as a batch handler, 0..15, or −1 for any other handler and for a header too short
 * to tell. Allocates nothing; the rest of the header is not judged.
 */
export function batchLaneOf(buffer: Uint8Array, headerOffset: number, headerLength: number): number {
  const nameLength = nameLengthOf(buffer, headerOffset, headerLength);
  if (nameLength < BATCH_BASE_LEN || nameLength > BATCH_LONGEST_LEN) return -1;
  const nameAt = headerOffset + OFFSET_NAME;
  const end = nameAt + nameLength;
  if (!startsWithAt(buffer, nameAt, end, BATCH_NAMES[0]!)) return -1;
  for (let lane = 0; lane < BATCH_NAMES.length; lane++) {
    const name = BATCH_NAMES[lane]!;
    if (name.length === nameLength && startsWithAt(buffer, nameAt, end, name)) return lane;
  }
  return -1;
}

/** True when the request's handler is `name`. Allocates nothing. */
export function handlerIs(buffer: Uint8Array, headerOffset: number, headerLength: number, name: Uint8Array): boolean {
  if (nameLengthOf(buffer, headerOffset, headerLength) !== name.length) return false;
  const nameAt = headerOffset + OFFSET_NAME;
  return startsWithAt(buffer, nameAt, nameAt + name.length, name);
}

/** True when a draining node still serves this request. Allocates nothing. */
export function isDrainExemptHeader(buffer: Uint8Array, headerOffset: number, headerLength: number): boolean {
  for (let i = 0; i < DRAIN_EXEMPT_NAMES.length; i++) {
    if (handlerIs(buffer, headerOffset, headerLength, DRAIN_EXEMPT_NAMES[i]!)) return true;
  }
  return false;
}

/**
 * Length of the header map of a request, 0 when it has none, or −1 when the header is malformed up to there. A batch
 * with a map may be a staged one and needs {@link decodeRequestHeader}.
 */
export function requestMapLength(buffer: Uint8Array, headerOffset: number, headerLength: number): number {
  const nameLength = nameLengthOf(buffer, headerOffset, headerLength);
  if (nameLength < 0) return -1;
  const mapAt = headerOffset + OFFSET_NAME + nameLength;
  const mapLength = readU16LE(buffer, mapAt);
  return mapAt + 2 + mapLength <= headerOffset + headerLength ? mapLength : -1;
}

/** The call a shutting-down frame refuses, or undefined when its header does not say. */
export function refusedResponseId(
  buffer: Uint8Array,
  headerOffset: number,
  headerLength: number,
): ResponseId | undefined {
  if (headerLength < REFUSED_MIN_LEN || buffer[headerOffset] !== ENVELOPE_SCHEMA) return undefined;
  if (buffer[headerOffset + 1]! > RESPONSE_UNARY) return undefined;
  return readResponseId(buffer, headerOffset + REQUEST_ID_OFFSET);
}

/** A decoded response header. The map is the requester's own, echoed; nothing in it may be obeyed. */
export interface ResponseHeader {
  readonly id: ResponseId;
  readonly ok: boolean;
  readonly headers: ReadonlyMap<string, string> | undefined;
}

/** A response header; `map` is the request's raw map, or nothing. */
export function encodeResponseHeader(id: ResponseId, ok: boolean, map: Uint8Array = NO_MAP): Uint8Array {
  if (map.length > MAX_NAME_BYTES) throw badMap(map.length);
  const header = new Uint8Array(RESPONSE_FIXED_LEN + map.length);
  writeResponseId(header, 0, id.workerHi, id.workerLo, id.slot, id.generation);
  header[OFFSET_OUTCOME] = ok ? OUTCOME_OK : OUTCOME_ERROR;
  writeU16LE(header, OFFSET_RESPONSE_MAP_LEN, map.length);
  header.set(map, RESPONSE_FIXED_LEN);
  return header;
}

/** @throws VeloError `ERR_BAD_ENVELOPE`. */
export function decodeResponseHeader(buffer: Uint8Array, offset: number, length: number): ResponseHeader {
  if (length < RESPONSE_FIXED_LEN) throw bad(`response header of ${length} bytes`);
  const mapLength = readU16LE(buffer, offset + OFFSET_RESPONSE_MAP_LEN);
  if (RESPONSE_FIXED_LEN + mapLength > length) throw bad('response header map is cut off');
  return {
    id: readResponseId(buffer, offset),
    ok: buffer[offset + OFFSET_OUTCOME] === OUTCOME_OK,
    headers: mapLength === 0 ? undefined : decodeHeaderMap(buffer, offset + RESPONSE_FIXED_LEN, mapLength),
  };
}

/** A decoded ack header. For an event the id's 128 bits are its handle (`responseIdToU128`). */
export interface AckHeader {
  readonly event: boolean;
  readonly ok: boolean;
  readonly id: ResponseId;
}

export function encodeAckHeader(id: ResponseId, ok: boolean, event = false): Uint8Array {
  const header = new Uint8Array(ACK_HEADER_LEN);
  header[0] = (ok ? 0 : ACK_FLAG_ERROR) | (event ? ACK_FLAG_EVENT : 0);
  writeResponseId(header, 1, id.workerHi, id.workerLo, id.slot, id.generation);
  return header;
}

/**
 * Decodes an ack or event header; the flag byte decides which it is, whatever the frame type. Extra bytes are ignored.
 *
 * @throws VeloError `ERR_BAD_ENVELOPE` for unknown flag bits or fewer than 17 bytes.
 */
export function decodeAckHeader(buffer: Uint8Array, offset: number, length: number): AckHeader {
  if (length < ACK_HEADER_LEN) throw bad(`ack header of ${length} bytes`);
  const flags = buffer[offset]!;
  if ((flags & ~(ACK_FLAG_EVENT | ACK_FLAG_ERROR)) !== 0) throw bad(`ack flags ${flags}`);
  return {
    event: (flags & ACK_FLAG_EVENT) !== 0,
    ok: (flags & ACK_FLAG_ERROR) === 0,
    id: readResponseId(buffer, offset + 1),
  };
}

/** Length of the handler name if the header holds it and the map length after it, else −1. */
function nameLengthOf(buffer: Uint8Array, headerOffset: number, headerLength: number): number {
  if (headerLength < REQUEST_FIXED_LEN || buffer[headerOffset] !== ENVELOPE_SCHEMA) return -1;
  const nameLength = readU16LE(buffer, headerOffset + OFFSET_NAME_LEN);
  return REQUEST_FIXED_LEN + nameLength <= headerLength ? nameLength : -1;
}

function bad(message: string): VeloError {
  return new VeloError('ERR_BAD_ENVELOPE', message);
}

function badName(bytes: number): VeloError {
  return new VeloError('ERR_INVALID_ARGUMENT', `handler name of ${bytes} bytes is outside 1..${MAX_NAME_BYTES}`);
}

function badMap(bytes: number): VeloError {
  return new VeloError('ERR_INVALID_ARGUMENT', `header map of ${bytes} bytes is too large`);
}
