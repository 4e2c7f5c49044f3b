// Where a peer's frame came in: the two ends of a socket, and whether an address can belong to a peer that is known by some
// hosts. It must never refuse anything: hosts have many addresses, and NAT rewrites them.

import { isIP, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { TransportKey } from './lane-metrics.js';

/** The socket that a message came in on. */
export interface SocketInfo {
  readonly transport: TransportKey;
  /** IP address of the other side, an IPv4 one in its plain form. Undefined for a Unix socket. */
  readonly remoteAddress: string | undefined;
  readonly remotePort: number | undefined;
  readonly localPort: number | undefined;
  /** The lane whose socket it is. */
  readonly lane: number;
}

export type SocketEnds = Omit<SocketInfo, 'lane'>;

/** How long this host's own addresses are believed. */
const OWN_ADDRESSES_MS = 10_000;
const MAPPED_IPV4 = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;
const ZONE = /%.*$/;

/** One spelling per address: IPv4 unmapped, IPv6 short, no zone. Undefined for what is no IP address, a host name for one. */
export function plainAddress(address: string | undefined): string | undefined {
  if (address === undefined) return undefined;
  const bare = address.replace(ZONE, '');
  const mapped = MAPPED_IPV4.exec(bare)?.[1];
  if (mapped !== undefined) return mapped;
  const family = isIP(bare);
  if (family === 0) return undefined;
  return family === 4 ? bare : new URL(`http://[${bare}]`).hostname.slice(1, -1);
}

/** Read while the socket stands: afterwards it knows nothing any more. */
export function socketEnds(socket: Socket, transport: TransportKey): SocketEnds {
  const { remoteAddress, remotePort, localPort } = socket;
  return { transport, remoteAddress: plainAddress(remoteAddress), remotePort, localPort };
}

export function isLoopback(address: string): boolean {
  return address.startsWith('127.') || address === '::1' || address === 'localhost';
}

/** Neither an address nor this host: anything may be behind it. No name has a colon, every IPv6 address has. */
function isName(host: string): boolean {
  return !host.includes(':') && isIP(host) === 0 && host !== 'localhost';
}

/** Tells whether an address can be one of a peer's. Knows this host's own addresses. */
export class HostMatcher {
  private own: ReadonlySet<string> = new Set();
  private readAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly now: () => number) {}

  /**
   * False when `address` is none of `hosts`, and not this host's while the peer runs on it too: processes of one host look
   * alike. True wherever nothing can be said: no address (a Unix socket), no hosts, or a host that is a name.
   */
  mayBe(hosts: readonly string[], address: string | undefined): boolean {
    if (address === undefined || hosts.length === 0 || hosts.includes(address)) return true;
    // Once per message when a connection carries many names: no more than a look at each, nothing is parsed.
    if (hosts.some(isName)) return true;
    return this.isHere(address) && hosts.some((host) => this.isHere(host));
  }

  private isHere(address: string): boolean {
    return isLoopback(address) || this.ownAddresses().has(address);
  }

  private ownAddresses(): ReadonlySet<string> {
    const now = this.now();
    if (now - this.readAt < OWN_ADDRESSES_MS) return this.own;
    this.readAt = now;
    const addresses = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
    this.own = new Set(addresses.map(({ address }) => plainAddress(address) ?? address));
    return this.own;
  }
}
