// Lanes of one peer: batches on the wrong lane, tables apart, replies on the lane of arrival.

import { expect } from 'chai';
import { ByteBudget } from '../../../lib/mux/byte-budget.js';
import { createNodeBlock, NodeBlock } from '../../../lib/plane/node-block.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, frameText, itemFrame } from '../../support/core-pair.js';
import { FakeOwner } from '../../support/mux-fakes.js';

const ANCHOR = 9n;

describe('mux lanes', () => {
  it('AL-03 a batch whose header names another lane than its handler is dropped whole and counted', () => {
    const node = new CoreNode({ lane: 3 });
    const receiver = node.bind(ANCHOR, 1n);
    node.receive(new BatchBuilder({ flags: 2 }).open(0, ANCHOR, 1n).bytes);
    expect([node.metrics.droppedLaneMismatch, node.claims, node.table.liveSlots]).to.deep.equal([1, 0, 0]);
    node.receive(new BatchBuilder({ flags: 3 }).open(0, ANCHOR, 1n).bytes);
    expect(receiver.slot?.id).to.equal(0);
    expect(node.metrics.batchSeqGaps).to.equal(0);
  });

  it('AL-03 a batch on a handler of another lane is dropped even when its header agrees with the table', () => {
    const node = new CoreNode({ lane: 3 });
    const batch = new BatchBuilder({ flags: 3 }).credit(0, 1).credit(0, 1).bytes;
    node.receiveAt(0, batch, 0, batch.length);
    expect(node.metrics.droppedLaneMismatch).to.equal(2);
    expect(node.metrics.received.count).to.equal(0);
  });

  it('AL-03 the high bits of the flags do not matter, and a batch too short to name a lane is malformed', () => {
    const node = new CoreNode({ lane: 5 });
    node.receive(new BatchBuilder({ flags: 0xf5 }).credit(0, 1).bytes);
    expect([node.metrics.droppedLaneMismatch, node.metrics.received.count]).to.deep.equal([0, 1]);
    node.receive(new Uint8Array(15));
    expect([node.metrics.droppedLaneMismatch, node.metrics.malformedBatches]).to.deep.equal([0, 1]);
  });

  it('AL-04 two lanes keep separate tables: same id on both, records stay apart, a new epoch on one leaves the other', () => {
    const peerBudget = new ByteBudget(1_000);
    const lanes = [0, 1].map((lane) => new CoreNode({ lane, peerBudget }));
    const receivers = lanes.map((node, lane) => node.bind(ANCHOR, BigInt(lane)));
    lanes.forEach((node, lane) => {
      const batch = new BatchBuilder({ flags: lane }).open(0, ANCHOR, BigInt(lane));
      node.receive(batch.data(0, 1, itemFrame(10 + lane)).bytes);
    });
    expect(receivers.map((receiver) => receiver.frames.map(frameText))).to.deep.equal([['10'], ['11']]);
    lanes[1]!.receive(new BatchBuilder({ flags: 1, epoch: 2n }).credit(0, 1).bytes);
    expect(lanes.map((node) => node.table.liveSlots)).to.deep.equal([1, 0]);
    lanes[0]!.receive(new BatchBuilder({ seq: 1 }).data(0, 2, itemFrame(20)).bytes);
    expect(receivers[0]!.frames.map(frameText)).to.deep.equal(['10', '20']);
  });

  it('AL-05 replies carry the lane they answer, in the header', () => {
    const node = new CoreNode({ lane: 15 });
    node.receive(new BatchBuilder({ flags: 15 }).open(0, ANCHOR, 1n).bytes);
    node.turn();
    const batch = node.port.take()[0]!;
    expect([batch.flags, batch.records[0]!.type]).to.deep.equal([15, 'close']);
  });

  it('AP-37 lane 0 writes flags 0, lane k writes k and nothing in the high bits', () => {
    for (const lane of [0, 3, 15]) {
      const node = new CoreNode({ lane });
      node.open(new FakeOwner(), ANCHOR, 1n);
      expect(node.port.take()[0]!.flags).to.equal(lane);
    }
  });

  it('AL-22 the lanes of a peer share one byte budget, and a retired epoch gives its share back', () => {
    const peerBudget = new ByteBudget(300);
    const lanes = [0, 1].map((lane) => new CoreNode({ lane, peerBudget }));
    const hold = (lane: number, session: bigint, epoch: bigint, seq: number): void => {
      const node = lanes[lane]!;
      node.bind(ANCHOR, session);
      const batch = new BatchBuilder({ flags: lane, epoch, seq }).open(Number(session) << 8, ANCHOR, session);
      node.receive(batch.data(Number(session) << 8, 2, itemFrame(1, 174)).bytes);
    };
    hold(0, 1n, 1n, 0);
    hold(1, 2n, 1n, 0);
    expect(lanes.map((node) => node.table.liveSlots)).to.deep.equal([1, 0]);
    expect(lanes[1]!.metrics.holdOverflow).to.equal(1);
    lanes[0]!.receive(new BatchBuilder({ epoch: 2n }).credit(0, 1).bytes);
    expect(peerBudget.used).to.equal(0);
    hold(1, 3n, 1n, 1);
    expect(lanes[1]!.table.liveSlots).to.equal(1);
  });

  it('AL-22 the same for lanes of several threads: the shares lie in the node block', () => {
    const block = createNodeBlock(2, 1);
    const lanes = [0, 1].map(
      (lane) => new CoreNode({ lane, peerBudget: new NodeBlock(block).heldBytes(3, lane, 300) }),
    );
    const hold = (lane: number, session: bigint, epoch = 1n): boolean => {
      const node = lanes[lane]!;
      const id = Number(session) << 8;
      node.bind(ANCHOR, session);
      const batch = new BatchBuilder({ flags: lane, epoch }).open(id, ANCHOR, session);
      node.receive(batch.data(id, 2, itemFrame(1, 174)).bytes);
      return node.table.liveSlots === 1;
    };
    expect([hold(0, 1n), hold(1, 2n)]).to.deep.equal([true, false]);
    expect(lanes[1]!.metrics.holdOverflow).to.equal(1);
    lanes[0]!.receive(new BatchBuilder({ epoch: 2n }).credit(0, 1).bytes);
    expect(hold(1, 3n)).to.equal(true);
    expect(hold(0, 4n, 2n)).to.equal(false);
    new NodeBlock(block).buryBytes(1);
    expect(hold(0, 5n, 2n), 'what a dead lane held is free').to.equal(true);
  });

  it('AL-26 an epoch death on one lane leaves the other running', () => {
    const lanes = [0, 1].map((lane) => new CoreNode({ lane }));
    const owners = lanes.map(() => new FakeOwner());
    const slots = lanes.map((node, lane) => node.open(owners[lane]!, ANCHOR, 1n));
    lanes[0]!.batcher.epochDeath('refused');
    lanes[1]!.sendItem(slots[1]!, 1);
    lanes[1]!.turn();
    expect(lanes[1]!.port.take().at(-1)!.records[0]!.type).to.equal('data');
    expect(owners.map((owner) => owner.events.length)).to.deep.equal([3, 1]);
  });
});
