// One stream on the wire, from its open to its end, made by the encoder and read by the decoder.

import { expect } from 'chai';
import { BatchEncoder, CLOSE_TERMINAL_SENT } from '../../../lib/wire/batch.js';
import { copyBytes, readU32LE, startsWithAt, u64High, u64Low } from '../../../lib/wire/bytes.js';
import { msgpackCodec } from '../../../lib/wire/codec.js';
import { encodeStreamFrame, type StreamFrame } from '../../../lib/wire/frame.js';
import { decodeUtf8 } from '../../../lib/wire/utf8.js';
import { fromHex, loadVectors, toHex } from '../../support/vectors.js';
import { readAll } from './batch-support.js';

const ANCHOR = 0x0123456789abcdefn;
const SESSION = 77n;

describe('wire: a whole stream', () => {
  it('vectors: every batch of a stream with two items, a heartbeat and an end', () => {
    const codec = msgpackCodec();
    const buffer = new Uint8Array(1024);
    const batch = new BatchEncoder();
    let frameSeq = 0;
    const data = (frame: StreamFrame<unknown>): void => {
      const bytes = encodeStreamFrame(frame, codec);
      batch.data(0, frameSeq, bytes, 0, bytes.length);
      frameSeq += 1;
    };
    const made: string[] = [];
    const finish = (): void => {
      made.push(toHex(buffer.slice(0, batch.finish())));
    };

    batch.begin(buffer, 0, 0, 0, 1, 0);
    batch.openSlot(0, frameSeq, u64High(ANCHOR), u64Low(ANCHOR), u64High(SESSION), u64Low(SESSION));
    frameSeq += 1;
    finish();
    batch.begin(buffer, 0, 0, 0, 1, 1);
    data({ kind: 'item', value: 'hello' });
    data({ kind: 'item', value: 42 });
    finish();
    batch.begin(buffer, 0, 0, 0, 7, 0);
    batch.creditUpdate(0, 2);
    finish();
    batch.begin(buffer, 0, 0, 0, 1, 2);
    data({ kind: 'heartbeat' });
    finish();
    batch.begin(buffer, 0, 0, 0, 1, 3);
    data({ kind: 'finalized' });
    batch.closeSlot(0, frameSeq, CLOSE_TERMINAL_SENT);
    finish();

    const vectors = loadVectors<{ hex: string }>('whole-stream');
    expect(made).to.deep.equal(vectors.map((vector) => vector.hex));
    expect(vectors.flatMap((vector) => readAll(fromHex(vector.hex)).records)).to.have.length(7);
  });
});

describe('wire/bytes', () => {
  it('copies any length from and to any offset', () => {
    const source = Uint8Array.from({ length: 300 }, (_, i) => (i * 3 + 1) & 0xff);
    for (const [from, to, length] of [
      [0, 0, 0],
      [0, 0, 300],
      [1, 2, 3],
      [7, 5, 63],
      [3, 1, 64],
      [3, 1, 65],
      [0, 9, 66],
      [40, 0, 260],
    ] as const) {
      const target = new Uint8Array(320).fill(0xee);
      copyBytes(target, to, source, from, length);
      expect(target.slice(to, to + length)).to.deep.equal(source.slice(from, from + length));
      expect(target.slice(0, to).every((byte) => byte === 0xee)).to.equal(true);
      expect(target.slice(to + length).every((byte) => byte === 0xee)).to.equal(true);
    }
  });

  it('reads shared memory as it reads private memory', () => {
    const shared = new Uint8Array(new SharedArrayBuffer(80));
    const text = 'é'.repeat(20);
    shared.set(new TextEncoder().encode(text), 4);
    expect(decodeUtf8(shared, 4, 44)).to.equal(text);
    expect(decodeUtf8(shared, 5, 44)).to.equal(undefined);
    const target = new Uint8Array(80);
    copyBytes(target, 0, shared, 4, 70);
    expect(target.slice(0, 40)).to.deep.equal(new TextEncoder().encode(text));
  });

  it('compares prefixes without reading past their end', () => {
    const bytes = Uint8Array.of(1, 2, 3, 4, 255);
    expect(startsWithAt(bytes, 1, 3, Uint8Array.of(2, 3))).to.equal(true);
    expect(startsWithAt(bytes, 1, 2, Uint8Array.of(2, 3))).to.equal(false);
    expect(startsWithAt(bytes, 4, 5, Uint8Array.of(255, 0))).to.equal(false);
    expect(readU32LE(bytes, 1)).to.equal(0xff040302);
  });
});
