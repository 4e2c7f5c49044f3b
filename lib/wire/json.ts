// JSON that keeps 64-bit integers: integers beyond 2^53−1 are bigints on the way in, and bigints are integers on the way
// out. Owns text ↔ value and nothing of any message; it must never round a number of a handle, recurse without a bound,
// or let a key reach a prototype.

import { VeloError } from '../errors.js';
import { decodeUtf8, encodeUtf8 } from './utf8.js';

/** Any value JSON can hold, with integers beyond 2^53−1 as bigint. */
export type JsonValue = null | boolean | number | bigint | string | JsonValue[] | JsonObject;
export interface JsonObject {
  [key: string]: JsonValue;
}

/** Deepest nesting accepted and written. */
export const MAX_JSON_DEPTH = 128;
/** Longest integer literal, in digits: making a bigint costs more than linear time. */
export const MAX_JSON_INTEGER_DIGITS = 4096;

/** Integers of up to this many digits are always safe numbers. */
const SAFE_DIGITS = 15;

const CODE_TAB = 0x09;
const CODE_LF = 0x0a;
const CODE_CR = 0x0d;
const CODE_SPACE = 0x20;
const CODE_QUOTE = 0x22;
const CODE_PLUS = 0x2b;
const CODE_COMMA = 0x2c;
const CODE_MINUS = 0x2d;
const CODE_DOT = 0x2e;
const CODE_0 = 0x30;
const CODE_9 = 0x39;
const CODE_COLON = 0x3a;
const CODE_UPPER_E = 0x45;
const CODE_OPEN_BRACKET = 0x5b;
const CODE_BACKSLASH = 0x5c;
const CODE_CLOSE_BRACKET = 0x5d;
const CODE_E = 0x65;
const CODE_F = 0x66;
const CODE_N = 0x6e;
const CODE_T = 0x74;
const CODE_U = 0x75;
const CODE_OPEN_BRACE = 0x7b;
const CODE_CLOSE_BRACE = 0x7d;

const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  '\\': '\\',
  '/': '/',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};
const HEX4 = /^[0-9a-fA-F]{4}$/;

/**
 * Parses one JSON document. Of duplicate keys the last wins. Bytes must be UTF-8; no bytes at all read as `null`, the
 * payload of a request that has none.
 *
 * @throws VeloError `ERR_BAD_JSON`, with the position.
 */
export function parseJson(source: string | Uint8Array): JsonValue {
  if (typeof source === 'string') return new JsonParser(source).document();
  if (source.length === 0) return null;
  const text = decodeUtf8(source, 0, source.length);
  if (text === undefined) throw new VeloError('ERR_BAD_JSON', 'text is not UTF-8');
  return new JsonParser(text).document();
}

/**
 * Writes a value as compact JSON. `toJSON` is honoured, undefined members are left out, numbers that are not finite
 * become `null`: as JSON.stringify does, except that a bigint is an integer and an unwritable top value is `null`.
 *
 * @throws VeloError `ERR_BAD_JSON` when the value is nested too deeply or holds itself.
 */
export function stringifyJson(value: unknown): string {
  return write(value, '', 0) ?? 'null';
}

/** {@link stringifyJson} as UTF-8. */
export function encodeJson(value: unknown): Uint8Array {
  return encodeUtf8(stringifyJson(value));
}

class JsonParser {
  private readonly text: string;
  private at = 0;

  constructor(text: string) {
    this.text = text;
  }

  document(): JsonValue {
    const value = this.value(0);
    this.space();
    if (this.at < this.text.length) throw this.bad('text after the value');
    return value;
  }

  private value(depth: number): JsonValue {
    this.space();
    const code = this.text.charCodeAt(this.at);
    switch (code) {
      case CODE_OPEN_BRACE:
        return this.object(depth + 1);
      case CODE_OPEN_BRACKET:
        return this.array(depth + 1);
      case CODE_QUOTE:
        return this.string();
      case CODE_T:
        return this.word('true', true);
      case CODE_F:
        return this.word('false', false);
      case CODE_N:
        return this.word('null', null);
      default:
        return this.number(code);
    }
  }

  private object(depth: number): JsonObject {
    if (depth > MAX_JSON_DEPTH) throw this.bad('nested too deeply');
    const object: JsonObject = {};
    this.at += 1;
    this.space();
    if (this.take(CODE_CLOSE_BRACE)) return object;
    for (;;) {
      this.space();
      if (this.text.charCodeAt(this.at) !== CODE_QUOTE) throw this.bad('expected a key');
      const key = this.string();
      this.space();
      if (!this.take(CODE_COLON)) throw this.bad("expected ':'");
      setOwn(object, key, this.value(depth));
      this.space();
      if (this.take(CODE_CLOSE_BRACE)) return object;
      if (!this.take(CODE_COMMA)) throw this.bad("expected ',' or '}'");
    }
  }

  private array(depth: number): JsonValue[] {
    if (depth > MAX_JSON_DEPTH) throw this.bad('nested too deeply');
    const array: JsonValue[] = [];
    this.at += 1;
    this.space();
    if (this.take(CODE_CLOSE_BRACKET)) return array;
    for (;;) {
      array.push(this.value(depth));
      this.space();
      if (this.take(CODE_CLOSE_BRACKET)) return array;
      if (!this.take(CODE_COMMA)) throw this.bad("expected ',' or ']'");
    }
  }

  private string(): string {
    const text = this.text;
    const start = this.at + 1;
    let at = start;
    for (;;) {
      const code = text.charCodeAt(at);
      if (code === CODE_QUOTE) {
        this.at = at + 1;
        return text.slice(start, at);
      }
      if (code === CODE_BACKSLASH) return this.escaped(start, at);
      if (!(code >= CODE_SPACE)) throw this.badAt(at, 'string is not closed');
      at += 1;
    }
  }

  /** The rest of a string from its first backslash, at `at`. */
  private escaped(start: number, at: number): string {
    const text = this.text;
    let result = text.slice(start, at);
    let from = at;
    for (;;) {
      const code = text.charCodeAt(at);
      if (code === CODE_QUOTE) {
        this.at = at + 1;
        return result + text.slice(from, at);
      }
      if (code === CODE_BACKSLASH) {
        result += text.slice(from, at);
        if (text.charCodeAt(at + 1) === CODE_U) {
          const hex = text.slice(at + 2, at + 6);
          if (!HEX4.test(hex)) throw this.badAt(at, 'bad escape');
          result += String.fromCharCode(Number.parseInt(hex, 16));
          at += 6;
        } else {
          const character = ESCAPES[text.charAt(at + 1)];
          if (character === undefined) throw this.badAt(at, 'bad escape');
          result += character;
          at += 2;
        }
        from = at;
        continue;
      }
      if (!(code >= CODE_SPACE)) throw this.badAt(at, 'string is not closed');
      at += 1;
    }
  }

  private number(first: number): number | bigint {
    const text = this.text;
    const start = this.at;
    let at = start;
    if (first === CODE_MINUS) at += 1;
    const digitsFrom = at;
    at = this.digits(at);
    const digits = at - digitsFrom;
    if (digits === 0) throw this.bad('expected a value');
    if (digits > 1 && text.charCodeAt(digitsFrom) === CODE_0) throw this.bad('number with a leading zero');
    let integer = true;
    if (text.charCodeAt(at) === CODE_DOT) {
      integer = false;
      at = this.someDigits(at + 1);
    }
    let code = text.charCodeAt(at);
    if (code === CODE_E || code === CODE_UPPER_E) {
      integer = false;
      code = text.charCodeAt(at + 1);
      at = this.someDigits(code === CODE_PLUS || code === CODE_MINUS ? at + 2 : at + 1);
    }
    this.at = at;
    const literal = text.slice(start, at);
    if (!integer || digits <= SAFE_DIGITS) return Number(literal);
    if (digits > MAX_JSON_INTEGER_DIGITS) throw this.badAt(start, `integer of ${digits} digits`);
    const number = Number(literal);
    return Number.isSafeInteger(number) ? number : BigInt(literal);
  }

  private digits(at: number): number {
    for (;;) {
      const code = this.text.charCodeAt(at);
      if (!(code >= CODE_0 && code <= CODE_9)) return at;
      at += 1;
    }
  }

  private someDigits(at: number): number {
    const end = this.digits(at);
    if (end === at) throw this.badAt(at, 'expected a digit');
    return end;
  }

  private word<T extends JsonValue>(word: string, value: T): T {
    if (!this.text.startsWith(word, this.at)) throw this.bad('expected a value');
    this.at += word.length;
    return value;
  }

  private take(code: number): boolean {
    if (this.text.charCodeAt(this.at) !== code) return false;
    this.at += 1;
    return true;
  }

  private space(): void {
    for (;;) {
      const code = this.text.charCodeAt(this.at);
      if (code !== CODE_SPACE && code !== CODE_LF && code !== CODE_CR && code !== CODE_TAB) return;
      this.at += 1;
    }
  }

  private bad(message: string): VeloError {
    return this.badAt(this.at, message);
  }

  private badAt(at: number, message: string): VeloError {
    return new VeloError('ERR_BAD_JSON', `${message} at position ${at}`);
  }
}

/** Sets an own property, also for the one key whose plain assignment would set a prototype. */
function setOwn(object: JsonObject, key: string, value: JsonValue): void {
  if (key === '__proto__') {
    Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  } else {
    object[key] = value;
  }
}

/** Undefined when the value has no JSON form. */
function write(input: unknown, key: string, depth: number): string | undefined {
  const value = simplified(input, key);
  switch (typeof value) {
    case 'string':
      return JSON.stringify(value);
    case 'number':
      return Number.isFinite(value) ? String(Object.is(value, -0) ? 0 : value) : 'null';
    case 'bigint':
      return value.toString();
    case 'boolean':
      return value ? 'true' : 'false';
    case 'object':
      if (value === null) return 'null';
      if (depth >= MAX_JSON_DEPTH) throw new VeloError('ERR_BAD_JSON', 'value is nested too deeply or holds itself');
      return Array.isArray(value) ? writeArray(value, depth + 1) : writeObject(value, depth + 1);
    default:
      return undefined;
  }
}

function writeArray(array: readonly unknown[], depth: number): string {
  let text = '[';
  for (let i = 0; i < array.length; i++) {
    if (i > 0) text += ',';
    text += write(array[i], String(i), depth) ?? 'null';
  }
  return `${text}]`;
}

function writeObject(object: object, depth: number): string {
  let text = '{';
  for (const [key, member] of Object.entries(object)) {
    const written = write(member, key, depth);
    if (written === undefined) continue;
    if (text.length > 1) text += ',';
    text += `${JSON.stringify(key)}:${written}`;
  }
  return `${text}}`;
}

/** Applies `toJSON` and unwraps boxed primitives. */
function simplified(input: unknown, key: string): unknown {
  if (typeof input !== 'object' || input === null) return input;
  let value: unknown = input;
  if ('toJSON' in input && typeof input.toJSON === 'function') value = input.toJSON(key);
  if (value instanceof Number || value instanceof String || value instanceof Boolean || value instanceof BigInt) {
    return value.valueOf();
  }
  return value;
}
