// The peers a node knows: who they are, how they are reached, and what they said about themselves. Lanes learn of a peer from
// here, in the same order on every ring, before anything is sent to it.

import { VeloError } from '../errors.js';
import type { PeerRoute } from '../lanes/commands.js';
import { isLoopback, plainAddress } from '../lanes/socket-info.js';
import { decodeLanePorts, decodeTcpEndpoints, type TcpEndpoint } from '../wire/address.js';
import { u64High, u64Low } from '../wire/bytes.js';
import { ADDRESS_KEY_LANES, ADDRESS_KEY_TCP } from '../wire/names.js';
import { PeerInfo } from '../wire/peer-info.js';

/** Peers a node remembers. */
const MAX_PEERS = 4096;
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

/**
 * Picks the endpoint to dial: one that is not loopback, unless the node only has loopback. An endpoint that nobody can dial must
 * not come as far as a lane.
 */
function chooseEndpoint(endpoints: readonly TcpEndpoint[]): TcpEndpoint | undefined {
  const usable = endpoints.filter(({ host, port }) => host !== '' && port !== 0);
  return usable.find((endpoint) => !isLoopback(endpoint.host)) ?? usable[0];
}

/** @throws VeloError `ERR_BAD_ADDRESS` when the peer has no TCP endpoint we can read. */
function routeOf(info: PeerInfo): PeerRoute {
  const entries = info.entries();
  const tcp = entries.get(ADDRESS_KEY_TCP);
  if (tcp === undefined) throw new VeloError('ERR_BAD_ADDRESS', `peer ${info.instanceId} has no "tcp" endpoint`);
  const endpoints = decodeTcpEndpoints(tcp);
  const endpoint = chooseEndpoint(endpoints);
  if (endpoint === undefined)
    throw new VeloError('ERR_BAD_ADDRESS', `peer ${info.instanceId} has no "tcp" endpoint with a host and a port`);
  const lanes = entries.get(ADDRESS_KEY_LANES);
  return {
    workerHi: u64High(info.workerId),
    workerLo: u64Low(info.workerId),
    label: info.instanceId,
    host: endpoint.host,
    port: endpoint.port,
    lanePorts: lanes === undefined ? [] : decodeLanePorts(lanes),
    hosts: [...new Set(endpoints.slice(0, MAX_HOSTS).map(({ host }) => plainAddress(host) ?? host))],
  };
}

export class PeerBook {
  private readonly byWorker = new Map<bigint, Peer>();
  private readonly byInstance = new Map<string, Peer>();

  constructor(
    private readonly self: PeerInfo,
    /** Tells every lane, before the call returns. */
    private readonly announce: (peer: Peer) => void,
  ) {}

  get size(): number {
    return this.byWorker.size;
  }

  /**
   * How lanes would reach a peer, without registering it.
   *
   * @throws VeloError `ERR_BAD_ADDRESS` for an address without a usable endpoint, `ERR_INVALID_ARGUMENT` for this node itself.
   */
  routeOf(info: PeerInfo): PeerRoute {
    if (info.workerId === this.self.workerId)
      throw new VeloError('ERR_INVALID_ARGUMENT', `peer ${info.instanceId} is this node itself`);
    return routeOf(info);
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

  worker(workerId: bigint): Peer | undefined {
    return this.byWorker.get(workerId);
  }

  /** @throws VeloError `ERR_UNKNOWN_PEER`. A PeerInfo that is not registered yet is registered. */
  resolve(target: PeerTarget): Peer {
    if (target instanceof PeerInfo) return this.byWorker.get(target.workerId) ?? this.register(target);
    const peer = typeof target === 'bigint' ? this.byWorker.get(target) : this.byInstance.get(target);
    if (peer === undefined) throw new VeloError('ERR_UNKNOWN_PEER', `peer ${target} is not registered`);
    return peer;
  }
}

function withHello(route: PeerRoute, from: string | undefined): PeerRoute {
  if (from === undefined || route.hosts.includes(from)) return route;
  return { ...route, hosts: [...route.hosts, from] };
}

function sameRoute(a: PeerRoute, b: PeerRoute): boolean {
  return a.host === b.host && a.port === b.port && a.lanePorts.join() === b.lanePorts.join();
}
