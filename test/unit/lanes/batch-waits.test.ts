// The wait of a batch: from the socket read that brought it to its turn, on the lane that it is for.

import { expect } from 'chai';
import { BatchWaits } from '../../../lib/lanes/batch-waits.js';
import { MAX_LANES } from '../../../lib/wire/names.js';

describe('waits of batches', () => {
  it('are those since the read they came in, a sample each, by mux lane', () => {
    let now = 1_000;
    const waits = new BatchWaits(() => now);
    waits.arrived();
    waits.turn(0);
    now += 3;
    waits.turn(0);
    waits.turn(MAX_LANES - 1);
    now += 10;
    waits.arrived();
    waits.turn(0);
    const [first, last] = [waits.byLane[0]!, waits.byLane[MAX_LANES - 1]!];
    expect([first.count, first.sum]).to.deep.equal([3, 0.003]);
    expect([last.count, last.sum]).to.deep.equal([1, 0.003]);
    expect(waits.byLane.slice(1, -1).every(({ count }) => count === 0)).to.equal(true);
  });

  it('one that had to be fetched has waited since it was named', () => {
    let now = 0;
    const waits = new BatchWaits(() => now);
    waits.arrived();
    const { arrivedAt } = waits;
    now = 2_000;
    waits.arrived();
    waits.turn(4, arrivedAt);
    expect(waits.byLane[4]!.sum).to.equal(2);
  });
});
