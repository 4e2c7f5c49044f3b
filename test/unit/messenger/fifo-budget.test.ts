// Shares of a bounded quantity: never more than there is, strictly in order, and nothing lost when somebody leaves the queue.

import { expect } from 'chai';
import fc from 'fast-check';
import { VeloError } from '../../../lib/errors.js';
import { type Claim, FifoBudget } from '../../../lib/messenger/fifo-budget.js';
import { errorCode } from '../plane/errors.js';

const budgetOf = (total: number, maxWaiting = 100) => new FifoBudget(total, 'things', maxWaiting);

/** Resolves after everything that was granted has been told. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('a budget of shares', () => {
  it('grants what is there, and nobody overtakes who waits', async () => {
    const budget = budgetOf(10);
    const first = budget.tryTake(8)!;
    const order: string[] = [];
    const large = budget.take(5);
    void large.granted.then(() => order.push('large'));
    expect(budget.tryTake(1), 'one would fit, but another waits').to.equal(undefined);
    void budget.take(1).granted.then(() => order.push('small'));
    await settle();
    expect(order).to.deep.equal([]);
    first.end();
    await settle();
    expect(order).to.deep.equal(['large', 'small']);
    expect(budget.used).to.equal(6);
  });

  it('a share is given back once', () => {
    const budget = budgetOf(10);
    const share = budget.tryTake(4)!;
    budget.tryTake(4);
    share.end();
    share.end();
    expect(budget.used).to.equal(4);
  });

  it('who leaves the queue lets those behind pass', async () => {
    const budget = budgetOf(10);
    budget.tryTake(8);
    const large = budget.take(5);
    const small = budget.take(2);
    large.end();
    await small.granted;
    expect([budget.used, budget.waiting]).to.deep.equal([10, 0]);
  });

  it('a share larger than everything is granted alone', async () => {
    const budget = budgetOf(10);
    const one = budget.tryTake(1)!;
    const huge = budget.take(11);
    expect(budget.waiting).to.equal(1);
    one.end();
    await huge.granted;
    expect(budget.tryTake(1)).to.equal(undefined);
  });

  it('the queue has an end, and so does the wait', async () => {
    const budget = budgetOf(1, 1);
    budget.tryTake(1);
    const waiting = budget.take(1);
    expect(errorCode(() => budget.take(1))).to.equal('ERR_LIMIT');
    const closed = new VeloError('ERR_CLOSED', 'over');
    budget.rejectAll(closed);
    const outcome = await waiting.granted.then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(outcome).to.equal(closed);
    expect(errorCode(() => budget.take(1))).to.equal('ERR_CLOSED');
    waiting.end();
    expect(budget.used).to.equal(1);
  });

  it('a random crowd never holds more than there is, and is served in the order it came', async () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant('take' as const), amount: fc.integer({ min: 0, max: 12 }) }),
      fc.record({ kind: fc.constant('end' as const), which: fc.nat() }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const budget = budgetOf(10, 1000);
        const claims: { claim: Claim; number: number; granted: boolean }[] = [];
        const granted: number[] = [];
        let next = 0;
        for (const each of steps) {
          if (each.kind === 'take') {
            const one = { claim: budget.take(each.amount), number: next++, granted: false };
            claims.push(one);
            void one.claim.granted.then(() => {
              one.granted = true;
              granted.push(one.number);
            });
          } else if (claims.length > 0) claims.splice(each.which % claims.length, 1)[0]!.claim.end();
          await settle();
          const held = claims.filter((one) => one.granted).reduce((sum, one) => sum + one.claim.amount, 0);
          expect(budget.used).to.equal(held);
          const alone = claims.filter((one) => one.granted && one.claim.amount > 0).length === 1;
          expect(held <= 10 || alone, `${held} are held`).to.equal(true);
          expect(granted).to.deep.equal([...granted].sort((a, b) => a - b));
          expect(budget.waiting).to.equal(claims.filter((one) => !one.granted).length);
          if (held === 0) expect(budget.waiting, 'somebody waits for nothing').to.equal(0);
        }
      }),
      { numRuns: 60 },
    );
  });
});
