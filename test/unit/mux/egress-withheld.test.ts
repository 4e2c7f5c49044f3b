// Starved and paused slots: the withheld queue, the inlet behind it, and what a grant releases.

import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import type { EgressSlot } from '../../../lib/mux/egress-slot.js';
import { transportErrorFrame } from '../../../lib/wire/frame.js';
import { CoreNode, frameText } from '../../support/core-pair.js';
import { FakeOwner, type PlainRecord } from '../../support/mux-fakes.js';

const ANCHOR = 5n;

interface Starved {
  readonly node: CoreNode;
  readonly owner: FakeOwner;
  readonly slot: EgressSlot;
}

/** A slot that is open and holds no credit. */
function starved(byteBudget = 1_048_576, credit = 0): Starved {
  const node = new CoreNode();
  const owner = new FakeOwner();
  const slot = node.open(owner, ANCHOR, 1n, credit, byteBudget);
  node.port.take();
  return { node, owner, slot };
}

function sent(node: CoreNode): PlainRecord[] {
  node.turn();
  return node.port.take().flatMap((batch) => batch.records);
}

function texts(records: PlainRecord[]): string[] {
  return records.map((record) => (record.type === 'data' ? frameText(record.body) : record.type));
}

function numbers(from: number, to: number): string[] {
  return Array.from({ length: to - from + 1 }, (_, i) => String(from + i));
}

describe('mux egress: withheld records', () => {
  it('AW-01 a slot with no credit still has its inlet pulled; credit releases all in order, terminal and close last', () => {
    const { node, owner, slot } = starved(1_048_576, 3);
    for (let i = 1; i <= 3; i++) node.sendItem(slot, i);
    sent(node);
    for (let i = 1; i <= 32; i++) {
      node.sendItem(slot, i);
      // The inlet of C+1 = 4 never fills: every frame is taken at once.
      expect(slot.inlet.length).to.equal(0);
    }
    node.finalize(slot);
    expect(slot.pulledTotal).to.equal(35);
    expect(sent(node)).to.have.length(0);
    expect(node.metrics.withheldRecords).to.equal(32);
    node.batcher.control.postCredit(slot.id, 64);
    const records = sent(node);
    expect(texts(records)).to.deep.equal([...numbers(1, 32), 'Finalized', 'close']);
    expect(records.map((record) => record.seq)).to.deep.equal(Array.from({ length: 34 }, (_, i) => 4 + i));
    expect(node.metrics.withheldRecords).to.equal(0);
    expect(owner.events).to.deep.equal(['opened true', 'closed terminal', 'retired sent']);
  });

  it('AW-02 pulling stops at the byte cap; the rest stands, other slots flow, and credit resumes in order', () => {
    const { node, slot } = starved(256, 63);
    for (let i = 0; i < 63; i++) node.sendItem(slot, i);
    sent(node);
    const other = node.open(new FakeOwner(), ANCHOR, 2n);
    node.port.take();
    // 26-byte frames: ten of them reach 256 bytes.
    for (let i = 1; i <= 64; i++) node.sendItem(slot, i, 20);
    expect(slot.withheld.length).to.equal(10);
    expect(slot.inlet.length).to.equal(54);
    expect(slot.pulledTotal).to.equal(63 + 10);
    node.sendItem(other, 900);
    expect(texts(sent(node))).to.deep.equal(['900']);
    node.batcher.control.postCredit(slot.id, 20);
    expect(texts(sent(node))).to.deep.equal(numbers(1, 20));
    expect(slot.withheld.length).to.equal(10);
    node.batcher.control.postCredit(slot.id, 100);
    expect(texts(sent(node))).to.deep.equal(numbers(21, 64));
    expect(slot.state).to.equal(1);
    expect([slot.withheld.length, slot.inlet.length, slot.pulledTotal]).to.deep.equal([0, 0, 127]);
  });

  it('AW-02 exactly the byte cap pauses; one byte less does not', () => {
    for (const [budget, withheld] of [
      [52, 2],
      [53, 3],
    ] as const) {
      const { node, slot } = starved(budget, 5);
      for (let i = 0; i < 5; i++) node.sendItem(slot, i);
      for (let i = 0; i < 5; i++) node.sendItem(slot, i, 20);
      expect(slot.withheld.length).to.equal(withheld);
    }
  });

  it('AW-02 the owner hears once per drain that records left the inlet, if it asked', () => {
    const { node, owner, slot } = starved(64, 9);
    for (let i = 0; i < 9; i++) node.sendItem(slot, i);
    for (let i = 0; i < 8; i++) node.sendItem(slot, i, 30);
    sent(node);
    expect([slot.withheld.length, slot.inlet.length]).to.deep.equal([2, 6]);
    node.batcher.control.postCredit(slot.id, 1);
    sent(node);
    expect(owner.count(`pulled ${slot.pulledTotal}`)).to.equal(0);
    slot.notifyPull = true;
    node.batcher.control.postCredit(slot.id, 3);
    sent(node);
    expect(owner.events.filter((event) => event.startsWith('pulled'))).to.deep.equal([`pulled ${slot.pulledTotal}`]);
  });

  it('AW-04 a terminal with unsent predecessors waits behind them', () => {
    const { node, slot } = starved();
    for (let i = 1; i <= 4; i++) node.sendItem(slot, i);
    node.finalize(slot);
    expect(sent(node)).to.have.length(0);
    expect(slot.withheld.length).to.equal(4);
    expect(node.batcher.liveSlots).to.equal(1);
    node.batcher.control.postCredit(slot.id, 4);
    expect(texts(sent(node))).to.deep.equal(['1', '2', '3', '4', 'Finalized', 'close']);
  });

  it('AW-04 a terminal with nothing in front of it goes on the reserve', () => {
    const { node, slot } = starved();
    node.finalize(slot);
    const records = sent(node);
    expect(texts(records)).to.deep.equal(['Finalized', 'close']);
    expect(records[1]!.reason).to.equal(0);
    expect(node.batcher.liveSlots).to.equal(0);
  });

  it('AW-05 a grant of 3 against 8 withheld sends exactly 3 and keeps 5 in order', () => {
    const { node, slot } = starved();
    for (let i = 1; i <= 8; i++) node.sendItem(slot, i);
    node.batcher.control.postCredit(slot.id, 3);
    expect(texts(sent(node))).to.deep.equal(['1', '2', '3']);
    expect(slot.withheld.length).to.equal(5);
    node.batcher.control.postCredit(slot.id, 5);
    expect(texts(sent(node))).to.deep.equal(numbers(4, 8));
  });

  it('AW-06 a producer that leaves owes its withheld records first, then the close', () => {
    const { node, owner, slot } = starved();
    for (let i = 1; i <= 3; i++) node.sendItem(slot, i);
    node.batcher.inletClosed(slot);
    expect(sent(node)).to.have.length(0);
    node.batcher.control.postCredit(slot.id, 3);
    const records = sent(node);
    expect(texts(records)).to.deep.equal(['1', '2', '3', 'close']);
    expect(records[3]).to.include({ reason: 1, seq: 4 });
    expect(owner.events).to.deep.equal(['opened true', 'closed abandoned', 'retired discarded']);
  });

  it('AW-07 a withheld terminal closes the slot once; the departed inlet adds no second close', () => {
    const { node, owner, slot } = starved();
    node.sendItem(slot, 1);
    node.finalize(slot);
    node.batcher.inletClosed(slot);
    node.batcher.control.postCredit(slot.id, 9);
    expect(texts(sent(node))).to.deep.equal(['1', 'Finalized', 'close']);
    node.batcher.inletClosed(slot);
    expect(sent(node)).to.have.length(0);
    expect(owner.count('closed terminal')).to.equal(1);
  });

  it('AW-07 frames behind a terminal that still waits are discarded, and the terminal is kept as it was given', () => {
    const { node, slot } = starved();
    node.sendItem(slot, 1);
    const terminal = transportErrorFrame('out of memory');
    node.send(slot, terminal);
    terminal.fill(0);
    const pulled = slot.pulledTotal;
    for (let i = 2; i <= 5; i++) node.sendItem(slot, i);
    expect(slot.pulledTotal).to.equal(pulled + 4);
    node.batcher.control.postCredit(slot.id, 9);
    const records = sent(node);
    expect(records.map((record) => record.type)).to.deep.equal(['data', 'data', 'close']);
    expect(frameText(records[1]!.body)).to.contain('out of memory');
  });

  it('AW-08 a starved slot puts nothing on the wire while another sends its 4', () => {
    const { node, slot } = starved();
    const other = node.open(new FakeOwner(), ANCHOR, 2n);
    node.port.take();
    for (let i = 1; i <= 4; i++) {
      node.sendItem(slot, i);
      node.sendItem(other, 10 + i);
    }
    expect(texts(sent(node))).to.deep.equal(['11', '12', '13', '14']);
    expect(node.metrics.creditExhausted).to.equal(1);
  });

  it('AW-08 credit exhaustion counts once per episode', () => {
    const { node, slot } = starved();
    for (let i = 1; i <= 4; i++) node.sendItem(slot, i);
    node.batcher.control.postCredit(slot.id, 2);
    sent(node);
    node.sendItem(slot, 5);
    expect(node.metrics.creditExhausted).to.equal(1);
    node.batcher.control.postCredit(slot.id, 3);
    sent(node);
    node.sendItem(slot, 6);
    expect(node.metrics.creditExhausted).to.equal(2);
  });

  it('AW-02 more than C+1 standing records are a broken client: the slot ends and the error says so', () => {
    const { node, owner, slot } = starved(16, 2);
    node.sendItem(slot, 0);
    node.sendItem(slot, 0);
    node.sendItem(slot, 1, 20);
    for (let i = 0; i < 3; i++) node.sendItem(slot, i, 20);
    expect(slot.inlet.length).to.equal(3);
    node.turn();
    try {
      node.sendItem(slot, 9, 20);
      expect.fail('accepted');
    } catch (error) {
      expect(VeloError.is(error, 'ERR_INTERNAL')).to.equal(true);
    }
    const records = sent(node);
    expect(records.at(-1)).to.include({ type: 'close', reason: 1 });
    expect(owner.events).to.deep.equal(['opened true', 'closed abandoned', 'retired discarded']);
    expect(node.metrics.withheldRecords).to.equal(0);
  });

  it('abandon drops what is withheld and closes at once', () => {
    const { node, owner, slot } = starved();
    for (let i = 1; i <= 5; i++) node.sendItem(slot, i);
    node.batcher.abandon(slot);
    node.batcher.abandon(slot);
    expect(texts(sent(node))).to.deep.equal(['close']);
    expect(owner.events).to.deep.equal(['opened true', 'closed abandoned', 'retired discarded']);
    expect(node.metrics.withheldRecords).to.equal(0);
    node.sendItem(slot, 6);
    expect(sent(node)).to.have.length(0);
  });
});
