// What the network does to the traffic between two processes, and what it has done: the reasons why a stream between them may end
// uncleanly. Owns the weather of one direction; it must never touch a byte.

import type { Process } from './schedule.js';

/** Chances and times of one direction of traffic. */
export interface Weather {
  /** Base latency and the most that is added to it, in milliseconds. */
  latencyMs: number;
  jitterMs: number;
  /** Chance that a chunk is cut somewhere instead of read whole. */
  split: number;
  /** Chance that a write is not taken at once, and the most it waits, in milliseconds. */
  slowWrite: number;
  slowWriteMs: number;
  /** Chances for one whole `_stream_batch` frame. */
  lose: number;
  duplicate: number;
  swap: number;
  /** Holds are large enough for what overtakes: a swap is no excuse for anything. */
  swapsAreFine: boolean;
  /** Chances that a connect is refused, or never answered. */
  refuse: number;
  ignore: number;
}

export const FAIR: Weather = {
  latencyMs: 0.1,
  jitterMs: 0.4,
  split: 0.2,
  slowWrite: 0.1,
  slowWriteMs: 2,
  lose: 0,
  duplicate: 0,
  swap: 0,
  swapsAreFine: false,
  refuse: 0,
  ignore: 0,
};

export class Link {
  /** Nothing that is written is taken until then. */
  stalledUntil = 0;

  constructor(
    readonly from: Process,
    readonly to: Process,
    readonly weather: Weather,
  ) {}
}

/** What befell pairs of processes, by pair: the first thing of each kind. */
export class Incidents {
  private readonly byPair = new Map<string, Set<string>>();

  note(a: Process, b: Process, what: string): void {
    const key = pairKey(a, b);
    const known = this.byPair.get(key);
    if (known === undefined) this.byPair.set(key, new Set([what]));
    else known.add(what);
  }

  between(a: Process, b: Process): readonly string[] {
    return [...(this.byPair.get(pairKey(a, b)) ?? [])];
  }

  get any(): boolean {
    return this.byPair.size > 0;
  }
}

function pairKey(a: Process, b: Process): string {
  return a.number < b.number ? `${a.number}-${b.number}` : `${b.number}-${a.number}`;
}
