// Chance with a memory: every run of a fuzz test is a number, and the same number is the same run.

const MAX_U32 = 0xffff_ffff;
/** Replays one run of every fuzz test. */
export const SEED_VARIABLE = 'VELOMUX_FUZZ_SEED';

/** mulberry32. */
export class Random {
  private state: number;

  constructor(readonly seed: number) {
    this.state = seed >>> 0;
  }

  u32(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }

  u64(): bigint {
    return (BigInt(this.u32()) << 32n) | BigInt(this.u32());
  }

  /** 0 up to `n` − 1. */
  below(n: number): number {
    return Math.floor((this.u32() / (MAX_U32 + 1)) * n);
  }

  /** True once in `n`. */
  oneIn(n: number): boolean {
    return this.below(n) === 0;
  }

  pick<T>(from: readonly T[]): T {
    if (from.length === 0) throw new Error('nothing to pick from');
    return from[this.below(from.length)]!;
  }

  /** A key of `weights`, as often as its weight says. */
  weighted<K extends string>(weights: Readonly<Record<K, number>>): K {
    const entries = Object.entries(weights) as [K, number][];
    let at = this.below(entries.reduce((sum, [, weight]) => sum + weight, 0));
    for (const [key, weight] of entries) {
      at -= weight;
      if (at < 0) return key;
    }
    throw new Error('no weights');
  }

  bytes(length: number): Uint8Array {
    return Uint8Array.from({ length }, () => this.u32() & 0xff);
  }
}

/** The seeds of a test: its own, or the one to replay. */
export function seeds(own: readonly number[]): readonly number[] {
  const replay = process.env[SEED_VARIABLE];
  return replay === undefined ? own : [Number(replay)];
}

/** Runs of a machine or a node that a seed stands for. What it throws is a finding. */
export interface FuzzTarget {
  readonly name: string;
  run(seed: number): void | Promise<void>;
}
