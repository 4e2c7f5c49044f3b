// Runs two or three threads in every order that a bound on preemptions leaves, one access at a time, and reports the first
// order that breaks a promise. Threads are plain synchronous functions over a `Memory`. It is deterministic: the same scenario
// gives the same schedules in the same order, and a schedule printed once can be replayed.

import type { Memory } from '../../lib/plane/memory.js';
import { ExploredMemory, type Points, type Scheduler } from './explored-memory.js';
import { DataRace } from './race-detector.js';

/** A small concurrent program and what must hold at its end. */
export interface Scenario<T> {
  /** Size of the shared memory. */
  words: number;
  /** Runs before all threads; what it writes is known to all of them. */
  setup?: (memory: Memory) => void;
  /** Each builds its own view of the memory, and keeps nothing outside its own call: it is run again after every stop. */
  threads: readonly ((memory: Memory) => T)[];
  /** Throws when the results, in the order of the threads, or the memory left behind are wrong. */
  check?: (results: T[], memory: Memory) => void;
}

export interface ExploreOptions {
  /** How often a thread may be stopped while it could go on. Waiting and ending switch for free. Default 2. */
  preemptions?: number;
  /** `atomic` leaves out plain accesses: in a program without data races they commute, and races are found either way. */
  points?: Points;
  /** Gives up after so many schedules; the report then says that it is not complete. */
  maxSchedules?: number;
}

export interface Violation {
  kind: 'deadlock' | 'race' | 'failure' | 'endless';
  message: string;
  /** `A12 B3 A1`: thread A for twelve accesses, then B for three, then A for one. */
  schedule: string;
}

export interface Report {
  schedules: number;
  complete: boolean;
  violation: Violation | undefined;
}

const DEFAULT_PREEMPTIONS = 2;
const MAX_SCHEDULES = 1_000_000;
const MAX_STEPS = 5_000;
const NOT_WAITING = -1;
const FIRST_NAME = 65;

/** Thrown to stop a thread at its next access. Made once: it carries nothing, least of all a stack. */
class Stopped extends Error {}
const STOPPED = new Stopped('stopped by the explorer');

class Endless extends Error {}

interface Decision {
  options: number[];
  taken: number;
}

interface Segment {
  thread: number;
  steps: number;
}

class Exploration<T> implements Scheduler {
  trace: ((line: string) => void) | undefined;
  private readonly memory: ExploredMemory;
  private readonly bound: number;
  private readonly finished: boolean[];
  private readonly waitingOn: number[];
  private readonly results: T[] = [];
  /** The decisions of the current schedule; the prefix up to the last changed one is replayed by the next schedule. */
  private readonly decisions: Decision[] = [];
  private depth = 0;
  private preempted = 0;
  private steps = 0;
  private current = 0;
  private next = -1;
  private granted = false;
  private segments: Segment[] = [];
  private script: Segment[] | undefined;
  private scriptAt = 0;

  constructor(
    private readonly scenario: Scenario<T>,
    options: ExploreOptions,
  ) {
    const count = scenario.threads.length;
    this.bound = options.preemptions ?? DEFAULT_PREEMPTIONS;
    this.memory = new ExploredMemory(scenario.words, count, options.points ?? 'all', this);
    this.finished = new Array<boolean>(count).fill(false);
    this.waitingOn = new Array<number>(count).fill(NOT_WAITING);
  }

  /** Runs one schedule: the one the decisions say, or the script. */
  runOne(): Violation | undefined {
    this.depth = 0;
    this.preempted = 0;
    this.steps = 0;
    this.next = -1;
    this.segments = [];
    this.scriptAt = 0;
    this.finished.fill(false);
    this.waitingOn.fill(NOT_WAITING);
    this.memory.reset();
    this.scenario.setup?.(this.memory);
    try {
      for (;;) {
        const runnable = this.runnable(-1);
        if (runnable.length === 0) break;
        this.runThread(this.chooseNext(runnable));
      }
      this.memory.enter(-1);
      const asleep = this.waitingOn.findIndex((word) => word !== NOT_WAITING);
      if (asleep >= 0)
        return this.violation('deadlock', `thread ${name(asleep)} waits on word ${this.waitingOn[asleep]} for ever`);
      this.scenario.check?.(this.results, this.memory);
      return undefined;
    } catch (error) {
      const kind = error instanceof DataRace ? 'race' : error instanceof Endless ? 'endless' : 'failure';
      return this.violation(kind, error instanceof Error ? error.message : String(error));
    }
  }

  /** Moves to the next schedule. False when all were run. */
  advance(): boolean {
    for (;;) {
      const last = this.decisions.at(-1);
      if (last === undefined) return false;
      if (++last.taken < last.options.length) return true;
      this.decisions.pop();
    }
  }

  setScript(schedule: string): void {
    this.script = schedule
      .split(' ')
      .filter((part) => part !== '')
      .map((part) => ({ thread: part.charCodeAt(0) - FIRST_NAME, steps: Number(part.slice(1)) }));
  }

  point(): void {
    if (++this.steps > MAX_STEPS) throw new Endless(`more than ${MAX_STEPS} accesses`);
    const segment = this.segments.at(-1)!;
    if (!this.mayGoOn(segment)) throw STOPPED;
    segment.steps++;
  }

  block(word: number): never {
    this.waitingOn[this.current] = word;
    throw STOPPED;
  }

  wake(word: number): void {
    for (let t = 0; t < this.waitingOn.length; t++) {
      if (this.waitingOn[t] !== word) continue;
      this.waitingOn[t] = NOT_WAITING;
      this.memory.completeWait(t, word);
    }
  }

  private mayGoOn(segment: Segment): boolean {
    const scripted = this.script?.[this.scriptAt - 1];
    if (scripted !== undefined) return segment.steps < scripted.steps;
    if (this.granted) {
      this.granted = false;
      return true;
    }
    if (this.script !== undefined || this.preempted >= this.bound) return true;
    const options = this.runnable(this.current);
    if (options.length === 1) return true;
    const pick = this.decide(options);
    if (pick === this.current) return true;
    this.preempted++;
    this.next = pick;
    return false;
  }

  private chooseNext(runnable: number[]): number {
    const scripted = this.script?.[this.scriptAt++];
    if (scripted !== undefined) return scripted.thread;
    const forced = this.next;
    this.next = -1;
    if (forced >= 0) return forced;
    return runnable.length === 1 || this.script !== undefined ? runnable[0]! : this.decide(runnable);
  }

  private decide(options: number[]): number {
    if (this.depth === this.decisions.length) this.decisions.push({ options, taken: 0 });
    const decision = this.decisions[this.depth++]!;
    return decision.options[decision.taken]!;
  }

  /** Threads that can run, the preferred one first. */
  private runnable(preferred: number): number[] {
    const threads: number[] = preferred >= 0 ? [preferred] : [];
    for (let t = 0; t < this.finished.length; t++) {
      if (t !== preferred && !this.finished[t] && this.waitingOn[t] === NOT_WAITING) threads.push(t);
    }
    return threads;
  }

  private runThread(thread: number): void {
    this.current = thread;
    this.granted = true;
    this.segments.push({ thread, steps: 0 });
    this.memory.enter(thread);
    const trace = this.trace;
    if (trace !== undefined) this.trace = (line) => trace(`${name(thread)} ${line}`);
    try {
      this.results[thread] = this.scenario.threads[thread]!(this.memory);
      this.finished[thread] = true;
    } catch (error) {
      if (error !== STOPPED) throw error;
    } finally {
      this.trace = trace;
    }
  }

  private violation(kind: Violation['kind'], message: string): Violation {
    const schedule = this.segments.map((segment) => `${name(segment.thread)}${segment.steps}`).join(' ');
    return { kind, message, schedule };
  }
}

function name(thread: number): string {
  return String.fromCharCode(FIRST_NAME + thread);
}

/** Runs every schedule within the bound, up to the first one that breaks something. */
export function explore<T>(scenario: Scenario<T>, options: ExploreOptions = {}): Report {
  const exploration = new Exploration(scenario, options);
  const most = options.maxSchedules ?? MAX_SCHEDULES;
  for (let schedules = 1; ; schedules++) {
    const violation = exploration.runOne();
    if (violation !== undefined) return { schedules, complete: false, violation };
    if (!exploration.advance()) return { schedules, complete: true, violation: undefined };
    if (schedules >= most) return { schedules, complete: false, violation: undefined };
  }
}

/** Runs one schedule, as a violation printed it. `trace` gets a line per access. */
export function replay<T>(
  scenario: Scenario<T>,
  schedule: string,
  options: ExploreOptions = {},
  trace?: (line: string) => void,
): Violation | undefined {
  const exploration = new Exploration(scenario, options);
  exploration.setScript(schedule);
  exploration.trace = trace;
  return exploration.runOne();
}
