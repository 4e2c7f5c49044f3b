// Control that no honest peer sends, against the batcher it is about.

import { expect } from 'chai';
import type { ControlInbox } from '../../../lib/mux/batcher-control.js';
import type { ControlSink } from '../../../lib/mux/batcher-types.js';
import { MAX_TABLE_SLOTS, REPLY_LIMIT } from '../../../lib/mux/mux-config.js';
import {
  CLOSE_PROTOCOL_ERROR,
  CLOSE_TERMINAL_SENT,
  CLOSE_UNKNOWN_SLOT,
  LIFECYCLE_CANCEL,
} from '../../../lib/wire/batch.js';
import { transportErrorFrame } from '../../../lib/wire/frame.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, frameText, itemFrame } from '../../support/core-pair.js';
import { FakeOwner } from '../../support/mux-fakes.js';

const ANCHOR = 5n;

describe('control for a slot whose OpenSlot still waits', () => {
  const endings: [string, string[], (batch: BatchBuilder, id: number) => void][] = [
    ['close', ['opened false', 'closed unknownSlot'], (batch, id) => batch.close(id, 0, CLOSE_UNKNOWN_SLOT)],
    [
      'cancel',
      ['cancelled', 'opened false', 'closed cancelled'],
      (batch, id) => batch.lifecycle(id, 2n, LIFECYCLE_CANCEL),
    ],
  ];
  for (const [what, heard, record] of endings) {
    it(`a ${what} ends it for good: it is never opened, and its sender may end it without harm`, () => {
      const node = new CoreNode();
      node.port.mode = 'pend';
      const first = node.open(new FakeOwner(), ANCHOR, 1n);
      const owner = new FakeOwner();
      const waiting = node.open(owner, ANCHOR, 2n);
      const batch = new BatchBuilder();
      // Nobody told the peer of this slot. The next id is no secret.
      record(batch, slotId(1, 0));
      node.receive(batch.bytes);
      node.turn();
      expect(owner.events).to.deep.equal([...heard, 'retired discarded']);
      node.port.mode = 'admit';
      node.admit();
      node.turn();
      node.send(waiting, Uint8Array.of(1));
      node.finalize(waiting);
      node.finalize(first);
      node.turn();
      const records = node.port.take().flatMap((sent) => sent.records);
      expect(records.filter(({ slot }) => slot === waiting.id)).to.deep.equal([]);
      expect(node.metrics.liveSlots).to.equal(0);
      expect(node.open(new FakeOwner(), ANCHOR, 3n).state).to.equal(1);
    });
  }
});

describe('a peer that reads nothing while streams come and go', () => {
  /** More streams than the limit, over the generations of every index. */
  const STREAMS = REPLY_LIMIT + 100;
  const idOf = (i: number) => slotId(i % MAX_TABLE_SLOTS, Math.floor(i / MAX_TABLE_SLOTS));

  function parked(): CoreNode {
    const node = new CoreNode();
    node.port.mode = 'pend';
    node.open(new FakeOwner(), ANCHOR, 1n);
    expect(node.batcher.parked).to.equal(true);
    return node;
  }

  it('cancels owed to it are bounded, the newest stay, and what is dropped is counted', () => {
    const node = parked();
    for (let i = 0; i < STREAMS; i++) node.batcher.control.replyLifecycle(idOf(i), 0, i, LIFECYCLE_CANCEL);
    expect(waiting(node)).to.equal(REPLY_LIMIT);
    expect(node.metrics.controlRefused).to.equal(STREAMS - REPLY_LIMIT);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    const records = node.port.take().flatMap((batch) => batch.records.filter(({ type }) => type === 'lifecycle'));
    expect(records).to.have.length(REPLY_LIMIT);
    expect(records.at(-1)!.session).to.equal(BigInt(STREAMS - 1));
  });

  it('credit and closes owed to it are bounded: one for each slot a table can hold, and one before it', () => {
    const node = parked();
    const { control } = node.batcher;
    for (let i = 0; i < REPLY_LIMIT; i++) control.replyCredit(idOf(i), 1);
    expect(node.metrics.controlRefused, 'none of what may be live is refused').to.equal(0);
    for (let i = REPLY_LIMIT; i < STREAMS; i++) control.replyClose(idOf(i), 0, 0, CLOSE_UNKNOWN_SLOT);
    expect(waiting(node)).to.equal(REPLY_LIMIT);
    expect(node.metrics.controlRefused).to.equal(STREAMS - REPLY_LIMIT);
  });
});

describe('control that comes in floods', () => {
  it('AK-01 20,000 writes to a stalled batcher are three entries; behind them 100 records go in order', () => {
    const node = new CoreNode();
    const slot = node.open(new FakeOwner(), ANCHOR, 1n, 200);
    node.port.take();
    node.port.mode = 'pend';
    node.sendItem(slot, 0);
    node.turn();
    const { control } = node.batcher;
    let peak = 0;
    for (let i = 0; i < 10_000; i++) {
      control.replyCredit(slotId(7, 3), 1);
      control.postCredit(slot.id, 1);
      peak = Math.max(peak, (control as ControlInbox).size);
    }
    for (let i = 1; i <= 100; i++) node.sendItem(slot, i);
    expect(peak).to.be.at.most(3);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    node.batcher.kick();
    const records = node.port.take().flatMap((batch) => batch.records);
    expect(records.length).to.be.below(2_500);
    const credits = records.filter(({ type }) => type === 'credit');
    expect(credits.reduce((sum, { delta }) => sum + delta!, 0)).to.equal(10_000);
    const items = records.filter(({ type }) => type === 'data').map(({ body }) => Number(frameText(body)));
    expect(items).to.deep.equal(Array.from({ length: 101 }, (_, i) => i));
    expect(slot.credit).to.equal(200 - 101 + 10_000);
  });

  it('AK-07 18,192 opens beyond the table reach a stalled batcher as 8,192 refusals, and the rest is counted', () => {
    const node = new CoreNode();
    node.port.mode = 'pend';
    node.open(new FakeOwner(), ANCHOR, 1n);
    const refused: string[] = [];
    node.tap = (sink) => ({
      ...pass(sink),
      reject: (id, reason) => {
        refused.push(`${id} ${reason}`);
        sink.reject(id, reason);
      },
    });
    const flood = 18_192;
    const perBatch = 2_274;
    for (let at = 0; at < flood; at += perBatch) {
      const batch = new BatchBuilder({ seq: at / perBatch });
      for (let i = at; i < at + perBatch; i++) batch.open(slotId(MAX_TABLE_SLOTS + i, 0), ANCHOR, BigInt(i));
      node.receive(batch.bytes);
      node.turn();
    }
    expect(new Set(refused).size).to.equal(flood);
    expect(node.metrics.controlRefused).to.equal(10_000);
    expect([node.claims, node.table.liveSlots]).to.deep.equal([0, 0]);
    expect(waiting(node)).to.equal(8_192);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    const closes = node.port.take().flatMap(({ records }) => records.filter(({ type }) => type === 'close'));
    expect(closes.map(({ index, reason }) => [index, reason])).to.deep.equal(
      Array.from({ length: 8_192 }, (_, i) => [MAX_TABLE_SLOTS + i, CLOSE_PROTOCOL_ERROR]),
    );
  });

  it('a peer whose batches are refused again and again is owed no more than it was', () => {
    const node = new CoreNode();
    for (let round = 0; round < 40; round++) {
      const batch = new BatchBuilder({ seq: round });
      for (let i = 0; i < 2_000; i++) batch.open(slotId(MAX_TABLE_SLOTS + round * 2_000 + i, 0), ANCHOR, BigInt(i));
      node.port.mode = 'pend';
      node.receive(batch.bytes);
      node.turn();
      if (node.port.hasPending) node.admit(false);
      node.clock.now += 1_000;
      node.advance(0);
      if (node.port.hasPending) node.admit(false);
    }
    // The reject lane, and what one batch carried out of it.
    expect(waiting(node)).to.be.at.most(8_192 + 2 * 4_400);
    expect(node.metrics.liveSlots).to.equal(0);
  });

  it('AS-17 a terminal that travels with its close beside the batches leaves its slot where it was until both came', () => {
    const node = new CoreNode();
    const receiver = node.bind(ANCHOR, 1n);
    const next = node.bind(ANCHOR, 2n);
    node.receive(new BatchBuilder().open(0, ANCHOR, 1n).data(0, 1, itemFrame(1)).bytes);
    const open = (seq: number) => new BatchBuilder({ seq }).open(slotId(0, 1), ANCHOR, 2n).bytes;
    node.receive(open(2));
    expect([node.metrics.droppedSlotCollision, next.slot]).to.deep.equal([1, undefined]);
    const terminal = transportErrorFrame('x'.repeat(70_000));
    node.receive(new BatchBuilder({ seq: 1 }).data(0, 2, terminal).close(0, 3, CLOSE_TERMINAL_SENT).bytes);
    expect(receiver.frames.at(-1)).to.deep.equal(terminal);
    expect(receiver.closedCalls).to.equal(1);
    node.receive(open(3));
    expect(next.slot?.id).to.equal(slotId(0, 1));
  });
});

function pass(sink: ControlSink): ControlSink {
  return {
    postCredit: (...args) => sink.postCredit(...args),
    postClose: (...args) => sink.postClose(...args),
    postLifecycle: (...args) => sink.postLifecycle(...args),
    replyCredit: (...args) => sink.replyCredit(...args),
    replyClose: (...args) => sink.replyClose(...args),
    replyLifecycle: (...args) => sink.replyLifecycle(...args),
    reject: (...args) => sink.reject(...args),
    forgetReplies: () => sink.forgetReplies(),
  };
}

function waiting(node: CoreNode): number {
  return (node.batcher.control as ControlInbox).size;
}
