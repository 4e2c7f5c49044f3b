// Where lanes run: the seam between a node and its lane workers. A host starts the lanes, hands out the client's end of each
// conduit, says when a lane died, and takes everything down again.

import type { MuxConfig } from '../mux/mux-config.js';
import type { ClientConduit, PlaneSizes } from '../plane/conduit.js';
import type { ParcelReceiver, ParcelSender } from '../plane/parcels.js';
import type { StreamEnds } from './streams-end.js';

/** Bounds and times of staged payloads, see the options of a node. */
export interface RendezvousLimits {
  stagedBytesMax: number;
  stagedPayloadMax: number;
  maxPulls: number;
  pullBytesMax: number;
  leaseTtlMs: number;
  stagedTtlMs: number;
  callTimeoutMs: number;
}

/** What every lane of a node is told at its start. Structured-clonable. */
export interface LaneOptions {
  /** Number of this lane, 0 up. */
  lane: number;
  /** How many lanes have died under that number. What a lane mints for others to send back carries it. */
  life: number;
  /** The lane comes round so often at the least, in milliseconds. */
  beatMs: number;
  lanes: number;
  workerHi: number;
  workerLo: number;
  bindAddress: string;
  /** 0: any free port. */
  port: number;
  /** Unix socket of this lane, beside its port. */
  udsPath: string | undefined;
  mux: MuxConfig;
  sizes: PlaneSizes;
  maxInboundConnections: number;
  connectionQueueBytes: number;
  connectTimeoutMs: number;
  /** Bytes of user messages that may wait for a busy client thread, per lane. */
  messageQueueBytes: number;
  rendezvous: RendezvousLimits;
  /** Bytes that all lanes of the node keep in queues of their slots, half of them in each direction. */
  nodeBufferBytes: number;
  /** How long the lane looks again after the last record before it parks; 0: it parks at once. */
  lookAgainMs: number;
}

/** The shared memory a lane works on. */
export interface LaneMemory {
  node: SharedArrayBuffer;
  /** Rows of every client thread. */
  rows: SharedArrayBuffer[];
  /** Conduits of this lane, one per client thread. */
  conduits: SharedArrayBuffer[];
}

/** One running lane as the client thread sees it. */
export interface LaneLink {
  conduit: ClientConduit;
  parcelsOut: ParcelSender;
  parcelsIn: ParcelReceiver;
  /** Port of the lane's listener. */
  port: number;
  /** Set when the lane runs on the calling thread: gives it the function to call instead of ringing this client. */
  hookClient: ((wake: () => void) => void) | undefined;
}

export type LaneHostKind = 'piscina' | 'inline' | 'worker';

export interface LaneHost {
  readonly links: readonly LaneLink[];
  /** Called once per death, with the reason. Not called for lanes that `close` ended. */
  onLaneDeath: (lane: number, reason: string) => void;
  /**
   * A new lane takes the place of a dead one, on the same port and with a new conduit. It does not run yet: what is published into
   * the conduit before this returns is read before the first frame of a peer. If the lane does not come to run, it dies.
   */
  onLaneRestart: (lane: number, link: LaneLink) => void;
  /** The new lane listens. */
  onLaneRunning: (lane: number) => void;
  /** Ends a lane that cannot be trusted any more; its death follows, with this reason. */
  terminate(lane: number, reason: string): void;
  /**
   * Ends every lane: streams in order, connections once their queues are written, all of it by the deadline. A further call may move
   * the deadline closer. Resolves with the streams that had to be ended.
   */
  close(timeoutMs: number): Promise<StreamEnds>;
}

/** Waits for all of them, also when one fails; then rejects with the first failure. */
export async function allOrFirstError<T>(promises: readonly Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(promises);
  return await Promise.all(promises);
}
