// What a node is made with: names, defaults, ranges. Owns validation; every refusal names the field.

import { availableParallelism } from 'node:os';
import type { Discovery } from './control/discovery.js';
import type { AcceptPeer } from './control/hello-gate.js';
import { unattachedTimeout } from './control/unattached-timer.js';
import { VeloError } from './errors.js';
import type { LaneHostKind } from './lanes/host.js';
import { DEFAULT_MAX_LANE_RESTARTS } from './lanes/restart-limit.js';
import { socketPathFault } from './lanes/socket-file.js';
import { DEFAULT_MAX_IN_FLIGHT_BYTES } from './messenger/handler-table.js';
import { MAX_HEARTBEAT_MS, MIN_HEARTBEAT_MS } from './mux/heartbeats.js';
import {
  type FlushPolicyOption,
  type MuxConfig,
  type MuxOptions,
  resolveMuxConfig,
  SINGLETON_OVERHEAD,
} from './mux/mux-config.js';
import { checkPlaneSizes, DEFAULT_RING_BYTES, MAX_ROWS } from './plane/conduit.js';
import { MAX_LANES } from './wire/names.js';
import { STAGING_THRESHOLD } from './wire/rendezvous-messages.js';
import { formatInstanceId, parseInstanceId } from './wire/worker-id.js';

export interface VeloOptions {
  /**
   * Where lanes run. `piscina` (default): a worker thread per lane, in a pool. `worker`: plain workers, for bundled applications.
   * `inline`: on the calling thread, without a hop; tokens leave when its event loop turns.
   */
  host?: LaneHostKind | undefined;
  /** Worker lanes, 1 to 16. Default 1. Each has its own listening port, its own connections and its own streams. */
  lanes?: number | undefined;
  /** Address to listen on. Default 127.0.0.1. */
  bindAddress?: string | undefined;
  /** Port of lane 0, which any peer can use. Default 0: a free one. Further lanes always take free ports. */
  port?: number | undefined;
  /**
   * Absolute path of a Unix socket to listen on beside TCP; lane `k` takes `<path>.<k>`. Its directory must exist. Default: none, and
   * then this node uses no Unix socket at all. With it, a peer whose socket is visible in our file system when it is registered is
   * reached over that socket, every other one over TCP. The files are removed at the close; who may connect is up to the directory.
   */
  udsPath?: string | undefined;
  /** NUMA node whose interfaces of a peer are preferred, where the peer tells them. Default: none. */
  numaNode?: number | undefined;
  /**
   * When batches are written. `auto` (default): at the end of each wake. `manual`: at `flushBatch()`. Or any of: `onAdmission` (as
   * `auto`; true unless said otherwise), `maxLingerMs` after the oldest record, `onComplete` when every live stream of the lane has a
   * record in the batch (but once per `maxLingerMs` at most), `atBytes` when the batch has reached that size.
   */
  flushPolicy?: FlushPolicyOption | undefined;
  /** Windows, budgets, sizes and times of the mux. */
  mux?: Omit<MuxOptions, 'flushPolicy'> | undefined;
  /**
   * How often senders prove that they live, in milliseconds, 10 at the least. A stream ends as dropped when its sender was silent for
   * three to four times as long. Default 5,000.
   */
  heartbeatIntervalMs?: number | undefined;
  /**
   * How long an anchor is kept while no sender is attached, in milliseconds: from its creation, and from each detach. Then it is
   * removed: its reader ends, and an attach finds nothing. Default: for ever.
   */
  unattachedTimeoutMs?: number | undefined;
  /**
   * How long the place of a sender that was let in is kept until its stream opens, in milliseconds. Then its reader gets
   * `ERR_SENDER_DROPPED`. Three heartbeat intervals end it before, where they are shorter. Default 180,000.
   */
  acceptWindowMs?: number | undefined;
  /** How long a call waits for its answer, in milliseconds. Default 30,000. */
  callTimeoutMs?: number | undefined;
  /** How long a dialed connection may take to stand, in milliseconds. Default 5,000. */
  connectTimeoutMs?: number | undefined;
  /** Capacity of each shared-memory ring: a power of two from 1 KiB to 64 MiB. Default 256 KiB. */
  ringBytes?: number | undefined;
  /** Senders, and receivers, that may be open at once on this node: 1 to 65,536. Default 16,384. */
  maxStreams?: number | undefined;
  /** Connections from peers that a lane holds at once, on its port and again on its Unix socket. Default 1,024. */
  maxInboundConnections?: number | undefined;
  /** Bytes that may be queued on one connection. Default 8 MiB. */
  connectionQueueBytes?: number | undefined;
  /** Bytes of messages that may wait for a client thread that is busy, per lane; more are refused. Default 16 MiB. */
  messageQueueBytes?: number | undefined;
  /** Payload bytes of requests that may be in handlers and in their queues at once; more are refused. Default 512 MiB. */
  requestBytes?: number | undefined;
  /**
   * Bytes that the lanes of this node keep in queues of their slots, over all streams. Half of it is for what senders have written and
   * no credit lets go: above it, a stream that withholds anything is pulled no further. The other half is for what arrived and waits
   * for a busy thread or for a record in front of it: above it, a stream gets credit again once it is read empty. Streams that keep
   * nothing go on. Default 256 MiB.
   */
  nodeBufferBytes?: number | undefined;
  /**
   * Who may say hello, and so be registered here: asked for every hello, also of a peer that is registered already. A peer that
   * is refused is told so on the socket it used, and stays unknown (or as it was known): it gets no answer and no stream. What it
   * sends to a handler is still delivered. Nothing proves who a peer says it is; the peers of one host, on loopback above all,
   * differ by nothing else. Default: all. Peers that this node registers itself need no hello.
   */
  acceptPeer?: AcceptPeer | undefined;
  /** Instance ids that may say hello; others are refused before `acceptPeer` is asked. Default: any. */
  allowPeers?: readonly string[] | undefined;
  /**
   * Bytes of payloads that this node keeps for others: staged messages, and registered data. As many again for records of streams that
   * are too large for their frame. Default 256 MiB.
   */
  stagedBytesMax?: number | undefined;
  /** Largest payload that this node pulls from a peer; a larger one is refused, unread. Default 64 MiB. */
  stagedPayloadMax?: number | undefined;
  /** Payloads of messages and streams that are pulled at a time, 1 to 1,024; half of them of one owner. Default 16. */
  maxPulls?: number | undefined;
  /**
   * Bytes of all such payloads being pulled, or pulled and not yet taken by the application; half of them of one owner, but for a single
   * payload that is larger. Default 256 MiB.
   */
  pullBytesMax?: number | undefined;
  /** A lease on data of this node that is not used for so many milliseconds holds it no longer. Default 60,000. */
  leaseTtlMs?: number | undefined;
  /** A staged message that nobody fetches for so many milliseconds is dropped. Default 120,000. */
  stagedTtlMs?: number | undefined;
  /**
   * Under `auto`: milliseconds that a lane looks again after the last record before it parks, 0 to 100. Waking a parked lane costs
   * its client a system call per wake (about 11 µs), a lane that looks costs a core. Default 0.5 with four cores or more, else 0: with
   * fewer, the looking lane takes the core that the other ends of its streams need.
   */
  lookAgainMs?: number | undefined;
  /**
   * A directory of nodes. This node enters itself and leaves at its close; a message, call or attach to a worker or instance that is
   * not registered, and whatever is done with data of one, asks it, in the time of that call. Answers never ask. Default: none.
   */
  discovery?: Discovery | undefined;
  /** Registers every peer that the directory tells of, as it comes. Default false: peers are registered when they are asked for. */
  registerDiscovered?: boolean | undefined;
  /**
   * How often, within a minute, a lane that died is replaced by a new one on the same port. Streams and calls that rode the dead one
   * have ended; everything else goes on. One death more and it stays dead: what would ride it fails with `ERR_LANE_DIED`. 0 to 1,000;
   * 0: a dead lane is never replaced. Default 4.
   */
  maxLaneRestarts?: number | undefined;
  /**
   * A lane's thread that does nothing at all for so many milliseconds is ended and replaced, as if it had died. 1,000 at the least;
   * 0: never, for who stops threads in a debugger. Time in which the main thread itself does not run is not counted. Default 30,000.
   */
  laneSilenceMs?: number | undefined;
  /** The lane's worker file, when it does not lie where the package put it (bundles). */
  worker?: URL | string | undefined;
}

export interface ResolvedOptions {
  host: LaneHostKind;
  lanes: number;
  bindAddress: string;
  port: number;
  udsPath: string | undefined;
  numaNode: number | undefined;
  mux: MuxConfig;
  heartbeatIntervalMs: number;
  unattachedTimeoutMs: number | undefined;
  acceptWindowMs: number;
  callTimeoutMs: number;
  connectTimeoutMs: number;
  ringBytes: number;
  maxStreams: number;
  maxInboundConnections: number;
  connectionQueueBytes: number;
  messageQueueBytes: number;
  requestBytes: number;
  nodeBufferBytes: number;
  acceptPeer: AcceptPeer | undefined;
  allowPeers: ReadonlySet<string> | undefined;
  stagedBytesMax: number;
  stagedPayloadMax: number;
  maxPulls: number;
  pullBytesMax: number;
  leaseTtlMs: number;
  stagedTtlMs: number;
  lookAgainMs: number;
  discovery: Discovery | undefined;
  registerDiscovered: boolean;
  maxLaneRestarts: number;
  laneSilenceMs: number;
  worker: URL | string | undefined;
}

const HOSTS: readonly LaneHostKind[] = ['piscina', 'inline', 'worker'];
const MIB = 1024 * 1024;
const MAX_PORT = 65_535;
const MAX_NUMA_NODE = 2 ** 31 - 1;
const MAX_TIME_MS = 2 ** 31 - 1;
const MAX_BYTES = 2 ** 31 - 1;
const ROW_GRAIN = 1024;
const DEFAULT_LOOK_AGAIN_MS = 0.5;
const MAX_LOOK_AGAIN_MS = 100;
/** A core each for a producer, its lane, a lane that receives, and its reader. */
const SPARE_CORES = 4;
const DEFAULT_LANE_SILENCE_MS = 30_000;
const MIN_LANE_SILENCE_MS = 1_000;
const DEFAULT_MAX_STREAMS = 16_384;
const DEFAULT_HEARTBEAT_MS = 5_000;
const DEFAULT_ACCEPT_WINDOW_MS = 180_000;
const MAX_PULLS = 1_024;
const DEFAULT_STAGED_BYTES = 256 * MIB;
/** No record of this size is staged, whatever goes before it in its frame. */
const MAX_INLINE_RECORD_BYTES = STAGING_THRESHOLD - 128;

const KNOWN: ReadonlySet<string> = new Set([
  'host',
  'lanes',
  'bindAddress',
  'port',
  'udsPath',
  'numaNode',
  'flushPolicy',
  'mux',
  'heartbeatIntervalMs',
  'unattachedTimeoutMs',
  'acceptWindowMs',
  'callTimeoutMs',
  'connectTimeoutMs',
  'ringBytes',
  'maxStreams',
  'maxInboundConnections',
  'connectionQueueBytes',
  'messageQueueBytes',
  'requestBytes',
  'nodeBufferBytes',
  'acceptPeer',
  'allowPeers',
  'stagedBytesMax',
  'stagedPayloadMax',
  'maxPulls',
  'pullBytesMax',
  'leaseTtlMs',
  'stagedTtlMs',
  'lookAgainMs',
  'discovery',
  'registerDiscovered',
  'maxLaneRestarts',
  'laneSilenceMs',
  'worker',
]);

const KNOWN_MUX: ReadonlySet<string> = new Set([
  'initialCredit',
  'slotByteBudget',
  'peerByteBudget',
  'maxBatchBytes',
  'creditSweepIntervalMs',
  'drainVisitFloorMs',
  'replyLingerMs',
  'batcherIdleTtlMs',
  'maxRecordBytes',
  'asyncOpenAck',
] satisfies (keyof MuxOptions)[]);

/** @throws VeloError `ERR_INVALID_ARGUMENT`; the message names the field. */
export function resolveOptions(options: VeloOptions): ResolvedOptions {
  checkFields('', options, KNOWN);
  checkFields('mux', options.mux ?? {}, KNOWN_MUX);
  const host = options.host ?? 'piscina';
  if (!HOSTS.includes(host)) throw invalid('host', host, `one of ${HOSTS.join(', ')}`);
  const bindAddress = options.bindAddress ?? '127.0.0.1';
  if (typeof bindAddress !== 'string' || bindAddress === '') throw invalid('bindAddress', bindAddress, 'an address');
  const lanes = integer('lanes', options.lanes, 1, 1, MAX_LANES);
  const resolved: ResolvedOptions = {
    host,
    bindAddress,
    lanes,
    udsPath: udsPath(options.udsPath, lanes),
    numaNode: options.numaNode === undefined ? undefined : integer('numaNode', options.numaNode, 0, 0, MAX_NUMA_NODE),
    port: integer('port', options.port, 0, 0, MAX_PORT),
    mux: muxConfig(options),
    heartbeatIntervalMs: heartbeatInterval(options.heartbeatIntervalMs, DEFAULT_HEARTBEAT_MS),
    unattachedTimeoutMs: unattachedTimeout(options.unattachedTimeoutMs),
    acceptWindowMs: integer('acceptWindowMs', options.acceptWindowMs, DEFAULT_ACCEPT_WINDOW_MS, 1, MAX_TIME_MS),
    callTimeoutMs: integer('callTimeoutMs', options.callTimeoutMs, 30_000, 1, MAX_TIME_MS),
    connectTimeoutMs: integer('connectTimeoutMs', options.connectTimeoutMs, 5_000, 1, MAX_TIME_MS),
    ringBytes: integer('ringBytes', options.ringBytes, DEFAULT_RING_BYTES, 1, MAX_BYTES),
    maxStreams: integer('maxStreams', options.maxStreams, DEFAULT_MAX_STREAMS, 1, MAX_ROWS),
    maxInboundConnections: integer('maxInboundConnections', options.maxInboundConnections, 1_024, 1, MAX_BYTES),
    connectionQueueBytes: integer('connectionQueueBytes', options.connectionQueueBytes, 8 * MIB, 1, MAX_BYTES),
    messageQueueBytes: integer('messageQueueBytes', options.messageQueueBytes, 16 * MIB, 0, MAX_BYTES),
    requestBytes: integer('requestBytes', options.requestBytes, DEFAULT_MAX_IN_FLIGHT_BYTES, 1, MAX_BYTES),
    nodeBufferBytes: integer('nodeBufferBytes', options.nodeBufferBytes, 256 * MIB, 1, MAX_BYTES),
    acceptPeer: acceptPeer(options.acceptPeer),
    allowPeers: allowPeers(options.allowPeers),
    stagedBytesMax: integer('stagedBytesMax', options.stagedBytesMax, DEFAULT_STAGED_BYTES, 0, MAX_BYTES),
    stagedPayloadMax: integer('stagedPayloadMax', options.stagedPayloadMax, 64 * MIB, 0, MAX_BYTES),
    maxPulls: integer('maxPulls', options.maxPulls, 16, 1, MAX_PULLS),
    pullBytesMax: integer('pullBytesMax', options.pullBytesMax, 256 * MIB, 1, MAX_BYTES),
    leaseTtlMs: integer('leaseTtlMs', options.leaseTtlMs, 60_000, 1, MAX_TIME_MS),
    stagedTtlMs: integer('stagedTtlMs', options.stagedTtlMs, 120_000, 1, MAX_TIME_MS),
    lookAgainMs: lookAgain(options.lookAgainMs),
    discovery: directory(options.discovery),
    registerDiscovered: options.registerDiscovered === true,
    maxLaneRestarts: integer('maxLaneRestarts', options.maxLaneRestarts, DEFAULT_MAX_LANE_RESTARTS, 0, 1_000),
    laneSilenceMs: laneSilence(options.laneSilenceMs),
    worker: options.worker,
  };
  if (resolved.registerDiscovered && typeof resolved.discovery?.watch !== 'function')
    throw invalid('registerDiscovered', true, 'false, without a discovery that can be watched');
  checkPlaneSizes({ ringBytes: resolved.ringBytes, rows: rowsFor(resolved.maxStreams) });
  return resolved;
}

/** A record that could never be staged is refused where it is sent. */
function muxConfig({ mux, flushPolicy, stagedBytesMax }: VeloOptions): MuxConfig {
  const config = resolveMuxConfig({ ...mux, flushPolicy });
  const staged = integer('stagedBytesMax', stagedBytesMax, DEFAULT_STAGED_BYTES, 0, MAX_BYTES) - SINGLETON_OVERHEAD;
  return { ...config, maxRecordBytes: Math.min(config.maxRecordBytes, Math.max(MAX_INLINE_RECORD_BYTES, staged)) };
}

/** An option that is misspelt must not be taken for its default. */
function checkFields(group: string, given: object, known: ReadonlySet<string>): void {
  if (typeof given !== 'object') throw invalid(group, given, 'an object');
  for (const field of Object.keys(given)) {
    if (known.has(field)) continue;
    throw new VeloError('ERR_INVALID_ARGUMENT', `there is no option "${group === '' ? field : `${group}.${field}`}"`);
  }
}

function directory(given: Discovery | undefined): Discovery | undefined {
  if (given === undefined) return undefined;
  if (typeof given?.register === 'function' && typeof given.resolve === 'function') return given;
  throw invalid('discovery', given, 'an object with register and resolve');
}

function udsPath(given: string | undefined, lanes: number): string | undefined {
  if (given === undefined) return undefined;
  const expected = socketPathFault(given, lanes);
  if (expected !== undefined) throw invalid('udsPath', given, expected);
  return given;
}

function laneSilence(given: number | undefined): number {
  if (given === 0) return 0;
  return integer('laneSilenceMs', given, DEFAULT_LANE_SILENCE_MS, MIN_LANE_SILENCE_MS, MAX_TIME_MS);
}

function acceptPeer(given: AcceptPeer | undefined): AcceptPeer | undefined {
  if (given !== undefined && typeof given !== 'function') throw invalid('acceptPeer', given, 'a function');
  return given;
}

function allowPeers(given: readonly string[] | undefined): ReadonlySet<string> | undefined {
  if (given === undefined) return undefined;
  if (!Array.isArray(given)) throw invalid('allowPeers', given, 'a list of instance ids');
  return new Set(given.map(instanceId));
}

function instanceId(given: unknown): string {
  try {
    return formatInstanceId(parseInstanceId(given as string));
  } catch {
    throw invalid('allowPeers', given, 'a list of instance ids');
  }
}

function lookAgain(given: number | undefined): number {
  const value = given ?? (availableParallelism() >= SPARE_CORES ? DEFAULT_LOOK_AGAIN_MS : 0);
  if (typeof value !== 'number' || !(value >= 0) || value > MAX_LOOK_AGAIN_MS)
    throw invalid('lookAgainMs', value, `milliseconds from 0 to ${MAX_LOOK_AGAIN_MS}`);
  return value;
}

/** A heartbeat interval, of a node or of one anchor. */
export function heartbeatInterval(given: number | undefined, fallback: number): number {
  return integer('heartbeatIntervalMs', given, fallback, MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS);
}

/** Rows to lay out for a number of streams. */
export function rowsFor(maxStreams: number): number {
  return Math.ceil(maxStreams / ROW_GRAIN) * ROW_GRAIN;
}

function integer(field: string, given: number | undefined, fallback: number, low: number, high: number): number {
  const value = given ?? fallback;
  if (!Number.isInteger(value) || value < low || value > high)
    throw invalid(field, value, `an integer from ${low} to ${high}`);
  return value;
}

function invalid(field: string, value: unknown, expected: string): VeloError {
  return new VeloError('ERR_INVALID_ARGUMENT', `${field} = ${String(value)}: expected ${expected}`);
}
