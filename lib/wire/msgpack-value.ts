// Any plain value as MessagePack with minimal widths, as rmp-serde writes it. Owns the mapping from JavaScript types; it
// must never write an extension, which the peers cannot read.

import { VeloError } from '../errors.js';
import type { MsgpackWriter } from './msgpack.js';
import { MAX_MSGPACK_DEPTH } from './msgpack-scan.js';

/**
 * Appends `value`. Safe integers and bigints of 64 bits are integers, other numbers float64; undefined is nil; Set and
 * Array are arrays, Map and other objects maps, byte views and buffers bin; an object's toJSON is honoured.
 *
 * @throws VeloError `ERR_SERIALIZATION` for functions, symbols, wider bigints, and nesting beyond the depth limit.
 */
export function writeMsgpackValue(writer: MsgpackWriter, value: unknown, depth = 0): void {
  switch (typeof value) {
    case 'undefined':
      writer.nil();
      return;
    case 'boolean':
      writer.bool(value);
      return;
    case 'number':
      // a negative zero is an integer too: a Rust integer field would refuse the float
      if (Number.isSafeInteger(value)) writer.int(value);
      else writer.float64(value);
      return;
    case 'bigint':
      writer.int(value);
      return;
    case 'string':
      writer.str(value);
      return;
    case 'object':
      if (value === null) writer.nil();
      else writeObject(writer, value, depth);
      return;
    default:
      throw new VeloError('ERR_SERIALIZATION', `a ${typeof value} has no MessagePack form`);
  }
}

function writeObject(writer: MsgpackWriter, value: object, depth: number): void {
  if (value instanceof Uint8Array) writer.bin(value);
  else if (value instanceof ArrayBuffer) writer.bin(new Uint8Array(value));
  else if (ArrayBuffer.isView(value)) writer.bin(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
  else if (depth >= MAX_MSGPACK_DEPTH) {
    throw new VeloError('ERR_SERIALIZATION', 'value is nested too deeply or holds itself');
  } else writeContainer(writer, value, depth + 1);
}

function writeContainer(writer: MsgpackWriter, value: object, depth: number): void {
  if (Array.isArray(value)) {
    writer.arrayHeader(value.length);
    for (let i = 0; i < value.length; i++) writeMsgpackValue(writer, value[i], depth);
  } else if (value instanceof Set) {
    writer.arrayHeader(value.size);
    for (const item of value) writeMsgpackValue(writer, item, depth);
  } else if (value instanceof Map) {
    writer.mapHeader(value.size);
    for (const [key, item] of value) {
      writeMsgpackValue(writer, key, depth);
      writeMsgpackValue(writer, item, depth);
    }
  } else if ('toJSON' in value && typeof value.toJSON === 'function') {
    writeMsgpackValue(writer, value.toJSON(), depth);
  } else {
    const entries = Object.entries(value);
    writer.mapHeader(entries.length);
    for (const [key, item] of entries) {
      writer.str(key);
      writeMsgpackValue(writer, item, depth);
    }
  }
}
