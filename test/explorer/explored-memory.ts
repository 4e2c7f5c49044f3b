// `Memory` that belongs to the explorer: every shared access of a thread is recorded, may be the point where the thread is
// stopped, and is checked for data races. A thread that goes on after a stop is run again from its start; its earlier accesses
// are then answered from the record and change nothing. It never decides which thread runs next.

import type { Memory } from '../../lib/plane/memory.js';
import { RaceDetector } from './race-detector.js';

/** Which accesses are points where another thread may step in. */
export type Points = 'all' | 'atomic';

/** What the explorer decides for its memory. */
export interface Scheduler {
  /** Called before a thread's next access takes effect. Throws to stop the thread there. */
  point(): void;
  /** The running thread waits on a word. Throws to stop it. */
  block(word: number): never;
  /** Lets the waiters of a word go on. */
  wake(word: number): void;
  trace: ((line: string) => void) | undefined;
}

const OPS = [
  'load',
  'store',
  'add',
  'or',
  'and',
  'exchange',
  'compareExchange',
  'notify',
  'wait',
  'read',
  'write',
] as const;
const [LOAD, STORE, ADD, OR, AND, EXCHANGE, COMPARE_EXCHANGE, NOTIFY, WAIT, READ, WRITE] = OPS.keys();
const OP_SHIFT = 24;

/** What a thread has done so far: the access and the answer it got. */
class ThreadLog {
  readonly accesses: number[] = [];
  readonly answers: number[] = [];
}

export class ExploredMemory implements Memory {
  readonly words: Int32Array;
  private readonly raw: Uint8Array;
  private readonly races: RaceDetector;
  private readonly logs: ThreadLog[] = [];
  /** The running thread, or -1 while the scenario sets up or checks. */
  private thread = -1;
  private position = 0;
  private answer = 0;

  constructor(
    words: number,
    threads: number,
    private readonly points: Points,
    private readonly scheduler: Scheduler,
  ) {
    this.words = new Int32Array(words);
    this.raw = new Uint8Array(this.words.buffer);
    this.races = new RaceDetector(words, threads);
    for (let t = 0; t < threads; t++) this.logs.push(new ThreadLog());
  }

  get bytes(): Uint8Array {
    throw new Error('explored code reads record bodies with copyOut');
  }

  /** A new schedule: the memory is zero and no thread has run. */
  reset(): void {
    this.words.fill(0);
    this.races.reset();
    for (const log of this.logs) {
      log.accesses.length = 0;
      log.answers.length = 0;
    }
    this.thread = -1;
  }

  /** The given thread runs from its start; -1 for accesses that belong to no thread. */
  enter(thread: number): void {
    this.thread = thread;
    this.position = 0;
  }

  /** A wait of a stopped thread is over. */
  completeWait(thread: number, word: number): void {
    const log = this.logs[thread]!;
    log.accesses.push((WAIT! << OP_SHIFT) | word);
    log.answers.push(0);
  }

  load(word: number): number {
    if (this.recorded(LOAD!, word)) return this.answer;
    if (this.thread >= 0) this.races.acquire(this.thread, word);
    return this.record(LOAD!, word, this.words[word]!);
  }

  store(word: number, value: number): void {
    if (this.recorded(STORE!, word)) return;
    if (this.thread >= 0) this.races.release(this.thread, word, false);
    this.words[word] = value;
    this.record(STORE!, word, value | 0);
  }

  add(word: number, value: number): number {
    return this.modify(ADD!, word, (before) => before + value);
  }

  or(word: number, bits: number): number {
    return this.modify(OR!, word, (before) => before | bits);
  }

  and(word: number, bits: number): number {
    return this.modify(AND!, word, (before) => before & bits);
  }

  exchange(word: number, value: number): number {
    return this.modify(EXCHANGE!, word, () => value);
  }

  compareExchange(word: number, expected: number, value: number): number {
    if (this.recorded(COMPARE_EXCHANGE!, word)) return this.answer;
    const before = this.words[word]!;
    if (this.thread >= 0) this.races.acquire(this.thread, word);
    if (before === (expected | 0)) {
      if (this.thread >= 0) this.races.release(this.thread, word, true);
      this.words[word] = value;
    }
    return this.record(COMPARE_EXCHANGE!, word, before);
  }

  notify(word: number): void {
    if (this.recorded(NOTIFY!, word)) return;
    this.scheduler.wake(word);
    this.record(NOTIFY!, word, 0);
  }

  /** The timeout never comes: a wake that only a timeout would bring is a wake that was lost. */
  wait(word: number, value: number, _timeoutMs: number): void {
    if (this.recorded(WAIT!, word)) return;
    if (this.thread >= 0) this.races.acquire(this.thread, word);
    if (this.words[word] === (value | 0)) {
      this.scheduler.trace?.(`wait ${word}: sleeps`);
      this.scheduler.block(word);
    }
    this.record(WAIT!, word, 0);
  }

  read(word: number): number {
    if (this.recorded(READ!, word)) return this.answer;
    if (this.thread >= 0) this.races.readPlain(this.thread, word);
    return this.record(READ!, word, this.words[word]!);
  }

  write(word: number, value: number): void {
    if (this.recorded(WRITE!, word)) return;
    if (this.thread >= 0) this.races.writePlain(this.thread, word);
    this.words[word] = value;
    this.record(WRITE!, word, value | 0);
  }

  /** One access per word, so that a reader can see half of it. */
  copyIn(byteOffset: number, source: Uint8Array, sourceOffset: number, length: number): void {
    for (let done = 0; done < length; done += 4) {
      const word = (byteOffset + done) >>> 2;
      if (this.recorded(WRITE!, word)) continue;
      if (this.thread >= 0) this.races.writePlain(this.thread, word);
      for (let i = done; i < Math.min(done + 4, length); i++) this.raw[byteOffset + i] = source[sourceOffset + i]!;
      this.record(WRITE!, word, this.words[word]!);
    }
  }

  copyOut(byteOffset: number, target: Uint8Array, targetOffset: number, length: number): void {
    for (let done = 0; done < length; done += 4) {
      const value = this.read((byteOffset + done) >>> 2);
      for (let i = 0; i < Math.min(4, length - done); i++) target[targetOffset + done + i] = value >>> (i << 3);
    }
  }

  private modify(op: number, word: number, change: (before: number) => number): number {
    if (this.recorded(op, word)) return this.answer;
    const before = this.words[word]!;
    if (this.thread >= 0) {
      this.races.acquire(this.thread, word);
      this.races.release(this.thread, word, true);
    }
    this.words[word] = change(before);
    return this.record(op, word, before);
  }

  /** True when this access was made in an earlier run of the thread. Otherwise it is now the thread's turn to make it. */
  private recorded(op: number, word: number): boolean {
    if (word < 0 || word >= this.words.length) throw new Error(`${OPS[op]} of word ${word} is outside the memory`);
    if (this.thread < 0) return false;
    const log = this.logs[this.thread]!;
    if (this.position < log.accesses.length) {
      if (log.accesses[this.position] !== ((op << OP_SHIFT) | word))
        throw new Error(`a thread that ran again made another access: ${OPS[op]} ${word}`);
      this.answer = log.answers[this.position++]!;
      return true;
    }
    if (this.points === 'all' || op < READ!) this.scheduler.point();
    return false;
  }

  private record(op: number, word: number, answer: number): number {
    if (this.thread < 0) return answer;
    const log = this.logs[this.thread]!;
    log.accesses.push((op << OP_SHIFT) | word);
    log.answers.push(answer);
    this.position++;
    this.scheduler.trace?.(`${OPS[op]} ${word}: ${answer}`);
    return answer;
  }
}
