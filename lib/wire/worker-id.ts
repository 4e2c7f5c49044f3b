// Instance ids (UUIDs) and the worker id derived from them. Owns their text, byte and hash forms; it must never draw
// random numbers itself, and never hand out an instance whose worker id is zero.

import { VeloError } from '../errors.js';
import { xxh3 } from './xxh3.js';

export const INSTANCE_ID_LEN = 16;

const HEX_DIGITS = '0123456789abcdef';
/** Byte indices before which the text form has a hyphen. */
const HYPHEN_BEFORE: ReadonlySet<number> = new Set([4, 6, 8, 10]);
const UUID_TEXT = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$|^[0-9a-f]{32}$/;
const URN_PREFIX = 'urn:uuid:';
/** Bytes with the version nibble (4) and the variant bits (10). */
const VERSION_BYTE = 6;
const VARIANT_BYTE = 8;
/** A source that keeps producing ids with worker id zero is broken; chance needs 2^64 tries. */
const MAX_GENERATE_TRIES = 16;

/** The worker id of an instance: XXH3-64 of its 16 bytes. Zero is not a valid id. */
export function workerIdOf(instance: Uint8Array | string): bigint {
  const bytes = typeof instance === 'string' ? parseInstanceId(instance) : instance;
  if (bytes.length !== INSTANCE_ID_LEN) throw new VeloError('ERR_INVALID_ARGUMENT', 'an instance id has 16 bytes');
  return xxh3(bytes);
}

/**
 * Reads a UUID in any usual spelling (hyphens or none, upper case, braces, `urn:uuid:`) into network-order bytes.
 *
 * @throws VeloError `ERR_BAD_ADDRESS` for anything else.
 */
export function parseInstanceId(text: string): Uint8Array {
  let core = text.toLowerCase();
  if (core.startsWith(URN_PREFIX)) core = core.slice(URN_PREFIX.length);
  else if (core.startsWith('{') && core.endsWith('}')) core = core.slice(1, -1);
  if (!UUID_TEXT.test(core)) throw new VeloError('ERR_BAD_ADDRESS', 'instance id is not a UUID');
  const digits = core.replaceAll('-', '');
  const bytes = new Uint8Array(INSTANCE_ID_LEN);
  for (let i = 0; i < INSTANCE_ID_LEN; i++) bytes[i] = Number.parseInt(digits.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}

/** The text form: lower case, hyphenated, 36 characters. */
export function formatInstanceId(bytes: Uint8Array): string {
  if (bytes.length !== INSTANCE_ID_LEN) throw new VeloError('ERR_INVALID_ARGUMENT', 'an instance id has 16 bytes');
  let text = '';
  for (let i = 0; i < INSTANCE_ID_LEN; i++) {
    if (HYPHEN_BEFORE.has(i)) text += '-';
    const byte = bytes[i]!;
    text += HEX_DIGITS.charAt(byte >>> 4) + HEX_DIGITS.charAt(byte & 0x0f);
  }
  return text;
}

/**
 * Mints an instance id (UUID version 4) whose worker id is not zero. `randomBytes` must return 16 fresh random bytes at
 * each call.
 */
export function generateInstanceId(randomBytes: (length: number) => Uint8Array): string {
  for (let tries = 0; tries < MAX_GENERATE_TRIES; tries++) {
    const bytes = randomBytes(INSTANCE_ID_LEN).slice(0, INSTANCE_ID_LEN);
    if (bytes.length !== INSTANCE_ID_LEN) break;
    bytes[VERSION_BYTE] = (bytes[VERSION_BYTE]! & 0x0f) | 0x40;
    bytes[VARIANT_BYTE] = (bytes[VARIANT_BYTE]! & 0x3f) | 0x80;
    if (workerIdOf(bytes) !== 0n) return formatInstanceId(bytes);
  }
  throw new VeloError('ERR_INVALID_ARGUMENT', 'randomBytes does not return 16 random bytes');
}
