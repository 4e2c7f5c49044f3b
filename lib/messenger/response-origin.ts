// How the private 64 bits of a response id are split between the threads of one node: the top 8 bits of the 48-bit
// generation name the thread that waits for the answer. Pure arithmetic; it must never look at a table.

import { VeloError } from '../errors.js';

/** Bits of the generation proper: 48 on the wire, less the 8 that name the origin. */
export const GENERATION_BITS = 40;
/** The highest generation proper. A slot that reached it is never used again. */
export const MAX_GENERATION = 2 ** GENERATION_BITS - 1;
/** The client thread that made the node. */
export const ORIGIN_MAIN = 0;
/** Client threads of one node, main included; their origins are 0..15. */
export const MAX_CLIENT_THREADS = 16;
/** Origin of worker lane 0; lane n is this plus n. */
export const ORIGIN_FIRST_WORKER = 16;
/** The highest origin that 8 bits can name. */
export const MAX_ORIGIN = 255;

const ORIGIN_SCALE = 2 ** GENERATION_BITS;

function checkIndex(what: string, value: number, limit: number): void {
  if (!Number.isInteger(value) || value < 0 || value > limit) {
    throw new VeloError('ERR_INVALID_ARGUMENT', `${what} must be an integer in 0..${limit}, not ${value}`);
  }
}

/** Origin of a worker's own calls. */
export function workerOrigin(lane: number): number {
  checkIndex('worker lane', lane, MAX_ORIGIN - ORIGIN_FIRST_WORKER);
  return ORIGIN_FIRST_WORKER + lane;
}

/** The 48-bit wire field: `origin` above, `generation` (40 bits) below. Both are checked by the callers that mint them. */
export function wireGeneration(origin: number, generation: number): number {
  return origin * ORIGIN_SCALE + generation;
}

/** Who waits for this answer. The argument is the 48-bit wire field. */
export function originOf(generation: number): number {
  return Math.floor(generation / ORIGIN_SCALE);
}

/** The 40 bits below the origin. The argument is the 48-bit wire field. */
export function generationProper(generation: number): number {
  return generation % ORIGIN_SCALE;
}
