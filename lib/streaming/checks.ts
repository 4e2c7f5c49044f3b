// What an application hands to anchors and senders, checked where it comes in: a wrong value is a coded error there, before anything
// of the stream was touched.

import { VeloError } from '../errors.js';
import { isU64 } from '../wire/bytes.js';
import { CheckedCodec, type ItemCodec, isOwnCodec, msgpackCodec } from '../wire/codec.js';
import { StreamAnchorHandle } from '../wire/handle.js';

/** Options of `createAnchor` and `attachAnchor`. */
export const ANCHOR_FIELDS: ReadonlySet<string> = new Set(['codec', 'heartbeatIntervalMs', 'unattachedTimeoutMs']);
export const ATTACH_FIELDS: ReadonlySet<string> = new Set(['codec', 'key', 'signal']);

function invalid(field: string, expected: string): VeloError {
  return new VeloError('ERR_INVALID_ARGUMENT', `${field}: expected ${expected}`);
}

/** An option that is misspelt must not be taken for its default. */
export function checkFields(of: string, given: object, known: ReadonlySet<string>): void {
  if (typeof given !== 'object' || given === null) throw invalid(of, 'an object');
  for (const field of Object.keys(given)) if (!known.has(field)) throw invalid(`${of}.${field}`, 'no such option');
}

export function checkSignal(given: AbortSignal | undefined): void {
  if (given === undefined) return;
  const { aborted, addEventListener } = Object(given) as Partial<AbortSignal>;
  if (typeof aborted !== 'boolean' || typeof addEventListener !== 'function') throw invalid('signal', 'an AbortSignal');
}

/** A handle, also one of another copy of this package. */
export function handleOf(given: StreamAnchorHandle): StreamAnchorHandle {
  if (given instanceof StreamAnchorHandle) return given;
  const { worker, local } = Object(given) as Partial<StreamAnchorHandle>;
  if (typeof worker !== 'bigint' || typeof local !== 'bigint')
    throw invalid('handle', 'a StreamAnchorHandle; StreamAnchorHandle.fromJSON makes one of {hi, lo}');
  return new StreamAnchorHandle(worker, local);
}

/** The codec to use. One that this package did not make is watched. */
export function codecOf<T>(given: ItemCodec<T> | undefined): ItemCodec<T> {
  if (given === undefined) return msgpackCodec<T>();
  if (isOwnCodec(given)) return given;
  const { encode, decode } = Object(given) as Partial<ItemCodec<T>>;
  if (typeof encode !== 'function' || typeof decode !== 'function') throw invalid('codec', 'an ItemCodec');
  return new CheckedCodec(given);
}

/** A placement hint: a u64. */
export function checkKey(given: bigint | undefined): void {
  if (given !== undefined && !(typeof given === 'bigint' && isU64(given)))
    throw invalid('key', 'a bigint from 0 to 2^64-1');
}

export function checkText(field: string, given: string): void {
  if (typeof given !== 'string') throw invalid(field, 'a string');
}
