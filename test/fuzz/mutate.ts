// What chance does to bytes that were good: flips, cuts, splices, and numbers at the edges of their types. It knows where nothing
// is, so it finds what no one thought of.

import type { Random } from './random.js';

/** Values where comparisons and shifts go wrong. */
export const EDGES: readonly number[] = [
  0, 1, 2, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe,
  0xffff_ffff,
];

const KINDS = { flip: 6, byte: 4, number: 6, cut: 2, head: 1, insert: 2, remove: 2, repeat: 2, splice: 3 } as const;
const MAX_CHANGES = 3;
const LONGEST_INSERT = 40;

/** Some bytes changed; never the array that was given. `others` are what a splice takes its tail from. */
export function mutate(random: Random, bytes: Uint8Array, others: readonly Uint8Array[] = []): Uint8Array {
  let mutant: Uint8Array = bytes.slice();
  for (let left = 1 + random.below(MAX_CHANGES); left > 0; left -= 1) mutant = change(random, mutant, others);
  return mutant;
}

function change(random: Random, bytes: Uint8Array, others: readonly Uint8Array[]): Uint8Array {
  if (bytes.length === 0) return random.bytes(random.below(LONGEST_INSERT));
  const at = random.below(bytes.length);
  switch (random.weighted(KINDS)) {
    case 'flip':
      bytes[at]! ^= 1 << random.below(8);
      return bytes;
    case 'byte':
      bytes[at] = random.u32();
      return bytes;
    case 'number':
      return writeEdge(random, bytes, at);
    case 'cut':
      return bytes.slice(0, at);
    case 'head':
      return bytes.slice(at);
    case 'insert':
      return join(bytes.subarray(0, at), random.bytes(1 + random.below(LONGEST_INSERT)), bytes.subarray(at));
    case 'remove':
      return join(bytes.subarray(0, at), bytes.subarray(at + 1 + random.below(LONGEST_INSERT)));
    case 'repeat': {
      const piece = bytes.subarray(at, at + 1 + random.below(LONGEST_INSERT));
      return join(bytes.subarray(0, at), piece, bytes.subarray(at));
    }
    case 'splice': {
      if (others.length === 0) return bytes;
      const other = random.pick(others);
      return join(bytes.subarray(0, at), other.subarray(random.below(other.length + 1)));
    }
  }
}

function writeEdge(random: Random, bytes: Uint8Array, at: number): Uint8Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const left = bytes.length - at;
  const value = random.pick(EDGES);
  if (left >= 4 && random.oneIn(2)) view.setUint32(at, value);
  else if (left >= 2) view.setUint16(at, value & 0xffff);
  else view.setUint8(at, value & 0xff);
  return bytes;
}

export function join(...parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
