// Reply plans into frames. The bytes of a result are copied, so that nothing of the application's memory stays behind. It
// must never decide what to answer: that is the plan.

import { encodeAckHeader, encodeResponseHeader, RESPONSE_FIXED_LEN } from '../wire/envelope.js';
import type { ResponseId } from '../wire/response-id.js';
import {
  encodeFrame,
  FRAME_ACK,
  FRAME_RESPONSE,
  FRAME_SHUTTING_DOWN,
  MAX_FRAME_BODY,
  PREAMBLE_LEN,
  writePreamble,
} from '../wire/transport-frame.js';
import { decodeUtf8, encodeUtf8 } from '../wire/utf8.js';
import type { ReplyPlan } from './dispatch-plan.js';

/** Longest error text that goes out, in bytes. A longer one is cut: it is for people. */
export const MAX_ERROR_TEXT_BYTES = 65_536;
/** What an error text that is not UTF-8 reads as. */
export const UNKNOWN_ERROR_TEXT = 'unknown error';

const NO_BYTES = new Uint8Array(0);
const CONTINUATION_MASK = 0xc0;
const CONTINUATION_BITS = 0x80;

function errorBytes(text: string): Uint8Array {
  const bytes = encodeUtf8(text);
  if (bytes.length <= MAX_ERROR_TEXT_BYTES) return bytes;
  let end = MAX_ERROR_TEXT_BYTES;
  while (((bytes[end] as number) & CONTINUATION_MASK) === CONTINUATION_BITS) end -= 1;
  return bytes.subarray(0, end);
}

/** The error text of a response or nack. */
export function decodeErrorText(buffer: Uint8Array, offset: number, length: number): string {
  return decodeUtf8(buffer, offset, offset + length) ?? UNKNOWN_ERROR_TEXT;
}

/**
 * The frame that carries `plan` to the requester that `id` names; `undefined` when nothing goes back. A result too large
 * for one frame becomes an error response. `map` is the request's raw header map, for a response that echoes it.
 *
 * A `shuttingDown` plan needs the request's own bytes: see {@link encodeShuttingDown}; here it gives `undefined`.
 */
export function encodeReply(plan: ReplyPlan, id: ResponseId, map: Uint8Array = NO_BYTES): Uint8Array | undefined {
  switch (plan.reply) {
    case 'none':
    case 'shuttingDown':
      return undefined;
    case 'ack':
      return encodeFrame(FRAME_ACK, encodeAckHeader(id, true), NO_BYTES);
    case 'nack':
      return encodeFrame(FRAME_ACK, encodeAckHeader(id, false), errorBytes(plan.text));
    case 'responseError':
      return encodeFrame(FRAME_RESPONSE, encodeResponseHeader(id, false, map), errorBytes(plan.text));
    case 'response': {
      const bytes = plan.bytes ?? NO_BYTES;
      const room = MAX_FRAME_BODY - RESPONSE_FIXED_LEN - map.length;
      if (bytes.length <= room) return encodeFrame(FRAME_RESPONSE, encodeResponseHeader(id, true, map), bytes);
      const text = `Handler failed: result of ${bytes.length} bytes is larger than the ${room} that fit a response`;
      return encodeFrame(FRAME_RESPONSE, encodeResponseHeader(id, false, map), encodeUtf8(text));
    }
    default: {
      const never: never = plan;
      return never;
    }
  }
}

/** The echo of a draining node: the header of the refused request as it came, and no payload. */
export function encodeShuttingDown(buffer: Uint8Array, headerOffset: number, headerLength: number): Uint8Array {
  const frame = new Uint8Array(PREAMBLE_LEN + headerLength);
  writePreamble(frame, 0, FRAME_SHUTTING_DOWN, headerLength, 0);
  frame.set(buffer.subarray(headerOffset, headerOffset + headerLength), PREAMBLE_LEN);
  return frame;
}
