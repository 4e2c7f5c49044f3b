// A queue of byte records in one circular buffer that it owns. Owns growth, wrapping and shrinking; it must never
// decide how much may stand in it: whoever pushes keeps the bound. Nothing is allocated per record while the buffer is
// large enough.
//
// Layout: records stand 4-aligned as [u32 length][bytes, padded to 4] and never wrap. A record that does not fit before
// the end starts at 0; a skip mark stands where it would have gone, if there is room for one.

import { VeloError } from '../errors.js';
import { copyBytes } from '../wire/bytes.js';
import type { ByteMeter } from './byte-meter.js';

const HEADER_BYTES = 4;
const SKIP_MARK = 0xffff_ffff;
const MIN_CAPACITY = 256;
/** A queue that ran empty keeps at most this much memory. */
const KEEP_CAPACITY = 16_384;

const NO_BYTES = new Uint8Array(0);
const NO_WORDS = new Uint32Array(0);

/** First in, first out. The front record is read in place: `buffer`, `frontOffset`, `frontLength`. */
export class ByteQueue {
  /** Records in the queue. */
  length = 0;
  /** Bytes of the records in the queue, without headers and padding. */
  byteLength = 0;
  /** The memory the front record lies in; another one after a push or a pop. */
  buffer: Uint8Array = NO_BYTES;
  /** Where the front record starts; only meaningful while `length` > 0. */
  frontOffset = 0;
  /** Bytes of the front record; only meaningful while `length` > 0. */
  frontLength = 0;

  private words: Uint32Array = NO_WORDS;
  /** Byte position of the front record's header. */
  private head = 0;
  /** Byte position where the next record goes. */
  private tail = 0;

  /** `meter` counts the bytes of the records. */
  constructor(private readonly meter?: ByteMeter) {}

  /** Bytes of memory held now. */
  get capacity(): number {
    return this.buffer.length;
  }

  push(src: Uint8Array, off: number, len: number): void {
    const need = HEADER_BYTES + ((len + 3) & ~3);
    let at = this.place(need);
    if (at < 0) {
      this.grow(need);
      at = this.tail;
    }
    this.words[at >>> 2] = len;
    copyBytes(this.buffer, at + HEADER_BYTES, src, off, len);
    this.tail = at + need;
    this.byteLength += len;
    if (this.meter !== undefined) this.meter.bytes += len;
    if (this.length === 0) {
      this.head = at;
      this.frontOffset = at + HEADER_BYTES;
      this.frontLength = len;
    }
    this.length += 1;
  }

  /** Removes the front record. The queue must not be empty. */
  pop(): void {
    if (this.length === 0) throw new VeloError('ERR_INTERNAL', 'pop from an empty byte queue');
    this.byteLength -= this.frontLength;
    if (this.meter !== undefined) this.meter.bytes -= this.frontLength;
    this.length -= 1;
    if (this.length === 0) {
      this.rewind();
      return;
    }
    let at = this.head + HEADER_BYTES + ((this.frontLength + 3) & ~3);
    if (at >= this.buffer.length || this.words[at >>> 2] === SKIP_MARK) at = 0;
    this.head = at;
    this.frontOffset = at + HEADER_BYTES;
    this.frontLength = this.words[at >>> 2]!;
  }

  /** Drops everything and gives the memory back. */
  clear(): void {
    if (this.meter !== undefined) this.meter.bytes -= this.byteLength;
    this.length = 0;
    this.byteLength = 0;
    this.release();
  }

  private rewind(): void {
    if (this.buffer.length > KEEP_CAPACITY) this.release();
    this.head = 0;
    this.tail = 0;
  }

  private release(): void {
    this.buffer = NO_BYTES;
    this.words = NO_WORDS;
    this.head = 0;
    this.tail = 0;
  }

  /**
   * Where a record of `need` bytes goes, or −1 when it does not fit. The used bytes are [head, tail) or, once wrapped,
   * [head, end) and [0, tail). Equal positions with records in the queue mean full: an empty queue is rewound.
   */
  private place(need: number): number {
    const { head, tail } = this;
    const capacity = this.buffer.length;
    if (this.length > 0 && tail <= head) return head - tail >= need ? tail : -1;
    if (capacity - tail >= need) return tail;
    if (head < need) return -1;
    if (tail < capacity) this.words[tail >>> 2] = SKIP_MARK;
    return 0;
  }

  /** Moves everything to the start of a buffer at least twice as large. */
  private grow(need: number): void {
    const used = this.buffer.length;
    let capacity = Math.max(MIN_CAPACITY, used * 2);
    while (capacity < used + need) capacity *= 2;
    const words = new Uint32Array(capacity >>> 2);
    const bytes = new Uint8Array(words.buffer);
    const { head, tail, length } = this;
    let end = 0;
    if (length > 0 && tail > head) {
      bytes.set(this.buffer.subarray(head, tail), 0);
      end = tail - head;
    } else if (length > 0) {
      const first = this.endOfLap();
      bytes.set(this.buffer.subarray(head, first), 0);
      bytes.set(this.buffer.subarray(0, tail), first - head);
      end = first - head + tail;
    }
    this.buffer = bytes;
    this.words = words;
    this.head = 0;
    this.tail = end;
    this.frontOffset = HEADER_BYTES;
  }

  /** End of the last record before the wrap: where the skip mark stands, or the end of the buffer. */
  private endOfLap(): number {
    let at = this.head;
    while (at < this.buffer.length && this.words[at >>> 2] !== SKIP_MARK) {
      at += HEADER_BYTES + ((this.words[at >>> 2]! + 3) & ~3);
    }
    return at;
  }
}
