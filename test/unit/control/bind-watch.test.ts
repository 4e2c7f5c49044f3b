// Binds that nobody opens, over a virtual clock.

import { expect } from 'chai';
import { type Bind, BindWatch } from '../../../lib/control/bind-watch.js';

const WINDOW = 1_000;

class FakeBind implements Bind {
  claimed = false;
  expired = 0;

  isClaimed(): boolean {
    return this.claimed;
  }

  expire(): void {
    this.expired += 1;
  }
}

describe('control: binds that nobody opens', () => {
  let now = 0;
  let watch: BindWatch;
  beforeEach(() => {
    now = 0;
    watch = new BindWatch(() => now);
  });
  afterEach(() => watch.stop());

  function pass(ms: number): void {
    now += ms;
    watch.run();
  }

  it('expire after three windows, once', () => {
    const bind = new FakeBind();
    watch.watch(bind, WINDOW);
    for (let i = 0; i < 29; i++) pass(WINDOW / 10);
    expect(bind.expired).to.equal(0);
    pass(WINDOW / 10);
    expect(bind.expired).to.equal(1);
    expect(watch.size).to.equal(0);
    pass(10 * WINDOW);
    expect(bind.expired).to.equal(1);
  });

  it('are forgotten once claimed or let go', () => {
    const claimed = new FakeBind();
    const ended = new FakeBind();
    watch.watch(claimed, WINDOW);
    const tick = watch.watch(ended, WINDOW);
    pass(WINDOW);
    claimed.claimed = true;
    tick.stop();
    for (let i = 0; i < 50; i++) pass(WINDOW / 10);
    expect([claimed.expired, ended.expired, watch.size]).to.deep.equal([0, 0, 0]);
  });

  it('a process that was stopped gives the opening in its sockets one more window', () => {
    const bind = new FakeBind();
    watch.watch(bind, WINDOW);
    pass(WINDOW);
    pass(WINDOW);
    pass(100 * WINDOW);
    expect(bind.expired).to.equal(0);
    pass(WINDOW);
    expect(bind.expired).to.equal(1);
  });

  it('a thread that is always late still lets go', () => {
    const bind = new FakeBind();
    watch.watch(bind, WINDOW);
    for (let i = 0; i < 4; i++) pass(10 * WINDOW);
    expect(bind.expired).to.equal(1);
  });
});
