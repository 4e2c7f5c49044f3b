// The row set against a Set, and what turning a bit on tells the caller.

import { expect } from 'chai';
import fc from 'fast-check';
import { Doorbell } from '../../../lib/plane/doorbell.js';
import { SharedMemory } from '../../../lib/plane/memory.js';
import { RowSet, rowSetWords } from '../../../lib/plane/row-set.js';
import { ReceiverRows, ROW_WORDS } from '../../../lib/plane/rows.js';

const BASE = 16;

function rowSet(rows: number): RowSet {
  return new RowSet(new SharedMemory(new SharedArrayBuffer((BASE + rowSetWords(rows)) * 4)), BASE, rows);
}

function takeAll(set: RowSet, rows: number): number[] {
  const out = new Int32Array(rows);
  return [...out.subarray(0, set.take(out))];
}

describe('row set', () => {
  for (const rows of [1024, 3072, 65_536]) {
    it(`is a set of up to ${rows} rows`, () => {
      const row = fc.oneof(
        fc.integer({ min: 0, max: rows - 1 }),
        fc.constantFrom(0, 31, 32, 1023, rows - 1, rows - 32),
      );
      const set = rowSet(rows);
      fc.assert(
        fc.property(fc.array(fc.oneof(row, fc.constant('take' as const)), { maxLength: 100 }), (steps) => {
          const model = new Set<number>();
          for (const step of [...steps, 'take' as const]) {
            expect(set.isEmpty()).to.equal(model.size === 0);
            if (step === 'take') {
              expect(takeAll(set, rows)).to.deep.equal([...model].sort((a, b) => a - b));
              model.clear();
            } else {
              expect(set.add(step)).to.equal(!model.has(step));
              model.add(step);
            }
          }
        }),
      );
    });
  }

  it('takes every row at once', () => {
    const set = rowSet(1024);
    for (let row = 0; row < 1024; row++) set.add(row);
    expect(takeAll(set, 1024)).to.deep.equal(Array.from({ length: 1024 }, (_, row) => row));
    expect(set.isEmpty()).to.equal(true);
  });

  it('keeps to its own words', () => {
    const memory = new SharedMemory(new SharedArrayBuffer((rowSetWords(2048) + 2) * 4));
    const set = new RowSet(memory, 1, 2048);
    for (let row = 0; row < 2048; row++) set.add(row);
    expect([memory.load(0), memory.load(rowSetWords(2048) + 1)]).to.deep.equal([0, 0]);
  });

  it('AC-22 a second drain of a listed row rings nobody, and one visit collects both', () => {
    const memory = new SharedMemory(new SharedArrayBuffer((rowSetWords(1024) + 16 + 8 * ROW_WORDS) * 4));
    const set = new RowSet(memory, 0, 1024);
    const bell = new Doorbell(memory, rowSetWords(1024));
    const rows = new ReceiverRows(memory, rowSetWords(1024) + 16, 8);
    let rung = 0;
    bell.hook = () => rung++;
    const drain = (): void => {
      rows.addDrained(5, 1);
      if (set.add(5)) bell.ring();
    };
    bell.park();
    drain();
    drain();
    expect(rung).to.equal(1);
    expect(takeAll(set, 1024)).to.deep.equal([5]);
    expect(rows.takeDrained(5)).to.equal(2);
    expect(rows.takeDrained(5), 'a second visit finds nothing').to.equal(0);
    bell.park();
    drain();
    expect(rung, 'the next drain lists the row again').to.equal(2);
  });
});
