// Which lane a key names.

import { expect } from 'chai';
import { laneHash, laneOfKey, usableLanes } from '../../../lib/wire/lane-hash.js';
import { loadVectors } from '../../support/vectors.js';

describe('wire/lane-hash', () => {
  it('AL-07 a key lands on the same lane in every build', () => {
    expect(laneHash(0n)).to.equal(0xe220a8397b1dcdafn);
    expect(laneHash(1n)).to.equal(0x910a2dec89025cc1n);
    const lanes = (count: number): number[] => Array.from({ length: 8 }, (_, key) => laneOfKey(BigInt(key), count));
    expect(lanes(4)).to.deep.equal([3, 1, 2, 1, 2, 2, 0, 3]);
    expect(lanes(8)).to.deep.equal([7, 1, 6, 5, 2, 2, 0, 7]);
    expect(lanes(16)).to.deep.equal([15, 1, 14, 13, 10, 10, 0, 7]);
  });

  it('AL-08 256 keys that are multiples of 16 spread over 4 lanes, 40 to 90 on each', () => {
    const counts = [0, 0, 0, 0];
    for (let key = 0n; key < 256n; key++) counts[laneOfKey(key * 16n, 4)]! += 1;
    expect(counts.reduce((sum, count) => sum + count)).to.equal(256);
    for (const count of counts) expect(count).to.be.within(40, 90);
  });

  it('uses between 1 and 16 lanes', () => {
    expect([0, 1, 16, 17, 64, -3, Number.NaN].map(usableLanes)).to.deep.equal([1, 1, 16, 16, 16, 1, 1]);
  });

  for (const vector of loadVectors<{ name: string; key: string; lanes: number; hash: string; lane: number }>(
    'lane-hash',
  )) {
    it(`AL-07 vector: key ${vector.name} over ${vector.lanes} lanes`, () => {
      expect(laneHash(BigInt(vector.key))).to.equal(BigInt(vector.hash));
      expect(laneOfKey(BigInt(vector.key), vector.lanes)).to.equal(vector.lane);
    });
  }
});
