// How long an anchor waits for a sender, over a virtual clock.

import { expect } from 'chai';
import { Alarms } from '../../../lib/control/alarms.js';
import { UnattachedTimer } from '../../../lib/control/unattached-timer.js';

describe('control: anchors that nobody attaches to', () => {
  let now = 0;
  let fired = 0;
  let alarms: Alarms;
  beforeEach(() => {
    now = 0;
    fired = 0;
    alarms = new Alarms(() => now);
  });
  afterEach(() => alarms.stop());

  function pass(ms: number): void {
    now += ms;
    alarms.run();
  }

  function timer(timeoutMs: number | undefined): UnattachedTimer {
    const made = new UnattachedTimer(
      alarms,
      () => {
        fired += 1;
      },
      timeoutMs,
    );
    made.start();
    return made;
  }

  it('fire once, when the time is over and not before', () => {
    timer(1_000);
    pass(999);
    expect(fired).to.equal(0);
    pass(1);
    pass(10_000);
    expect(fired).to.equal(1);
    expect(alarms.size).to.equal(0);
  });

  it('AF-23 stand still while somebody is attached, and begin anew with the detach', () => {
    const waits = timer(1_000);
    pass(900);
    waits.pause();
    pass(10_000);
    expect(alarms.size).to.equal(0);
    waits.start();
    pass(999);
    expect(fired).to.equal(0);
    pass(1);
    expect(fired).to.equal(1);
  });

  it('AF-23 another time while somebody is attached counts from the detach on', () => {
    const waits = timer(1_000);
    waits.pause();
    waits.change(100);
    pass(10_000);
    expect([fired, alarms.size]).to.deep.equal([0, 0]);
    waits.start();
    pass(100);
    expect(fired).to.equal(1);
  });

  it('AF-23 without a time they wait for ever, until they get one', () => {
    const waits = timer(1_000);
    waits.change(undefined);
    pass(100_000);
    expect([fired, alarms.size]).to.deep.equal([0, 0]);
    waits.change(1_000);
    pass(1_000);
    expect(fired).to.equal(1);
  });

  it('AF-23 another time takes the place of the one that runs', () => {
    const waits = timer(10_000);
    pass(500);
    waits.change(1_000);
    pass(999);
    expect(fired).to.equal(0);
    pass(1);
    expect(fired).to.equal(1);
    pass(20_000);
    expect(fired).to.equal(1);
  });

  it('a thousand of them stand in one queue and leave it again', () => {
    const all = Array.from({ length: 1_000 }, (_, i) => timer(1_000 + i));
    expect(alarms.size).to.equal(1_000);
    pass(1_499);
    expect(fired).to.equal(500);
    for (const one of all) one.pause();
    expect(alarms.size).to.equal(0);
  });
});
