// How the streams of a closing lane end: what was sent is written first, slots of the peers are retired last, and whatever the time
// does not suffice for is closed with a reason. It drives the machines through turns of the lane and touches no socket.

import { SLOT_CLOSED } from '../mux/egress-slot.js';
import type { PeerBatcher } from '../mux/peer-batcher.js';
import { SENDER_CLOSED } from '../plane/rows.js';
import { DROPPED_BYTES } from '../wire/frame.js';
import type { ClientLink } from './client-link.js';
import type { Deadline } from './deadline.js';
import type { LanePeers } from './lane-peers.js';
import type { LaneStaging } from './lane-staging.js';

/** Streams that the close of a node ended before they had ended themselves. */
export interface StreamEnds {
  /** Receivers whose sender had not finished. */
  anchors: number;
  /** Senders that were still open, and those whose last records could not be written in time. */
  senders: number;
}

export function sumOfEnds(all: readonly StreamEnds[]): StreamEnds {
  const sum = { anchors: 0, senders: 0 };
  for (const { anchors, senders } of all) {
    sum.anchors += anchors;
    sum.senders += senders;
  }
  return sum;
}

/** What is needed of the lane. */
export interface EndingLane {
  readonly links: readonly ClientLink[];
  readonly batchers: readonly PeerBatcher[];
  readonly peers: Pick<LanePeers, 'tables'>;
  readonly staging: Pick<LaneStaging, 'gone' | 'streamsEnded'>;
  endTurn(): void;
}

export class StreamsEnd {
  readonly ends: StreamEnds = { anchors: 0, senders: 0 };
  private waiting: { readonly holds: () => boolean; readonly resolve: () => void } | undefined;

  constructor(private readonly lane: EndingLane) {}

  async run(deadline: Deadline): Promise<void> {
    const { lane } = this;
    this.dropSenders();
    lane.endTurn();
    // Records that wait for credit belong to streams that have their end behind them now: grants of the peers release them.
    await this.until(() => lane.batchers.every((batcher) => batcher.liveSlots === 0), deadline);
    this.abandonSenders();
    for (const table of lane.peers.tables()) this.ends.anchors += table.shutdown();
    for (const batcher of lane.batchers) batcher.kick();
    lane.endTurn();
    await this.until(() => lane.batchers.every((batcher) => batcher.settled), deadline);
    for (const batcher of lane.batchers) batcher.shutdown();
    lane.staging.streamsEnded();
    lane.endTurn();
    // A record that is staged went as its handle: its receiver must still find it.
    await this.until(() => lane.staging.gone, deadline);
  }

  /** The lane ended a turn. */
  look(): void {
    const { waiting } = this;
    if (waiting === undefined || !waiting.holds()) return;
    this.waiting = undefined;
    waiting.resolve();
  }

  /** Senders that did not end their streams: dropped, behind everything they sent. */
  private dropSenders(): void {
    for (const link of this.lane.links) {
      link.drain();
      for (const stream of link.senders) {
        if (stream === undefined || !stream.batcher.terminal(stream.slot, DROPPED_BYTES)) continue;
        this.ends.senders += 1;
        stream.droppedByNode = true;
        link.flagSender(stream.row, stream.generation, SENDER_CLOSED);
      }
    }
  }

  private abandonSenders(): void {
    for (const link of this.lane.links) {
      for (const stream of link.senders) {
        if (stream === undefined || stream.slot.state === SLOT_CLOSED) continue;
        if (!stream.droppedByNode) this.ends.senders += 1;
        stream.batcher.abandon(stream.slot);
      }
    }
  }

  private async until(holds: () => boolean, deadline: Deadline): Promise<void> {
    if (holds()) return;
    const held = new Promise<void>((resolve) => {
      this.waiting = { holds, resolve };
    });
    await Promise.race([held, deadline.passed]);
    this.waiting = undefined;
  }
}
