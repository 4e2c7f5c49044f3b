// A peer that is gone, a connection that is lost, and what a lane keeps of peers with which nothing happens any more.

import { expect } from 'chai';
import { StreamAnchorHandle, type StreamSender, type Velo } from '../../lib/index.js';
import { CLOSE_UNKNOWN_SLOT, RECORD_DATA, RECORD_OPEN_SLOT } from '../../lib/wire/batch.js';
import { CuttingProxy } from '../support/cutting-proxy.js';
import { NodeProcess } from '../support/node-process.js';
import {
  failure,
  introduce,
  nodesOfSuite,
  openStream,
  pause,
  range,
  readAll,
  sendRange,
  streamSuite,
  take,
  until,
  within,
} from '../support/nodes.js';
import { accept, recordsOf, WirePeer } from '../support/wire-peer.js';

/** Intervals that never come in a test. */
const QUIET_MS = 600_000;

function toPeer(node: Velo, peer: WirePeer): Promise<StreamSender<number>> {
  return node.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
}

streamSuite('a peer that is gone', (host, nodes) => {
  let peer: WirePeer;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    peer.onAttach = () => accept({ routingSessionId: 77n, heartbeatIntervalMs: QUIET_MS });
  });
  afterEach(() => peer.close());

  it('AK-09 idle senders hear of it by the health check, and it is asked only while there are some', async () => {
    const receiver = await nodes.make({ host });
    const node = await nodes.make({ host });
    const back = await WirePeer.listen();
    try {
      // This one only sends to us: its end is none of the health check's business.
      await back.faces(receiver).hello();
      const anchor = receiver.createAnchor<number>({ heartbeatIntervalMs: QUIET_MS });
      await back.open(anchor.handle, 0);
      node.registerPeer(peer.info);
      peer.faces(node);
      const senders = [await toPeer(node, peer), await toPeer(node, peer)];
      await until('both are open', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 2);
      // A lost connection alone says nothing: somebody still listens.
      peer.hangUp();
      await until('it was asked', () => node.stats().wakesLinger > 0);
      const { tcp } = peer.accepted;
      await until('the probe was accepted', () => peer.accepted.tcp > 1);
      expect(tcp, 'each probe is one connection').to.be.lessThan(4);
      expect(senders.map(({ cancelled }) => cancelled)).to.deep.equal([false, false]);
      const asked = back.accepted.tcp;
      await peer.close();
      await until('they are closed', () => senders.every(({ cancelled }) => cancelled));
      for (const sender of senders) await failure('ERR_CHANNEL_CLOSED', sender.ready());
      expect(node.stats()).to.include({ epochDeaths: 1, liveSlots: 0 });
      expect(back.accepted.tcp, 'a node that only receives asks nobody').to.equal(asked);
      expect(receiver.stats()).to.include({ wakesLinger: 0, liveSlots: 1 });
      for (const sender of senders) await sender.close();
      anchor.controller.cancel();
    } finally {
      await back.close();
    }
  });

  it('what lies staged for a peer that is gone is let go of, though no slot is open any more', async () => {
    const node = await nodes.make({ host });
    node.registerPeer(peer.info);
    peer.faces(node);
    const sender = (await toPeer(node, peer)) as unknown as StreamSender<Uint8Array>;
    await sender.send(new Uint8Array(300_000));
    await sender.finalize();
    await until('its handle was sent', () => node.stats().rendezvousSlots === 1 && node.stats().liveSlots === 0);
    expect(await sender.retired()).to.equal('sent');
    await peer.close();
    await until('it is let go of', () => node.stats().rendezvousSlots === 0);
    expect(node.stats()).to.include({ epochDeaths: 0, rendezvousSlotBytes: 0 });
  });

  it('what lies staged for a stream that its reader cancels is let go of', async () => {
    const node = await nodes.make({ host });
    node.registerPeer(peer.info);
    peer.faces(node);
    const sender = (await toPeer(node, peer)) as unknown as StreamSender<Uint8Array>;
    await sender.send(new Uint8Array(300_000));
    await until('its handle was sent', () => node.stats().rendezvousSlots === 1);
    await until('its opening was heard', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 1);
    const open = recordsOf(peer, RECORD_OPEN_SLOT)[0]!;
    await peer.batch(0, (batch) => batch.closeSlot(open.slot, 0, CLOSE_UNKNOWN_SLOT));
    await until('the sender hears of it', () => sender.cancelled);
    await until('it is let go of', () => node.stats().rendezvousSlots === 0);
    expect(await sender.retired()).to.equal('discarded');
    await sender.close();
  });

  it('AK-09 a batch that waits for admission when its connection ends was refused: the epoch is over', async () => {
    const node = await nodes.make({ host, connectionQueueBytes: 1, mux: { maxBatchBytes: 1_000 } });
    node.registerPeer(peer.info);
    peer.faces(node);
    peer.onAttach = () => accept({ routingSessionId: 77n, heartbeatIntervalMs: QUIET_MS, initialCredit: 60_000 });
    const senders = [await toPeer(node, peer), await toPeer(node, peer)];
    const sender = senders[0]! as unknown as StreamSender<Uint8Array>;
    await until('both are open', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 2);
    peer.pauseReading();
    const item = new Uint8Array(20_000);
    // Until nothing moves any more: the sockets are full, and a batch stands before them.
    for (let still = 0; still < 300; ) {
      still = sender.trySend(item) ? 0 : still + 1;
      if (still > 0) await pause(1);
    }
    expect(node.stats().sendBackpressure).to.be.greaterThan(0);
    peer.hangUp();
    await until('every slot is closed', () => senders.every(({ cancelled }) => cancelled));
    expect(node.stats()).to.include({ epochDeaths: 1, liveSlots: 0, stagedRecords: 0 });
    const next = await toPeer(node, peer);
    await until('the next epoch begins', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 3);
    const [first, last] = [peer.batches[0]!, peer.batches.at(-1)!];
    expect([last.epoch > first.epoch, last.batchSeq]).to.deep.equal([true, 0]);
    for (const each of [...senders, next]) await each.close();
  });

  it('AK-10 a connection lost after admission ends no epoch: streams that lost a record end, the others go on', async () => {
    const consumer = await nodes.make({ host });
    const producer = await nodes.make({ host });
    const proxy = await CuttingProxy.before(consumer.peerInfo);
    try {
      producer.registerPeer(proxy.info);
      consumer.registerPeer(producer.peerInfo);
      const anchors = [100, QUIET_MS].map((heartbeatIntervalMs) =>
        consumer.createAnchor<number>({ heartbeatIntervalMs }),
      );
      const senders: StreamSender<number>[] = [];
      for (const { handle } of anchors) senders.push(await producer.attachAnchor<number>(handle));
      for (const sender of senders) await sendRange(sender, 0, 3);
      for (const anchor of anchors) expect(await take(anchor, 3)).to.deep.equal(range(0, 3));
      proxy.lose();
      await senders[0]!.send(3);
      await until('a record is lost', () => proxy.lostBytes > 0);
      proxy.cut();
      await until('its connection is gone', () => producer.stats().connectionsClosed > 0);
      await senders[1]!.send(3);
      expect(await take(anchors[1]!, 1)).to.deep.equal([3]);
      const ended = readAll(anchors[0]!);
      await senders[0]!.send(4).catch(() => {});
      expect(await within(10_000, ended)).to.deep.include({ items: [] });
      expect((await ended).error?.code).to.equal('ERR_SENDER_DROPPED');
      await until('its sender is cancelled', () => senders[0]!.cancelled);
      await sendRange(senders[1]!, 4, 20);
      await senders[1]!.finalize();
      expect(await readAll(anchors[1]!)).to.deep.equal({ items: range(4, 20), error: undefined });
      expect(producer.stats().epochDeaths).to.equal(0);
      expect(consumer.stats().watchdogFirings).to.equal(1);
      expect(consumer.stats().batchSeqGaps).to.be.greaterThan(0);
      await senders[0]!.close();
    } finally {
      await proxy.close();
    }
  });

  it('AK-16 there is one batcher per peer and lane, made when something is first sent there', async () => {
    const node = await nodes.make({ host, lanes: 2 });
    node.registerPeer(peer.info);
    peer.faces(node);
    expect(await node.availableHandlers(peer.info.instanceId)).to.not.have.length(0);
    expect(peer.batches).to.deep.equal([]);
    let streams = 0;
    peer.onAttach = () => accept({ routingSessionId: 77n, heartbeatIntervalMs: QUIET_MS, lane: streams++ % 2 });
    const senders = [];
    for (let i = 0; i < 6; i += 1) senders.push(await toPeer(node, peer));
    for (const sender of senders) await sendRange(sender, 0, 3);
    await until('all of it is there', () => recordsOf(peer, RECORD_DATA).length === 18);
    const epochs = new Map<number, Set<bigint>>();
    for (const { lane, epoch } of peer.batches) epochs.set(lane, (epochs.get(lane) ?? new Set()).add(epoch));
    expect([...epochs.keys()].sort()).to.deep.equal([0, 1]);
    expect([...epochs.values()].map(({ size }) => size)).to.deep.equal([1, 1]);
    expect(new Set([...epochs.values()].flatMap((each) => [...each])).size, 'each has its own').to.equal(2);
    for (const lane of [0, 1]) {
      const numbers = peer.batches.filter((batch) => batch.lane === lane).map(({ batchSeq }) => batchSeq);
      expect(numbers).to.deep.equal(range(0, numbers.length));
    }
    for (const sender of senders) await sender.close();
  });

  it('AK-15 an idle batcher is let go, the next one has a higher epoch; one with a live slot stays', async () => {
    const node = await nodes.make({ host, mux: { batcherIdleTtlMs: 100, creditSweepIntervalMs: 10 } });
    node.registerPeer(peer.info);
    peer.faces(node);
    const epochs = () => new Set(peer.batches.map(({ epoch }) => epoch)).size;
    const held = await toPeer(node, peer);
    await pause(500);
    await (await toPeer(node, peer)).finalize();
    await pause(500);
    await held.send(1);
    await until('it is there', () => recordsOf(peer, RECORD_DATA).length === 2);
    expect(epochs(), 'while a slot is live').to.equal(1);
    await held.finalize();
    let tries = 0;
    for (; epochs() < 4 && tries < 50; tries += 1) {
      await pause(200);
      const opened = recordsOf(peer, RECORD_OPEN_SLOT).length;
      await (await toPeer(node, peer)).finalize();
      await until('it was opened', () => recordsOf(peer, RECORD_OPEN_SLOT).length > opened);
    }
    expect(epochs()).to.equal(4);
    let last = 0n;
    for (const { epoch } of peer.batches) {
      expect(epoch >= last).to.equal(true);
      last = epoch;
    }
    expect(node.stats().epochDeaths).to.equal(0);
  });

  it('AK-17 a node that closes with four live streams and a pending bind ends each of them, and nothing is live', async () => {
    for (const closing of ['consumer', 'producer'] as const) {
      const consumer = await nodes.make({ host });
      const producer = await nodes.make({ host });
      introduce(consumer, producer);
      const streams = [];
      for (let i = 0; i < 4; i += 1) {
        const stream = await openStream<number>({ consumer, producer });
        await stream.sender.send(i);
        streams.push({ ...stream, reading: readAll(stream.anchor) });
      }
      await peer.faces(consumer).hello();
      const pending = consumer.createAnchor<number>();
      expect((await peer.attach(pending.handle)).ok).to.equal(true);
      await until('all are live', () => consumer.stats().liveSlots === 4);
      const pendingEnd = readAll(pending);
      const [first, second] = closing === 'consumer' ? [consumer, producer] : [producer, consumer];
      await within(5_000, first.close({ timeoutMs: 4_000 }));
      for (const [i, { reading }] of streams.entries()) {
        const { items, error } = await within(5_000, reading);
        expect([items, error?.code]).to.deep.equal([[i], 'ERR_SENDER_DROPPED']);
      }
      await until('nothing is live', () => first.stats().liveSlots + second.stats().liveSlots === 0);
      for (const { sender } of streams) await sender.close();
      if (closing === 'producer') await consumer.close({ timeoutMs: 1_000 });
      expect((await within(5_000, pendingEnd)).error?.code).to.equal('ERR_SENDER_DROPPED');
    }
  });
});

describe('a process that was stopped', () => {
  const nodes = nodesOfSuite();

  it('keeps its lanes: the time does not count as their silence', async () => {
    const child = await NodeProcess.start({ host: 'piscina', laneSilenceMs: 1_000 });
    const node = await nodes.make({ host: 'inline' });
    try {
      await child.meet(node);
      const { sender, result } = await child.stream(node, {});
      await sendRange(sender, 0, 5);
      for (let i = 0; i < 2; i += 1) {
        child.freeze();
        await pause(1_500);
        child.thaw();
        await pause(300);
      }
      await sendRange(sender, 5, 10);
      await sender.finalize();
      expect(await result()).to.deep.equal({ items: range(0, 10), end: 'finalized' });
    } finally {
      await child.end();
    }
  });
});
