// Ending a linger window early: a batch that holds a record of every live slot, and a batch that is large enough.

import { expect } from 'chai';
import type { EgressSlot } from '../../../lib/mux/egress-slot.js';
import type { FlushPolicyOption } from '../../../lib/mux/mux-config.js';
import { CLOSE_UNKNOWN_SLOT } from '../../../lib/wire/batch.js';
import { CoreNode } from '../../support/core-pair.js';
import { FakeOwner } from '../../support/mux-fakes.js';

const WINDOW = 10;
const COMPLETE: FlushPolicyOption = { onAdmission: false, maxLingerMs: WINDOW, onComplete: true };

function opened(flushPolicy: FlushPolicyOption, count: number, replyLingerMs = 1_000): [CoreNode, EgressSlot[]] {
  const node = new CoreNode({ mux: { flushPolicy, replyLingerMs } });
  node.clock.now = 100;
  const slots = Array.from({ length: count }, (_, i) => node.open(new FakeOwner(), 5n, BigInt(i + 1)));
  node.turn();
  node.port.take();
  return [node, slots];
}

/** Records of the batches that went. */
const sizes = (node: CoreNode) => node.port.take().map(({ records }) => records.length);

describe('mux egress: the end of a linger window', () => {
  it('AU-12 a batch with a record of every live slot goes at once when the last data write is a window ago', () => {
    const [node, slots] = opened(COMPLETE, 3);
    for (const slot of slots) {
      expect(sizes(node)).to.deep.equal([]);
      node.sendItem(slot, 1);
      node.turn();
    }
    expect(sizes(node)).to.deep.equal([3]);
  });

  it('AU-12 else at the later of its oldest record and one window after the last write that carried data', () => {
    const [node, slots] = opened(COMPLETE, 2);
    for (const slot of slots) node.sendItem(slot, 1);
    node.turn();
    expect(sizes(node)).to.deep.equal([2]);
    node.advance(4);
    for (const slot of slots) node.sendItem(slot, 2);
    node.turn();
    expect(sizes(node)).to.deep.equal([]);
    // Six more, not ten: the window runs from the last write.
    expect(node.batcher.deadline()).to.equal(100 + WINDOW);
    node.advance(5);
    expect(sizes(node)).to.deep.equal([]);
    node.advance(1);
    expect(sizes(node)).to.deep.equal([2]);
  });

  it('AU-12 a slot that is live and silent leaves the plain window', () => {
    const [node, slots] = opened(COMPLETE, 3);
    for (let i = 0; i < 3; i++) for (const slot of slots.slice(0, 2)) node.sendItem(slot, i);
    node.turn();
    expect(sizes(node)).to.deep.equal([]);
    expect(node.batcher.deadline()).to.equal(100 + WINDOW);
    node.advance(WINDOW);
    expect(sizes(node)).to.deep.equal([6]);
  });

  it('AU-12 a slot that closes takes its record out of the count, and itself', () => {
    const [node, slots] = opened(COMPLETE, 3);
    node.sendItem(slots[0]!, 1);
    node.turn();
    node.batcher.control.postClose(slots[0]!.id, CLOSE_UNKNOWN_SLOT);
    node.sendItem(slots[1]!, 1);
    node.turn();
    expect(sizes(node)).to.deep.equal([]);
    node.sendItem(slots[2]!, 1);
    node.turn();
    expect(sizes(node)).to.deep.equal([3]);
  });

  it('AU-12 a slot whose records are withheld has none in the batch', () => {
    const [node, slots] = opened(COMPLETE, 1);
    const starved = node.open(new FakeOwner(), 5n, 9n, 0);
    node.port.take();
    node.sendItem(starved, 1);
    node.sendItem(slots[0]!, 1);
    node.turn();
    expect(sizes(node)).to.deep.equal([]);
    node.batcher.control.postCredit(starved.id, 1);
    node.turn();
    expect(sizes(node)).to.deep.equal([2]);
  });

  it('AU-12 without a window a complete batch goes at once, every time, and an incomplete one waits for a kick', () => {
    const [node, slots] = opened({ onAdmission: false, onComplete: true }, 2);
    for (let i = 0; i < 3; i++) {
      for (const slot of slots) node.sendItem(slot, i);
      node.turn();
      expect(sizes(node)).to.deep.equal([2]);
    }
    node.sendItem(slots[0]!, 9);
    node.turn();
    node.advance(1_000);
    expect([sizes(node), node.batcher.deadline()]).to.deep.equal([[], Number.POSITIVE_INFINITY]);
  });

  it('AU-13 empty flushes, OpenSlot batches and credit-only batches are no data write', () => {
    const [node, slots] = opened(COMPLETE, 1);
    node.sendItem(slots[0]!, 1);
    node.turn();
    expect(sizes(node)).to.deep.equal([1]);
    node.advance(WINDOW - 1);
    node.batcher.kick();
    const second = node.open(new FakeOwner(), 5n, 2n);
    node.batcher.control.replyCredit(0x500, 1);
    node.turn();
    node.batcher.kick();
    expect(sizes(node)).to.deep.equal([1, 1]);
    node.advance(1);
    // One window after the data write, whatever went since.
    node.sendItem(slots[0]!, 2);
    node.sendItem(second, 1);
    node.turn();
    expect(sizes(node)).to.deep.equal([2]);
  });

  it('AU-13 replies and closes make no batch complete', () => {
    const [node, slots] = opened({ ...(COMPLETE as object), maxLingerMs: 500 }, 2);
    node.sendItem(slots[0]!, 1);
    for (let i = 0; i < 5; i++) node.batcher.control.replyCredit(0x500 + (i << 8), 1);
    node.turn();
    node.advance(400);
    expect(sizes(node)).to.deep.equal([]);
    node.batcher.control.replyClose(0x100, 0, 0, CLOSE_UNKNOWN_SLOT);
    node.turn();
    // The close is urgent by itself; what it took along was not complete, and counts as a data write.
    expect(sizes(node)).to.deep.equal([7]);
    for (const slot of slots) node.sendItem(slot, 2);
    node.turn();
    expect(sizes(node)).to.deep.equal([]);
    expect(node.batcher.deadline()).to.equal(100 + 400 + 500);
  });

  it('AU-14 a lone stream slower than the window waits for nothing; a faster one keeps one write per window', () => {
    const [node, slots] = opened(COMPLETE, 1);
    for (let i = 0; i < 5; i++) {
      node.sendItem(slots[0]!, i);
      node.turn();
      expect(sizes(node)).to.deep.equal([1]);
      node.advance(WINDOW);
    }
    const writes: number[] = [];
    for (let ms = 0; ms < 100; ms++) {
      node.sendItem(slots[0]!, ms % 30);
      node.turn();
      node.advance(1);
      node.batcher.control.postCredit(slots[0]!.id, 1);
      writes.push(...sizes(node));
    }
    expect(writes.length).to.be.within(10, 11);
    expect(writes.reduce((sum, n) => sum + n, 0)).to.be.at.least(90);
  });

  it('AU-14 a singleton is a data write too', () => {
    const [node, slots] = opened(COMPLETE, 1);
    node.sendItem(slots[0]!, 1, 100_000);
    node.turn();
    node.advance(3);
    node.sendItem(slots[0]!, 2);
    node.turn();
    expect(sizes(node)).to.deep.equal([1]);
    expect(node.batcher.deadline()).to.equal(100 + WINDOW);
  });

  it('AU-15 a batch that reaches so many bytes ends the window, and the cap stays where it is', () => {
    const [node, slots] = opened({ onAdmission: false, maxLingerMs: 1_000, atBytes: 200 }, 1);
    // 16 for the batch, 13 + 40 for each record.
    for (let i = 0; i < 3; i++) node.sendItem(slots[0]!, i, 34);
    node.turn();
    expect(sizes(node)).to.deep.equal([]);
    node.sendItem(slots[0]!, 3, 34);
    node.turn();
    expect(sizes(node)).to.deep.equal([4]);
    const capped = new CoreNode({
      mux: { maxBatchBytes: 128, flushPolicy: { onAdmission: false, maxLingerMs: 1_000, atBytes: 100_000 } },
    });
    const slot = capped.open(new FakeOwner(), 5n, 1n);
    capped.port.take();
    for (let i = 0; i < 9; i++) capped.sendItem(slot, i, 34);
    capped.turn();
    for (const { bytes } of capped.port.take()) expect(bytes.length).to.be.at.most(128);
  });

  it('AU-15 exactly so many bytes are enough, one less is not', () => {
    for (const [atBytes, expected] of [
      [69, [1]],
      [70, []],
    ] as const) {
      const [node, slots] = opened({ onAdmission: false, atBytes }, 1);
      node.sendItem(slots[0]!, 1, 34);
      node.turn();
      expect(sizes(node)).to.deep.equal(expected);
    }
  });

  it('without onComplete no slot is stamped, and the record of a pass costs no clock', () => {
    const [node, slots] = opened({ onAdmission: false, maxLingerMs: WINDOW }, 2);
    const before = node.port.clockReads;
    for (const slot of slots) for (let i = 0; i < 10; i++) node.sendItem(slot, i);
    expect(node.port.clockReads - before).to.equal(1);
    expect(slots.map(({ stamp }) => stamp)).to.deep.equal([0, 0]);
  });
});
