// Bytes and items named by length and seed, and their checksums. test/interop/peer/src/payload.rs makes the same ones: neither may
// change alone.

import { type CustomCodecFunctions, customCodec, exactMsgpackCodec, type ItemCodec } from '../../lib/index.js';

/** The bytes that (length, seed) name: the upper byte of each state of a linear congruential generator. */
export function bytesOf(length: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let state = seed >>> 0;
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[i] = state >>> 24;
  }
  return bytes;
}

/** FNV-1a, 32 bits. */
export function checksum(bytes: Uint8Array): number {
  let hash = 0x811c9dc5;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}

/** What is known of a byte item: its length and its checksum. */
export type Fingerprint = readonly [length: number, sum: number];

export function fingerprint(bytes: Uint8Array): Fingerprint {
  return [bytes.length, checksum(bytes)];
}

/** The items of a stream: item i has the seed `seed + i`, counted from `from`. */
export function itemsOf(sizes: readonly number[], seed: number, from = 0): Uint8Array[] {
  return sizes.map((size, i) => bytesOf(size, seed + from + i));
}

/** A struct as a Rust application streams it. */
export interface Token {
  readonly id: number;
  readonly text: string;
  readonly logprob: number | null;
  readonly top: readonly (readonly [id: number, logprob: number])[];
}

export function tokenOf(seed: number, index: number): Token {
  const id = (seed + Math.imul(index, 2_654_435_761)) >>> 0;
  return {
    id,
    text: 'tök'.repeat(index % 5),
    logprob: index % 3 === 0 ? null : -(1 + (index % 64)) / 8,
    top: Array.from({ length: index % 4 }, (_, rank) => [(id + rank) >>> 0, rank / 8] as const),
  };
}

/** The fields of a token in the order a Rust struct has them: what is on the wire. */
type TokenFields = readonly [number, string, number | null, readonly (readonly [number, number])[]];

/** The codec an application writes for a Rust struct: fields by position. */
export function tokenCodec(): ItemCodec<Token> {
  const fields = exactMsgpackCodec<TokenFields>();
  const functions: CustomCodecFunctions<Token> = {
    encode: ({ id, text, logprob, top }) => {
      fields.encode([id, text, logprob, top]);
      return fields.bytes.slice(fields.start, fields.end);
    },
    decode: (bytes) => {
      const [id, text, logprob, top] = fields.decode(bytes, 0, bytes.length);
      return { id, text, logprob, top };
    },
  };
  return customCodec(functions);
}

/** Sizes from 0 bytes to 60 KiB: mostly small, as tokens are, some of them above one batch. */
export function mixedSizes(count: number, seed: number): number[] {
  const random = bytesOf(count * 3, seed);
  return Array.from({ length: count }, (_, i) => {
    const kind = random[i * 3]!;
    const value = random[i * 3 + 1]! * 256 + random[i * 3 + 2]!;
    if (kind < 16) return 0;
    if (kind < 236) return value % 64;
    if (kind < 250) return value % 4_096;
    return value % 61_441;
  });
}
