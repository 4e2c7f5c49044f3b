// When a batcher writes: wakes, windows, kicks, and kicks while the peer is congested.

import { expect } from 'chai';
import type { EgressSlot } from '../../../lib/mux/egress-slot.js';
import type { MuxOptions } from '../../../lib/mux/mux-config.js';
import { CoreNode, frameText } from '../../support/core-pair.js';
import { FakeOwner, type PlainBatch } from '../../support/mux-fakes.js';

const LOTS = 100_000;

function opened(mux: MuxOptions, count = 1, credit = LOTS): { node: CoreNode; slots: EgressSlot[] } {
  const node = new CoreNode({ mux });
  const slots = Array.from({ length: count }, (_, i) => node.open(new FakeOwner(), 5n, BigInt(i), credit));
  node.turn();
  node.port.take();
  return { node, slots };
}

function values(batches: PlainBatch[]): string[][] {
  return batches.map((batch) => batch.records.map((record) => frameText(record.body)));
}

describe('mux egress: when a batch is written', () => {
  it('AU-01 auto writes at the end of the wake, once, with all that is queued, and asks for no timer', () => {
    const { node, slots } = opened({}, 3);
    for (let i = 0; i < 30; i++) node.sendItem(slots[i % 3]!, i);
    expect(node.port.sent).to.have.length(0);
    expect(node.port.scheduled.size).to.equal(1);
    node.turn();
    expect(values(node.port.take())).to.deep.equal([Array.from({ length: 30 }, (_, i) => String(i))]);
    expect(node.batcher.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });

  it('the fast path reads no clock, takes no buffer and calls nobody but for the first record', () => {
    const { node, slots } = opened({});
    node.sendItem(slots[0]!, 0);
    const { clockReads, buffersOut, scheduleCalls } = node.port;
    for (let i = 1; i < 500; i++) node.sendItem(slots[0]!, i);
    expect([node.port.clockReads, node.port.buffersOut, node.port.scheduleCalls]).to.deep.equal([
      clockReads,
      buffersOut,
      scheduleCalls,
    ]);
  });

  it('a heartbeat that finds its credit spent takes out the records it was spent on, under manual too', () => {
    const { node, slots } = opened({ flushPolicy: 'manual', replyLingerMs: 1 }, 1, 2);
    for (let i = 0; i < 3; i++) node.sendItem(slots[0]!, i);
    node.turn();
    node.advance(60_000);
    expect(node.port.take(), 'nothing moves by itself').to.have.length(0);
    expect(node.batcher.heartbeat(slots[0]!)).to.equal(false);
    node.advance(1);
    expect(values(node.port.take()), 'the window that was staged').to.deep.equal([['0', '1']]);
    expect(node.batcher.heartbeat(slots[0]!)).to.equal(false);
    expect(node.batcher.deadline(), 'nothing is staged: nothing is due').to.equal(Number.POSITIVE_INFINITY);
  });

  it('AU-02 a window writes without a kick, from the oldest record', () => {
    const { node, slots } = opened({ flushPolicy: { onAdmission: false, maxLingerMs: 50 } });
    node.sendItem(slots[0]!, 1);
    node.turn();
    node.advance(30);
    node.sendItem(slots[0]!, 2);
    node.turn();
    node.advance(19);
    expect(node.port.sent).to.have.length(0);
    node.advance(1);
    expect(values(node.port.take())).to.deep.equal([['1', '2']]);
    expect(node.metrics.wakesLinger).to.equal(1);
  });

  it('AU-03 manual holds ordinary records for ever; one kick carries all of them', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' });
    for (let i = 0; i < 4; i++) {
      node.sendItem(slots[0]!, i);
      node.turn();
    }
    for (let i = 0; i < 1_000; i++) node.advance(1);
    expect(node.port.sent).to.have.length(0);
    expect(node.metrics.stagedRecords).to.equal(4);
    node.batcher.kick();
    expect(values(node.port.take())).to.deep.equal([['0', '1', '2', '3']]);
    expect(node.metrics.stagedRecords).to.equal(0);
  });

  it('AU-04 one kick over 16 slots writes exactly one batch with all 16 records', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' }, 16);
    slots.forEach((slot, i) => {
      node.sendItem(slot, i);
    });
    node.batcher.kick();
    node.turn();
    const batches = node.port.take();
    expect(batches).to.have.length(1);
    expect(batches[0]!.records.map((record) => record.index)).to.deep.equal(Array.from({ length: 16 }, (_, i) => i));
  });

  it('AU-05 a kick takes what a grant has just made sendable along', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' }, 1, 1);
    node.sendItem(slots[0]!, 1);
    node.sendItem(slots[0]!, 2);
    node.batcher.control.postCredit(slots[0]!.id, 1);
    node.batcher.kick();
    expect(values(node.port.take())).to.deep.equal([['1', '2']]);
  });

  it('AU-06 a kick with nothing staged writes nothing and takes no batch_seq', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' });
    for (let i = 0; i < 10; i++) node.batcher.kick();
    node.turn();
    expect(node.port.sent).to.have.length(0);
    node.sendItem(slots[0]!, 1);
    node.batcher.kick();
    expect(node.port.take().map((batch) => batch.seq)).to.deep.equal([1]);
  });

  it('AU-07 under manual a close and a terminal move unasked, and take what is staged along', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' }, 2);
    node.sendItem(slots[0]!, 1);
    node.finalize(slots[1]!);
    node.turn();
    expect(values(node.port.take())[0]!.slice(0, 2)).to.deep.equal(['1', 'Finalized']);
    node.sendItem(slots[0]!, 2);
    node.batcher.control.replyClose(0x500, 0, 0, 2);
    node.turn();
    expect(node.port.take()[0]!.records.map((record) => record.type)).to.deep.equal(['data', 'close']);
  });

  it('AU-07 under manual a credit reply moves within its linger, with the data beside it', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' });
    node.batcher.control.replyCredit(0x500, 4);
    node.turn();
    node.sendItem(slots[0]!, 1);
    node.turn();
    expect(node.port.sent).to.have.length(0);
    node.advance(1);
    expect(node.port.take()[0]!.records.map((record) => record.type)).to.deep.equal(['credit', 'data']);
  });

  it('AU-08 a kick that meets a clamp still writes the tail, once', () => {
    const { node, slots } = opened({ flushPolicy: 'manual', maxBatchBytes: 1_024 }, 1, 0);
    for (let i = 0; i < 100; i++) node.sendItem(slots[0]!, i);
    node.batcher.control.postCredit(slots[0]!.id, 100);
    node.batcher.kick();
    const batches = node.port.take();
    expect(batches.length).to.be.above(1);
    expect(values(batches).flat()).to.deep.equal(Array.from({ length: 100 }, (_, i) => String(i)));
    node.sendItem(slots[0]!, 1);
    node.turn();
    expect(node.port.sent).to.have.length(0);
  });

  it('AU-09 a byte clamp splits a burst unasked under manual; the tail stays staged', () => {
    const { node, slots } = opened({ flushPolicy: 'manual', maxBatchBytes: 1_024 });
    for (let i = 0; i < 60; i++) node.sendItem(slots[0]!, i);
    node.turn();
    const batches = node.port.take();
    expect(batches).to.have.length(1);
    expect(batches[0]!.bytes.length).to.be.within(1_001, 1_024);
    expect(node.metrics.stagedRecords).to.equal(60 - batches[0]!.records.length);
  });

  it('AU-10 a kick beats a window of 30 s', () => {
    const { node, slots } = opened({ flushPolicy: { onAdmission: false, maxLingerMs: 30_000 } });
    for (let i = 0; i < 5; i++) node.sendItem(slots[0]!, i);
    node.turn();
    expect(node.port.sent).to.have.length(0);
    node.batcher.kick();
    expect(values(node.port.take())).to.deep.equal([['0', '1', '2', '3', '4']]);
    expect(node.batcher.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });

  it('AB-02 a kick is valid under auto and writes before the end of the wake', () => {
    const { node, slots } = opened({});
    node.sendItem(slots[0]!, 1);
    node.batcher.kick();
    expect(values(node.port.take())).to.deep.equal([['1']]);
    node.turn();
    expect(node.port.sent).to.have.length(0);
  });

  it('AU-11 kicks while parked are remembered once, and neither double nor reorder 120 records', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' }, 4, 29);
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 0);
    node.batcher.kick();
    expect(node.batcher.parked).to.equal(true);
    for (let i = 1; i < 116; i++) {
      node.sendItem(slots[i % 4]!, i);
      node.batcher.kick();
    }
    expect(node.port.sent).to.have.length(1);
    expect(node.metrics.stagedRecords).to.equal(0);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    const batches = node.port.take();
    expect(batches.map((batch) => batch.records.length)).to.deep.equal([1, 115]);
    for (let k = 0; k < 4; k++) {
      const own = batches.flatMap((batch) => batch.records).filter((record) => record.index === k);
      expect(own.map((record) => Number(frameText(record.body)))).to.deep.equal(
        Array.from({ length: 29 }, (_, i) => i * 4 + k),
      );
    }
    node.sendItem(slots[0]!, 1);
    node.turn();
    expect(node.port.sent).to.have.length(0);
  });

  it('AB-01 a kick writes one batch on every batcher that has records, and nothing before', () => {
    const nodes = [opened({ flushPolicy: 'manual' }, 2), opened({ flushPolicy: 'manual' }, 3)];
    for (const { node, slots } of nodes) for (const slot of slots) node.sendItem(slot, 1);
    for (const { node } of nodes) node.turn();
    expect(nodes.map(({ node }) => node.port.sent.length)).to.deep.equal([0, 0]);
    for (const { node } of nodes) node.batcher.kick();
    expect(nodes.map(({ node }) => node.port.take().map((batch) => batch.records.length))).to.deep.equal([[2], [3]]);
  });

  it('AB-04 a thousand kicks on a parked batcher are one', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' });
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 1);
    node.batcher.kick();
    node.sendItem(slots[0]!, 2);
    for (let i = 0; i < 1_000; i++) node.batcher.kick();
    node.admit();
    node.turn();
    expect(node.port.sent).to.have.length(2);
    node.sendItem(slots[0]!, 3);
    node.admit();
    node.turn();
    expect(node.port.sent, 'the third record waits for a kick of its own').to.have.length(2);
    expect(node.batcher.staged).to.equal(1);
  });

  it('AB-04 a kick between the answer and the next run takes everything that stands', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' });
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 1);
    node.batcher.kick();
    node.sendItem(slots[0]!, 2);
    node.port.mode = 'admit';
    node.admit();
    node.batcher.kick();
    expect(values(node.port.take())).to.deep.equal([['1'], ['2']]);
  });

  it('a heartbeat of the lane leaves within the reply linger under every policy, with what is staged', () => {
    for (const flushPolicy of ['manual', { onAdmission: false, maxLingerMs: 500 }, { onAdmission: false }] as const) {
      const { node, slots } = opened({ flushPolicy }, 2);
      node.sendItem(slots[1]!, 7);
      node.turn();
      expect(node.batcher.heartbeat(slots[0]!)).to.equal(true);
      node.turn();
      expect(node.port.sent).to.have.length(0);
      expect(node.batcher.deadline()).to.equal(1);
      node.advance(1);
      expect(values(node.port.take())).to.deep.equal([['7', 'Heartbeat']]);
      expect(slots[0]!.credit).to.equal(LOTS - 1);
      expect(slots[0]!.pulledTotal).to.equal(0);
    }
  });

  it('AW-11 a heartbeat that could not go now is dropped: no credit, records in front, parked, ended', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' }, 2, 1);
    node.sendItem(slots[0]!, 1);
    expect(node.batcher.heartbeat(slots[0]!), 'no credit').to.equal(false);
    node.sendItem(slots[0]!, 2);
    expect(node.batcher.heartbeat(slots[0]!), 'withheld').to.equal(false);
    node.port.mode = 'pend';
    node.batcher.kick();
    expect(node.batcher.heartbeat(slots[1]!), 'parked').to.equal(false);
    node.admit();
    node.finalize(slots[1]!);
    expect(node.batcher.heartbeat(slots[1]!), 'ended').to.equal(false);
    expect(node.metrics.withheldRecords).to.equal(1);
  });

  it('AB-05 a kick does not wait: parked, it returns and nothing moves', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' }, 1, 2);
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 1);
    node.batcher.kick();
    node.batcher.kick();
    expect(node.port.sent).to.have.length(1);
    expect(node.batcher.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });
});
