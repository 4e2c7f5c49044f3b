// Slot ids: packing, order, generations.

import { expect } from 'chai';
import fc from 'fast-check';
import {
  MAX_SLOT_INDEX,
  nextGeneration,
  slotGeneration,
  slotId,
  slotIndex,
  withGeneration,
} from '../../../lib/wire/slot-id.js';
import { codeOf } from '../../support/vectors.js';

const MAX_U32 = 0xffffffff;

describe('wire/slot-id', () => {
  it('AS-01 packs the index above the generation, so raw ids sort by index', () => {
    expect(slotId(0, 0)).to.equal(0);
    expect(slotId(0xabcdef, 0x42)).to.equal(0xabcdef42);
    expect(slotId(MAX_SLOT_INDEX, 255)).to.equal(MAX_U32);
    expect(slotIndex(0xabcdef42)).to.equal(0xabcdef);
    expect(slotGeneration(0xabcdef42)).to.equal(0x42);
    const ids = [slotId(3, 0), slotId(0x900000, 1), slotId(2, 255), slotId(0, 9)];
    expect([...ids].sort((a, b) => a - b).map(slotIndex)).to.deep.equal([0, 2, 3, 0x900000]);
  });

  it('AS-02 refuses an index beyond 24 bits and takes every raw u32 as an id', () => {
    expect(codeOf(() => slotId(MAX_SLOT_INDEX + 1, 0))).to.equal('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => slotId(-1, 0))).to.equal('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => slotId(1.5, 0))).to.equal('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => slotId(0, 256))).to.equal('ERR_INVALID_ARGUMENT');
    fc.assert(
      fc.property(fc.integer({ min: 0, max: MAX_U32 }), (raw) => {
        expect(slotId(slotIndex(raw), slotGeneration(raw))).to.equal(raw);
      }),
    );
  });

  it('AS-03 wraps the generation from 255 to 0 and comes back after 256 steps', () => {
    expect(nextGeneration(255)).to.equal(0);
    let id = slotId(0xabcdef, 7);
    for (let i = 0; i < 256; i++) {
      id = withGeneration(id, nextGeneration(slotGeneration(id)));
      expect(slotIndex(id)).to.equal(0xabcdef);
    }
    expect(id).to.equal(slotId(0xabcdef, 7));
  });

  it('AS-04 replaces only the low byte', () => {
    expect(withGeneration(0xffffff00, 0x5a)).to.equal(0xffffff5a);
    expect(withGeneration(0x00000112, 0)).to.equal(0x100);
  });
});
