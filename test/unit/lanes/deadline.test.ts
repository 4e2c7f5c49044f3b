// A deadline can come closer and not go away.

import { expect } from 'chai';
import { Deadline } from '../../../lib/lanes/deadline.js';

describe('a deadline', () => {
  it('without a limit has all the time there is', () => {
    expect(new Deadline().left).to.equal(Number.POSITIVE_INFINITY);
  });

  it('comes closer, and not farther', async () => {
    const deadline = new Deadline();
    deadline.limit(60_000);
    deadline.limit(0);
    deadline.limit(60_000);
    await deadline.passed;
    expect(deadline.left).to.equal(0);
  });

  it('that is cleared takes no further limit', () => {
    const deadline = new Deadline();
    deadline.limit(60_000);
    deadline.clear();
    deadline.limit(10);
    expect(deadline.left).to.equal(0);
  });
});
