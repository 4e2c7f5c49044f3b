// Vector clocks over the words of an explored memory. It says whether two accesses, one of them plain and one of them a write,
// are ordered by nothing. It is stricter than sequential consistency needs: a load acquires only what the last store or the
// read-modify-writes since then released, a store releases and acquires nothing, a wake orders nothing.

/** Two accesses of one word that nothing orders. */
export class DataRace extends Error {}

export class RaceDetector {
  /** What thread t knows of thread u: `clock[t * threads + u]`. A clock starts at 1, so that 0 means "never". */
  private readonly clock: Int32Array;
  /** What a word's last release carries. */
  private readonly released: Int32Array;
  private readonly writeThread: Int8Array;
  private readonly writeClock: Int32Array;
  private readonly writeIsAtomic: Int8Array;
  private readonly plainRead: Int32Array;
  private readonly atomicRead: Int32Array;

  constructor(
    words: number,
    private readonly threads: number,
  ) {
    this.clock = new Int32Array(threads * threads);
    this.released = new Int32Array(words * threads);
    this.writeThread = new Int8Array(words);
    this.writeClock = new Int32Array(words);
    this.writeIsAtomic = new Int8Array(words);
    this.plainRead = new Int32Array(words * threads);
    this.atomicRead = new Int32Array(words * threads);
  }

  /** Forgets everything: what was done before happened before all threads. */
  reset(): void {
    this.clock.fill(0);
    for (let t = 0; t < this.threads; t++) this.clock[t * this.threads + t] = 1;
    this.released.fill(0);
    this.writeClock.fill(0);
    this.plainRead.fill(0);
    this.atomicRead.fill(0);
  }

  readPlain(t: number, word: number): void {
    this.checkWrite(t, word, true, 'read');
    this.plainRead[word * this.threads + t] = this.tick(t);
  }

  writePlain(t: number, word: number): void {
    this.checkWrite(t, word, true, 'write');
    this.checkReads(t, word, this.plainRead);
    this.checkReads(t, word, this.atomicRead);
    this.noteWrite(t, word, 0);
  }

  /** An atomic load, or the reading half of a read-modify-write. */
  acquire(t: number, word: number): void {
    this.checkWrite(t, word, false, 'atomic read');
    this.atomicRead[word * this.threads + t] = this.tick(t);
    for (let u = 0; u < this.threads; u++) {
      const carried = this.released[word * this.threads + u]!;
      if (carried > this.clock[t * this.threads + u]!) this.clock[t * this.threads + u] = carried;
    }
  }

  /** An atomic store (`keep` false: what the word released before is gone), or the writing half of a read-modify-write. */
  release(t: number, word: number, keep: boolean): void {
    this.checkWrite(t, word, false, 'atomic write');
    this.checkReads(t, word, this.plainRead);
    this.noteWrite(t, word, 1);
    for (let u = 0; u < this.threads; u++) {
      const known = this.clock[t * this.threads + u]!;
      const at = word * this.threads + u;
      if (!keep || known > this.released[at]!) this.released[at] = known;
    }
    this.tick(t);
  }

  private tick(t: number): number {
    const at = t * this.threads + t;
    const now = this.clock[at]!;
    this.clock[at] = now + 1;
    return now;
  }

  private noteWrite(t: number, word: number, atomic: number): void {
    this.writeThread[word] = t;
    this.writeClock[word] = this.clock[t * this.threads + t]!;
    this.writeIsAtomic[word] = atomic;
    if (atomic === 0) this.tick(t);
  }

  private checkWrite(t: number, word: number, alsoAtomic: boolean, what: string): void {
    const at = this.writeClock[word]!;
    const by = this.writeThread[word]!;
    if (at === 0 || by === t || (!alsoAtomic && this.writeIsAtomic[word] === 1)) return;
    if (at > this.clock[t * this.threads + by]!)
      throw new DataRace(`${what} of word ${word} by thread ${name(t)} races with a write by thread ${name(by)}`);
  }

  private checkReads(t: number, word: number, reads: Int32Array): void {
    for (let u = 0; u < this.threads; u++) {
      if (u !== t && reads[word * this.threads + u]! > this.clock[t * this.threads + u]!)
        throw new DataRace(`write of word ${word} by thread ${name(t)} races with a read by thread ${name(u)}`);
    }
  }
}

/** Threads are named A, B, C. */
function name(thread: number): string {
  return String.fromCharCode(65 + thread);
}
