import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import { transportLane } from '../../../lib/messenger/transport-lane.js';

describe('transport lane', () => {
  it('AL-19 a one-lane producer told lane 3 uses lane 0', () => {
    expect(transportLane(3, 1)).to.equal(0);
    expect(transportLane(15, 1)).to.equal(0);
  });

  it('AL-02 lanes are those of the transport, at most 16 and at least 1', () => {
    expect([transportLane(3, 4), transportLane(5, 4), transportLane(15, 16)]).to.deep.equal([3, 1, 15]);
    expect(transportLane(17, 64)).to.equal(1);
    expect(transportLane(9, 0)).to.equal(0);
  });

  it('takes any whole lane and nothing else', () => {
    for (const bad of [-1, 1.5, Number.NaN]) {
      expect(() => transportLane(bad, 4)).to.throw(VeloError, 'lane must be a whole number');
    }
  });
});
