// The batch encoder, byte by byte, and the vectors of good batches in both directions.

import { expect } from 'chai';
import fc from 'fast-check';
import {
  BATCH_HEADER_LEN,
  BatchDecoder,
  BatchEncoder,
  batchSeqGap,
  batchSeqNewer,
  encodedBatchLength,
  FLAGS_LANE_MASK,
  isControlRecord,
  MAX_RECORDS_PER_BATCH,
  RECORD_CLOSE_SLOT,
  RECORD_CREDIT_UPDATE,
  RECORD_DATA,
  RECORD_HEADER_LEN,
  RECORD_LIFECYCLE,
  RECORD_OPEN_SLOT,
  RECORD_SLOT_HEARTBEAT,
} from '../../../lib/wire/batch.js';
import { u64High, u64Low } from '../../../lib/wire/bytes.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { codeOf, fromHex, loadVectors, toHex } from '../../support/vectors.js';
import { type BatchVector, encodeVector, readAll } from './batch-support.js';

const ROOM = 4096;

function encoder(room = ROOM): { buffer: Uint8Array; batch: BatchEncoder; hex: () => string } {
  const buffer = new Uint8Array(room).fill(0xee);
  const batch = new BatchEncoder();
  batch.begin(buffer, 0, 0, 0, 1, 0);
  return { buffer, batch, hex: () => toHex(buffer.slice(0, batch.finish())) };
}

const HEADER_OF_ONE = '02000001000000000000000100000000';

describe('wire/batch: encoder', () => {
  it('AP-01 the batch header is big-endian: version, flags, count, epoch, sequence', () => {
    const buffer = new Uint8Array(64);
    const batch = new BatchEncoder();
    batch.begin(buffer, 0, 0, 0x01020304, 0x05060708, 0xdeadbeef);
    batch.slotHeartbeat(0, 0);
    batch.slotHeartbeat(0, 1);
    batch.finish();
    expect(toHex(buffer.slice(0, BATCH_HEADER_LEN))).to.equal('020000020102030405060708deadbeef');
  });

  it('AP-02 a data record is type, slot, sequence, length, body', () => {
    const { batch, hex } = encoder();
    batch.data(slotId(0xabcdef, 0x42), 7, fromHex('00aabbcc00'), 1, 3);
    expect(hex()).to.equal(`${HEADER_OF_ONE}00abcdef420000000700000003aabbcc`);
    expect(batch.length).to.equal(16 + 13 + 3);
  });

  it('AP-03 an open carries anchor and session as two u64', () => {
    const { batch, hex } = encoder();
    batch.openSlot(0, 0, 0x01234567, 0x89abcdef, 0xfedcba98, 0x76543210);
    expect(hex()).to.equal(`${HEADER_OF_ONE}010000000000000000000000100123456789abcdeffedcba9876543210`);
  });

  it('AP-04 a close is one byte of reason', () => {
    for (let reason = 0; reason <= 3; reason++) {
      const { batch, hex } = encoder();
      batch.closeSlot(1, 2, reason);
      expect(hex()).to.equal(`${HEADER_OF_ONE}020000000100000002000000010${reason}`);
    }
  });

  it('AP-05 a credit update is a u32 with frame sequence 0', () => {
    const { batch, hex } = encoder();
    batch.creditUpdate(1, 256);
    expect(hex()).to.equal(`${HEADER_OF_ONE}0300000001000000000000000400000100`);
  });

  it('AP-06 a slot heartbeat is a bare record header', () => {
    const { batch, hex } = encoder();
    batch.slotHeartbeat(1, 6);
    expect(hex()).to.equal(`${HEADER_OF_ONE}04000000010000000600000000`);
  });

  it('AP-07 a lifecycle record is the session and one action byte', () => {
    const { batch, hex } = encoder();
    batch.lifecycle(1, 0x80000000, 77, 1);
    expect(hex()).to.equal(`${HEADER_OF_ONE}05000000010000000000000009800000000000004d01`);
  });

  it('AP-08 the type bytes are 0 to 5', () => {
    expect([
      RECORD_DATA,
      RECORD_OPEN_SLOT,
      RECORD_CLOSE_SLOT,
      RECORD_CREDIT_UPDATE,
      RECORD_SLOT_HEARTBEAT,
      RECORD_LIFECYCLE,
    ]).to.deep.equal([0, 1, 2, 3, 4, 5]);
  });

  it('AP-09 the record count is filled in at the end', () => {
    const { batch, hex } = encoder();
    for (let i = 0; i < 5; i++) batch.creditUpdate(i, i);
    expect(hex().slice(4, 8)).to.equal('0005');
  });

  it('AP-10 header values survive at their edges, with any flags', () => {
    const u32 = fc.constantFrom(0, 1, 0x7fffffff, 0x80000000, 0xffffffff);
    const decoder = new BatchDecoder();
    const buffer = new Uint8Array(BATCH_HEADER_LEN);
    fc.assert(
      fc.property(u32, u32, u32, fc.integer({ min: 0, max: 255 }), (hi, lo, seq, flags) => {
        const batch = new BatchEncoder();
        batch.begin(buffer, 0, flags, hi, lo, seq);
        decoder.reset(buffer, 0, batch.finish());
        expect(decoder.readHeader()).to.equal(true);
        expect([decoder.flags, decoder.epochHi, decoder.epochLo, decoder.batchSeq]).to.deep.equal([flags, hi, lo, seq]);
      }),
    );
  });

  it('AP-11 every record type, every close reason and the largest credit survive', () => {
    const buffer = new Uint8Array(ROOM);
    const batch = new BatchEncoder();
    batch.begin(buffer, 0, 15, 0, 1, 0);
    batch.data(0xffffffff, 0xffffffff, fromHex('0102'), 0, 2);
    batch.openSlot(1, 2, 0xffffffff, 0xfffffffe, 0x80000000, 0x7fffffff);
    for (let reason = 0; reason <= 3; reason++) batch.closeSlot(3, reason, reason);
    batch.creditUpdate(0x80000001, 0xffffffff);
    batch.slotHeartbeat(5, 6);
    batch.lifecycle(6, 0xffffffff, 0xffffffff, 0);
    batch.lifecycle(7, 0, 1, 1);
    const { records, error } = readAll(buffer.subarray(0, batch.finish()));
    expect(error).to.equal(undefined);
    expect(records).to.deep.equal([
      { type: 'data', slot: 0xffffffff, frameSeq: 0xffffffff, body: '0102' },
      { type: 'openSlot', slot: 1, frameSeq: 2, anchor: 0xfffffffffffffffen, session: 0x800000007fffffffn },
      { type: 'closeSlot', slot: 3, frameSeq: 0, reason: 0 },
      { type: 'closeSlot', slot: 3, frameSeq: 1, reason: 1 },
      { type: 'closeSlot', slot: 3, frameSeq: 2, reason: 2 },
      { type: 'closeSlot', slot: 3, frameSeq: 3, reason: 3 },
      { type: 'creditUpdate', slot: 0x80000001, frameSeq: 0, delta: 0xffffffff },
      { type: 'slotHeartbeat', slot: 5, frameSeq: 6 },
      { type: 'lifecycle', slot: 6, frameSeq: 0, session: 0xffffffffffffffffn, action: 0 },
      { type: 'lifecycle', slot: 7, frameSeq: 0, session: 1n, action: 1 },
    ]);
  });

  it('AP-13 an empty batch is 16 bytes with count 0', () => {
    const { batch, hex } = encoder();
    expect(hex()).to.equal('02000000000000000000000100000000');
    expect(batch.length).to.equal(16);
    expect(readAll(fromHex(hex()))).to.deep.equal({ records: [], error: undefined });
  });

  it('AP-14 a large body survives and a reused encoder starts clean', () => {
    const body = Uint8Array.from({ length: 70_000 }, (_, i) => (i * 7) & 0xff);
    const buffer = new Uint8Array(80_000);
    const batch = new BatchEncoder();
    batch.begin(buffer, 0, 0, 0, 1, 0);
    batch.data(0, 1, body, 0, body.length);
    const { records } = readAll(buffer.subarray(0, batch.finish()));
    expect(records).to.deep.equal([{ type: 'data', slot: 0, frameSeq: 1, body: toHex(body) }]);
    batch.begin(buffer, 0, 3, 0, 9, 4);
    expect([batch.length, batch.count]).to.deep.equal([16, 0]);
    expect(toHex(buffer.slice(0, batch.finish()))).to.equal('02030000000000000000000900000004');
  });

  it('AP-14 bodies of every length around the copy switch survive at odd offsets', () => {
    const source = Uint8Array.from({ length: 200 }, (_, i) => i + 1);
    const buffer = new Uint8Array(400);
    const batch = new BatchEncoder();
    for (let length = 0; length <= 140; length++) {
      batch.begin(buffer, 3, 0, 0, 1, 0);
      batch.data(0, 1, source, 5, length);
      const { records } = readAll(buffer.slice(3, 3 + batch.finish()));
      expect(records[0]).to.deep.equal({
        type: 'data',
        slot: 0,
        frameSeq: 1,
        body: toHex(source.slice(5, 5 + length)),
      });
    }
  });

  it('AP-15 the length is the header and 13 bytes plus body for each record', () => {
    const { batch } = encoder();
    let expected = BATCH_HEADER_LEN;
    let bodies = 0;
    for (const length of [0, 1, 40, 100]) {
      batch.data(0, 1, new Uint8Array(length), 0, length);
      expected += RECORD_HEADER_LEN + length;
      bodies += length;
      expect(batch.length).to.equal(expected);
    }
    expect(encodedBatchLength(4, bodies)).to.equal(expected);
    expect(encodedBatchLength(1, Number.MAX_SAFE_INTEGER)).to.equal(undefined);
    expect(encodedBatchLength(Number.MAX_SAFE_INTEGER, 0)).to.equal(undefined);
  });

  it('AP-16 the 65,536th record is refused and changes nothing', () => {
    const buffer = new Uint8Array(BATCH_HEADER_LEN + (MAX_RECORDS_PER_BATCH + 2) * RECORD_HEADER_LEN);
    const batch = new BatchEncoder();
    batch.begin(buffer, 0, 0, 0, 1, 0);
    for (let i = 0; i < MAX_RECORDS_PER_BATCH; i++) batch.slotHeartbeat(i, i);
    const length = batch.length;
    expect(codeOf(() => batch.slotHeartbeat(0, 0))).to.equal('ERR_BATCH_FULL');
    expect(codeOf(() => batch.data(0, 0, buffer, 0, 0))).to.equal('ERR_BATCH_FULL');
    expect([batch.length, batch.count]).to.deep.equal([length, MAX_RECORDS_PER_BATCH]);
    batch.finish();
    expect(readAll(buffer.subarray(0, length)).records).to.have.length(MAX_RECORDS_PER_BATCH);
  });

  it('refuses a record without room and a body outside its source, and changes nothing', () => {
    const { batch, buffer } = encoder(40);
    expect(codeOf(() => batch.data(0, 0, new Uint8Array(12), 0, 12))).to.equal('ERR_BATCH_FULL');
    expect(codeOf(() => batch.data(0, 0, new Uint8Array(4), 2, 3))).to.equal('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => batch.data(0, 0, new Uint8Array(4), 0, 2 ** 32))).to.equal('ERR_BODY_TOO_LARGE');
    expect([batch.length, batch.count]).to.deep.equal([16, 0]);
    expect(buffer[16]).to.equal(0xee);
    batch.data(0, 0, new Uint8Array(11), 0, 11);
    expect(batch.length).to.equal(40);
    expect(codeOf(() => new BatchEncoder().begin(new Uint8Array(20), 5, 0, 0, 0, 0))).to.equal('ERR_BATCH_FULL');
  });

  it('AP-32 only open, close, credit and lifecycle are control', () => {
    const control = [0, 1, 2, 3, 4, 5, 6].filter(isControlRecord);
    expect(control).to.deep.equal([RECORD_OPEN_SLOT, RECORD_CLOSE_SLOT, RECORD_CREDIT_UPDATE, RECORD_LIFECYCLE]);
  });

  it('AP-33 batch sequences compare modulo 2^32', () => {
    expect(batchSeqNewer(0, 0xffffffff)).to.equal(true);
    expect(batchSeqNewer(3, 0xfffffffd)).to.equal(true);
    expect(batchSeqNewer(0xffffffff, 0)).to.equal(false);
    expect(batchSeqNewer(5, 5)).to.equal(false);
    expect(batchSeqNewer(6, 5)).to.equal(true);
  });

  it('AP-34 the antipode is stale from both sides', () => {
    expect(batchSeqNewer(0x80000000, 0)).to.equal(false);
    expect(batchSeqNewer(0, 0x80000000)).to.equal(false);
    expect(batchSeqNewer(0x80000005, 5)).to.equal(false);
    expect(batchSeqNewer(0x7fffffff, 0)).to.equal(true);
  });

  it('AP-35 the gap counts the batches that are missing, through the wrap', () => {
    expect(batchSeqGap(5, 6)).to.equal(1);
    expect(batchSeqGap(0xffffffff, 0)).to.equal(1);
    expect(batchSeqGap(0xfffffffe, 2)).to.equal(4);
    expect(batchSeqGap(9, 9)).to.equal(0);
  });

  it('AP-37 a lane-0 batch has flags 0, lane k stands in the low nibble', () => {
    for (const vector of loadVectors<BatchVector>('batches')) {
      const bytes = fromHex(vector.hex);
      expect(bytes[1]! & ~FLAGS_LANE_MASK, vector.name).to.equal(0);
      if (vector.flags !== 0) continue;
      const onLane3 = encodeVector({ ...vector, flags: 3 });
      expect(onLane3[1]).to.equal(3);
      onLane3[1] = 0;
      expect(toHex(onLane3)).to.equal(vector.hex);
    }
  });

  for (const vector of loadVectors<BatchVector>('batches')) {
    it(`vector, encoded and decoded: ${vector.name}`, () => {
      expect(toHex(encodeVector(vector))).to.equal(vector.hex);
      const decoder = new BatchDecoder();
      const bytes = fromHex(vector.hex);
      decoder.reset(bytes, 0, bytes.length);
      expect(decoder.readHeader()).to.equal(true);
      const epoch = BigInt(vector.epoch);
      expect([decoder.flags, decoder.epochHi, decoder.epochLo, decoder.batchSeq, decoder.recordCount]).to.deep.equal([
        vector.flags,
        u64High(epoch),
        u64Low(epoch),
        vector.batchSeq,
        vector.records.length,
      ]);
      const { records, error } = readAll(bytes);
      expect(error).to.equal(undefined);
      expect(records).to.deep.equal(
        vector.records.map((record) => ({
          ...record,
          frameSeq: record.frameSeq ?? 0,
          ...(record.anchor === undefined ? {} : { anchor: BigInt(record.anchor) }),
          ...(record.session === undefined ? {} : { session: BigInt(record.session) }),
        })),
      );
    });
  }
});
