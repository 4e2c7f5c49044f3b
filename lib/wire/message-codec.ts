// Messages described by their fields, and the three encodings every such message has: JSON, positional MessagePack,
// MessagePack with field names. Owns defaults, omission and forward compatibility; it must never know a message.

import { VeloError } from '../errors.js';
import { isU64, MAX_U16, MAX_U32 } from './bytes.js';
import {
  DataHandle,
  type HandleJson,
  readHalves,
  StreamAnchorHandle,
  StreamCancelHandle,
  writeHalves,
} from './handle.js';
import { encodeJson, type JsonValue, parseJson } from './json.js';
import { JsonFields, toInteger } from './json-fields.js';
import { MsgpackReader, MsgpackWriter } from './msgpack.js';

/** Bytes of a message of the system that is no batch, as JSON. Reading what is longer would keep a thread for seconds. */
export const MAX_CONTROL_BYTES = 65_536;

/** @throws VeloError `ERR_BAD_CONTROL_MESSAGE` above {@link MAX_CONTROL_BYTES}, `ERR_BAD_JSON`. */
export function parseControlJson(bytes: string | Uint8Array, what: string): JsonValue {
  if (bytes.length > MAX_CONTROL_BYTES)
    throw new VeloError(
      'ERR_BAD_CONTROL_MESSAGE',
      `${what} of ${bytes.length} bytes: at most ${MAX_CONTROL_BYTES} are read`,
    );
  return parseJson(bytes);
}

/**
 * How a field looks in memory: `u64` is a bigint; `u32`, `u16` and `millis` (a u64 of milliseconds, capped at 2^53−1 when
 * read) are numbers.
 */
export type FieldKind =
  | 'u64'
  | 'millis'
  | 'u32'
  | 'u16'
  | 'boolean'
  | 'string'
  | 'strings'
  | 'anchorHandle'
  | 'cancelHandle'
  | 'dataHandle';

/** One field. `absent` makes it optional to read; `omit` leaves it out when it has that value (only for last fields). */
export interface FieldSpec {
  /** Name on the wire. */
  readonly wire: string;
  /** Name in memory. */
  readonly name: string;
  readonly kind: FieldKind;
  readonly absent?: { readonly value: unknown; readonly omit?: boolean };
}

/** Which MessagePack form to write; both are read. */
export type MsgpackForm = 'positional' | 'named';

/** Encodes and decodes one kind of message. Members and elements it does not know are ignored. */
export class MessageCodec<T extends object> {
  readonly what: string;
  private readonly fields: readonly FieldSpec[];

  constructor(what: string, fields: readonly FieldSpec[]) {
    this.what = what;
    this.fields = fields;
  }

  /** The message as a plain object in wire names, for `stringifyJson`. */
  toJSON(message: T): Record<string, unknown> {
    const object: Record<string, unknown> = {};
    for (const field of this.written(message)) object[field.wire] = this.value(message, field);
    return object;
  }

  /** The message as JSON text in UTF-8. */
  encodeJson(message: T): Uint8Array {
    return encodeJson(this.toJSON(message));
  }

  /** @throws VeloError `ERR_BAD_JSON`, or `ERR_BAD_CONTROL_MESSAGE` naming the field. */
  decodeJson(bytes: Uint8Array | string): T {
    return this.fromJSON(parseControlJson(bytes, this.what));
  }

  /** @throws VeloError `ERR_BAD_CONTROL_MESSAGE` naming the field. */
  fromJSON(value: unknown): T {
    const members = new JsonFields(value, this.what);
    const message: Record<string, unknown> = {};
    for (const field of this.fields) {
      const raw = members.get(field.wire);
      const missing = raw === undefined || (raw === null && field.absent?.value === undefined);
      message[field.name] =
        missing && field.absent !== undefined ? field.absent.value : readJson(members, field, this.what);
    }
    return message as T;
  }

  encodeMsgpack(message: T, form: MsgpackForm = 'positional'): Uint8Array {
    const writer = new MsgpackWriter();
    this.writeMsgpack(writer, message, form);
    return writer.finish();
  }

  writeMsgpack(writer: MsgpackWriter, message: T, form: MsgpackForm): void {
    const fields = this.written(message);
    if (form === 'positional') writer.arrayHeader(fields.length);
    else writer.mapHeader(fields.length);
    for (const field of fields) {
      if (form === 'named') writer.str(field.wire);
      writeValue(writer, field.kind, this.value(message, field));
    }
  }

  /** Reads either form. @throws VeloError `ERR_BAD_CONTROL_MESSAGE` naming the field. */
  decodeMsgpack(bytes: Uint8Array): T {
    return guarded(this.what, () => {
      const reader = new MsgpackReader(bytes);
      const message = this.readMsgpack(reader);
      reader.expectEnd();
      return message;
    });
  }

  readMsgpack(reader: MsgpackReader): T {
    const message: Record<string, unknown> = {};
    if (reader.kind() === 'map') {
      for (let count = reader.mapHeader(); count > 0; count--) {
        const key = reader.str();
        const field = this.fields.find((candidate) => candidate.wire === key);
        if (field === undefined) reader.skip();
        else this.readField(reader, field, message);
      }
    } else {
      const count = reader.arrayHeader();
      for (let i = 0; i < count; i++) {
        const field = this.fields[i];
        if (field === undefined) reader.skip();
        else this.readField(reader, field, message);
      }
    }
    for (const field of this.fields) {
      if (Object.hasOwn(message, field.name)) continue;
      if (field.absent === undefined) throw badField(this.what, field.wire, 'is missing');
      message[field.name] = field.absent.value;
    }
    return message as T;
  }

  private readField(reader: MsgpackReader, field: FieldSpec, message: Record<string, unknown>): void {
    guarded(`${this.what}.${field.wire}`, () => {
      const optional = field.absent !== undefined && field.absent.value === undefined;
      message[field.name] = optional && reader.takeNil() ? undefined : readValue(reader, field.kind);
    });
  }

  /** Fields that are not left out, in wire order. */
  private written(message: T): FieldSpec[] {
    return this.fields.filter((field) => {
      if (field.absent?.omit !== true) return true;
      const value = (message as Record<string, unknown>)[field.name] ?? field.absent.value;
      return value !== field.absent.value;
    });
  }

  /** The field's value, checked: what this package writes must be readable. */
  private value(message: T, field: FieldSpec): unknown {
    const value = (message as Record<string, unknown>)[field.name] ?? field.absent?.value;
    if (!isValid(value, field.kind)) {
      throw new VeloError('ERR_INVALID_ARGUMENT', `${this.what}.${field.name} is not a valid ${field.kind}`);
    }
    return value;
  }
}

/** A value or a reason: what an attach is answered with. */
export type Outcome<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly reason: string };

const OK = 'Ok';
const ERR = 'Err';

interface Refusal {
  reason: string;
}

const refusal = new MessageCodec<Refusal>('Err', [{ wire: 'reason', name: 'reason', kind: 'string' }]);

/** Encodes an {@link Outcome} as an externally tagged enum: `{"Ok": …}` or `{"Err": {"reason": …}}`. */
export class OutcomeCodec<T extends object> {
  private readonly what: string;
  private readonly accepted: MessageCodec<T>;

  constructor(what: string, accepted: MessageCodec<T>) {
    this.what = what;
    this.accepted = accepted;
  }

  encodeJson(outcome: Outcome<T>): Uint8Array {
    return encodeJson(
      outcome.ok
        ? { [OK]: this.accepted.toJSON(outcome.value) }
        : { [ERR]: refusal.toJSON({ reason: outcome.reason }) },
    );
  }

  decodeJson(bytes: Uint8Array | string): Outcome<T> {
    const members = new JsonFields(parseControlJson(bytes, this.what), this.what);
    if (members.has(OK)) return { ok: true, value: this.accepted.fromJSON(members.get(OK)) };
    if (members.has(ERR)) return { ok: false, reason: refusal.fromJSON(members.get(ERR)).reason };
    throw new VeloError('ERR_BAD_CONTROL_MESSAGE', `${this.what}: neither ${OK} nor ${ERR}`);
  }

  encodeMsgpack(outcome: Outcome<T>, form: MsgpackForm = 'positional'): Uint8Array {
    const writer = new MsgpackWriter();
    writer.mapHeader(1).str(outcome.ok ? OK : ERR);
    if (outcome.ok) this.accepted.writeMsgpack(writer, outcome.value, form);
    else refusal.writeMsgpack(writer, { reason: outcome.reason }, form);
    return writer.finish();
  }

  decodeMsgpack(bytes: Uint8Array): Outcome<T> {
    return guarded(this.what, () => {
      const reader = new MsgpackReader(bytes);
      if (reader.mapHeader() !== 1) throw new VeloError('ERR_BAD_MSGPACK', 'expected one entry');
      const tag = reader.str();
      if (tag !== OK && tag !== ERR) throw new VeloError('ERR_BAD_MSGPACK', `neither ${OK} nor ${ERR}`);
      const outcome: Outcome<T> =
        tag === OK
          ? { ok: true, value: this.accepted.readMsgpack(reader) }
          : { ok: false, reason: refusal.readMsgpack(reader).reason };
      reader.expectEnd();
      return outcome;
    });
  }
}

function readJson(members: JsonFields, field: FieldSpec, what: string): unknown {
  const name = field.wire;
  switch (field.kind) {
    case 'u64':
      return members.u64(name);
    case 'millis':
      return capped(members.u64(name));
    case 'u32':
      return members.u32(name);
    case 'u16':
      return members.u16(name);
    case 'boolean':
      return members.boolean(name);
    case 'string':
      return members.string(name);
    case 'strings':
      return members.strings(name);
    case 'anchorHandle':
      return guarded(`${what}.${name}`, () => StreamAnchorHandle.fromJSON(members.get(name)));
    case 'cancelHandle':
      return guarded(`${what}.${name}`, () => StreamCancelHandle.fromJSON(members.get(name)));
    case 'dataHandle':
      return guarded(`${what}.${name}`, () => DataHandle.fromJSON(members.get(name)));
    default:
      return unknownKind(field.kind);
  }
}

function readValue(reader: MsgpackReader, kind: FieldKind): unknown {
  switch (kind) {
    case 'u64':
      return reader.u64();
    case 'millis':
      return capped(reader.u64());
    case 'u32':
      return reader.uint(MAX_U32);
    case 'u16':
      return reader.uint(MAX_U16);
    case 'boolean':
      return reader.bool();
    case 'string':
      return reader.str();
    case 'strings': {
      const strings: string[] = [];
      for (let count = reader.arrayHeader(); count > 0; count--) strings.push(reader.str());
      return strings;
    }
    case 'anchorHandle': {
      const { hi, lo } = readHalves(reader, kind);
      return new StreamAnchorHandle(hi, lo);
    }
    case 'cancelHandle': {
      const { hi, lo } = readHalves(reader, kind);
      return new StreamCancelHandle(hi, lo);
    }
    case 'dataHandle': {
      const { hi, lo } = readHalves(reader, kind);
      return new DataHandle(hi, lo);
    }
    default:
      return unknownKind(kind);
  }
}

/** `value` has passed {@link isValid}. */
function writeValue(writer: MsgpackWriter, kind: FieldKind, value: unknown): void {
  if (value === undefined) writer.nil();
  else if (typeof value === 'bigint' || typeof value === 'number') writer.int(value);
  else if (typeof value === 'boolean') writer.bool(value);
  else if (typeof value === 'string') writer.str(value);
  else if (kind === 'strings') {
    const strings = value as readonly string[];
    writer.arrayHeader(strings.length);
    for (const text of strings) writer.str(text);
  } else {
    const halves = (value as { toJSON(): HandleJson }).toJSON();
    writeHalves(writer, halves.hi, halves.lo);
  }
}

function isValid(value: unknown, kind: FieldKind): boolean {
  switch (kind) {
    case 'u64': {
      const integer = toInteger(value);
      return integer !== undefined && isU64(integer);
    }
    case 'millis':
      return isUint(value, Number.MAX_SAFE_INTEGER);
    case 'u32':
      return isUint(value, MAX_U32);
    case 'u16':
      return isUint(value, MAX_U16);
    case 'boolean':
      return typeof value === 'boolean';
    case 'string':
      return typeof value === 'string';
    case 'strings':
      return Array.isArray(value) && value.every((item) => typeof item === 'string');
    case 'anchorHandle':
      return value instanceof StreamAnchorHandle;
    case 'cancelHandle':
      return value instanceof StreamCancelHandle;
    case 'dataHandle':
      return value instanceof DataHandle;
    default:
      return unknownKind(kind);
  }
}

function isUint(value: unknown, max: number): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= max;
}

function capped(value: bigint): number {
  return value > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(value);
}

/** Runs `read` and turns any coded error into one that names where it happened. */
function guarded<R>(where: string, read: () => R): R {
  try {
    return read();
  } catch (cause) {
    if (!VeloError.is(cause) || cause.code === 'ERR_BAD_CONTROL_MESSAGE') throw cause;
    throw new VeloError('ERR_BAD_CONTROL_MESSAGE', `${where}: ${cause.message}`, { cause });
  }
}

function badField(what: string, field: string, message: string): VeloError {
  return new VeloError('ERR_BAD_CONTROL_MESSAGE', `${what}.${field} ${message}`);
}

function unknownKind(kind: never): never {
  throw new VeloError('ERR_INTERNAL', `field kind ${String(kind)}`);
}
