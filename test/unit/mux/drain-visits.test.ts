// The doorbell's schedule: at most one visit per floor, one deferred visit per key.

import { expect } from 'chai';
import fc from 'fast-check';
import { DrainVisits } from '../../../lib/mux/drain-visits.js';
import { resolveMuxConfig } from '../../../lib/mux/mux-config.js';

describe('mux drain visits', () => {
  it('AC-25 the first wake visits now', () => {
    const visits = new DrainVisits<string>(2);
    expect(visits.wake('a', 100)).to.equal('visit');
    expect(visits.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });

  it('AC-25 a wake inside the floor is due one floor after the last visit', () => {
    const visits = new DrainVisits<string>(2);
    visits.wake('a', 100);
    expect(visits.wake('a', 101)).to.equal('deferred');
    expect(visits.deadline()).to.equal(102);
    expect(visits.takeDue(101.9)).to.equal(undefined);
    expect(visits.takeDue(102)).to.equal('a');
    expect(visits.takeDue(102)).to.equal(undefined);
    expect(visits.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });

  it('AC-25 exactly one floor later visits now', () => {
    const visits = new DrainVisits<string>(2);
    visits.wake('a', 100);
    expect(visits.wake('a', 102)).to.equal('visit');
  });

  it('AC-25 the floor runs from the start of a deferred visit too', () => {
    const visits = new DrainVisits<string>(2);
    visits.wake('a', 100);
    visits.wake('a', 101);
    visits.takeDue(105);
    expect(visits.wake('a', 106)).to.equal('deferred');
    expect(visits.deadline()).to.equal(107);
  });

  it('AC-25 wakes while one is queued merge, even after its time', () => {
    const visits = new DrainVisits<string>(2);
    visits.wake('a', 100);
    visits.wake('a', 101);
    expect(visits.wake('a', 101.5)).to.equal('queued');
    expect(visits.wake('a', 110)).to.equal('queued');
    expect(visits.queued).to.equal(1);
  });

  it('AC-25 64 rounds of wakes cleared by ticks never leave more than one queued', () => {
    const visits = new DrainVisits<string>(1_000);
    visits.wake('a', 0);
    for (let round = 1; round <= 64; round++) {
      visits.wake('a', round);
      visits.prune(round);
      expect(visits.queued).to.equal(1);
      expect(visits.size).to.equal(1);
    }
  });

  it('AC-25 keys are independent', () => {
    const visits = new DrainVisits<string>(2);
    visits.wake('a', 100);
    expect(visits.wake('b', 100.5)).to.equal('visit');
    expect(visits.wake('a', 101)).to.equal('deferred');
    expect(visits.wake('b', 101.5)).to.equal('deferred');
    expect([visits.takeDue(102), visits.takeDue(102), visits.takeDue(103)]).to.deep.equal(['a', undefined, 'b']);
  });

  it('AC-25 a pruned stamp changes no answer, a queued one is not pruned', () => {
    const visits = new DrainVisits<string>(2);
    visits.wake('a', 100);
    visits.prune(101);
    expect(visits.size).to.equal(1);
    expect(visits.wake('a', 101)).to.equal('deferred');
    visits.prune(200);
    expect(visits.size).to.equal(1);
    visits.takeDue(200);
    visits.prune(202);
    expect(visits.size).to.equal(0);
    expect(visits.wake('a', 202)).to.equal('visit');
  });

  it('AC-25 a floor of 0 visits at every wake and remembers nothing', () => {
    const visits = new DrainVisits<string>(0);
    expect([visits.wake('a', 1), visits.wake('a', 1), visits.wake('a', 1)]).to.deep.equal(['visit', 'visit', 'visit']);
    expect(visits.size).to.equal(0);
  });

  it('AC-25 an absurd floor is clamped and its deadline is finite', () => {
    const { drainVisitFloorMs } = resolveMuxConfig({ drainVisitFloorMs: Number.MAX_VALUE });
    const visits = new DrainVisits<string>(drainVisitFloorMs);
    visits.wake('a', 5);
    visits.wake('a', 6);
    expect(visits.deadline()).to.equal(3_600_005);
  });

  it('AC-25 a peer that is gone takes its queued visit along', () => {
    const visits = new DrainVisits<string>(2);
    visits.wake('a', 100);
    visits.wake('a', 101);
    visits.forget('a');
    visits.forget('never seen');
    expect(visits.queued).to.equal(0);
    expect(visits.takeDue(1_000)).to.equal(undefined);
  });

  it('AC-25 no schedule of wakes visits a key twice within its floor, and none is forgotten', () => {
    const wake = fc.record({ key: fc.constantFrom('a', 'b', 'c'), after: fc.integer({ min: 0, max: 40 }) });
    fc.assert(
      fc.property(fc.array(wake, { maxLength: 100, size: 'max' }), (wakes) => {
        const floor = 20;
        const visits = new DrainVisits<string>(floor);
        const last = new Map<string, number>();
        const owed = new Set<string>();
        let now = 0;
        const visit = (key: string): void => {
          if (last.has(key)) expect(now - last.get(key)!).to.be.at.least(floor);
          last.set(key, now);
          owed.delete(key);
        };
        for (const { key, after } of wakes) {
          for (const end = now + after; now < end; now++) {
            for (let due = visits.takeDue(now); due !== undefined; due = visits.takeDue(now)) visit(due);
          }
          visits.prune(now);
          owed.add(key);
          if (visits.wake(key, now) === 'visit') visit(key);
          expect(visits.queued).to.equal(owed.size);
        }
        while (owed.size > 0) {
          now = visits.deadline();
          for (let due = visits.takeDue(now); due !== undefined; due = visits.takeDue(now)) visit(due);
        }
      }),
    );
  });
});
