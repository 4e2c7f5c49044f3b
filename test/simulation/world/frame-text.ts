// What a batch frame holds, for the network and for the trace. Read-only.

import {
  BatchDecoder,
  RECORD_CLOSE_SLOT,
  RECORD_CREDIT_UPDATE,
  RECORD_DATA,
  RECORD_LIFECYCLE,
  RECORD_OPEN_SLOT,
} from '../../../lib/wire/batch.js';
import { batchLaneOf, decodeRequestHeader } from '../../../lib/wire/envelope.js';
import { FRAME_MESSAGE, PREAMBLE_LEN } from '../../../lib/wire/transport-frame.js';

/** What the order of a lane may matter to: a batch that opens a slot, or closes one. */
export function orderOf(bytes: Buffer, headerLength: number): { opens: boolean; closes: boolean } {
  const decoder = new BatchDecoder();
  decoder.reset(bytes, PREAMBLE_LEN + headerLength, bytes.length);
  const found = { opens: false, closes: false };
  while (decoder.next()) {
    if (decoder.type === RECORD_OPEN_SLOT) found.opens = true;
    if (decoder.type === RECORD_CLOSE_SLOT) found.closes = true;
  }
  return found;
}

const KINDS = ['message', 'response', 'ack', 'event', 'shutting down'];

export function frameText(bytes: Buffer, headerLength: number): string {
  const type = bytes[2]!;
  if (type !== FRAME_MESSAGE) return `${KINDS[type]} of ${bytes.length}`;
  const lane = batchLaneOf(bytes, PREAMBLE_LEN, headerLength);
  if (lane < 0) return `${decodeRequestHeader(bytes, PREAMBLE_LEN, headerLength).handler} of ${bytes.length}`;
  return `batch lane ${lane} ${batchText(bytes, PREAMBLE_LEN + headerLength)}`;
}

function batchText(bytes: Buffer, start: number): string {
  const decoder = new BatchDecoder();
  decoder.reset(bytes, start, bytes.length);
  if (!decoder.readHeader() || !decoder.checkVersion()) return 'that is none';
  const records: string[] = [];
  while (decoder.next()) records.push(recordText(decoder));
  return `epoch ${decoder.epochLo} seq ${decoder.batchSeq}: ${records.join(' ')}`;
}

function recordText(record: BatchDecoder): string {
  const slot = `${record.slot >>> 8}.${record.slot & 0xff}`;
  switch (record.type) {
    case RECORD_DATA:
      return `${slot}#${record.frameSeq}(${record.bodyLength})`;
    case RECORD_OPEN_SLOT:
      return `open ${slot}`;
    case RECORD_CLOSE_SLOT:
      return `close ${slot}#${record.frameSeq}/${record.closeReason}`;
    case RECORD_CREDIT_UPDATE:
      return `credit ${slot}+${record.delta}`;
    case RECORD_LIFECYCLE:
      return `lifecycle ${slot}/${record.action}`;
    default:
      return `type ${record.type} ${slot}`;
  }
}
