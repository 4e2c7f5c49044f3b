// Stream handles: the 128-bit names that travel. Owns their packing and their three encodings; it must never ask whether
// the anchor or sender they name exists.

import { VeloError } from '../errors.js';
import { isU64, MAX_U64 } from './bytes.js';
import { JsonFields } from './json-fields.js';
import { MsgpackReader, MsgpackWriter } from './msgpack.js';

/** Bit 63 of the lower half: the anchor takes several senders. */
export const MPSC_BIT = 1n << 63n;
/** Highest local id without the bit. */
export const MAX_LOCAL_ID = MPSC_BIT - 1n;

/** `spsc`: one sender at a time; `mpsc`: several. */
export type AnchorKind = 'spsc' | 'mpsc';

const HALF_BITS = 64n;
const HANDLE_FIELDS = 2;

/** The JSON form of a handle: two integers, either of which may exceed 2^53. */
export interface HandleJson {
  hi: bigint;
  lo: bigint;
}

/**
 * Names an anchor: the worker that owns it, and its local id there. `local` carries the MPSC bit; as a 64-bit value it
 * is the anchor's key in the owner's registry and its `anchor_id` on the wire.
 */
export class StreamAnchorHandle {
  /** WorkerId of the node that owns the anchor: the batching key. */
  readonly worker: bigint;
  readonly local: bigint;

  /** @throws VeloError `ERR_BAD_HANDLE` when either half is not a u64. */
  constructor(worker: bigint, local: bigint) {
    if (!isU64(worker) || !isU64(local)) throw badHandle('StreamAnchorHandle', 'both halves must be u64');
    this.worker = worker;
    this.local = local;
  }

  /**
   * Builds a handle from an id without the MPSC bit.
   *
   * @throws VeloError `ERR_BAD_HANDLE` when the id already carries the bit.
   */
  static pack(worker: bigint, id: bigint, kind: AnchorKind): StreamAnchorHandle {
    if (id < 0n || id > MAX_LOCAL_ID) throw badHandle('StreamAnchorHandle', `local id ${id} does not fit 63 bits`);
    return new StreamAnchorHandle(worker, kind === 'mpsc' ? id | MPSC_BIT : id);
  }

  static fromU128(value: bigint): StreamAnchorHandle {
    return new StreamAnchorHandle(value >> HALF_BITS, value & MAX_U64);
  }

  /** Accepts `{hi, lo}` with bigints or safe integers. */
  static fromJSON(value: unknown): StreamAnchorHandle {
    if (value instanceof StreamAnchorHandle) return value;
    const { hi, lo } = halvesFromJson(value, 'StreamAnchorHandle');
    return new StreamAnchorHandle(hi, lo);
  }

  static fromMsgpack(bytes: Uint8Array): StreamAnchorHandle {
    const { hi, lo } = halvesFromBytes(bytes, 'StreamAnchorHandle');
    return new StreamAnchorHandle(hi, lo);
  }

  get kind(): AnchorKind {
    return (this.local & MPSC_BIT) === 0n ? 'spsc' : 'mpsc';
  }

  /** The local id without the MPSC bit. */
  get id(): bigint {
    return this.local & MAX_LOCAL_ID;
  }

  toU128(): bigint {
    return (this.worker << HALF_BITS) | this.local;
  }

  toJSON(): HandleJson {
    return { hi: this.worker, lo: this.local };
  }

  toMsgpack(): Uint8Array {
    return halvesToBytes(this.worker, this.local);
  }

  equals(other: StreamAnchorHandle): boolean {
    return this.local === other.local && this.worker === other.worker;
  }

  toString(): string {
    return `StreamAnchorHandle(worker=${this.worker}, local=${this.id}, kind=${this.kind})`;
  }
}

/** The return address of `_stream_cancel` and `_stream_stop`: a sender's worker and the id of its stream there. */
export class StreamCancelHandle {
  /** WorkerId of the sender's node. */
  readonly worker: bigint;
  readonly senderStreamId: bigint;

  /** @throws VeloError `ERR_BAD_HANDLE` when either half is not a u64. */
  constructor(worker: bigint, senderStreamId: bigint) {
    if (!isU64(worker) || !isU64(senderStreamId)) throw badHandle('StreamCancelHandle', 'both halves must be u64');
    this.worker = worker;
    this.senderStreamId = senderStreamId;
  }

  static fromU128(value: bigint): StreamCancelHandle {
    return new StreamCancelHandle(value >> HALF_BITS, value & MAX_U64);
  }

  static fromJSON(value: unknown): StreamCancelHandle {
    if (value instanceof StreamCancelHandle) return value;
    const { hi, lo } = halvesFromJson(value, 'StreamCancelHandle');
    return new StreamCancelHandle(hi, lo);
  }

  static fromMsgpack(bytes: Uint8Array): StreamCancelHandle {
    const { hi, lo } = halvesFromBytes(bytes, 'StreamCancelHandle');
    return new StreamCancelHandle(hi, lo);
  }

  toU128(): bigint {
    return (this.worker << HALF_BITS) | this.senderStreamId;
  }

  toJSON(): HandleJson {
    return { hi: this.worker, lo: this.senderStreamId };
  }

  toMsgpack(): Uint8Array {
    return halvesToBytes(this.worker, this.senderStreamId);
  }

  equals(other: StreamCancelHandle): boolean {
    return this.senderStreamId === other.senderStreamId && this.worker === other.worker;
  }

  toString(): string {
    return `StreamCancelHandle(worker=${this.worker}, stream=${this.senderStreamId})`;
  }
}

/** Names staged bytes of a rendezvous: the worker that keeps them, and their local id there. */
export class DataHandle {
  readonly worker: bigint;
  readonly local: bigint;

  /** @throws VeloError `ERR_BAD_HANDLE` when either half is not a u64. */
  constructor(worker: bigint, local: bigint) {
    if (!isU64(worker) || !isU64(local)) throw badHandle('DataHandle', 'both halves must be u64');
    this.worker = worker;
    this.local = local;
  }

  /** Reads the text of an `_rv` header: the u128 in decimal. */
  static fromText(text: string): DataHandle {
    if (!/^[0-9]{1,39}$/.test(text)) throw badHandle('DataHandle', 'expected a decimal u128');
    const value = BigInt(text);
    return new DataHandle(value >> HALF_BITS, value & MAX_U64);
  }

  static fromJSON(value: unknown): DataHandle {
    if (value instanceof DataHandle) return value;
    const { hi, lo } = halvesFromJson(value, 'DataHandle');
    return new DataHandle(hi, lo);
  }

  toText(): string {
    return ((this.worker << HALF_BITS) | this.local).toString();
  }

  toJSON(): HandleJson {
    return { hi: this.worker, lo: this.local };
  }

  equals(other: DataHandle): boolean {
    return this.local === other.local && this.worker === other.worker;
  }

  toString(): string {
    return `DataHandle(worker=${this.worker}, local=${this.local})`;
  }
}

/** Writes the positional form: an array of the two halves. */
export function writeHalves(writer: MsgpackWriter, hi: bigint, lo: bigint): void {
  writer.arrayHeader(HANDLE_FIELDS).int(hi).int(lo);
}

/** Reads either form, array or map with the keys `hi` and `lo`; raises `ERR_BAD_MSGPACK`. */
export function readHalves(reader: MsgpackReader, what: string): HandleJson {
  if (reader.kind() !== 'map') {
    if (reader.arrayHeader() !== HANDLE_FIELDS) throw new VeloError('ERR_BAD_MSGPACK', `${what}: expected two fields`);
    const hi = reader.u64();
    return { hi, lo: reader.u64() };
  }
  let hi: bigint | undefined;
  let lo: bigint | undefined;
  for (let count = reader.mapHeader(); count > 0; count--) {
    const key = reader.str();
    if (key === 'hi') hi = reader.u64();
    else if (key === 'lo') lo = reader.u64();
    else reader.skip();
  }
  if (hi === undefined || lo === undefined) {
    throw new VeloError('ERR_BAD_MSGPACK', `${what}: '${hi === undefined ? 'hi' : 'lo'}' is missing`);
  }
  return { hi, lo };
}

function halvesFromJson(value: unknown, what: string): HandleJson {
  const fields = new JsonFields(value, what, 'ERR_BAD_HANDLE');
  return { hi: fields.u64('hi'), lo: fields.u64('lo') };
}

function halvesFromBytes(bytes: Uint8Array, what: string): HandleJson {
  try {
    const reader = new MsgpackReader(bytes);
    const halves = readHalves(reader, what);
    reader.expectEnd();
    return halves;
  } catch (cause) {
    if (!VeloError.is(cause)) throw cause;
    throw new VeloError('ERR_BAD_HANDLE', cause.message, { cause });
  }
}

function halvesToBytes(hi: bigint, lo: bigint): Uint8Array {
  const writer = new MsgpackWriter();
  writeHalves(writer, hi, lo);
  return writer.finish();
}

function badHandle(what: string, message: string): VeloError {
  return new VeloError('ERR_BAD_HANDLE', `${what}: ${message}`);
}
