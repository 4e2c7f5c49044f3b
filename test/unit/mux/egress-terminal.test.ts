// Terminals and clamps: the terminal and its close are one, whatever the cap, and the cap bounds every packed batch.

import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import type { EgressSlot } from '../../../lib/mux/egress-slot.js';
import type { MuxOptions } from '../../../lib/mux/mux-config.js';
import { transportErrorFrame } from '../../../lib/wire/frame.js';
import { CoreNode, frameText, itemFrame } from '../../support/core-pair.js';
import { FakeOwner, type PlainBatch } from '../../support/mux-fakes.js';

const LOTS = 1_000_000;

function opened(mux: MuxOptions, count = 1): { node: CoreNode; owners: FakeOwner[]; slots: EgressSlot[] } {
  const node = new CoreNode({ mux });
  const owners = Array.from({ length: count }, () => new FakeOwner());
  const slots = owners.map((owner, i) => node.open(owner, 5n, BigInt(i), LOTS, 0));
  node.port.take();
  return { node, owners, slots };
}

function flushed(node: CoreNode): PlainBatch[] {
  node.batcher.kick();
  return node.port.take();
}

function types(batch: PlainBatch): string {
  return batch.records.map((record) => record.type).join();
}

/** A terminal of exactly `length` bytes. */
function terminalOf(length: number): Uint8Array {
  for (let text = Math.max(0, length - 32); text <= length; text++) {
    const frame = transportErrorFrame('x'.repeat(text));
    if (frame.length === length) return frame;
  }
  throw new Error(`no terminal of ${length} bytes`);
}

describe('mux egress: terminals and clamps', () => {
  it('AT-01 the terminal and its close stand next to each other in one batch, and nothing follows', () => {
    const { node, owners, slots } = opened({});
    node.sendItem(slots[0]!, 1);
    node.finalize(slots[0]!);
    node.sendItem(slots[0]!, 2);
    node.finalize(slots[0]!);
    node.turn();
    const [batch, ...more] = node.port.take();
    expect(more).to.have.length(0);
    expect(batch!.records.map((record) => [record.type, record.seq])).to.deep.equal([
      ['data', 1],
      ['data', 2],
      ['close', 3],
    ]);
    expect(frameText(batch!.records[1]!.body)).to.equal('Finalized');
    expect(batch!.records[2]!.reason).to.equal(0);
    expect([node.batcher.liveSlots, node.metrics.liveSlots]).to.deep.equal([0, 0]);
    expect(owners[0]!.events).to.deep.equal(['opened true', 'closed terminal', 'retired sent']);
  });

  it('AT-01 a terminal that comes as an ordinary frame is recognised and ends the slot', () => {
    const { node, owners, slots } = opened({});
    node.sendItem(slots[0]!, 1);
    const frame = transportErrorFrame('the tap ran dry');
    node.send(slots[0]!, frame);
    frame.fill(0);
    node.sendItem(slots[0]!, 2);
    node.turn();
    const records = node.port.take()[0]!.records;
    expect(records.map((record) => record.type)).to.deep.equal(['data', 'data', 'close']);
    expect(frameText(records[1]!.body)).to.contain('the tap ran dry');
    expect(owners[0]!.events.at(-1)).to.equal('retired sent');
    expect(slots[0]!.pulledTotal).to.equal(3);
  });

  it('AT-02 a terminal that fits where its close does not goes to a fresh batch with it', () => {
    const { node, slots } = opened({ maxBatchBytes: 128, flushPolicy: 'manual' });
    // Header 16 + 3 records of 13 + 16 = 103 bytes; Finalized takes 23 more, its close another 14.
    for (let i = 0; i < 3; i++) node.sendItem(slots[0]!, i, 10);
    node.finalize(slots[0]!);
    const batches = [...node.port.take(), ...flushed(node)];
    expect(batches.map(types)).to.deep.equal(['data,data,data', 'data,close']);
  });

  it('AT-02 the terminal and its close are in one batch for every fill of the batch before them', () => {
    for (let fill = 4; fill <= 110; fill++) {
      const { node, slots } = opened({ maxBatchBytes: 128, flushPolicy: 'manual' });
      node.sendItem(slots[0]!, 1, fill);
      node.finalize(slots[0]!);
      const batches = [...node.port.take(), ...flushed(node)];
      const last = batches.at(-1)!.records;
      expect(
        last.slice(-2).map((record) => record.type),
        `fill ${fill}`,
      ).to.deep.equal(['data', 'close']);
      expect(batches.flatMap((batch) => batch.records)).to.have.length(3);
    }
  });

  it('AT-01 at the default cap the largest packed terminal has 61,397 bytes; one more goes alone with its close', () => {
    for (const [length, singletons] of [
      [61_397, 0],
      [61_398, 1],
    ] as const) {
      const { node, owners, slots } = opened({});
      node.batcher.terminal(slots[0]!, terminalOf(length));
      node.turn();
      const batches = node.port.take();
      expect(batches.map(types)).to.deep.equal(['data,close']);
      expect(batches[0]!.bytes.length).to.equal(16 + 13 + length + 14);
      expect(node.metrics.singletons).to.equal(singletons);
      expect(owners[0]!.events.at(-1)).to.equal('retired sent');
    }
  });

  it('AT-01 a frame of 61,411 bytes is the largest packed one at the default cap', () => {
    for (const [length, singletons] of [
      [61_411, 0],
      [61_412, 1],
    ] as const) {
      const { node, slots } = opened({});
      node.sendItem(slots[0]!, 1, length - 6);
      node.turn();
      expect(node.port.take()[0]!.bytes.length).to.equal(16 + 13 + length);
      expect(node.metrics.singletons).to.equal(singletons);
    }
  });

  it('a frame too large for a packed batch goes alone, inline, in its place in the order', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' }, 2);
    node.sendItem(slots[0]!, 1);
    node.sendItem(slots[1]!, 2);
    node.sendItem(slots[0]!, 3, 300 * 1024);
    node.sendItem(slots[0]!, 4);
    const batches = [...node.port.take(), ...flushed(node)];
    expect(batches.map((batch) => batch.records.map((record) => [record.index, record.seq]))).to.deep.equal([
      [
        [0, 1],
        [1, 1],
      ],
      [[0, 2]],
      [[0, 3]],
    ]);
    expect(batches.map((batch) => batch.seq)).to.deep.equal([2, 3, 4]);
    expect(node.metrics.singletons).to.equal(1);
    expect(node.port.buffersOut).to.equal(0);
  });

  it('a record above maxRecordBytes ends its slot with a named error', () => {
    const { node, owners, slots } = opened({ maxRecordBytes: 4_096 });
    node.send(slots[0]!, itemFrame(0, 4_096 - 6));
    node.turn();
    expect(node.port.take()).to.have.length(1);
    const huge = itemFrame(1, 4_096 - 5);
    try {
      node.send(slots[0]!, huge);
      expect.fail('accepted');
    } catch (error) {
      expect(VeloError.is(error, 'ERR_FRAME_TOO_LARGE')).to.equal(true);
    }
    node.turn();
    expect(node.port.take().map(types)).to.deep.equal(['close']);
    expect(owners[0]!.events).to.deep.equal(['opened true', 'closed abandoned', 'retired discarded']);
  });

  it('an end that waits for credit sends what its credit went into: nobody is left to flush that', () => {
    for (const end of ['terminal', 'close'] as const) {
      const node = new CoreNode({ mux: { flushPolicy: 'manual' } });
      const owner = new FakeOwner();
      const slot = node.open(owner, 5n, 1n, 1);
      node.port.take();
      for (const value of [1, 2]) node.sendItem(slot, value);
      node.turn();
      expect([node.port.take(), node.batcher.staged], 'manual').to.deep.equal([[], 1]);
      if (end === 'terminal') node.finalize(slot);
      else node.batcher.inletClosed(slot);
      node.turn();
      expect(node.port.take().map(types)).to.deep.equal(['data']);
      node.batcher.control.postCredit(slot.id, 1);
      node.turn();
      expect(node.port.take().map(types)).to.deep.equal([end === 'terminal' ? 'data,data,close' : 'data,close']);
      expect(owner.count(end === 'terminal' ? 'retired sent' : 'retired discarded')).to.equal(1);
    }
  });

  it('AT-10 512 items and a terminal in one burst arrive in order, the terminal last', () => {
    const { node, slots } = opened({});
    for (let i = 0; i < 512; i++) node.sendItem(slots[0]!, i);
    node.finalize(slots[0]!);
    node.turn();
    const records = node.port.take().flatMap((batch) => batch.records);
    expect(records.slice(0, 512).map((record) => frameText(record.body))).to.deep.equal(
      Array.from({ length: 512 }, (_, i) => String(i)),
    );
    expect(records.slice(512).map((record) => record.type)).to.deep.equal(['data', 'close']);
  });

  it('AU-17 a cap of 128 bounds every batch of a burst', () => {
    const { node, slots } = opened({ maxBatchBytes: 128 });
    for (let i = 0; i < 12; i++) node.sendItem(slots[0]!, i, 24);
    node.turn();
    const batches = node.port.take();
    expect(batches.flatMap((batch) => batch.records)).to.have.length(12);
    for (const batch of batches) expect(batch.bytes.length).to.be.at.most(128);
    expect(batches.length).to.equal(6);
  });

  it('AU-18 a cap of 1 MiB is held at 64 KiB, and batches come close to it', () => {
    const { node, slots } = opened({ maxBatchBytes: 1_048_576 });
    for (let i = 0; i < 100; i++) node.sendItem(slots[0]!, i, 994);
    node.turn();
    const sizes = node.port.take().map((batch) => batch.bytes.length);
    expect(sizes.length).to.be.above(1);
    expect(Math.max(...sizes)).to.be.within(32_769, 65_536);
  });

  it('AU-16 the eager budget is asked anew for every batch', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' });
    node.port.eager = 200;
    for (let i = 0; i < 20; i++) node.sendItem(slots[0]!, i);
    node.port.eager = 1_000;
    for (let i = 0; i < 200; i++) node.sendItem(slots[0]!, i);
    const sizes = [...node.port.take(), ...flushed(node)].map((batch) => batch.bytes.length);
    expect(Math.max(...sizes.slice(0, 2))).to.be.at.most(200);
    expect(Math.max(...sizes)).to.be.within(900, 1_000);
  });

  it('AU-16 under the smallest cap every record goes alone, control too', () => {
    const { node, slots } = opened({ maxBatchBytes: 0 });
    node.sendItem(slots[0]!, 1);
    node.batcher.control.replyCredit(0x100, 3);
    node.batcher.control.replyLifecycle(0x200, 0, 9, 1);
    node.batcher.control.replyClose(0x300, 0, 0, 2);
    node.finalize(slots[0]!);
    node.turn();
    expect(node.port.take().map(types)).to.deep.equal(['data', 'data,close', 'lifecycle', 'credit', 'close']);
    expect(node.port.buffersOut).to.equal(0);
  });

  it('AU-19 three slots × 4 records granted together leave in one batch of 12, 4 of each', () => {
    const node = new CoreNode();
    const slots = [1n, 2n, 3n].map((session) => node.open(new FakeOwner(), 5n, session, 0));
    node.port.take();
    for (let i = 0; i < 4; i++) for (const slot of slots) node.sendItem(slot, i);
    for (const slot of slots) node.batcher.control.postCredit(slot.id, 4);
    node.turn();
    const batches = node.port.take();
    expect(batches).to.have.length(1);
    for (const slot of slots) {
      const own = batches[0]!.records.filter((record) => record.slot === slot.id);
      expect(own.map((record) => frameText(record.body))).to.deep.equal(['0', '1', '2', '3']);
    }
  });

  it('frame_seq saturates, it does not wrap', () => {
    const { node, slots } = opened({});
    slots[0]!.nextSeq = 0xffff_fffe;
    for (let i = 0; i < 3; i++) node.sendItem(slots[0]!, i);
    node.turn();
    expect(node.port.take()[0]!.records.map((record) => record.seq)).to.deep.equal([
      0xffff_fffe, 0xffff_ffff, 0xffff_ffff,
    ]);
  });
});
