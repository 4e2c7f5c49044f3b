// Byte budgets: a bound on what several holders keep together. Owns the arithmetic; it must never know what is kept. A
// budget shared by threads lives elsewhere behind the same ByteReservation contract.

import type { ByteReservation } from './ingress-types.js';

/** Reserved; no room now, but later; larger than the whole budget, so never. */
export type ReserveOutcome = 'reserved' | 'exhausted' | 'exceedsBudget';

/** A bound and what is used of it. */
export class ByteBudget implements ByteReservation {
  readonly limit: number;
  private usedBytes = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  get used(): number {
    return this.usedBytes;
  }

  reserve(bytes: number): ReserveOutcome {
    if (bytes > this.limit) return 'exceedsBudget';
    if (bytes > this.limit - this.usedBytes) return 'exhausted';
    this.usedBytes += bytes;
    return 'reserved';
  }

  tryReserve(bytes: number): boolean {
    return this.reserve(bytes) === 'reserved';
  }

  /** Gives bytes back; never below zero. */
  release(bytes: number): void {
    this.usedBytes = Math.max(0, this.usedBytes - bytes);
  }
}

/** Reserves in both or in neither. */
export function reserveBoth(slot: ByteReservation, peer: ByteReservation, bytes: number): boolean {
  if (!slot.tryReserve(bytes)) return false;
  if (peer.tryReserve(bytes)) return true;
  slot.release(bytes);
  return false;
}
