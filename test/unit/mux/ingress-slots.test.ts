// The peer's slots: opening, refusals, generations, epochs, collisions, slots moved aside.

import { expect } from 'chai';
import { CLOSE_PEER_GONE, CLOSE_TERMINAL_SENT, LIFECYCLE_CANCEL } from '../../../lib/wire/batch.js';
import { FINALIZED_BYTES } from '../../../lib/wire/frame.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, frameText, itemFrame } from '../../support/core-pair.js';
import type { FakeReceiver } from '../../support/mux-fakes.js';

const ANCHOR = 0x0123_4567_89ab_cdefn;

function texts(receiver: FakeReceiver): string[] {
  return receiver.frames.map(frameText);
}

/** What the node answers, as "type index.generation value". */
function replies(node: CoreNode): string[] {
  node.turn();
  if (!node.hasBatcher) return [];
  node.batcher.kick();
  return node.port
    .take()
    .flatMap((batch) => batch.records)
    .map((r) => `${r.type} ${r.index}.${r.generation} ${r.delta ?? r.reason ?? r.action}`);
}

describe('mux ingress: slots', () => {
  it('AO-02 an OpenSlot that matches a bind claims it and is answered with nothing', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 77n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 77n).bytes);
    expect(receiver.slot?.id).to.equal(0);
    expect([node.table.liveSlots, node.metrics.liveSlots, node.binds.size]).to.deep.equal([1, 1, 0]);
    expect(node.hasBatcher).to.equal(false);
    expect(replies(node)).to.deep.equal([]);
  });

  it('AO-02 the slot expects the number after its OpenSlot, whatever that is', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 77n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 77n, 40).data(0, 41, itemFrame(1)).bytes);
    expect(texts(receiver)).to.deep.equal(['1']);
  });

  it('AO-03 an OpenSlot nobody registered is refused alone: other binds stay, the peer does not fail', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 78n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 77n).open(0x100, ANCHOR, 78n).bytes);
    expect(replies(node)).to.deep.equal(['close 0.0 2']);
    expect(node.metrics.droppedUnknownSlot).to.equal(1);
    expect(receiver.slot?.index).to.equal(1);
  });

  it('AO-06 the claim is write-once: a second OpenSlot for the same pair finds no bind', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 77n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 77n).open(0x100, ANCHOR, 77n).bytes);
    expect(receiver.slot?.id).to.equal(0);
    expect(replies(node)).to.deep.equal(['close 1.0 2']);
    node.receive(new BatchBuilder({ seq: 1 }).data(0, 1, itemFrame(5)).data(0x100, 1, itemFrame(6)).bytes);
    expect(texts(receiver)).to.deep.equal(['5']);
  });

  it('AO-05 two sessions on one anchor stay apart, sessions above 2^53 too', () => {
    const node = new CoreNode();
    const first = node.bind(ANCHOR, 2n ** 63n);
    const second = node.bind(ANCHOR, 2n ** 63n + 1n);
    const batch = new BatchBuilder().open(0, ANCHOR, 2n ** 63n + 1n).open(0x100, ANCHOR, 2n ** 63n);
    for (let i = 1; i <= 16; i++) batch.data(0, i, itemFrame(i)).data(0x100, i, itemFrame(100 + i));
    node.receive(batch.bytes);
    expect(texts(second)).to.deep.equal(Array.from({ length: 16 }, (_, i) => String(i + 1)));
    expect(texts(first)).to.deep.equal(Array.from({ length: 16 }, (_, i) => String(i + 101)));
  });

  it('AS-05 a record of the wrong generation is dropped, never delivered, and counted', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 77n);
    node.receive(new BatchBuilder().open(slotId(4, 3), ANCHOR, 77n).data(slotId(4, 2), 1, itemFrame(9)).bytes);
    expect(texts(receiver)).to.deep.equal([]);
    expect([node.metrics.generationMismatch, node.metrics.droppedGeneration]).to.deep.equal([1, 1]);
    node.receive(new BatchBuilder({ seq: 1 }).close(slotId(4, 2), 1, CLOSE_PEER_GONE).bytes);
    expect(node.table.liveSlots).to.equal(1);
    expect(node.metrics.generationMismatch).to.equal(2);
  });

  it('AS-06 a batch of an older epoch is dropped whole and counted by its records', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 77n);
    node.bind(ANCHOR, 78n);
    node.receive(new BatchBuilder({ epoch: 5n }).open(0, ANCHOR, 77n).bytes);
    node.receive(new BatchBuilder({ epoch: 4n }).data(0, 1, itemFrame(1)).open(0x100, ANCHOR, 78n).bytes);
    expect(node.metrics.droppedStaleEpoch).to.equal(2);
    expect(texts(receiver)).to.deep.equal([]);
    expect(node.table.liveSlots).to.equal(1);
  });

  it('AS-06 epochs are compared as u64: the high half decides', () => {
    const node = new CoreNode();
    node.bind(ANCHOR, 77n);
    node.receive(new BatchBuilder({ epoch: 2n ** 32n }).open(0, ANCHOR, 77n).bytes);
    node.receive(new BatchBuilder({ epoch: 0xffff_ffffn }).data(0, 1, itemFrame(1)).bytes);
    expect(node.metrics.droppedStaleEpoch).to.equal(1);
    node.receive(new BatchBuilder({ epoch: 2n ** 63n + 1n }).credit(0, 1).bytes);
    expect(node.table.liveSlots).to.equal(0);
    node.receive(new BatchBuilder({ epoch: 2n ** 63n }).credit(0, 1).bytes);
    expect(node.metrics.droppedStaleEpoch).to.equal(2);
  });

  it('AS-07 the first batch of a newer epoch retires every old slot: earlier records, then exactly one Dropped', () => {
    const node = new CoreNode();
    const receivers = [1n, 2n].map((session) => node.bind(ANCHOR, session));
    const old = new BatchBuilder({ epoch: 1n, seq: 9 });
    old.open(0, ANCHOR, 1n).open(0x100, ANCHOR, 2n).data(0, 1, itemFrame(1)).data(0x100, 1, FINALIZED_BYTES);
    node.receive(old.bytes);
    node.receive(new BatchBuilder({ epoch: 2n, seq: 0 }).credit(0, 1).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', 'Dropped']);
    expect(texts(receivers[1]!), 'one that had its terminal gets no second').to.deep.equal(['Finalized']);
    expect(receivers.map((receiver) => receiver.closedCalls)).to.deep.equal([1, 1]);
    expect([node.table.liveSlots, node.metrics.liveSlots, node.metrics.batchSeqGaps]).to.deep.equal([0, 0, 0]);
  });

  it('AS-07 the gap meter starts over in a new epoch', () => {
    const node = new CoreNode();
    node.receive(new BatchBuilder({ epoch: 1n, seq: 900 }).credit(0, 0).bytes);
    for (const seq of [0, 1, 3]) node.receive(new BatchBuilder({ epoch: 2n, seq }).credit(0, 0).bytes);
    expect(node.metrics.batchSeqGaps).to.equal(1);
  });

  it('AS-07 replies about the retired slots are not sent into the new epoch', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 1n);
    node.bind(ANCHOR, 2n);
    node.receive(new BatchBuilder({ epoch: 1n }).open(0, ANCHOR, 1n).data(0, 1, itemFrame(1)).bytes);
    receiver.take(1);
    node.table.noteDrained(receiver.slot!);
    node.table.visitDrained();
    node.receive(new BatchBuilder({ epoch: 2n }).open(0, ANCHOR, 2n).bytes);
    expect(replies(node)).to.deep.equal([]);
  });

  it('AS-09 batch_seq 0, 2, 1, 3 counts one gap, the mark never moves back, delivery is in order', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 77n);
    node.receive(new BatchBuilder({ seq: 0 }).open(0, ANCHOR, 77n).bytes);
    node.receive(new BatchBuilder({ seq: 2 }).data(0, 2, itemFrame(2)).bytes);
    node.receive(new BatchBuilder({ seq: 1 }).data(0, 1, itemFrame(1)).bytes);
    node.receive(new BatchBuilder({ seq: 3 }).data(0, 3, itemFrame(3)).bytes);
    expect(node.metrics.batchSeqGaps).to.equal(1);
    expect(texts(receiver)).to.deep.equal(['1', '2', '3']);
  });

  it('AS-10 index 65,536 is refused with ProtocolError and consumes no bind; 65,535 opens', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 77n);
    node.receive(new BatchBuilder().open(slotId(65_536, 0), ANCHOR, 77n).bytes);
    expect([node.claims, node.table.liveSlots]).to.deep.equal([0, 0]);
    expect(replies(node)).to.deep.equal(['close 65536.0 3']);
    node.receive(new BatchBuilder({ seq: 1 }).open(slotId(65_535, 7), ANCHOR, 77n).bytes);
    expect(receiver.slot?.index).to.equal(65_535);
  });

  it('AS-11 an OpenSlot over a live occupant is refused, counted, and disturbs neither occupant nor bind', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 1n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).data(0, 2, itemFrame(2, 50)).bytes);
    node.bind(ANCHOR, 2n);
    node.receive(new BatchBuilder({ seq: 1 }).open(slotId(0, 1), ANCHOR, 2n).bytes);
    expect(replies(node)).to.deep.equal(['close 0.1 3']);
    expect(node.metrics.droppedSlotCollision).to.equal(1);
    expect([node.binds.size, node.metrics.heldRecords]).to.deep.equal([1, 1]);
    expect((node.peerBudget as unknown as { used: number }).used).to.equal(itemFrame(2, 50).length);
    node.receive(new BatchBuilder({ seq: 2 }).data(0, 1, itemFrame(1)).bytes);
    expect(texts(receiver)).to.deep.equal(['1', '2']);
  });

  it('AS-12 a repeat OpenSlot with the same id and another bind retires the occupant and opens the new one', () => {
    const node = new CoreNode();
    const first = node.bind(ANCHOR, 1n);
    const second = node.bind(ANCHOR, 2n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).data(0, 3, itemFrame(3, 50)).bytes);
    node.receive(new BatchBuilder({ seq: 1 }).open(0, ANCHOR, 2n).data(0, 1, itemFrame(8)).bytes);
    expect(texts(first)).to.deep.equal(['Dropped']);
    expect(texts(second)).to.deep.equal(['8']);
    expect([node.table.liveSlots, node.metrics.liveSlots, node.metrics.heldRecords]).to.deep.equal([1, 1, 0]);
    expect((node.peerBudget as unknown as { used: number }).used).to.equal(0);
  });

  it('AS-13 a repeat OpenSlot with the same id and no bind is refused and the occupant goes on', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 1n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).open(0, ANCHOR, 9n).data(0, 1, itemFrame(1)).bytes);
    expect(texts(receiver)).to.deep.equal(['1']);
    expect(replies(node)).to.deep.equal(['close 0.0 2']);
  });

  it('AS-14 an occupant whose close has come is moved aside, the new slot opens, and the old one still ends well', () => {
    const node = new CoreNode();
    const old = node.bind(ANCHOR, 1n);
    const next = node.bind(ANCHOR, 2n);
    const first = new BatchBuilder().open(0, ANCHOR, 1n);
    node.receive(first.data(0, 2, FINALIZED_BYTES).close(0, 3, CLOSE_TERMINAL_SENT).bytes);
    node.receive(
      new BatchBuilder({ seq: 1 }).open(slotId(0, 1), ANCHOR, 2n).data(slotId(0, 1), 1, itemFrame(20)).bytes,
    );
    expect([node.table.liveSlots, next.slot?.id]).to.deep.equal([2, slotId(0, 1)]);
    node.receive(new BatchBuilder({ seq: 2 }).data(0, 1, itemFrame(10)).bytes);
    expect(texts(old)).to.deep.equal(['10', 'Finalized']);
    expect(old.closedCalls).to.equal(1);
    expect(texts(next)).to.deep.equal(['20']);
    expect([node.table.liveSlots, node.metrics.heldRecords]).to.deep.equal([1, 0]);
    expect(replies(node)).to.deep.equal([]);
  });

  it('AS-14 a slot that waits aside is swept, and retired with its epoch', () => {
    const node = new CoreNode();
    const old = node.bind(ANCHOR, 1n);
    node.bind(ANCHOR, 2n);
    const first = new BatchBuilder().open(0, ANCHOR, 1n).data(0, 1, itemFrame(1)).data(0, 3, FINALIZED_BYTES);
    node.receive(first.close(0, 4, CLOSE_TERMINAL_SENT).open(slotId(0, 1), ANCHOR, 2n).bytes);
    const before = node.table.visitedSlots;
    node.table.sweep();
    expect(node.table.visitedSlots - before).to.equal(2);
    node.table.retireAll();
    expect(texts(old)).to.deep.equal(['1', 'Dropped']);
    expect([node.table.liveSlots, node.metrics.liveSlots]).to.deep.equal([0, 0]);
  });

  it('AY-09 a shutdown retires every slot: Dropped for those without a terminal, which are counted and whose senders are told', () => {
    const node = new CoreNode();
    const finished = node.bind(ANCHOR, 1n);
    const open = node.bind(ANCHOR, 2n);
    const quiet = node.bind(ANCHOR, 3n);
    const batch = new BatchBuilder().open(0, ANCHOR, 1n).data(0, 1, FINALIZED_BYTES).open(slotId(1, 0), ANCHOR, 2n);
    node.receive(batch.data(slotId(1, 0), 1, itemFrame(5)).open(slotId(2, 0), ANCHOR, 3n).bytes);
    expect(node.table.liveSlots).to.equal(3);
    expect(node.table.shutdown()).to.equal(2);
    expect([finished, open, quiet].map(texts)).to.deep.equal([['Finalized'], ['5', 'Dropped'], ['Dropped']]);
    expect([finished, open, quiet].map(({ closedCalls }) => closedCalls)).to.deep.equal([1, 1, 1]);
    expect([node.table.liveSlots, node.metrics.liveSlots]).to.deep.equal([0, 0]);
    expect(replies(node)).to.deep.equal([`lifecycle 1.0 ${LIFECYCLE_CANCEL}`, `lifecycle 2.0 ${LIFECYCLE_CANCEL}`]);
    expect(node.table.shutdown()).to.equal(0);
  });

  it('AS-15 a slot with the id of one that waits aside is a collision: the new one refused, the old one failed', () => {
    const node = new CoreNode();
    const old = node.bind(ANCHOR, 1n);
    const next = node.bind(ANCHOR, 2n);
    node.bind(ANCHOR, 3n);
    node.receive(
      new BatchBuilder().open(0, ANCHOR, 1n).data(0, 2, FINALIZED_BYTES).close(0, 3, CLOSE_TERMINAL_SENT).bytes,
    );
    node.receive(
      new BatchBuilder({ seq: 1 }).open(slotId(0, 1), ANCHOR, 2n).close(slotId(0, 1), 1, CLOSE_PEER_GONE).bytes,
    );
    node.receive(new BatchBuilder({ seq: 2 }).open(0, ANCHOR, 3n).data(0, 1, itemFrame(30)).bytes);
    expect(texts(old)).to.deep.equal(['Dropped']);
    expect(texts(next)).to.deep.equal(['Dropped']);
    expect(node.metrics.droppedSlotCollision).to.equal(1);
    expect([node.binds.size, node.table.liveSlots]).to.deep.equal([1, 0]);
    expect(replies(node)).to.deep.equal(['close 0.0 3']);
  });

  it('AS-17 an occupant without a close in sight stays a collision even when a record is missing', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 1n);
    node.bind(ANCHOR, 2n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).data(0, 2, itemFrame(2)).open(slotId(0, 1), ANCHOR, 2n).bytes);
    expect(node.metrics.droppedSlotCollision).to.equal(1);
    node.receive(new BatchBuilder({ seq: 1 }).data(0, 1, itemFrame(1)).bytes);
    expect(texts(receiver)).to.deep.equal(['1', '2']);
  });

  it('AS-18 an index closed and reopened in one batch works, and a drain noted for the old one grants the new one nothing', () => {
    const node = new CoreNode();
    const old = node.bind(ANCHOR, 1n);
    const next = node.bind(ANCHOR, 2n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).data(0, 1, itemFrame(1)).data(0, 2, itemFrame(2)).bytes);
    const slot = old.slot!;
    old.take(2);
    node.table.noteDrained(slot);
    const swap = new BatchBuilder({ seq: 1 }).data(0, 3, FINALIZED_BYTES).close(0, 4, CLOSE_TERMINAL_SENT);
    node.receive(swap.open(slotId(0, 1), ANCHOR, 2n).data(slotId(0, 1), 1, itemFrame(7)).bytes);
    node.table.noteDrained(slot);
    node.table.visitDrained();
    expect(texts(old)).to.deep.equal(['1', '2', 'Finalized']);
    expect(texts(next)).to.deep.equal(['7']);
    expect(replies(node)).to.deep.equal([]);
    expect(next.slot?.outstanding).to.equal(1);
  });

  it('AS-19 records for a slot never opened are dropped without a reply', () => {
    const node = new CoreNode();
    node.receive(
      new BatchBuilder().data(0, 1, itemFrame(1)).heartbeat(0x500, 3).close(0xffff_ff00, 1, CLOSE_PEER_GONE).bytes,
    );
    expect(node.metrics.droppedClosedSlot).to.equal(3);
    expect(node.hasBatcher).to.equal(false);
  });

  it('slots end in any order and the walk still finds exactly the others', () => {
    const node = new CoreNode();
    const receivers = [0n, 1n, 2n, 3n, 4n].map((session) => node.bind(ANCHOR, session));
    const batch = new BatchBuilder();
    for (let i = 0; i < 5; i++) batch.open(i << 8, ANCHOR, BigInt(i)).data(i << 8, 1, itemFrame(i));
    node.receive(batch.bytes);
    for (const gone of [1, 4, 0]) node.table.closeSlot(receivers[gone]!.slot!);
    for (const receiver of receivers) receiver.take(1);
    replies(node);
    node.table.sweep();
    expect(replies(node).sort()).to.deep.equal(['credit 2.0 1', 'credit 3.0 1']);
    for (const left of [2, 3]) node.table.closeSlot(receivers[left]!.slot!);
    expect(node.table.liveSlots).to.equal(0);
  });

  it('an early cancel on the bind ends the slot at its claim and tells the sender by session', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 77n, { earlyCancel: true });
    node.receive(new BatchBuilder().open(0x200, ANCHOR, 77n).data(0x200, 1, itemFrame(1)).bytes);
    expect([node.table.liveSlots, receiver.closedCalls, receiver.frames.length]).to.deep.equal([0, 1, 0]);
    expect(replies(node)).to.deep.equal(['lifecycle 2.0 1']);
  });

  it('an early stop on the bind is passed on and the slot stays open', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 77n, { earlyStop: true });
    node.receive(new BatchBuilder().open(0, ANCHOR, 77n).data(0, 1, itemFrame(1)).bytes);
    expect(texts(receiver)).to.deep.equal(['1']);
    expect(replies(node)).to.deep.equal(['lifecycle 0.0 0']);
  });
});
