// Header maps: MessagePack string → string beside a request or response. Owns their encoding and their limits; it must never act on a
// header.

import { VeloError } from '../errors.js';
import { MsgpackReader, MsgpackWriter } from './msgpack.js';
import { encodeUtf8 } from './utf8.js';

/** Longest value a sender may write, in bytes. Keys have no limit of their own. */
export const MAX_HEADER_VALUE_BYTES = 1024;
/** Longest whole map of a request, in bytes. */
export const MAX_REQUEST_MAP_BYTES = 16_384;

/**
 * Encodes headers for a request. No entries make the one-byte empty map, which a peer can tell from no map at all.
 *
 * @throws VeloError `ERR_INVALID_ARGUMENT` naming the header that is too long, or for a map that is.
 */
export function encodeHeaderMap(headers: Iterable<readonly [string, string]>): Uint8Array {
  const entries = [...headers];
  const writer = new MsgpackWriter();
  writer.mapHeader(entries.length);
  for (const [key, value] of entries) {
    const bytes = encodeUtf8(value).length;
    if (bytes > MAX_HEADER_VALUE_BYTES) {
      throw new VeloError(
        'ERR_INVALID_ARGUMENT',
        `header '${key}' has ${bytes} bytes, at most ${MAX_HEADER_VALUE_BYTES}`,
      );
    }
    writer.str(key).str(value);
  }
  if (writer.length > MAX_REQUEST_MAP_BYTES) {
    throw new VeloError(
      'ERR_INVALID_ARGUMENT',
      `headers take ${writer.length} bytes, at most ${MAX_REQUEST_MAP_BYTES}`,
    );
  }
  return writer.finish();
}

/** @throws VeloError `ERR_BAD_ENVELOPE` when the bytes are not one map of strings. */
export function decodeHeaderMap(buffer: Uint8Array, offset: number, length: number): ReadonlyMap<string, string> {
  try {
    const reader = new MsgpackReader(buffer, offset, offset + length);
    const count = reader.mapHeader();
    const headers = new Map<string, string>();
    for (let i = 0; i < count; i++) {
      const key = reader.str();
      headers.set(key, reader.str());
    }
    // bytes after the map are ignored, as the peers do
    return headers;
  } catch (cause) {
    if (!VeloError.is(cause)) throw cause;
    throw new VeloError('ERR_BAD_ENVELOPE', `header map: ${cause.message}`, { cause });
  }
}
