// When a silent sender is given up, over a virtual clock: windows, what counts as a sign of life, whom nobody suspects, and the look
// before the last step.

import { expect } from 'chai';
import { type SlotWatch, Watchdog } from '../../../lib/mux/watchdog.js';
import { LIFECYCLE_CANCEL } from '../../../lib/wire/batch.js';
import { FINALIZED_BYTES, HEARTBEAT_BYTES } from '../../../lib/wire/frame.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, frameText, itemFrame } from '../../support/core-pair.js';
import type { FakeReceiver, FakeReceiverOptions } from '../../support/mux-fakes.js';

const WINDOW = 50;
const SLOT = slotId(0, 0);

/** A node with one slot of a peer, watched as a lane watches it. */
class Bench {
  readonly node = new CoreNode();
  readonly dog = new Watchdog(this.node.metrics);
  readonly receiver: FakeReceiver;
  readonly watch: SlotWatch;
  private batchSeq = 0;
  private frameSeq = 1;

  constructor(options: FakeReceiverOptions = {}) {
    const { receiver, watch } = this.stream(0, options);
    this.receiver = receiver;
    this.watch = watch;
  }

  stream(index: number, options: FakeReceiverOptions = {}, windowMs = WINDOW) {
    const { node, dog } = this;
    const receiver = node.bind(5n, BigInt(index), options);
    node.receive(this.batch().open(slotId(index, 0), 5n, BigInt(index)).bytes);
    const watch = dog.watch(node.table, receiver.slot!, windowMs, node.clock.now);
    const closed = receiver.slotClosed.bind(receiver);
    receiver.slotClosed = () => {
      watch.stop();
      closed();
    };
    return { receiver, watch };
  }

  batch(): BatchBuilder {
    return new BatchBuilder({ seq: this.batchSeq++ });
  }

  deliver(...frames: Uint8Array[]): void {
    const batch = this.batch();
    for (const frame of frames) batch.data(SLOT, this.frameSeq++, frame);
    this.node.receive(batch.bytes);
  }

  /** The consumer takes `n` and a visit finds it. */
  take(n: number): void {
    this.receiver.take(n);
    this.node.table.sweep();
  }

  /** Lets time pass a millisecond at a time, as a lane does; returns when the slot was given up, or undefined. */
  pass(ms: number): number | undefined {
    const { node, dog } = this;
    for (let i = 0; i < ms; i++) {
      node.clock.now += 1;
      if (dog.deadline() <= node.clock.now && dog.run(node.clock.now)) dog.decide();
      if (this.ended) return node.clock.now;
    }
    return undefined;
  }

  get ended(): boolean {
    return this.receiver.closedCalls > 0;
  }

  /** What left for the peer. */
  replies(): string[] {
    this.node.turn();
    return this.node.port
      .take()
      .flatMap(({ records }) =>
        records.map(({ type, slot, session, action }) => `${type} ${slot} ${session} ${action}`),
      );
  }
}

describe('mux ingress: watchdog', () => {
  it('AH-03 three silent windows: Dropped behind everything delivered, a cancel for the sender, one firing', () => {
    const bench = new Bench();
    bench.deliver(itemFrame(1), itemFrame(2));
    // The window that the records came in was alive.
    expect(bench.pass(1_000)).to.equal(4 * WINDOW);
    expect(bench.receiver.frames.map(frameText)).to.deep.equal(['1', '2', 'Dropped']);
    expect(bench.replies()).to.deep.equal([`lifecycle ${SLOT} 0 ${LIFECYCLE_CANCEL}`]);
    expect(bench.node.metrics).to.include({ watchdogFirings: 1, liveSlots: 0 });
    expect(bench.dog.size).to.equal(0);
    expect(bench.dog.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });

  it('AH-04 any frame resets the count', () => {
    for (const frame of [HEARTBEAT_BYTES, itemFrame(1), Uint8Array.of(0xc1)]) {
      const bench = new Bench({ limit: 1_000 });
      for (let i = 0; i < 20; i++) {
        expect(bench.pass(3 * WINDOW - 5)).to.equal(undefined);
        bench.deliver(frame);
      }
      expect(bench.pass(1_000)).not.to.equal(undefined);
    }
  });

  it('AH-05 detection lies between three and four windows after the last arrival', () => {
    for (let at = 0; at < WINDOW; at++) {
      const bench = new Bench();
      bench.pass(2 * WINDOW + at);
      bench.deliver(HEARTBEAT_BYTES);
      const silent = bench.pass(1_000)! - (2 * WINDOW + at);
      expect(silent).to.be.within(3 * WINDOW, 4 * WINDOW);
    }
  });

  it('AH-06 a sender without credit is never given up; once its consumer has read, it is', () => {
    const bench = new Bench({ limit: 8 });
    bench.deliver(...Array.from({ length: 8 }, (_, i) => itemFrame(i)));
    expect(bench.pass(20 * WINDOW)).to.equal(undefined);
    expect(bench.watch.misses).to.equal(0);
    bench.take(8);
    expect(bench.pass(4 * WINDOW)).not.to.equal(undefined);
  });

  it('a window without credit resets the count', () => {
    const bench = new Bench({ limit: 2 });
    bench.deliver(itemFrame(0));
    bench.pass(3 * WINDOW + 1);
    expect(bench.watch.misses).to.equal(2);
    bench.deliver(itemFrame(1));
    bench.pass(10 * WINDOW);
    bench.take(2);
    const from = bench.node.clock.now;
    expect(bench.pass(1_000)! - from).to.be.within(2 * WINDOW, 3 * WINDOW);
  });

  it('a silent sender with credit is given up while records stand unread, and they stay in front of its end', () => {
    const bench = new Bench({ limit: 8 });
    bench.deliver(...Array.from({ length: 7 }, (_, i) => itemFrame(i)));
    expect(bench.pass(20 * WINDOW)).to.equal(4 * WINDOW);
    expect(bench.receiver.frames).to.have.length(8);
  });

  it('AH-08 a sender that the byte budget starves is not given up', () => {
    const bench = new Bench({ limit: 4, byteBudget: 1_024 });
    bench.deliver(...Array.from({ length: 4 }, (_, i) => itemFrame(i, 600)));
    // What was taken is not granted while two records and more stand in the buffer.
    bench.take(2);
    expect(bench.watch.slot).to.include({ outstanding: 2, ungranted: 2 });
    expect(bench.pass(20 * WINDOW)).to.equal(undefined);
    bench.take(2);
    expect(bench.pass(4 * WINDOW)).not.to.equal(undefined);
  });

  it('AH-09 records held behind a gap are no arrivals, and excuse nobody', () => {
    const gap = new Bench({ limit: 4 });
    const batch = gap.batch();
    for (let seq = 2; seq <= 5; seq++) batch.data(SLOT, seq, itemFrame(seq));
    gap.node.receive(batch.bytes);
    expect(gap.watch.slot).to.include({ heldRecords: 4, outstanding: 4 });
    expect(gap.pass(20 * WINDOW)).to.equal(3 * WINDOW);
    const whole = new Bench({ limit: 4 });
    whole.deliver(...Array.from({ length: 4 }, (_, i) => itemFrame(i)));
    expect(whole.pass(20 * WINDOW)).to.equal(undefined);
  });

  it('a tick that is late counts once: a thread that was stopped has missed one window', () => {
    const bench = new Bench();
    bench.node.clock.now += 1_000 * WINDOW;
    expect(bench.dog.run(bench.node.clock.now)).to.equal(false);
    expect(bench.watch.misses).to.equal(1);
    expect(bench.pass(2 * WINDOW - 1)).to.equal(undefined);
  });

  it('the last miss waits for one more look: what it brings saves the stream', () => {
    for (const saves of [true, false]) {
      const bench = new Bench();
      bench.pass(3 * WINDOW - 1);
      bench.node.clock.now += 1;
      expect(bench.dog.run(bench.node.clock.now)).to.equal(true);
      expect(bench.ended).to.equal(false);
      if (saves) bench.deliver(HEARTBEAT_BYTES);
      bench.dog.decide();
      expect(bench.ended).to.equal(!saves);
      expect(bench.watch.misses).to.equal(saves ? 0 : 3);
    }
  });

  it('a suspect that ends before the decision is no firing', () => {
    const bench = new Bench();
    bench.node.clock.now += 50;
    bench.pass(2 * WINDOW - 1);
    bench.node.clock.now += 1;
    bench.dog.run(bench.node.clock.now);
    bench.node.table.closeSlot(bench.watch.slot);
    bench.dog.decide();
    expect(bench.node.metrics.watchdogFirings).to.equal(0);
    expect(bench.receiver.frames).to.deep.equal([]);
  });

  it('a stream that had its terminal and no close is let go without a second one', () => {
    const bench = new Bench();
    bench.deliver(itemFrame(1), FINALIZED_BYTES);
    expect(bench.pass(1_000)).to.equal(4 * WINDOW);
    expect(bench.receiver.frames.map(frameText)).to.deep.equal(['1', 'Finalized']);
    expect(bench.node.metrics).to.include({ watchdogFirings: 0, liveSlots: 0 });
  });

  it('a thousand streams with one window end together, with one batch of cancels', () => {
    const bench = new Bench();
    const others = Array.from({ length: 999 }, (_, i) => bench.stream(i + 1));
    expect(bench.pass(1_000)).to.equal(3 * WINDOW);
    expect(others.every(({ receiver }) => receiver.frames.map(frameText).join() === 'Dropped')).to.equal(true);
    expect(bench.node.metrics.watchdogFirings).to.equal(1_000);
    bench.node.turn();
    expect(bench.node.port.take().map(({ records }) => records.length)).to.deep.equal([1_000]);
  });
});
