// Records that no packed batch holds: alone in their batch, staged above the eager budget, and a fence for their slot until the answer.

import { expect } from 'chai';
import { ByteBudget } from '../../../lib/mux/byte-budget.js';
import type { EgressSlot } from '../../../lib/mux/egress-slot.js';
import { DEFAULT_PEER_BYTE_BUDGET, type MuxOptions } from '../../../lib/mux/mux-config.js';
import { behindShare, MAX_BEHIND_BYTES, MAX_PENDING_SINGLETONS } from '../../../lib/mux/singletons.js';
import { CLOSE_UNKNOWN_SLOT } from '../../../lib/wire/batch.js';
import { FINALIZED_BYTES, transportErrorFrame } from '../../../lib/wire/frame.js';
import { MAX_LANES } from '../../../lib/wire/names.js';
import { CoreNode, CorePair, frameText } from '../../support/core-pair.js';
import { FakeOwner, type PlainBatch } from '../../support/mux-fakes.js';

/** Above the eager budget: staged. */
const LARGE = 300 * 1024;
/** Above the packed cap alone: inline. */
const MEDIUM = 100_000;

interface World {
  readonly node: CoreNode;
  readonly owners: FakeOwner[];
  readonly slots: EgressSlot[];
}

function opened(mux: MuxOptions = {}, count = 1, credit = 64, byteBudget = 1_048_576): World {
  const node = new CoreNode({ mux });
  const owners = Array.from({ length: count }, () => new FakeOwner());
  const slots = owners.map((owner, i) => node.open(owner, 5n, BigInt(i + 1), credit, byteBudget));
  node.turn();
  node.port.take();
  return { node, owners, slots };
}

const shape = (batch: PlainBatch) => batch.records.map(({ type, index, seq }) => `${type} ${index}:${seq}`).join(', ');
const shapes = (node: CoreNode) => node.port.take().map(shape);

describe('mux egress: singletons', () => {
  it('AR-06 an oversized record goes alone; others go on in eager batches, and the next record of its slot has frame_seq 2', () => {
    const { node, slots } = opened({}, 3);
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 1, LARGE);
    node.port.mode = 'admit';
    node.sendItem(slots[0]!, 2);
    for (const slot of [slots[1]!, slots[2]!]) for (let i = 0; i < 3; i++) node.sendItem(slot, i);
    node.turn();
    const batches = node.port.take();
    expect(batches.map(shape)).to.deep.equal([
      'data 0:1',
      'data 1:1, data 1:2, data 1:3, data 2:1, data 2:2, data 2:3',
    ]);
    expect(batches.map(({ seq }) => seq)).to.deep.equal([3, 4]);
    expect(batches[1]!.bytes.length).to.be.below(node.config.maxBatchBytes);
    expect(node.metrics.withheldRecords).to.equal(1);
    node.admit();
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 0:2']);
    expect([node.metrics.singletons, node.metrics.withheldRecords, node.port.buffersOut]).to.deep.equal([1, 0, 0]);
  });

  it('AR-06 one that is not above the eager budget goes inline, and fences its slot only while it is pending', () => {
    const { node, slots } = opened({}, 2);
    node.sendItem(slots[0]!, 1, MEDIUM);
    expect([slots[0]!.fence, node.port.singletons[0]!.staged]).to.deep.equal([undefined, false]);
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 2, MEDIUM);
    node.sendItem(slots[0]!, 3);
    expect(slots[0]!.fence).to.equal(node.port.singletons[1]);
    node.port.mode = 'admit';
    node.sendItem(slots[1]!, 4);
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 0:1', 'data 0:2', 'data 1:1']);
    node.admit();
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 0:3']);
    expect(node.metrics.singletons).to.equal(2);
  });

  it('AR-07 a staged record that was admitted at once fences its slot all the same, until the next drain', () => {
    const { node, slots } = opened();
    node.sendItem(slots[0]!, 1, LARGE);
    expect(slots[0]!.fence).to.equal(node.port.singletons[0]);
    expect([node.port.singletons[0]!.staged, node.port.singletons[0]!.epoch]).to.deep.equal([true, 1]);
    node.sendItem(slots[0]!, 2);
    expect([slots[0]!.withheld.length, slots[0]!.starving]).to.deep.equal([1, false]);
    expect(node.port.sent).to.have.length(1);
    node.turn();
    expect(slots[0]!.fence).to.equal(undefined);
    expect(shapes(node)).to.deep.equal(['data 0:1', 'data 0:2']);
  });

  it('AR-10 only the singleton that raised a fence lifts it', () => {
    const { node, slots } = opened({}, 2);
    node.sendItem(slots[0]!, 1, MEDIUM);
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 2, MEDIUM);
    node.sendItem(slots[1]!, 3, MEDIUM);
    node.sendItem(slots[0]!, 4);
    const [free, fencing, other] = node.port.singletons;
    for (const singleton of [free!, other!]) {
      singleton.admission(true);
      node.turn();
      expect([slots[0]!.fence, slots[0]!.withheld.length]).to.deep.equal([fencing, 1]);
    }
    expect(slots[1]!.fence).to.equal(undefined);
    node.port.mode = 'admit';
    fencing!.admission(true);
    node.turn();
    expect(slots[0]!.fence).to.equal(undefined);
    expect(shapes(node).at(-1)).to.equal('data 0:3');
  });

  it('AR-11 a close owed behind a singleton waits for its answer, travels alone, and takes frame_seq 2', () => {
    const { node, owners, slots } = opened();
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 1, LARGE);
    node.batcher.inletClosed(slots[0]!);
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 0:1']);
    expect(owners[0]!.events).to.deep.equal(['opened true']);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    expect(shapes(node)).to.deep.equal(['close 0:2']);
    expect(owners[0]!.events.slice(1)).to.deep.equal(['closed abandoned', 'retired discarded']);
  });

  it('AR-13 a slot fenced by a singleton pauses at its byte cap and resumes in order', () => {
    const { node, slots } = opened({}, 1, 66, 256);
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 0, MEDIUM);
    for (let i = 1; i <= 64; i++) node.sendItem(slots[0]!, i, 26);
    const slot = slots[0]!;
    expect([slot.paused, slot.withheld.length, slot.inlet.length]).to.deep.equal([true, 8, 56]);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    const values = node.port.take().flatMap(({ records }) => records.map(({ body }) => frameText(body)));
    expect(values).to.deep.equal(Array.from({ length: 65 }, (_, i) => String(i)));
    expect([slot.paused, slot.direct]).to.deep.equal([false, true]);
  });

  it('AR-15 an answer that comes after its slot closed ends nothing and counts as stale', () => {
    const { node, owners, slots } = opened({}, 2);
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 1, LARGE);
    node.port.mode = 'admit';
    node.batcher.control.postClose(slots[0]!.id, CLOSE_UNKNOWN_SLOT);
    node.turn();
    node.admit(false);
    node.turn();
    expect(owners[0]!.events.slice(1)).to.deep.equal(['closed unknownSlot', 'retired discarded']);
    expect([node.metrics.droppedStaleSingleton, node.metrics.epochDeaths, node.batcher.epoch]).to.deep.equal([1, 0, 1]);
    node.port.take();
    node.sendItem(slots[1]!, 1);
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 1:1']);
    expect(node.port.stagingRoom).to.equal(Number.POSITIVE_INFINITY);
  });

  it('AR-15 the same when the close and the failure are applied in one drain, and when the index has its next occupant', () => {
    const { node, slots } = opened();
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 1, MEDIUM);
    node.batcher.control.postClose(slots[0]!.id, CLOSE_UNKNOWN_SLOT);
    node.admit(false);
    node.turn();
    expect([node.metrics.droppedStaleSingleton, node.metrics.epochDeaths]).to.deep.equal([1, 0]);
    node.port.mode = 'admit';
    const second = node.open(new FakeOwner(), 5n, 9n);
    node.port.mode = 'pend';
    node.sendItem(second, 1, MEDIUM);
    node.batcher.control.postClose(second.id, CLOSE_UNKNOWN_SLOT);
    node.turn();
    node.port.mode = 'admit';
    const third = node.open(new FakeOwner(), 5n, 10n);
    expect(third.index).to.equal(second.index);
    node.admit(false);
    node.turn();
    expect([node.metrics.droppedStaleSingleton, node.metrics.epochDeaths, node.batcher.liveSlots]).to.deep.equal([
      2, 0, 1,
    ]);
  });

  it('a singleton of a live slot that is not admitted ends the epoch, once', () => {
    const { node, owners, slots } = opened({ flushPolicy: 'manual' }, 3);
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 1, MEDIUM);
    node.sendItem(slots[1]!, 1, LARGE);
    node.sendItem(slots[2]!, 1);
    node.batcher.control.replyCredit(0x500, 4);
    node.admitAll(false);
    node.port.mode = 'admit';
    node.turn();
    // The reply that was thrown away with the open batch goes in the new epoch.
    node.advance(1);
    for (const owner of owners) expect(owner.events.slice(1)).to.deep.equal(['closed epochDeath', 'retired discarded']);
    expect([node.metrics.epochDeaths, node.metrics.stagedRecords, node.metrics.withheldRecords]).to.deep.equal([
      1, 0, 0,
    ]);
    expect([node.batcher.epoch, node.batcher.liveSlots, node.port.buffersOut]).to.deep.equal([2, 0, 0]);
  });

  it('a terminal whose batch the transport refuses ends nobody else: slots behind it are served in the same turn', () => {
    const { node, owners, slots } = opened({ maxBatchBytes: 100, flushPolicy: 'manual' }, 3);
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 1);
    node.batcher.kick();
    expect(node.batcher.parked).to.equal(true);
    // All of it stands until the answer.
    node.batcher.terminal(slots[0]!, transportErrorFrame('x'.repeat(200)));
    node.batcher.terminal(slots[2]!, FINALIZED_BYTES);
    node.port.mode = 'admit';
    node.port.refusesNext = () => true;
    node.admit();
    node.turn();
    expect(owners[0]!.events.slice(1)).to.deep.equal(['closed terminal', 'retired discarded']);
    expect(owners[2]!.events.slice(1)).to.deep.equal(['closed terminal', 'retired sent']);
    expect([node.metrics.epochDeaths, node.metrics.droppedStaleSingleton, node.port.buffersOut]).to.deep.equal([
      0, 1, 0,
    ]);
  });

  it('replies that a refused singleton leaves behind are tried again, though nothing else happens', () => {
    for (const kind of ['data', 'open'] as const) {
      const { node, slots } = opened({ maxBatchBytes: 100, asyncOpenAck: kind === 'open' }, 2, 0);
      for (let i = 0; i < 6; i++) node.sendItem(slots[0]!, i, 34);
      // With 3, the drain parks at the slots, and the next one begins with them; with 1, the batch is due at its end.
      node.batcher.control.postCredit(slots[0]!.id, kind === 'data' ? 3 : 1);
      node.batcher.control.postCredit(slots[1]!.id, 1);
      node.port.mode = 'pend';
      node.turn();
      expect(node.batcher.parked).to.equal(true);
      if (kind === 'data') node.sendItem(slots[1]!, 1, MEDIUM);
      else node.open(new FakeOwner(), 5n, 9n);
      node.batcher.control.replyCredit(0x500, 4);
      node.port.mode = 'admit';
      node.port.refusesNext = () => true;
      node.admit();
      node.turn();
      expect(node.metrics.epochDeaths, kind).to.equal(1);
      node.port.take();
      expect(node.batcher.deadline(), kind).to.equal(node.config.creditSweepIntervalMs);
      node.advance(node.config.creditSweepIntervalMs);
      node.advance(node.config.replyLingerMs);
      expect(shapes(node), kind).to.deep.equal(['credit 5:0']);
    }
  });

  it('AR-16 4,096 bogus grants are refused and counted, and the answer that lifts the fence still lands', () => {
    const { node, slots } = opened();
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 1, LARGE);
    node.sendItem(slots[0]!, 2);
    for (let i = 0; i < 4_096; i++) node.batcher.control.postCredit((i + 7) << 8, 1);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    expect(node.metrics.controlRefused).to.equal(4_096);
    expect(shapes(node)).to.deep.equal(['data 0:1', 'data 0:2']);
  });

  it('AK-03 a failed singleton survives later successes, and beats an earlier one', () => {
    for (const answers of [
      [false, true, true],
      [true, false],
    ]) {
      const { node, owners, slots } = opened();
      node.port.mode = 'pend';
      node.sendItem(slots[0]!, 1, MEDIUM);
      for (const ok of answers) node.port.singletons[0]!.admission(ok);
      node.turn();
      expect(owners[0]!.events).to.include('closed epochDeath');
      expect(node.metrics.epochDeaths).to.equal(1);
    }
  });

  it('AR-20 a dispatch that sends nothing takes no batch_seq: 1,000 opens behind records without room arrive as 0 to 999', () => {
    const node = new CoreNode();
    const first = node.open(new FakeOwner(), 5n, 1n, 4);
    node.port.stagingRoom = 0;
    node.sendItem(first, 1, LARGE);
    for (let i = 1; i < 1_000; i++) {
      if (i % 3 === 0) {
        // Room that is too small: another attempt that sends nothing. Then room, and no memory.
        node.port.stagingRoom = i % 2 === 0 ? 1_000 : LARGE + 100;
        node.port.memoryless = true;
        node.batcher.stagingFreed();
        node.turn();
        expect(node.port.stagingRoom).to.equal(i % 2 === 0 ? 1_000 : LARGE + 100);
      }
      node.open(new FakeOwner(), 5n, BigInt(i + 1));
    }
    const opens = node.port.take();
    expect(opens.map(({ seq }) => seq)).to.deep.equal(Array.from({ length: 1_000 }, (_, i) => i));
    expect(opens.every(({ records }) => records.length === 1 && records[0]!.type === 'open')).to.equal(true);
    node.port.memoryless = false;
    node.port.stagingRoom = LARGE + 100;
    node.batcher.stagingFreed();
    node.turn();
    const [late] = node.port.take();
    expect([late!.seq, shape(late!)]).to.deep.equal([1_000, 'data 0:1']);
    expect([first.credit, node.port.buffersOut]).to.deep.equal([3, 0]);
  });

  it('a record that finds no room waits, others of its slot behind it; it tries again after a while by itself', () => {
    const { node, slots } = opened({}, 2);
    node.port.stagingRoom = 0;
    node.sendItem(slots[0]!, 1, LARGE);
    node.sendItem(slots[0]!, 2);
    node.sendItem(slots[1]!, 3);
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 1:1']);
    expect(node.batcher.deadline()).to.equal(node.config.creditSweepIntervalMs);
    node.port.stagingRoom = Number.POSITIVE_INFINITY;
    node.advance(node.config.creditSweepIntervalMs);
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 0:1', 'data 0:2']);
    expect(node.batcher.deadline()).to.equal(Number.POSITIVE_INFINITY);
  });

  it('a slot that closes while it waits for room leaves nothing behind', () => {
    const { node, slots } = opened();
    node.port.stagingRoom = 0;
    node.sendItem(slots[0]!, 1, LARGE);
    node.batcher.abandon(slots[0]!);
    node.turn();
    expect(shapes(node)).to.deep.equal(['close 0:1']);
    node.advance(1_000);
    expect([node.batcher.idle, node.batcher.deadline()]).to.deep.equal([true, Number.POSITIVE_INFINITY]);
  });

  it('no more than 256 wait for a congested transport; the next goes with an answer', () => {
    const count = MAX_PENDING_SINGLETONS + 2;
    const { node, slots } = opened({}, count);
    node.port.mode = 'pend';
    for (const slot of slots) node.sendItem(slot, 1, LARGE);
    expect(node.port.singletons).to.have.length(MAX_PENDING_SINGLETONS);
    node.admit();
    node.turn();
    expect(node.port.singletons).to.have.length(MAX_PENDING_SINGLETONS + 1);
    node.admitAll();
    node.turn();
    node.admitAll();
    node.turn();
    expect(node.port.singletons).to.have.length(count);
  });

  it('inline ones that wait are bounded by their bytes too', () => {
    const { node, slots } = opened({}, 50);
    node.port.mode = 'pend';
    for (const slot of slots) node.sendItem(slot, 1, MEDIUM);
    expect(node.port.singletons).to.have.length(41);
    for (let i = 0; i < 9; i++) {
      node.admit();
      node.turn();
    }
    expect(node.port.singletons).to.have.length(50);
  });

  it('a kick under manual carries what a fence holds back, also once the transport answers', () => {
    const { node, slots } = opened({ flushPolicy: 'manual' });
    node.sendItem(slots[0]!, 1, LARGE);
    node.sendItem(slots[0]!, 2);
    node.batcher.kick();
    expect(shapes(node)).to.deep.equal(['data 0:1', 'data 0:2']);
    node.port.fetch(node.port.singletons[0]!);
    node.turn();
    node.port.mode = 'pend';
    node.sendItem(slots[0]!, 3, LARGE);
    node.port.mode = 'admit';
    node.sendItem(slots[0]!, 4);
    node.batcher.kick();
    expect(shapes(node)).to.deep.equal(['data 0:3']);
    node.admit();
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 0:4']);
    node.port.fetch(node.port.singletons[1]!);
    node.turn();
    node.sendItem(slots[0]!, 5);
    node.turn();
    expect(shapes(node)).to.deep.equal([]);
  });

  it('what leaves behind a staged record is no more than its receiver can hold, until that one was let go of', () => {
    const { node, slots } = opened({}, 1, 64, 1_000);
    node.sendItem(slots[0]!, 0, LARGE);
    for (let i = 1; i <= 30; i++) node.sendItem(slots[0]!, i, 94);
    node.turn();
    expect(node.port.take().flatMap(({ records }) => records)).to.have.length(11);
    node.port.fetch(node.port.singletons[0]!);
    node.turn();
    expect(node.port.take().flatMap(({ records }) => records)).to.have.length(20);
    expect([slots[0]!.direct, slots[0]!.behindBytes]).to.deep.equal([true, 0]);
  });

  it('a heartbeat goes while a record of its slot lies unpulled, or its receiver would take the sender for dead', () => {
    const { node, slots } = opened();
    node.sendItem(slots[0]!, 1, LARGE);
    expect(node.batcher.heartbeat(slots[0]!)).to.equal(false);
    node.turn();
    expect([slots[0]!.direct, node.batcher.heartbeat(slots[0]!)]).to.deep.equal([false, true]);
    node.advance(1);
    expect(shapes(node)).to.deep.equal(['data 0:1', 'data 0:2']);
  });

  it('all slots together hand over no more behind staged records than a receiver holds for one peer', () => {
    const { node, slots } = opened({}, 20);
    for (const slot of slots) {
      node.sendItem(slot, 0, LARGE);
      for (let i = 1; i <= 30; i++) node.sendItem(slot, i, 30_000 - 6);
    }
    node.turn();
    const behind = () =>
      node.port.take().flatMap(({ records }) => records.filter(({ seq, body }) => seq > 1 && body.length === 30_000));
    const share = Math.floor(MAX_BEHIND_BYTES / 30_000);
    expect(behind()).to.have.length(share);
    for (const singleton of [...node.port.singletons]) node.port.fetch(singleton);
    node.turn();
    expect(behind()).to.have.length(20 * 30 - share);
  });

  it('all lanes of one peer, each with as much behind staged records as it may, overflow no hold', () => {
    for (let lanes = 1; lanes <= MAX_LANES; lanes++)
      expect(lanes * behindShare(lanes)).to.be.at.most(DEFAULT_PEER_BYTE_BUDGET);
    expect([1, 8, 16].map(behindShare)).to.deep.equal([MAX_BEHIND_BYTES, MAX_BEHIND_BYTES, MAX_BEHIND_BYTES / 2]);
    const peerBudget = new ByteBudget(DEFAULT_PEER_BYTE_BUDGET);
    for (let lane = 0; lane < MAX_LANES; lane++) {
      const pair = new CorePair({ lane, lanes: MAX_LANES, peerBudget });
      const streams = Array.from({ length: 3 }, () => pair.stream({ limit: 64 }));
      for (const { slot } of streams) {
        pair.producer.sendItem(slot, 0, LARGE);
        for (let i = 1; i <= 30; i++) pair.producer.sendItem(slot, i, 30_000);
      }
      pair.producer.turn();
      for (const batch of pair.toConsumer.splice(0)) pair.consumer.receive(batch);
      const { holdOverflow, liveSlots } = pair.consumer.metrics;
      expect([holdOverflow, liveSlots], `lane ${lane}`).to.deep.equal([0, 3]);
    }
    expect(peerBudget.used).to.be.above(peerBudget.limit * 0.9);
  });

  it('two staged records larger than what a receiver can hold go one after the other', () => {
    const pair = new CorePair();
    const { slot, receiver } = pair.stream({ byteBudget: 400_000 });
    for (let i = 0; i < 3; i++) pair.producer.sendItem(slot, i, LARGE);
    pair.producer.finalize(slot);
    pair.producer.turn();
    // The first is not held: it comes in its turn. One may be held behind it, a second would not fit.
    expect(pair.staged).to.have.length(2);
    for (const batch of pair.toConsumer.splice(0)) pair.consumer.receive(batch);
    pair.pull(1);
    pair.pull(0);
    pair.settle();
    pair.settle();
    expect(receiver.frames.map(frameText)).to.deep.equal(['0', '1', '2', 'Finalized']);
    expect([pair.consumer.metrics.holdOverflow, pair.consumer.metrics.liveSlots]).to.deep.equal([0, 0]);
  });
});

describe('mux egress: terminals that go alone', () => {
  /** `TransportError` with a text of `length` bytes. */
  const terminal = (length: number) => {
    const head = Uint8Array.of(0x81, 0xae, ...new TextEncoder().encode('TransportError'), 0xdb);
    const bytes = new Uint8Array(head.length + 4 + length).fill(0x65);
    bytes.set(head);
    new DataView(bytes.buffer).setUint32(head.length, length);
    return bytes;
  };

  it('AQ-03 a terminal sent alone through rendezvous reports sent when its own admission resolves; its slot closes at once', () => {
    const { node, owners, slots } = opened({}, 2);
    node.port.mode = 'pend';
    node.batcher.terminal(slots[0]!, terminal(70_000));
    node.port.eager = 60_000;
    node.batcher.terminal(slots[1]!, terminal(70_000));
    expect(node.port.singletons.map(({ staged }) => staged)).to.deep.equal([false, true]);
    expect(shapes(node)).to.deep.equal(['data 0:1, close 0:2', 'data 1:1, close 1:2']);
    expect(node.batcher.liveSlots).to.equal(0);
    for (const owner of owners) expect(owner.events).to.deep.equal(['opened true', 'closed terminal']);
    node.admit();
    expect(owners.map(({ events }) => events.at(-1))).to.deep.equal(['retired sent', 'closed terminal']);
    node.admit();
    expect(owners[1]!.events.at(-1)).to.equal('retired sent');
    expect(node.metrics.singletons).to.equal(2);
  });

  it('AQ-02 one whose admission fails, and one that a teardown leaves behind, report discarded', () => {
    const { node, owners, slots } = opened({}, 3);
    node.port.mode = 'pend';
    node.batcher.terminal(slots[0]!, terminal(70_000));
    node.batcher.terminal(slots[1]!, terminal(300_000));
    node.admit(false);
    expect(owners[0]!.events.slice(1)).to.deep.equal(['closed terminal', 'retired discarded']);
    expect([node.metrics.droppedStaleSingleton, node.metrics.epochDeaths]).to.deep.equal([1, 0]);
    node.batcher.shutdown();
    expect(owners[1]!.events.slice(1)).to.deep.equal(['closed terminal', 'retired discarded']);
    expect(owners[2]!.events.slice(1)).to.deep.equal(['closed epochDeath', 'retired discarded']);
  });

  it('AQ-05 the first outcome stands: what answers late changes nothing', () => {
    const { node, owners, slots } = opened();
    node.port.mode = 'pend';
    node.batcher.terminal(slots[0]!, terminal(70_000));
    node.batcher.shutdown();
    node.admit(true);
    expect(owners[0]!.events.filter((event) => event.startsWith('retired'))).to.deep.equal(['retired discarded']);
  });

  it('AQ-07 documented limit: a stream reports sent although an oversized item of it is still staged', () => {
    const { node, owners, slots } = opened();
    node.port.stagingRoom = LARGE + 100;
    node.sendItem(slots[0]!, 1, LARGE);
    node.finalize(slots[0]!);
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 0:1', 'data 0:2, close 0:3']);
    expect(owners[0]!.events.at(-1)).to.equal('retired sent');
    expect(node.port.stagingRoom).to.be.below(LARGE);
  });

  it('the index of a terminal that is staged with its close is used again only when that was let go of', () => {
    const { node, slots } = opened();
    node.batcher.terminal(slots[0]!, terminal(300_000));
    node.turn();
    expect(node.open(new FakeOwner(), 5n, 2n).index).to.equal(1);
    node.port.fetch(node.port.singletons[0]!);
    const again = node.open(new FakeOwner(), 5n, 3n);
    expect([again.index, again.id & 0xff]).to.deep.equal([0, 1]);
  });

  it('a terminal that finds no room waits for it', () => {
    const { node, owners, slots } = opened();
    node.port.stagingRoom = 0;
    node.batcher.terminal(slots[0]!, terminal(300_000));
    node.turn();
    expect([node.port.sent.length, owners[0]!.events]).to.deep.equal([0, ['opened true']]);
    node.port.stagingRoom = 400_000;
    node.batcher.stagingFreed();
    node.turn();
    expect(owners[0]!.events.slice(1)).to.deep.equal(['closed terminal', 'retired sent']);
  });
});

describe('mux egress: opens that nobody waits for', () => {
  const ASYNC = { asyncOpenAck: true };

  it('AR-08 an OpenSlot that is admitted at once raises no fence', () => {
    const node = new CoreNode({ mux: ASYNC });
    const owner = new FakeOwner();
    const slot = node.open(owner, 5n, 1n);
    expect(owner.events).to.deep.equal(['opened true']);
    expect([slot.fence, slot.direct]).to.deep.equal([undefined, true]);
    node.sendItem(slot, 1);
    node.turn();
    expect(shapes(node)).to.deep.equal(['open 0:0', 'data 0:1']);
    expect([node.metrics.singletons, node.metrics.recordsSentOpenSlot]).to.deep.equal([0, 1]);
  });

  it('AR-09 behind a full peer it is reported at once, and the first data waits for its own admission, then follows at 1', () => {
    const node = new CoreNode({ mux: ASYNC });
    const owners = [new FakeOwner(), new FakeOwner()];
    node.port.mode = 'pend';
    const slots = owners.map((owner, i) => node.open(owner, 5n, BigInt(i + 1)));
    for (const owner of owners) expect(owner.events).to.deep.equal(['opened true']);
    expect(node.batcher.parked).to.equal(false);
    for (const slot of slots) node.sendItem(slot, 1);
    node.turn();
    expect(shapes(node)).to.deep.equal(['open 0:0', 'open 1:0']);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 0:1']);
    node.admit();
    node.turn();
    expect(shapes(node)).to.deep.equal(['data 1:1']);
    expect(node.metrics.recordsSentOpenSlot).to.equal(2);
  });

  it('AR-09 what is staged goes before it, and opens behind a parked batch still wait in line', () => {
    const node = new CoreNode({ mux: { ...ASYNC, flushPolicy: 'manual' } });
    const first = node.open(new FakeOwner(), 5n, 1n);
    node.sendItem(first, 1);
    node.port.mode = 'pend';
    const owner = new FakeOwner();
    node.open(owner, 5n, 2n);
    expect(shapes(node)).to.deep.equal(['open 0:0', 'data 0:1']);
    expect([node.batcher.parked, owner.events]).to.deep.equal([true, []]);
    node.admit();
    node.turn();
    expect(shapes(node)).to.deep.equal(['open 1:0']);
    expect(owner.events).to.deep.equal(['opened true']);
  });

  it('AR-11 a close of a departed producer waits for the admission of the OpenSlot, travels alone, and takes frame_seq 1', () => {
    const node = new CoreNode({ mux: ASYNC });
    const owner = new FakeOwner();
    node.port.mode = 'pend';
    const slot = node.open(owner, 5n, 1n);
    node.batcher.inletClosed(slot);
    node.turn();
    expect(shapes(node)).to.deep.equal(['open 0:0']);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    expect(shapes(node)).to.deep.equal(['close 0:1']);
    expect(owner.events).to.deep.equal(['opened true', 'closed abandoned', 'retired discarded']);
  });

  it('AR-12 with the awaited open a departed slot without a fence closes at once', () => {
    const { node, owners, slots } = opened();
    expect(slots[0]!.fence).to.equal(undefined);
    node.batcher.inletClosed(slots[0]!);
    node.turn();
    expect(shapes(node)).to.deep.equal(['close 0:1']);
    expect(owners[0]!.events.slice(1)).to.deep.equal(['closed abandoned', 'retired discarded']);
  });

  it('AR-13 a fenced slot pauses at the byte cap until its open is admitted, and resumes in order', () => {
    const node = new CoreNode({ mux: ASYNC });
    node.port.mode = 'pend';
    const slot = node.open(new FakeOwner(), 5n, 1n, 64, 256);
    for (let i = 0; i < 64; i++) node.sendItem(slot, i, 26);
    expect([slot.paused, slot.withheld.byteLength, slot.inlet.length]).to.deep.equal([true, 256, 56]);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    const values = node.port.take().flatMap(({ records }) => records.slice(records[0]!.type === 'open' ? 1 : 0));
    expect(values.map(({ body }) => frameText(body))).to.deep.equal(Array.from({ length: 64 }, (_, i) => String(i)));
    expect(values.map(({ seq }) => seq)).to.deep.equal(Array.from({ length: 64 }, (_, i) => i + 1));
    expect([slot.paused, slot.direct, slot.credit]).to.deep.equal([false, true, 0]);
  });

  it('AR-14 one that is not admitted ends the epoch, at once and later alike', () => {
    for (const mode of ['refuse', 'pend'] as const) {
      const node = new CoreNode({ mux: ASYNC });
      const owner = new FakeOwner();
      node.port.mode = mode;
      node.open(owner, 5n, 1n);
      if (mode === 'pend') {
        node.admit(false);
        node.turn();
      }
      expect(owner.events.slice(-2)).to.deep.equal(['closed epochDeath', 'retired discarded']);
      expect([node.metrics.epochDeaths, node.batcher.epoch, node.port.buffersOut]).to.deep.equal([1, 2, 0]);
    }
  });
});
