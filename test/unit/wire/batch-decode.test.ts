// The batch decoder against malformed, cut, overstated and random input.

import { expect } from 'chai';
import fc from 'fast-check';
import {
  BatchDecoder,
  BatchEncoder,
  type DecodeError,
  MAX_RECORDS_PER_BATCH,
  RECORD_CLOSE_SLOT,
  RECORD_CREDIT_UPDATE,
  RECORD_LIFECYCLE,
  RECORD_OPEN_SLOT,
  RECORD_SLOT_HEARTBEAT,
} from '../../../lib/wire/batch.js';
import { writeU32BE } from '../../../lib/wire/bytes.js';
import { fromHex, loadVectors } from '../../support/vectors.js';
import { type BatchVector, readAll } from './batch-support.js';

interface BadBatchVector {
  name: string;
  good: number;
  error: DecodeError;
  hex: string;
}

/** A batch that declares `count` records and holds `body` behind its header. */
function batchOf(count: number, body: string): Uint8Array {
  return fromHex(`0200${count.toString(16).padStart(4, '0')}000000000000000100000000${body}`);
}

/** One record of `type` with a body of `length` zero bytes. */
function recordOf(type: number, length: number): string {
  const header = `${type.toString(16).padStart(2, '0')}0000000000000000${length.toString(16).padStart(8, '0')}`;
  return header + '00'.repeat(length);
}

describe('wire/batch: decoder', () => {
  it('AP-08 types 6 to 255 are unknown', () => {
    for (let type = 0; type <= 255; type++) {
      const { error } = readAll(batchOf(1, recordOf(type, 0)));
      if (type > 5) expect(error).to.deep.equal({ kind: 'UnknownRecordType', offset: 16, value: type });
      else expect(error?.kind ?? 'none').to.not.equal('UnknownRecordType');
    }
  });

  it('AP-12 a body is a range of the payload, absolute in its buffer', () => {
    const batch = fromHex(`ffff${'02000001000000000000000100000000'}00000000000000000100000003aabbccffff`);
    const decoder = new BatchDecoder();
    decoder.reset(batch, 2, batch.length - 2);
    expect(decoder.next()).to.equal(true);
    expect([decoder.bodyOffset, decoder.bodyLength]).to.deep.equal([2 + 16 + 13, 3]);
    expect(batch[decoder.bodyOffset]).to.equal(0xaa);
    expect(decoder.next()).to.equal(false);
    expect(decoder.error).to.equal(undefined);
  });

  it('AP-17 anything below 16 bytes is a truncated header that names its length', () => {
    const whole = batchOf(0, '');
    for (let length = 0; length < 16; length++) {
      expect(readAll(whole.subarray(0, length)).error).to.deep.equal({ kind: 'TruncatedBatchHeader', len: length });
    }
    expect(readAll(whole).error).to.equal(undefined);
  });

  it('AP-18 an unknown version still gives epoch and sequence, then no record', () => {
    const bytes = fromHex('070000010102030405060708deadbeef00000000000000000100000001c0');
    const decoder = new BatchDecoder();
    decoder.reset(bytes, 0, bytes.length);
    expect(decoder.readHeader()).to.equal(true);
    expect([decoder.epochHi, decoder.epochLo, decoder.batchSeq]).to.deep.equal([0x01020304, 0x05060708, 0xdeadbeef]);
    expect(decoder.checkVersion()).to.equal(false);
    expect(decoder.error).to.deep.equal({ kind: 'UnsupportedVersion', version: 7 });
    expect(decoder.next()).to.equal(false);
    expect(decoder.decoded).to.equal(0);
  });

  it('AP-18 a caller that never asks for the version gets no record either', () => {
    const { records, error } = readAll(fromHex('0100000100000000000000010000000000000000000000000100000001c0'));
    expect(records).to.deep.equal([]);
    expect(error).to.deep.equal({ kind: 'UnsupportedVersion', version: 1 });
  });

  it('AP-19 unknown flag bits do not fail the batch', () => {
    const bytes = batchOf(1, recordOf(0, 2));
    bytes[1] = 0xff;
    const decoder = new BatchDecoder();
    decoder.reset(bytes, 0, bytes.length);
    expect(decoder.next()).to.equal(true);
    expect(decoder.flags).to.equal(0xff);
  });

  it('AP-20 a valid batch cut at any byte gives an error and never an exception', () => {
    for (const vector of loadVectors<BatchVector>('batches')) {
      const bytes = fromHex(vector.hex);
      for (let length = 0; length < bytes.length; length++) {
        const { records, error } = readAll(bytes.subarray(0, length));
        expect(error, `${vector.name} cut at ${length}`).to.not.equal(undefined);
        expect(records.length).to.be.below(vector.records.length + (vector.records.length === 0 ? 1 : 0));
      }
    }
  });

  it('AP-21 a payload that ends on a record boundary is a count mismatch', () => {
    const { records, error } = readAll(batchOf(3, recordOf(0, 4)));
    expect(records).to.have.length(1);
    expect(error).to.deep.equal({ kind: 'RecordCountMismatch', declared: 3, decoded: 1 });
  });

  it('AP-22 a record beyond the count is trailing bytes', () => {
    const { records, error } = readAll(batchOf(1, recordOf(4, 0) + recordOf(4, 0)));
    expect(records).to.have.length(1);
    expect(error).to.deep.equal({ kind: 'TrailingBytes', offset: 29, remaining: 13 });
  });

  it('AP-23 65,535 records declared over four bytes cost one error', () => {
    expect(readAll(batchOf(MAX_RECORDS_PER_BATCH, '00000000'))).to.deep.equal({
      records: [],
      error: { kind: 'TruncatedRecordHeader', offset: 16, remaining: 4 },
    });
  });

  it('AP-24 an unknown type is reported with its offset', () => {
    const { records, error } = readAll(batchOf(2, recordOf(4, 0) + recordOf(9, 0)));
    expect(records).to.have.length(1);
    expect(error).to.deep.equal({ kind: 'UnknownRecordType', offset: 29, value: 9 });
  });

  it('AP-24 an unknown type is found before its body length is looked at', () => {
    const { error } = readAll(batchOf(1, '060000000000000000ffffffff'));
    expect(error?.kind).to.equal('UnknownRecordType');
  });

  it('AP-25 fixed bodies of another length are refused with expected and actual', () => {
    const cases: [type: number, expected: number, wrong: number[]][] = [
      [RECORD_OPEN_SLOT, 16, [0, 15, 17]],
      [RECORD_CLOSE_SLOT, 1, [0, 2]],
      [RECORD_CREDIT_UPDATE, 4, [3, 5]],
      [RECORD_SLOT_HEARTBEAT, 0, [1]],
      [RECORD_LIFECYCLE, 9, [8, 10]],
    ];
    for (const [type, expected, wrong] of cases) {
      for (const actual of wrong) {
        const error = { kind: 'BodyLengthMismatch', offset: 16, recordType: type, expected, actual };
        expect(readAll(batchOf(1, recordOf(type, actual)))).to.deep.equal({ records: [], error });
      }
      expect(readAll(batchOf(1, recordOf(type, expected))).error).to.equal(undefined);
    }
  });

  it('AP-26 close reasons from 4 and lifecycle actions from 2 are refused', () => {
    for (let value = 0; value <= 255; value++) {
      const close = readAll(batchOf(1, `02000000000000000500000001${value.toString(16).padStart(2, '0')}`));
      const expected = value <= 3 ? undefined : { kind: 'UnknownCloseReason', offset: 16, value };
      expect(close.error).to.deep.equal(expected);
      const action = value.toString(16).padStart(2, '0');
      const lifecycle = readAll(batchOf(1, `05000000000000000000000009000000000000004d${action}`));
      expect(lifecycle.error?.kind).to.equal(value <= 1 ? undefined : 'BodyLengthMismatch');
    }
  });

  it('AP-27 a body of 2^32−1 bytes declared over four is a truncated body', () => {
    expect(readAll(batchOf(1, '000000000000000001ffffffffaabbccdd')).error).to.deep.equal({
      kind: 'TruncatedRecordBody',
      offset: 16,
      declaredLen: 0xffffffff,
      remaining: 4,
    });
  });

  it('AP-28 after the first error nothing more comes', () => {
    const bytes = batchOf(3, recordOf(4, 0) + recordOf(9, 0) + recordOf(4, 0));
    const decoder = new BatchDecoder();
    decoder.reset(bytes, 0, bytes.length);
    expect(decoder.next()).to.equal(true);
    expect(decoder.next()).to.equal(false);
    const error = decoder.error;
    for (let i = 0; i < 3; i++) expect(decoder.next()).to.equal(false);
    expect(decoder.readHeader()).to.equal(false);
    expect(decoder.checkVersion()).to.equal(false);
    expect(decoder.error).to.equal(error);
    expect(decoder.decoded).to.equal(1);
  });

  it('AP-28 a finished batch stays finished, and reset starts over', () => {
    const bytes = batchOf(1, recordOf(4, 0));
    const decoder = new BatchDecoder();
    for (let i = 0; i < 2; i++) {
      decoder.reset(bytes, 0, bytes.length);
      expect(decoder.next()).to.equal(true);
      expect(decoder.next()).to.equal(false);
      expect(decoder.next()).to.equal(false);
      expect(decoder.error).to.equal(undefined);
    }
  });

  it('AP-29 the hint promises no lower bound', () => {
    const bytes = batchOf(MAX_RECORDS_PER_BATCH, recordOf(4, 0));
    const decoder = new BatchDecoder();
    decoder.reset(bytes, 0, bytes.length);
    decoder.readHeader();
    expect(decoder.sizeHint()).to.deep.equal([0, 65_535]);
    decoder.next();
    expect(decoder.sizeHint()).to.deep.equal([0, 65_534]);
    decoder.next();
    expect(decoder.sizeHint()).to.deep.equal([0, 0]);
  });

  it('AP-30 random bytes never throw and every record lies inside the payload', () => {
    const decoder = new BatchDecoder();
    const check = (bytes: Uint8Array): void => {
      decoder.reset(bytes, 0, bytes.length);
      let count = 0;
      while (decoder.next()) {
        count += 1;
        expect(decoder.bodyOffset).to.be.at.least(16 + 13);
        expect(decoder.bodyOffset + decoder.bodyLength).to.be.at.most(bytes.length);
      }
      expect(decoder.decoded).to.equal(count);
    };
    fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), check), { numRuns: 500 });
    // behind a good header, so that the records are reached
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.integer({ min: 0, max: 9 }), (tail, count) => {
        const bytes = new Uint8Array(16 + tail.length);
        bytes.set(batchOf(count, ''));
        bytes.set(tail, 16);
        for (let at = 16; at + 13 <= bytes.length; at += 20) {
          bytes[at] = bytes[at]! % 8;
          writeU32BE(bytes, at + 9, bytes[at + 12]! % 24);
        }
        check(bytes);
      }),
      { numRuns: 1000 },
    );
  });

  it('AP-30 good batches with one byte changed never throw', () => {
    const vectors = loadVectors<BatchVector>('batches').map((vector) => fromHex(vector.hex));
    fc.assert(
      fc.property(fc.constantFrom(...vectors), fc.nat(), fc.integer({ min: 0, max: 255 }), (vector, at, value) => {
        const bytes = vector.slice();
        bytes[at % bytes.length] = value;
        readAll(bytes);
      }),
      { numRuns: 1000 },
    );
  });

  it('a batch made by the encoder decodes to the same records (random)', () => {
    const record = fc.record({
      slot: fc.integer({ min: 0, max: 0xffffffff }),
      frameSeq: fc.integer({ min: 0, max: 0xffffffff }),
      body: fc.uint8Array({ maxLength: 150 }),
    });
    const buffer = new Uint8Array(8192);
    fc.assert(
      fc.property(fc.array(record, { maxLength: 40 }), fc.integer({ min: 0, max: 64 }), (records, start) => {
        const batch = new BatchEncoder();
        batch.begin(buffer, start, 0, 1, 2, 3);
        for (const { slot, frameSeq, body } of records) batch.data(slot, frameSeq, body, 0, body.length);
        const decoder = new BatchDecoder();
        decoder.reset(buffer, start, start + batch.finish());
        for (const { slot, frameSeq, body } of records) {
          expect(decoder.next()).to.equal(true);
          expect([decoder.slot, decoder.frameSeq]).to.deep.equal([slot, frameSeq]);
          const at = decoder.bodyOffset;
          expect(buffer.slice(at, at + decoder.bodyLength)).to.deep.equal(body);
        }
        expect(decoder.next()).to.equal(false);
        expect(decoder.error).to.equal(undefined);
      }),
      { numRuns: 100 },
    );
  });

  for (const vector of loadVectors<BadBatchVector>('bad-batches')) {
    it(`vector: ${vector.name}`, () => {
      const { records, error } = readAll(fromHex(vector.hex));
      expect(records).to.have.length(vector.good);
      expect(error).to.deep.equal(vector.error);
    });
  }
});
