// A single-producer, single-consumer ring of variable-length records, and the kick positions that travel with it.
// It moves records and says where a flush stands between them. It never waits, never wakes anybody and never grows.
//
// Record: two header words, then the body, padded to 8 bytes. A record never wraps: where the space before the end is too
// short, a wrap marker fills it. Head and tail are free-running byte counters on separate cache lines. The producer writes
// bodies and headers plainly and publishes them with one store of the tail; the consumer frees them with one store of the head.

import { VeloError } from '../errors.js';
import { invariant } from './invariant.js';
import type { Memory } from './memory.js';

const CACHE_LINE_WORDS = 16;

// Words of the ring's header, from its base.
const HEAD = 0;
const TAIL = CACHE_LINE_WORDS;
const PRODUCER_WAITING = 2 * CACHE_LINE_WORDS;
const KICK = 3 * CACHE_LINE_WORDS;
const KICK_COUNT = KICK + 1;
const DATA = 4 * CACHE_LINE_WORDS;

/** Size of a ring's own header in words; the data area follows. */
export const RING_HEADER_WORDS = DATA;

const RECORD_HEADER_BYTES = 8;
const RECORD_ALIGN_MASK = 7;
/** Positions are multiples of 8: the kick word carries the low bits of the kick's number beside its position. */
const KICK_NUMBER_MASK = RECORD_ALIGN_MASK;

// First header word: body length (24 bits), kind (6 bits), kick flag.
const LENGTH_MASK = 0xffffff;
const KIND_SHIFT = 24;
const KIND_MASK = 0x3f;
const KICK_BEFORE = 1 << 30;
/** The record kind that is the ring's own: skip to the start of the data area. */
const KIND_WRAP = 0;

/** Inline records are at most this share of the ring; larger ones travel as parcels beside it. */
const INLINE_SHARE = 8;
const MIN_RING_BYTES = 1024;
const MAX_RING_BYTES = 1 << 26;

invariant((KICK_BEFORE & (LENGTH_MASK | (KIND_MASK << KIND_SHIFT))) === 0, 'the kick flag has a bit of its own');
invariant((LENGTH_MASK & (KIND_MASK << KIND_SHIFT)) === 0, 'length and kind have bits of their own');
invariant(MAX_RING_BYTES / INLINE_SHARE <= LENGTH_MASK, 'the length of an inline record fits its field');
invariant(INLINE_SHARE >= 2, 'an empty ring takes a record behind a wrap marker');
invariant(MIN_RING_BYTES / INLINE_SHARE > RECORD_HEADER_BYTES, 'the smallest ring takes a body');
invariant(RECORD_HEADER_BYTES === RECORD_ALIGN_MASK + 1, 'what is left before the end of the ring takes a wrap marker');

/** Words a ring of `capacityBytes` takes. `capacityBytes` is a power of two from 1 KiB to 64 MiB. */
export function ringWords(capacityBytes: number): number {
  return RING_HEADER_WORDS + capacityBytes / 4;
}

export function checkRingCapacity(capacityBytes: number): void {
  const powerOfTwo = (capacityBytes & (capacityBytes - 1)) === 0;
  if (
    !Number.isInteger(capacityBytes) ||
    !powerOfTwo ||
    capacityBytes < MIN_RING_BYTES ||
    capacityBytes > MAX_RING_BYTES
  )
    throw new VeloError(
      'ERR_INVALID_ARGUMENT',
      `ringBytes must be a power of two from ${MIN_RING_BYTES} to ${MAX_RING_BYTES}, got ${capacityBytes}`,
    );
}

/** The largest body that travels inside the ring. */
export function maxInlineBody(capacityBytes: number): number {
  return capacityBytes / INLINE_SHARE - RECORD_HEADER_BYTES;
}

/** The writing end. One thread owns it. */
export class RingProducer {
  /** The largest body `reserve` takes. */
  readonly maxInline: number;
  private tail: number;
  /** The reserved record: where it ends (equal to `tail` when there is none), where its header stands, what goes there. */
  private pendingTail: number;
  private pendingWord = 0;
  private pendingHeader = 0;
  private published: number;
  private headSeen: number;
  protected kickNext = false;
  private kicks: number;
  private wanting = false;

  constructor(
    protected readonly memory: Memory,
    protected readonly base: number,
    private readonly capacity: number,
  ) {
    checkRingCapacity(capacity);
    this.maxInline = maxInlineBody(capacity);
    this.tail = memory.load(base + TAIL);
    this.pendingTail = this.tail;
    this.published = this.tail;
    this.headSeen = memory.load(base + HEAD);
    this.kicks = memory.load(base + KICK_COUNT);
  }

  /** True while committed records wait for `publish`. */
  get hasUnpublished(): boolean {
    return this.tail !== this.published;
  }

  /**
   * Makes room for one record. Returns the byte offset of the body, or -1 when the ring is full. The record exists once
   * `commit` is called; another `reserve` before that takes its place. `kind` is 1 to 63, `tag` any 32-bit word, `length` at
   * most `maxInline`.
   */
  reserve(kind: number, tag: number, length: number): number {
    if (length >>> 0 > this.maxInline || kind === KIND_WRAP || (kind & KIND_MASK) !== kind)
      throw new VeloError('ERR_INTERNAL', `record of kind ${kind}, ${length} bytes does not fit the ring`);
    const size = RECORD_HEADER_BYTES + ((length + RECORD_ALIGN_MASK) & ~RECORD_ALIGN_MASK);
    const mask = this.capacity - 1;
    let position = this.tail;
    const untilEnd = this.capacity - (position & mask);
    const needed = size <= untilEnd ? size : untilEnd + size;
    if (((position + needed - this.headSeen) | 0) > this.capacity) {
      this.headSeen = this.memory.load(this.base + HEAD);
      if (((position + needed - this.headSeen) | 0) > this.capacity) {
        this.pendingTail = this.tail;
        return -1;
      }
    }
    const data = this.base + DATA;
    if (size > untilEnd) {
      this.memory.write(data + ((position & mask) >> 2), KIND_WRAP << KIND_SHIFT);
      position = (position + untilEnd) | 0;
    }
    const word = data + ((position & mask) >> 2);
    this.memory.write(word + 1, tag);
    this.pendingWord = word;
    this.pendingHeader = length | (kind << KIND_SHIFT);
    this.pendingTail = (position + size) | 0;
    return (word + 2) << 2;
  }

  /** Makes the reserved record part of the ring; the consumer sees it after the next `publish`. */
  commit(): void {
    if (this.pendingTail === this.tail) return;
    // Only now, because a kick may have come between `reserve` and here: it stands before this record.
    this.memory.write(this.pendingWord, this.kickNext ? this.pendingHeader | KICK_BEFORE : this.pendingHeader);
    this.kickNext = false;
    this.tail = this.pendingTail;
  }

  /** Shows every committed record to the consumer. Returns true if there was one. */
  publish(): boolean {
    if (this.tail === this.published) return false;
    this.published = this.tail;
    this.memory.store(this.base + TAIL, this.tail);
    return true;
  }

  /**
   * Publishes, and marks this position: everything before it is flushed before anything behind it is read. Needs no room:
   * the mark is a word, and once more the flag of whatever record comes next, so a later kick cannot erase this one.
   */
  kick(): void {
    this.publish();
    this.kicks = (this.kicks + 1) | 0;
    this.memory.store(this.base + KICK, this.tail | (this.kicks & KICK_NUMBER_MASK));
    this.memory.store(this.base + KICK_COUNT, this.kicks);
    this.kickNext = true;
  }

  /** Where the last committed record ends. */
  get position(): number {
    return this.tail;
  }

  /** True when the consumer has freed everything before a position of less than 2^31 bytes ago. */
  isFreed(position: number): boolean {
    return ((this.memory.load(this.base + HEAD) - position) | 0) >= 0;
  }

  /** Says that this producer wants to hear of room. Look again (`reserve`) after calling it, before waiting. */
  wantRoom(): void {
    this.wanting = true;
    this.memory.store(this.base + PRODUCER_WAITING, 1);
  }

  /**
   * True once after each `wantRoom` that was answered. Part of the look between parking and waiting: the consumer rings only
   * once for a wish, and may have done so before the producer parked.
   */
  roomCame(): boolean {
    if (!this.wanting || this.memory.load(this.base + PRODUCER_WAITING) !== 0) return false;
    this.wanting = false;
    return true;
  }
}

/** The reading end. One thread owns it. Fields describe the record that the last successful `next` moved to. */
export class RingConsumer {
  kind = 0;
  tag = 0;
  length = 0;
  /** Byte offset of the body in the memory. Valid until `release`. */
  offset = 0;
  /** True when a kick stands right before this record and was not already reported by `kickAtTail`. */
  kicked = false;

  private head: number;
  private released: number;
  private tailSeen: number;
  /** Zero, not the count found at the start: a kick made before this end existed is taken too. */
  protected kicksSeen = 0;
  private kickedHere = false;
  protected kickNumber = 0;
  protected kickPosition = 0;

  constructor(
    protected readonly memory: Memory,
    protected readonly base: number,
    private readonly capacity: number,
  ) {
    checkRingCapacity(capacity);
    this.head = memory.load(base + HEAD);
    this.released = this.head;
    this.tailSeen = this.head;
  }

  /** Reads the published tail. Returns true when there is something to read up to it. */
  refresh(): boolean {
    this.tailSeen = this.memory.load(this.base + TAIL);
    return this.tailSeen !== this.head;
  }

  /** Moves to the next record before the tail last seen. False at that tail. */
  next(): boolean {
    if (this.head === this.tailSeen) return false;
    const mask = this.capacity - 1;
    const data = this.base + DATA;
    const start = this.head;
    let word = data + ((start & mask) >> 2);
    let header = this.memory.read(word);
    if (((header >>> KIND_SHIFT) & KIND_MASK) === KIND_WRAP) {
      this.head = (this.head + this.capacity - (this.head & mask)) | 0;
      word = data;
      header = this.memory.read(word);
    }
    this.kind = (header >>> KIND_SHIFT) & KIND_MASK;
    this.length = header & LENGTH_MASK;
    this.tag = this.memory.read(word + 1);
    this.offset = (word + 2) << 2;
    this.kicked = (header & KICK_BEFORE) !== 0 && (!this.kickedHere || this.kickedAgainAt(start));
    this.kickedHere = false;
    const size = RECORD_HEADER_BYTES + ((this.length + RECORD_ALIGN_MASK) & ~RECORD_ALIGN_MASK);
    this.head = (this.head + size) | 0;
    if (this.kind === KIND_WRAP || this.length > this.capacity || ((this.tailSeen - this.head) | 0) < 0)
      throw new VeloError(
        'ERR_CONDUIT_BROKEN',
        `ring record of kind ${this.kind}, ${this.length} bytes runs past the tail`,
      );
    return true;
  }

  /** A kick was taken at this position, and one more was made there since. */
  private kickedAgainAt(position: number): boolean {
    if (!this.loadKick() || this.kickPosition !== position) return false;
    this.kicksSeen = this.kickNumber;
    return true;
  }

  /** At the tail last seen: true once for each kick that stands exactly here. */
  kickAtTail(): boolean {
    if (!this.loadKick()) return false;
    const ahead = (this.kickPosition - this.head) | 0;
    if (ahead > 0) return false;
    this.kicksSeen = this.kickNumber;
    if (ahead < 0) return false; // passed already: the record behind it carried the flag
    this.kickedHere = true;
    return true;
  }

  /** Reads number and position of the newest kick. False when it was seen. */
  protected loadKick(): boolean {
    const count = this.memory.load(this.base + KICK_COUNT);
    if (count === this.kicksSeen) return false;
    const kick = this.memory.load(this.base + KICK);
    // The position may belong to a kick that is not counted yet. Taken under the older number, it would be taken twice.
    this.kickNumber = (count + ((kick - count) & KICK_NUMBER_MASK)) | 0;
    this.kickPosition = kick & ~KICK_NUMBER_MASK;
    return this.kickNumber !== this.kicksSeen;
  }

  /** True when the producer published something, or kicked, that this end has not taken. */
  hasWork(): boolean {
    return (
      this.memory.load(this.base + TAIL) !== this.head ||
      ((this.memory.load(this.base + KICK_COUNT) - this.kicksSeen) | 0) > 0
    );
  }

  /** Frees every record read so far. Returns true when the producer waits for room and must be woken. */
  release(): boolean {
    if (this.released === this.head) return false;
    this.released = this.head;
    this.memory.store(this.base + HEAD, this.head);
    if (this.memory.load(this.base + PRODUCER_WAITING) === 0) return false;
    return this.memory.exchange(this.base + PRODUCER_WAITING, 0) !== 0;
  }
}
