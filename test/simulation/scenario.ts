// What a seed makes of a run: how many nodes with which options, what weather, which incidents, which streams. Plain data, drawn from
// the seed; it must never run anything.

import type { VeloOptions } from '../../lib/index.js';
import { FAIR, type Weather } from './world/link.js';
import type { Random } from './world/random.js';

/**
 * `calm`: delays, splits, slow writes and short freezes only, so every stream must end as its ends decided. `reorder`: batches overtake
 * each other besides, which the holds make good. `lossy`: whole batches are
 * lost, repeated, swapped. `cuts`: connections break, are refused, stall. `chaos`: all of it, and processes die, restart, leave.
 */
export type Mood = 'calm' | 'reorder' | 'lossy' | 'cuts' | 'chaos';

export type Disturbance = 'freeze' | 'stall' | 'cut' | 'kill' | 'restart' | 'close' | 'drain' | 'flush' | 'lane';

export interface Incident {
  readonly at: number;
  readonly what: Disturbance;
  readonly ms: number;
}

export type ReadMode = 'items' | 'batches' | 'frames';
export type SendMode = 'await' | 'burst' | 'ready';
export type EndMode = 'finalize' | 'close' | 'detach' | 'forget';

export interface StreamPlan {
  readonly at: number;
  readonly key: bigint | undefined;
  readonly items: number;
  readonly size: 'token' | 'mixed' | 'large' | 'huge';
  readonly send: SendMode;
  readonly burst: number;
  /** Time between bursts, in milliseconds; 0: none. */
  readonly gapMs: number;
  readonly end: EndMode;
  /** Senders one after the other; all but the last detach. */
  readonly senders: number;
  readonly softErrors: boolean;
  readonly read: ReadMode;
  /** Time a reader takes for an item, in milliseconds. */
  readonly readMs: number;
  /** The reader begins only when the rest is over. */
  readonly absent: boolean;
  /** The reader leaves after so many items; -1: it stays. */
  readonly breakAfter: number;
  /** When the reader cancels, asks to stop, or aborts one wait, after the stream's start; -1: never. */
  readonly cancelAt: number;
  readonly stopAt: number;
  readonly abortAt: number;
  /** How long its anchor waits for a sender, in milliseconds; -1: for ever. */
  readonly unattachedMs: number;
}

/** A call beside the streams. */
export interface MessagePlan {
  readonly at: number;
  readonly bytes: number;
}

/** One of those that use an index again and again. */
export const SHORT_STREAM: StreamPlan = {
  at: 0,
  key: 3n,
  items: 2,
  size: 'token',
  send: 'await',
  burst: 2,
  gapMs: 0,
  end: 'finalize',
  senders: 1,
  softErrors: false,
  read: 'items',
  readMs: 0,
  absent: false,
  breakAfter: -1,
  cancelAt: -1,
  stopAt: -1,
  abortAt: -1,
  unattachedMs: -1,
};

export interface Scenario {
  readonly mood: Mood;
  readonly nodes: readonly VeloOptions[];
  readonly heartbeatMs: number;
  /** When the last incident and the last new stream come, in milliseconds. */
  readonly activeMs: number;
  readonly weather: Weather;
  /** The network may be slower than what is sent. */
  readonly saturated: boolean;
  readonly incidents: readonly Incident[];
  readonly streams: readonly StreamPlan[];
  /** Streams one after the other between two nodes, each on the slot index of the last. */
  readonly reuses: number;
  readonly messages: readonly MessagePlan[];
}

const MIB = 1024 * 1024;
const MOODS = { calm: 4, reorder: 2, lossy: 2, cuts: 2, chaos: 3 };
const NODE_COUNTS = { '2': 6, '3': 4, '4': 2, '6': 1, '8': 1 };

/** Nothing in it may end a stream. */
export function isQuiet(mood: Mood): boolean {
  return mood === 'calm' || mood === 'reorder';
}

export function draw(random: Random): Scenario {
  const mood = random.weighted(MOODS);
  const heartbeatMs = random.pick([200, 400, 1_000]);
  const activeMs = random.between(300, 2_000);
  const count = Number(random.weighted(NODE_COUNTS));
  const nodes = Array.from({ length: count }, () => nodeOptions(random, mood, heartbeatMs));
  const crowd = random.chance(0.15) ? random.between(100, 250) : random.between(3, 40);
  const many = crowd >= 100;
  const sky = weather(random, mood);
  return {
    mood,
    nodes,
    heartbeatMs,
    activeMs,
    weather: sky,
    saturated: sky.slowWrite * sky.slowWriteMs > 1,
    incidents: incidents(random, mood, activeMs, heartbeatMs),
    streams: Array.from({ length: crowd }, () => streamPlan(random, activeMs, many)),
    reuses: random.chance(0.08) ? 300 : 0,
    messages: [],
  };
}

function nodeOptions(random: Random, mood: Mood, heartbeatMs: number): VeloOptions {
  const policy = random.weighted({ auto: 4, manual: 2, linger: 2 });
  return {
    lanes: random.weighted({ '1': 4, '2': 3, '3': 1 }) === '1' ? 1 : random.between(2, 3),
    flushPolicy:
      policy === 'linger'
        ? { onAdmission: false, maxLingerMs: random.pick([0, 1, 5, 20]) }
        : (policy as 'auto' | 'manual'),
    heartbeatIntervalMs: heartbeatMs,
    callTimeoutMs: 5_000,
    connectTimeoutMs: 1_000,
    ringBytes: random.pick([1_024, 4_096, 65_536]),
    connectionQueueBytes: random.pick([1_000, 1_000, 20_000, 8 * MIB]),
    nodeBufferBytes: random.pick([20_000, 256 * MIB, 256 * MIB]),
    mux: {
      initialCredit: random.pick([1, 2, 3, 8, 32, 256]),
      slotByteBudget: mood === 'reorder' ? 4 * MIB : random.pick([0, 100, 5_000, 100_000]),
      peerByteBudget: mood === 'reorder' ? 64 * MIB : random.pick([2_000, 50_000, 8 * MIB]),
      maxBatchBytes: random.pick([100, 2_000, 61_440]),
      creditSweepIntervalMs: random.pick([100, 200]),
      drainVisitFloorMs: random.pick([0, 2, 10]),
      replyLingerMs: random.pick([0, 1, 4]),
    },
  };
}

const SLOW = [
  { slowWrite: 0, slowWriteMs: 0 },
  { slowWrite: 0.1, slowWriteMs: 3 },
  { slowWrite: 0.6, slowWriteMs: 0.6 },
];
const SATURATED = { slowWrite: 0.6, slowWriteMs: 20 };

function weather(random: Random, mood: Mood): Weather {
  const made: Weather = {
    ...FAIR,
    latencyMs: random.pick([0.05, 0.5, 3]),
    jitterMs: random.pick([0.1, 1, 8]),
    split: random.pick([0, 0.2, 0.7]),
  };
  // A network so slow that heartbeats come too late ends streams: saturation is what they are there to detect.
  const slow = random.pick(isQuiet(mood) ? SLOW : [...SLOW, SATURATED, SATURATED]);
  Object.assign(made, slow);
  if (mood === 'reorder') Object.assign(made, { swap: random.pick([0.05, 0.3]), swapsAreFine: true });
  if (mood === 'lossy' || mood === 'chaos') {
    made.lose = random.pick([0, 0.005, 0.05]);
    made.duplicate = random.pick([0, 0.01, 0.05]);
    made.swap = random.pick([0, 0.01, 0.1]);
  }
  if (mood === 'cuts' || mood === 'chaos') {
    made.refuse = random.pick([0, 0.1, 0.3]);
    made.ignore = random.pick([0, 0, 0.1]);
  }
  return made;
}

const DISTURBANCES: Readonly<Record<Mood, Readonly<Partial<Record<Disturbance, number>>>>> = {
  calm: { freeze: 2, stall: 2, flush: 2 },
  reorder: { freeze: 2, stall: 2, flush: 2 },
  lossy: { freeze: 1, stall: 1, flush: 2 },
  cuts: { cut: 5, freeze: 1, stall: 2, flush: 1 },
  chaos: { cut: 16, freeze: 4, stall: 4, flush: 3, kill: 1, restart: 3, close: 1, drain: 1 },
};

function incidents(random: Random, mood: Mood, activeMs: number, heartbeatMs: number): Incident[] {
  const made: Incident[] = [];
  const most = mood === 'cuts' || mood === 'chaos' ? 24 : 8;
  for (let i = random.between(0, most); i > 0; i--) {
    const what = random.weighted(DISTURBANCES[mood] as Record<Disturbance, number>);
    // A calm world is never silent for as long as would end a stream.
    const longest = isQuiet(mood) ? heartbeatMs * 0.5 : heartbeatMs * random.pick([0.5, 1, 6]);
    made.push({ at: random.within(20, activeMs), what, ms: random.within(1, longest) });
  }
  return made;
}

function streamPlan(random: Random, activeMs: number, many: boolean): StreamPlan {
  const size = random.weighted({ token: 12, mixed: 5, large: many ? 0 : 2, huge: many ? 0 : 1 });
  const most = size === 'huge' ? 4 : size === 'large' ? 12 : many ? 15 : 80;
  const senders = random.chance(0.15) ? random.between(2, 3) : 1;
  const rarely = (probability: number, low: number, high: number) =>
    random.chance(probability) ? random.between(low, high) : -1;
  return {
    at: random.within(0, activeMs),
    key: random.chance(0.3) ? BigInt(random.between(0, 7)) : undefined,
    items: random.between(0, most),
    size,
    send: random.pick(['await', 'burst', 'ready'] as const),
    burst: random.between(1, 24),
    gapMs: random.pick([0, 1, 7, 30]),
    end: random.weighted({ finalize: 12, close: 2, detach: 1, forget: 1 }),
    senders,
    softErrors: random.chance(0.1),
    read: random.pick(['items', 'batches', 'frames'] as const),
    readMs: random.pick([0, 0, 0, 1, 15]),
    absent: random.chance(0.06),
    breakAfter: rarely(0.1, 0, 10),
    cancelAt: rarely(0.08, 0, 400),
    stopAt: rarely(0.06, 0, 300),
    abortAt: rarely(0.06, 1, 300),
    unattachedMs: -1,
  };
}
