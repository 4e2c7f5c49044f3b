// What the egress counts, and when.

import { expect } from 'chai';
import { BatchSizes } from '../../../lib/mux/mux-metrics.js';
import { CLOSE_UNKNOWN_SLOT, LIFECYCLE_STOP } from '../../../lib/wire/batch.js';
import { CoreNode } from '../../support/core-pair.js';
import { FakeOwner } from '../../support/mux-fakes.js';

function sentByType(node: CoreNode): number[] {
  const m = node.metrics;
  return [
    m.recordsSentOpenSlot,
    m.recordsSentData,
    m.recordsSentCloseSlot,
    m.recordsSentCreditUpdate,
    m.recordsSentLifecycle,
  ];
}

describe('mux egress: metrics', () => {
  it('AV-04 records sent by type equal what is decoded off the wire', () => {
    const node = new CoreNode();
    const slot = node.open(new FakeOwner(), 5n, 1n);
    node.sendItem(slot, 1);
    node.sendItem(slot, 2);
    node.batcher.control.replyCredit(0x900, 4);
    node.batcher.control.replyLifecycle(0xa00, 0, 1, LIFECYCLE_STOP);
    node.finalize(slot);
    node.turn();
    const batches = node.port.take();
    const decoded = batches.flatMap((batch) => batch.records.map((record) => record.type));
    const counts = ['open', 'data', 'close', 'credit', 'lifecycle'].map(
      (type) => decoded.filter((other) => other === type).length,
    );
    expect(counts).to.deep.equal([1, 3, 1, 1, 1]);
    expect(sentByType(node)).to.deep.equal(counts);
    expect([node.metrics.sent.count, node.metrics.sent.sum]).to.deep.equal([batches.length, decoded.length]);
  });

  it('AV-04 records of a batch of its own are counted by type too', () => {
    const node = new CoreNode();
    const slot = node.open(new FakeOwner(), 5n, 1n);
    node.sendItem(slot, 1, 200_000);
    node.turn();
    expect(sentByType(node)).to.deep.equal([1, 1, 0, 0, 0]);
    expect(node.metrics.singletons).to.equal(1);
  });

  it('AV-04 batch after batch, counts and retirements are those of the batch', () => {
    const node = new CoreNode();
    for (let i = 0; i < 5; i++) {
      const owner = new FakeOwner();
      const slot = node.open(owner, 5n, BigInt(i));
      node.sendItem(slot, 1);
      node.batcher.control.replyCredit(0x900, 1);
      node.batcher.control.replyLifecycle(0xa00, 0, i, LIFECYCLE_STOP);
      node.finalize(slot);
      node.turn();
      expect(owner.count('retired sent')).to.equal(1);
      expect(sentByType(node)).to.deep.equal([i + 1, 2 * (i + 1), i + 1, i + 1, i + 1]);
    }
    expect(node.metrics.singletons).to.equal(0);
  });

  it('AV-05 records staged and then lost are not counted as sent', () => {
    const node = new CoreNode({ mux: { flushPolicy: 'manual' } });
    const slot = node.open(new FakeOwner(), 5n, 1n);
    node.sendItem(slot, 1);
    expect(node.metrics.stagedRecords).to.equal(1);
    node.batcher.epochDeath('health');
    expect(sentByType(node)).to.deep.equal([1, 0, 0, 0, 0]);
    const next = node.open(new FakeOwner(), 5n, 2n);
    node.sendItem(next, 1);
    node.port.mode = 'pend';
    node.batcher.kick();
    expect(node.metrics.recordsSentData).to.equal(0);
    node.admit(false);
    expect(sentByType(node)).to.deep.equal([2, 0, 0, 0, 0]);
    expect(node.metrics.stagedRecords).to.equal(0);
  });

  it('AV-06 wakes are counted by their first cause, once per wake', () => {
    const node = new CoreNode({ mux: { flushPolicy: { onAdmission: false, maxLingerMs: 5 } } });
    const slots = [1n, 2n].map((session) => {
      const slot = node.open(new FakeOwner(), 5n, session);
      node.turn();
      return slot;
    });
    const m = node.metrics;
    const wakes = (): number[] => [m.wakesOpen, m.wakesControl, m.wakesFrame, m.wakesInletClosed, m.wakesLinger];
    expect(wakes()).to.deep.equal([2, 0, 0, 0, 0]);
    for (let i = 0; i < 3; i++) node.sendItem(slots[0]!, i);
    node.turn();
    expect(wakes()).to.deep.equal([2, 0, 1, 0, 0]);
    node.advance(5);
    expect(wakes()).to.deep.equal([2, 0, 1, 0, 1]);
    node.batcher.control.replyClose(0x900, 0, 0, CLOSE_UNKNOWN_SLOT);
    node.sendItem(slots[0]!, 4);
    node.turn();
    expect(wakes()).to.deep.equal([2, 1, 1, 0, 1]);
    node.batcher.inletClosed(slots[0]!);
    node.turn();
    expect(wakes()).to.deep.equal([2, 1, 1, 1, 1]);
    node.batcher.run();
    node.batcher.kick();
    expect(wakes()).to.deep.equal([2, 1, 1, 1, 1]);
  });

  it('AV-03 batch sizes fall into buckets 1, 2, 4 … 2,048 and above', () => {
    const sizes = new BatchSizes();
    for (const records of [1, 2, 3, 4, 5, 2_048, 2_049, 65_535]) sizes.observe(records);
    expect(sizes.buckets).to.deep.equal([1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    expect([sizes.count, sizes.sum]).to.deep.equal([8, 1 + 2 + 3 + 4 + 5 + 2_048 + 2_049 + 65_535]);
  });

  it('AV-01 live slots are counted while they live', () => {
    const node = new CoreNode();
    const slots = [1n, 2n, 3n].map((session) => node.open(new FakeOwner(), 5n, session));
    expect(node.metrics.liveSlots).to.equal(3);
    for (const slot of slots) node.finalize(slot);
    node.turn();
    expect(node.metrics.liveSlots).to.equal(0);
  });
});
