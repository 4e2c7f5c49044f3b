// The reply ledger against a map that keeps insertion order.

import { expect } from 'chai';
import fc from 'fast-check';
import { NO_CLOSE, ReplyLedger } from '../../../lib/mux/reply-ledger.js';
import { slotId } from '../../../lib/wire/slot-id.js';

interface Owed {
  credit: number;
  close: number;
}

describe('mux reply ledger', () => {
  it('AK-01 behaves like an ordered map of slot ids for any schedule of posts and takes', () => {
    const id = fc
      .tuple(fc.constantFrom(0, 1, 2, 255, 256, 65_535, 65_536, 0xffffff), fc.integer({ min: 0, max: 2 }))
      .map(([index, generation]) => slotId(index, generation));
    const step = fc.oneof(
      { weight: 5, arbitrary: fc.record({ kind: fc.constant('credit'), id, value: fc.integer({ min: 1, max: 9 }) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('close'), id, value: fc.integer({ min: 2, max: 3 }) }) },
      { weight: 3, arbitrary: fc.record({ kind: fc.constant('take'), id, value: fc.integer({ min: 1, max: 4 }) }) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200, size: 'max' }), (steps) => {
        const ledger = new ReplyLedger();
        const model = new Map<number, Owed>();
        for (const { kind, id: slot, value } of steps) {
          if (kind === 'take') {
            for (let i = 0; i < value && model.size > 0; i++) {
              const [key, owed] = [...model][0]!;
              expect(ledger.nextId).to.equal(key);
              expect(ledger.nextClose).to.equal(owed.close);
              if (owed.close === NO_CLOSE) expect(ledger.nextCredit).to.equal(owed.credit);
              ledger.shift();
              model.delete(key);
            }
          } else {
            const owed = model.get(slot) ?? { credit: 0, close: NO_CLOSE };
            model.set(slot, owed);
            if (kind === 'credit') {
              ledger.addCredit(slot, value);
              if (owed.close === NO_CLOSE) owed.credit += value;
            } else {
              ledger.addClose(slot, value);
              if (owed.close === NO_CLOSE) owed.close = value;
            }
          }
          expect(ledger.size).to.equal(model.size);
        }
        ledger.clear();
        expect(ledger.size).to.equal(0);
      }),
      { numRuns: 200 },
    );
  });

  it('a ledger that never runs empty does not grow', () => {
    const ledger = new ReplyLedger();
    for (let i = 0; i < 50; i++) ledger.addCredit(slotId(i, 0), 1);
    for (let i = 0; i < 100_000; i++) {
      expect(ledger.nextId).to.equal(slotId(i % 50, 0));
      ledger.shift();
      ledger.addCredit(slotId(i % 50, 0), 1);
    }
    expect(ledger.size).to.equal(50);
    expect(ledger.memory).to.be.below(5_000);
  });
});
