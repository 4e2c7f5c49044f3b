// XXH3-64 with seed 0 and the default secret: worker ids (16 bytes) and address checksums (any length). Owns the
// algorithm; it is for cold paths, works in bigints, and must never be used per record.

import { MAX_U64 } from './bytes.js';

const PRIME32_1 = 0x9e3779b1n;
const PRIME32_2 = 0x85ebca77n;
const PRIME32_3 = 0xc2b2ae3dn;
const PRIME64_1 = 0x9e3779b185ebca87n;
const PRIME64_2 = 0xc2b2ae3d27d4eb4fn;
const PRIME64_3 = 0x165667b19e3779f9n;
const PRIME64_4 = 0x85ebca77c2b2ae63n;
const PRIME64_5 = 0x27d4eb2f165667c5n;
const PRIME_MX1 = 0x165667919e3779f9n;
const PRIME_MX2 = 0x9fb21c651e98df25n;

/** The algorithm's default secret, 192 bytes, as 24 little-endian words. */
const SECRET_WORDS: readonly bigint[] = [
  0xbe4ba423396cfeb8n,
  0x1cad21f72c81017cn,
  0xdb979083e96dd4den,
  0x1f67b3b7a4a44072n,
  0x78e5c0cc4ee679cbn,
  0x2172ffcc7dd05a82n,
  0x8e2443f7744608b8n,
  0x4c263a81e69035e0n,
  0xcb00c391bb52283cn,
  0xa32e531b8b65d088n,
  0x4ef90da297486471n,
  0xd8acdea946ef1938n,
  0x3f349ce33f76faa8n,
  0x1d4f0bc7c7bbdcf9n,
  0x3159b4cd4be0518an,
  0x647378d9c97e9fc8n,
  0xc3ebd33483acc5ean,
  0xeb6313faffa081c5n,
  0x49daf0b751dd0d17n,
  0x9e68d429265516d3n,
  0xfca1477d58be162bn,
  0xce31d07ad1b8f88fn,
  0x280416958f3acb45n,
  0x7e404bbbcafbd7afn,
];
const SECRET_LEN = SECRET_WORDS.length * 8;

const STRIPE_LEN = 64;
const LANES_PER_STRIPE = 8;
const SECRET_STEP = 8;
const STRIPES_PER_BLOCK = (SECRET_LEN - STRIPE_LEN) / SECRET_STEP;
const BLOCK_LEN = STRIPE_LEN * STRIPES_PER_BLOCK;
const LAST_STRIPE_SECRET = SECRET_LEN - STRIPE_LEN - 7;
const MERGE_SECRET = 11;

const MIDSIZE_MAX = 240;
const MIDSIZE_ROUNDS = 8;
const MIDSIZE_START_OFFSET = 3;
const MIDSIZE_LAST_OFFSET = 136 - 17;

const MASK32 = 0xffff_ffffn;

const SECRET = secretBytes();

/** The hash as an unsigned 64-bit value. */
export function xxh3(input: Uint8Array): bigint {
  const length = input.length;
  if (length === 0) return avalanche64(read64(SECRET, 56) ^ read64(SECRET, 64));
  if (length <= 3) return hash1to3(input);
  if (length <= 8) return hash4to8(input);
  if (length <= 16) return hash9to16(input);
  if (length <= 128) return hash17to128(input);
  return length <= MIDSIZE_MAX ? hash129to240(input) : hashLong(input);
}

function hash1to3(input: Uint8Array): bigint {
  const length = input.length;
  const combined =
    (BigInt(input[0]!) << 16n) |
    (BigInt(input[length >> 1]!) << 24n) |
    BigInt(input[length - 1]!) |
    (BigInt(length) << 8n);
  return avalanche64(combined ^ (read32(SECRET, 0) ^ read32(SECRET, 4)));
}

function hash4to8(input: Uint8Array): bigint {
  const length = input.length;
  const value = read32(input, length - 4) + (read32(input, 0) << 32n);
  let hash = value ^ (read64(SECRET, 8) ^ read64(SECRET, 16));
  hash ^= rotate(hash, 49n) ^ rotate(hash, 24n);
  hash = (hash * PRIME_MX2) & MAX_U64;
  hash ^= ((hash >> 35n) + BigInt(length)) & MAX_U64;
  hash = (hash * PRIME_MX2) & MAX_U64;
  return hash ^ (hash >> 28n);
}

function hash9to16(input: Uint8Array): bigint {
  const length = input.length;
  const low = read64(input, 0) ^ (read64(SECRET, 24) ^ read64(SECRET, 32));
  const high = read64(input, length - 8) ^ (read64(SECRET, 40) ^ read64(SECRET, 48));
  return avalanche(BigInt(length) + swapBytes(low) + high + foldedProduct(low, high));
}

function hash17to128(input: Uint8Array): bigint {
  const length = input.length;
  let sum = BigInt(length) * PRIME64_1;
  // pairs of 16 bytes, from both ends inwards
  for (let i = Math.floor((length - 1) / 32); i >= 0; i--) {
    sum += mix16(input, i * 16, i * 32) + mix16(input, length - 16 * (i + 1), i * 32 + 16);
  }
  return avalanche(sum);
}

function hash129to240(input: Uint8Array): bigint {
  const length = input.length;
  let sum = BigInt(length) * PRIME64_1;
  for (let i = 0; i < MIDSIZE_ROUNDS; i++) sum += mix16(input, i * 16, i * 16);
  let tail = mix16(input, length - 16, MIDSIZE_LAST_OFFSET);
  for (let i = MIDSIZE_ROUNDS; i < Math.floor(length / 16); i++) {
    tail += mix16(input, i * 16, (i - MIDSIZE_ROUNDS) * 16 + MIDSIZE_START_OFFSET);
  }
  return avalanche(avalanche(sum) + tail);
}

function hashLong(input: Uint8Array): bigint {
  const length = input.length;
  const lanes = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1];
  const blocks = Math.floor((length - 1) / BLOCK_LEN);
  for (let block = 0; block < blocks; block++) {
    for (let stripe = 0; stripe < STRIPES_PER_BLOCK; stripe++) {
      accumulate(lanes, input, block * BLOCK_LEN + stripe * STRIPE_LEN, stripe * SECRET_STEP);
    }
    scramble(lanes);
  }
  const rest = blocks * BLOCK_LEN;
  const stripes = Math.floor((length - 1 - rest) / STRIPE_LEN);
  for (let stripe = 0; stripe < stripes; stripe++) {
    accumulate(lanes, input, rest + stripe * STRIPE_LEN, stripe * SECRET_STEP);
  }
  accumulate(lanes, input, length - STRIPE_LEN, LAST_STRIPE_SECRET);
  let sum = BigInt(length) * PRIME64_1;
  for (let i = 0; i < LANES_PER_STRIPE; i += 2) {
    const low = lanes[i]! ^ read64(SECRET, MERGE_SECRET + i * 8);
    sum += foldedProduct(low, lanes[i + 1]! ^ read64(SECRET, MERGE_SECRET + i * 8 + 8));
  }
  return avalanche(sum);
}

function accumulate(lanes: bigint[], input: Uint8Array, offset: number, secretOffset: number): void {
  for (let i = 0; i < LANES_PER_STRIPE; i++) {
    const data = read64(input, offset + i * 8);
    const keyed = data ^ read64(SECRET, secretOffset + i * 8);
    lanes[i ^ 1] = (lanes[i ^ 1]! + data) & MAX_U64;
    lanes[i] = (lanes[i]! + (keyed & MASK32) * (keyed >> 32n)) & MAX_U64;
  }
}

function scramble(lanes: bigint[]): void {
  for (let i = 0; i < LANES_PER_STRIPE; i++) {
    const lane = lanes[i]!;
    const mixed = lane ^ (lane >> 47n) ^ read64(SECRET, SECRET_LEN - STRIPE_LEN + i * 8);
    lanes[i] = (mixed * PRIME32_1) & MAX_U64;
  }
}

function mix16(input: Uint8Array, offset: number, secretOffset: number): bigint {
  const low = read64(input, offset) ^ read64(SECRET, secretOffset);
  return foldedProduct(low, read64(input, offset + 8) ^ read64(SECRET, secretOffset + 8));
}

function foldedProduct(a: bigint, b: bigint): bigint {
  const product = a * b;
  return (product & MAX_U64) ^ (product >> 64n);
}

function avalanche(value: bigint): bigint {
  let hash = value & MAX_U64;
  hash = ((hash ^ (hash >> 37n)) * PRIME_MX1) & MAX_U64;
  return hash ^ (hash >> 32n);
}

function avalanche64(value: bigint): bigint {
  let hash = value & MAX_U64;
  hash = ((hash ^ (hash >> 33n)) * PRIME64_2) & MAX_U64;
  hash = ((hash ^ (hash >> 29n)) * PRIME64_3) & MAX_U64;
  return hash ^ (hash >> 32n);
}

function rotate(value: bigint, bits: bigint): bigint {
  return ((value << bits) | (value >> (64n - bits))) & MAX_U64;
}

function swapBytes(value: bigint): bigint {
  let swapped = 0n;
  for (let i = 0n; i < 64n; i += 8n) swapped = (swapped << 8n) | ((value >> i) & 0xffn);
  return swapped;
}

function read32(bytes: Uint8Array, offset: number): bigint {
  let value = 0n;
  for (let i = 3; i >= 0; i--) value = (value << 8n) | BigInt(bytes[offset + i]!);
  return value;
}

function read64(bytes: Uint8Array, offset: number): bigint {
  return read32(bytes, offset) | (read32(bytes, offset + 4) << 32n);
}

function secretBytes(): Uint8Array {
  const bytes = new Uint8Array(SECRET_LEN);
  SECRET_WORDS.forEach((word, i) => {
    for (let k = 0; k < 8; k++) bytes[i * 8 + k] = Number((word >> BigInt(8 * k)) & 0xffn);
  });
  return bytes;
}
