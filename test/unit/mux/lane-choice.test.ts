// Lane choice from load arrays: least loaded, keyed, and the sender's own clamp.

import { expect } from 'chai';
import { chooseLane, leastLoadedLane, ridingLane } from '../../../lib/mux/lane-choice.js';
import { laneOfKey } from '../../../lib/wire/lane-hash.js';

/** Chooses `count` times without a key, counting each choice as load. */
function choices(loads: number[], lanes: number, count: number): number[] {
  return Array.from({ length: count }, () => {
    const lane = chooseLane(undefined, loads, lanes);
    loads[lane]! += 1;
    return lane;
  });
}

/** A key whose lane is the one asked for. */
function keyFor(lane: number, lanes: number): bigint {
  let key = 0n;
  while (laneOfKey(key, lanes) !== lane) key += 1n;
  return key;
}

describe('mux lane choice', () => {
  it('AL-10 with two live slots on lane 0, four unkeyed attaches land on 1, 2, 3, 1', () => {
    expect(choices([2, 0, 0, 0], 4, 4)).to.deep.equal([1, 2, 3, 1]);
  });

  it('AL-10 the loads of another peer are another array and do not matter', () => {
    const other = [0, 9, 9, 9];
    const mine = [0, 0, 0, 0];
    expect(chooseLane(undefined, mine, 4)).to.equal(0);
    expect(chooseLane(undefined, other, 4)).to.equal(0);
    expect(choices(mine, 4, 3)).to.deep.equal([0, 1, 2]);
  });

  it('AL-12 eight unkeyed pre-binds give 0,1,2,3,0,1,2,3; one given back is the next choice', () => {
    const loads = [0, 0, 0, 0];
    expect(choices(loads, 4, 8)).to.deep.equal([0, 1, 2, 3, 0, 1, 2, 3]);
    loads[2]! -= 1;
    expect(chooseLane(undefined, loads, 4)).to.equal(2);
  });

  it('AL-13 a node load of 2,2,1,0 sends three pre-binds to 3, 2, 3; ties go to the lowest lane', () => {
    expect(choices([2, 2, 1, 0], 4, 3)).to.deep.equal([3, 2, 3]);
    expect(leastLoadedLane([1, 1, 1, 1], 4)).to.equal(0);
  });

  it('AL-16 streams keyed to lanes 0,1,2,3,1 make a load of 1,2,1,1', () => {
    const loads = [0, 0, 0, 0];
    for (const lane of [0, 1, 2, 3, 1]) loads[chooseLane(keyFor(lane, 4), loads, 4)]! += 1;
    expect(loads).to.deep.equal([1, 2, 1, 1]);
  });

  it('AL-16 a key ignores the load', () => {
    expect(chooseLane(keyFor(2, 4), [0, 0, 1_000, 0], 4)).to.equal(2);
  });

  it('AL-17 a keyed bind counts as load, so an unkeyed one avoids its lane', () => {
    const loads = [0, 0];
    loads[chooseLane(keyFor(0, 2), loads, 2)]! += 1;
    expect(chooseLane(undefined, loads, 2)).to.equal(1);
  });

  it('AL-02 lanes are capped at 16, loads beyond do not count, a missing load is none', () => {
    const loads = new Array<number>(20).fill(1);
    loads[18] = 0;
    expect(leastLoadedLane(loads, 64)).to.equal(0);
    expect(leastLoadedLane([3], 3)).to.equal(1);
  });

  it('AL-19 a one-lane sender told lane 3 rides lane 0, one with two rides lane 1', () => {
    expect([ridingLane(3, 1), ridingLane(3, 2), ridingLane(3, 4)]).to.deep.equal([0, 1, 3]);
  });

  it('AL-20 a receiver with one lane names lane 0, key or not', () => {
    expect(chooseLane(7n, [5], 1)).to.equal(0);
    expect(chooseLane(undefined, [5], 1)).to.equal(0);
  });
});
