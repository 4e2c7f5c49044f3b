// Staged records that are refused: which slot ends, how, and what happens to a refusal that comes before its OpenSlot.

import { expect } from 'chai';
import type { ByteBudget } from '../../../lib/mux/byte-budget.js';
import { MAX_WAITING_REFUSALS } from '../../../lib/mux/staged-refusals.js';
import { CLOSE_TERMINAL_SENT, LIFECYCLE_CANCEL } from '../../../lib/wire/batch.js';
import { FINALIZED_BYTES } from '../../../lib/wire/frame.js';
import { type MuxSlotName, parseMuxSlot } from '../../../lib/wire/mux-slot.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, CorePair, frameText, itemFrame } from '../../support/core-pair.js';
import type { FakeReceiver, PlainRecord } from '../../support/mux-fakes.js';

const ANCHOR = 9n;
const TEXT = 'payload of 900 bytes is larger than stagedPayloadMax = 100';
const ENDED = `TransportError:${TEXT}`;

function name(epoch: bigint, slot: number, session: bigint): MuxSlotName {
  return parseMuxSlot(`${epoch}:${slot}:${session}`)!;
}

function texts(receiver: FakeReceiver): string[] {
  // The length byte of the text is no letter.
  return receiver.frames.map((frame) => frameText(frame).replace(/^TransportError./, 'TransportError:'));
}

function replies(node: CoreNode): PlainRecord[] {
  if (!node.hasBatcher) return [];
  node.turn();
  node.batcher.kick();
  return node.port.take().flatMap((batch) => batch.records);
}

function cancels(node: CoreNode): string[] {
  return replies(node).map((r) => `${r.type} ${r.slot} ${r.session} ${r.action}`);
}

/** A node with sessions 1 and 2 open at indices 0 and 1, in epoch 1. */
function opened(): { node: CoreNode; first: FakeReceiver; second: FakeReceiver } {
  const node = new CoreNode();
  const [first, second] = [node.bind(ANCHOR, 1n), node.bind(ANCHOR, 2n)];
  node.receive(new BatchBuilder().open(0, ANCHOR, 1n).open(0x100, ANCHOR, 2n).bytes);
  return { node, first, second };
}

const next = (seq: number, epoch = 1n) => new BatchBuilder({ seq, epoch });
const cancelOf = (slot: number, session: bigint) => `lifecycle ${slot} ${session} ${LIFECYCLE_CANCEL}`;

describe('refused staged records: a slot that is open', () => {
  it('AX-03 its consumer gets TransportError with both sizes, it retires at once, and the other slot goes on', () => {
    const { node, first, second } = opened();
    node.receive(next(1).data(0, 1, itemFrame(1)).bytes);
    expect(node.table.refuseStaged(name(1n, 0, 1n), TEXT)).to.equal('ended');
    expect(texts(first)).to.deep.equal(['1', ENDED]);
    expect([first.closedCalls, node.table.liveSlots, node.metrics.liveSlots]).to.deep.equal([1, 1, 1]);
    node.receive(next(2).data(0, 3, itemFrame(9)).data(0x100, 1, itemFrame(2)).bytes);
    expect([texts(second), second.closedCalls]).to.deep.equal([['2'], 0]);
    expect(node.metrics.droppedClosedSlot).to.equal(1);
  });

  it('AX-04 its sender hears a cancel that names the session, and no close', () => {
    const { node } = opened();
    node.table.refuseStaged(name(1n, 0, 1n), TEXT);
    expect(cancels(node)).to.deep.equal([cancelOf(0, 1n)]);
  });

  it('AX-04 the producer of the refused record is over: what it sends next goes nowhere', () => {
    const pair = new CorePair();
    const [lost, kept] = [pair.stream(), pair.stream()];
    pair.settle();
    pair.producer.sendItem(lost.slot, 1);
    pair.producer.turn();
    // The batch with the record is the staged one: it is never delivered.
    pair.toConsumer.length = 0;
    const { sessionHi, sessionLo } = lost.receiver;
    const session = (BigInt(sessionHi) << 32n) | BigInt(sessionLo);
    expect(pair.consumer.table.refuseStaged(name(1n, lost.slot.id, session), TEXT)).to.equal('ended');
    pair.settle();
    expect(lost.owner.events).to.deep.equal(['opened true', 'cancelled', 'closed cancelled', 'retired discarded']);
    pair.producer.sendItem(lost.slot, 2);
    pair.producer.sendItem(kept.slot, 3);
    pair.settle();
    expect([texts(lost.receiver), texts(kept.receiver)]).to.deep.equal([[ENDED], ['3']]);
  });

  it('AX-05 records that are missing in front of it are not waited for, and what is held goes with the slot', () => {
    const { node, first } = opened();
    // 1 is missing, 2 was refused, 3 and the end are here.
    node.receive(next(1).data(0, 3, itemFrame(3)).data(0, 4, FINALIZED_BYTES).close(0, 5, CLOSE_TERMINAL_SENT).bytes);
    expect([node.metrics.heldRecords, first.slot!.terminalAdmitted]).to.deep.equal([2, true]);
    node.table.refuseStaged(name(1n, 0, 1n), TEXT);
    expect(texts(first)).to.deep.equal([ENDED]);
    expect([node.metrics.heldRecords, (node.peerBudget as ByteBudget).used, first.closedCalls]).to.deep.equal([
      0, 0, 1,
    ]);
    node.receive(next(2).data(0, 1, itemFrame(1)).bytes);
    expect(texts(first)).to.deep.equal([ENDED]);
  });

  it('AX-05 a full buffer still has the place for the error', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 1n, { limit: 2 });
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).data(0, 1, itemFrame(1)).data(0, 2, itemFrame(2)).bytes);
    node.table.refuseStaged(name(1n, 0, 1n), TEXT);
    expect(texts(receiver)).to.deep.equal(['1', '2', ENDED]);
  });

  it('a consumer that had its terminal gets no second one; the slot retires all the same', () => {
    const { node, first } = opened();
    node.receive(next(1).data(0, 1, FINALIZED_BYTES).close(0, 3, CLOSE_TERMINAL_SENT).bytes);
    expect(node.table.refuseStaged(name(1n, 0, 1n), TEXT)).to.equal('ended');
    expect([texts(first), first.closedCalls, node.table.liveSlots]).to.deep.equal([['Finalized'], 1, 1]);
  });

  it('AX-03 a slot that was moved aside is found by its full id, its successor at the index stays', () => {
    const { node, first } = opened();
    const successor = node.bind(ANCHOR, 3n);
    node.receive(next(1).data(0, 2, FINALIZED_BYTES).close(0, 3, CLOSE_TERMINAL_SENT).open(1, ANCHOR, 3n).bytes);
    expect(node.table.liveSlots).to.equal(3);
    node.table.refuseStaged(name(1n, 0, 1n), TEXT);
    expect(texts(first)).to.deep.equal([ENDED]);
    node.receive(next(2).data(1, 1, itemFrame(7)).bytes);
    expect([texts(successor), successor.closedCalls]).to.deep.equal([['7'], 0]);
    expect(cancels(node)).to.deep.equal([cancelOf(0, 1n)]);
  });

  it('a text of any length is cut before it is kept or delivered', () => {
    const { node, first } = opened();
    node.table.refuseStaged(name(1n, 0, 1n), 'x'.repeat(1_000_000));
    expect(first.frames[0]!.length).to.be.below(1_024);
  });
});

describe('refused staged records: stale and forged names', () => {
  it('AX-06 an older epoch, a reused index, a wrapped generation and another session find no slot', () => {
    const { node, first, second } = opened();
    const stale: [epoch: bigint, slot: number, session: bigint][] = [
      [1n, slotId(0, 1), 1n], // another generation
      [1n, slotId(7, 0), 1n], // another index
      [1n, 0x100, 1n], // the other slot's id with this session
      [1n, 0, 5n], // the same id after 256 streams: only the session differs
      [0n, 0, 1n],
      [2n, 0, 1n],
    ];
    for (const [epoch, slot, session] of stale)
      expect(node.table.refuseStaged(name(epoch, slot, session), TEXT), `${epoch}:${slot}:${session}`).to.equal(
        'ignored',
      );
    node.receive(next(0, 2n).open(0, ANCHOR, 1n).bytes);
    expect(texts(first)).to.deep.equal(['Dropped']);
    expect(node.table.refuseStaged(name(1n, 0, 1n), TEXT), 'a slot of the epoch before').to.equal('ignored');
    expect([texts(first), texts(second)]).to.deep.equal([['Dropped'], ['Dropped']]);
    expect(replies(node).filter((r) => r.type === 'lifecycle')).to.deep.equal([]);
  });

  it('AX-09 a peer that names the stream of another finds it neither open nor waiting in its own table', () => {
    const { node, first } = opened();
    const forger = new CoreNode();
    expect(forger.table.refuseStaged(name(1n, 0, 1n), TEXT)).to.equal('ignored');
    expect([texts(first), node.table.liveSlots, forger.hasBatcher]).to.deep.equal([[], 2, false]);
  });
});

describe('refused staged records: before the OpenSlot', () => {
  it('AX-07 the OpenSlot that claims the bind and matches epoch and slot ends the stream at once', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 1n);
    expect(node.table.refuseStaged(name(4n, 0x205, 1n), TEXT)).to.equal('waits');
    expect(node.metrics.waitingRefusals).to.equal(1);
    node.receive(new BatchBuilder({ epoch: 4n }).open(0x205, ANCHOR, 1n).data(0x205, 1, itemFrame(1)).bytes);
    expect(texts(receiver)).to.deep.equal([ENDED]);
    expect([receiver.closedCalls, node.table.liveSlots, node.metrics.waitingRefusals]).to.deep.equal([1, 0, 0]);
    expect(cancels(node)).to.deep.equal([cancelOf(0x205, 1n)]);
  });

  it('AX-07 an OpenSlot with another id or epoch opens, and the refusal is forgotten with the bind', () => {
    for (const [epoch, slot] of [
      [1n, 0x300],
      [2n, 0x205],
    ] as const) {
      const node = new CoreNode();
      const receiver = node.bind(ANCHOR, 1n);
      expect(node.table.refuseStaged(name(1n, 0x205, 1n), TEXT)).to.equal('waits');
      node.receive(new BatchBuilder({ epoch }).open(slot, ANCHOR, 1n).data(slot, 1, itemFrame(1)).bytes);
      expect([texts(receiver), receiver.closedCalls]).to.deep.equal([['1'], 0]);
      expect(node.metrics.waitingRefusals).to.equal(0);
    }
  });

  it('AX-07 a consumer that left before the OpenSlot hears nothing, its producer one cancel', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 1n, { earlyCancel: true });
    node.table.refuseStaged(name(1n, 0, 1n), TEXT);
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).bytes);
    expect([texts(receiver), receiver.closedCalls]).to.deep.equal([[], 1]);
    expect(cancels(node)).to.deep.equal([cancelOf(0, 1n)]);
  });

  it('AX-08 another peer that names the session neither replaces nor blocks what waits', () => {
    // Two tables of one node, as two peers have them, over the same binds.
    const [node, other] = [new CoreNode(), new CoreNode()];
    const receiver = node.bind(ANCHOR, 1n);
    other.bind(ANCHOR, 1n);
    expect(other.table.refuseStaged(name(1n, 0, 1n), 'forged before')).to.equal('waits');
    expect(node.table.refuseStaged(name(1n, 0, 1n), TEXT)).to.equal('waits');
    expect(other.table.refuseStaged(name(9n, 5, 1n), 'forged after')).to.equal('waits');
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).bytes);
    expect(texts(receiver)).to.deep.equal([ENDED]);
  });

  it('AX-08 one refusal waits per session; an older epoch does not replace a newer one', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 1n);
    for (const epoch of [1n, 3n, 2n]) node.table.refuseStaged(name(epoch, 0, 1n), TEXT);
    expect(node.metrics.waitingRefusals).to.equal(1);
    node.receive(new BatchBuilder({ epoch: 3n }).open(0, ANCHOR, 1n).bytes);
    expect(texts(receiver)).to.deep.equal([ENDED]);
  });

  it('a made-up session keeps nothing, a released bind is forgotten, and what waits is bounded', () => {
    const node = new CoreNode();
    for (let session = 1n; session <= 1_000n; session++)
      expect(node.table.refuseStaged(name(1n, 0, session), TEXT)).to.equal('ignored');
    expect(node.metrics.waitingRefusals).to.equal(0);

    const many = BigInt(MAX_WAITING_REFUSALS) + 5n;
    for (let session = 1n; session <= many; session++) node.bind(ANCHOR, session);
    const kept = Array.from({ length: Number(many) }, (_, i) =>
      node.table.refuseStaged(name(1n, i << 8, BigInt(i + 1)), TEXT),
    );
    expect(kept.filter((outcome) => outcome === 'waits')).to.have.length(MAX_WAITING_REFUSALS);
    expect(node.metrics.waitingRefusals).to.equal(MAX_WAITING_REFUSALS);
    // One bind is released: there is room for another at once, and the periodic walk forgets the rest with theirs.
    node.binds.delete(`${ANCHOR}:1`);
    expect(node.table.refuseStaged(name(1n, Number(many - 1n) << 8, many), TEXT)).to.equal('waits');
    node.binds.clear();
    node.table.sweep();
    expect(node.metrics.waitingRefusals).to.equal(0);
  });

  it('AX-06 a refusal of an epoch that is over waits for nothing', () => {
    const node = new CoreNode();
    node.bind(ANCHOR, 1n);
    node.bind(ANCHOR, 2n);
    node.receive(new BatchBuilder({ epoch: 5n }).open(0, ANCHOR, 2n).bytes);
    expect(node.table.refuseStaged(name(4n, 0x100, 1n), TEXT)).to.equal('ignored');
    expect(node.metrics.waitingRefusals).to.equal(0);
  });
});
