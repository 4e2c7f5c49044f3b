// Which of a peer's TCP endpoints to dial, seen from our own interfaces. A pure choice by the rules of the reference: it must never
// resolve a name, look at the machine, or dial.

import { BlockList, isIP } from 'node:net';
import type { TcpEndpoint } from '../wire/address.js';

/** A peer may list any number; no host has more interfaces worth a look. */
const MAX_ENDPOINTS = 64;
const LOOPBACK_V4 = { host: '127.0.0.0', prefixLength: 8 };
const LOOPBACK_V6 = { host: '::1', prefixLength: 128 };

/** An address with the length of its network's prefix. */
type Subnet = Pick<TcpEndpoint, 'host' | 'prefixLength'>;

/**
 * The first rule that finds one: on the hinted NUMA node and in a subnet with us; on that node; in a subnet with us; not loopback;
 * the first. Endpoints without a host or a port do not count: nobody can dial them. A host name (the legacy text form may hold one)
 * is in no subnet and is returned as it stands. Only the first 64 are looked at. Undefined when there is nothing to dial.
 */
export function chooseEndpoint(
  remote: readonly TcpEndpoint[],
  local: readonly Subnet[],
  numaNode?: number,
): TcpEndpoint | undefined {
  const usable = remote.slice(0, MAX_ENDPOINTS).filter(({ host, port }) => host !== '' && port !== 0);
  const near = (endpoint: TcpEndpoint) => local.some((own) => inOneSubnet(endpoint, own));
  const onNode = numaNode === undefined ? [] : usable.filter((endpoint) => endpoint.numaNode === numaNode);
  return (
    onNode.find(near) ??
    onNode[0] ??
    usable.find(near) ??
    usable.find((endpoint) => !isLoopback(endpoint.host)) ??
    usable[0]
  );
}

/** Under the shorter of the two prefixes; addresses of two families never are. */
function inOneSubnet(a: Subnet, b: Subnet): boolean {
  const family = isIP(a.host);
  if (family === 0 || isIP(b.host) !== family || a.host.includes('%') || b.host.includes('%')) return false;
  const name = family === 4 ? 'ipv4' : 'ipv6';
  const subnet = new BlockList();
  subnet.addSubnet(b.host, Math.min(a.prefixLength, b.prefixLength, family === 4 ? 32 : 128), name);
  return subnet.check(a.host, name);
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || within(host, LOOPBACK_V4) || within(host, LOOPBACK_V6);
}

function within(host: string, net: Subnet): boolean {
  return inOneSubnet({ host, prefixLength: net.prefixLength }, net);
}
