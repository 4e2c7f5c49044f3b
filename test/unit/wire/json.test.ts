// JSON with 64-bit integers, and typed reads of members.

import { expect } from 'chai';
import fc from 'fast-check';
import { VeloError } from '../../../lib/errors.js';
import {
  encodeJson,
  MAX_JSON_DEPTH,
  MAX_JSON_INTEGER_DIGITS,
  parseJson,
  stringifyJson,
} from '../../../lib/wire/json.js';
import { JsonFields } from '../../../lib/wire/json-fields.js';
import { codeOf, fromHex, veloErrorOf } from '../../support/vectors.js';

describe('wire/json', () => {
  it('integers beyond 2^53−1 are bigints, integers inside are numbers', () => {
    expect(parseJson('9007199254740991')).to.equal(Number.MAX_SAFE_INTEGER);
    expect(parseJson('9007199254740992')).to.equal(2n ** 53n);
    expect(parseJson('-9007199254740991')).to.equal(-Number.MAX_SAFE_INTEGER);
    expect(parseJson('-9007199254740993')).to.equal(-9007199254740993n);
    expect(parseJson('18446744073709551615')).to.equal(2n ** 64n - 1n);
    expect(parseJson('262423188611324055734162540089877463040')).to.equal(262423188611324055734162540089877463040n);
    expect(parseJson('{"hi":1234605616436508552,"lo":2}')).to.deep.equal({ hi: 1234605616436508552n, lo: 2 });
    expect(parseJson('1e3')).to.equal(1000);
    expect(parseJson('12345678901234567890.5')).to.be.a('number');
  });

  it('64-bit integers survive both ways', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(2n ** 127n), max: 2n ** 128n }), (value) => {
        const back = parseJson(stringifyJson([value])) as [bigint | number];
        expect(BigInt(back[0])).to.equal(value);
      }),
    );
  });

  it('agrees with JSON.parse and JSON.stringify on everything without big integers', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 5 }), (text) => {
        const expected: unknown = JSON.parse(text);
        // doubles whose text is a long integer are the one difference
        fc.pre(!/[0-9]{16}/.test(text));
        expect(parseJson(text)).to.deep.equal(expected);
        expect(stringifyJson(expected)).to.equal(JSON.stringify(expected));
      }),
      { numRuns: 500 },
    );
  });

  it('reads layout, escapes and the last of duplicate keys', () => {
    expect(parseJson(' \t\r\n{ "a" : [ 1 , true , false , null ] , "b" : { } , "c" : [ ] } \n')).to.deep.equal({
      a: [1, true, false, null],
      b: {},
      c: [],
    });
    expect(parseJson('"\\u0041\\ud83d\\ude00\\n\\t\\"\\\\\\/\\b\\f\\r"')).to.equal('A😀\n\t"\\/\b\f\r');
    expect(parseJson('{"a":1,"a":2}')).to.deep.equal({ a: 2 });
    expect(parseJson('-0')).to.equal(-0);
    expect(parseJson('"é€😀"')).to.equal('é€😀');
  });

  it('refuses what is not JSON, with ERR_BAD_JSON', () => {
    for (const text of [
      '',
      ' ',
      '{',
      '[',
      '[1,]',
      '{"a":1,}',
      '{a:1}',
      "{'a':1}",
      '{"a" 1}',
      '01',
      '-',
      '+1',
      '.5',
      '1.',
      '1e',
      '1e+',
      '0x10',
      'NaN',
      'Infinity',
      'tru',
      'nulll',
      '"abc',
      '"\\x41"',
      '"\\u12g4"',
      '"\\u12',
      '"a\nb"',
      '1 2',
      '{"a":1}}',
      'undefined',
    ]) {
      expect(
        codeOf(() => parseJson(text)),
        text,
      ).to.equal('ERR_BAD_JSON');
    }
    expect(codeOf(() => parseJson(fromHex('22ff22')))).to.equal('ERR_BAD_JSON');
  });

  it('no bytes at all read as null', () => {
    expect(parseJson(new Uint8Array(0))).to.equal(null);
    expect(parseJson(fromHex('6e756c6c'))).to.equal(null);
  });

  it('bounds depth and integer length', () => {
    const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);
    expect(() => parseJson(nested(MAX_JSON_DEPTH))).to.not.throw();
    expect(codeOf(() => parseJson(nested(MAX_JSON_DEPTH + 1)))).to.equal('ERR_BAD_JSON');
    expect(codeOf(() => parseJson('{"a":'.repeat(200_000)))).to.equal('ERR_BAD_JSON');
    expect(parseJson('9'.repeat(MAX_JSON_INTEGER_DIGITS))).to.be.a('bigint');
    expect(codeOf(() => parseJson('9'.repeat(MAX_JSON_INTEGER_DIGITS + 1)))).to.equal('ERR_BAD_JSON');
    const cycle: Record<string, unknown> = {};
    cycle.self = cycle;
    expect(codeOf(() => stringifyJson(cycle))).to.equal('ERR_BAD_JSON');
  });

  it('lets no key reach a prototype', () => {
    const value = parseJson('{"__proto__":{"polluted":true},"constructor":1}') as Record<string, unknown>;
    expect(Object.getPrototypeOf(value)).to.equal(Object.prototype);
    expect(Object.hasOwn(value, '__proto__')).to.equal(true);
    expect(({} as Record<string, unknown>).polluted).to.equal(undefined);
    expect(stringifyJson(value)).to.equal('{"__proto__":{"polluted":true},"constructor":1}');
  });

  it('writes as JSON.stringify does, but for bigints', () => {
    expect(stringifyJson({ a: 2n ** 64n, b: [undefined, () => 1, Number.NaN], c: undefined })).to.equal(
      '{"a":18446744073709551616,"b":[null,null,null]}',
    );
    expect(stringifyJson({ toJSON: () => [1n] })).to.equal('[1]');
    expect(stringifyJson({ at: new Date(0) })).to.equal('{"at":"1970-01-01T00:00:00.000Z"}');
    expect(stringifyJson(undefined)).to.equal('null');
    expect(stringifyJson([-0, new Number(1), new String('x'), new Boolean(false), Object(5n)])).to.equal(
      '[0,1,"x",false,5]',
    );
    expect(stringifyJson('\u2028"\ud800')).to.equal(JSON.stringify('\u2028"\ud800'));
    expect(new TextDecoder().decode(encodeJson({ é: 1 }))).to.equal('{"é":1}');
  });

  it('random text and mutated JSON give a value or ERR_BAD_JSON', () => {
    const seed = '{"handle":{"hi":1234605616436508552,"lo":-1.5e3},"keys":["a\\u0041",true,null]}';
    const mutated = fc
      .tuple(fc.nat(seed.length - 1), fc.string({ maxLength: 2 }))
      .map(([at, text]) => seed.slice(0, at) + text + seed.slice(at + 1));
    fc.assert(
      fc.property(fc.oneof(fc.string(), mutated), (text) => {
        let expected: unknown;
        let valid = true;
        try {
          expected = JSON.parse(text);
        } catch {
          valid = false;
        }
        try {
          const value = parseJson(text);
          expect(valid, text).to.equal(true);
          if (!/[0-9]{16}/.test(text)) expect(value).to.deep.equal(expected);
        } catch (error) {
          expect(VeloError.is(error, 'ERR_BAD_JSON')).to.equal(true);
          expect(valid, text).to.equal(false);
        }
      }),
      { numRuns: 1000 },
    );
  });
});

describe('wire/json-fields', () => {
  const fields = new JsonFields(
    {
      big: 2n ** 64n - 1n,
      small: 7,
      text: 'x',
      list: ['a'],
      bytes: [0, 255],
      flag: true,
      inner: { n: 70_000 },
      nil: null,
    },
    'Message',
  );

  it('reads typed members', () => {
    expect(fields.u64('big')).to.equal(2n ** 64n - 1n);
    expect(fields.u64('small')).to.equal(7n);
    expect(fields.u32('small')).to.equal(7);
    expect(fields.u16('small')).to.equal(7);
    expect(fields.string('text')).to.equal('x');
    expect(fields.strings('list')).to.deep.equal(['a']);
    expect([...fields.bytes('bytes')]).to.deep.equal([0, 255]);
    expect(fields.boolean('flag')).to.equal(true);
    expect(fields.nested('inner').u32('n')).to.equal(70_000);
    expect([fields.has('nil'), fields.has('none'), fields.get('none')]).to.deep.equal([true, false, undefined]);
  });

  it('names the member in every refusal', () => {
    const refusals: [string, () => unknown][] = [
      ['Message.none', () => fields.u64('none')],
      ['Message.text', () => fields.u64('text')],
      ['Message.big', () => fields.u32('big')],
      ['Message.inner.n', () => fields.nested('inner').u16('n')],
      ['Message.small', () => fields.string('small')],
      ['Message.nil', () => fields.strings('nil')],
      ['Message.list', () => fields.bytes('list')],
      ['Message.flag', () => fields.nested('flag')],
      ['Message.text', () => fields.boolean('text')],
    ];
    for (const [name, read] of refusals) {
      const error = veloErrorOf(read);
      expect(error.code).to.equal('ERR_BAD_CONTROL_MESSAGE');
      expect(error.message).to.include(name);
    }
    expect(codeOf(() => new JsonFields({ n: 2 ** 53 }, 'M').u64('n'))).to.equal('ERR_BAD_CONTROL_MESSAGE');
    expect(codeOf(() => new JsonFields({ n: [256] }, 'M').bytes('n'))).to.equal('ERR_BAD_CONTROL_MESSAGE');
    expect(codeOf(() => new JsonFields([], 'M'))).to.equal('ERR_BAD_CONTROL_MESSAGE');
  });
});
