// Ten thousand live streams of one peer: what a batch, a doorbell, a grant and a sweep cost is counted in slots, not in time.

import { expect } from 'chai';
import { CLOSE_TERMINAL_SENT } from '../../../lib/wire/batch.js';
import { FINALIZED_BYTES } from '../../../lib/wire/frame.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, CorePair, itemFrame } from '../../support/core-pair.js';
import type { FakeReceiver } from '../../support/mux-fakes.js';

const STREAMS = 10_000;
const PER_BATCH = 2_000;
const ANCHOR = 0x0123_4567_89ab_cdefn;

function wideNode(): { node: CoreNode; receivers: FakeReceiver[] } {
  const node = new CoreNode();
  const receivers = Array.from({ length: STREAMS }, (_, i) => node.bind(ANCHOR, BigInt(i)));
  for (let at = 0; at < STREAMS; at += PER_BATCH) {
    const batch = new BatchBuilder({ seq: at / PER_BATCH });
    for (let i = at; i < at + PER_BATCH; i++) batch.open(slotId(i, 0), ANCHOR, BigInt(i));
    node.receive(batch.bytes);
  }
  expect(node.table.liveSlots).to.equal(STREAMS);
  return { node, receivers };
}

describe('10,000 streams of one peer', () => {
  it('AC-17 a batch visits the slot it touched, a doorbell those with drains, the sweep all of them', () => {
    const { node, receivers } = wideNode();
    const { table } = node;
    const visits = (act: () => void) => {
      const before = table.visitedSlots;
      act();
      return table.visitedSlots - before;
    };
    expect(
      visits(() => node.receive(new BatchBuilder({ seq: 5 }).data(slotId(7_777, 0), 1, itemFrame(1)).bytes)),
    ).to.equal(1);
    expect(visits(() => node.receive(new BatchBuilder({ seq: 6 }).credit(0, 1).bytes))).to.equal(0);
    const drained = receivers[7_777]!;
    drained.take(1);
    table.noteDrained(drained.slot!);
    expect(visits(() => table.visitDrained())).to.equal(1);
    expect(
      visits(() => table.visitDrained()),
      'nothing is left to visit',
    ).to.equal(0);
    expect(visits(() => table.sweep())).to.equal(STREAMS);
  });

  it('the end of one stream, and the start of another in its place, touch no other; an idle table is not swept', () => {
    const { node, receivers } = wideNode();
    const { table } = node;
    const id = slotId(4_321, 0);
    node.bind(ANCHOR, BigInt(STREAMS));
    const before = table.visitedSlots;
    node.receive(
      new BatchBuilder({ seq: 5 })
        .data(id, 1, FINALIZED_BYTES)
        .close(id, 2, CLOSE_TERMINAL_SENT)
        .open(slotId(4_321, 1), ANCHOR, BigInt(STREAMS)).bytes,
    );
    expect(table.liveSlots).to.equal(STREAMS);
    expect(receivers.filter(({ closedCalls }) => closedCalls > 0)).to.deep.equal([receivers[4_321]]);
    expect(table.visitedSlots - before).to.equal(0);
    table.retireAll();
    const idle = table.visitedSlots;
    table.sweep();
    expect(table.visitedSlots).to.equal(idle);
    expect(node.metrics.liveSlots).to.equal(0);
  });

  it('a record of one sender, and credit for one, leave nothing to do for the others', () => {
    const pair = new CorePair();
    const streams = Array.from({ length: STREAMS }, () => pair.stream({ limit: 1 }));
    pair.settle();
    const { producer, consumer } = pair;
    expect(producer.metrics.liveSlots).to.equal(STREAMS);
    const one = streams[9_999]!;
    const batches = producer.port.sent.length;
    producer.sendItem(one.slot, 0);
    producer.sendItem(one.slot, 1);
    pair.settle();
    expect(producer.port.sent.length - batches).to.equal(1);
    expect(producer.metrics.withheldRecords).to.equal(1);
    const visited = consumer.table.visitedSlots;
    pair.take(one, 1);
    consumer.table.visitDrained();
    pair.advance(3);
    expect(one.receiver.frames).to.have.length(2);
    // Once for the drain, once for the record that its credit released.
    expect(consumer.table.visitedSlots - visited).to.equal(2);
    expect(streams.filter(({ receiver }) => receiver.frames.length > 0)).to.deep.equal([one]);
    expect(producer.batcher.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });
});
