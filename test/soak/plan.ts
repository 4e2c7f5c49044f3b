// What a soak does, drawn from its seed: the plan of every stream and the schedule of faults. Pure: equal seeds give equal plans. It
// must never look at a clock or at what has happened.

/** Numbers from a seed: Mulberry32. */
export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = seed >>> 0;
  }

  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  /** An integer from `low` to `high`, both included. */
  between(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.next() * from.length)]!;
  }

  /** True in `share` of all cases. */
  chance(share: number): boolean {
    return this.next() < share;
  }
}

export type ReaderKind =
  /** Reads as fast as it can. */
  | 'fast'
  /** Pauses before some of its items. */
  | 'slow'
  /** Is silent for `pauseMs` in the middle, which may be longer than the watchdog's windows. */
  | 'pausing'
  /** Starts late. */
  | 'late'
  /** Never reads, and cancels after `pauseMs`. */
  | 'absent'
  /** Cancels after `after` items. */
  | 'cancelling'
  /** Asks for a stop after `after` items and reads on. */
  | 'stopping';

export type ReadsBy = 'items' | 'batches' | 'frames';

export interface StreamPlan {
  readonly stream: number;
  readonly items: number;
  readonly reader: ReaderKind;
  readonly readsBy: ReadsBy;
  readonly after: number;
  readonly pauseMs: number;
  /** The producer detaches and attaches again before these items. */
  readonly detachAt: readonly number[];
  /** The producer pauses `paceMs` before one item in `paceEvery`; 0: never. */
  readonly paceEvery: number;
  readonly paceMs: number;
  readonly ending: 'finalize' | 'drop';
}

const READERS: readonly (readonly [share: number, kind: ReaderKind])[] = [
  [0.55, 'fast'],
  [0.15, 'slow'],
  [0.04, 'pausing'],
  [0.06, 'late'],
  [0.05, 'absent'],
  [0.08, 'cancelling'],
  [0.07, 'stopping'],
];
const DETACHING = 0.08;
const DROPPING = 0.05;
const PACED = 0.4;
const LONGEST_PAUSE_MS = 2_000;

export function planOf(seed: number, stream: number): StreamPlan {
  const random = new Random(Math.imul(seed, 0x9e3779b1) ^ Math.imul(stream, 0x85ebca77));
  // Most answers are short, a few are long.
  const items = random.chance(0.1) ? random.between(200, 600) : random.between(1, 120);
  const reader = readerOf(random.next());
  const detaches = random.chance(DETACHING) ? random.between(1, 3) : 0;
  const detachAt = Array.from({ length: detaches }, () => random.between(0, items - 1));
  return {
    stream,
    items,
    reader,
    readsBy: random.pick(['items', 'batches', 'frames']),
    after: random.between(0, items),
    pauseMs: random.between(1, reader === 'pausing' || reader === 'absent' ? LONGEST_PAUSE_MS : 300),
    detachAt: [...new Set(detachAt)].sort((a, b) => a - b),
    paceEvery: random.chance(PACED) ? random.between(1, 20) : 0,
    paceMs: random.between(1, 20),
    ending: random.chance(DROPPING) ? 'drop' : 'finalize',
  };
}

function readerOf(drawn: number): ReaderKind {
  let left = drawn;
  for (const [share, kind] of READERS) {
    if (left < share) return kind;
    left -= share;
  }
  return 'fast';
}

/** Body sizes of items: mostly tokens, some above a batch (60 KiB), few above what travels inline (256 KiB). */
export function sizeOf(stream: number, sequence: number): number {
  const random = new Random(Math.imul(stream, 0xc2b2ae35) ^ Math.imul(sequence, 0x27d4eb2f));
  const drawn = random.next();
  if (drawn < 0.0002) return random.between(262_145, 600_000);
  if (drawn < 0.002) return random.between(61_412, 110_000);
  if (drawn < 0.03) return random.between(1_000, 20_000);
  return random.between(0, 200);
}

export type FaultKind = 'kill' | 'stopShort' | 'stopLong' | 'cutBefore' | 'cutWithin';

export interface PlannedFault {
  /** Since the last one was over. */
  readonly afterMs: number;
  readonly kind: FaultKind;
  /** Number of the place it strikes, of all places. */
  readonly place: number;
  /** Of a cut: how many frames pass before, and where in the frame it is, from 0 to 1. */
  readonly frames: number;
  readonly within: number;
}

const FAULTS: readonly FaultKind[] = ['kill', 'stopShort', 'stopLong', 'cutBefore', 'cutWithin'];

/** Faults one after the other, without an end. Each kind at each place, in an order of the seed, before any comes again. */
export function* faultsOf(seed: number, places: number): Generator<PlannedFault, never> {
  const random = new Random(seed ^ 0x5fa17);
  const deck = () => {
    const cards = FAULTS.flatMap((kind) => Array.from({ length: places }, (_, place) => ({ kind, place })));
    for (let i = cards.length - 1; i > 0; i -= 1) {
      const other = random.between(0, i);
      [cards[i], cards[other]] = [cards[other]!, cards[i]!];
    }
    return cards;
  };
  for (;;)
    for (const card of deck())
      yield { ...card, afterMs: random.between(100, 700), frames: random.between(0, 40), within: random.next() };
}
