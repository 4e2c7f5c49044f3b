// A node of a simulation: a real `Velo` in a simulated process, the promises its application waits for, and whether somebody has
// begun to take it down.

import type { Velo, VeloOptions } from '../../lib/index.js';
import type { Process } from './world/schedule.js';

export class SimNode {
  velo!: Velo;
  /** A drain or close was begun: what peers ask of it may be refused. */
  leaving = false;
  closed = false;
  /** Its peers have its address, and it has theirs. */
  known = false;
  /** What the application waits for, by what it called. */
  private readonly waits = new Map<number, string>();
  private waitCount = 0;

  constructor(
    readonly process: Process,
    readonly options: VeloOptions,
  ) {}

  get number(): number {
    return this.process.number;
  }

  get alive(): boolean {
    return !this.process.dead && !this.closed;
  }

  /** Remembers a call until it is settled. */
  async wait<T>(what: string, promise: Promise<T>): Promise<T> {
    const id = this.waitCount++;
    this.waits.set(id, what);
    try {
      return await promise;
    } finally {
      this.waits.delete(id);
    }
  }

  get waiting(): readonly string[] {
    return [...this.waits.values()];
  }
}
