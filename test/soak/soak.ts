// The course of a soak: rounds of load, first calm, then with faults, each followed by rest, in which every stream must have ended and
// every process must be as empty as it was before.

import { setTimeout as pause } from 'node:timers/promises';
import { Faults } from './faults.js';
import { Fleet, type SoakProcess } from './fleet.js';
import type { Sample } from './protocol.js';
import { Verdict } from './verdict.js';

export interface SoakOptions {
  readonly seconds: number;
  /** At most so many streams; Infinity: as many as there is time for. */
  readonly streams: number;
  readonly seed: number;
  /** A small one: fewer streams at a time, patient heartbeats. */
  readonly quick: boolean;
  /** Undefined: by size. */
  readonly heartbeatMs: number | undefined;
  /** A line of progress. */
  readonly log: (line: string) => void;
}

export interface SoakReport {
  readonly seed: number;
  readonly seconds: number;
  readonly streams: number;
  readonly items: number;
  /** How streams ended for their readers, and for their writers. */
  readonly ended: Readonly<Record<string, number>>;
  readonly endedAtWriters: Readonly<Record<string, number>>;
  readonly kills: number;
  readonly stops: number;
  readonly cuts: number;
  readonly rounds: number;
  /** Times at which a process got no turn, without a fault of ours. */
  readonly standstills: number;
  /** Of processes that lived through several rounds: at their first rest and at their last. */
  readonly memory: readonly MemoryRow[];
  readonly failures: readonly string[];
}

export interface MemoryRow {
  readonly process: string;
  readonly streams: number;
  readonly heapMiB: readonly [number, number];
  readonly externalMiB: readonly [number, number];
  readonly rssMiB: readonly [number, number];
  readonly descriptors: readonly [number, number];
}

/** Share of a round's load that is free of faults. */
const CALM = 0.35;
const PROGRESS_MS = 5_000;
const REST_POLL_MS = 100;
const TICK_MS = 50;
const MIB = 1024 * 1024;

/** What differs between a small soak, which must stand a busy machine, and a real one. */
function scaleOf({ quick, seconds, heartbeatMs = quick ? 400 : 200 }: SoakOptions) {
  const hangMs = quick ? 8_000 : 10_000;
  const callTimeoutMs = quick ? 5_000 : 4_000;
  return {
    heartbeatMs,
    hangMs,
    callTimeoutMs,
    width: quick ? 12 : 40,
    roundMs: (1_000 * seconds) / Math.max(2, Math.min(12, Math.round(seconds / 12))),
    // Four windows, the calls that were under way, and what the loops need to notice.
    aftermathMs: 8 * heartbeatMs + callTimeoutMs,
    /** Readers and writers give up after `hangMs`, one behind the other at the worst. */
    restMs: 3 * hangMs + callTimeoutMs,
  };
}

export async function runSoak(options: SoakOptions): Promise<SoakReport> {
  const soak = new Soak(options);
  return await soak.run();
}

class Soak {
  private readonly scale: ReturnType<typeof scaleOf>;
  private readonly verdict: Verdict;
  private readonly fleet: Fleet;
  private readonly faults: Faults;
  private readonly from = Date.now();
  private rounds = 0;

  constructor(private readonly options: SoakOptions) {
    this.scale = scaleOf(options);
    const verdict = new Verdict(this.scale.aftermathMs);
    this.verdict = verdict;
    this.fleet = new Fleet(
      { seed: options.seed, ...this.scale },
      {
        opened: (streams) => {
          verdict.opened += streams;
        },
        ended: (of, streams, standstills) => {
          verdict.report(of, streams);
          for (const { from, to } of standstills) verdict.stoodStill([of.name], from, to);
        },
        broken: (of, what) => verdict.fail(`${of.name}: ${what}`),
      },
    );
    this.faults = new Faults(this.fleet, verdict, options.seed, this.scale.heartbeatMs);
  }

  async run(): Promise<SoakReport> {
    const { verdict, fleet, options } = this;
    const timers = [this.watchSelf(), setInterval(() => this.progress(), PROGRESS_MS)];
    try {
      await fleet.start();
      const deadline = Date.now() + options.seconds * 1_000;
      while (Date.now() < deadline && verdict.opened < options.streams && (await this.round(deadline)));
      for (const late of await fleet.end()) verdict.fail(`${late}: it did not close`);
    } catch (error) {
      verdict.fail(`the soak itself: ${error instanceof Error ? error.stack : String(error)}`);
    } finally {
      for (const timer of timers) clearInterval(timer);
      fleet.discard();
    }
    return this.report();
  }

  /** Load and rest. False when it did not come to rest. */
  private async round(deadline: number): Promise<boolean> {
    const { fleet, scale, options, verdict } = this;
    this.rounds += 1;
    const begun = Date.now();
    const loadUntil = Math.min(begun + scale.roundMs, deadline);
    fleet.load(() => Math.ceil((options.streams - verdict.opened) / fleet.readers.length));
    await pause((loadUntil - begun) * CALM);
    await this.faults.until(loadUntil);
    fleet.load(undefined);
    return await this.rest();
  }

  /** Waits until every stream has ended, then looks at everybody. */
  private async rest(): Promise<boolean> {
    const { fleet, verdict } = this;
    const deadline = Date.now() + this.scale.restMs;
    let calm = false;
    while (!calm && Date.now() < deadline) {
      await pause(REST_POLL_MS);
      const looks = fleet.members.map(async (member) => {
        const sample = await member.sample(false);
        return sample.open === 0 && verdict.leftovers(sample).length === 0;
      });
      calm = (await Promise.all(looks)).every((empty) => empty);
    }
    for (const member of fleet.members) verdict.judgeSample(member, await member.sample(true));
    verdict.judgeStreams();
    return calm;
  }

  /** This process relays what others send: when it stands still, they may look dead. */
  private watchSelf(): NodeJS.Timeout {
    let before = Date.now();
    return setInterval(() => {
      const now = Date.now();
      const names = this.fleet.members.map(({ name }) => name);
      if (now - before > TICK_MS + this.scale.heartbeatMs) this.verdict.stoodStill(names, before, now);
      before = now;
    }, TICK_MS);
  }

  private progress(): void {
    const { verdict } = this;
    const { kills, stops, cuts } = this.faults.counts;
    const seconds = Math.round((Date.now() - this.from) / 1_000);
    this.options.log(
      `${seconds} s, round ${this.rounds}: ${verdict.opened} streams opened, ${verdict.readerEndings} ended; ` +
        `${kills} kills, ${stops} stops, ${cuts} cuts; ${verdict.failures.length} failures`,
    );
  }

  private report(): SoakReport {
    const { verdict, rounds, options } = this;
    return {
      seed: options.seed,
      seconds: Math.round((Date.now() - this.from) / 1_000),
      streams: verdict.opened,
      items: verdict.items,
      ended: verdict.ended,
      endedAtWriters: verdict.endedAtWriters,
      ...this.faults.counts,
      rounds,
      standstills: verdict.standstills,
      memory: this.fleet.members.filter(({ samples }) => samples.length > 1).map(memoryOf),
      failures: verdict.more === 0 ? verdict.failures : [...verdict.failures, `and ${verdict.more} more`],
    };
  }
}

function memoryOf({ name, samples }: SoakProcess): MemoryRow {
  const [first, last] = [samples[0]!, samples.at(-1)!];
  const pair = (of: (sample: Sample) => number) => [rounded(of(first)), rounded(of(last))] as const;
  return {
    process: name,
    streams: last.streams,
    heapMiB: pair(({ heapBytes }) => heapBytes / MIB),
    externalMiB: pair(({ externalBytes }) => externalBytes / MIB),
    rssMiB: pair(({ rssBytes }) => rssBytes / MIB),
    descriptors: pair(({ descriptors }) => descriptors),
  };
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
