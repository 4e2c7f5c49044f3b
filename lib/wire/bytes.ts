// Integers, copies and comparisons over Uint8Array without a DataView. Owns byte order and nothing else; it must never
// allocate beyond one view for a large copy, and never checks bounds: callers know that the bytes are there.

/** 2^32, the weight of the high half when two u32 make one number. */
export const TWO_POW_32 = 0x1_0000_0000;
/** Largest u32. */
export const MAX_U32 = 0xffff_ffff;
/** Largest u16. */
export const MAX_U16 = 0xffff;
/** Largest u64. */
export const MAX_U64 = 0xffff_ffff_ffff_ffffn;

/** Copies up to this many bytes go byte by byte: below it the view that `set` needs costs as much, and is garbage. */
const COPY_LOOP_MAX_BYTES = 64;

export function readU16BE(buffer: Uint8Array, offset: number): number {
  return (buffer[offset]! << 8) | buffer[offset + 1]!;
}

export function readU32BE(buffer: Uint8Array, offset: number): number {
  return (
    ((buffer[offset]! << 24) | (buffer[offset + 1]! << 16) | (buffer[offset + 2]! << 8) | buffer[offset + 3]!) >>> 0
  );
}

export function writeU16BE(buffer: Uint8Array, offset: number, value: number): void {
  buffer[offset] = value >>> 8;
  buffer[offset + 1] = value;
}

export function writeU32BE(buffer: Uint8Array, offset: number, value: number): void {
  buffer[offset] = value >>> 24;
  buffer[offset + 1] = value >>> 16;
  buffer[offset + 2] = value >>> 8;
  buffer[offset + 3] = value;
}

export function readU16LE(buffer: Uint8Array, offset: number): number {
  return buffer[offset]! | (buffer[offset + 1]! << 8);
}

export function readU32LE(buffer: Uint8Array, offset: number): number {
  return (
    (buffer[offset]! | (buffer[offset + 1]! << 8) | (buffer[offset + 2]! << 16) | (buffer[offset + 3]! << 24)) >>> 0
  );
}

export function writeU16LE(buffer: Uint8Array, offset: number, value: number): void {
  buffer[offset] = value;
  buffer[offset + 1] = value >>> 8;
}

export function writeU32LE(buffer: Uint8Array, offset: number, value: number): void {
  buffer[offset] = value;
  buffer[offset + 1] = value >>> 8;
  buffer[offset + 2] = value >>> 16;
  buffer[offset + 3] = value >>> 24;
}

/** High half of a u64. */
export function u64High(value: bigint): number {
  return Number((value >> 32n) & 0xffff_ffffn);
}

/** Low half of a u64. */
export function u64Low(value: bigint): number {
  return Number(value & 0xffff_ffffn);
}

/** A u64 from two unsigned halves. */
export function u64From(high: number, low: number): bigint {
  return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
}

/** True for a bigint inside 0..2^64−1. */
export function isU64(value: bigint): boolean {
  return value >= 0n && value <= MAX_U64;
}

/** Copies `length` bytes; the two ranges must not overlap when they share memory. */
export function copyBytes(
  target: Uint8Array,
  targetOffset: number,
  source: Uint8Array,
  sourceOffset: number,
  length: number,
): void {
  if (length <= COPY_LOOP_MAX_BYTES) {
    let i = 0;
    for (; i + 8 <= length; i += 8) {
      const to = targetOffset + i;
      const from = sourceOffset + i;
      target[to] = source[from]!;
      target[to + 1] = source[from + 1]!;
      target[to + 2] = source[from + 2]!;
      target[to + 3] = source[from + 3]!;
      target[to + 4] = source[from + 4]!;
      target[to + 5] = source[from + 5]!;
      target[to + 6] = source[from + 6]!;
      target[to + 7] = source[from + 7]!;
    }
    for (; i < length; i++) target[targetOffset + i] = source[sourceOffset + i]!;
    return;
  }
  if (sourceOffset === 0 && length === source.length) target.set(source, targetOffset);
  else target.set(source.subarray(sourceOffset, sourceOffset + length), targetOffset);
}

/** True when `pattern` stands at `offset` of `buffer`, whole and before `end`. */
export function startsWithAt(buffer: Uint8Array, offset: number, end: number, pattern: Uint8Array): boolean {
  const length = pattern.length;
  if (end - offset < length) return false;
  for (let i = 0; i < length; i++) if (buffer[offset + i] !== pattern[i]) return false;
  return true;
}
