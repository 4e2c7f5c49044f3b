// The peers a node knows: who they are, how they are reached, and what they said about themselves. Lanes learn of a peer from
// here, in the same order on every ring, before anything is sent to it.

import { VeloError } from '../errors.js';
import type { PeerRoute } from '../lanes/commands.js';
import { isSocket, lanePath } from '../lanes/socket-file.js';
import { plainAddress } from '../lanes/socket-info.js';
import { PEER_ROWS } from '../plane/held-bytes.js';
import { decodeLanePorts, decodeTcpEndpoints, decodeUdsPath, type TcpEndpoint } from '../wire/address.js';
import { u64High, u64Low } from '../wire/bytes.js';
import { ADDRESS_KEY_LANES, ADDRESS_KEY_TCP, ADDRESS_KEY_UDS } from '../wire/names.js';
import { PeerInfo } from '../wire/peer-info.js';
import { chooseEndpoint } from './endpoint-choice.js';

/** Peers a node remembers: each has a row in the node block, by its number. */
const MAX_PEERS = PEER_ROWS;
const NO_TCP = { host: '', port: 0 };
/** Endpoints of a peer that are remembered as its hosts. */
const MAX_HOSTS = 64;

export interface Peer {
  /** Number of the peer between this thread and its lanes. */
  readonly number: number;
  info: PeerInfo;
  route: PeerRoute;
  /** Where its last hello came from. */
  helloFrom: string | undefined;
  /** The peer has registered us: it can send replies. */
  knowsUs: boolean;
  /** Handler names the peer serves, once it said so. */
  handlers: ReadonlySet<string> | undefined;
  /** A hello under way. */
  hello: Promise<void> | undefined;
}

/** How a caller names a peer: its PeerInfo, its instance id, or its worker id. */
export type PeerTarget = PeerInfo | string | bigint;

/** What a node can use to reach peers. */
export interface Reach {
  /** Our own TCP endpoints: peers in a subnet of one of them are near. */
  readonly local: readonly TcpEndpoint[];
  readonly numaNode: number | undefined;
  /** This node uses Unix sockets. */
  readonly uds: boolean;
}

/**
 * The way to a peer, chosen now: its Unix socket if we use them and see those of all its lanes in our file system, else the nearest
 * of its TCP endpoints.
 *
 * @throws VeloError `ERR_BAD_ADDRESS` when there is no endpoint we can use.
 */
function routeOf(info: PeerInfo, reach: Reach): PeerRoute {
  const entries = info.entries();
  const lanes = entries.get(ADDRESS_KEY_LANES);
  const lanePorts = lanes === undefined ? [] : decodeLanePorts(lanes);
  const udsPath = reach.uds ? visibleSocket(entries.get(ADDRESS_KEY_UDS), Math.max(1, lanePorts.length)) : undefined;
  const { host, port } = udsPath === undefined ? tcpEndpoint(info, entries.get(ADDRESS_KEY_TCP), reach) : NO_TCP;
  const { workerId, instanceId } = info;
  const hosts = hostsOf(entries.get(ADDRESS_KEY_TCP));
  const route = { workerHi: u64High(workerId), workerLo: u64Low(workerId), label: instanceId };
  return { ...route, host, port, lanePorts, udsPath, hosts };
}

/** The addresses that the peer advertises, each once. */
function hostsOf(entry: Uint8Array | undefined): string[] {
  if (entry === undefined) return [];
  try {
    return [
      ...new Set(
        decodeTcpEndpoints(entry)
          .slice(0, MAX_HOSTS)
          .map(({ host }) => plainAddress(host) ?? host),
      ),
    ];
  } catch {
    return []; // the peer is reached without it
  }
}

function tcpEndpoint(info: PeerInfo, entry: Uint8Array | undefined, reach: Reach): Pick<TcpEndpoint, 'host' | 'port'> {
  if (entry === undefined)
    throw new VeloError(
      'ERR_BAD_ADDRESS',
      `peer ${info.instanceId} has no "tcp" endpoint, and none else that we can use`,
    );
  const endpoint = chooseEndpoint(decodeTcpEndpoints(entry), reach.local, reach.numaNode);
  if (endpoint === undefined)
    throw new VeloError('ERR_BAD_ADDRESS', `peer ${info.instanceId} has no "tcp" endpoint with a host and a port`);
  return endpoint;
}

/** A peer whose sockets we do not see is on another machine, or behind another mount: that is no error. */
function visibleSocket(entry: Uint8Array | undefined, lanes: number): string | undefined {
  if (entry === undefined) return undefined;
  let path: string;
  try {
    path = decodeUdsPath(entry);
  } catch {
    return undefined;
  }
  for (let lane = 0; lane < lanes; lane++) if (!isSocket(lanePath(path, lane))) return undefined;
  return path;
}

export class PeerBook {
  private readonly byWorker = new Map<bigint, Peer>();
  private readonly byInstance = new Map<string, Peer>();

  constructor(
    private readonly self: PeerInfo,
    private readonly reach: Reach,
    /** Tells every lane, before the call returns. */
    private readonly announce: (peer: Peer) => void,
  ) {}

  get size(): number {
    return this.byWorker.size;
  }

  /** Peers that are reached over Unix sockets; the others are over TCP. */
  get onUnixSockets(): number {
    let count = 0;
    for (const { route } of this.byWorker.values()) if (route.udsPath !== undefined) count += 1;
    return count;
  }

  /**
   * How lanes would reach a peer, without registering it.
   *
   * @throws VeloError `ERR_BAD_ADDRESS` for an address without a usable endpoint, `ERR_INVALID_ARGUMENT` for this node itself.
   */
  routeOf(info: PeerInfo): PeerRoute {
    if (info.workerId === this.self.workerId)
      throw new VeloError('ERR_INVALID_ARGUMENT', `peer ${info.instanceId} is this node itself`);
    return routeOf(info, this.reach);
  }

  /**
   * Adds a peer, or renews its address. Nothing is sent. `helloFrom` is where its hello came from, if it said one.
   *
   * @throws VeloError `ERR_BAD_ADDRESS` for an address without a usable endpoint, `ERR_INVALID_ARGUMENT` for this node itself,
   * `ERR_LIMIT` above 4,096 peers.
   */
  register(info: PeerInfo, helloFrom?: string): Peer {
    const route = this.routeOf(info);
    const known = this.byWorker.get(info.workerId);
    if (known !== undefined) return this.renew(known, info, route, helloFrom);
    if (this.byWorker.size >= MAX_PEERS) throw new VeloError('ERR_LIMIT', `this node already knows ${MAX_PEERS} peers`);
    const peer: Peer = {
      number: this.byWorker.size,
      info,
      route: withHello(route, helloFrom),
      helloFrom,
      knowsUs: false,
      handlers: undefined,
      hello: undefined,
    };
    this.byWorker.set(info.workerId, peer);
    this.byInstance.set(info.instanceId, peer);
    this.announce(peer);
    return peer;
  }

  private renew(known: Peer, info: PeerInfo, route: PeerRoute, helloFrom: string | undefined): Peer {
    const moved = !sameRoute(known.route, route);
    const from = helloFrom ?? (moved ? undefined : known.helloFrom);
    const renewed = withHello(route, from);
    if (!moved && known.route.hosts.join() === renewed.hosts.join()) return known;
    // The same object: a hello under way ends for it.
    known.info = info;
    known.route = renewed;
    known.helloFrom = from;
    if (moved) {
      // Who listens there may never have heard of us.
      known.knowsUs = false;
      known.handlers = undefined;
    }
    this.announce(known);
    return known;
  }

  /** Every peer, in the order of their numbers. */
  all(): Iterable<Peer> {
    return this.byWorker.values();
  }

  worker(workerId: bigint): Peer | undefined {
    return this.byWorker.get(workerId);
  }

  /** A PeerInfo that is not registered yet is registered. @throws VeloError as `register` does. */
  find(target: PeerTarget): Peer | undefined {
    if (target instanceof PeerInfo) return this.byWorker.get(target.workerId) ?? this.register(target);
    return typeof target === 'bigint' ? this.byWorker.get(target) : this.byInstance.get(target);
  }

  /** As `find`. @throws VeloError `ERR_UNKNOWN_PEER`. */
  resolve(target: PeerTarget): Peer {
    const peer = this.find(target);
    if (peer === undefined) throw new VeloError('ERR_UNKNOWN_PEER', `peer ${target} is not registered`);
    return peer;
  }
}

function withHello(route: PeerRoute, from: string | undefined): PeerRoute {
  if (from === undefined || route.hosts.includes(from)) return route;
  return { ...route, hosts: [...route.hosts, from] };
}

function sameRoute(a: PeerRoute, b: PeerRoute): boolean {
  const same = a.host === b.host && a.port === b.port && a.udsPath === b.udsPath;
  return same && a.lanePorts.join() === b.lanePorts.join();
}
