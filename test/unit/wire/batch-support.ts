// Shared by the batch tests: vectors as records, records as bytes, bytes as records.

import {
  BatchDecoder,
  BatchEncoder,
  type DecodeError,
  RECORD_CLOSE_SLOT,
  RECORD_CREDIT_UPDATE,
  RECORD_DATA,
  RECORD_LIFECYCLE,
  RECORD_OPEN_SLOT,
} from '../../../lib/wire/batch.js';
import { u64From, u64High, u64Low } from '../../../lib/wire/bytes.js';
import { fromHex, toHex } from '../../support/vectors.js';

export interface RecordVector {
  type: string;
  slot: number;
  frameSeq?: number;
  body?: string;
  anchor?: string;
  session?: string;
  reason?: number;
  delta?: number;
  action?: number;
}

export interface BatchVector {
  name: string;
  flags: number;
  epoch: string;
  batchSeq: number;
  records: RecordVector[];
  hex: string;
}

export function encodeVector(vector: BatchVector): Uint8Array {
  const batch = new BatchEncoder();
  const buffer = new Uint8Array(8192);
  const epoch = BigInt(vector.epoch);
  batch.begin(buffer, 0, vector.flags, u64High(epoch), u64Low(epoch), vector.batchSeq);
  for (const record of vector.records) append(batch, record);
  return buffer.slice(0, batch.finish());
}

function append(batch: BatchEncoder, record: RecordVector): void {
  const frameSeq = record.frameSeq ?? 0;
  const session = BigInt(record.session ?? 0);
  const anchor = BigInt(record.anchor ?? 0);
  switch (record.type) {
    case 'data': {
      const body = fromHex(record.body ?? '');
      batch.data(record.slot, frameSeq, body, 0, body.length);
      return;
    }
    case 'openSlot':
      batch.openSlot(record.slot, frameSeq, u64High(anchor), u64Low(anchor), u64High(session), u64Low(session));
      return;
    case 'closeSlot':
      batch.closeSlot(record.slot, frameSeq, record.reason ?? 0);
      return;
    case 'creditUpdate':
      batch.creditUpdate(record.slot, record.delta ?? 0);
      return;
    case 'slotHeartbeat':
      batch.slotHeartbeat(record.slot, frameSeq);
      return;
    case 'lifecycle':
      batch.lifecycle(record.slot, u64High(session), u64Low(session), record.action ?? 0);
      return;
    default:
      throw new Error(`unknown record ${record.type}`);
  }
}

/** Every record before the end or the first error, and the error. */
export function readAll(bytes: Uint8Array): { records: object[]; error: DecodeError | undefined } {
  const decoder = new BatchDecoder();
  decoder.reset(bytes, 0, bytes.length);
  const records: object[] = [];
  while (decoder.next()) records.push(recordOf(decoder, bytes));
  return { records, error: decoder.error };
}

/** The record a decoder stands on. */
export function recordOf(decoder: BatchDecoder, bytes: Uint8Array): object {
  const common = { slot: decoder.slot, frameSeq: decoder.frameSeq };
  const session = u64From(decoder.sessionHi, decoder.sessionLo);
  switch (decoder.type) {
    case RECORD_DATA: {
      const body = bytes.slice(decoder.bodyOffset, decoder.bodyOffset + decoder.bodyLength);
      return { type: 'data', ...common, body: toHex(body) };
    }
    case RECORD_OPEN_SLOT:
      return { type: 'openSlot', ...common, anchor: u64From(decoder.anchorHi, decoder.anchorLo), session };
    case RECORD_CLOSE_SLOT:
      return { type: 'closeSlot', ...common, reason: decoder.closeReason };
    case RECORD_CREDIT_UPDATE:
      return { type: 'creditUpdate', ...common, delta: decoder.delta };
    case RECORD_LIFECYCLE:
      return { type: 'lifecycle', ...common, session, action: decoder.action };
    default:
      return { type: 'slotHeartbeat', ...common };
  }
}
