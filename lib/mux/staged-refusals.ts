// Refusals of staged records whose stream is not open yet: they came before its OpenSlot. One (peer, lane) keeps its own, so no other
// peer can replace or block them. Owns which of them stand; it must never keep one for a session that nobody has bound, and never end a
// slot itself.

import { u64From } from '../wire/bytes.js';
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
    const session = u64From(name.sessionHi, name.sessionLo);
    const known = this.waiting.get(session);
    if (known === undefined && this.waiting.size >= MAX_WAITING_REFUSALS) return false;
    if (known === undefined) this.metrics.waitingRefusals += 1;
    if (known === undefined || !isOlder(name, known.name)) this.waiting.set(session, { name, text });
    return true;
  }

  /** The session was opened, as `id` in this epoch. Takes its refusal; the text, if it names just that slot. */
  claim(epochHi: number, epochLo: number, id: number, sessionHi: number, sessionLo: number): string | undefined {
    const session = u64From(sessionHi, sessionLo);
    const refusal = this.waiting.get(session);
    if (refusal === undefined) return undefined;
    this.forget(session);
    const { name, text } = refusal;
    return name.epochHi === epochHi && name.epochLo === epochLo && name.slot === id ? text : undefined;
  }

  /** Forgets those whose bind was released, expired, or was claimed elsewhere. */
  prune(isBound: (sessionHi: number, sessionLo: number) => boolean): void {
    for (const [session, { name }] of this.waiting) if (!isBound(name.sessionHi, name.sessionLo)) this.forget(session);
  }

  private forget(session: bigint): void {
    this.waiting.delete(session);
    this.metrics.waitingRefusals -= 1;
  }
}

/** The epoch of `a` is older than that of `b`. */
function isOlder(a: MuxSlotName, b: MuxSlotName): boolean {
  return a.epochHi < b.epochHi || (a.epochHi === b.epochHi && a.epochLo < b.epochLo);
}
