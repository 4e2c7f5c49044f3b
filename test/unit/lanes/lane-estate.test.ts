// What peers are told of when a lane dies, over several deaths.

import { expect } from 'chai';
import { LaneEstate } from '../../../lib/lanes/lane-estate.js';
import { RECENT_CANCEL_MS } from '../../../lib/mux/recent-cancels.js';

const slot = (number: number) => ({ slot: number, route: 7, sessionHi: 0, sessionLo: number });

describe('lane: what a dead one leaves', () => {
  let estate: LaneEstate;
  beforeEach(() => {
    estate = new LaneEstate();
  });
  const left = () => ({ routes: [...estate.routes], slots: estate.orphans.map((orphan) => orphan.slot) });

  it('where it had opened slots, what was open on it, and what it had closed of late', () => {
    estate.opens(3);
    estate.opens(3);
    estate.opens(5);
    estate.cancelled(slot(1), 0);
    estate.cancelled(slot(2), RECENT_CANCEL_MS);
    expect(left()).to.deep.equal({ routes: [], slots: [] });
    estate.died([slot(3)], RECENT_CANCEL_MS + 1);
    expect(left()).to.deep.equal({ routes: [3, 5], slots: [3, 2] });
  });

  it('stands until a lane runs in its place, and the next one dies with it if it dies soon', () => {
    estate.opens(3);
    estate.died([slot(1)], 0);
    estate.opens(4);
    estate.died([slot(2)], 1);
    expect(left()).to.deep.equal({ routes: [3, 4], slots: [1, 2] });
    estate.taken(2);
    expect(left()).to.deep.equal({ routes: [], slots: [] });
    estate.died([], 3);
    expect(left()).to.deep.equal({ routes: [], slots: [1, 2] });
    estate.taken(4);
    estate.died([], 5 + RECENT_CANCEL_MS);
    expect(left().slots).to.deep.equal([]);
  });
});
