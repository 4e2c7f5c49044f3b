// Credit return: what three kinds of visitors grant, to whom, and how often they look.

import { expect } from 'chai';
import { DrainVisits } from '../../../lib/mux/drain-visits.js';
import { FINALIZED_BYTES } from '../../../lib/wire/frame.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, CorePair, itemFrame } from '../../support/core-pair.js';
import type { FakeReceiver, FakeReceiverOptions } from '../../support/mux-fakes.js';

const ANCHOR = 9n;

class Bench {
  readonly node = new CoreNode();
  readonly receivers: FakeReceiver[] = [];
  private batchSeq = 0;
  private readonly frameSeqs: number[] = [];

  constructor(count: number, options: FakeReceiverOptions = {}) {
    const batch = this.batch();
    for (let i = 0; i < count; i++) {
      this.receivers.push(this.node.bind(ANCHOR, BigInt(i), options));
      batch.open(slotId(i, 0), ANCHOR, BigInt(i));
      this.frameSeqs.push(1);
    }
    this.node.receive(batch.bytes);
  }

  batch(): BatchBuilder {
    return new BatchBuilder({ seq: this.batchSeq++ });
  }

  /** One batch with `count` items of `size` bytes for slot `i`. */
  deliver(i: number, count: number, size = 4): void {
    const batch = this.batch();
    for (let k = 0; k < count; k++) batch.data(slotId(i, 0), this.frameSeqs[i]!++, itemFrame(k, size));
    this.node.receive(batch.bytes);
  }

  /** The consumer of slot `i` takes `n`, and the lane notes it. */
  take(i: number, n: number): void {
    this.receivers[i]!.take(n);
    this.node.table.noteDrained(this.receivers[i]!.slot!);
  }

  /** Credit granted since the last call, as "index:delta". */
  grants(): string[] {
    if (!this.node.hasBatcher) return [];
    this.node.turn();
    this.node.batcher.kick();
    const records = this.node.port.take().flatMap((batch) => batch.records);
    return records.map((record) => `${record.index}:${record.delta}`);
  }

  visited(action: () => void): number {
    const before = this.node.table.visitedSlots;
    action();
    return this.node.table.visitedSlots - before;
  }
}

describe('mux ingress: credit return', () => {
  it('AC-15 four delivered, four taken: one CreditUpdate of 4; nothing taken: no reply', () => {
    const bench = new Bench(1);
    bench.deliver(0, 4);
    expect(bench.grants()).to.deep.equal([]);
    bench.node.table.sweep();
    expect(bench.grants()).to.deep.equal([]);
    bench.take(0, 4);
    bench.node.table.visitDrained();
    expect(bench.grants()).to.deep.equal(['0:4']);
    bench.node.table.visitDrained();
    bench.node.table.sweep();
    expect(bench.grants()).to.deep.equal([]);
  });

  it("AC-16 the next batch into slot A returns B's drained credit, once, and the other way round", () => {
    const bench = new Bench(2);
    bench.deliver(0, 4);
    bench.deliver(1, 4);
    bench.take(1, 2);
    bench.deliver(0, 1);
    expect(bench.grants()).to.deep.equal(['1:2']);
    bench.deliver(0, 1);
    expect(bench.grants()).to.deep.equal([]);
    bench.take(0, 3);
    bench.deliver(1, 1);
    expect(bench.grants()).to.deep.equal(['0:3']);
  });

  it('AC-17 with 1,000 slots a batch visits the one it touched, the sweep all, a doorbell the one with drains', () => {
    const bench = new Bench(1_000);
    expect(bench.visited(() => bench.deliver(500, 3))).to.equal(1);
    expect(bench.visited(() => bench.node.table.sweep())).to.equal(1_000);
    bench.take(500, 1);
    expect(bench.visited(() => bench.node.table.visitDrained())).to.equal(1);
    expect(bench.visited(() => bench.node.table.visitDrained())).to.equal(0);
    bench.take(500, 1);
    expect(
      bench.visited(() => bench.deliver(500, 1)),
      'touched and drained is one visit',
    ).to.equal(1);
    expect(bench.grants()).to.deep.equal(['500:2']);
  });

  it('AC-18 the grant is what the consumer counted, clamped by what was delivered', () => {
    const bench = new Bench(1);
    bench.deliver(0, 3);
    bench.take(0, 2);
    bench.node.table.visitDrained();
    expect(bench.grants()).to.deep.equal(['0:2']);
    bench.receivers[0]!.claimDrained(5);
    bench.node.table.sweep();
    expect(bench.grants()).to.deep.equal(['0:1']);
  });

  it('AC-19 a held record earns credit when the consumer takes it, once', () => {
    const bench = new Bench(1, { limit: 4 });
    const { table } = bench.node;
    bench.node.receive(bench.batch().data(0, 2, itemFrame(2)).bytes);
    table.sweep();
    expect(bench.grants()).to.deep.equal([]);
    bench.node.receive(bench.batch().data(0, 1, itemFrame(1)).bytes);
    bench.take(0, 2);
    table.visitDrained();
    expect(bench.grants()).to.deep.equal(['0:2']);
    table.sweep();
    expect(bench.grants()).to.deep.equal([]);
  });

  it('AC-20 no grant is lost or doubled over batch, sweep, sweep', () => {
    const bench = new Bench(2);
    bench.deliver(0, 4);
    bench.deliver(1, 4);
    bench.take(0, 2);
    bench.take(1, 2);
    bench.deliver(0, 1);
    bench.node.table.sweep();
    bench.node.table.sweep();
    expect(bench.grants().sort()).to.deep.equal(['0:2', '1:2']);
  });

  it('AC-21 the sweep throws the set of drains away, and the next drain lists its slot again', () => {
    const bench = new Bench(2);
    bench.deliver(0, 4);
    bench.take(0, 1);
    bench.node.table.sweep();
    expect(bench.grants()).to.deep.equal(['0:1']);
    expect(bench.visited(() => bench.node.table.visitDrained())).to.equal(0);
    bench.take(0, 1);
    expect(bench.visited(() => bench.node.table.visitDrained())).to.equal(1);
    expect(bench.grants()).to.deep.equal(['0:1']);
  });

  it('AC-22 a second drain of a listed slot lists nothing more; the visit collects both', () => {
    const bench = new Bench(1);
    bench.deliver(0, 4);
    bench.take(0, 1);
    bench.take(0, 1);
    expect(bench.visited(() => bench.node.table.visitDrained())).to.equal(1);
    expect(bench.grants()).to.deep.equal(['0:2']);
  });

  it('AC-24 doorbell visits are bounded by the floor while 8,000 items pass a window of 8', () => {
    const pair = new CorePair({ consumer: { initialCredit: 8, creditSweepIntervalMs: 5_000 } });
    const visits = new DrainVisits<CoreNode>(pair.consumer.config.drainVisitFloorMs);
    const stream = pair.stream();
    let sent = 0;
    let taken = 0;
    const started = pair.clock.now;
    while (taken < 8_000) {
      while (sent < 8_000 && stream.slot.inlet.length === 0 && stream.slot.withheld.length < 8) {
        pair.producer.sendItem(stream.slot, sent++);
      }
      pair.settle();
      for (let got = pair.take(stream, 1); got > 0; got = pair.take(stream, 1)) {
        taken += got;
        if (visits.wake(pair.consumer, pair.clock.now) === 'visit') pair.consumer.table.visitDrained();
      }
      pair.advance(1);
      if (visits.takeDue(pair.clock.now) !== undefined) pair.consumer.table.visitDrained();
    }
    const elapsed = pair.clock.now - started;
    expect(pair.consumer.metrics.drainVisits).to.be.within(1, elapsed / 2 + 10);
    expect(pair.consumer.metrics.readerStalls).to.equal(0);
    expect(stream.receiver.maxBuffered).to.be.at.most(9);
  });

  it('AC-27 over the byte watermark the grant is withheld, no record under granted credit is refused, then it flows', () => {
    const bench = new Bench(1, { limit: 4, byteBudget: 100 });
    bench.deliver(0, 4, 60);
    expect(bench.receivers[0]!.buffered).to.have.length(4);
    bench.take(0, 2);
    bench.node.table.visitDrained();
    expect(bench.grants()).to.deep.equal([]);
    bench.take(0, 1);
    bench.node.table.visitDrained();
    expect(bench.grants()).to.deep.equal(['0:3']);
  });

  it('taking the terminal gives nothing back', () => {
    const bench = new Bench(1);
    bench.deliver(0, 2);
    bench.node.receive(bench.batch().data(0, 3, FINALIZED_BYTES).bytes);
    bench.take(0, 3);
    bench.node.table.visitDrained();
    expect(bench.grants()).to.deep.equal(['0:2']);
  });

  it('a note for a slot that is over is nothing', () => {
    const bench = new Bench(1);
    bench.deliver(0, 2);
    bench.take(0, 1);
    const slot = bench.receivers[0]!.slot!;
    bench.node.table.closeSlot(slot);
    bench.node.table.noteDrained(slot);
    expect(bench.visited(() => bench.node.table.visitDrained())).to.equal(0);
    expect(bench.visited(() => bench.node.table.sweep())).to.equal(0);
  });
});
