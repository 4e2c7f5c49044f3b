// Bytes that the lanes of a node hold for one peer, in shared memory: a word per (peer, lane), summed against the peer's one budget.
// Only a lane writes its own word, so what it holds can be forgotten when it dies. It must never know what is held, and never block.

import type { Memory } from './memory.js';

/** Rows of the table: peers that a node can know. */
export const PEER_ROWS = 4_096;
/** A word counts to 2^32, so that a lane at the bound may still add one try to it. */
const MAX_LIMIT = 0x7fff_ffff;

/** Words of a peer's row: a power of two, so that no row lies across two cache lines. */
export function heldRowWords(lanes: number): number {
  return 2 ** Math.ceil(Math.log2(lanes));
}

/** One lane's share of a peer's budget. A bound of more than 2 GiB counts as 2 GiB. */
export class HeldBytes {
  private readonly limit: number;

  constructor(
    protected readonly memory: Memory,
    /** First word of the peer's row. */
    protected readonly row: number,
    protected readonly lanes: number,
    protected readonly lane: number,
    limit: number,
  ) {
    this.limit = Math.min(limit, MAX_LIMIT);
  }

  /** Bytes that all lanes hold, and what they are just trying to. */
  get used(): number {
    let sum = 0;
    for (let lane = 0; lane < this.lanes; lane++) sum += this.memory.load(this.row + lane) >>> 0;
    return sum;
  }

  /**
   * Takes `bytes` when they fit. Added first and looked at then: of lanes that try at once, the last to add sees all the others, so they
   * never take more than the budget together. They may all be refused where one would have fitted.
   */
  tryReserve(bytes: number): boolean {
    if (bytes > this.limit) return false;
    this.memory.add(this.row + this.lane, bytes);
    if (this.fits()) return true;
    this.memory.add(this.row + this.lane, -bytes);
    return false;
  }

  /** Gives bytes back; never more than this lane holds. */
  release(bytes: number): void {
    const own = this.row + this.lane;
    this.memory.add(own, -Math.min(bytes, this.memory.load(own) >>> 0));
  }

  protected fits(): boolean {
    return this.used <= this.limit;
  }
}

/** A lane is dead: it holds nothing any more, for any peer. Its thread must have ended, and no other have taken its place. */
export function buryHeldBytes(memory: Memory, table: number, lanes: number, lane: number, rows = PEER_ROWS): void {
  const stride = heldRowWords(lanes);
  for (let row = 0; row < rows; row++) memory.store(table + row * stride + lane, 0);
}
