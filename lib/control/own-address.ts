// What a node tells peers about where it listens: its TCP endpoints, its Unix socket, the ports of its lanes.

import { networkInterfaces } from 'node:os';
import {
  encodeLanePorts,
  encodeTcpEndpoints,
  encodeUdsPath,
  encodeWorkerAddress,
  type TcpEndpoint,
} from '../wire/address.js';
import { ADDRESS_KEY_LANES, ADDRESS_KEY_TCP, ADDRESS_KEY_UDS } from '../wire/names.js';

const IPV4_PREFIX = 32;
const IPV6_PREFIX = 128;
/** Prefix of an interface that does not tell its netmask. */
const UNKNOWN_IPV4_PREFIX = 24;
const UNKNOWN_IPV6_PREFIX = 64;
const LOOPBACK_IPV4_PREFIX = 8;

/** The address peers dial: lane 0 as the plain `tcp` and `uds` entries, every lane's port beside them. */
export function ownAddress(
  endpoints: readonly TcpEndpoint[],
  ports: readonly number[],
  udsPath: string | undefined,
): Uint8Array {
  const entries: [string, Uint8Array][] = [[ADDRESS_KEY_TCP, encodeTcpEndpoints(endpoints)]];
  if (udsPath !== undefined) entries.push([ADDRESS_KEY_UDS, encodeUdsPath(udsPath)]);
  entries.push([ADDRESS_KEY_LANES, encodeLanePorts(ports)]);
  return encodeWorkerAddress(entries);
}

/** One endpoint for a specific address; for a wildcard every interface of its family that is not loopback, else loopback. */
export function ownEndpoints(bindAddress: string, port: number): TcpEndpoint[] {
  const wildcard = bindAddress === '0.0.0.0' || bindAddress === '::';
  if (!wildcard) {
    const prefixLength = bindAddress.includes(':') ? IPV6_PREFIX : IPV4_PREFIX;
    return [{ name: '', host: bindAddress, port, prefixLength, numaNode: null }];
  }
  const v6 = bindAddress === '::';
  const endpoints: TcpEndpoint[] = [];
  for (const [name, addresses] of Object.entries(networkInterfaces())) {
    for (const address of addresses ?? []) {
      if (address.family !== (v6 ? 'IPv6' : 'IPv4') || address.internal || address.address.startsWith('fe80:'))
        continue;
      const unknown = v6 ? UNKNOWN_IPV6_PREFIX : UNKNOWN_IPV4_PREFIX;
      const prefixLength = Number(address.cidr?.split('/')[1] ?? unknown);
      endpoints.push({ name, host: address.address, port, prefixLength, numaNode: null });
    }
  }
  if (endpoints.length > 0) return endpoints;
  const prefixLength = v6 ? IPV6_PREFIX : LOOPBACK_IPV4_PREFIX;
  return [{ name: 'lo', host: v6 ? '::1' : '127.0.0.1', port, prefixLength, numaNode: null }];
}
