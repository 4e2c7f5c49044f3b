// Response ids: 16 little-endian bytes that are both the id of a message and its reply address (messenger specification
// §3.1). Owns the packing; it must never know which slots are in use.

import { VeloError } from '../errors.js';
import {
  MAX_U64,
  readU16LE,
  readU32LE,
  TWO_POW_32,
  u64From,
  u64High,
  u64Low,
  writeU16LE,
  writeU32LE,
} from './bytes.js';

export const RESPONSE_ID_LEN = 16;
/** Highest slot index a table hands out; 65,535 is not used. */
export const MAX_RESPONSE_SLOT = 65_534;
/** Generations are 48 bits. */
export const MAX_RESPONSE_GENERATION = 0xffff_ffff_ffff;

const OFFSET_WORKER_HI = 4;
const OFFSET_SLOT = 8;
const OFFSET_GENERATION = 10;
const OFFSET_GENERATION_HI = 14;

const SLOT_SHIFT = 64n;
const GENERATION_SHIFT = 80n;

/** A response id taken apart. `workerHi` and `workerLo` name the requester, `slot` and `generation` are private to it. */
export interface ResponseId {
  readonly workerHi: number;
  readonly workerLo: number;
  readonly slot: number;
  readonly generation: number;
}

/** Writes 16 bytes; the parts must be in range, which {@link responseIdFromU128} and the response table guarantee. */
export function writeResponseId(
  buffer: Uint8Array,
  offset: number,
  workerHi: number,
  workerLo: number,
  slot: number,
  generation: number,
): void {
  writeU32LE(buffer, offset, workerLo);
  writeU32LE(buffer, offset + OFFSET_WORKER_HI, workerHi);
  writeU16LE(buffer, offset + OFFSET_SLOT, slot);
  const high = Math.floor(generation / TWO_POW_32);
  writeU32LE(buffer, offset + OFFSET_GENERATION, (generation - high * TWO_POW_32) >>> 0);
  writeU16LE(buffer, offset + OFFSET_GENERATION_HI, high);
}

export function readResponseId(buffer: Uint8Array, offset: number): ResponseId {
  return {
    workerHi: responseWorkerHi(buffer, offset),
    workerLo: responseWorkerLo(buffer, offset),
    slot: responseSlot(buffer, offset),
    generation: responseGeneration(buffer, offset),
  };
}

/** High half of the requester's worker id; allocates nothing, like the three below. */
export function responseWorkerHi(buffer: Uint8Array, offset: number): number {
  return readU32LE(buffer, offset + OFFSET_WORKER_HI);
}

export function responseWorkerLo(buffer: Uint8Array, offset: number): number {
  return readU32LE(buffer, offset);
}

export function responseSlot(buffer: Uint8Array, offset: number): number {
  return readU16LE(buffer, offset + OFFSET_SLOT);
}

export function responseGeneration(buffer: Uint8Array, offset: number): number {
  return readU16LE(buffer, offset + OFFSET_GENERATION_HI) * TWO_POW_32 + readU32LE(buffer, offset + OFFSET_GENERATION);
}

/** The id as one u128, the form it has inside JSON. */
export function responseIdToU128(id: ResponseId): bigint {
  return (
    (BigInt(id.generation) << GENERATION_SHIFT) | (BigInt(id.slot) << SLOT_SHIFT) | u64From(id.workerHi, id.workerLo)
  );
}

/** @throws VeloError `ERR_INVALID_ARGUMENT` when the value is not a u128. */
export function responseIdFromU128(value: bigint): ResponseId {
  if (value < 0n || value >> 128n !== 0n) throw new VeloError('ERR_INVALID_ARGUMENT', 'response id is not a u128');
  const worker = value & MAX_U64;
  const upper = value >> SLOT_SHIFT;
  const generation = Number(upper >> 16n);
  return { workerHi: u64High(worker), workerLo: u64Low(worker), slot: Number(upper & 0xffffn), generation };
}
