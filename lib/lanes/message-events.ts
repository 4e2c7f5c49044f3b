// What lanes say to the messenger's side of a client thread: reads the body of an event and calls whoever hears it. It must never keep
// anything, and the bytes it is given are the ring's or a parcel's: what is handed on is a private copy.

import { VeloError } from '../errors.js';
import {
  decodeHelloEvent,
  decodeOutcome,
  decodeText,
  EV_ADMITTED,
  EV_DIAGNOSTIC,
  EV_FRAME,
  EV_FRAME_FAILED,
  EV_HELLO,
  EV_MARK,
  EV_STREAMS,
  EV_UNSTAGED,
  FRAME_HEAD_BYTES,
  RESPONSE_ID_BYTES,
  readU32,
} from './commands.js';
import type { SocketInfo } from './socket-info.js';

/** What the messenger's side of the client thread hears. */
export interface MessageEvents {
  /** A transport frame for this thread. `frame` is a private copy: header, then payload. */
  frame(type: number, frame: Uint8Array, headerLength: number, lane: number): void;
  /** A `_hello` request, and the socket it came in on. `token` names that socket to its lane, until it is answered. */
  hello(frame: Uint8Array, headerLength: number, socket: SocketInfo, token: number): void;
  /** A frame that waited for admission was admitted, or failed. */
  admitted(token: number, error: VeloError | undefined): void;
  /** An admitted frame was not written. `responseId` is that of its header. */
  frameFailed(type: number, responseId: Uint8Array, error: VeloError): void;
  /** The lane let go of a staged or registered payload. */
  unstaged(id: number): void;
  /** The lane sent a mark back. */
  marked(lane: number): void;
  /** A piece of the report on live streams that was asked for with this token: JSON. */
  streams?(lane: number, token: number, report: string): void;
  /** An event for whoever observes: JSON. */
  diagnostic?(lane: number, event: string): void;
  laneDied(lane: number, error: VeloError): void;
  /** What came from the lane makes no sense: it must end. Its death follows. */
  laneBroken(lane: number, error: VeloError): void;
}

/**
 * One event of `lane`; `kind` is without its parcel mark.
 *
 * @throws VeloError `ERR_CONDUIT_BROKEN` for a kind that no lane sends.
 */
export function tellMessages(
  messages: MessageEvents,
  lane: number,
  kind: number,
  tag: number,
  bytes: Uint8Array,
  offset: number,
  length: number,
): void {
  switch (kind) {
    case EV_FRAME: {
      // A parcel is ours alone, the ring is not.
      const shared = bytes.buffer instanceof SharedArrayBuffer;
      const at = offset + FRAME_HEAD_BYTES;
      const frame = shared ? bytes.slice(at, offset + length) : bytes.subarray(at, offset + length);
      messages.frame(tag, frame, readU32(bytes, offset), lane);
      return;
    }
    case EV_HELLO: {
      const { frame, headerLength, ends } = decodeHelloEvent(bytes, offset, length);
      messages.hello(frame, headerLength, { ...ends, lane }, tag >>> 0);
      return;
    }
    case EV_ADMITTED:
      messages.admitted(tag >>> 0, decodeOutcome(decodeText(bytes, offset, length)));
      return;
    case EV_FRAME_FAILED: {
      const text = decodeText(bytes, offset + RESPONSE_ID_BYTES, length - RESPONSE_ID_BYTES);
      const error = decodeOutcome(text) ?? new VeloError('ERR_CONNECTION_CLOSED', 'the frame was not written');
      messages.frameFailed(tag, bytes.slice(offset, offset + RESPONSE_ID_BYTES), error);
      return;
    }
    case EV_UNSTAGED:
      messages.unstaged(tag >>> 0);
      return;
    case EV_MARK:
      messages.marked(lane);
      return;
    case EV_STREAMS:
      messages.streams?.(lane, tag >>> 0, decodeText(bytes, offset, length));
      return;
    case EV_DIAGNOSTIC:
      messages.diagnostic?.(lane, decodeText(bytes, offset, length));
      return;
    default:
      throw new VeloError('ERR_CONDUIT_BROKEN', `lane ${lane} sent a record of kind ${kind}`);
  }
}
