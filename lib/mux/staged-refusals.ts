// Refusals of staged records whose stream is not open yet: they came before its OpenSlot. One (peer, lane) keeps its own, so no other
// peer can replace or block them. Owns which of them stand; it must never keep one for a session that nobody has bound, and never end a
// slot itself.

import type { MuxSlotName } from '../wire/mux-slot.js';
import type { MuxMetrics } from './mux-metrics.js';

/** Refusals of one (peer, lane) that may wait for their OpenSlot; one more is not kept. */
export const MAX_WAITING_REFUSALS = 256;

interface Refusal {
  readonly name: MuxSlotName;
  readonly text: string;
}

export class StagedRefusals {
  /** By session. */
  private readonly waiting = new Map<bigint, Refusal>();

  constructor(private readonly metrics: MuxMetrics) {}

  get size(): number {
    return this.waiting.size;
  }

  /**
   * Keeps the refusal until a slot is opened with its session. A session is opened once, so one of an older epoch never replaces a
   * newer one. False: too many wait.
   */
  keep(name: MuxSlotName, text: string): boolean {
    const known = this.waiting.get(name.session);
    if (known === undefined && this.waiting.size >= MAX_WAITING_REFUSALS) return false;
    if (known === undefined) this.metrics.waitingRefusals += 1;
    if (known === undefined || name.epoch >= known.name.epoch) this.waiting.set(name.session, { name, text });
    return true;
  }

  /** The session was opened, as slot `id` of this epoch. Takes its refusal; the text, if it names just that slot. */
  claim(epoch: bigint, id: number, session: bigint): string | undefined {
    const refusal = this.waiting.get(session);
    if (refusal === undefined) return undefined;
    this.forget(session);
    return refusal.name.epoch === epoch && refusal.name.slot === id ? refusal.text : undefined;
  }

  /** Forgets those whose bind was released, expired, or was claimed elsewhere. */
  prune(isBound: (session: bigint) => boolean): void {
    for (const session of this.waiting.keys()) if (!isBound(session)) this.forget(session);
  }

  private forget(session: bigint): void {
    this.waiting.delete(session);
    this.metrics.waitingRefusals -= 1;
  }
}
