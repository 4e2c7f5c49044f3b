// Which lane a key names: one splitmix64 step, modulo the lanes (streaming specification §12). Owns the arithmetic; it
// must never know loads or peers.

import { MAX_U64 } from './bytes.js';
import { MAX_LANES } from './names.js';

const INCREMENT = 0x9e3779b97f4a7c15n;
const MULTIPLIER_1 = 0xbf58476d1ce4e5b9n;
const MULTIPLIER_2 = 0x94d049bb133111ebn;

/** The stable hash of a u64 key; every build of every peer computes the same. */
export function laneHash(key: bigint): bigint {
  let z = (key + INCREMENT) & MAX_U64;
  z = ((z ^ (z >> 30n)) * MULTIPLIER_1) & MAX_U64;
  z = ((z ^ (z >> 27n)) * MULTIPLIER_2) & MAX_U64;
  return z ^ (z >> 31n);
}

/** Lanes in use for a transport that has `transportLanes`: at least 1, at most 16. */
export function usableLanes(transportLanes: number): number {
  return Math.max(1, Math.min(MAX_LANES, Math.trunc(transportLanes) || 1));
}

/** The lane of `key` among `transportLanes` lanes. */
export function laneOfKey(key: bigint, transportLanes: number): number {
  return Number(laneHash(key) % BigInt(usableLanes(transportLanes)));
}
