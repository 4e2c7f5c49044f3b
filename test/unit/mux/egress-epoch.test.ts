// A lost peer: refused batches, epoch death, retirement, shutdown, idleness.

import { expect } from 'chai';
import { PeerBatcher } from '../../../lib/mux/peer-batcher.js';
import { CLOSE_UNKNOWN_SLOT, LIFECYCLE_CANCEL } from '../../../lib/wire/batch.js';
import { slotGeneration, slotIndex } from '../../../lib/wire/slot-id.js';
import { CoreNode, frameText } from '../../support/core-pair.js';
import { FakeOwner } from '../../support/mux-fakes.js';

const MANUAL = { flushPolicy: 'manual' } as const;

describe('mux egress: epochs and ends', () => {
  it('AK-08 epoch death closes every live slot once, counts one death, and the batcher works on', () => {
    const node = new CoreNode({ mux: MANUAL });
    const owners = [1, 2, 3].map(() => new FakeOwner());
    const slots = owners.map((owner, i) => node.open(owner, 5n, BigInt(i), 1));
    node.sendItem(slots[0]!, 1);
    node.sendItem(slots[1]!, 1);
    node.sendItem(slots[1]!, 2);
    node.batcher.epochDeath('health');
    for (const owner of owners) {
      expect(owner.events).to.deep.equal(['opened true', 'closed epochDeath', 'retired discarded']);
    }
    const { epochDeaths, liveSlots, stagedRecords, withheldRecords } = node.metrics;
    expect([epochDeaths, liveSlots, stagedRecords, withheldRecords]).to.deep.equal([1, 0, 0, 0]);
    expect(node.port.buffersOut).to.equal(0);
    node.port.take();
    node.sendItem(slots[0]!, 9);
    node.batcher.kick();
    expect(node.port.sent).to.have.length(0);
    const slot = node.open(new FakeOwner(), 5n, 9n, 1);
    node.sendItem(slot, 3);
    node.batcher.kick();
    expect(node.port.take().map((batch) => [batch.seq, batch.epoch])).to.deep.equal([
      [0, 2n],
      [1, 2n],
    ]);
  });

  it('a refused batch ends the epoch, at once and later alike', () => {
    for (const when of ['now', 'later'] as const) {
      const node = new CoreNode({ mux: MANUAL });
      const owner = new FakeOwner();
      const slot = node.open(owner, 5n, 1n);
      node.sendItem(slot, 1);
      node.port.mode = when === 'now' ? 'refuse' : 'pend';
      node.batcher.kick();
      if (when === 'later') node.admit(false);
      expect(owner.events, when).to.deep.equal(['opened true', 'closed epochDeath', 'retired discarded']);
      expect(node.metrics.epochDeaths).to.equal(1);
      expect(node.port.buffersOut).to.equal(0);
      expect(node.batcher.epoch).to.equal(2);
    }
  });

  it('a refusal in the middle of a drain stops it: what stood is gone with its slots', () => {
    const node = new CoreNode({ mux: { ...MANUAL, maxBatchBytes: 128 } });
    const owners = [new FakeOwner(), new FakeOwner()];
    const slots = owners.map((owner, i) => node.open(owner, 5n, BigInt(i), 0));
    node.port.take();
    for (const slot of slots) for (let i = 0; i < 30; i++) node.sendItem(slot, i);
    for (const slot of slots) node.batcher.control.postCredit(slot.id, 30);
    node.port.mode = 'refuse';
    node.turn();
    expect(node.port.refused).to.equal(1);
    for (const owner of owners) expect(owner.events.slice(1)).to.deep.equal(['closed epochDeath', 'retired discarded']);
    expect([node.metrics.withheldRecords, node.metrics.stagedRecords, node.batcher.liveSlots]).to.deep.equal([0, 0, 0]);
  });

  it('a refused batch of its own ends the epoch', () => {
    const node = new CoreNode();
    const owner = new FakeOwner();
    const slot = node.open(owner, 5n, 1n);
    node.port.mode = 'refuse';
    node.sendItem(slot, 1, 100_000);
    expect(owner.events.slice(1)).to.deep.equal(['closed epochDeath', 'retired discarded']);
    expect(slot.pulledTotal).to.equal(1);
    expect(node.port.buffersOut).to.equal(0);
  });

  it('AK-12 credit staged in a batch that an epoch death discards is posted again and counted', () => {
    const node = new CoreNode();
    node.batcher.control.replyCredit(0x100, 7);
    node.batcher.control.replyLifecycle(0x300, 0, 4, LIFECYCLE_CANCEL);
    node.port.mode = 'pend';
    node.turn();
    node.port.take();
    node.port.mode = 'admit';
    node.admit();
    node.batcher.control.replyCredit(0x100, 7);
    node.turn();
    expect(node.port.sent).to.have.length(0);
    node.batcher.epochDeath('health');
    expect([node.metrics.creditReposted, node.metrics.creditLost]).to.deep.equal([7, 0]);
    node.turn();
    node.advance(1);
    const batch = node.port.take()[0]!;
    expect(batch.records.map((record) => record.delta)).to.deep.equal([7]);
    expect([batch.epoch, batch.seq]).to.deep.equal([2n, 0]);
  });

  it('AK-12 credit in a refused batch is lost and counted; closes and cancels are tried again after a pause', () => {
    const node = new CoreNode({ mux: { replyLingerMs: 0 } });
    const { control } = node.batcher;
    control.replyCredit(0x100, 7);
    control.replyClose(0x200, 0, 0, CLOSE_UNKNOWN_SLOT);
    control.replyLifecycle(0x300, 0, 4, LIFECYCLE_CANCEL);
    node.port.mode = 'refuse';
    node.turn();
    expect([node.metrics.creditReposted, node.metrics.creditLost]).to.deep.equal([0, 7]);
    expect(node.port.scheduled.size).to.equal(0);
    expect(node.batcher.deadline()).to.equal(200);
    node.port.mode = 'admit';
    node.advance(199);
    expect(node.port.sent).to.have.length(0);
    node.advance(1);
    expect(node.port.take()[0]!.records.map((record) => record.type)).to.deep.equal(['lifecycle', 'close']);
    expect(node.batcher.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });

  it('an epoch death while a batch is on its way: its answer changes no slot of the new epoch', () => {
    for (const ok of [true, false]) {
      const node = new CoreNode();
      const first = new FakeOwner();
      const slot = node.open(first, 5n, 1n);
      node.port.mode = 'pend';
      node.finalize(slot);
      node.turn();
      node.batcher.epochDeath('health');
      expect(first.events).to.deep.equal(['opened true', 'closed terminal', 'retired discarded']);
      const second = new FakeOwner();
      node.open(second, 5n, 2n);
      expect(second.events).to.deep.equal([]);
      node.port.mode = 'admit';
      node.admit(ok);
      node.turn();
      expect(second.events).to.deep.equal(['opened true']);
      expect(first.events).to.have.length(3);
      expect(node.metrics.epochDeaths).to.equal(1);
      const opened = node.port.take().at(-1)!;
      expect([opened.seq, opened.epoch, opened.records[0]!.session]).to.deep.equal([0, 2n, 2n]);
    }
  });

  it('after such a death the next refusal counts again', () => {
    const node = new CoreNode({ mux: MANUAL });
    const slot = node.open(new FakeOwner(), 5n, 1n);
    node.port.mode = 'pend';
    node.sendItem(slot, 1);
    node.batcher.kick();
    node.batcher.epochDeath('health');
    node.admit();
    node.port.mode = 'admit';
    const owner = new FakeOwner();
    const next = node.open(owner, 5n, 2n);
    for (let i = 0; i < 3; i++) {
      node.sendItem(next, i);
      if (i === 2) node.port.mode = 'refuse';
      node.batcher.kick();
    }
    expect(owner.events).to.deep.equal(['opened true', 'closed epochDeath', 'retired discarded']);
    expect(node.metrics.epochDeaths).to.equal(2);
  });

  it('a stream retires as sent when the batch with its terminal is admitted, not before', () => {
    const node = new CoreNode();
    const owner = new FakeOwner();
    const slot = node.open(owner, 5n, 1n);
    node.port.mode = 'pend';
    node.finalize(slot);
    node.turn();
    expect(owner.events).to.deep.equal(['opened true', 'closed terminal']);
    node.admit();
    expect(owner.events.at(-1)).to.equal('retired sent');
  });

  it('AQ-02 a refused terminal, a discarded one and a teardown retire as discarded', () => {
    for (const end of ['refused', 'death', 'shutdown'] as const) {
      const node = new CoreNode({ mux: MANUAL });
      const owner = new FakeOwner();
      const slot = node.open(owner, 5n, 1n);
      node.finalize(slot);
      if (end === 'refused') node.port.mode = 'refuse';
      if (end === 'death') node.batcher.epochDeath('health');
      else if (end === 'shutdown') {
        node.port.mode = 'refuse';
        node.batcher.shutdown();
      } else node.turn();
      expect(owner.events, end).to.deep.equal(['opened true', 'closed terminal', 'retired discarded']);
    }
  });

  it('AQ-05 the first outcome stands', () => {
    const node = new CoreNode();
    const owner = new FakeOwner();
    const slot = node.open(owner, 5n, 1n);
    node.finalize(slot);
    node.turn();
    node.batcher.epochDeath('health');
    node.batcher.abandon(slot);
    expect(owner.events.filter((event) => event.startsWith('retired'))).to.deep.equal(['retired sent']);
  });

  it('an epoch is shown by a batch without a record, once, and only if no batch has shown it', () => {
    const producer = new CoreNode({ firstEpoch: 5 });
    producer.batcher.showEpoch();
    const [shown, ...rest] = producer.port.take();
    expect([shown!.epoch, shown!.seq, shown!.records, rest]).to.deep.equal([5n, 0, [], []]);
    expect(shown!.bytes).to.have.length(16);
    producer.batcher.showEpoch();
    expect(producer.port.sent).to.have.length(0);
    producer.open(new FakeOwner(), 5n, 1n);
    expect(producer.port.take().map(({ seq }) => seq)).to.deep.equal([1]);
    const busy = new CoreNode({ mux: MANUAL });
    busy.sendItem(busy.open(new FakeOwner(), 5n, 1n), 1);
    busy.port.take();
    busy.batcher.showEpoch();
    expect(busy.port.sent, 'the opening has shown it').to.have.length(0);
    const parked = new CoreNode();
    parked.port.mode = 'pend';
    parked.open(new FakeOwner(), 5n, 1n);
    parked.batcher.showEpoch();
    parked.admit();
    expect(parked.port.take()).to.have.length(1);
    busy.batcher.shutdown();
    busy.port.take();
    busy.batcher.showEpoch();
    expect(busy.port.sent).to.have.length(0);
  });

  it('a grant for a slot of the batcher before this one counts for no slot of this one', () => {
    const node = new CoreNode();
    const old = node.open(new FakeOwner(), 5n, 1n, 1);
    const { config, port, metrics } = node;
    const next = new PeerBatcher({ peerLabel: 'test', lane: 0, config, port, metrics, firstGeneration: 97 + 256 });
    const slot = next.open(new FakeOwner(), 0, 5, 0, 2, 1, 0);
    expect([slotIndex(slot.id), slotGeneration(slot.id)]).to.deep.equal([slotIndex(old.id), 97]);
    next.control.postCredit(old.id, 7);
    next.control.postClose(old.id, CLOSE_UNKNOWN_SLOT);
    next.run();
    expect([slot.credit, next.liveSlots]).to.deep.equal([1, 1]);
    next.control.postCredit(slot.id, 7);
    next.run();
    expect(slot.credit).to.equal(8);
  });

  it('a peer that sees the new epoch retires what it has of the old one, each reader with one Dropped', () => {
    const consumer = new CoreNode();
    const receivers = [1n, 2n].map((session) => consumer.bind(5n, session));
    const dead = new CoreNode({ firstEpoch: 1 });
    for (const session of [1n, 2n]) dead.sendItem(dead.open(new FakeOwner(), 5n, session), 7);
    dead.turn();
    for (const { bytes } of dead.port.take()) consumer.receive(bytes);
    expect(consumer.table.liveSlots).to.equal(2);
    const next = new CoreNode({ firstEpoch: 9 });
    next.batcher.showEpoch();
    for (const { bytes } of next.port.take()) consumer.receive(bytes);
    expect(consumer.table.liveSlots).to.equal(0);
    for (const receiver of receivers) expect(receiver.frames.map(frameText)).to.deep.equal(['7', 'Dropped']);
    expect([consumer.metrics.malformedBatches, consumer.metrics.batchSeqGaps]).to.deep.equal([0, 0]);
  });

  it('AK-13 a reply posted before the shutdown rides the last batch; after it nothing is taken', () => {
    const node = new CoreNode({ mux: MANUAL });
    node.batcher.control.replyCredit(0x100, 3);
    node.batcher.shutdown();
    expect(node.port.take()[0]!.records[0]!.delta).to.equal(3);
    node.batcher.control.replyCredit(0x100, 4);
    node.batcher.control.reject(0x100, CLOSE_UNKNOWN_SLOT);
    node.batcher.run();
    node.batcher.kick();
    node.batcher.shutdown();
    expect(node.port.sent).to.have.length(0);
    expect(node.batcher.closed).to.equal(true);
  });

  it('AK-18 a shutdown closes every slot and leaves no gauge and no buffer behind', () => {
    const node = new CoreNode({ mux: MANUAL });
    const owners = [1, 2].map(() => new FakeOwner());
    const slots = owners.map((owner, i) => node.open(owner, 5n, BigInt(i), 1));
    for (let i = 0; i < 3; i++) node.sendItem(slots[0]!, i);
    node.batcher.shutdown();
    for (const owner of owners) expect(owner.events.slice(1)).to.deep.equal(['closed epochDeath', 'retired discarded']);
    expect([node.metrics.liveSlots, node.metrics.stagedRecords, node.metrics.withheldRecords]).to.deep.equal([0, 0, 0]);
    expect(node.port.buffersOut).to.equal(0);
    node.sendItem(slots[0]!, 9);
    node.finalize(slots[0]!);
  });

  it('AK-18 a shutdown while parked closes the slots; the late answer retires what it carried', () => {
    const node = new CoreNode();
    const ended = new FakeOwner();
    const slot = node.open(ended, 5n, 1n);
    node.port.mode = 'pend';
    node.finalize(slot);
    node.turn();
    node.batcher.shutdown();
    node.admit();
    expect(ended.events.at(-1)).to.equal('retired sent');
    expect(node.port.scheduled.size).to.equal(0);
  });
});
