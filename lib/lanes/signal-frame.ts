// Messages that nobody waits for. It must never decide when one is sent.

import { readU32BE } from '../wire/bytes.js';
import { handlerIs, RESPONSE_NONE, RESPONSE_TYPE_OFFSET } from '../wire/envelope.js';
import { HANDLER_STREAM_CANCEL } from '../wire/names.js';
import { FRAME_MESSAGE, PREAMBLE_LEN } from '../wire/transport-frame.js';
import { encodeUtf8 } from '../wire/utf8.js';
import { OutFrame } from './out-frame.js';

const TYPE_OFFSET = 2;
const HEADER_LENGTH_OFFSET = 3;
const CANCEL_NAME = encodeUtf8(HANDLER_STREAM_CANCEL);

/** A frame whose admission and whose end are reported to nobody. */
export class SignalFrame extends OutFrame {
  override onAdmitted(): void {}

  override onWritten(): void {}
}

/** This frame cancels a sender by message: one whose slot its peer never saw opened hears of nothing else. */
export function isCancelMessage(frame: Uint8Array): boolean {
  if (frame[TYPE_OFFSET] !== FRAME_MESSAGE || frame[PREAMBLE_LEN + RESPONSE_TYPE_OFFSET] !== RESPONSE_NONE)
    return false;
  return handlerIs(frame, PREAMBLE_LEN, readU32BE(frame, HEADER_LENGTH_OFFSET), CANCEL_NAME);
}
