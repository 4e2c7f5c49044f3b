// The peers that a lane knows, by the number they have between clients and lanes. It owns the list, which only grows: a peer stays
// known for as long as the node lives, and is as small as what it was used for. It must never dial one.

import type { IngressTable } from '../mux/ingress-table.js';
import type { NodeBlock } from '../plane/node-block.js';
import type { PeerRoute } from './commands.js';
import { type PeerLane, PeerLink } from './peer-link.js';

/** Who finds a peer by its worker id. */
export interface PeerFinder {
  addPeer(peer: PeerLink): void;
}

export class LanePeers {
  private readonly all: (PeerLink | undefined)[] = [];

  constructor(
    private readonly lane: PeerLane,
    private readonly node: NodeBlock,
    private readonly finder: PeerFinder,
  ) {}

  at(number: number): PeerLink | undefined {
    return this.all[number];
  }

  /** A client registered the peer, or heard of a newer address. */
  learn(number: number, route: PeerRoute): void {
    const known = this.all[number];
    if (known !== undefined) known.update(route);
    else {
      const budget = this.node.heldBytes(number, this.lane.lane, this.lane.config.peerByteBudget);
      const peer = new PeerLink(this.lane, number, route, budget);
      this.all[number] = peer;
      this.finder.addPeer(peer);
    }
  }

  known(): PeerLink[] {
    return this.all.filter((peer) => peer !== undefined);
  }

  *tables(): Iterable<IngressTable> {
    for (const peer of this.all) for (const table of peer?.tables ?? []) if (table !== undefined) yield table;
  }

  /** The periodic walk over everything that peers send. */
  sweep(): void {
    for (const peer of this.all) {
      if (peer === undefined) continue;
      for (const table of peer.tables) table?.sweep();
    }
  }
}
