// One pass over a MessagePack value that reads structure and no content: where it ends, or that it is not one. Owns the
// format bytes; it must never allocate, and it is the reason why no length a peer declares is believed before its bytes
// are there.

import { readU16BE, readU32BE } from './bytes.js';

/** Deepest nesting of arrays and maps accepted anywhere. */
export const MAX_MSGPACK_DEPTH = 128;

export const FIXMAP = 0x80;
export const FIXARRAY = 0x90;
export const FIXSTR = 0xa0;
export const NIL = 0xc0;
export const NEVER_USED = 0xc1;
export const FALSE = 0xc2;
export const TRUE = 0xc3;
export const BIN8 = 0xc4;
export const BIN16 = 0xc5;
export const BIN32 = 0xc6;
export const EXT8 = 0xc7;
export const EXT16 = 0xc8;
export const EXT32 = 0xc9;
export const FLOAT32 = 0xca;
export const FLOAT64 = 0xcb;
export const UINT8 = 0xcc;
export const UINT16 = 0xcd;
export const UINT32 = 0xce;
export const UINT64 = 0xcf;
export const INT8 = 0xd0;
export const INT16 = 0xd1;
export const INT32 = 0xd2;
export const INT64 = 0xd3;
export const FIXEXT1 = 0xd4;
export const FIXEXT2 = 0xd5;
export const FIXEXT4 = 0xd6;
export const FIXEXT8 = 0xd7;
export const FIXEXT16 = 0xd8;
export const STR8 = 0xd9;
export const STR16 = 0xda;
export const STR32 = 0xdb;
export const ARRAY16 = 0xdc;
export const ARRAY32 = 0xdd;
export const MAP16 = 0xde;
export const MAP32 = 0xdf;
export const NEGATIVE_FIXINT = 0xe0;

/** Extension types a scan lets pass, by type as an unsigned byte: 1 or 0. */
export type ExtensionRules = Uint8Array;

/** Lets every extension pass. */
export const ANY_EXTENSION: ExtensionRules = new Uint8Array(256).fill(1);

/** Bytes behind a token whose size the token alone tells, else −1: most values of a small item need no more than a look-up. */
const FIXED_SIZE = new Int8Array(256).fill(-1);
for (const [size, tokens] of [
  [0, [NIL, FALSE, TRUE]],
  [1, [UINT8, INT8]],
  [2, [UINT16, INT16]],
  [4, [UINT32, INT32, FLOAT32]],
  [8, [UINT64, INT64, FLOAT64]],
] as const) {
  for (const token of tokens) FIXED_SIZE[token] = size;
}

/** Outer levels' counts of values still to come. One per thread: a scan never calls out. */
const levels = new Float64Array(MAX_MSGPACK_DEPTH);

/**
 * Returns the offset after the one value that starts at `start`, or −1 when the bytes before `end` do not hold one:
 * truncated, a reserved byte, a refused extension, or nested deeper than {@link MAX_MSGPACK_DEPTH}. Strings are not
 * checked for UTF-8.
 */
export function scanValue(bytes: Uint8Array, start: number, end: number, extensions: ExtensionRules): number {
  let position = start;
  let depth = 0;
  let pending = 1;
  for (;;) {
    if (position >= end) return -1;
    const token = bytes[position]!;
    position += 1;
    pending -= 1;
    let children = 0;
    if (token < FIXMAP || token >= NEGATIVE_FIXINT) {
      // an integer of one byte
    } else if (token < FIXARRAY) children = (token & 0x0f) * 2;
    else if (token < FIXSTR) children = token & 0x0f;
    else if (token < NIL) position += token & 0x1f;
    else if (FIXED_SIZE[token]! >= 0) position += FIXED_SIZE[token]!;
    else {
      const size = sizeOf(bytes, position, end, token);
      if (size < 0) return -1;
      if (token >= ARRAY16 && token <= MAP32) {
        position += token === ARRAY16 || token === MAP16 ? 2 : 4;
        children = size;
      } else {
        if (isExtension(token) && size <= end - position) {
          if (extensions[bytes[typeOffset(position, token)]!] === 0) return -1;
        }
        position += size;
      }
    }
    if (children > 0) {
      // every child takes at least one byte, so a count beyond the bytes left can never be met
      if (children > end - position || depth === MAX_MSGPACK_DEPTH) return -1;
      levels[depth] = pending;
      depth += 1;
      pending = children;
      continue;
    }
    if (position > end) return -1;
    while (pending === 0) {
      if (depth === 0) return position;
      depth -= 1;
      pending = levels[depth]!;
    }
  }
}

function isExtension(token: number): boolean {
  return (token >= EXT8 && token <= EXT32) || (token >= FIXEXT1 && token <= FIXEXT16);
}

function typeOffset(position: number, token: number): number {
  if (token === EXT8) return position + 1;
  if (token === EXT16) return position + 2;
  if (token === EXT32) return position + 4;
  return position;
}

/**
 * For tokens 0xc0–0xdf without a fixed size: the bytes that follow the token, or for arrays and maps the number of values inside; −1 when the
 * length itself is cut off or the token is reserved.
 */
function sizeOf(bytes: Uint8Array, position: number, end: number, token: number): number {
  switch (token) {
    case FIXEXT1:
      return 2;
    case FIXEXT2:
      return 3;
    case FIXEXT4:
      return 5;
    case FIXEXT8:
      return 9;
    case FIXEXT16:
      return 17;
    case BIN8:
    case STR8:
      return end - position < 1 ? -1 : 1 + bytes[position]!;
    case EXT8:
      return end - position < 1 ? -1 : 2 + bytes[position]!;
    case BIN16:
    case STR16:
      return end - position < 2 ? -1 : 2 + readU16BE(bytes, position);
    case EXT16:
      return end - position < 2 ? -1 : 3 + readU16BE(bytes, position);
    case BIN32:
    case STR32:
      return end - position < 4 ? -1 : 4 + readU32BE(bytes, position);
    case EXT32:
      return end - position < 4 ? -1 : 5 + readU32BE(bytes, position);
    case ARRAY16:
      return end - position < 2 ? -1 : readU16BE(bytes, position);
    case ARRAY32:
      return end - position < 4 ? -1 : readU32BE(bytes, position);
    case MAP16:
      return end - position < 2 ? -1 : 2 * readU16BE(bytes, position);
    case MAP32:
      return end - position < 4 ? -1 : 2 * readU32BE(bytes, position);
    default:
      return -1;
  }
}
