// Slot ids: the packed u32 that names one occupant of one slot index. Owns the packing and nothing else; it must never
// hold a table or decide whether an id is live.

import { VeloError } from '../errors.js';

/** Bits of a slot id that hold the generation (bits 7..0); the index stands above them (bits 31..8). */
const GENERATION_BITS = 8;
const GENERATION_MASK = 0xff;

/** Highest slot index an id can carry: 24 bits. */
export const MAX_SLOT_INDEX = 0xffffff;
/** Highest generation; the next one after it is 0. */
export const MAX_SLOT_GENERATION = 0xff;

/**
 * Packs an index and a generation. The result is an unsigned number, so raw ids sort by index first.
 *
 * @throws VeloError `ERR_INVALID_ARGUMENT` when the index does not fit 24 bits or the generation 8 bits.
 */
export function slotId(index: number, generation: number): number {
  if (!Number.isInteger(index) || index < 0 || index > MAX_SLOT_INDEX) {
    throw new VeloError('ERR_INVALID_ARGUMENT', `slot index ${index} is outside 0..${MAX_SLOT_INDEX}`);
  }
  if (!Number.isInteger(generation) || generation < 0 || generation > MAX_SLOT_GENERATION) {
    throw new VeloError('ERR_INVALID_ARGUMENT', `slot generation ${generation} is outside 0..${MAX_SLOT_GENERATION}`);
  }
  return ((index << GENERATION_BITS) | generation) >>> 0;
}

/** Index of an id (0..{@link MAX_SLOT_INDEX}). Every u32 is a valid id. */
export function slotIndex(id: number): number {
  return id >>> GENERATION_BITS;
}

/** Generation of an id (0..{@link MAX_SLOT_GENERATION}). */
export function slotGeneration(id: number): number {
  return id & GENERATION_MASK;
}

/** The generation that follows `generation`: 255 is followed by 0. */
export function nextGeneration(generation: number): number {
  return (generation + 1) & GENERATION_MASK;
}

/** The same index with another generation: only the low byte changes. */
export function withGeneration(id: number, generation: number): number {
  return ((id & ~GENERATION_MASK) | (generation & GENERATION_MASK)) >>> 0;
}
