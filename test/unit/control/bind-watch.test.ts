// Binds that nobody opens, over a virtual clock: the windows of a silent sender, and the accept window.

import { expect } from 'chai';
import { Alarms } from '../../../lib/control/alarms.js';
import { type Bind, BindWatch } from '../../../lib/control/bind-watch.js';

const WINDOW = 1_000;
const ACCEPT = 180_000;

class FakeBind implements Bind {
  claimed = false;
  silences = 0;
  reaped = 0;

  isClaimed(): boolean {
    return this.claimed;
  }

  silent(): void {
    this.silences += 1;
  }

  unclaimed(): void {
    this.reaped += 1;
  }
}

describe('control: binds that nobody opens', () => {
  let now = 0;
  let alarms: Alarms;
  beforeEach(() => {
    now = 0;
    alarms = new Alarms(() => now);
  });
  afterEach(() => alarms.stop());

  function pass(ms: number): void {
    now += ms;
    alarms.run();
  }

  function watch(bind: Bind, acceptWindowMs = ACCEPT, heartbeatMs: number | undefined = WINDOW): BindWatch {
    return new BindWatch(alarms, bind, { heartbeatMs, acceptWindowMs }, now);
  }

  /** As its owner does once the stream is over. */
  function watchToTheEnd(bind: FakeBind, acceptWindowMs = ACCEPT, heartbeatMs?: number): void {
    const watched = new BindWatch(
      alarms,
      {
        isClaimed: () => bind.claimed,
        silent: () => {
          bind.silent();
          watched.stop();
        },
        unclaimed: () => {
          bind.unclaimed();
          watched.stop();
        },
      },
      { heartbeatMs, acceptWindowMs },
      now,
    );
  }

  it('are silent after three windows, once', () => {
    const bind = new FakeBind();
    watchToTheEnd(bind, ACCEPT, WINDOW);
    for (let i = 0; i < 29; i++) pass(WINDOW / 10);
    expect(bind.silences).to.equal(0);
    pass(WINDOW / 10);
    expect(bind.silences).to.equal(1);
    expect(alarms.size).to.equal(0);
    pass(2 * ACCEPT);
    expect([bind.silences, bind.reaped]).to.deep.equal([1, 0]);
  });

  it('are forgotten once claimed or let go', () => {
    const claimed = new FakeBind();
    const ended = new FakeBind();
    watch(claimed);
    const letGo = watch(ended);
    pass(WINDOW / 2);
    claimed.claimed = true;
    letGo.stop();
    pass(WINDOW / 2);
    expect(alarms.size, 'also the accept window of a claimed one').to.equal(0);
    pass(2 * ACCEPT);
    expect([claimed.silences, claimed.reaped, ended.silences, ended.reaped]).to.deep.equal([0, 0, 0, 0]);
  });

  it('a process that was stopped gives the opening in its sockets one more window', () => {
    const bind = new FakeBind();
    watch(bind);
    pass(WINDOW);
    pass(WINDOW);
    pass(100 * WINDOW);
    expect(bind.silences).to.equal(0);
    pass(WINDOW);
    expect(bind.silences).to.equal(1);
  });

  it('a thread that is always late still lets go', () => {
    const bind = new FakeBind();
    watch(bind);
    for (let i = 0; i < 4; i++) pass(10 * WINDOW);
    expect(bind.silences).to.equal(1);
  });

  it('the accept window acts where it is shorter than three windows', () => {
    const bind = new FakeBind();
    watchToTheEnd(bind, 2_500, WINDOW);
    pass(2_499);
    expect(bind.reaped).to.equal(0);
    pass(1);
    expect(bind.reaped).to.equal(1);
    pass(10 * WINDOW);
    expect([bind.reaped, bind.silences, alarms.size]).to.deep.equal([1, 0, 0]);
  });

  it('silence says nothing of a bind whose sender is not known: only the accept window ends it', () => {
    const bind = new FakeBind();
    watchToTheEnd(bind);
    pass(ACCEPT - 1);
    expect([bind.reaped, bind.silences]).to.deep.equal([0, 0]);
    pass(1);
    expect([bind.reaped, bind.silences, alarms.size]).to.deep.equal([1, 0, 0]);
  });

  it('a process that was stopped gives the opening in its sockets one more accept window', () => {
    const bind = new FakeBind();
    watchToTheEnd(bind);
    pass(10 * ACCEPT);
    expect(bind.reaped).to.equal(0);
    pass(ACCEPT - 1);
    expect(bind.reaped).to.equal(0);
    pass(1);
    expect([bind.reaped, alarms.size]).to.deep.equal([1, 0]);
    const late = new FakeBind();
    watchToTheEnd(late);
    pass(10 * ACCEPT);
    late.claimed = true;
    pass(10 * ACCEPT);
    expect([late.reaped, alarms.size]).to.deep.equal([0, 0]);
  });

  it('a claimed one outlives its accept window', () => {
    const bind = new FakeBind();
    watchToTheEnd(bind);
    bind.claimed = true;
    pass(ACCEPT);
    expect([bind.reaped, alarms.size]).to.deep.equal([0, 0]);
  });
});
