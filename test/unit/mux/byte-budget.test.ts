// Byte budgets: one, and the slot/peer pair.

import { expect } from 'chai';
import { ByteBudget, reserveBoth } from '../../../lib/mux/byte-budget.js';

describe('mux byte budgets', () => {
  it('AC-28 reservations add up and release back', () => {
    const budget = new ByteBudget(100);
    expect([budget.reserve(60), budget.reserve(40)]).to.deep.equal(['reserved', 'reserved']);
    expect(budget.used).to.equal(100);
    budget.release(60);
    expect(budget.used).to.equal(40);
  });

  it('AC-28 what does not fit now is transient, what never fits is permanent, over-release stops at 0', () => {
    const budget = new ByteBudget(100);
    budget.reserve(80);
    expect(budget.reserve(30)).to.equal('exhausted');
    expect(budget.reserve(101)).to.equal('exceedsBudget');
    expect(budget.used).to.equal(80);
    budget.release(1_000);
    expect(budget.used).to.equal(0);
    expect(budget.reserve(100)).to.equal('reserved');
  });

  it('AC-29 a paired reservation is all or nothing', () => {
    const slot = new ByteBudget(100);
    const peer = new ByteBudget(50);
    expect(reserveBoth(slot, peer, 60)).to.equal(false);
    expect([slot.used, peer.used]).to.deep.equal([0, 0]);
    const small = new ByteBudget(10);
    expect(reserveBoth(small, peer, 20)).to.equal(false);
    expect([small.used, peer.used]).to.deep.equal([0, 0]);
    expect(reserveBoth(slot, peer, 50)).to.equal(true);
    expect([slot.used, peer.used]).to.deep.equal([50, 50]);
  });

  it('AC-30 ten slots of 500 against a peer cap of 1,000 admit exactly 1,000', () => {
    const peer = new ByteBudget(1_000);
    const slots = Array.from({ length: 10 }, () => new ByteBudget(500));
    let admitted = 0;
    for (let round = 0; round < 10; round++) {
      for (const slot of slots) if (reserveBoth(slot, peer, 100)) admitted += 100;
    }
    expect(admitted).to.equal(1_000);
    expect(slots.reduce((sum, slot) => sum + slot.used, 0)).to.equal(1_000);
  });
});
