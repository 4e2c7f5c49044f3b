// Stream frames: variants, the terminal test, vectors.

import { expect } from 'chai';
import fc from 'fast-check';
import { exactMsgpackCodec, msgpackCodec, rawCodec } from '../../../lib/wire/codec.js';
import {
  decodeStreamFrame,
  encodeStreamFrame,
  FRAME_INVALID,
  FRAME_ITEM,
  frameKind,
  isItem,
  isTerminalSentinel,
  itemFrameLength,
  type StreamFrame,
  writeItemFrame,
} from '../../../lib/wire/frame.js';
import { encodeFrame, FRAME_MESSAGE, FrameReader } from '../../../lib/wire/transport-frame.js';
import { codeOf, fromHex, loadVectors, toHex } from '../../support/vectors.js';
import type { BatchVector } from './batch-support.js';

interface FrameVector {
  name: string;
  kind: 'senderError' | 'dropped' | 'detached' | 'finalized' | 'heartbeat' | 'transportError';
  message?: string;
  terminal: boolean;
  hex: string;
}

interface ItemVector {
  name: string;
  value: unknown;
  encodedBy: string[];
  hex: string;
}

const codec = msgpackCodec();
const PREFIX = '81a44974656d';

function decode(hex: string): StreamFrame<unknown> {
  const bytes = fromHex(`ffff${hex}ff`);
  return decodeStreamFrame(bytes, 2, bytes.length - 3, codec);
}

function terminal(hex: string): boolean {
  const bytes = fromHex(`ff${hex}ffff`);
  return isTerminalSentinel(bytes, 1, bytes.length - 3);
}

/** A vector's value as the application would hold it. */
function revive(value: unknown): unknown {
  if (typeof value === 'object' && value !== null && '$bytes' in value) return fromHex(String(value.$bytes));
  return value;
}

describe('wire/frame', () => {
  it('AF-07 exactly seven variants, and each survives', () => {
    const frames: StreamFrame<unknown>[] = [
      { kind: 'item', value: { id: 7, text: 'hi' } },
      { kind: 'senderError', message: 'oops' },
      { kind: 'dropped' },
      { kind: 'detached' },
      { kind: 'finalized' },
      { kind: 'heartbeat' },
      { kind: 'transportError', message: 'conn reset' },
    ];
    const kinds = new Set<number>();
    for (const frame of frames) {
      const bytes = encodeStreamFrame(frame, codec);
      kinds.add(frameKind(bytes, 0, bytes.length));
      expect(decodeStreamFrame(bytes, 0, bytes.length, codec)).to.deep.equal(frame);
    }
    expect([...kinds].sort()).to.deep.equal([0, 1, 2, 3, 4, 5, 6]);
    for (const hex of ['a44974656d', 'a84865617274626561', '81a444726f70c0', '82a44974656d01a16b01', 'c0', '']) {
      expect(frameKind(fromHex(hex), 0, hex.length / 2), hex).to.equal(FRAME_INVALID);
    }
  });

  it('AF-13 undecodable frames raise ERR_DESERIALIZATION', () => {
    for (const hex of ['fffefd', 'c1', '', '81', PREFIX, `${PREFIX}c1`, `${PREFIX}2a2a`, 'a946696e616c697a656400']) {
      expect(
        codeOf(() => decode(hex)),
        hex,
      ).to.equal('ERR_DESERIALIZATION');
    }
  });

  it('a text frame must be whole: cut, longer, or not UTF-8 is no frame', () => {
    const good = '81ae5472616e73706f72744572726f72a3616263';
    expect(decode(good)).to.deep.equal({ kind: 'transportError', message: 'abc' });
    for (const hex of [
      good.slice(0, -2),
      `${good}00`,
      '81ae5472616e73706f72744572726f72a1ff',
      '81ae5472616e73706f72744572726f72c0',
      '81ae5472616e73706f72744572726f72',
    ]) {
      expect(terminal(hex), hex).to.equal(false);
      expect(codeOf(() => decode(hex))).to.equal('ERR_DESERIALIZATION');
    }
    // any valid form of the text is taken
    expect(terminal('81ae5472616e73706f72744572726f72d903616263')).to.equal(true);
  });

  it('an item is never terminal, whatever its value says', () => {
    expect(terminal(`${PREFIX}a946696e616c697a6564`)).to.equal(false);
    expect(terminal(`${PREFIX}81ae5472616e73706f72744572726f72a0`)).to.equal(false);
    expect(terminal(PREFIX)).to.equal(false);
    expect(isItem(fromHex(PREFIX), 0, 6)).to.equal(true);
    expect(isItem(fromHex(PREFIX), 0, 5)).to.equal(false);
  });

  it('writes an item frame in place from what the codec encoded', () => {
    const target = new Uint8Array(32);
    codec.encode('hello');
    expect(itemFrameLength(codec)).to.equal(12);
    expect(writeItemFrame(target, 3, codec)).to.equal(12);
    expect(toHex(target.slice(3, 15))).to.equal('81a44974656da568656c6c6f');
    expect(frameKind(target, 3, 12)).to.equal(FRAME_ITEM);
  });

  it('AP-36 a data body is the same frame as on the per-stream path, and one terminal test serves both', () => {
    const frames = loadVectors<{ name: string; frame?: string; hex: string }>('stream-path');
    let compared = 0;
    for (const vector of frames) {
      if (vector.frame === undefined) continue;
      const body = fromHex(vector.frame);
      expect(toHex(encodeFrame(FRAME_MESSAGE, new Uint8Array(0), body))).to.equal(vector.hex);
      let received = '';
      const reader = new FrameReader((type, buffer, _headerAt, headerLength, at, length) => {
        expect([type, headerLength]).to.deep.equal([FRAME_MESSAGE, 0]);
        received = toHex(buffer.slice(at, at + length));
        expect(isTerminalSentinel(buffer, at, length)).to.equal(isTerminalSentinel(body, 0, body.length));
      });
      expect(reader.push(fromHex(vector.hex))).to.equal(true);
      expect(received).to.equal(vector.frame);
      const inBatch = loadVectors<BatchVector>('batches').some((batch) =>
        batch.records.some((record) => record.body === vector.frame),
      );
      expect(inBatch, vector.name).to.equal(true);
      compared += 1;
    }
    expect(compared).to.equal(3);
  });

  it('random bytes give a frame or ERR_DESERIALIZATION, and the terminal test never throws', () => {
    const seeds = [...loadVectors<FrameVector>('frames'), ...loadVectors<ItemVector>('items')].map((v) =>
      fromHex(v.hex),
    );
    const mutated = fc
      .tuple(fc.constantFrom(...seeds), fc.nat(), fc.integer({ min: 0, max: 255 }), fc.uint8Array({ maxLength: 4 }))
      .map(([seed, at, value, tail]) => {
        const bytes = new Uint8Array(seed.length + tail.length);
        bytes.set(seed);
        bytes.set(tail, seed.length);
        bytes[at % seed.length] = value;
        return bytes;
      });
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 40 }), mutated), (bytes) => {
        const kind = frameKind(bytes, 0, bytes.length);
        const ends = isTerminalSentinel(bytes, 0, bytes.length);
        try {
          const frame = decodeStreamFrame(bytes, 0, bytes.length, codec);
          expect(kind).to.not.equal(FRAME_INVALID);
          expect(ends).to.equal(['finalized', 'detached', 'dropped', 'transportError'].includes(frame.kind));
        } catch (error) {
          expect(
            codeOf(() => {
              throw error;
            }),
          ).to.equal('ERR_DESERIALIZATION');
        }
      }),
      { numRuns: 2000 },
    );
  });

  for (const vector of loadVectors<FrameVector>('frames')) {
    it(`vector, encoded and decoded: ${vector.name}`, () => {
      const frame = (
        vector.message === undefined ? { kind: vector.kind } : { kind: vector.kind, message: vector.message }
      ) as StreamFrame<unknown>;
      expect(toHex(encodeStreamFrame(frame, codec))).to.equal(vector.hex);
      expect(decode(vector.hex)).to.deep.equal(frame);
      expect(terminal(vector.hex)).to.equal(vector.terminal);
    });
  }

  for (const vector of loadVectors<ItemVector>('items')) {
    it(`vector, decoded${vector.encodedBy.length > 0 ? ' and encoded' : ''}: item ${vector.name}`, () => {
      const value = revive(vector.value);
      const frame: StreamFrame<unknown> = { kind: 'item', value };
      const codecs = { default: msgpackCodec(), exact: exactMsgpackCodec(), raw: rawCodec() };
      expect(decode(vector.hex)).to.deep.equal(frame);
      for (const name of vector.encodedBy) {
        const by = codecs[name as keyof typeof codecs] as ReturnType<typeof msgpackCodec>;
        expect(toHex(encodeStreamFrame(frame, by)), name).to.equal(vector.hex);
        const bytes = fromHex(vector.hex);
        expect(decodeStreamFrame(bytes, 0, bytes.length, by), name).to.deep.equal(frame);
      }
    });
  }
});
