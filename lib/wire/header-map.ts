// Header maps: MessagePack string → string beside a request or response. Owns their encoding, their limits, and the text
// forms of the two keys the system itself writes; it must never act on a header.

import { VeloError } from '../errors.js';
import { MAX_U32, MAX_U64 } from './bytes.js';
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

/** What a staged single-record batch says about its record: the sender's epoch, the full slot id, the routing session. */
export interface MuxSlotHeader {
  readonly epoch: bigint;
  readonly slot: number;
  readonly session: bigint;
}

const MUX_SLOT_PATTERN = /^([0-9]{1,20}):([0-9]{1,10}):([0-9]{1,20})$/;

/** Text of the `_mux_slot` header: three decimal numbers (streaming specification §6.7). */
export function formatMuxSlot(header: MuxSlotHeader): string {
  return `${header.epoch}:${header.slot}:${header.session}`;
}

/** Undefined for any other text: a header nobody understands is ignored, not refused. */
export function parseMuxSlot(text: string): MuxSlotHeader | undefined {
  const match = MUX_SLOT_PATTERN.exec(text);
  if (match === null) return undefined;
  const epoch = BigInt(match[1]!);
  const slot = Number(match[2]!);
  const session = BigInt(match[3]!);
  if (epoch > MAX_U64 || session > MAX_U64 || slot > MAX_U32) return undefined;
  return { epoch, slot, session };
}
