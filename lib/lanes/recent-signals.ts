// The cancels by message that a lane has written to a peer of late. A connection that is lost takes with it what was written last, and
// a sender without credit whose slot the peer never saw opened hears of nothing else. Saying it again is harmless, because it names the
// sender. Owns which are remembered, and for how long; it must never write one.

import { readU32BE } from '../wire/bytes.js';
import { handlerIs, RESPONSE_NONE, RESPONSE_TYPE_OFFSET } from '../wire/envelope.js';
import { HANDLER_STREAM_CANCEL } from '../wire/names.js';
import { FRAME_MESSAGE, PREAMBLE_LEN } from '../wire/transport-frame.js';
import { encodeUtf8 } from '../wire/utf8.js';
import { OutFrame } from './out-frame.js';

/** Cancels that are remembered per peer; the oldest go first. */
export const MAX_RECENT_SIGNALS = 1_024;
/** What was written longer ago has arrived. In milliseconds. */
export const RECENT_SIGNAL_MS = 10_000;

const TYPE_OFFSET = 2;
const HEADER_LENGTH_OFFSET = 3;
const CANCEL_NAME = encodeUtf8(HANDLER_STREAM_CANCEL);

/** A frame that nobody waits for. */
export class SignalFrame extends OutFrame {
  override onAdmitted(): void {}

  override onWritten(): void {}
}

export class RecentSignals {
  private readonly said: { readonly frame: Uint8Array; readonly at: number }[] = [];
  private next = 0;

  /** A message goes to the peer. Its bytes do not change any more. */
  note(frame: Uint8Array, now: number): void {
    if (!isCancel(frame)) return;
    this.said[this.next] = { frame, at: now };
    this.next = (this.next + 1) % MAX_RECENT_SIGNALS;
  }

  /** Those that may not have arrived, in the order in which they were said. They are forgotten. */
  take(now: number): Uint8Array[] {
    const { next } = this;
    const inOrder = [...this.said.slice(next), ...this.said.slice(0, next)];
    this.said.length = 0;
    this.next = 0;
    return inOrder.filter(({ at }) => now - at <= RECENT_SIGNAL_MS).map(({ frame }) => frame);
  }
}

function isCancel(frame: Uint8Array): boolean {
  if (frame[TYPE_OFFSET] !== FRAME_MESSAGE || frame[PREAMBLE_LEN + RESPONSE_TYPE_OFFSET] !== RESPONSE_NONE)
    return false;
  return handlerIs(frame, PREAMBLE_LEN, readU32BE(frame, HEADER_LENGTH_OFFSET), CANCEL_NAME);
}
