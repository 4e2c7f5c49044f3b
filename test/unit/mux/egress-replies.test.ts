// Replies to the peer and control about our own slots: linger, order, merging, bounds.

import { expect } from 'chai';
import type { MuxOptions } from '../../../lib/mux/mux-config.js';
import { CLOSE_PROTOCOL_ERROR, CLOSE_UNKNOWN_SLOT, LIFECYCLE_CANCEL, LIFECYCLE_STOP } from '../../../lib/wire/batch.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { CoreNode } from '../../support/core-pair.js';
import { FakeOwner, type PlainBatch } from '../../support/mux-fakes.js';

/** A node with a batcher of which nothing is asked yet. */
function fresh(mux: MuxOptions = {}): CoreNode {
  const node = new CoreNode({ mux });
  expect(node.batcher.liveSlots).to.equal(0);
  return node;
}

function shape(batch: PlainBatch): string {
  return batch.records
    .map(
      (record) =>
        `${record.type} ${record.index}.${record.generation} ${record.delta ?? record.reason ?? record.action}`,
    )
    .join(', ');
}

function flushed(node: CoreNode): string[] {
  node.turn();
  node.batcher.kick();
  return node.port.take().map(shape);
}

describe('mux egress: replies and control', () => {
  it('AG-01 replies of 1, 2 and 3 leave together, in order, at the end of the window', () => {
    const node = fresh({ replyLingerMs: 1_000 });
    for (const delta of [1, 2, 3]) {
      node.batcher.control.replyCredit(0x100, delta);
      node.turn();
      node.advance(100);
    }
    expect(node.port.sent).to.have.length(0);
    expect(node.batcher.deadline()).to.equal(1_000);
    node.advance(699);
    expect(node.port.sent).to.have.length(0);
    node.advance(1);
    expect(node.port.take().map(shape)).to.deep.equal(['credit 1.0 1, credit 1.0 2, credit 1.0 3']);
  });

  it('AG-02 a close does not wait and carries the reply staged before it, in order', () => {
    const node = fresh({ replyLingerMs: 250 });
    node.batcher.control.replyCredit(0x100, 7);
    node.turn();
    node.batcher.control.replyClose(0x200, 0, 0, CLOSE_UNKNOWN_SLOT);
    node.turn();
    expect(node.port.take().map(shape)).to.deep.equal(['credit 1.0 7, close 2.0 2']);
  });

  it('AG-03 a zero linger makes a reply urgent', () => {
    const node = fresh({ replyLingerMs: 0, flushPolicy: 'manual' });
    node.batcher.control.replyCredit(0x100, 7);
    node.turn();
    expect(node.port.take().map(shape)).to.deep.equal(['credit 1.0 7']);
  });

  it('AG-04 a record that joins later neither cancels nor moves the window of the reply', () => {
    const node = fresh({ replyLingerMs: 10, flushPolicy: 'manual' });
    const slot = node.open(new FakeOwner(), 5n, 1n);
    node.turn();
    node.port.take();
    node.batcher.control.replyCredit(0x100, 1);
    node.turn();
    node.advance(6);
    node.sendItem(slot, 1);
    node.turn();
    expect(node.batcher.deadline()).to.equal(10);
    node.advance(4);
    expect(node.port.take()).to.have.length(1);
  });

  it('AG-05 auto: any other record ends the wait; opening a slot ends it under every policy', () => {
    for (const flushPolicy of ['auto', 'manual', { onAdmission: false, maxLingerMs: 500 }] as const) {
      const node = fresh({ replyLingerMs: 100, flushPolicy });
      const slot = node.open(new FakeOwner(), 5n, 1n);
      node.turn();
      node.port.take();
      node.batcher.control.replyCredit(0x100, 1);
      node.turn();
      node.sendItem(slot, 1);
      node.turn();
      expect(node.port.sent.length).to.equal(flushPolicy === 'auto' ? 1 : 0);
      node.batcher.control.replyCredit(0x100, 2);
      node.turn();
      node.port.take();
      node.open(new FakeOwner(), 5n, 2n);
      const types = node.port.take().map((batch) => batch.records.map((record) => record.type).join());
      expect(types.at(-1)).to.equal('open');
      expect(types.at(-2)).to.match(/credit$/);
    }
  });

  it('AG-06 no policy holds a reply past its window', () => {
    for (const flushPolicy of [
      'auto',
      'manual',
      { onAdmission: false },
      { onAdmission: false, maxLingerMs: 9_000 },
    ] as const) {
      const node = fresh({ flushPolicy });
      node.batcher.control.replyCredit(0x100, 1);
      node.turn();
      node.advance(0.5);
      expect(node.port.sent).to.have.length(0);
      node.advance(0.5);
      expect(node.port.take()).to.have.length(1);
    }
  });

  it('replies of one drain go lifecycle, then per slot, then refusals', () => {
    const node = fresh();
    const { control } = node.batcher;
    control.reject(slotId(9, 0), CLOSE_UNKNOWN_SLOT);
    control.replyCredit(slotId(1, 0), 5);
    control.replyClose(slotId(2, 0), 0, 0, CLOSE_PROTOCOL_ERROR);
    control.replyCredit(slotId(3, 0), 6);
    control.replyLifecycle(slotId(4, 0), 1, 2, LIFECYCLE_STOP);
    expect(flushed(node)).to.deep.equal(['lifecycle 4.0 0, credit 1.0 5, close 2.0 3, credit 3.0 6, close 9.0 2']);
  });

  it('AK-01 10,000 credit replies to one slot are one record of 10,000', () => {
    const node = fresh();
    for (let i = 0; i < 10_000; i++) node.batcher.control.replyCredit(0x100, 1);
    expect(flushed(node)).to.deep.equal(['credit 1.0 10000']);
  });

  it('AK-01 replies to a parked batcher merge: sums are kept, records are few', () => {
    const node = fresh();
    const slot = node.open(new FakeOwner(), 5n, 1n, 200);
    node.turn();
    node.port.take();
    node.port.mode = 'pend';
    node.sendItem(slot, 0);
    node.turn();
    for (let i = 0; i < 10_000; i++) {
      node.batcher.control.replyCredit(slotId(i % 3, 0), 1);
      node.batcher.control.postCredit(slot.id, 1);
    }
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    node.batcher.kick();
    const credits = node.port.take().flatMap((batch) => batch.records.filter((record) => record.type === 'credit'));
    expect(credits.map((record) => record.delta)).to.deep.equal([3_334, 3_333, 3_333]);
    expect(slot.credit).to.equal(199 + 10_000);
  });

  it('AK-01 credit saturates at 2^32−1, both ways', () => {
    const node = fresh();
    const slot = node.open(new FakeOwner(), 5n, 1n, 0);
    for (let i = 0; i < 3; i++) {
      node.batcher.control.replyCredit(0x100, 0xffff_ffff);
      node.batcher.control.postCredit(slot.id, 0xffff_ffff);
    }
    node.turn();
    node.batcher.kick();
    expect(node.port.take().at(-1)!.records.at(-1)!.delta).to.equal(0xffff_ffff);
    expect(slot.credit).to.equal(0xffff_ffff);
  });

  it('AK-02 the first close reason stands and supersedes the credit of its slot', () => {
    const node = fresh();
    const { control } = node.batcher;
    control.replyCredit(0x100, 5);
    control.replyClose(0x100, 0, 0, CLOSE_PROTOCOL_ERROR);
    control.replyClose(0x100, 0, 0, CLOSE_UNKNOWN_SLOT);
    control.replyCredit(0x100, 5);
    expect(flushed(node)).to.deep.equal(['close 1.0 3']);
    const owner = new FakeOwner();
    const slot = node.open(owner, 5n, 1n, 0);
    node.sendItem(slot, 1);
    node.turn();
    node.port.take();
    control.postCredit(slot.id, 9);
    control.postClose(slot.id, CLOSE_PROTOCOL_ERROR);
    control.postClose(slot.id, CLOSE_UNKNOWN_SLOT);
    control.postCredit(slot.id, 9);
    expect(flushed(node)).to.deep.equal([]);
    expect(owner.events).to.deep.equal(['opened true', 'closed protocolError', 'retired discarded']);
  });

  it('AK-04 generations share no entry, and a retired one is dropped silently', () => {
    const node = fresh();
    const { control } = node.batcher;
    control.replyCredit(slotId(1, 3), 4);
    control.replyCredit(slotId(1, 4), 5);
    control.replyCredit(slotId(1, 3), 1);
    control.replyClose(slotId(1, 4), 0, 0, CLOSE_UNKNOWN_SLOT);
    expect(flushed(node)).to.deep.equal(['credit 1.3 5, close 1.4 2']);
    control.replyCredit(slotId(1, 3), 2);
    expect(flushed(node)).to.deep.equal(['credit 1.3 2']);
    const slot = node.open(new FakeOwner(), 5n, 1n, 1);
    node.finalize(slot);
    const next = node.open(new FakeOwner(), 5n, 2n, 1);
    expect(next.index).to.equal(slot.index);
    control.postCredit(slot.id, 50);
    control.postClose(slot.id, CLOSE_UNKNOWN_SLOT);
    node.turn();
    expect([next.credit, next.state]).to.deep.equal([1, 1]);
    expect(node.metrics.controlRefused).to.equal(0);
  });

  it('AK-05 control for an index never allocated is refused and counted', () => {
    const node = fresh();
    for (let i = 0; i < 10; i++) node.open(new FakeOwner(), 5n, BigInt(i));
    const { control } = node.batcher;
    control.postCredit(slotId(10, 0), 1);
    control.postCredit(slotId(4_999, 0), 1);
    expect(node.metrics.controlRefused).to.equal(2);
    control.postClose(slotId(10, 0), CLOSE_UNKNOWN_SLOT);
    control.postLifecycle(slotId(10, 0), 0, 0, LIFECYCLE_CANCEL);
    expect(node.metrics.controlRefused).to.equal(4);
    expect(node.batcher.liveSlots).to.equal(10);
  });

  it('AK-06 5,000 live slots lose no grant, and 10,000 replies are never refused', () => {
    const node = fresh();
    const slots = Array.from({ length: 5_000 }, (_, i) => node.open(new FakeOwner(), 5n, BigInt(i), 0));
    for (const slot of slots) node.batcher.control.postCredit(slot.id, 3);
    for (let i = 0; i < 10_000; i++) node.batcher.control.replyCredit(slotId(i, 0), i + 1);
    node.turn();
    node.batcher.kick();
    expect(slots.every((slot) => slot.credit === 3)).to.equal(true);
    const credits = node.port.take().flatMap((batch) => batch.records.filter((record) => record.type === 'credit'));
    expect(credits.map((record) => record.delta)).to.deep.equal(Array.from({ length: 10_000 }, (_, i) => i + 1));
    expect(node.metrics.controlRefused).to.equal(0);
  });

  it('AK-07 the reject lane keeps 8,192 distinct refusals and counts the rest', () => {
    const node = fresh();
    node.port.mode = 'pend';
    node.batcher.control.replyClose(0x100, 0, 0, CLOSE_UNKNOWN_SLOT);
    node.turn();
    for (let i = 0; i < 18_192; i++) node.batcher.control.reject(slotId(65_536 + i, 0), CLOSE_PROTOCOL_ERROR);
    node.batcher.control.reject(slotId(65_536, 0), CLOSE_PROTOCOL_ERROR);
    expect(node.metrics.controlRefused).to.equal(10_000);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    const closes = node.port.take().flatMap((batch) => batch.records);
    expect(closes).to.have.length(1 + 8_192);
  });

  it('a lifecycle record reaches its slot only with the live session, whatever the id says', () => {
    const node = fresh();
    const owner = new FakeOwner();
    const session = 0x1234_5678_9abc_def0n;
    const slot = node.open(owner, 5n, session);
    const { control } = node.batcher;
    control.postLifecycle(slot.id, 0x1234_5678, 0x9abc_def1, LIFECYCLE_CANCEL);
    control.postLifecycle(slot.id, 0x1234_5679, 0x9abc_def0, LIFECYCLE_CANCEL);
    node.turn();
    expect(owner.events).to.deep.equal(['opened true']);
    control.postLifecycle(slot.id, 0x1234_5678, 0x9abc_def0, LIFECYCLE_STOP);
    node.turn();
    expect(owner.events).to.deep.equal(['opened true', 'stopped']);
    expect(node.batcher.liveSlots).to.equal(1);
    control.postLifecycle(slot.id, 0x1234_5678, 0x9abc_def0, LIFECYCLE_CANCEL);
    control.postLifecycle(slot.id, 0x1234_5678, 0x9abc_def0, LIFECYCLE_STOP);
    node.turn();
    expect(owner.events.slice(2)).to.deep.equal(['cancelled', 'closed cancelled', 'retired discarded']);
    expect(node.batcher.liveSlots).to.equal(0);
  });

  it('a cancel reply wins over the stop of the same session; sessions do not share an entry', () => {
    const node = fresh();
    const { control } = node.batcher;
    control.replyLifecycle(0x100, 1, 2, LIFECYCLE_STOP);
    control.replyLifecycle(0x100, 1, 2, LIFECYCLE_CANCEL);
    control.replyLifecycle(0x100, 1, 2, LIFECYCLE_STOP);
    control.replyLifecycle(0x100, 1, 3, LIFECYCLE_STOP);
    expect(flushed(node)).to.deep.equal(['lifecycle 1.0 1, lifecycle 1.0 0']);
  });

  it('replies about the slots of an epoch that is over are forgotten, lifecycle replies are not', () => {
    const node = fresh();
    const { control } = node.batcher;
    control.replyCredit(0x100, 5);
    control.replyClose(0x200, 0, 0, CLOSE_UNKNOWN_SLOT);
    control.reject(0x300, CLOSE_UNKNOWN_SLOT);
    control.replyLifecycle(0x400, 0, 1, LIFECYCLE_CANCEL);
    control.forgetReplies();
    control.replyCredit(0x100, 6);
    expect(flushed(node)).to.deep.equal(['lifecycle 4.0 1, credit 1.0 6']);
  });
});
