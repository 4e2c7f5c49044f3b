// Worker addresses: the map from transport to endpoint bytes, and the values this package reads and writes in it
// (messenger specification §1.4–1.5). Owns their encodings; it must never resolve a name, pick an endpoint or dial.

import { VeloError } from '../errors.js';
import { MAX_U16 } from './bytes.js';
import { MsgpackReader, MsgpackWriter } from './msgpack.js';
import { MAX_LANES } from './names.js';
import { decodeUtf8, encodeUtf8 } from './utf8.js';

/** One network interface a node can be reached at. `host` is an IP literal (a legacy text entry may hold a name). */
export interface TcpEndpoint {
  /** Interface name; empty when the node bound a specific address. */
  readonly name: string;
  readonly host: string;
  readonly port: number;
  /** CIDR length of the interface; 32 or 128 for a specific address. */
  readonly prefixLength: number;
  /** NUMA node of the interface, or null. */
  readonly numaNode: number | null;
}

const ENDPOINT_FIELDS = 5;
const MAX_PREFIX = 0xff;
const MIN_I32 = -0x8000_0000;
const MAX_I32 = 0x7fff_ffff;

const UDS_SCHEME = 'uds://';
const LEGACY_SCHEMES: readonly string[] = ['tcp://', 'grpc://'];
const LEGACY_ENDPOINT = /^(?:\[([^\s[\]]+)\]|([^\s:/[\]]+)):([0-9]{1,5})$/;
/** Prefix given to an endpoint of the legacy text form, which names none. */
const LEGACY_PREFIX_V4 = 32;
const LEGACY_PREFIX_V6 = 128;

/** Encodes the map in iteration order; values are arrays of integers, which every peer version reads. */
export function encodeWorkerAddress(entries: Iterable<readonly [string, Uint8Array]>): Uint8Array {
  const list = [...entries];
  const writer = new MsgpackWriter();
  writer.mapHeader(list.length);
  for (const [key, value] of list) writer.str(key).byteArray(value);
  return writer.finish();
}

/**
 * Decodes the map; values may be arrays of integers or byte strings. The order of entries means nothing.
 *
 * @throws VeloError `ERR_BAD_ADDRESS`.
 */
export function decodeWorkerAddress(bytes: Uint8Array): Map<string, Uint8Array> {
  return reading('worker address', () => {
    const reader = new MsgpackReader(bytes);
    const entries = new Map<string, Uint8Array>();
    for (let count = reader.mapHeader(); count > 0; count--) {
      const key = reader.str();
      entries.set(key, reader.binOrByteArray());
    }
    reader.expectEnd();
    return entries;
  });
}

/** Value of a `tcp` or `tcp-stream` entry. @throws VeloError `ERR_INVALID_ARGUMENT` naming a field out of range. */
export function encodeTcpEndpoints(endpoints: readonly TcpEndpoint[]): Uint8Array {
  if (endpoints.length === 0) throw badField('endpoints', 'empty');
  const writer = new MsgpackWriter();
  writer.arrayHeader(endpoints.length);
  for (const endpoint of endpoints) {
    if (!inRange(endpoint.port, 0, MAX_U16)) throw badField('port', endpoint.port);
    if (!inRange(endpoint.prefixLength, 0, MAX_PREFIX)) throw badField('prefixLength', endpoint.prefixLength);
    writer.arrayHeader(ENDPOINT_FIELDS).str(endpoint.name).str(endpoint.host);
    writer.int(endpoint.port).int(endpoint.prefixLength);
    if (endpoint.numaNode === null) writer.nil();
    else if (inRange(endpoint.numaNode, MIN_I32, MAX_I32)) writer.int(endpoint.numaNode);
    else throw badField('numaNode', endpoint.numaNode);
  }
  return writer.finish();
}

/**
 * Reads a `tcp` or `tcp-stream` entry: the list of endpoints, or the older text `tcp://host:port`, `grpc://host:port`,
 * `host:port` (IPv6 in brackets).
 *
 * @throws VeloError `ERR_BAD_ADDRESS`.
 */
export function decodeTcpEndpoints(bytes: Uint8Array): TcpEndpoint[] {
  const legacy = legacyEndpoint(bytes);
  if (legacy !== undefined) return [legacy];
  return reading('tcp endpoints', () => {
    const reader = new MsgpackReader(bytes);
    const count = reader.arrayHeader();
    if (count === 0) throw new VeloError('ERR_BAD_ADDRESS', 'no endpoint');
    const endpoints: TcpEndpoint[] = [];
    for (let i = 0; i < count; i++) endpoints.push(reader.kind() === 'map' ? namedEndpoint(reader) : endpoint(reader));
    reader.expectEnd();
    return endpoints;
  });
}

/** Value of a `uds` entry. */
export function encodeUdsPath(path: string): Uint8Array {
  return encodeUtf8(UDS_SCHEME + path);
}

/** Reads a `uds` entry: text, with or without its scheme; the path is taken literally. @throws VeloError `ERR_BAD_ADDRESS`. */
export function decodeUdsPath(bytes: Uint8Array): string {
  const text = decodeUtf8(bytes, 0, bytes.length);
  const path = text?.startsWith(UDS_SCHEME) ? text.slice(UDS_SCHEME.length) : text;
  if (path === undefined || path === '') throw new VeloError('ERR_BAD_ADDRESS', 'uds: no path');
  return path;
}

/** Value of this package's lane entry: the listener port of each lane, index = lane. */
export function encodeLanePorts(ports: readonly number[]): Uint8Array {
  if (ports.length === 0 || ports.length > MAX_LANES) throw badField('lanes', ports.length);
  const writer = new MsgpackWriter();
  writer.arrayHeader(ports.length);
  for (const port of ports) {
    if (!inRange(port, 1, MAX_U16)) throw badField('port', port);
    writer.int(port);
  }
  return writer.finish();
}

/** @throws VeloError `ERR_BAD_ADDRESS` unless there are 1 to 16 ports, none of them 0. */
export function decodeLanePorts(bytes: Uint8Array): number[] {
  return reading('lane ports', () => {
    const reader = new MsgpackReader(bytes);
    const count = reader.arrayHeader();
    if (count === 0 || count > MAX_LANES) throw new VeloError('ERR_BAD_ADDRESS', `${count} lanes`);
    const ports: number[] = [];
    for (let i = 0; i < count; i++) {
      const port = reader.uint(MAX_U16);
      if (port === 0) throw new VeloError('ERR_BAD_ADDRESS', `lane ${i} has port 0`);
      ports.push(port);
    }
    reader.expectEnd();
    return ports;
  });
}

function endpoint(reader: MsgpackReader): TcpEndpoint {
  const fields = reader.arrayHeader();
  if (fields !== ENDPOINT_FIELDS) throw new VeloError('ERR_BAD_ADDRESS', `endpoint of ${fields} fields`);
  const name = reader.str();
  const host = reader.str();
  const port = reader.uint(MAX_U16);
  const prefixLength = reader.uint(MAX_PREFIX);
  return { name, host, port, prefixLength, numaNode: numaNode(reader) };
}

/** The form with field names: read, never written. */
function namedEndpoint(reader: MsgpackReader): TcpEndpoint {
  let name: string | undefined;
  let host: string | undefined;
  let port: number | undefined;
  let prefixLength: number | undefined;
  let numa: number | null = null;
  for (let count = reader.mapHeader(); count > 0; count--) {
    const key = reader.str();
    if (key === 'name') name = reader.str();
    else if (key === 'ip') host = reader.str();
    else if (key === 'port') port = reader.uint(MAX_U16);
    else if (key === 'prefix_len') prefixLength = reader.uint(MAX_PREFIX);
    else if (key === 'numa_node') numa = numaNode(reader);
    else reader.skip();
  }
  if (name === undefined || host === undefined || port === undefined || prefixLength === undefined) {
    throw new VeloError('ERR_BAD_ADDRESS', 'endpoint with a missing field');
  }
  return { name, host, port, prefixLength, numaNode: numa };
}

function numaNode(reader: MsgpackReader): number | null {
  return reader.takeNil() ? null : reader.int(MIN_I32, MAX_I32);
}

/** Undefined when the bytes are not text of the older form. */
function legacyEndpoint(bytes: Uint8Array): TcpEndpoint | undefined {
  let text = decodeUtf8(bytes, 0, bytes.length);
  if (text === undefined) return undefined;
  for (const scheme of LEGACY_SCHEMES) if (text.startsWith(scheme)) text = text.slice(scheme.length);
  const match = LEGACY_ENDPOINT.exec(text);
  if (match === null) return undefined;
  const port = Number(match[3]!);
  if (port > MAX_U16) return undefined;
  const v6 = match[1];
  if (v6 !== undefined) return { name: '', host: v6, port, prefixLength: LEGACY_PREFIX_V6, numaNode: null };
  return { name: '', host: match[2]!, port, prefixLength: LEGACY_PREFIX_V4, numaNode: null };
}

function reading<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (!VeloError.is(cause)) throw cause;
    throw new VeloError('ERR_BAD_ADDRESS', `${what}: ${cause.message}`, { cause });
  }
}

function inRange(value: number, min: number, max: number): boolean {
  return Number.isInteger(value) && value >= min && value <= max;
}

function badField(name: string, value: unknown): VeloError {
  return new VeloError('ERR_INVALID_ARGUMENT', `address field ${name} is out of range: ${String(value)}`);
}
