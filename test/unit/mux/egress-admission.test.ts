// A congested peer: parking, what stands meanwhile, and who goes first afterwards.

import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import { CLOSE_UNKNOWN_SLOT, LIFECYCLE_CANCEL } from '../../../lib/wire/batch.js';
import { CoreNode, frameText } from '../../support/core-pair.js';
import { decodeBatch, FakeOwner } from '../../support/mux-fakes.js';

function values(node: CoreNode): string[][] {
  return node.port.take().map((batch) => batch.records.map((record) => frameText(record.body)));
}

describe('mux egress: admission', () => {
  it('AA-06 a parked batcher pulls no inlet and submits nothing; the answer lets all of it go in order', () => {
    const node = new CoreNode();
    const slot = node.open(new FakeOwner(), 5n, 1n, 4);
    node.turn();
    node.port.take();
    node.port.mode = 'pend';
    node.sendItem(slot, 0);
    node.turn();
    expect(node.batcher.parked).to.equal(true);
    for (let i = 1; i <= 5; i++) node.sendItem(slot, i);
    node.batcher.control.postCredit(slot.id, 10);
    node.finalize(slot);
    node.turn();
    expect(slot.pulledTotal).to.equal(1);
    expect([slot.inlet.length, slot.withheld.length, node.port.sent.length]).to.deep.equal([5, 0, 1]);
    expect(node.batcher.deadline()).to.equal(Number.POSITIVE_INFINITY);
    node.port.mode = 'admit';
    node.admit();
    expect(node.port.scheduled.size).to.equal(1);
    node.turn();
    expect(slot.pulledTotal).to.equal(6);
    expect(values(node).flat().slice(0, 7)).to.deep.equal(['0', '1', '2', '3', '4', '5', 'Finalized']);
  });

  it('AA-06 the sixth standing record of a window of 4 is a broken client', () => {
    const node = new CoreNode();
    const slot = node.open(new FakeOwner(), 5n, 1n, 4);
    node.port.mode = 'pend';
    node.sendItem(slot, 0);
    node.turn();
    for (let i = 1; i <= 5; i++) node.sendItem(slot, i);
    expect(() => node.sendItem(slot, 6))
      .to.throw(VeloError)
      .with.property('code', 'ERR_INTERNAL');
  });

  it('AA-06 a record that comes between the answer and the next run stays behind those that stand', () => {
    const node = new CoreNode();
    const slot = node.open(new FakeOwner(), 5n, 1n, 9);
    node.turn();
    node.port.take();
    node.port.mode = 'pend';
    node.sendItem(slot, 0);
    node.turn();
    node.sendItem(slot, 1);
    node.sendItem(slot, 2);
    node.port.mode = 'admit';
    node.admit();
    node.sendItem(slot, 3);
    node.turn();
    expect(values(node).flat()).to.deep.equal(['0', '1', '2', '3']);
  });

  it('AA-06 a packed batch that parks in the middle of a pull stops it at once, for records without credit too', () => {
    const node = new CoreNode({ mux: { maxBatchBytes: 60 } });
    const slot = node.open(new FakeOwner(), 5n, 1n, 3);
    node.port.mode = 'pend';
    node.sendItem(slot, 0);
    node.sendItem(slot, 1);
    node.turn();
    expect(node.batcher.parked).to.equal(true);
    const standing = slot.inlet.length;
    expect([slot.pulledTotal, slot.withheld.length]).to.deep.equal([2 - standing, 0]);
    for (let i = 2; i <= 3; i++) node.sendItem(slot, i);
    expect([slot.pulledTotal, slot.inlet.length, slot.withheld.length]).to.deep.equal([2 - standing, standing + 2, 0]);
    node.admit();
    node.turn();
    expect(node.batcher.parked).to.equal(true);
    expect(slot.inlet.length).to.be.above(0);
    expect(slot.withheld.length).to.equal(0);
  });

  it('AA-06 replies of their own batches go one per admission', () => {
    const node = new CoreNode({ mux: { maxBatchBytes: 0 } });
    node.port.mode = 'pend';
    for (const slotId of [0x100, 0x200, 0x300]) node.batcher.control.replyCredit(slotId, 1);
    node.batcher.control.replyLifecycle(0x400, 0, 1, LIFECYCLE_CANCEL);
    node.batcher.control.reject(0x500, CLOSE_UNKNOWN_SLOT);
    node.turn();
    const seen: number[] = [];
    while (node.port.hasPending) {
      seen.push(node.port.sent.length);
      node.admit();
      node.turn();
    }
    expect(seen).to.deep.equal([1, 2, 3, 4, 5]);
  });

  it('AA-06 slots that stand while every batch parks take turns', () => {
    // Each batch holds one of these records.
    const node = new CoreNode({ mux: { maxBatchBytes: 40 } });
    const slots = [1n, 2n, 3n].map((session) => node.open(new FakeOwner(), 5n, session, 10));
    node.port.take();
    node.port.mode = 'pend';
    for (const slot of slots) for (let i = 0; i < 3; i++) node.sendItem(slot, i);
    const order: number[] = [];
    while (node.port.hasPending) {
      order.push(node.port.take()[0]!.records[0]!.index);
      node.admit();
      node.turn();
    }
    expect(order.slice(1, 4).sort()).to.deep.equal([0, 1, 2]);
    expect(order).to.have.length(9);
  });

  it('AA-06 under a peer that parks every batch, data and opens both get their turn', () => {
    const node = new CoreNode();
    const slot = node.open(new FakeOwner(), 5n, 0n, 30);
    node.turn();
    node.port.take();
    node.port.mode = 'pend';
    node.sendItem(slot, 0);
    node.turn();
    const seen: string[] = [];
    for (let round = 1; round <= 12; round++) {
      for (let i = 0; i < 3; i++) node.open(new FakeOwner(), 5n, BigInt(round * 10 + i));
      node.sendItem(slot, round);
      node.admit();
      node.turn();
      seen.push(node.port.sent.map((batch) => decodeBatch(batch).records[0]!.type).at(-1)!);
    }
    expect(seen.filter((type) => type === 'open')).to.have.length(6);
    expect(seen.filter((type) => type === 'data')).to.have.length(6);
  });

  it('data given to an open that still waits is served although slots come first in that drain', () => {
    const node = new CoreNode();
    const first = node.open(new FakeOwner(), 5n, 0n, 30);
    node.turn();
    node.port.mode = 'pend';
    node.sendItem(first, 0);
    node.turn();
    const second = node.open(new FakeOwner(), 5n, 1n, 30);
    const third = node.open(new FakeOwner(), 5n, 2n, 30);
    const fourth = node.open(new FakeOwner(), 5n, 3n, 30);
    node.finalize(fourth);
    node.sendItem(third, 7);
    node.finalize(third);
    node.sendItem(second, 8);
    for (let i = 0; i < 9 && node.port.hasPending; i++) {
      node.admit();
      node.turn();
    }
    const records = node.port.take().flatMap((batch) => batch.records);
    const of = (id: number): string[] => records.filter((r) => r.slot === id).map((r) => `${r.type} ${r.seq}`);
    expect(of(second.id)).to.deep.equal(['open 0', 'data 1']);
    expect(of(fourth.id)).to.deep.equal(['open 0', 'data 1', 'close 2']);
    expect(of(third.id)).to.deep.equal(['open 0', 'data 1', 'data 2', 'close 3']);
  });

  it('a cancel from a congested peer reaches the producer while its batch still waits', () => {
    const node = new CoreNode();
    const owner = new FakeOwner();
    const slot = node.open(owner, 5n, 1n);
    node.turn();
    node.port.mode = 'pend';
    node.sendItem(slot, 0);
    node.turn();
    node.sendItem(slot, 1);
    node.batcher.control.postLifecycle(slot.id, 0, 1, LIFECYCLE_CANCEL);
    node.turn();
    expect(owner.events.slice(1)).to.deep.equal(['cancelled', 'closed cancelled', 'retired discarded']);
    expect(node.port.sent).to.have.length(2);
    node.admit();
    node.turn();
    expect(node.port.sent).to.have.length(2);
  });

  it('opens that died in the queue leave its places free', () => {
    const node = new CoreNode();
    node.port.mode = 'pend';
    for (let i = 0; i < 65; i++) node.open(new FakeOwner(), 5n, BigInt(i));
    node.batcher.epochDeath('health');
    const owner = new FakeOwner();
    node.open(owner, 5n, 99n);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    expect(owner.events).to.deep.equal(['opened true']);
  });

  it('an admission nobody waits for is an internal error', () => {
    const node = new CoreNode();
    node.open(new FakeOwner(), 5n, 1n);
    expect(() => node.batcher.admission(true))
      .to.throw(VeloError)
      .with.property('code', 'ERR_INTERNAL');
  });
});
