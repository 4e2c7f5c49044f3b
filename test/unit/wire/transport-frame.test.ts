// Frames from a byte stream: every split, the limit, errors, memory.

import { expect } from 'chai';
import fc from 'fast-check';
import {
  encodeFrame,
  FRAME_MESSAGE,
  FRAME_RESPONSE,
  FrameReader,
  MAX_FRAME_BODY,
  PREAMBLE_LEN,
  writePreamble,
} from '../../../lib/wire/transport-frame.js';
import { codeOf, fromHex, loadVectors, toHex } from '../../support/vectors.js';

interface Received {
  type: number;
  header: string;
  payload: string;
  inPlace: boolean;
}

/** A reader that keeps what it receives; `inPlace` tells frames delivered out of one of `chunks`. */
function collecting(chunks: readonly Uint8Array[] = [], options?: { maxBody?: number }): [FrameReader, Received[]] {
  const received: Received[] = [];
  const reader = new FrameReader((type, buffer, headerAt, headerLength, payloadAt, payloadLength) => {
    received.push({
      type,
      header: toHex(buffer.slice(headerAt, headerAt + headerLength)),
      payload: toHex(buffer.slice(payloadAt, payloadAt + payloadLength)),
      inPlace: chunks.includes(buffer),
    });
  }, options);
  return [reader, received];
}

const messages = loadVectors<{ name: string; hex: string }>('messages').map((vector) => fromHex(vector.hex));

describe('wire/transport-frame', () => {
  it('reads one frame from every split into two chunks', () => {
    for (const bytes of messages) {
      const [whole, expected] = collecting([bytes]);
      expect(whole.push(bytes)).to.equal(true);
      expect(expected).to.have.length(1);
      expect(expected[0]!.inPlace).to.equal(true);
      for (let cut = 0; cut <= bytes.length; cut++) {
        const [reader, received] = collecting();
        expect(reader.push(bytes.slice(0, cut))).to.equal(true);
        expect(reader.pendingBytes).to.equal(cut === bytes.length ? 0 : cut);
        expect(reader.push(bytes.slice(cut))).to.equal(true);
        expect(received).to.deep.equal([{ ...expected[0]!, inPlace: false }]);
        expect(reader.finish()).to.equal(true);
      }
    }
  });

  it('reads a stream of frames from any chunks', () => {
    const frames = fc.array(
      fc.record({
        type: fc.integer({ min: 0, max: 4 }),
        header: fc.uint8Array({ maxLength: 60 }),
        payload: fc.uint8Array({ maxLength: 200 }),
      }),
      { maxLength: 12 },
    );
    fc.assert(
      fc.property(frames, fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1, maxLength: 40 }), (list, sizes) => {
        const stream = list.flatMap((frame) => [...encodeFrame(frame.type, frame.header, frame.payload)]);
        const [reader, received] = collecting();
        for (let at = 0, i = 0; at < stream.length; i++) {
          const size = sizes[i % sizes.length]!;
          expect(reader.push(Uint8Array.from(stream.slice(at, at + size)))).to.equal(true);
          at += size;
        }
        expect(reader.finish()).to.equal(true);
        expect(received.map(({ type, header, payload }) => ({ type, header, payload }))).to.deep.equal(
          list.map(({ type, header, payload }) => ({ type, header: toHex(header), payload: toHex(payload) })),
        );
      }),
      { numRuns: 200 },
    );
  });

  it('delivers a frame of one chunk in place, also when its preamble came before', () => {
    const bytes = encodeFrame(FRAME_MESSAGE, fromHex('aabb'), fromHex('0102030405'));
    const body = bytes.slice(PREAMBLE_LEN);
    const [reader, received] = collecting([body]);
    reader.push(bytes.slice(0, 4));
    reader.push(bytes.slice(4, PREAMBLE_LEN));
    reader.push(body);
    expect(received).to.deep.equal([{ type: 0, header: 'aabb', payload: '0102030405', inPlace: true }]);
  });

  it('reads frames with nothing inside, the last of them at the end of a chunk', () => {
    const empty = encodeFrame(FRAME_RESPONSE, new Uint8Array(0), new Uint8Array(0));
    const [reader, received] = collecting();
    expect(reader.push(new Uint8Array([...empty, ...empty]))).to.equal(true);
    for (const byte of empty) expect(reader.push(Uint8Array.of(byte))).to.equal(true);
    expect(received).to.have.length(3);
    expect(reader.finish()).to.equal(true);
  });

  for (const vector of loadVectors<{
    name: string;
    hex: string;
    error?: string;
    headerLength?: number;
    payloadLength?: number;
  }>('preambles')) {
    it(`vector, judged at the 11th byte: ${vector.name}`, () => {
      const bytes = fromHex(vector.hex);
      for (let cut = 0; cut < bytes.length; cut++) {
        const [reader, received] = collecting();
        expect(reader.push(bytes.slice(0, cut))).to.equal(true);
        expect(reader.push(bytes.slice(cut))).to.equal(vector.error === undefined);
        expect(reader.error?.code).to.equal(vector.error);
        expect(received).to.deep.equal([]);
        if (vector.error === undefined) expect(reader.pendingBytes).to.equal(PREAMBLE_LEN);
      }
      if (vector.headerLength === undefined || vector.payloadLength === undefined) return;
      const written = new Uint8Array(PREAMBLE_LEN);
      writePreamble(written, 0, FRAME_MESSAGE, vector.headerLength, vector.payloadLength);
      expect(toHex(written)).to.equal(vector.hex);
    });
  }

  it('refuses to write a frame over the limit', () => {
    const buffer = new Uint8Array(PREAMBLE_LEN);
    expect(codeOf(() => writePreamble(buffer, 0, 0, 1, MAX_FRAME_BODY))).to.equal('ERR_FRAME_TOO_LARGE');
    expect(toHex(buffer)).to.equal('00'.repeat(11));
    const header = new Uint8Array(3);
    expect(codeOf(() => encodeFrame(0, header, new Uint8Array(8), 10))).to.equal('ERR_FRAME_TOO_LARGE');
    expect(encodeFrame(0, header, new Uint8Array(7), 10)).to.have.length(21);
  });

  it('two lengths of 2^32−1 are over the limit, not a wrap', () => {
    const [reader] = collecting();
    expect(reader.push(fromHex('000100ffffffffffffffff'))).to.equal(false);
    expect(reader.error?.code).to.equal('ERR_FRAME_TOO_LARGE');
  });

  it('keeps to a limit of its own', () => {
    const [reader, received] = collecting([], { maxBody: 10 });
    expect(reader.push(encodeFrame(0, new Uint8Array(4), new Uint8Array(6)))).to.equal(true);
    expect(reader.push(encodeFrame(0, new Uint8Array(4), new Uint8Array(7)))).to.equal(false);
    expect(reader.error?.code).to.equal('ERR_FRAME_TOO_LARGE');
    expect(received).to.have.length(1);
  });

  it('delivers the frames before a bad one, then nothing', () => {
    const good = encodeFrame(0, fromHex('aa'), fromHex('bb'));
    const [reader, received] = collecting();
    expect(reader.push(new Uint8Array([...good, ...good, ...fromHex('0002000000000000000000'), ...good]))).to.equal(
      false,
    );
    expect(received).to.have.length(2);
    expect(reader.push(good)).to.equal(false);
    expect(received).to.have.length(2);
    expect(reader.error?.code).to.equal('ERR_UNSUPPORTED_VERSION');
    expect(reader.finish()).to.equal(false);
    expect(reader.error?.code).to.equal('ERR_UNSUPPORTED_VERSION');
  });

  it('a stream that ends inside a frame is truncated, one that ends between frames is not', () => {
    const bytes = encodeFrame(0, fromHex('aa'), fromHex('bbcc'));
    for (let cut = 0; cut <= bytes.length; cut++) {
      const [reader] = collecting();
      reader.push(bytes.slice(0, cut));
      const clean = cut === 0 || cut === bytes.length;
      expect(reader.finish()).to.equal(clean);
      expect(reader.error?.code).to.equal(clean ? undefined : 'ERR_BAD_FRAME');
      expect(reader.push(bytes)).to.equal(false);
    }
  });

  it('close from inside the handler stops the delivery', () => {
    const good = encodeFrame(0, fromHex('aa'), fromHex('bb'));
    let count = 0;
    const reader: FrameReader = new FrameReader(() => {
      count += 1;
      reader.close();
    });
    expect(reader.push(new Uint8Array([...good, ...good]))).to.equal(false);
    expect([count, reader.error]).to.deep.equal([1, undefined]);
  });

  it('an exception of the handler passes through and ends the stream', () => {
    const good = encodeFrame(0, fromHex('aa'), fromHex('bb'));
    const mine = new Error('mine');
    const reader = new FrameReader(() => {
      throw mine;
    });
    expect(() => reader.push(good)).to.throw(mine);
    expect(reader.error?.code).to.equal('ERR_INTERNAL');
    expect(reader.push(good)).to.equal(false);
  });

  it('holds no more memory than twice what has come', () => {
    const chunk = new Uint8Array(1000).fill(7);
    const preamble = new Uint8Array(PREAMBLE_LEN);
    writePreamble(preamble, 0, FRAME_MESSAGE, 22, MAX_FRAME_BODY - 22);
    let largest = 0;
    const real = globalThis.Uint8Array;
    class Counting extends real {
      constructor(...args: ConstructorParameters<typeof Uint8Array>) {
        super(...args);
        largest = Math.max(largest, this.length);
      }
    }
    const [reader] = collecting();
    globalThis.Uint8Array = Counting as unknown as typeof Uint8Array;
    try {
      reader.push(preamble);
      expect(largest).to.be.below(100);
      let came = 0;
      for (let i = 0; i < 500; i++) {
        reader.push(chunk);
        came += chunk.length;
        expect(largest).to.be.at.most(Math.max(64 * 1024, 2 * came));
      }
    } finally {
      globalThis.Uint8Array = real;
    }
    expect(reader.pendingBytes).to.equal(PREAMBLE_LEN + 500_000);
  });

  it('gives a large assembled buffer away and keeps a small one for the next frame', () => {
    const buffers: [Uint8Array, boolean][] = [];
    const reader = new FrameReader((_type, buffer, _at, _length, _payloadAt, _payloadLength, owned) => {
      buffers.push([buffer, owned]);
    });
    const send = (length: number): void => {
      const bytes = encodeFrame(0, fromHex('aa'), new Uint8Array(length).fill(length & 0xff));
      const half = bytes.length >> 1;
      reader.push(bytes.slice(0, half));
      reader.push(bytes.slice(half));
    };
    for (const length of [1000, 60_000, 400_000, 500]) send(length);
    expect(buffers.map(([, owned]) => owned)).to.deep.equal([false, false, true, false]);
    expect(buffers[0]![0]).to.equal(buffers[1]![0]);
    expect(buffers[3]![0]).to.not.equal(buffers[2]![0]);
    expect(buffers[2]![0][5]).to.equal(400_000 & 0xff);
  });

  it('random bytes give frames or a coded error, never an exception', () => {
    const chunks = fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 6 });
    const framed = fc
      .tuple(fc.constantFrom(...messages), fc.nat(), fc.integer({ min: 0, max: 255 }), fc.nat())
      .map(([seed, at, value, cut]) => {
        const bytes = seed.slice();
        bytes[at % bytes.length] = value;
        return [bytes.slice(0, cut % bytes.length), bytes.slice(cut % bytes.length)];
      });
    fc.assert(
      fc.property(fc.oneof(chunks, framed), (list) => {
        const [reader] = collecting();
        for (const chunk of list) reader.push(chunk);
        const clean = reader.finish();
        const codes = ['ERR_UNSUPPORTED_VERSION', 'ERR_UNKNOWN_TYPE', 'ERR_FRAME_TOO_LARGE', 'ERR_BAD_FRAME'];
        expect(clean || codes.includes(reader.error?.code ?? '')).to.equal(true);
      }),
      { numRuns: 1000 },
    );
  });
});
