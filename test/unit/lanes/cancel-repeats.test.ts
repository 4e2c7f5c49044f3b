// When cancels are said again that a connection may have taken along: the pace, and when it is enough.

import { setTimeout as pause } from 'node:timers/promises';
import { expect } from 'chai';
import { CancelRepeats, MAX_REPETITIONS, REPEAT_INTERVAL_MS } from '../../../lib/lanes/cancel-repeats.js';
import { RECENT_CANCEL_MS } from '../../../lib/mux/recent-cancels.js';

describe('lane: cancels said again', () => {
  let now: number;
  let any: boolean;
  let said: number;
  let repeats: CancelRepeats;
  beforeEach(() => {
    [now, any, said] = [0, true, 0];
    repeats = new CancelRepeats({
      now: () => now,
      any: () => any,
      again: () => {
        said += 1;
      },
    });
  });
  afterEach(() => repeats.stop());

  it('at once at first; nothing when nothing was said of late', () => {
    any = false;
    repeats.lost();
    expect(said).to.equal(0);
    any = true;
    repeats.lost();
    expect(said).to.equal(1);
  });

  it('an interval apart, however often connections are lost', async () => {
    for (let i = 0; i < 50; i += 1) repeats.lost();
    expect(said).to.equal(1);
    await pause(1.5 * REPEAT_INTERVAL_MS);
    expect(said).to.equal(2);
    now += REPEAT_INTERVAL_MS;
    repeats.lost();
    expect(said).to.equal(3);
  });

  it('so many times on end, and anew when one was not lost soon', () => {
    for (let i = 0; i < MAX_REPETITIONS + 5; i += 1) {
      repeats.lost();
      now += REPEAT_INTERVAL_MS;
    }
    expect(said).to.equal(MAX_REPETITIONS);
    now += RECENT_CANCEL_MS;
    repeats.lost();
    expect(said).to.equal(MAX_REPETITIONS + 1);
  });

  it('not once it is stopped, nor what was about to be said', async () => {
    repeats.lost();
    repeats.lost();
    repeats.stop();
    await pause(REPEAT_INTERVAL_MS + 50);
    now += 2 * RECENT_CANCEL_MS;
    repeats.lost();
    expect(said).to.equal(1);
  });
});
