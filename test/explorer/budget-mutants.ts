// Planted bugs around the budget that lanes share: what ships, with one method changed.

import { HeldBytes } from '../../lib/plane/held-bytes.js';
import type { Memory } from '../../lib/plane/memory.js';
import type { BudgetParts } from './budget-scenarios.js';

/** A try that was refused stays in the row. */
export class NoUndo extends HeldBytes {
  override tryReserve(bytes: number): boolean {
    this.memory.add(this.row + this.lane, bytes);
    return this.fits();
  }
}

/** Two lanes look at the same room and both take it. */
export class LookBeforeAdd extends HeldBytes {
  override tryReserve(bytes: number): boolean {
    this.memory.add(this.row + this.lane, bytes);
    const fits = this.fits();
    this.memory.add(this.row + this.lane, -bytes);
    if (fits) this.memory.add(this.row + this.lane, bytes);
    return fits;
  }
}

/** A lane looks at its own bytes only: the budget of one peer grows with the lanes. */
export class OwnBytesOnly extends HeldBytes {
  protected override fits(): boolean {
    return this.memory.load(this.row + this.lane) <= 10;
  }
}

/** Gives back whatever its caller says. */
export class TrustingRelease extends HeldBytes {
  override release(bytes: number): void {
    this.memory.add(this.row + this.lane, -bytes);
  }
}

/** The dead lane's bytes stay. */
export const forgetToBury: BudgetParts['bury'] = () => {};

/** The burial empties the peer's whole row. */
export const buryEverybody: BudgetParts['bury'] = (memory, table, lanes) => {
  for (let lane = 0; lane < lanes; lane++) memory.store(table + lane, 0);
};

/** The burial takes what the row says in all off the dead lane's word. */
export const burySum: BudgetParts['bury'] = (memory: Memory, table, lanes, lane) => {
  let sum = 0;
  for (let other = 0; other < lanes; other++) sum += memory.load(table + other);
  memory.add(table + lane, -sum);
};
