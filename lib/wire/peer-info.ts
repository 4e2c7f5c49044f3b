// PeerInfo: who a node is and where it can be reached. Owns its two encodings; it must never re-encode an address, whose
// bytes are the only stable form, and never store a worker id, which is derived.

import { VeloError } from '../errors.js';
import { decodeWorkerAddress } from './address.js';
import { JsonFields } from './json-fields.js';
import { MsgpackReader, MsgpackWriter } from './msgpack.js';
import { formatInstanceId, INSTANCE_ID_LEN, parseInstanceId, workerIdOf } from './worker-id.js';

const FIELD_INSTANCE = 'instance_id';
const FIELD_ADDRESS = 'worker_address';
const FIELDS = 2;

/** The JSON form: a UUID text and the address as byte numbers. No integer in it exceeds 255. */
export interface PeerInfoJson {
  instance_id: string;
  worker_address: number[];
}

export class PeerInfo {
  /** Lower-case hyphenated UUID. */
  readonly instanceId: string;
  /** XXH3-64 of the UUID's bytes. */
  readonly workerId: bigint;
  /** The encoded worker address, as it was given. Shared: never write to it. */
  readonly address: Uint8Array;

  /** @throws VeloError `ERR_BAD_ADDRESS` when the id is not a UUID, its worker id is 0, or the address has no bytes. */
  constructor(instanceId: string, address: Uint8Array) {
    const bytes = parseInstanceId(instanceId);
    this.instanceId = formatInstanceId(bytes);
    this.workerId = workerIdOf(bytes);
    if (this.workerId === 0n) throw bad(`instance ${this.instanceId} has worker id 0`);
    if (address.length === 0) throw bad('the worker address has no bytes');
    this.address = address;
  }

  /** Accepts what {@link toJSON} gives; members it does not know are ignored. */
  static fromJSON(value: unknown): PeerInfo {
    if (value instanceof PeerInfo) return value;
    const fields = new JsonFields(value, 'PeerInfo', 'ERR_BAD_ADDRESS');
    return new PeerInfo(fields.string(FIELD_INSTANCE), fields.bytes(FIELD_ADDRESS));
  }

  /** Reads the compact form (array of two) and the named one (map); the address may be bin or an array of integers. */
  static fromMsgpack(bytes: Uint8Array): PeerInfo {
    try {
      const reader = new MsgpackReader(bytes);
      const info = reader.kind() === 'map' ? named(reader) : positional(reader);
      reader.expectEnd();
      return info;
    } catch (cause) {
      if (!VeloError.is(cause)) throw cause;
      throw new VeloError('ERR_BAD_ADDRESS', `PeerInfo: ${cause.message}`, { cause });
    }
  }

  toJSON(): PeerInfoJson {
    return { [FIELD_INSTANCE]: this.instanceId, [FIELD_ADDRESS]: Array.from(this.address) };
  }

  /** The compact form, or the one with field names. */
  toMsgpack(form: 'compact' | 'named' = 'compact'): Uint8Array {
    const writer = new MsgpackWriter();
    const id = parseInstanceId(this.instanceId);
    if (form === 'compact') writer.arrayHeader(FIELDS).bin(id).bin(this.address);
    else writer.mapHeader(FIELDS).str(FIELD_INSTANCE).bin(id).str(FIELD_ADDRESS).bin(this.address);
    return writer.finish();
  }

  /** The address taken apart: transport key → endpoint bytes. @throws VeloError `ERR_BAD_ADDRESS`. */
  entries(): Map<string, Uint8Array> {
    return decodeWorkerAddress(this.address);
  }
}

function positional(reader: MsgpackReader): PeerInfo {
  const count = reader.arrayHeader();
  if (count !== FIELDS) throw bad(`${count} fields`);
  const id = instanceId(reader);
  return new PeerInfo(id, reader.binOrByteArray());
}

function named(reader: MsgpackReader): PeerInfo {
  let id: string | undefined;
  let address: Uint8Array | undefined;
  for (let count = reader.mapHeader(); count > 0; count--) {
    const key = reader.str();
    if (key === FIELD_INSTANCE) id = instanceId(reader);
    else if (key === FIELD_ADDRESS) address = reader.binOrByteArray();
    else reader.skip();
  }
  if (id === undefined || address === undefined) throw bad('a field is missing');
  return new PeerInfo(id, address);
}

function instanceId(reader: MsgpackReader): string {
  const bytes = reader.bin();
  if (bytes.length !== INSTANCE_ID_LEN) throw bad(`instance id of ${bytes.length} bytes`);
  return formatInstanceId(bytes);
}

function bad(message: string): VeloError {
  return new VeloError('ERR_BAD_ADDRESS', message);
}
