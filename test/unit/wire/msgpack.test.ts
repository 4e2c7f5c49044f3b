// The protocol's MessagePack subset: widths, bounds, and the structural scan.

import { expect } from 'chai';
import fc from 'fast-check';
import { pack, unpack } from 'msgpackr';
import { VeloError } from '../../../lib/errors.js';
import { MsgpackReader, MsgpackWriter } from '../../../lib/wire/msgpack.js';
import { ANY_EXTENSION, MAX_MSGPACK_DEPTH, scanValue } from '../../../lib/wire/msgpack-scan.js';
import { codeOf, fromHex, toHex } from '../../support/vectors.js';

function written(write: (writer: MsgpackWriter) => void): string {
  const writer = new MsgpackWriter();
  write(writer);
  return toHex(writer.finish());
}

function reader(hex: string): MsgpackReader {
  return new MsgpackReader(fromHex(hex));
}

describe('wire/msgpack', () => {
  it('writes every integer in its shortest form', () => {
    const cases: [number | bigint, string][] = [
      [0, '00'],
      [127, '7f'],
      [128, 'cc80'],
      [255, 'ccff'],
      [256, 'cd0100'],
      [65_535, 'cdffff'],
      [65_536, 'ce00010000'],
      [0xffffffff, 'ceffffffff'],
      [2 ** 32, 'cf0000000100000000'],
      [Number.MAX_SAFE_INTEGER, 'cf001fffffffffffff'],
      [2n ** 64n - 1n, 'cfffffffffffffffff'],
      [5n, '05'],
      [-1, 'ff'],
      [-32, 'e0'],
      [-33, 'd0df'],
      [-128, 'd080'],
      [-129, 'd1ff7f'],
      [-32_768, 'd18000'],
      [-32_769, 'd2ffff7fff'],
      [-(2 ** 31), 'd280000000'],
      [-(2 ** 31) - 1, 'd3ffffffff7fffffff'],
      [-(2n ** 63n), 'd38000000000000000'],
    ];
    for (const [value, hex] of cases) {
      expect(
        written((w) => w.int(value)),
        `${value}`,
      ).to.equal(hex);
    }
    for (const value of [2 ** 53, 1.5, Number.NaN, 2n ** 64n, -(2n ** 63n) - 1n]) {
      expect(
        codeOf(() => new MsgpackWriter().int(value)),
        `${value}`,
      ).to.equal('ERR_INVALID_ARGUMENT');
    }
  });

  it('writes strings, binaries and headers in their shortest form', () => {
    expect(written((w) => w.str(''))).to.equal('a0');
    expect(written((w) => w.str('é'))).to.equal('a2c3a9');
    expect(written((w) => w.str('a'.repeat(31))).slice(0, 2)).to.equal('bf');
    expect(written((w) => w.str('a'.repeat(32))).slice(0, 4)).to.equal('d920');
    expect(written((w) => w.str('€'.repeat(90))).slice(0, 6)).to.equal('da010e');
    expect(written((w) => w.str('a'.repeat(65_536))).slice(0, 10)).to.equal('db00010000');
    expect(written((w) => w.bin(new Uint8Array(255))).slice(0, 4)).to.equal('c4ff');
    expect(written((w) => w.bin(new Uint8Array(256))).slice(0, 6)).to.equal('c50100');
    expect(written((w) => w.bin(new Uint8Array(65_536))).slice(0, 10)).to.equal('c600010000');
    expect(written((w) => w.arrayHeader(15).arrayHeader(16).arrayHeader(65_536))).to.equal('9fdc0010dd00010000');
    expect(written((w) => w.mapHeader(15).mapHeader(16).mapHeader(65_536))).to.equal('8fde0010df00010000');
    expect(written((w) => w.nil().bool(true).bool(false).float64(1.5))).to.equal('c0c3c2cb3ff8000000000000');
    expect(written((w) => w.byteArray(fromHex('00 7f 80 ff'.replaceAll(' ', ''))))).to.equal('94007fcc80ccff');
  });

  it('reads back what it wrote, and another library reads the same', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
        fc.string({ unit: 'grapheme', maxLength: 300 }),
        fc.uint8Array({ maxLength: 300 }),
        fc.boolean(),
        (integer, text, bytes, flag) => {
          const writer = new MsgpackWriter(1);
          writer.arrayHeader(5).int(integer).str(text).bin(bytes).bool(flag).nil();
          const encoded = writer.finish();
          const read = new MsgpackReader(encoded);
          expect(read.arrayHeader()).to.equal(5);
          expect(read.u64()).to.equal(integer);
          expect(read.str()).to.equal(text);
          expect(read.bin()).to.deep.equal(bytes);
          expect(read.bool()).to.equal(flag);
          expect(read.takeNil()).to.equal(true);
          read.expectEnd();
          const other = unpack(encoded) as [bigint | number, string, Uint8Array, boolean, null];
          expect(BigInt(other[0])).to.equal(integer);
          expect(other[1]).to.equal(text);
          expect(new Uint8Array(other[2])).to.deep.equal(bytes);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('takes any form of an integer and refuses what does not fit', () => {
    for (const hex of ['05', 'cc05', 'cd0005', 'ce00000005', 'cf0000000000000005', 'd005', 'd10005', 'd200000005']) {
      expect(reader(hex).uint(255), hex).to.equal(5);
      expect(reader(hex).u64(), hex).to.equal(5n);
    }
    expect(reader('d30000000000000005').u64()).to.equal(5n);
    expect(reader('d3ffffffffffffffff').int(-1, 1)).to.equal(-1);
    expect(reader('d1ff38').int(-200, 0)).to.equal(-200);
    expect(reader('d2ffffffff').int(-1, 0)).to.equal(-1);
    expect(reader('e0').int(-32, 0)).to.equal(-32);
    for (const hex of ['ff', 'd0ff', 'd1ffff', 'd2ffffffff', 'd3ffffffffffffffff', 'cb3ff0000000000000', 'c0', 'a0']) {
      expect(
        codeOf(() => reader(hex).u64()),
        hex,
      ).to.equal('ERR_BAD_MSGPACK');
    }
    expect(codeOf(() => reader('cd0100').uint(255))).to.equal('ERR_BAD_MSGPACK');
    for (const hex of ['', 'cc', 'cd00', 'ce000000', 'cf00000000000000', 'd1ff']) {
      expect(
        codeOf(() => reader(hex).u64()),
        hex,
      ).to.equal('ERR_BAD_MSGPACK');
    }
  });

  it('believes no length before its bytes are there', () => {
    expect(codeOf(() => reader('dd7fffffff').arrayHeader())).to.equal('ERR_BAD_MSGPACK');
    expect(codeOf(() => reader('dfffffffff01').mapHeader())).to.equal('ERR_BAD_MSGPACK');
    expect(codeOf(() => reader('810101').mapHeader() + reader('8201').mapHeader())).to.equal('ERR_BAD_MSGPACK');
    expect(codeOf(() => reader('c6ffffffff00').bin())).to.equal('ERR_BAD_MSGPACK');
    expect(codeOf(() => reader('dbffffffff00').str())).to.equal('ERR_BAD_MSGPACK');
    expect(codeOf(() => reader('dd').arrayHeader())).to.equal('ERR_BAD_MSGPACK');
    expect(codeOf(() => reader('ddffffffff').binOrByteArray())).to.equal('ERR_BAD_MSGPACK');
    expect(codeOf(() => reader('9201').expectEnd())).to.equal('ERR_BAD_MSGPACK');
  });

  it('refuses text that is not UTF-8, and keeps a byte order mark', () => {
    for (const hex of ['a1ff', 'a2c3', 'a2c328', 'a3eda080', `b9${'61'.repeat(24)}ff`]) {
      expect(
        codeOf(() => reader(hex).str()),
        hex,
      ).to.equal('ERR_BAD_MSGPACK');
    }
    expect(reader('a4efbbbf61').str()).to.equal('\ufeffa');
    expect(reader(`d91e${'61'.repeat(30)}`).str()).to.equal('a'.repeat(30));
  });

  it('names the kind of every first byte', () => {
    const kinds = (from: number, to: number): Set<string> => {
      const found = new Set<string>();
      for (let token = from; token <= to; token++) found.add(new MsgpackReader(Uint8Array.of(token)).kind());
      return found;
    };
    expect([...kinds(0, 0x7f)]).to.deep.equal(['int']);
    expect([...kinds(0x80, 0x8f)]).to.deep.equal(['map']);
    expect([...kinds(0x90, 0x9f)]).to.deep.equal(['array']);
    expect([...kinds(0xa0, 0xbf)]).to.deep.equal(['str']);
    expect([...kinds(0xc0, 0xc3)]).to.deep.equal(['nil', 'invalid', 'bool']);
    expect([...kinds(0xc4, 0xc6)]).to.deep.equal(['bin']);
    expect([...kinds(0xc7, 0xc9), ...kinds(0xd4, 0xd8)]).to.deep.equal(['ext', 'ext']);
    expect([...kinds(0xca, 0xcb)]).to.deep.equal(['float']);
    expect([...kinds(0xcc, 0xd3)]).to.deep.equal(['int']);
    expect([...kinds(0xd9, 0xdb)]).to.deep.equal(['str']);
    expect([...kinds(0xdc, 0xdf)]).to.deep.equal(['array', 'map']);
    expect([...kinds(0xe0, 0xff)]).to.deep.equal(['int']);
    expect(new MsgpackReader(new Uint8Array(0)).kind()).to.equal('end');
  });

  it('steps over any value another library writes', () => {
    fc.assert(
      fc.property(fc.anything({ withTypedArray: true, withDate: true, maxDepth: 4 }), (value) => {
        const bytes = pack(value);
        expect(scanValue(bytes, 0, bytes.length, ANY_EXTENSION)).to.equal(bytes.length);
        const read = new MsgpackReader(bytes);
        read.skip();
        read.expectEnd();
        for (let cut = 0; cut < Math.min(bytes.length, 60); cut++) {
          expect(scanValue(bytes, 0, cut, ANY_EXTENSION)).to.equal(-1);
        }
      }),
      { numRuns: 200 },
    );
  });

  it('bounds the depth of a scan', () => {
    const nested = (levels: number): Uint8Array => fromHex(`${'91'.repeat(levels)}c0`);
    const fits = nested(MAX_MSGPACK_DEPTH);
    expect(scanValue(fits, 0, fits.length, ANY_EXTENSION)).to.equal(fits.length);
    const deeper = nested(MAX_MSGPACK_DEPTH + 1);
    expect(scanValue(deeper, 0, deeper.length, ANY_EXTENSION)).to.equal(-1);
    const maps = fromHex(`${'8101'.repeat(MAX_MSGPACK_DEPTH + 1)}c0`);
    expect(scanValue(maps, 0, maps.length, ANY_EXTENSION)).to.equal(-1);
  });

  it('a scan and a read of random bytes never raise anything else', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        const end = scanValue(bytes, 0, bytes.length, ANY_EXTENSION);
        expect(end === -1 || (end > 0 && end <= bytes.length)).to.equal(true);
        const read = new MsgpackReader(bytes);
        try {
          read.skip();
          expect(read.position).to.equal(end);
        } catch (error) {
          expect(VeloError.is(error, 'ERR_BAD_MSGPACK')).to.equal(true);
          expect(end).to.equal(-1);
        }
      }),
      { numRuns: 2000 },
    );
  });

  it('a reused writer starts clean and gives large memory back', () => {
    const writer = new MsgpackWriter();
    writer.bin(new Uint8Array(2 ** 21));
    writer.reset();
    expect(writer.storage.length).to.be.below(1024);
    expect(toHex(writer.int(1).finish())).to.equal('01');
    expect(toHex(writer.int(2).finish())).to.equal('02');
  });
});
