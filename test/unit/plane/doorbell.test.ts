// The doorbell on one thread: who is rung, how often, and what the sleeper's wait sees.

import { expect } from 'chai';
import { DOORBELL_WORDS, Doorbell } from '../../../lib/plane/doorbell.js';
import { SharedMemory } from '../../../lib/plane/memory.js';

function doorbell(): { memory: SharedMemory; bell: Doorbell } {
  const memory = new SharedMemory(new SharedArrayBuffer(2 * DOORBELL_WORDS * 4));
  return { memory, bell: new Doorbell(memory, DOORBELL_WORDS) };
}

describe('doorbell', () => {
  it('rings only who parked, and once for each time', () => {
    const { bell } = doorbell();
    expect(bell.ring()).to.equal(false);
    bell.park();
    expect(bell.ring()).to.equal(true);
    expect(bell.ring()).to.equal(false);
    bell.park();
    bell.unpark();
    expect(bell.ring()).to.equal(false);
  });

  it('changes the word that the sleeper waits on, so that a late wait returns at once', () => {
    const { memory, bell } = doorbell();
    const value = bell.park();
    expect(memory.load(bell.bellWord)).to.equal(value);
    bell.ring();
    expect(memory.load(bell.bellWord)).to.not.equal(value);
    expect(Atomics.wait(memory.words, bell.bellWord, value, 10_000)).to.equal('not-equal');
  });

  it('wakes a standing asynchronous wait', async () => {
    const { memory, bell } = doorbell();
    const value = bell.park();
    const wait = Atomics.waitAsync(memory.words, bell.bellWord, value);
    expect(wait.async).to.equal(true);
    bell.ring();
    expect(await wait.value).to.equal('ok');
  });

  it('calls the hook instead of waking a thread, and leaves the word alone', () => {
    const { memory, bell } = doorbell();
    let rung = 0;
    bell.hook = () => rung++;
    bell.ring();
    const value = bell.park();
    bell.ring();
    bell.ring();
    expect(rung).to.equal(1);
    expect(memory.load(bell.bellWord)).to.equal(value);
  });
});
