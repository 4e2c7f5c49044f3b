// When senders beat, over a virtual clock: the cadence of each, what keeps a beat from going, and that none is left behind.

import { expect } from 'chai';
import { SLOT_CLOSED } from '../../../lib/mux/egress-slot.js';
import { Heartbeats, heartbeatPace, MAX_HEARTBEAT_MS, MIN_HEARTBEAT_MS } from '../../../lib/mux/heartbeats.js';
import type { MuxOptions } from '../../../lib/mux/mux-config.js';
import { HEARTBEAT_BYTES } from '../../../lib/wire/frame.js';
import { CoreNode } from '../../support/core-pair.js';
import { FakeOwner } from '../../support/mux-fakes.js';

/** A node whose slots beat, driven as a lane drives them. */
class Beating {
  readonly node: CoreNode;
  readonly heartbeats = new Heartbeats();
  private session = 0n;

  constructor(mux: MuxOptions = {}) {
    this.node = new CoreNode({ mux });
  }

  open(intervalMs: number, credit = 32) {
    const owner = new FakeOwner();
    const slot = this.node.open(owner, 1n, this.session++, credit);
    this.node.turn();
    this.node.port.take();
    const beat = this.heartbeats.start(
      { heartbeat: () => this.node.batcher.heartbeat(slot) },
      intervalMs,
      this.node.clock.now,
    );
    const closed = owner.closed.bind(owner);
    owner.closed = (of, reason) => {
      beat.stop();
      closed(of, reason);
    };
    return slot;
  }

  /** Lets time pass a millisecond at a time. Returns the time of each heartbeat that left, by slot index. */
  pass(ms: number): Map<number, number[]> {
    const { node } = this;
    const times = new Map<number, number[]>();
    for (let i = 0; i < ms; i++) {
      node.clock.now += 1;
      if (this.heartbeats.deadline() <= node.clock.now) this.heartbeats.run(node.clock.now);
      if (node.batcher.deadline() <= node.clock.now) node.batcher.run();
      node.turn();
      for (const { records } of node.port.take()) {
        for (const { type, index, body } of records) {
          if (type !== 'data' || !Buffer.from(body).equals(HEARTBEAT_BYTES)) continue;
          times.set(index, [...(times.get(index) ?? []), node.clock.now]);
        }
      }
    }
    return times;
  }
}

describe('mux egress: heartbeats', () => {
  it('each slot beats at its own interval, the first time one interval after the open', () => {
    const beating = new Beating();
    beating.open(100);
    beating.open(250);
    beating.pass(50);
    beating.open(100);
    const times = beating.pass(500);
    expect(times.get(0)).to.deep.equal([100, 200, 300, 400, 500]);
    expect(times.get(1)).to.deep.equal([250, 500]);
    expect(times.get(2)).to.deep.equal([150, 250, 350, 450, 550]);
  });

  it('a sender that sends data beats all the same', () => {
    const beating = new Beating();
    const slot = beating.open(100);
    for (let i = 0; i < 9; i++) {
      beating.node.sendItem(slot, i);
      expect(beating.pass(25).size).to.equal(i === 3 || i === 7 ? 1 : 0);
    }
  });

  it('under manual a beat leaves within the reply linger', () => {
    const beating = new Beating({ flushPolicy: 'manual' });
    beating.open(100);
    expect(beating.pass(350).get(0)).to.deep.equal(
      [100, 200, 300].map((time) => time + beating.node.config.replyLingerMs),
    );
  });

  it('slots that are due together leave in one batch', () => {
    const beating = new Beating();
    for (let i = 0; i < 1_000; i++) beating.open(200, 4);
    beating.node.clock.now += 200;
    beating.heartbeats.run(beating.node.clock.now);
    beating.node.turn();
    expect(beating.node.port.take().map(({ records }) => records.length)).to.deep.equal([1_000]);
  });

  it('a run that is late beats once', () => {
    const beating = new Beating();
    beating.open(10);
    beating.node.clock.now += 10_000;
    beating.heartbeats.run(beating.node.clock.now);
    beating.node.turn();
    expect(beating.node.port.take().flatMap(({ records }) => records)).to.have.length(1);
  });

  it('a window of four takes four beats, and credit brings more', () => {
    const beating = new Beating();
    const slot = beating.open(10, 4);
    expect(beating.pass(200).get(0)).to.have.length(4);
    beating.node.batcher.control.postCredit(slot.id, 2);
    expect(beating.pass(200).get(0)).to.have.length(2);
  });

  it('terminal, cancel, close and the end of the epoch leave nothing that beats', () => {
    const beating = new Beating();
    const { node } = beating;
    const slots = Array.from({ length: 6 }, () => beating.open(10));
    node.finalize(slots[0]!);
    node.batcher.control.postLifecycle(slots[1]!.id, slots[1]!.sessionHi, slots[1]!.sessionLo, 1);
    node.batcher.control.postClose(slots[2]!.id, 2);
    node.batcher.abandon(slots[3]!);
    node.turn();
    expect(slots.filter(({ state }) => state === SLOT_CLOSED)).to.have.length(4);
    expect(beating.heartbeats.size).to.equal(2);
    node.batcher.epochDeath('test');
    expect(beating.heartbeats.size).to.equal(0);
    expect(beating.heartbeats.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });

  it('whatever a peer advertises becomes a pace that timers take', () => {
    expect([0, 1, MIN_HEARTBEAT_MS, 5_000, 2 ** 31, Number.MAX_SAFE_INTEGER].map(heartbeatPace)).to.deep.equal([
      ...[MIN_HEARTBEAT_MS, MIN_HEARTBEAT_MS, MIN_HEARTBEAT_MS, 5_000],
      ...[MAX_HEARTBEAT_MS, MAX_HEARTBEAT_MS],
    ]);
  });
});
