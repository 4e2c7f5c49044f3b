// The one door to shared memory. Every structure of the plane goes through these methods and through nothing else, so that
// the very functions that ship can be run by an interleaving explorer that answers each access itself.

import { ByteCopier, viewOf } from '../wire/byte-copier.js';
import { copyBytes } from '../wire/bytes.js';

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

/** `Memory` over a SharedArrayBuffer: what ships. */
export class SharedMemory implements Memory {
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  private readonly view: DataView;
  private readonly copier = new ByteCopier();

  constructor(readonly buffer: SharedArrayBuffer) {
    this.bytes = new Uint8Array(buffer);
    this.words = new Int32Array(buffer);
    this.view = viewOf(this.bytes);
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
    this.copier.copy(this.bytes, this.view, byteOffset, source, sourceOffset, length);
  }
  copyOut(byteOffset: number, target: Uint8Array, targetOffset: number, length: number): void {
    copyBytes(target, targetOffset, this.bytes, byteOffset, length);
  }
}
