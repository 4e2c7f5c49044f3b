// The text of a discovery file, in the reference's format (messenger specification §7.2). Owns reading and writing it, and what an
// entry may look like; it must never touch a file, round a 64-bit number, or drop what it does not understand.

import { VeloError } from '../errors.js';
import { type JsonObject, type JsonValue, parseJson, stringifyJson } from '../wire/json.js';
import { JsonFields } from '../wire/json-fields.js';
import { PeerInfo } from '../wire/peer-info.js';
import { encodeUtf8 } from '../wire/utf8.js';
import { xxh3 } from '../wire/xxh3.js';

/** Bytes of a discovery file. */
export const MAX_DISCOVERY_FILE_BYTES = 16 * 1024 * 1024;
/** Entries of a discovery file, damaged ones included. */
export const MAX_DISCOVERY_ENTRIES = 16_384;

const FIELD_PEERS = 'peers';
const FIELD_INSTANCE = 'instance_id';
const FIELD_WORKER = 'worker_id';
const FIELD_ADDRESS = 'worker_address';
const FIELD_CHECKSUM = 'address_checksum';
const INDENT = '  ';

interface Entry {
  readonly json: JsonValue;
  /** Undefined for an entry that does not make sense: it is skipped, and kept as it is when the file is written. */
  readonly info: PeerInfo | undefined;
}

/** What a discovery file holds. Of two entries of one instance the later counts, as in the reference. */
export class DiscoveryEntries {
  private constructor(
    private readonly root: JsonObject,
    private entries: readonly Entry[],
  ) {}

  /**
   * No bytes at all are no peers: a writer of the reference makes the file before it fills it.
   *
   * @throws VeloError `ERR_BAD_DISCOVERY_FILE`, naming the file.
   */
  static parse(bytes: Uint8Array, name: string): DiscoveryEntries {
    if (bytes.length === 0) return new DiscoveryEntries({}, []);
    const bad = (why: string, cause?: unknown) =>
      new VeloError('ERR_BAD_DISCOVERY_FILE', `discovery file ${name}: ${why}`, { cause });
    let root: JsonValue;
    try {
      root = parseJson(bytes);
    } catch (cause) {
      throw bad(cause instanceof Error ? cause.message : String(cause), cause);
    }
    if (typeof root !== 'object' || root === null || Array.isArray(root)) throw bad('it is no JSON object');
    const peers = root[FIELD_PEERS];
    if (!Array.isArray(peers)) throw bad(`it has no array "${FIELD_PEERS}"`);
    if (peers.length > MAX_DISCOVERY_ENTRIES)
      throw bad(`it has ${peers.length} entries, more than ${MAX_DISCOVERY_ENTRIES}`);
    return new DiscoveryEntries(
      root,
      peers.map((json) => ({ json, info: readEntry(json) })),
    );
  }

  /** Pretty-printed, the order kept. @throws VeloError `ERR_LIMIT` above 16 MiB. */
  format(): Uint8Array {
    const root: JsonObject = { ...this.root, [FIELD_PEERS]: this.entries.map(({ json }) => json) };
    const bytes = encodeUtf8(pretty(root, ''));
    if (bytes.length <= MAX_DISCOVERY_FILE_BYTES) return bytes;
    throw new VeloError(
      'ERR_LIMIT',
      `a discovery file of ${bytes.length} bytes is larger than ${MAX_DISCOVERY_FILE_BYTES}`,
    );
  }

  /** Entries that were skipped. */
  get damaged(): number {
    return this.entries.reduce((count, { info }) => (info === undefined ? count + 1 : count), 0);
  }

  /** By instance id. */
  peers(): Map<string, PeerInfo> {
    const peers = new Map<string, PeerInfo>();
    for (const { info } of this.entries) if (info !== undefined) peers.set(info.instanceId, info);
    return peers;
  }

  worker(workerId: bigint): PeerInfo | undefined {
    return this.entries.findLast(({ info }) => info?.workerId === workerId)?.info;
  }

  instance(instanceId: string): PeerInfo | undefined {
    return this.entries.findLast(({ info }) => info?.instanceId === instanceId)?.info;
  }

  /** @throws VeloError `ERR_ALREADY_REGISTERED`, `ERR_LIMIT` above 16,384 entries. */
  add(info: PeerInfo): void {
    const there = this.worker(info.workerId);
    if (there !== undefined) throw alreadyThere(there, info);
    if (this.entries.length >= MAX_DISCOVERY_ENTRIES)
      throw new VeloError('ERR_LIMIT', `the discovery file already has ${MAX_DISCOVERY_ENTRIES} entries`);
    const json: JsonObject = {
      [FIELD_INSTANCE]: info.instanceId,
      [FIELD_WORKER]: info.workerId,
      [FIELD_ADDRESS]: Array.from(info.address),
      [FIELD_CHECKSUM]: xxh3(info.address),
    };
    this.entries = [...this.entries, { json, info }];
  }

  /** False when the instance is not there. */
  remove(instanceId: string): boolean {
    const rest = this.entries.filter(({ info }) => info?.instanceId !== instanceId);
    const found = rest.length < this.entries.length;
    this.entries = rest;
    return found;
  }
}

/** All four members must be there; of the two that follow from the others only the form is checked, as in the reference. */
function readEntry(json: JsonValue): PeerInfo | undefined {
  try {
    const fields = new JsonFields(json, 'entry', 'ERR_BAD_DISCOVERY_FILE');
    fields.u64(FIELD_WORKER);
    fields.u64(FIELD_CHECKSUM);
    return new PeerInfo(fields.string(FIELD_INSTANCE), fields.bytes(FIELD_ADDRESS));
  } catch (error) {
    if (VeloError.is(error)) return undefined;
    throw error;
  }
}

function alreadyThere(there: PeerInfo, info: PeerInfo): VeloError {
  const { instanceId, workerId } = info;
  if (there.instanceId !== instanceId)
    return new VeloError(
      'ERR_ALREADY_REGISTERED',
      `worker id ${workerId} of instance ${instanceId} belongs to instance ${there.instanceId} already`,
    );
  const same = Buffer.compare(there.address, info.address) === 0;
  return new VeloError(
    'ERR_ALREADY_REGISTERED',
    `instance ${instanceId} is already registered${same ? '' : ' with a different address'}`,
  );
}

function pretty(value: JsonValue, indent: string): string {
  if (typeof value !== 'object' || value === null) return stringifyJson(value);
  const inner = indent + INDENT;
  const list = Array.isArray(value);
  const members = list
    ? value.map((item) => pretty(item, inner))
    : Object.entries(value).map(([key, item]) => `${stringifyJson(key)}: ${pretty(item, inner)}`);
  const [open, close] = list ? '[]' : '{}';
  if (members.length === 0) return `${open}${close}`;
  return `${open}\n${inner}${members.join(`,\n${inner}`)}\n${indent}${close}`;
}
