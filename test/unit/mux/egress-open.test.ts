// Opening slots: what goes on the wire, indices and generations, opens that wait behind a congested peer.

import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import { MAX_TABLE_SLOTS } from '../../../lib/mux/mux-config.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { CoreNode } from '../../support/core-pair.js';
import { FakeOwner } from '../../support/mux-fakes.js';

const ANCHOR = 0x0123_4567_89ab_cdefn;

function codeOf(action: () => void): string {
  try {
    action();
  } catch (error) {
    if (VeloError.is(error)) return error.code;
    throw error;
  }
  return 'none';
}

describe('mux egress: opening a slot', () => {
  it('AO-01 OpenSlot goes at once, alone in its batch, at frame_seq 0; the first data record has 1', () => {
    const node = new CoreNode();
    const owner = new FakeOwner();
    const slot = node.open(owner, ANCHOR, 77n);
    const [first, ...more] = node.port.take();
    expect(more).to.have.length(0);
    expect(first!.records).to.have.length(1);
    expect(first!.records[0]).to.include({
      type: 'open',
      seq: 0,
      index: 0,
      generation: 0,
      anchor: ANCHOR,
      session: 77n,
    });
    expect(owner.events).to.deep.equal(['opened true']);
    node.sendItem(slot, 5);
    node.turn();
    expect(node.port.take()[0]!.records.map((record) => [record.type, record.seq])).to.deep.equal([['data', 1]]);
  });

  it('AO-01 the batch of an OpenSlot is byte for byte the one of the specification', () => {
    const node = new CoreNode();
    node.open(new FakeOwner(), ANCHOR, 77n);
    expect(Buffer.from(node.port.sent[0]!).toString('hex')).to.equal(
      '02000001000000000000000100000000010000000000000000000000100123456789abcdef000000000000004d',
    );
  });

  it('AO-01 what is staged goes in a batch of its own before the OpenSlot', () => {
    const node = new CoreNode({ mux: { flushPolicy: 'manual' } });
    const slot = node.open(new FakeOwner(), ANCHOR, 1n);
    node.sendItem(slot, 1);
    node.open(new FakeOwner(), ANCHOR, 2n);
    const shapes = node.port.take().map((batch) => batch.records.map((record) => record.type).join());
    expect(shapes).to.deep.equal(['open', 'data', 'open']);
  });

  it('AO-01 a session and an anchor above 2^53 keep every bit', () => {
    const node = new CoreNode();
    node.open(new FakeOwner(), 0xffff_ffff_ffff_fffdn, 0x8000_0000_0000_0001n);
    expect(node.port.take()[0]!.records[0]).to.include({
      anchor: 0xffff_ffff_ffff_fffdn,
      session: 0x8000_0000_0000_0001n,
    });
  });

  it('AS-16 freed indices come back last in, first out, with the next generation', () => {
    const node = new CoreNode();
    const slots = [0, 1, 2].map((i) => node.open(new FakeOwner(), ANCHOR, BigInt(i)));
    node.finalize(slots[0]!);
    node.finalize(slots[2]!);
    expect(node.open(new FakeOwner(), ANCHOR, 10n).id).to.equal(slotId(2, 1));
    expect(node.open(new FakeOwner(), ANCHOR, 11n).id).to.equal(slotId(0, 1));
    expect(node.open(new FakeOwner(), ANCHOR, 12n).id).to.equal(slotId(3, 0));
    expect(node.batcher.liveSlots).to.equal(4);
  });

  it('AS-16 the generation of an index wraps after 256 streams', () => {
    const node = new CoreNode();
    for (let i = 0; i < 256; i++) node.finalize(node.open(new FakeOwner(), ANCHOR, BigInt(i)));
    expect(node.open(new FakeOwner(), ANCHOR, 999n).id).to.equal(slotId(0, 0));
  });

  it('AS-08 after an epoch death the index comes back with the next generation, in a larger epoch, from batch_seq 0', () => {
    const node = new CoreNode({ firstEpoch: 2 ** 40 });
    const owner = new FakeOwner();
    node.open(owner, ANCHOR, 1n);
    const before = node.port.take().at(-1)!;
    expect(before.epoch).to.equal(2n ** 40n);
    node.batcher.epochDeath('the peer failed its health check');
    node.turn();
    expect(node.port.take()).to.have.length(0);
    expect(owner.events).to.deep.equal(['opened true', 'closed epochDeath', 'retired discarded']);
    const slot = node.open(new FakeOwner(), ANCHOR, 2n);
    const after = node.port.take()[0]!;
    expect(slot.id).to.equal(slotId(0, 1));
    expect(after.seq).to.equal(0);
    expect(after.epoch > before.epoch).to.equal(true);
    expect(node.metrics.epochDeaths).to.equal(1);
  });

  it('batch_seq counts up within an epoch, one per batch', () => {
    const node = new CoreNode();
    const slot = node.open(new FakeOwner(), ANCHOR, 1n);
    for (let i = 0; i < 3; i++) {
      node.sendItem(slot, i);
      node.turn();
      node.batcher.kick();
    }
    expect(node.port.take().map((batch) => batch.seq)).to.deep.equal([0, 1, 2, 3]);
  });

  it('an epoch must be larger than the one before', () => {
    const node = new CoreNode();
    node.open(new FakeOwner(), ANCHOR, 1n);
    node.port.nextEpoch = () => 1;
    expect(codeOf(() => node.batcher.epochDeath('test'))).to.equal('ERR_INTERNAL');
  });

  it('AO-08 an open that is not admitted yet reports later, and data given to it stays in order behind it', () => {
    const node = new CoreNode();
    node.port.mode = 'pend';
    const owner = new FakeOwner();
    const slot = node.open(owner, ANCHOR, 1n);
    for (let i = 1; i <= 3; i++) node.sendItem(slot, i);
    node.turn();
    expect(owner.events).to.deep.equal([]);
    expect(slot.pulledTotal).to.equal(0);
    node.port.mode = 'admit';
    node.admit();
    expect(owner.events).to.deep.equal(['opened true']);
    node.turn();
    const batches = node.port.take();
    expect(batches.map((batch) => batch.records.map((record) => record.seq))).to.deep.equal([[0], [1, 2, 3]]);
    expect(slot.pulledTotal).to.equal(3);
  });

  it('opens behind a parked batch wait in order, each in a batch of its own, however many', () => {
    const node = new CoreNode();
    node.port.mode = 'pend';
    const owners = Array.from({ length: 1_500 }, () => new FakeOwner());
    const slots = owners.map((owner, i) => node.open(owner, ANCHOR, BigInt(i)));
    expect(node.batcher.liveSlots).to.equal(1_500);
    node.sendItem(slots[1_499]!, 7);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    const batches = node.port.take();
    expect(batches.slice(0, 1_500).map((batch) => batch.records[0]!.session)).to.deep.equal(
      slots.map((_, i) => BigInt(i)),
    );
    expect(batches.slice(0, 1_500).every((batch) => batch.records.length === 1)).to.equal(true);
    expect(batches[1_500]!.records.map((record) => [record.type, record.index])).to.deep.equal([['data', 1_499]]);
    expect(owners.every((owner) => owner.events.join() === 'opened true')).to.equal(true);
  });

  it('a queued open that is abandoned never reaches the wire', () => {
    const node = new CoreNode();
    node.port.mode = 'pend';
    node.open(new FakeOwner(), ANCHOR, 1n);
    const owner = new FakeOwner();
    const slot = node.open(owner, ANCHOR, 2n);
    node.batcher.abandon(slot);
    expect(owner.events).to.deep.equal(['opened false', 'closed abandoned', 'retired discarded']);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    expect(node.port.take().map((batch) => batch.records[0]!.session)).to.deep.equal([1n]);
    expect(node.batcher.liveSlots).to.equal(1);
  });

  it('AR-14 an open that is refused ends the epoch: not opened, closed, discarded', () => {
    for (const when of ['now', 'later'] as const) {
      const node = new CoreNode();
      const owner = new FakeOwner();
      if (when === 'now') {
        node.port.mode = 'refuse';
        node.open(owner, ANCHOR, 1n);
      } else {
        node.port.mode = 'pend';
        node.open(owner, ANCHOR, 1n);
        node.admit(false);
      }
      expect(owner.events, when).to.deep.equal(['opened false', 'closed epochDeath', 'retired discarded']);
      expect(node.metrics.epochDeaths).to.equal(1);
      expect(node.metrics.liveSlots).to.equal(0);
      expect(node.port.buffersOut).to.equal(0);
    }
  });

  it('all 65,536 indices open, one more is refused, a freed one opens again', () => {
    const node = new CoreNode();
    const owner = new FakeOwner();
    let last = node.open(owner, ANCHOR, 0n);
    for (let i = 1; i < MAX_TABLE_SLOTS; i++) last = node.open(owner, ANCHOR, 0n);
    expect(last.index).to.equal(65_535);
    expect(codeOf(() => node.open(new FakeOwner(), ANCHOR, 0n))).to.equal('ERR_SLOTS_EXHAUSTED');
    node.finalize(last);
    expect(node.open(owner, ANCHOR, 0n).id).to.equal(slotId(65_535, 1));
  });

  it('a byte budget of 0 means 1 MiB', () => {
    expect(new CoreNode().open(new FakeOwner(), ANCHOR, 1n, 32, 0).byteBudget).to.equal(1_048_576);
  });

  it('a batcher that is shut down opens nothing', () => {
    const node = new CoreNode();
    node.batcher.shutdown();
    expect(codeOf(() => node.open(new FakeOwner(), ANCHOR, 1n))).to.equal('ERR_CLOSED');
    expect(node.batcher.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });
});
