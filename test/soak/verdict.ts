// What a soak comes to: outcomes counted, and everything that must not be. An ending that is unclean needs an excuse: a fault at one
// of its two processes while the stream was open, or shortly before.

import type { SoakProcess } from './fleet.js';
import type { Sample, StreamReport } from './protocol.js';

/** A fault, and which processes it struck. */
export interface Excuse {
  readonly kind: string;
  readonly names: readonly string[];
  readonly from: number;
  /** Undefined: it lasts. */
  to: number | undefined;
}

/** Endings that need no excuse. */
const CLEAN: ReadonlySet<string> = new Set(['finalized', 'cancelled', 'dropped as planned']);
/** At a writer whose reader cancelled before it came, or came again: the anchor was not there any more, or went just then. */
const CAME_LATE: ReadonlySet<string> = new Set(['attach ERR_ATTACH_REFUSED', 'attach ERR_CHANNEL_CLOSED']);
const MAX_FAILURES = 50;
/** Samples that a process gives before it is compared with itself. */
const WARM_UP_SAMPLES = 2;
const MIB = 1024 * 1024;
const PER_STREAMS = 10_000;

interface MemoryBound {
  readonly what: keyof Sample;
  /** Noise: what a collector has not given back, and tables that grow once. */
  readonly slack: number;
  /** Growth that is allowed per 10,000 streams. */
  readonly rate: number;
}

/** A stream that leaked a kilobyte would grow by 10 MiB in 10,000. */
const MEMORY: readonly MemoryBound[] = [
  { what: 'heapBytes', slack: 4 * MIB, rate: 1 * MIB },
  { what: 'externalBytes', slack: 4 * MIB, rate: 1 * MIB },
  { what: 'arrayBufferBytes', slack: 4 * MIB, rate: 1 * MIB },
  { what: 'rssBytes', slack: 64 * MIB, rate: 8 * MIB },
  { what: 'descriptors', slack: 12, rate: 0 },
];

export class Verdict {
  opened = 0;
  readonly ended: Record<string, number> = {};
  /** As writers saw their ends. */
  readonly endedAtWriters: Record<string, number> = {};
  readonly failures: string[] = [];
  /** Failures beyond those that are listed. */
  more = 0;
  items = 0;
  standstills = 0;
  readonly excuses: Excuse[] = [];
  private suspects: StreamReport[] = [];

  constructor(private readonly aftermathMs: number) {}

  get readerEndings(): number {
    return Object.values(this.ended).reduce((sum, count) => sum + count, 0);
  }

  fail(what: string): void {
    if (this.failures.length < MAX_FAILURES) this.failures.push(what);
    else this.more += 1;
  }

  strike(kind: string, names: readonly string[]): Excuse {
    const excuse: Excuse = { kind, names, from: Date.now(), to: undefined };
    this.excuses.push(excuse);
    return excuse;
  }

  /** A process got no turn. It explains what happened meanwhile; it counts when no fault of ours explains itself. */
  stoodStill(names: readonly string[], from: number, to: number): void {
    const ours = this.excuses.some(
      (excuse) => excuse.from <= to && (excuse.to ?? to) >= from && excuse.names.some((name) => names.includes(name)),
    );
    if (!ours) this.standstills += 1;
    this.excuses.push({ kind: 'standstill', names, from, to });
  }

  report(from: SoakProcess, streams: readonly StreamReport[]): void {
    for (const stream of streams) {
      const counts = from.role === 'reader' ? this.ended : this.endedAtWriters;
      counts[stream.outcome] = (counts[stream.outcome] ?? 0) + 1;
      if (from.role === 'reader') this.items += stream.items;
      if (stream.wrong !== undefined) this.fail(`${describe(from, stream)}: ${stream.wrong}`);
      else if (from.role === 'reader' && stream.outcome === 'hung') this.fail(`${describe(from, stream)}`);
      else if (!CLEAN.has(stream.outcome) && !(from.role === 'writer' && CAME_LATE.has(stream.outcome)))
        this.suspects.push(stream);
    }
  }

  /** Once everybody has reported: whoever ended uncleanly without a fault is a failure. */
  judgeStreams(): void {
    for (const stream of this.suspects) {
      const { reader, writer, outcome, from, to } = stream;
      const touched = ({ names }: Excuse) => names.includes(reader) || names.includes(writer);
      const excused = this.excuses.some(
        (excuse) => touched(excuse) && excuse.from <= to && (excuse.to ?? to) + this.aftermathMs >= from,
      );
      // Only a sender whose reader died, or whose cancel was cut off, may have been left waiting.
      const bereft = this.excuses.some(
        ({ kind, names }) =>
          (kind === 'kill' && names.includes(reader)) || (kind.startsWith('cut') && names.includes(writer)),
      );
      if (!excused || (outcome === 'hung' && !bereft)) {
        const before = this.excuses.findLast((excuse) => touched(excuse) && excuse.from <= to);
        const last = before === undefined ? 'none' : `${before.kind}, ${to - (before.to ?? to)} ms ago`;
        this.fail(
          `stream ${stream.stream}, ${reader} and ${writer}: ${outcome} after ${to - from} ms, without a fault (last: ${last})`,
        );
      }
    }
    this.suspects = [];
  }

  /** Gauges that are not 0. */
  leftovers({ gauges }: Sample): (readonly [gauge: string, value: number])[] {
    return Object.entries(gauges).filter(([, value]) => value !== 0);
  }

  /** A process at rest. */
  judgeSample(process: SoakProcess, sample: Sample): void {
    const { name, samples } = process;
    if (sample.open > 0) this.fail(`${name}: ${sample.open} streams never ended`);
    for (const [gauge, value] of this.leftovers(sample)) this.fail(`${name}: ${gauge} is ${value} at rest`);
    for (const [counter, value] of Object.entries(sample.never))
      if (value !== 0) this.fail(`${name}: ${counter} is ${value}`);
    samples.push(sample);
    if (samples.length <= WARM_UP_SAMPLES) return;
    const warm = samples.slice(0, WARM_UP_SAMPLES);
    const streams = sample.streams - warm.at(-1)!.streams;
    for (const { what, slack, rate } of MEMORY) {
      const base = Math.max(...warm.map((before) => before[what] as number));
      const grown = (sample[what] as number) - base;
      const bound = slack + (rate * streams) / PER_STREAMS;
      if (grown > bound)
        this.fail(`${name}: ${what} grew by ${grown} over ${streams} streams, above ${Math.round(bound)}`);
    }
  }
}

function describe(from: SoakProcess, { stream, reader, writer, outcome, items }: StreamReport): string {
  return `stream ${stream}, ${reader} and ${writer}: ${outcome} after ${items} items, says ${from.name}`;
}
