// Typed reads of the members of a parsed JSON object, with errors that name the member. Owns the checks; it must never
// guess: a number that has lost bits is refused, not rounded.

import { type ErrorCode, VeloError } from '../errors.js';
import { isU64, MAX_U16, MAX_U32 } from './bytes.js';

/** Reads the members of one object; every error carries `code` and names `what` and the member. */
export class JsonFields {
  private readonly object: Readonly<Record<string, unknown>>;
  private readonly what: string;
  private readonly code: ErrorCode;

  /** @throws VeloError `code` when `value` is not an object. */
  constructor(value: unknown, what: string, code: ErrorCode = 'ERR_BAD_CONTROL_MESSAGE') {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new VeloError(code, `${what}: expected an object, found ${kindOf(value)}`);
    }
    this.object = value as Readonly<Record<string, unknown>>;
    this.what = what;
    this.code = code;
  }

  has(field: string): boolean {
    return Object.hasOwn(this.object, field);
  }

  /** The raw member, undefined when absent. */
  get(field: string): unknown {
    return Object.hasOwn(this.object, field) ? this.object[field] : undefined;
  }

  u64(field: string): bigint {
    return this.integer(field, 64);
  }

  u32(field: string): number {
    return Number(this.integer(field, 32));
  }

  u16(field: string): number {
    return Number(this.integer(field, 16));
  }

  string(field: string): string {
    const value = this.get(field);
    if (typeof value !== 'string') throw this.bad(field, 'a string', value);
    return value;
  }

  boolean(field: string): boolean {
    const value = this.get(field);
    if (typeof value !== 'boolean') throw this.bad(field, 'a boolean', value);
    return value;
  }

  strings(field: string): string[] {
    const value = this.get(field);
    if (!Array.isArray(value)) throw this.bad(field, 'an array of strings', value);
    return value.map((item: unknown) => {
      if (typeof item !== 'string') throw this.bad(field, 'an array of strings', item);
      return item;
    });
  }

  /** An array of numbers 0..255. */
  bytes(field: string): Uint8Array {
    const value = this.get(field);
    if (!Array.isArray(value)) throw this.bad(field, 'an array of byte numbers', value);
    const bytes = new Uint8Array(value.length);
    for (let i = 0; i < value.length; i++) {
      const byte: unknown = value[i];
      if (typeof byte !== 'number' || !Number.isInteger(byte) || byte < 0 || byte > 0xff) {
        throw this.bad(field, 'an array of byte numbers', byte);
      }
      bytes[i] = byte;
    }
    return bytes;
  }

  /** The members of an object inside this one. */
  nested(field: string): JsonFields {
    return new JsonFields(this.get(field), `${this.what}.${field}`, this.code);
  }

  private integer(field: string, bits: 16 | 32 | 64): bigint {
    const value = this.get(field);
    const integer = toInteger(value);
    const max = bits === 16 ? BigInt(MAX_U16) : BigInt(MAX_U32);
    if (integer === undefined || !isU64(integer) || (bits !== 64 && integer > max)) {
      throw this.bad(field, `a u${bits}`, value);
    }
    return integer;
  }

  private bad(field: string, expected: string, value: unknown): VeloError {
    const found = value === undefined ? 'nothing' : kindOf(value);
    return new VeloError(this.code, `${this.what}.${field}: expected ${expected}, found ${found}`);
  }
}

/** A bigint or a safe integer as a bigint, else undefined: a larger number has already lost bits. */
export function toInteger(value: unknown): bigint | undefined {
  if (typeof value === 'bigint') return value;
  return typeof value === 'number' && Number.isSafeInteger(value) ? BigInt(value) : undefined;
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  if (typeof value === 'number' || typeof value === 'bigint') return `${value}`;
  return `a value of type ${typeof value}`;
}
