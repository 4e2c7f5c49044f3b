// Starts the lanes of a node with what its options say. It must never keep anything of them.

import type { LaneHost, LaneOptions } from './lanes/host.js';
import { startInlineHost } from './lanes/inline-host.js';
import { lookInterval } from './lanes/silence-watch.js';
import { lanePath } from './lanes/socket-file.js';
import { startThreadHost } from './lanes/thread-hosts.js';
import type { ResolvedOptions } from './options.js';
import type { PlaneSizes } from './plane/conduit.js';
import { u64High, u64Low } from './wire/bytes.js';

/** The memory that a node shares with its lanes. */
export interface SharedPlane {
  readonly node: SharedArrayBuffer;
  readonly rows: SharedArrayBuffer;
  readonly sizes: PlaneSizes;
}

/** Rejects with the first lane's error (`ERR_LISTEN_FAILED`, `ERR_WORKER_FILE`); then none is left. */
export function startLanes(options: ResolvedOptions, workerId: bigint, shared: SharedPlane): Promise<LaneHost> {
  const lanes = Array.from({ length: options.lanes }, (_, lane) => laneOptions(options, workerId, shared.sizes, lane));
  if (options.host === 'inline') return startInlineHost(lanes, shared.node, shared.rows, options.maxLaneRestarts);
  return startThreadHost(options.host, lanes, shared.node, shared.rows, options.worker, options.maxLaneRestarts);
}

function laneOptions(options: ResolvedOptions, workerId: bigint, sizes: PlaneSizes, lane: number): LaneOptions {
  return {
    lane,
    life: 0,
    beatMs: options.laneSilenceMs === 0 ? Number.POSITIVE_INFINITY : lookInterval(options.laneSilenceMs),
    lanes: options.lanes,
    workerHi: u64High(workerId),
    workerLo: u64Low(workerId),
    bindAddress: options.bindAddress,
    port: lane === 0 ? options.port : 0,
    udsPath: options.udsPath === undefined ? undefined : lanePath(options.udsPath, lane),
    mux: options.mux,
    sizes,
    maxInboundConnections: options.maxInboundConnections,
    connectionQueueBytes: options.connectionQueueBytes,
    connectTimeoutMs: options.connectTimeoutMs,
    messageQueueBytes: options.messageQueueBytes,
    nodeBufferBytes: options.nodeBufferBytes,
    rendezvous: {
      stagedBytesMax: options.stagedBytesMax,
      stagedPayloadMax: options.stagedPayloadMax,
      maxPulls: options.maxPulls,
      pullBytesMax: options.pullBytesMax,
      leaseTtlMs: options.leaseTtlMs,
      stagedTtlMs: options.stagedTtlMs,
      callTimeoutMs: options.callTimeoutMs,
    },
    lookAgainMs: options.mux.flushPolicy.kind === 'auto' ? options.lookAgainMs : 0,
  };
}
