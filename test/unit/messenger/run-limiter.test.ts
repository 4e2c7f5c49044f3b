import { expect } from 'chai';
import { RunLimiter } from '../../../lib/messenger/run-limiter.js';

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('run limiter', () => {
  it('lets in as many as it may, and the others in order of arrival', async () => {
    const limiter = new RunLimiter(2);
    const entered: number[] = [];
    expect([limiter.enter(), limiter.enter()]).to.deep.equal([undefined, undefined]);
    for (const n of [1, 2, 3]) void limiter.enter()?.then(() => entered.push(n));
    expect([limiter.running, limiter.waiting]).to.deep.equal([2, 3]);
    limiter.leave();
    await settle();
    expect(entered).to.deep.equal([1]);
    limiter.leave();
    limiter.leave();
    await settle();
    expect(entered).to.deep.equal([1, 2, 3]);
    expect([limiter.running, limiter.waiting]).to.deep.equal([2, 0]);
    limiter.leave();
    limiter.leave();
    expect(limiter.running).to.equal(0);
  });

  it('a place that is given on is never free for one that comes in between', () => {
    const limiter = new RunLimiter(1);
    limiter.enter();
    const second = limiter.enter();
    limiter.leave();
    expect(second).not.to.equal(undefined);
    expect(limiter.enter(), 'the place is the second one’s').not.to.equal(undefined);
  });

  it('takes no limit below 1', () => {
    for (const limit of [0, -1, 1.5, Number.NaN])
      expect(() => new RunLimiter(limit))
        .to.throw()
        .with.property('code', 'ERR_INVALID_ARGUMENT');
  });
});
