// The cells of the node block, against plain numbers, and its header.

import { expect } from 'chai';
import fc from 'fast-check';
import { CELL_WORDS, readCell, writeCell } from '../../../lib/plane/cells.js';
import { SharedMemory } from '../../../lib/plane/memory.js';
import { createNodeBlock, NodeBlock } from '../../../lib/plane/node-block.js';
import { errorCode } from './errors.js';

const TWO_POW_32 = 2 ** 32;

describe('node block', () => {
  it('hands out epochs from 1 up, one to each caller', () => {
    const buffer = createNodeBlock(2, 3);
    const [a, b] = [new NodeBlock(buffer), new NodeBlock(buffer)];
    expect([a.nextEpoch(), b.nextEpoch(), a.nextEpoch()]).to.deep.equal([1, 2, 3]);
  });

  it('hands out data ids beside them, and closes its gate for everybody, once', () => {
    const buffer = createNodeBlock(1, 1);
    const [a, b] = [new NodeBlock(buffer), new NodeBlock(buffer)];
    a.nextEpoch();
    expect([a.nextDataId(), b.nextDataId()]).to.deep.equal([1, 2]);
    expect(b.isGateClosed).to.equal(false);
    a.closeGate();
    expect([a.isGateClosed, b.isGateClosed]).to.deep.equal([true, true]);
    expect(a.nextEpoch()).to.equal(2);
  });

  it('each lane beats in a word of its own, which is in the way of nothing', () => {
    const buffer = createNodeBlock(16, 1);
    const [lane, watcher] = [new NodeBlock(buffer), new NodeBlock(buffer)];
    for (let i = 0; i < 16; i += 1) for (let n = 0; n <= i; n += 1) lane.beat(i);
    expect(Array.from({ length: 16 }, (_, i) => watcher.beats(i))).to.deep.equal(
      Array.from({ length: 16 }, (_, i) => i + 1),
    );
    expect([watcher.total(0), watcher.nextEpoch(), watcher.isGateClosed]).to.deep.equal([0, 1, false]);
  });

  it('says what is watched, and counts the events taken of each lane, apart from every cell', () => {
    const buffer = createNodeBlock(16, 1);
    const [main, lane] = [new NodeBlock(buffer), new NodeBlock(buffer)];
    expect(lane.watched).to.equal(0);
    main.watch(31);
    expect(lane.watched).to.equal(31);
    main.takeEvent(0);
    main.takeEvent(15);
    main.takeEvent(15);
    expect([0, 1, 14, 15].map((at) => lane.eventsTaken(at))).to.deep.equal([1, 0, 0, 2]);
    expect(main.total(0)).to.equal(0);
    main.setCell(0, 0, 9);
    expect(lane.eventsTaken(15)).to.equal(2);
    expect(errorCode(() => createNodeBlock(33, 1))).to.equal('ERR_INTERNAL');
  });

  it('cells hold sums beyond 2^32, each lane its own', () => {
    const step = fc.record({
      lane: fc.integer({ min: 0, max: 2 }),
      cell: fc.integer({ min: 0, max: 8 }),
      n: fc.oneof(fc.nat(100), fc.integer({ min: -100, max: 2 ** 31 - 1 }), fc.constantFrom(2 ** 31, TWO_POW_32 - 1)),
      set: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const block = new NodeBlock(createNodeBlock(3, 9));
        const model = new Map<string, number>();
        for (const { lane, cell, n, set } of steps) {
          const key = `${lane}.${cell}`;
          if (set) block.setCell(lane, cell, Math.abs(n) * 3);
          else block.addCell(lane, cell, n);
          model.set(key, set ? Math.abs(n) * 3 : (model.get(key) ?? 0) + n);
        }
        for (let cell = 0; cell < 9; cell++) {
          let total = 0;
          for (let lane = 0; lane < 3; lane++) {
            const expected = model.get(`${lane}.${cell}`) ?? 0;
            expect(block.readCell(lane, cell)).to.equal(expected);
            total += expected;
          }
          expect(block.total(cell)).to.equal(total);
        }
      }),
    );
  });

  it('a cell crosses 2^32 up and down, one at a time', () => {
    const block = new NodeBlock(createNodeBlock(1, 1));
    block.setCell(0, 0, TWO_POW_32 - 2);
    for (const [n, value] of [
      [1, TWO_POW_32 - 1],
      [1, TWO_POW_32],
      [1, TWO_POW_32 + 1],
      [-2, TWO_POW_32 - 1],
      [TWO_POW_32 * 3, TWO_POW_32 * 4 - 1],
    ] as const) {
      block.addCell(0, 0, n);
      expect(block.readCell(0, 0)).to.equal(value);
    }
    block.setCell(0, 0, Number.MAX_SAFE_INTEGER);
    expect(block.readCell(0, 0)).to.equal(Number.MAX_SAFE_INTEGER);
  });

  it('a reader does not hang on a writer that died in the middle of a change', () => {
    const memory = new SharedMemory(new SharedArrayBuffer(CELL_WORDS * 4));
    writeCell(memory, 0, TWO_POW_32 - 1);
    memory.store(1, 1);
    expect(readCell(memory, 0), 'before the lower half').to.equal(TWO_POW_32 - 1);
    memory.store(0, 4);
    expect(readCell(memory, 0), 'after it').to.equal(TWO_POW_32 + 4);
    writeCell(memory, 0, 0);
    expect(readCell(memory, 0)).to.equal(0);
    expect([memory.load(1), memory.load(2)], 'a later writer repairs it').to.deep.equal([0, 0]);
  });

  it('what lanes stage is bounded over all of them, also above 2 GiB, and a dead lane has nothing staged', () => {
    const block = new NodeBlock(createNodeBlock(16, 1));
    const limit = 2 ** 31 - 1;
    expect(block.reserveStaged(0, 2_000_000_000, limit)).to.equal(true);
    expect([block.reserveStaged(15, 147_483_648, limit), block.reserveStaged(15, 147_483_647, limit)]).to.deep.equal([
      false,
      true,
    ]);
    expect(block.reserveStaged(3, 1, limit)).to.equal(false);
    block.releaseStaged(15, 147_483_647);
    expect(block.reserveStaged(3, 147_483_647, limit)).to.equal(true);
    block.buryBytes(0);
    expect(block.reserveStaged(1, 2_000_000_000, limit)).to.equal(true);
    expect(block.readCell(0, 0)).to.equal(0);
  });

  it('refuses memory of another layout', () => {
    expect(errorCode(() => new NodeBlock(new SharedArrayBuffer(1024)))).to.equal('ERR_CONDUIT_BROKEN');
  });
});
