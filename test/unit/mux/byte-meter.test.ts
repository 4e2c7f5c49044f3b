// What the queues of slots keep, counted by a meter, and what a meter that is over changes: pulls of slots that withhold, credit of slots
// that keep something. Driven by hand.

import { expect } from 'chai';
import fc from 'fast-check';
import { ByteMeter } from '../../../lib/mux/byte-meter.js';
import { ByteQueue } from '../../../lib/mux/byte-queue.js';
import { FINALIZED_BYTES } from '../../../lib/wire/frame.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, frameText, itemFrame } from '../../support/core-pair.js';
import { FakeOwner, type FakeReceiver } from '../../support/mux-fakes.js';

const ANCHOR = 5n;
const ITEM_BYTES = itemFrame(0).length;

function metered(): { node: CoreNode; meter: ByteMeter } {
  const meter = new ByteMeter();
  return { node: new CoreNode({ meter }), meter };
}

function sent(node: CoreNode): string[] {
  node.turn();
  node.batcher.kick();
  const records = node.port.take().flatMap((batch) => batch.records);
  return records.map((record) => (record.type === 'data' ? frameText(record.body) : `${record.type} ${record.delta}`));
}

describe('byte meters', () => {
  it('a queue moves its meter by the bytes of its records, whatever is pushed, popped and cleared', () => {
    const step = fc.oneof(fc.nat(400), fc.constantFrom('pop' as const, 'clear' as const));
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.boolean(), step), { maxLength: 80 }), (steps) => {
        const meter = new ByteMeter();
        const queues = [new ByteQueue(meter), new ByteQueue(meter)];
        for (const [second, what] of steps) {
          const queue = queues[Number(second)]!;
          if (typeof what === 'number') queue.push(new Uint8Array(what), 0, what);
          else if (what === 'clear') queue.clear();
          else if (queue.length > 0) queue.pop();
          expect(meter.bytes).to.equal(queues[0]!.byteLength + queues[1]!.byteLength);
        }
      }),
    );
  });

  it('egress: what is withheld and what stands is counted, and nothing of it is left at any end', () => {
    const ends: [title: string, end: (node: CoreNode) => void][] = [
      ['credit', (node) => node.receive(new BatchBuilder().credit(0, 100).bytes)],
      ['a cancel', (node) => node.receive(new BatchBuilder().lifecycle(0, 1n, 1).bytes)],
      ['a close', (node) => node.receive(new BatchBuilder().close(0, 0, 2).bytes)],
      ['an epoch death', (node) => node.batcher.epochDeath('test')],
      ['a shutdown', (node) => node.batcher.shutdown()],
    ];
    for (const [title, end] of ends) {
      const { node, meter } = metered();
      const slot = node.open(new FakeOwner(), ANCHOR, 1n, 2, 3 * ITEM_BYTES);
      // Two go, three are withheld and pause the slot, two stand.
      for (let i = 1; i <= 7; i++) node.sendItem(slot, i);
      expect([slot.withheld.length, slot.inlet.length], title).to.deep.equal([3, 2]);
      expect(meter.bytes, title).to.equal(5 * ITEM_BYTES);
      end(node);
      node.turn();
      expect(meter.bytes, title).to.equal(0);
    }
    const { node, meter } = metered();
    const slot = node.open(new FakeOwner(), ANCHOR, 1n, 0);
    node.sendItem(slot, 1);
    node.batcher.abandon(slot);
    expect(meter.bytes, 'abandoned').to.equal(0);
  });

  it('egress over: a slot that withholds is pulled no further, one with credit goes on, and its own credit resumes it', () => {
    const { node, meter } = metered();
    const owner = new FakeOwner();
    const [starved, other] = [node.open(owner, ANCHOR, 1n, 1), node.open(new FakeOwner(), ANCHOR, 2n, 4)];
    sent(node);
    meter.over = true;
    for (let i = 1; i <= 4; i++) node.sendItem(starved, i);
    expect([starved.withheld.length, starved.inlet.length, starved.paused]).to.deep.equal([1, 2, true]);
    for (let i = 11; i <= 14; i++) node.sendItem(other, i);
    expect([other.withheld.length, other.paused, other.direct]).to.deep.equal([0, false, true]);
    expect(sent(node)).to.deep.equal(['1', '11', '12', '13', '14']);

    starved.notifyPull = true;
    node.receive(new BatchBuilder().credit(starved.id, 1).bytes);
    expect(sent(node)).to.deep.equal(['2']);
    expect([starved.withheld.length, starved.inlet.length, starved.pulledTotal]).to.deep.equal([1, 1, 3]);
    node.finalize(starved);
    node.receive(new BatchBuilder({ seq: 1 }).credit(starved.id, 9).bytes);
    expect(sent(node)).to.deep.equal(['3', '4', 'Finalized', 'close undefined']);
    expect(meter.bytes).to.equal(0);
  });

  it('egress: once it is over no more, slots are pulled up to their own budget again', () => {
    const { node, meter } = metered();
    const slot = node.open(new FakeOwner(), ANCHOR, 1n, 1);
    meter.over = true;
    for (let i = 1; i <= 4; i++) node.sendItem(slot, i);
    meter.over = false;
    node.receive(new BatchBuilder().credit(slot.id, 1).bytes);
    expect(sent(node).slice(1)).to.deep.equal(['1', '2']);
    for (let i = 5; i <= 30; i++) node.sendItem(slot, i);
    expect([slot.withheld.length, slot.inlet.length]).to.deep.equal([28, 0]);
  });
});

describe('byte meters: ingress', () => {
  const taken = (receiver: FakeReceiver, node: CoreNode, n: number): void => {
    receiver.take(n);
    node.table.noteDrained(receiver.slot!);
    node.table.visitDrained();
  };

  it('what is held is counted, until it is delivered or its slot ends', () => {
    const { node, meter } = metered();
    for (const session of [1n, 2n]) node.bind(ANCHOR, session);
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).open(0x100, ANCHOR, 2n).bytes);
    const ahead = new BatchBuilder({ seq: 1 }).data(0, 2, itemFrame(2)).data(0, 3, itemFrame(3));
    node.receive(ahead.data(0x100, 2, itemFrame(2)).bytes);
    expect(meter.bytes).to.equal(3 * ITEM_BYTES);
    node.receive(new BatchBuilder({ seq: 2 }).data(0, 1, itemFrame(1)).bytes);
    expect(meter.bytes).to.equal(ITEM_BYTES);
    node.table.retireAll();
    expect(meter.bytes).to.equal(0);
  });

  it('over: a slot gets credit once it is read empty and holds nothing; a slot that keeps up gets it as ever', () => {
    const { node, meter } = metered();
    const [slow, quick, gapped] = [1n, 2n, 3n].map((session) => node.bind(ANCHOR, session)) as [
      FakeReceiver,
      FakeReceiver,
      FakeReceiver,
    ];
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).open(0x100, ANCHOR, 2n).open(0x200, ANCHOR, 3n).bytes);
    sent(node);
    const batch = new BatchBuilder({ seq: 1 });
    for (let seq = 1; seq <= 4; seq++) for (const slot of [0, 0x100]) batch.data(slot, seq, itemFrame(seq));
    node.receive(batch.data(0x200, 1, itemFrame(1)).data(0x200, 3, itemFrame(3)).bytes);
    meter.over = true;
    taken(slow, node, 3);
    taken(quick, node, 4);
    taken(gapped, node, 1);
    expect(sent(node)).to.deep.equal(['credit 4']);
    node.table.sweep();
    expect(sent(node)).to.deep.equal([]);
    taken(slow, node, 1);
    expect(sent(node)).to.deep.equal(['credit 4']);
    node.receive(new BatchBuilder({ seq: 2 }).data(0x200, 2, itemFrame(2)).bytes);
    taken(gapped, node, 2);
    expect(sent(node)).to.deep.equal(['credit 3']);
  });

  it('once it is over no more, the next walk grants what was kept back', () => {
    const { node, meter } = metered();
    const receiver = node.bind(ANCHOR, 1n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).data(0, 1, itemFrame(1)).data(0, 2, itemFrame(2)).bytes);
    meter.over = true;
    taken(receiver, node, 1);
    expect(sent(node)).to.deep.equal([]);
    meter.over = false;
    node.table.sweep();
    expect(sent(node)).to.deep.equal(['credit 1']);
  });

  it('over: whatever was granted is still taken, terminal included', () => {
    const { node, meter } = metered();
    const receiver = node.bind(ANCHOR, 1n, { limit: 3 });
    meter.over = true;
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).data(0, 1, itemFrame(1)).data(0, 2, itemFrame(2)).bytes);
    node.receive(
      new BatchBuilder({ seq: 1 }).data(0, 3, itemFrame(3)).data(0, 4, FINALIZED_BYTES).close(0, 5, 0).bytes,
    );
    expect(receiver.frames.map(frameText)).to.deep.equal(['1', '2', '3', 'Finalized']);
  });
});
