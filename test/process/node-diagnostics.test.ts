// The events of a node on `node:diagnostics_channel`: each from its real cause, none without a subscriber, and no more of them than
// a busy thread takes.

import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { expect } from 'chai';
import {
  type EpochDeathEvent,
  type LaneDeathEvent,
  type RefusalEvent,
  StreamAnchorHandle,
  type StreamCloseEvent,
  type StreamEvent,
  type Velo,
  type WatchdogEvent,
} from '../../lib/index.js';
import { MAX_EVENTS_UNTAKEN } from '../../lib/lanes/lane-events.js';
import { ITEM_PREFIX } from '../../lib/wire/frame.js';
import {
  failure,
  introduce,
  nodesOfSuite,
  openStream,
  pause,
  readAll,
  streamSuite,
  take,
  until,
} from '../support/nodes.js';
import { accept, dataRecord, openRecord, WirePeer } from '../support/wire-peer.js';
import { kill } from './crashing-lane.js';

const MORTAL = new URL('./crashing-lane.js', import.meta.url);
const SLOT = 0x100;
const ITEM = Uint8Array.of(...ITEM_PREFIX, 1);

interface Events {
  'velomux:stream:open': StreamEvent;
  'velomux:stream:close': StreamCloseEvent;
  'velomux:epoch:death': EpochDeathEvent;
  'velomux:watchdog': WatchdogEvent;
  'velomux:refusal': RefusalEvent;
  'velomux:lane:death': LaneDeathEvent;
}

/** What came on the channels of one test. */
class Ears {
  private readonly subscriptions: [string, (message: unknown) => void][] = [];

  listen<K extends keyof Events>(name: K, node?: Velo): Events[K][] {
    const heard: Events[K][] = [];
    const hear = (message: unknown) => {
      const event = message as Events[K];
      if (node === undefined || event.node === node.instanceId) heard.push(event);
    };
    subscribe(name, hear);
    this.subscriptions.push([name, hear]);
    return heard;
  }

  close(): void {
    for (const [name, hear] of this.subscriptions.splice(0)) unsubscribe(name, hear);
  }
}

streamSuite('events of a node', (host, nodes) => {
  const ears = new Ears();
  let peer: WirePeer;
  beforeEach(async () => {
    peer = await WirePeer.listen();
  });
  afterEach(async () => {
    ears.close();
    await peer.close();
  });

  it('a stream that opens and ends is told at both ends, with one session', async () => {
    const pair = await nodes.pair(host);
    const { consumer, producer } = pair;
    const opens = ears.listen('velomux:stream:open');
    const closes = ears.listen('velomux:stream:close');
    const { anchor, sender } = await openStream<number>(pair);
    await until('both have opened', () => opens.length === 2);
    const [out, inward] = [opens.find((e) => e.direction === 'out')!, opens.find((e) => e.direction === 'in')!];
    expect(out).to.deep.equal({
      node: producer.instanceId,
      direction: 'out',
      peer: consumer.instanceId,
      lane: 0,
      slot: out.slot,
      session: out.session,
    });
    expect(inward).to.deep.equal({ ...out, node: consumer.instanceId, direction: 'in', peer: producer.instanceId });
    await sender.send(1);
    await sender.finalize();
    await readAll(anchor);
    await until('both have closed', () => closes.length === 2);
    for (const close of closes) {
      expect(close).to.include({ reason: 'terminal', session: out.session, slot: out.slot });
      expect(close.ageMs).to.be.greaterThan(0);
    }
    expect(closes.map(({ direction }) => direction)).to.have.members(['out', 'in']);
  });

  it('a consumer that cancels, and a sender that is dropped, give their reasons', async () => {
    const pair = await nodes.pair(host);
    const closes = ears.listen('velomux:stream:close');
    const cancelled = await openStream<number>(pair);
    await until('it lives at both ends', () => pair.consumer.stats().liveSlots === 1);
    cancelled.anchor.controller.cancel();
    await until('both ends of the first', () => closes.length === 2);
    expect(closes.map(({ direction, reason }) => `${direction} ${reason}`)).to.have.members([
      'in cancelled',
      'out cancelled',
    ]);
    const dropped = await openStream<number>(pair);
    await dropped.sender.close();
    await failure('ERR_SENDER_DROPPED', take(dropped.anchor, 1));
    await until('both ends of the second', () => closes.length === 4);
    // Its sender said so itself, with a terminal of its own.
    expect(closes.slice(2).map(({ reason }) => reason)).to.deep.equal(['terminal', 'terminal']);
  });

  it('an opening for nobody, and a window overspent, are refusals', async () => {
    const node = await nodes.make({ host });
    const refusals = ears.listen('velomux:refusal', node);
    const closes = ears.listen('velomux:stream:close', node);
    await peer.faces(node).hello();
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => openRecord(batch, 0x200, 1n, 1n));
    await until('the opening is refused', () => refusals.length === 1);
    const from = { node: node.instanceId, what: 'slot', peer: peer.info.instanceId, lane: 0 };
    expect(refusals[0]).to.deep.equal({ ...from, slot: 0x200, reason: 'unknownSlot' });
    await peer.batch(0, (batch) => {
      for (let i = 1; i <= 40; i += 1) dataRecord(batch, SLOT, i, ITEM);
    });
    await until('the window is', () => refusals.length === 2 && closes.length === 1);
    expect(refusals[1]).to.deep.equal({ ...from, slot: SLOT, reason: 'protocolError' });
    expect(closes[0]).to.include({ direction: 'in', slot: SLOT, reason: 'dropped' });
    anchor.controller.cancel();
  });

  it('an attach and a hello that are refused are told, and by whom', async () => {
    const node = await nodes.make({ host, allowPeers: [peer.info.instanceId] });
    const refusals = ears.listen('velomux:refusal', node);
    const stranger = (await WirePeer.listen()).faces(node);
    expect((await stranger.hello()).ok).to.equal(false);
    await peer.faces(node).hello();
    const anchor = node.createAnchor<number>();
    const { handle } = anchor;
    anchor.controller.cancel();
    expect((await peer.attach(handle)).ok).to.equal(false);
    expect(node.stats().attachesRefused).to.equal(1);
    expect(refusals.map(({ what, peer: who }) => [what, who])).to.deep.equal([
      ['hello', stranger.info.instanceId],
      ['attach', peer.info.instanceId],
    ]);
    expect(refusals[1]!.reason).to.include('not found');
    await stranger.close();
  });

  it('epochs that end are told with the streams that ended with them, theirs and ours', async () => {
    const node = await nodes.make({ host, connectionQueueBytes: 300_000 });
    const deaths = ears.listen('velomux:epoch:death', node);
    await peer.faces(node).hello();
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT, { epoch: 5n });
    await until('it lives', () => node.stats().liveSlots === 1);
    await peer.batch(0, () => {}, { epoch: 6n });
    await until('theirs', () => deaths.length === 1);
    expect(deaths[0]).to.include({ direction: 'in', peer: peer.info.instanceId, lane: 0, streams: 1 });
    await failure('ERR_SENDER_DROPPED', take(anchor, 1));

    peer.onAttach = () => accept({ routingSessionId: 4n, initialCredit: 200 });
    const sender = await node.attachAnchor<Uint8Array>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
    peer.pauseReading();
    // More than the sockets of both ends hold: a batch waits for admission, and with credit left the inlet stands behind it. Each list
    // is a turn of the lane in which nothing moved.
    const piece = new Uint8Array(100_000);
    let [records, still] = [-1, 0];
    while (still < 3) {
      while (sender.trySend(piece));
      await pause(20);
      const [row] = await node.streams();
      still = row!.records === records && row!.standing > 0 && row!.credit > 0 ? still + 1 : 0;
      records = row!.records;
    }
    peer.hangUp();
    await until('ours', () => deaths.length === 2);
    expect(deaths[1]).to.include({ direction: 'out', peer: peer.info.instanceId, lane: 0, streams: 1 });
    expect(deaths[1]!.reason).to.include('refused');
  });

  it('a silent sender is a watchdog event, also one that never opens its slot', async () => {
    const node = await nodes.make({ host, heartbeatIntervalMs: 30 });
    const firings = ears.listen('velomux:watchdog', node);
    await peer.faces(node).hello();
    const silent = node.createAnchor<number>();
    await peer.open(silent.handle, SLOT);
    await until('it fires', () => firings.length === 1);
    expect(firings[0]).to.include({ peer: peer.info.instanceId, lane: 0, slot: SLOT });
    const absent = node.createAnchor<number>();
    const answer = await peer.attach(absent.handle);
    await until('it fires again', () => firings.length === 2);
    expect(firings[1]).to.include({ peer: peer.info.instanceId, lane: 0, slot: undefined });
    expect(firings[1]!.session).to.equal(answer.ok && answer.value.routingSessionId);
    expect(node.stats().watchdogFirings).to.equal(2);
  });

  it('whoever subscribes when streams run already hears of their end', async () => {
    const pair = await nodes.pair(host);
    const { anchor, sender } = await openStream<number>(pair);
    const closes = ears.listen('velomux:stream:close', pair.producer);
    // Nothing begins meanwhile: the node finds out by itself.
    await pause(1_200);
    await sender.finalize();
    await readAll(anchor);
    await until('it came', () => closes.length === 1);
  });

  it('what a busy thread does not take is dropped and counted, and streams are not held up', async () => {
    const node = await nodes.make({ host });
    const refusals = ears.listen('velomux:refusal', node);
    await peer.faces(node).hello();
    const { anchor: first, sender } = await openStream<number>({ consumer: node, producer: node });
    const many = MAX_EVENTS_UNTAKEN + 100;
    // One batch, one turn of the lane: main takes nothing before all of it is handled.
    await peer.batch(0, (batch) => {
      for (let i = 0; i < many; i += 1) openRecord(batch, (i + 1) << 8, 1n, BigInt(i + 1));
    });
    await until('all are counted', () => node.stats().droppedUnknownSlot === many);
    await until('what there was room for came', () => refusals.length + node.stats().diagnosticsDropped === many);
    expect(refusals.length).to.be.at.most(MAX_EVENTS_UNTAKEN);
    expect(node.stats().diagnosticsDropped).to.be.at.least(100);
    // And it goes on from there.
    const before = refusals.length;
    await peer.batch(0, (batch) => openRecord(batch, 0x7_0000, 1n, 1n));
    await until('the next one comes', () => refusals.length === before + 1);
    await sender.finalize();
    await readAll(first);
  });
});

describe('events of a lane that dies', () => {
  const nodes = nodesOfSuite();
  const ears = new Ears();
  afterEach(() => ears.close());

  it('its death is told, with the reason', async () => {
    const other = await nodes.make({ host: 'inline' });
    const node = await nodes.make({ host: 'worker', worker: MORTAL });
    introduce(node, other);
    const deaths = ears.listen('velomux:lane:death', node);
    const { anchor } = await openStream<number>({ consumer: other, producer: node });
    kill(node.workerId, 0, 'throw');
    await until('it is told', () => deaths.length === 1);
    expect(deaths[0]).to.include({ node: node.instanceId, worker: 0 });
    expect(deaths[0]!.reason).to.include('told to throw');
    anchor.controller.cancel();
  });
});
