// How often, and how soon, a dead lane is replaced.

import { expect } from 'chai';
import { NO_RESTART, RESTART_WINDOW_MS, RestartLimit } from '../../../lib/lanes/restart-limit.js';

describe('the limit of restarts', () => {
  it('the first one is at once, each further one within the window later, and one too many is the last', () => {
    const limit = new RestartLimit(4);
    expect([0, 1, 2, 3].map((now) => limit.died(now))).to.deep.equal([0, 100, 200, 400]);
    expect(limit.died(4)).to.equal(NO_RESTART);
    expect(limit.died(10 * RESTART_WINDOW_MS), 'dead is dead').to.equal(NO_RESTART);
  });

  it('a death is forgotten after a minute', () => {
    const limit = new RestartLimit(2);
    expect(limit.died(0)).to.equal(0);
    expect(limit.died(RESTART_WINDOW_MS - 1)).to.equal(100);
    expect(limit.died(RESTART_WINDOW_MS)).to.equal(100);
    expect(limit.died(3 * RESTART_WINDOW_MS)).to.equal(0);
  });

  it('0 replaces none', () => {
    expect(new RestartLimit(0).died(5)).to.equal(NO_RESTART);
  });

  it('the wait has an upper end', () => {
    const limit = new RestartLimit(1_000);
    let last = 0;
    for (let i = 0; i < 50; i += 1) last = limit.died(i);
    expect(last).to.equal(5_000);
  });
});
