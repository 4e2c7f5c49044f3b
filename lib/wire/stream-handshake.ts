// The first 16 bytes of a per-stream connection: which anchor, which session (streaming specification §5.2). Owns their
// layout only; no answer to it exists on the wire.

import { VeloError } from '../errors.js';
import { readU32BE, u64From, u64High, u64Low, writeU32BE } from './bytes.js';

export const STREAM_HANDSHAKE_LEN = 16;
const OFFSET_SESSION = 8;

export interface StreamHandshake {
  /** The anchor's 64-bit local id, with its MPSC bit. */
  readonly anchorId: bigint;
  readonly routingSessionId: bigint;
}

export function encodeStreamHandshake(handshake: StreamHandshake): Uint8Array {
  const bytes = new Uint8Array(STREAM_HANDSHAKE_LEN);
  writeU32BE(bytes, 0, u64High(handshake.anchorId));
  writeU32BE(bytes, 4, u64Low(handshake.anchorId));
  writeU32BE(bytes, OFFSET_SESSION, u64High(handshake.routingSessionId));
  writeU32BE(bytes, OFFSET_SESSION + 4, u64Low(handshake.routingSessionId));
  return bytes;
}

/** @throws VeloError `ERR_BAD_FRAME` when there are fewer than 16 bytes. */
export function decodeStreamHandshake(bytes: Uint8Array): StreamHandshake {
  if (bytes.length < STREAM_HANDSHAKE_LEN) {
    throw new VeloError('ERR_BAD_FRAME', `stream handshake of ${bytes.length} bytes`);
  }
  return {
    anchorId: u64From(readU32BE(bytes, 0), readU32BE(bytes, 4)),
    routingSessionId: u64From(readU32BE(bytes, OFFSET_SESSION), readU32BE(bytes, OFFSET_SESSION + 4)),
  };
}
