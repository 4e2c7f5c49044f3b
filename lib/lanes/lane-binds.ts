// The binds that peers may open streams to, as a lane finds them: a routing session names a client thread and a row there. It owns the
// way from one to the other; whether a bind may be claimed is the row's own answer, which it must never repeat or remember.

import type { IngressTable } from '../mux/ingress-table.js';
import type { ClaimedBind } from '../plane/rows.js';
import type { ClientLink } from './client-link.js';
import { identityRow, identityThread, routeNumber } from './commands.js';
import { IngressStream } from './ingress-stream.js';
import type { Liveness } from './liveness.js';
import type { NodePressure } from './node-pressure.js';

/** What is needed of the lane. */
export interface BindingLane {
  readonly lane: number;
  readonly links: readonly ClientLink[];
  readonly pressure: NodePressure;
  /** It failed, or was stopped. */
  readonly isOver: boolean;
}

export class LaneBinds {
  private readonly claimed: ClaimedBind = { row: 0, generation: 0, credit: 0, byteBudget: 0, heartbeatMs: 0 };

  constructor(
    private readonly lane: BindingLane,
    private readonly liveness: Liveness,
  ) {}

  /** A peer opens a slot to the bind. Undefined: it is not there, or not for this anchor, or another was first. */
  claim(
    peer: number,
    table: IngressTable,
    anchorHi: number,
    anchorLo: number,
    sessionHi: number,
    sessionLo: number,
  ): IngressStream | undefined {
    const { lane, claimed } = this;
    // The next lane may have begun: what still lies in the sockets of this one is nobody's.
    if (lane.isOver) return undefined;
    const link = lane.links[identityThread(sessionLo)];
    const row = identityRow(sessionLo);
    if (!link?.rows.receivers.claim(row, lane.lane, anchorHi, anchorLo, sessionHi, sessionLo, claimed))
      return undefined;
    const route = routeNumber(peer, table.lane);
    const { watch } = this.liveness;
    const { ingress } = lane.pressure;
    const stream = new IngressStream(link, table, claimed, sessionHi, sessionLo, route, watch, ingress);
    link.receivers[row] = stream;
    return stream;
  }

  /** Somebody may still open a slot to it. */
  isBound(sessionHi: number, sessionLo: number): boolean {
    const link = this.lane.links[identityThread(sessionLo)];
    return link?.rows.receivers.isBound(identityRow(sessionLo), sessionHi, sessionLo) ?? false;
  }
}
