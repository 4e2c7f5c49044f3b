// Where a connection is dialed: a host and port, or a Unix socket. Owns the shape, its check and its name in messages; it must
// never resolve a name or look at the file system.

import { VeloError } from '../errors.js';
import { plainAddress, type SocketEnds } from './socket-info.js';

export type Endpoint = { readonly host: string; readonly port: number } | { readonly path: string };

const MAX_PORT = 65_535;

/** How messages name it: `host:port`, an IPv6 address in brackets, or `uds://` and the path. */
export function endpointName(endpoint: Endpoint): string {
  if ('path' in endpoint) return `uds://${endpoint.path}`;
  const { host, port } = endpoint;
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** @throws VeloError `ERR_INVALID_ARGUMENT` for what nobody can dial. */
export function checkEndpoint(endpoint: Endpoint): void {
  if ('path' in endpoint) {
    if (endpoint.path === '') throw new VeloError('ERR_INVALID_ARGUMENT', 'path of a connection must not be empty');
    return;
  }
  const { host, port } = endpoint;
  if (host === '') throw new VeloError('ERR_INVALID_ARGUMENT', 'host of a connection must not be empty');
  if (!Number.isInteger(port) || port < 1 || port > MAX_PORT)
    throw new VeloError('ERR_INVALID_ARGUMENT', `port of a connection must be an integer in 1..65535, not ${port}`);
}

/** The ends of a socket that is dialed there. */
export function endpointEnds(endpoint: Endpoint): SocketEnds {
  if ('path' in endpoint)
    return { transport: 'uds', remoteAddress: undefined, remotePort: undefined, localPort: undefined };
  const { host, port } = endpoint;
  return { transport: 'tcp', remoteAddress: plainAddress(host), remotePort: port, localPort: undefined };
}
