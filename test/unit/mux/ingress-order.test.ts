// Records of one slot: order, gaps, holds, faults, closes, and batches that are not what they should be.

import { expect } from 'chai';
import { ByteBudget } from '../../../lib/mux/byte-budget.js';
import {
  CLOSE_PEER_GONE,
  CLOSE_PROTOCOL_ERROR,
  CLOSE_TERMINAL_SENT,
  CLOSE_UNKNOWN_SLOT,
} from '../../../lib/wire/batch.js';
import { FINALIZED_BYTES, transportErrorFrame } from '../../../lib/wire/frame.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, frameText, itemFrame } from '../../support/core-pair.js';
import { FakeOwner, type FakeReceiver, type FakeReceiverOptions } from '../../support/mux-fakes.js';

const ANCHOR = 9n;

/** A node with slots 0, 1 … open, one per set of options. */
function opened(...options: FakeReceiverOptions[]): { node: CoreNode; receivers: FakeReceiver[] } {
  const node = new CoreNode();
  const batch = new BatchBuilder();
  const receivers = (options.length === 0 ? [{}] : options).map((option, i) => {
    batch.open(slotId(i, 0), ANCHOR, BigInt(i + 1));
    return node.bind(ANCHOR, BigInt(i + 1), option);
  });
  node.receive(batch.bytes);
  return { node, receivers };
}

function next(seq = 1): BatchBuilder {
  return new BatchBuilder({ seq });
}

function texts(receiver: FakeReceiver): string[] {
  return receiver.frames.map(frameText);
}

function replies(node: CoreNode): string[] {
  if (!node.hasBatcher) return [];
  node.turn();
  node.batcher.kick();
  return node.port
    .take()
    .flatMap((batch) => batch.records)
    .map((r) => `${r.type} ${r.index}.${r.generation} ${r.delta ?? r.reason ?? r.action}`);
}

describe('mux ingress: order within a slot', () => {
  it('AR-01 records apply in frame_seq order', () => {
    const { node, receivers } = opened();
    node.receive(next().data(0, 1, itemFrame(1)).data(0, 2, itemFrame(2)).data(0, 3, itemFrame(3)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', '2', '3']);
  });

  it('a held record is a copy, also of a Buffer, whose slice is a view', () => {
    const { node, receivers } = opened();
    const chunk = Buffer.from(next(1).data(0, 2, itemFrame(2)).bytes);
    node.receiveAt(0, chunk, 0, chunk.length);
    chunk.fill(0xdd);
    node.receive(next(2).data(0, 1, itemFrame(1)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', '2']);
  });

  it('AR-02 records ahead of their turn are held and released in order when the gap closes', () => {
    const { node, receivers } = opened();
    node.receive(next(1).data(0, 3, itemFrame(3)).data(0, 2, itemFrame(2)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal([]);
    expect(node.metrics.heldRecords).to.equal(2);
    node.receive(next(2).data(0, 1, itemFrame(1)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', '2', '3']);
    expect(node.metrics.heldRecords).to.equal(0);
    expect((node.peerBudget as ByteBudget).used).to.equal(0);
  });

  it('AR-02 held bytes are copies: the batch they came in may be reused', () => {
    const { node, receivers } = opened();
    const batch = next(1).data(0, 2, itemFrame(2)).bytes;
    node.receiveAt(0, batch, 0, batch.length);
    batch.fill(0xee);
    node.receive(next(2).data(0, 1, itemFrame(1)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', '2']);
  });

  it('AR-03 a record behind the sequence is a duplicate: dropped, not a fault', () => {
    const { node, receivers } = opened();
    node.receive(next(1).data(0, 1, itemFrame(1)).data(0, 1, itemFrame(9)).data(0, 0, itemFrame(9)).bytes);
    node.receive(next(2).data(0, 3, itemFrame(3)).data(0, 3, itemFrame(9)).data(0, 2, itemFrame(2)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', '2', '3']);
    expect(node.metrics.droppedDuplicate).to.equal(3);
    expect(replies(node)).to.deep.equal([]);
    expect(receivers[0]!.slot?.outstanding).to.equal(3);
  });

  it('AR-04 a hold that overspends closes that slot alone: Dropped, ProtocolError, counted', () => {
    const { node, receivers } = opened({ limit: 4 }, { limit: 4 });
    const batch = next();
    for (let seq = 2; seq <= 6; seq++) batch.data(0, seq, itemFrame(seq));
    node.receive(batch.data(0x100, 1, itemFrame(7)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['Dropped']);
    expect(texts(receivers[1]!)).to.deep.equal(['7']);
    expect([node.metrics.holdOverflow, node.metrics.heldRecords]).to.deep.equal([1, 0]);
    expect(replies(node)).to.deep.equal(['close 0.0 3']);
    expect((node.peerBudget as ByteBudget).used).to.equal(0);
  });

  it('AR-04 a hold beyond the slot budget, or beyond what the peer may hold, closes the slot', () => {
    const small = opened({ byteBudget: 100 });
    small.node.receive(next().data(0, 2, itemFrame(2, 60)).data(0, 3, itemFrame(3, 60)).bytes);
    expect(texts(small.receivers[0]!)).to.deep.equal(['Dropped']);

    const node = new CoreNode({ peerBudget: new ByteBudget(100) });
    const receivers = [1n, 2n].map((session) => node.bind(ANCHOR, session));
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).open(0x100, ANCHOR, 2n).bytes);
    node.receive(next().data(0, 2, itemFrame(2, 60)).data(0x100, 2, itemFrame(2, 60)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal([]);
    expect(texts(receivers[1]!)).to.deep.equal(['Dropped']);
    expect(node.metrics.heldRecords).to.equal(1);
    expect((node.peerBudget as ByteBudget).used).to.equal(66);
  });

  it('AR-05 a held record marks its slot, and what it releases is reconciled in the same batch', () => {
    const { node, receivers } = opened();
    const visits = (): number => node.table.visitedSlots;
    const before = visits();
    node.receive(next(1).data(0, 2, itemFrame(2)).bytes);
    expect(visits() - before).to.equal(1);
    receivers[0]!.claimDrained(2);
    node.receive(next(2).data(0, 1, itemFrame(1)).bytes);
    expect(visits() - before).to.equal(2);
    expect(replies(node)).to.deep.equal(['credit 0.0 2']);
  });

  it('a sender that overspends its window in order is closed with ProtocolError', () => {
    const { node, receivers } = opened({ limit: 2 });
    node.receive(next().data(0, 1, itemFrame(1)).data(0, 2, itemFrame(2)).data(0, 3, itemFrame(3)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', '2', 'Dropped']);
    expect([node.metrics.holdOverflow, node.metrics.readerStalls]).to.deep.equal([1, 0]);
    expect(replies(node)).to.deep.equal(['close 0.0 3']);
  });

  it('a buffer that is full although credit was granted is a stall and ends the slot', () => {
    const { node, receivers } = opened({ limit: 4 });
    receivers[0]!.depthOverride = 1;
    node.receive(next().data(0, 1, itemFrame(1)).data(0, 2, itemFrame(2)).data(0, 3, itemFrame(3)).bytes);
    expect(node.metrics.readerStalls).to.equal(1);
    expect(replies(node)).to.deep.equal(['close 0.0 3']);
    expect(receivers[0]!.closedCalls).to.equal(1);
  });

  it('a consumer that is gone closes the slot with UnknownSlot', () => {
    const { node, receivers } = opened();
    receivers[0]!.gone = true;
    node.receive(next().data(0, 1, itemFrame(1)).data(0, 2, itemFrame(2)).bytes);
    expect(replies(node)).to.deep.equal(['close 0.0 2']);
    expect([node.table.liveSlots, receivers[0]!.closedCalls]).to.deep.equal([0, 1]);
    expect(node.metrics.droppedClosedSlot).to.equal(1);
  });

  it('AH-01 a SlotHeartbeat record reaches the consumer as a heartbeat frame and spends credit', () => {
    const { node, receivers } = opened();
    node.receive(next().heartbeat(0, 1).data(0, 2, itemFrame(2)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['Heartbeat', '2']);
    expect(receivers[0]!.slot?.outstanding).to.equal(2);
  });
});

describe('mux ingress: the end of a slot', () => {
  it('AT-03 terminal then close: the reader gets the terminal only, then the end', () => {
    const { node, receivers } = opened();
    node.receive(next().data(0, 1, FINALIZED_BYTES).close(0, 2, CLOSE_TERMINAL_SENT).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['Finalized']);
    expect([receivers[0]!.closedCalls, receivers[0]!.terminals]).to.deep.equal([1, 1]);
    expect(node.table.liveSlots).to.equal(0);
  });

  it('AT-04 a window of 1: item, terminal and close in one batch are all delivered', () => {
    const { node, receivers } = opened({ limit: 1 });
    node.receive(next().data(0, 1, itemFrame(1)).data(0, 2, FINALIZED_BYTES).close(0, 3, CLOSE_TERMINAL_SENT).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', 'Finalized']);
    expect(node.metrics.readerStalls).to.equal(0);
  });

  it('AT-05 a terminal and its close wait for a record in front of them', () => {
    const { node, receivers } = opened();
    node.receive(next(1).data(0, 2, FINALIZED_BYTES).close(0, 3, CLOSE_TERMINAL_SENT).bytes);
    expect([texts(receivers[0]!).length, node.table.liveSlots]).to.deep.equal([0, 1]);
    node.receive(next(2).data(0, 1, itemFrame(1)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', 'Finalized']);
    expect([node.table.liveSlots, node.metrics.liveSlots]).to.deep.equal([0, 0]);
  });

  it('AT-05 a PeerGone that waits for a record injects Dropped behind it', () => {
    const { node, receivers } = opened();
    node.receive(next(1).close(0, 2, CLOSE_PEER_GONE).bytes);
    expect(node.table.liveSlots).to.equal(1);
    node.receive(next(2).data(0, 1, itemFrame(1)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', 'Dropped']);
  });

  it("AT-06 closes with reasons 2 and 3 go to this side's batcher and leave the peer's slot alone", () => {
    const { node, receivers } = opened();
    const owners = [new FakeOwner(), new FakeOwner()];
    const slots = owners.map((owner, i) => node.open(owner, ANCHOR, BigInt(50 + i)));
    expect(slots[0]!.id).to.equal(0);
    node.receive(next(1).close(0, 0, CLOSE_UNKNOWN_SLOT).close(slots[1]!.id, 0, CLOSE_PROTOCOL_ERROR).bytes);
    node.turn();
    expect(owners.map((owner) => owner.events[1])).to.deep.equal(['closed unknownSlot', 'closed protocolError']);
    expect([node.table.liveSlots, receivers[0]!.closedCalls]).to.deep.equal([1, 0]);
    const slot = node.open(new FakeOwner(), ANCHOR, 60n);
    node.receive(next(2).close(0, 1, CLOSE_TERMINAL_SENT).bytes);
    expect([node.table.liveSlots, slot.state]).to.deep.equal([0, 1]);
  });

  it('AT-06 control about our slots makes no batcher where there is none; it is refused and counted', () => {
    const { node } = opened();
    node.receive(next().credit(0, 5).lifecycle(0, 1n, 1).close(0, 0, CLOSE_UNKNOWN_SLOT).bytes);
    expect(node.metrics.controlRefused).to.equal(3);
    expect(node.hasBatcher).to.equal(false);
  });

  it('AT-08 a close other than TerminalSent injects Dropped only where no terminal was delivered', () => {
    const { node, receivers } = opened({}, {}, {});
    node.receive(
      next()
        .data(0, 1, itemFrame(1))
        .close(0, 2, CLOSE_PEER_GONE)
        .data(0x100, 1, transportErrorFrame('gone'))
        .close(0x100, 2, CLOSE_PEER_GONE)
        .close(0x200, 1, CLOSE_TERMINAL_SENT).bytes,
    );
    expect(texts(receivers[0]!)).to.deep.equal(['1', 'Dropped']);
    expect(receivers[1]!.frames).to.have.length(1);
    expect(texts(receivers[2]!)).to.deep.equal([]);
    expect(receivers.map((receiver) => receiver.closedCalls)).to.deep.equal([1, 1, 1]);
  });

  it('AT-08 a slot that fails while its terminal is still held ends with Dropped, not with nothing', () => {
    const { node, receivers } = opened({ limit: 2 });
    node.receive(next(1).data(0, 4, FINALIZED_BYTES).data(0, 3, itemFrame(3)).data(0, 2, itemFrame(2)).bytes);
    expect(node.metrics.heldRecords).to.equal(3);
    node.receive(next(2).data(0, 1, itemFrame(1)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['Dropped']);
    expect(receivers[0]!.terminals).to.equal(1);
  });

  it('AT-08 records behind a delivered terminal reach nobody, and their close still closes', () => {
    const { node, receivers } = opened();
    node.receive(
      next()
        .data(0, 1, FINALIZED_BYTES)
        .data(0, 2, itemFrame(2))
        .data(0, 3, FINALIZED_BYTES)
        .close(0, 4, CLOSE_TERMINAL_SENT).bytes,
    );
    expect(texts(receivers[0]!)).to.deep.equal(['Finalized']);
    expect([node.metrics.droppedClosedSlot, node.table.liveSlots]).to.deep.equal([2, 0]);
    expect(replies(node)).to.deep.equal([]);
  });

  it("AT-12 a consumer's close ends its slot once and names the session; again, or on a dead slot, it does nothing", () => {
    const { node, receivers } = opened({});
    const slot = receivers[0]!.slot!;
    node.receive(next(1).data(0, 2, itemFrame(2)).bytes);
    node.table.closeSlot(slot);
    node.table.closeSlot(slot);
    node.table.requestStop(slot);
    expect(replies(node)).to.deep.equal(['lifecycle 0.0 1']);
    expect([node.table.liveSlots, node.metrics.liveSlots, node.metrics.heldRecords]).to.deep.equal([0, 0, 0]);
    expect(texts(receivers[0]!), 'nothing is injected for a consumer that left').to.deep.equal([]);
    node.receive(next(2).data(0, 1, itemFrame(1)).bytes);
    expect(node.metrics.droppedClosedSlot).to.equal(1);
  });

  it('a stop names the session and leaves the slot open', () => {
    const { node, receivers } = opened({});
    node.table.requestStop(receivers[0]!.slot!);
    node.turn();
    const record = node.port.take()[0]!.records[0]!;
    expect([record.type, record.action, record.session]).to.deep.equal(['lifecycle', 0, 1n]);
    expect(node.table.liveSlots).to.equal(1);
  });
});

describe('mux ingress: batches that are not well', () => {
  it('AP-31 records before a malformed one are applied, the rest is dropped, nothing fails for it', () => {
    const { node, receivers } = opened();
    const good = next(1).data(0, 1, itemFrame(1)).data(0, 2, itemFrame(2)).bytes;
    // The second record's type byte becomes unknown.
    good[16 + 13 + 10] = 9;
    node.receive(good);
    expect(texts(receivers[0]!)).to.deep.equal(['1']);
    expect([node.metrics.malformedBatches, node.table.liveSlots]).to.deep.equal([1, 1]);
    node.receive(next(2).data(0, 2, itemFrame(2)).bytes);
    expect(texts(receivers[0]!)).to.deep.equal(['1', '2']);
    expect(node.metrics.batchSeqGaps).to.equal(0);
  });

  it('AP-31 a batch too short for its header is ignored', () => {
    const { node } = opened();
    node.receive(next(1).bytes.subarray(0, 15));
    expect([node.metrics.malformedBatches, node.metrics.received.count]).to.deep.equal([1, 1]);
  });

  it('AP-18 a batch of another version moves epoch and sequence, and applies nothing', () => {
    const { node, receivers } = opened();
    const batch = new BatchBuilder({ seq: 1, epoch: 2n }).data(0, 1, itemFrame(1)).bytes;
    batch[0] = 7;
    node.receive(batch);
    expect(texts(receivers[0]!)).to.deep.equal(['Dropped']);
    expect([node.metrics.malformedBatches, node.metrics.received.count]).to.deep.equal([1, 1]);
  });

  it('AP-33 AP-35 batch_seq compares and counts gaps across the wrap', () => {
    const node = new CoreNode();
    const seen = (seq: number): number => {
      node.receive(new BatchBuilder({ seq }).credit(0, 0).bytes);
      return node.metrics.batchSeqGaps;
    };
    expect(seen(0xffff_fffc)).to.equal(0);
    expect(seen(0xffff_fffe)).to.equal(1);
    expect(seen(0xffff_ffff)).to.equal(1);
    expect(seen(0)).to.equal(1);
    expect(seen(0xffff_ffff)).to.equal(1);
    expect(seen(3)).to.equal(3);
  });

  it('AP-34 the antipode is not newer: the mark stays', () => {
    const node = new CoreNode();
    for (const seq of [5, (5 + 0x8000_0000) >>> 0, 6]) node.receive(new BatchBuilder({ seq }).credit(0, 0).bytes);
    expect(node.metrics.batchSeqGaps).to.equal(0);
  });

  it('AP-20 cutting a batch at every byte never throws, and delivers a prefix in order', () => {
    const whole = next(1).data(0, 1, itemFrame(1)).heartbeat(0, 2).data(0, 3, itemFrame(3)).close(0, 4, 1).bytes;
    for (let cut = 0; cut < whole.length; cut++) {
      const { node, receivers } = opened();
      node.receive(whole.subarray(0, cut));
      expect(['1', 'Heartbeat', '3'].slice(0, receivers[0]!.frames.length)).to.deep.equal(texts(receivers[0]!));
      expect(node.metrics.malformedBatches).to.equal(1);
    }
  });
});
