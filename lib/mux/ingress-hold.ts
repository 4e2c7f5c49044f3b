// Records of one slot that arrived ahead of their turn. Owns their bytes and both byte charges (slot and peer); it must
// never deliver anything. Rare by construction: batches of a lane keep their order, only a record that travelled beside
// them leaves a gap.

import { copyBytes } from '../wire/bytes.js';
import { ByteBudget, reserveBoth } from './byte-budget.js';
import type { ByteMeter } from './byte-meter.js';
import type { ByteReservation } from './ingress-types.js';

export class IngressHold {
  private readonly records = new Map<number, Uint8Array>();
  private readonly slotBudget: ByteBudget;
  private readonly peerBudget: ByteReservation;

  constructor(
    slotByteBudget: number,
    peerBudget: ByteReservation,
    private readonly meter: ByteMeter,
  ) {
    this.slotBudget = new ByteBudget(slotByteBudget);
    this.peerBudget = peerBudget;
  }

  /** Records that wait. */
  get size(): number {
    return this.records.size;
  }

  /** Bytes of those. */
  get bytes(): number {
    return this.slotBudget.used;
  }

  has(frameSeq: number): boolean {
    return this.records.has(frameSeq);
  }

  /** Keeps a copy. False when one of the budgets has no room; then nothing changed. */
  add(frameSeq: number, src: Uint8Array, off: number, len: number): boolean {
    if (!reserveBoth(this.slotBudget, this.peerBudget, len)) return false;
    this.meter.bytes += len;
    // Not `slice`: of a Buffer, which is what sockets give, that is a view, and would pin the whole chunk uncounted.
    const bytes = new Uint8Array(len);
    copyBytes(bytes, 0, src, off, len);
    this.records.set(frameSeq, bytes);
    return true;
  }

  /** Removes and returns the record of `frameSeq`; its bytes are no longer charged. */
  take(frameSeq: number): Uint8Array | undefined {
    const bytes = this.records.get(frameSeq);
    if (bytes === undefined) return undefined;
    this.records.delete(frameSeq);
    this.meter.bytes -= bytes.length;
    this.slotBudget.release(bytes.length);
    this.peerBudget.release(bytes.length);
    return bytes;
  }

  /** Drops everything and gives the charges back. */
  clear(): void {
    this.meter.bytes -= this.slotBudget.used;
    this.peerBudget.release(this.slotBudget.used);
    this.slotBudget.release(this.slotBudget.used);
    this.records.clear();
  }
}
