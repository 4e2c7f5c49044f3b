/// <reference lib="es2024.sharedmemory" />
// Owns the ring of the roofline: records of one thread for another in shared memory, and nothing that a product needs besides.
// Must never grow a protocol: it is the floor that the engine's own rings are held against.

const CONTROL_BYTES = 512;
const RING_BYTES = 1 << 20;
const MASK = RING_BYTES - 1;
const RECORD_HEADER_BYTES = 8;
const WRAP = -1;

// Control words, each on a cache line of its own.
const HEAD = 0;
const PARKED = 32;
const TAIL = 64;
const BELL = 96;

const BLOCK_SLICE_MS = 1;

export const newRingMemory = (): SharedArrayBuffer => new SharedArrayBuffer(CONTROL_BYTES + RING_BYTES);

const sizeOf = (length: number): number => RECORD_HEADER_BYTES + ((length + 7) & ~7);

/** The writing end: reserve, write the body, commit; publish once per burst. */
export class RooflineWriter {
  readonly bytes: Uint8Array;
  private readonly control: Int32Array;
  private readonly words: Int32Array;
  private tail = 0;
  private headSeen = 0;

  constructor(memory: SharedArrayBuffer) {
    this.control = new Int32Array(memory, 0, CONTROL_BYTES / 4);
    this.bytes = new Uint8Array(memory, CONTROL_BYTES);
    this.words = new Int32Array(memory, CONTROL_BYTES);
  }

  /** Offset of the body in `bytes`. Blocks the thread while the ring is full. */
  reserve(stream: number, length: number): number {
    const size = sizeOf(length);
    while (((this.tail - this.headSeen) | 0) + 2 * size > RING_BYTES) this.awaitRoom();
    let at = this.tail & MASK;
    if (at + size > RING_BYTES) {
      this.words[at >> 2] = WRAP;
      this.tail = (this.tail + RING_BYTES - at) | 0;
      at = 0;
    }
    this.words[at >> 2] = length;
    this.words[(at >> 2) + 1] = stream;
    this.tail = (this.tail + size) | 0;
    return at + RECORD_HEADER_BYTES;
  }

  publish(): void {
    Atomics.store(this.control, TAIL, this.tail);
    if (Atomics.load(this.control, PARKED) === 0 || Atomics.exchange(this.control, PARKED, 0) === 0) return;
    Atomics.add(this.control, BELL, 1);
    Atomics.notify(this.control, BELL);
  }

  /** Every record before the tail is whole while a reservation waits, so they may go. */
  private awaitRoom(): void {
    const seen = this.headSeen;
    this.headSeen = Atomics.load(this.control, HEAD);
    if (this.headSeen !== seen) return;
    this.publish();
    Atomics.wait(this.control, HEAD, seen, BLOCK_SLICE_MS);
  }
}

/** The reading end: `next` walks the records up to the published tail; `release` frees them. */
export class RooflineReader {
  readonly bytes: Uint8Array;
  stream = 0;
  offset = 0;
  length = 0;
  private readonly control: Int32Array;
  private readonly words: Int32Array;
  private head = 0;
  private tailSeen = 0;

  constructor(memory: SharedArrayBuffer) {
    this.control = new Int32Array(memory, 0, CONTROL_BYTES / 4);
    this.bytes = new Uint8Array(memory, CONTROL_BYTES);
    this.words = new Int32Array(memory, CONTROL_BYTES);
  }

  refresh(): boolean {
    this.tailSeen = Atomics.load(this.control, TAIL);
    return this.tailSeen !== this.head;
  }

  next(): boolean {
    if (this.head === this.tailSeen) return false;
    let at = this.head & MASK;
    if (this.words[at >> 2] === WRAP) {
      this.head = (this.head + RING_BYTES - at) | 0;
      at = 0;
    }
    this.length = this.words[at >> 2]!;
    this.stream = this.words[(at >> 2) + 1]!;
    this.offset = at + RECORD_HEADER_BYTES;
    this.head = (this.head + sizeOf(this.length)) | 0;
    return true;
  }

  release(): void {
    Atomics.store(this.control, HEAD, this.head);
    Atomics.notify(this.control, HEAD);
  }

  /** Resolves when there may be something to read. */
  async sleep(): Promise<void> {
    const bell = Atomics.load(this.control, BELL);
    Atomics.store(this.control, PARKED, 1);
    if (!this.refresh()) {
      const wait = Atomics.waitAsync(this.control, BELL, bell);
      if (wait.async) await wait.value;
    }
    Atomics.store(this.control, PARKED, 0);
  }
}
