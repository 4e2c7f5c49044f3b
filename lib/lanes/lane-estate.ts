// What peers must be told of when a lane dies: which mux lanes its epochs were on, and which of their slots are over. Kept per lane number,
// over all lanes that ever had it. It must never tell anybody anything.

import { RecentCancels } from '../mux/recent-cancels.js';
import type { ClientRows } from '../plane/conduit.js';

/** A slot of a peer that a dead lane had open, or had just closed for its consumer. */
export type OrphanSlot = NonNullable<ReturnType<ClientRows['receivers']['slotOf']>>;

export class LaneEstate {
  /** The peers' mux lanes that slots were opened on by those that died, by route number. Void once a lane runs in their place. */
  readonly routes = new Set<number>();
  /** Slots of peers that those had. Void at the same time. */
  readonly orphans: OrphanSlot[] = [];
  /** Where the lane that lives has opened slots. */
  private readonly opened = new Set<number>();
  /** Whose cancel a lane may take with it when it dies, though it has taken it from here. */
  private readonly recent = new RecentCancels<OrphanSlot>();

  opens(route: number): void {
    this.opened.add(route);
  }

  /** The lane was done with a slot that its consumer, or the watchdog, had ended. */
  cancelled(slot: OrphanSlot, now: number): void {
    this.recent.note(slot, now);
  }

  died(open: readonly OrphanSlot[], now: number): void {
    for (const route of this.opened) this.routes.add(route);
    this.opened.clear();
    this.orphans.push(...open, ...this.recent.take(now));
  }

  /** A lane runs that has read all this. It may die before it has told anybody. */
  taken(now: number): void {
    for (const slot of this.orphans) this.recent.note(slot, now);
    this.orphans.length = 0;
    this.routes.clear();
  }
}
