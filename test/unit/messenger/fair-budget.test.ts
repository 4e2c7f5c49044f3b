// Shares of a bounded quantity for several parties: never more than there is, never more than half for one, everybody in turn, and
// nothing left behind.

import { expect } from 'chai';
import fc from 'fast-check';
import { VeloError } from '../../../lib/errors.js';
import { FairBudget } from '../../../lib/messenger/fair-budget.js';
import type { Claim } from '../../../lib/messenger/fifo-budget.js';
import { errorCode } from '../plane/errors.js';

const budgetOf = (total: number, maxWaiting = 100) => new FairBudget<string>(total, 'things', maxWaiting);

/** Resolves after everything that was granted has been told. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('a budget that parties share', () => {
  it('one party takes half at the most, and the others find the rest at once', async () => {
    const budget = budgetOf(6);
    const told: string[] = [];
    const claim = (party: string, amount = 1) => {
      const made = budget.take(party, amount);
      void made.granted.then(() => told.push(party));
      return made;
    };
    const claims = Array.from({ length: 10 }, () => claim('greedy'));
    await settle();
    expect([budget.used, budget.waiting]).to.deep.equal([3, 7]);
    claim('late');
    claim('later');
    await settle();
    expect(told).to.deep.equal(['greedy', 'greedy', 'greedy', 'late', 'later']);
    claims[0]!.end();
    await settle();
    expect(told.at(-1)).to.equal('greedy');
    expect([budget.used, budget.waiting]).to.deep.equal([5, 6]);
  });

  it('those that wait are served party by party', async () => {
    const budget = budgetOf(2);
    const told: string[] = [];
    const held = [budget.take('a', 1), budget.take('b', 1)];
    const claim = (party: string, name: string) => {
      const made = budget.take(party, 1);
      void made.granted.then(() => {
        told.push(name);
        made.end();
      });
    };
    for (const i of [1, 2, 3]) claim('a', `a${i}`);
    for (const i of [1, 2]) claim('b', `b${i}`);
    claim('c', 'c1');
    for (const { end } of held) end();
    for (let i = 0; i < 10; i += 1) await settle();
    expect(told).to.have.length(6);
    expect(told.indexOf('c1')).to.be.lessThan(3);
    expect(told.indexOf('b1')).to.be.lessThan(told.indexOf('a2'));
    expect([budget.used, budget.waiting, budget.parties]).to.deep.equal([0, 0, 0]);
  });

  it('a share above half, or above everything, comes alone; whoever waits for a large one is not overtaken for ever', async () => {
    const budget = budgetOf(10);
    const told: string[] = [];
    const first = budget.take('a', 4);
    const large = budget.take('b', 20);
    void large.granted.then(() => told.push('large'));
    const small = budget.take('c', 1);
    void small.granted.then(() => told.push('small'));
    await settle();
    expect(told).to.deep.equal([]);
    first.end();
    await settle();
    expect(told).to.deep.equal(['large']);
    large.end();
    await settle();
    expect(told).to.deep.equal(['large', 'small']);
    small.end();
    expect(budget.parties).to.equal(0);
  });

  it('half of those that may wait may be of one party', () => {
    const budget = budgetOf(1, 4);
    budget.take('a', 1);
    budget.take('a', 1);
    budget.take('a', 1);
    expect(errorCode(() => budget.take('a', 1))).to.equal('ERR_LIMIT');
    budget.take('b', 1);
    budget.take('b', 1);
    expect(errorCode(() => budget.take('c', 1))).to.equal('ERR_LIMIT');
    expect([budget.waiting, budget.parties]).to.deep.equal([4, 2]);
  });

  it('who leaves the queue lets those behind pass, and is never granted', async () => {
    const budget = budgetOf(2);
    const held = budget.take('a', 1);
    const told: string[] = [];
    const left = budget.take('a', 1);
    void left.granted.then(() => told.push('left'));
    void budget.take('a', 1).granted.then(() => told.push('behind'));
    left.end();
    held.end();
    held.end();
    await settle();
    expect(told).to.deep.equal(['behind']);
    expect(budget.used).to.equal(1);
  });

  it('rejects whoever waits, and what is granted is still given back', async () => {
    const budget = budgetOf(2);
    const held = budget.take('a', 1);
    const waiting = budget.take('a', 1);
    const closed = new VeloError('ERR_CLOSED', 'over');
    const told = waiting.granted.catch((error: unknown) => error);
    budget.rejectAll(closed);
    expect(await told).to.equal(closed);
    expect(() => budget.take('b', 1)).to.throw('over');
    waiting.end();
    held.end();
    expect([budget.used, budget.waiting, budget.parties]).to.deep.equal([0, 0, 0]);
  });

  it('never grants more than there is, nor more than half to one; everything that is asked for is granted in the end', async () => {
    const step = fc.record({
      party: fc.constantFrom('a', 'b', 'c'),
      amount: fc.integer({ min: 0, max: 12 }),
      ends: fc.nat({ max: 3 }),
    });
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 10 }), fc.array(step, { maxLength: 30 }), async (total, steps) => {
        const budget = budgetOf(total, 1_000);
        const held: { party: string; claim: Claim }[] = [];
        let granted = 0;
        const check = () => {
          const sum = held.reduce((all, { claim }) => all + claim.amount, 0);
          expect(budget.used).to.equal(sum);
          const some = held.filter(({ claim }) => claim.amount > 0);
          expect(sum <= total || some.length === 1).to.equal(true);
          for (const party of ['a', 'b', 'c']) {
            const own = some.filter((one) => one.party === party);
            const most = own.reduce((all, { claim }) => all + claim.amount, 0);
            expect(most <= budget.share || own.length === 1).to.equal(true);
          }
        };
        for (const { party, amount, ends } of steps) {
          const claim = budget.take(party, amount);
          void claim.granted.then(() => {
            granted += 1;
            held.push({ party, claim });
          });
          await settle();
          check();
          for (const { claim: over } of held.splice(0, ends)) over.end();
          await settle();
          check();
        }
        for (let i = 0; held.length > 0 && i <= steps.length; i += 1) {
          for (const { claim } of held.splice(0, 1)) claim.end();
          await settle();
        }
        expect(granted).to.equal(steps.length);
        expect([budget.used, budget.waiting, budget.parties]).to.deep.equal([0, 0, 0]);
      }),
      { numRuns: 60 },
    );
  });
});
