// Item codecs: what they lend, what they copy, what they refuse.

import { expect } from 'chai';
import fc from 'fast-check';
import { pack, unpack } from 'msgpackr';
import { customCodec, exactMsgpackCodec, type ItemCodec, msgpackCodec, rawCodec } from '../../../lib/wire/codec.js';
import { scanValue } from '../../../lib/wire/msgpack-scan.js';
import { codeOf, fromHex, toHex, veloErrorOf } from '../../support/vectors.js';

function encoded<T>(codec: ItemCodec<T>, item: T): Uint8Array {
  codec.encode(item);
  return codec.bytes.slice(codec.start, codec.end);
}

function decodeHex<T>(codec: ItemCodec<T>, hex: string): T {
  const bytes = fromHex(`c1c1${hex}c1`);
  return codec.decode(bytes, 2, bytes.length - 1);
}

/** Plain data that every MessagePack codec can carry without loss. */
const plain = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constant(null),
    fc.boolean(),
    fc.integer(),
    fc.double({ noNaN: true }).filter((value) => !Object.is(value, -0)),
    fc.string({ unit: 'grapheme', maxLength: 40 }),
    fc.bigInt({ min: 2n ** 53n + 1n, max: 2n ** 64n - 1n }),
    fc.bigInt({ min: -(2n ** 63n), max: -(2n ** 53n) - 1n }),
    fc.uint8Array({ maxLength: 20 }),
    fc.array(tie('value'), { maxLength: 5 }),
    fc.dictionary(
      fc.string({ maxLength: 12 }).filter((key) => key !== '__proto__' && key !== 'toJSON'),
      tie('value'),
      { maxKeys: 5, noNullPrototype: true },
    ),
  ),
})).value;

describe('wire/codec', () => {
  for (const [name, make] of [
    ['msgpackCodec', msgpackCodec],
    ['exactMsgpackCodec', exactMsgpackCodec],
  ] as const) {
    it(`${name} carries plain data both ways`, () => {
      const codec = make();
      fc.assert(
        fc.property(plain, (value) => {
          const bytes = encoded(codec, value);
          expect(codec.decode(bytes, 0, bytes.length)).to.deep.equal(value);
        }),
        { numRuns: 500 },
      );
    });

    it(`${name} reads what the other wrote`, () => {
      const codec = make();
      const other = name === 'msgpackCodec' ? exactMsgpackCodec() : msgpackCodec();
      fc.assert(
        fc.property(plain, (value) => {
          const bytes = encoded(other, value);
          expect(codec.decode(bytes, 0, bytes.length)).to.deep.equal(value);
        }),
        { numRuns: 200 },
      );
    });

    it(`${name} refuses what it cannot encode with ERR_SERIALIZATION and goes on`, () => {
      const codec = make();
      const cycle: unknown[] = [];
      cycle.push(cycle);
      const throwing = {
        toJSON: () => {
          throw new Error('no');
        },
      };
      class Thrower {
        readonly toJSON = throwing.toJSON;
      }
      for (const item of [Symbol('x'), 2n ** 64n, -(2n ** 63n) - 1n, cycle, new Thrower()]) {
        const error = veloErrorOf(() => codec.encode(item));
        expect(error.code).to.equal('ERR_SERIALIZATION');
        expect(error.cause).to.be.instanceOf(Error);
      }
      expect(toHex(encoded(codec, [1, 'a']))).to.equal('9201a161');
    });

    it(`${name} refuses truncated values, trailing bytes, reserved bytes and unknown extensions`, () => {
      const codec = make();
      for (const hex of [
        '',
        '2a2a',
        'c1',
        '91c1',
        '92',
        '9201',
        'a568656c',
        'c403aabb',
        'cf00',
        'd47201', // a record definition, which would define how later bytes are read
        'd4720190',
        'd4730091', // Set, Error, RegExp: tags that read the value after them
        'd4650092a1',
        'd6690000000190', // references of structured clones
        'c70162ff',
        'ddffffffff', // 4 billion elements that are not there
        'dd00ffffff01',
        'dfffffffff0101',
        'dcffff'.repeat(40),
      ]) {
        expect(
          codeOf(() => decodeHex(codec, hex)),
          hex,
        ).to.equal('ERR_DESERIALIZATION');
      }
      expect(decodeHex(codec, '9201a161')).to.deep.equal([1, 'a']);
    });

    it(`${name} refuses values nested deeper than its limit without exhausting the stack`, () => {
      const codec = make();
      expect(codeOf(() => decodeHex(codec, `${'91'.repeat(200_000)}c0`))).to.equal('ERR_DESERIALIZATION');
      expect(() => decodeHex(codec, `${'91'.repeat(128)}c0`)).to.not.throw();
      expect(codeOf(() => decodeHex(codec, `${'91'.repeat(129)}c0`))).to.equal('ERR_DESERIALIZATION');
    });

    it(`${name} decodes integers as numbers up to 2^53 and as bigints beyond`, () => {
      const codec = make();
      expect(decodeHex(codec, 'cf0000010000000000')).to.equal(2 ** 40);
      expect(decodeHex(codec, 'cf001fffffffffffff')).to.equal(Number.MAX_SAFE_INTEGER);
      expect(decodeHex(codec, 'cfffffffffffffffff')).to.equal(2n ** 64n - 1n);
      expect(decodeHex(codec, 'd38000000000000000')).to.equal(-(2n ** 63n));
      expect(decodeHex(codec, 'd4ffff')).to.be.instanceOf(Date);
      expect(decodeHex(codec, 'd6ff00000001')).to.deep.equal(new Date(1000));
      expect(decodeHex(codec, 'd40000')).to.equal(undefined);
    });

    it(`${name} gives binaries memory of their own`, () => {
      const codec = make();
      const bytes = fromHex('92c403010203c40104');
      const [first] = codec.decode(bytes, 0, bytes.length) as [Uint8Array, Uint8Array];
      bytes.fill(0xff);
      expect([...first]).to.deep.equal([1, 2, 3]);
      expect(first.buffer).to.not.equal(bytes.buffer);
    });

    it(`${name} keeps keys off the prototype`, () => {
      const codec = make();
      const value = decodeHex(codec, '81a95f5f70726f746f5f5f81a178c3') as Record<string, unknown>;
      expect(Object.getPrototypeOf(value)).to.equal(Object.prototype);
      expect(({} as Record<string, unknown>).x).to.equal(undefined);
    });

    it(`${name} never lets an exception out that is not coded (random bytes)`, () => {
      const codec = make();
      const biased = fc.array(
        fc.oneof(
          fc.integer({ min: 0, max: 255 }),
          fc.constantFrom(0x81, 0x92, 0xa1, 0xc4, 0xc7, 0xcb, 0xcf, 0xd4, 0xd6, 0xd9, 0xdc, 0xde, 0xff, 0),
        ),
        { maxLength: 40 },
      );
      fc.assert(
        fc.property(biased, (numbers) => {
          const bytes = Uint8Array.from(numbers);
          try {
            codec.decode(bytes, 0, bytes.length);
          } catch (error) {
            expect(
              codeOf(() => {
                throw error;
              }),
            ).to.equal('ERR_DESERIALIZATION');
          }
        }),
        { numRuns: 3000 },
      );
    });
  }

  it('undefined goes out as nil, Set as array, Map as map', () => {
    for (const codec of [msgpackCodec(), exactMsgpackCodec()]) {
      expect(toHex(encoded(codec, undefined))).to.equal('c0');
      expect(toHex(encoded(codec, { a: undefined }))).to.equal('81a161c0');
      expect(toHex(encoded(codec, new Set([1, 2])))).to.equal('920102');
      expect(toHex(encoded(codec, new Map([['a', 1]])))).to.equal('81a16101');
      expect(toHex(encoded(codec, new Float32Array([1])))).to.equal('c4040000803f');
      expect(toHex(encoded(codec, new Uint8Array([7]).buffer))).to.equal('c40107');
    }
  });

  it('the default codec writes integers from 2^32 as floats, the exact one as integers', () => {
    const item = 1_700_000_000_000;
    expect(toHex(encoded(msgpackCodec(), item)).slice(0, 2)).to.equal('cb');
    expect(toHex(encoded(exactMsgpackCodec(), item))).to.equal('cf0000018bcfe56800');
    expect(toHex(encoded(msgpackCodec(), 2n ** 40n))).to.equal('d30000010000000000');
    expect(toHex(encoded(exactMsgpackCodec(), 2n ** 40n))).to.equal('cf0000010000000000');
    expect(toHex(encoded(exactMsgpackCodec(), 5n))).to.equal('05');
    expect(toHex(encoded(exactMsgpackCodec(), -(2 ** 40)))).to.equal('d3ffffff0000000000');
  });

  it("the application's own use of msgpackr shares no memory with the codec", () => {
    const codec = msgpackCodec();
    const own = pack({ a: 'the application' });
    const before = toHex(own);
    codec.encode({ b: 'x'.repeat(500) });
    const lent = toHex(codec.bytes.slice(codec.start, codec.end));
    for (let i = 0; i < 100; i++) pack({ c: 'y'.repeat(900) });
    expect(toHex(own)).to.equal(before);
    expect(toHex(codec.bytes.slice(codec.start, codec.end))).to.equal(lent);
    expect(unpack(own)).to.deep.equal({ a: 'the application' });
    expect(codec.bytes.buffer).to.not.equal(own.buffer);
  });

  it('encoding many items in turn reuses one place', () => {
    const codec = msgpackCodec();
    codec.encode({ id: 1 });
    const { bytes, start } = codec;
    for (let i = 0; i < 10_000; i++) codec.encode({ id: i, text: ' token' });
    expect(codec.bytes).to.equal(bytes);
    expect(codec.start).to.equal(start);
  });

  it('rawCodec carries bytes as one byte string', () => {
    const codec = rawCodec();
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), (item) => {
        const bytes = encoded(codec, item);
        expect(scanValue(bytes, 0, bytes.length, new Uint8Array(256))).to.equal(bytes.length);
        expect(codec.decode(bytes, 0, bytes.length)).to.deep.equal(item);
      }),
    );
    const big = new Uint8Array(70_000).fill(9);
    expect(encoded(codec, big).length).to.equal(70_005);
    expect(encoded(codec, new Uint8Array(2 ** 21)).length).to.equal(2 ** 21 + 5);
    expect(toHex(encoded(codec, fromHex('0102ff')))).to.equal('c4030102ff');
    expect([...decodeHex(codec, '930102ccff')]).to.deep.equal([1, 2, 255]);
    for (const hex of ['', 'c40101ff', 'c403aabb', 'a161', '93010203ff', '92ff01']) {
      expect(
        codeOf(() => decodeHex(codec, hex)),
        hex,
      ).to.equal('ERR_DESERIALIZATION');
    }
    const notBytes: unknown = [1];
    expect(codeOf(() => codec.encode(notBytes as Uint8Array))).to.equal('ERR_SERIALIZATION');
  });

  it('a custom codec deals in the value alone and is given a copy', () => {
    let given: Uint8Array | undefined;
    const codec = customCodec<{ id: number }>({
      encode: (item) => Uint8Array.of(0x91, item.id),
      decode: (bytes) => {
        given = bytes;
        return { id: bytes[1]! };
      },
    });
    const bytes = encoded(codec, { id: 7 });
    expect(toHex(bytes)).to.equal('9107');
    expect(codec.decode(bytes, 0, 2)).to.deep.equal({ id: 7 });
    expect(given?.buffer).to.not.equal(bytes.buffer);
    expect(given?.length).to.equal(2);
  });

  it('errors of a custom codec are coded and keep their cause', () => {
    const cause = new Error('mine');
    const fail = (): never => {
      throw cause;
    };
    const codec = customCodec<unknown>({ encode: fail, decode: fail });
    expect(veloErrorOf(() => codec.encode(1))).to.include({ code: 'ERR_SERIALIZATION', cause });
    expect(veloErrorOf(() => codec.decode(new Uint8Array(1), 0, 1))).to.include({ code: 'ERR_DESERIALIZATION', cause });
    const wrong = customCodec<unknown>({ encode: (() => 'text') as unknown as () => Uint8Array, decode: fail });
    expect(codeOf(() => wrong.encode(1))).to.equal('ERR_SERIALIZATION');
  });
});
