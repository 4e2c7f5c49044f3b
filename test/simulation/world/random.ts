// Random numbers of one run, all from one seed. It must never read a clock or any other source: the same seed gives the same
// numbers on every machine.

/** A small fast counter-based generator (sfc32), seeded by one number. */
export class Random {
  private a: number;
  private b: number;
  private c: number;
  private counter = 1;

  constructor(seed: number) {
    this.a = seed >>> 0;
    this.b = Math.floor(seed / 2 ** 32) >>> 0;
    this.c = 0x9e37_79b9;
    for (let i = 0; i < 16; i++) this.u32();
  }

  u32(): number {
    const sum = (this.a + this.b + this.counter) >>> 0;
    this.counter = (this.counter + 1) >>> 0;
    this.a = (this.b ^ (this.b >>> 9)) >>> 0;
    this.b = (this.c + (this.c << 3)) >>> 0;
    this.c = (((this.c << 21) | (this.c >>> 11)) + sum) >>> 0;
    return sum;
  }

  /** At least 0, below 1. */
  real(): number {
    return this.u32() / 2 ** 32;
  }

  /** An integer from `low` to `high`, both included. */
  between(low: number, high: number): number {
    return low + Math.floor(this.real() * (high - low + 1));
  }

  /** A number from `low` up to `high`. */
  within(low: number, high: number): number {
    return low + this.real() * (high - low);
  }

  chance(probability: number): boolean {
    return this.real() < probability;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[Math.floor(this.real() * choices.length)] as T;
  }

  /** One of the keys, as often as its weight says. */
  weighted<K extends string>(weights: Readonly<Record<K, number>>): K {
    const entries = Object.entries(weights) as [K, number][];
    let left = this.real() * entries.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [key, weight] of entries) {
      left -= weight;
      if (left < 0) return key;
    }
    return entries[entries.length - 1]![0];
  }

  fill(bytes: Uint8Array): Uint8Array {
    for (let i = 0; i < bytes.length; i++) bytes[i] = this.u32() & 0xff;
    return bytes;
  }
}
