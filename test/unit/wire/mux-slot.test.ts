// The header that names the stream of a staged record.

import { expect } from 'chai';
import fc from 'fast-check';
import { encodeHeaderMap } from '../../../lib/wire/header-map.js';
import { formatMuxSlot, parseMuxSlot } from '../../../lib/wire/mux-slot.js';
import { HEADER_MUX_SLOT } from '../../../lib/wire/names.js';

const MAX = '18446744073709551615';

describe('_mux_slot header', () => {
  it('reads <epoch>:<slot>:<session> in decimal, as velo writes it', () => {
    const name = { epoch: 1n, slot: 0, session: 77n };
    expect(formatMuxSlot(name)).to.equal('1:0:77');
    expect(parseMuxSlot('1:0:77')).to.deep.equal(name);
    const map = encodeHeaderMap([[HEADER_MUX_SLOT, formatMuxSlot(name)]]);
    expect(Buffer.from(map).toString('hex')).to.equal('81a95f6d75785f736c6f74a6313a303a3737');
  });

  it('every name comes back as it was', () => {
    const u64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
    const name = fc.record({ epoch: u64, slot: fc.nat(2 ** 32 - 1), session: u64 });
    fc.assert(fc.property(name, (given) => void expect(parseMuxSlot(formatMuxSlot(given))).to.deep.equal(given)));
    expect(parseMuxSlot(`${MAX}:4294967295:${MAX}`)?.session).to.equal(2n ** 64n - 1n);
  });

  it('anything else names nothing, however long', () => {
    const bad = [
      '',
      ':',
      '::',
      '1:2',
      '1:2:3:4',
      ' 1:2:3',
      '1:2:3\n',
      '+1:2:3',
      '-1:2:3',
      '0x1:2:3',
      '1e3:2:3',
      '01:2:3',
    ];
    bad.push(
      '1:4294967296:3',
      '18446744073709551616:0:0',
      `0:0:${MAX}0`,
      '१:0:0',
      `${'9'.repeat(100_000)}:0:0`,
      '1:0.5:2',
    );
    for (const text of bad) expect(parseMuxSlot(text), text.slice(0, 40)).to.equal(undefined);
  });
});
