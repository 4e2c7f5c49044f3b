// The end of a lane, in order: its streams, what is still to be written, its sockets. It keeps the deadlines of the close and must
// never decide how a stream ends.

import { Deadline } from './deadline.js';
import type { LaneMetrics } from './lane-metrics.js';
import type { LanePeers } from './lane-peers.js';
import type { LaneStaging } from './lane-staging.js';
import type { Listener } from './listener.js';
import { type EndingLane, type StreamEnds, StreamsEnd } from './streams-end.js';

/** What streams leave of the time of a close, so that what they ended with can still be written. At most half of it. */
const WRITE_GRACE_MS = 250;

/** What is needed of the lane. */
export interface LeavingLane extends EndingLane {
  readonly staging: LaneStaging;
  readonly laneMetrics: LaneMetrics;
  readonly peers: LanePeers;
  /** From here on every turn is a step of the end. False when the lane cannot run any more. */
  beginEnd(ending: StreamsEnd): boolean;
  /** No turn comes any more. */
  stop(): void;
}

export class LaneEnd {
  private ended: Promise<StreamEnds> | undefined;
  private readonly deadline = new Deadline();
  private readonly streamsDeadline = new Deadline();

  constructor(
    private readonly lane: LeavingLane,
    private readonly listeners: readonly Listener[],
  ) {}

  /** A further call may move the deadline closer. */
  run(timeoutMs: number): Promise<StreamEnds> {
    this.streamsDeadline.limit(Math.max(timeoutMs / 2, timeoutMs - WRITE_GRACE_MS));
    this.deadline.limit(timeoutMs);
    this.ended ??= this.letGo();
    return this.ended;
  }

  private async letGo(): Promise<StreamEnds> {
    const { lane } = this;
    const ending = new StreamsEnd(lane);
    // A lane that cannot end in order still lets go of everything.
    if (lane.beginEnd(ending)) await ending.run(this.streamsDeadline).catch(() => {});
    lane.stop();
    this.streamsDeadline.clear();
    const listeners = Promise.all(this.listeners.map((listener) => listener.close()));
    const peers = lane.peers.known();
    const { passed } = this.deadline;
    // What it gives back, and whom it tells, must be queued before the connections take no more.
    await Promise.race([lane.staging.close(), passed]);
    await Promise.race([Promise.all(peers.map((peer) => peer.closeConnections())), passed]);
    this.deadline.clear();
    for (const peer of peers) peer.destroyConnections();
    await listeners;
    lane.laneMetrics.publishAll();
    lane.laneMetrics.stop();
    return ending.ends;
  }
}
