// The one door to shared memory. Every structure of the plane goes through these methods and through nothing else, so that
// the very functions that ship can be run by an interleaving explorer that answers each access itself.

/**
 * A region of shared memory, addressed in 32-bit words (atomics and plain words) and in bytes (record bodies).
 * Words are signed 32-bit; free-running counters are compared by subtraction (`(a - b) | 0`).
 */
export interface Memory {
  /** The bytes of the whole region. Readers on the per-record path index it directly instead of copying. */
  readonly bytes: Uint8Array;
  load(word: number): number;
  store(word: number, value: number): void;
  /** Each read-modify-write returns the value before it. */
  add(word: number, value: number): number;
  or(word: number, bits: number): number;
  and(word: number, bits: number): number;
  exchange(word: number, value: number): number;
  compareExchange(word: number, expected: number, value: number): number;
  /** Wakes every waiter of the word: a `notify(1)` may wake a standing asynchronous waiter instead of the blocked one. */
  notify(word: number): void;
  /** Blocks the calling thread while the word holds `value`, for at most `timeoutMs`. */
  wait(word: number, value: number, timeoutMs: number): void;
  /** Plain accesses: ordered only by an atomic that publishes them. */
  read(word: number): number;
  write(word: number, value: number): void;
  copyIn(byteOffset: number, source: Uint8Array, sourceOffset: number, length: number): void;
  copyOut(byteOffset: number, target: Uint8Array, targetOffset: number, length: number): void;
}

/** Up to this length eight bytes a turn beat `set(subarray)`, which allocates a view (34 bytes: 36 ns against 70). */
const LOOP_COPY_MAX = 64;

/** Copies bytes without allocating for short records. */
export function copyBytes(
  source: Uint8Array,
  sourceOffset: number,
  target: Uint8Array,
  targetOffset: number,
  length: number,
): void {
  if (length > LOOP_COPY_MAX) {
    target.set(source.subarray(sourceOffset, sourceOffset + length), targetOffset);
    return;
  }
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
}

/** `Memory` over a SharedArrayBuffer: what ships. */
export class SharedMemory implements Memory {
  readonly bytes: Uint8Array;
  readonly words: Int32Array;

  constructor(readonly buffer: SharedArrayBuffer) {
    this.bytes = new Uint8Array(buffer);
    this.words = new Int32Array(buffer);
  }

  load(word: number): number {
    return Atomics.load(this.words, word);
  }
  store(word: number, value: number): void {
    Atomics.store(this.words, word, value);
  }
  add(word: number, value: number): number {
    return Atomics.add(this.words, word, value);
  }
  or(word: number, bits: number): number {
    return Atomics.or(this.words, word, bits);
  }
  and(word: number, bits: number): number {
    return Atomics.and(this.words, word, bits);
  }
  exchange(word: number, value: number): number {
    return Atomics.exchange(this.words, word, value);
  }
  compareExchange(word: number, expected: number, value: number): number {
    return Atomics.compareExchange(this.words, word, expected, value);
  }
  notify(word: number): void {
    Atomics.notify(this.words, word);
  }
  wait(word: number, value: number, timeoutMs: number): void {
    Atomics.wait(this.words, word, value, timeoutMs);
  }
  read(word: number): number {
    return this.words[word]!;
  }
  write(word: number, value: number): void {
    this.words[word] = value;
  }
  copyIn(byteOffset: number, source: Uint8Array, sourceOffset: number, length: number): void {
    copyBytes(source, sourceOffset, this.bytes, byteOffset, length);
  }
  copyOut(byteOffset: number, target: Uint8Array, targetOffset: number, length: number): void {
    copyBytes(this.bytes, byteOffset, target, targetOffset, length);
  }
}
