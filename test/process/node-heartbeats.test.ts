// Heartbeats and the watchdog between real nodes: what goes over the wire and when, who is given up and who is not, and what becomes
// of processes that compute, stand still or are killed.

import { performance } from 'node:perf_hooks';
import { expect } from 'chai';
import { Registry } from 'prom-client';
import {
  type StreamAnchor,
  StreamAnchorHandle,
  type StreamSender,
  type Velo,
  type VeloOptions,
} from '../../lib/index.js';
import { registerMetrics } from '../../lib/metrics/register.js';
import {
  CLOSE_UNKNOWN_SLOT,
  LIFECYCLE_CANCEL,
  RECORD_CLOSE_SLOT,
  RECORD_DATA,
  RECORD_LIFECYCLE,
} from '../../lib/wire/batch.js';
import { streamSignal } from '../../lib/wire/control.js';
import { FINALIZED_BYTES, HEARTBEAT_BYTES, ITEM_PREFIX } from '../../lib/wire/frame.js';
import { BATCH_HANDLERS, HANDLER_STREAM_CANCEL } from '../../lib/wire/names.js';
import { NodeProcess } from '../support/node-process.js';
import {
  failure,
  nodesOfSuite,
  openStream,
  pause,
  range,
  readAll,
  sendRange,
  streamSuite,
  take,
  until,
} from '../support/nodes.js';
import { Scrape } from '../support/scrape.js';
import { accept, dataRecord, openRecord, recordsOf, WirePeer } from '../support/wire-peer.js';

const SLOT = 0x100;
const ITEM_7 = Uint8Array.of(...ITEM_PREFIX, 7);
const FIRINGS = 'velo_streaming_heartbeat_watchdog_firings_total';
/** Windows in a row that may pass in silence. */
const WINDOWS = 3;

function isHeartbeat({ body }: { readonly body: Uint8Array }): boolean {
  return Buffer.from(body).equals(HEARTBEAT_BYTES);
}

/** Computes, as a decode loop does that does not yield. */
function compute(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

streamSuite('heartbeats of a sender', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    node = await nodes.make({ host });
    node.registerPeer(peer.info);
    peer.faces(node);
  });
  afterEach(() => peer.close());

  let session = 0n;
  async function attach(heartbeatIntervalMs: number, from = node): Promise<StreamSender<unknown>> {
    session += 1n;
    peer.onAttach = () => accept({ routingSessionId: session, heartbeatIntervalMs });
    return await from.attachAnchor(StreamAnchorHandle.pack(peer.workerId, session, 'spsc'));
  }

  const beatsOf = (slot: number) =>
    recordsOf(peer, RECORD_DATA).filter((r) => r.slot === slot && isHeartbeat(r)).length;
  /** Slot ids of this node, in the order in which they were opened. */
  const slotOf = (index: number) => index << 8;

  it('AH-02 each sender beats at the interval of its own answer, until finalize, detach or drop', async () => {
    const from = performance.now();
    const senders = [await attach(40), await attach(160), await attach(40), await attach(60_000)];
    await until('the slow one beat four times', () => beatsOf(slotOf(1)) >= 4);
    const passed = performance.now() - from;
    // Timers are never early, so there is a hard limit above; below, a machine may be slow, but it keeps the order.
    expect(beatsOf(slotOf(0))).to.be.within(beatsOf(slotOf(1)) + 1, Math.floor(passed / 40));
    expect(beatsOf(slotOf(1))).to.be.at.most(Math.floor(passed / 160));
    expect(beatsOf(slotOf(3))).to.equal(0);
    await senders[0]!.finalize();
    await senders[1]!.detach();
    await senders[2]!.close();
    await until('the slots are closed', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 3);
    const before = recordsOf(peer, RECORD_DATA).length;
    await pause(500);
    expect(recordsOf(peer, RECORD_DATA)).to.have.length(before);
    await senders[3]!.close();
  });

  it('vectors: the heartbeat of a whole stream', async () => {
    const manual = await nodes.make({ host, flushPolicy: 'manual' });
    manual.registerPeer(peer.info);
    peer.faces(manual);
    const sender = await attach(50, manual);
    await sender.send('hello');
    await sender.send(42);
    manual.flushBatch();
    const batches = () => peer.requests.filter(({ handler }) => handler === BATCH_HANDLERS[0]);
    await until('open, items and heartbeat came', () => batches().length >= 3);
    expect(Buffer.from(batches()[2]!.payload).toString('hex')).to.equal(
      '020000010000000000000001000000020000000000000000030000000aa9486561727462656174',
    );
    await sender.close();
  });

  it('an interval of 0 is taken for the shortest there is; beats spend credit, and a grant brings more', async () => {
    const sender = await attach(0);
    await until('the window is full of beats', () => beatsOf(0) === 32);
    await pause(100);
    expect(beatsOf(0)).to.equal(32);
    expect(node.stats().withheldRecords, 'none waits for credit').to.equal(0);
    await peer.batch(0, (batch) => batch.creditUpdate(0, 3));
    await until('more beats came', () => beatsOf(0) === 35);
    await sender.close();
  });

  it('a sender that was cancelled by message alone beats no more', async () => {
    const sender = await attach(10);
    await until('it beats', () => beatsOf(0) > 0);
    const { senderStreamId } = peer.attaches[0]!.streamCancelHandle;
    await peer.fire(HANDLER_STREAM_CANCEL, streamSignal.encodeJson({ senderStreamId }));
    await until('the sender heard', () => sender.cancelled);
    const before = beatsOf(0);
    await pause(200);
    // One may have been on its way.
    expect(beatsOf(0)).to.be.at.most(before + 1);
    await sender.close();
  });
});

streamSuite('the watchdog of a receiver', (host, nodes) => {
  let peer: WirePeer;
  beforeEach(async () => {
    peer = await WirePeer.listen();
  });
  afterEach(() => peer.close());

  async function anchorOf(heartbeatIntervalMs: number, initialCredit = 32) {
    const node = await nodes.make({ host, mux: { initialCredit } });
    node.registerPeer(peer.info);
    peer.faces(node);
    const anchor = node.createAnchor<number>({ heartbeatIntervalMs });
    return { node, anchor };
  }

  const data = (frameSeq: number, ...frames: Uint8Array[]) =>
    peer.batch(0, (batch) => {
      frames.forEach((frame, i) => {
        dataRecord(batch, SLOT, frameSeq + i, frame);
      });
    });

  it('AH-03 a silent peer: dropped behind what it sent, cancelled by session, removed and counted', async () => {
    const { node, anchor } = await anchorOf(60);
    const { routingSessionId } = await peer.open(anchor.handle, SLOT);
    const from = performance.now();
    await data(1, ITEM_7);
    const { items, error } = await readAll(anchor);
    expect(performance.now() - from).to.be.at.least(WINDOWS * 60);
    expect(items).to.deep.equal([7]);
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
    await until('the cancel came', () => recordsOf(peer, RECORD_LIFECYCLE).length > 0);
    expect(
      recordsOf(peer, RECORD_LIFECYCLE).map(({ slot, session, action }) => ({ slot, session, action })),
    ).to.deep.equal([{ slot: SLOT, session: routingSessionId, action: LIFECYCLE_CANCEL }]);
    expect(node.stats()).to.include({ watchdogFirings: 1, anchors: 0, liveSlots: 0 });
    const registry = new Registry();
    registerMetrics(node, registry);
    expect((await Scrape.of(registry)).value(FIRINGS)).to.equal(1);
    // What it still says is for nobody.
    await data(2, ITEM_7);
    await until('it was dropped', () => node.stats().droppedClosedSlot === 1);
  });

  it('a peer that beats lives, with either kind of heartbeat, and so does one that sends', async () => {
    const { node, anchor } = await anchorOf(200);
    const signs = [
      (seq: number) => data(seq, HEARTBEAT_BYTES),
      (seq: number) => peer.batch(0, (batch) => batch.slotHeartbeat(SLOT, seq)),
      (seq: number) => data(seq, ITEM_7),
    ];
    await peer.open(anchor.handle, SLOT);
    const reading = readAll(anchor);
    for (let seq = 1; seq <= 18; seq += 1) {
      await pause(80);
      await signs[seq % 3]!(seq);
    }
    await data(19, FINALIZED_BYTES);
    expect(await reading).to.deep.equal({ items: Array.from({ length: 6 }, () => 7), error: undefined });
    expect(node.stats().watchdogFirings).to.equal(0);
  });

  it('AH-06 a peer that has spent its window is not given up; once its records are read, it is', async () => {
    const { node, anchor } = await anchorOf(50, 8);
    await peer.open(anchor.handle, SLOT);
    await data(1, ...Array.from({ length: 8 }, () => ITEM_7));
    await pause(20 * 50);
    expect(node.stats()).to.include({ watchdogFirings: 0, liveSlots: 1 });
    const { items, error } = await readAll(anchor);
    expect(items).to.have.length(8);
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
    expect(node.stats().watchdogFirings).to.equal(1);
  });

  it('a peer that attached and never opens: its reader hears, it is cancelled by message, and comes too late then', async () => {
    const { node, anchor } = await anchorOf(60);
    const from = performance.now();
    const answer = await peer.attach(anchor.handle, { sessionId: 99n });
    if (!answer.ok) throw new Error(answer.reason);
    const { error } = await readAll(anchor);
    expect(performance.now() - from).to.be.at.least(WINDOWS * 60);
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
    await until('the cancel came', () => peer.requests.some(({ handler }) => handler === HANDLER_STREAM_CANCEL));
    const cancel = peer.requests.find(({ handler }) => handler === HANDLER_STREAM_CANCEL)!;
    expect(streamSignal.decodeJson(cancel.payload).senderStreamId).to.equal(99n);
    expect(node.stats()).to.include({ watchdogFirings: 1, anchors: 0 });
    const registry = new Registry();
    registerMetrics(node, registry);
    expect((await Scrape.of(registry)).value(FIRINGS)).to.equal(1);
    await peer.batch(0, (batch) => openRecord(batch, SLOT, anchor.handle.local, answer.value.routingSessionId));
    await until('it was refused', () => recordsOf(peer, RECORD_CLOSE_SLOT).length > 0);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]).to.include({ slot: SLOT, closeReason: CLOSE_UNKNOWN_SLOT });
  });

  it('a reader that is not there yet finds the end of both kinds', async () => {
    const { node, anchor } = await anchorOf(30);
    await peer.open(anchor.handle, SLOT);
    await data(1, ITEM_7);
    const unopened = node.createAnchor<number>({ heartbeatIntervalMs: 30 });
    await peer.attach(unopened.handle);
    await until('both were given up', () => node.stats().anchors === 0);
    expect(node.stats().watchdogFirings).to.equal(2);
    const endOf = async (of: StreamAnchor<number>) => {
      const { items, error } = await readAll(of);
      return { items, code: error?.code };
    };
    expect(await endOf(anchor), 'AH-07').to.deep.equal({ items: [], code: 'ERR_SENDER_DROPPED' });
    expect(await endOf(unopened)).to.deep.equal({ items: [], code: 'ERR_SENDER_DROPPED' });
    expect(node.stats().anchors).to.equal(0);
  });

  it('a slow opening within the windows is an ordinary one', async () => {
    const { node, anchor } = await anchorOf(400);
    const answer = await peer.attach(anchor.handle);
    if (!answer.ok) throw new Error(answer.reason);
    await pause(700);
    await peer.batch(0, (batch) => openRecord(batch, SLOT, anchor.handle.local, answer.value.routingSessionId));
    for (let seq = 1; seq <= 10; seq += 1) {
      await pause(100);
      await data(seq, HEARTBEAT_BYTES);
    }
    await data(11, ITEM_7, FINALIZED_BYTES);
    expect(await readAll(anchor)).to.deep.equal({ items: [7], error: undefined });
    expect(node.stats().watchdogFirings).to.equal(0);
  });
});

streamSuite('idle streams between nodes', (host, nodes) => {
  const beats = { heartbeatIntervalMs: 200 };

  it('live for many windows, and end in order', async () => {
    const pair = await nodes.pair(host, beats);
    const { anchor, sender } = await openStream<number>(pair);
    const other = await openStream<number>(pair);
    const reading = readAll(anchor);
    await pause(3_000);
    await sendRange(sender, 0, 5);
    await sender.finalize();
    expect(await reading).to.deep.equal({ items: range(0, 5), error: undefined });
    other.anchor.controller.cancel();
    await until('the other sender heard', () => other.sender.cancelled);
    await other.sender.close();
    expect(pair.consumer.stats().watchdogFirings).to.equal(0);
    expect(pair.producer.stats().recordsSent.data).to.be.greaterThan(10);
  });

  it('a thousand of them live side by side', async () => {
    const pair = await nodes.pair(host, { heartbeatIntervalMs: 500 });
    const streams = await Promise.all(range(0, 1_000).map(() => openStream<number>(pair)));
    const reading = streams.map(({ anchor }) => readAll(anchor));
    await pause(2_500);
    expect(pair.consumer.stats()).to.include({ watchdogFirings: 0, liveSlots: 1_000 });
    await Promise.all(
      streams.map(async ({ sender }, i) => {
        await sender.send(i);
        await sender.finalize();
      }),
    );
    expect(await Promise.all(reading)).to.deep.equal(range(0, 1_000).map((i) => ({ items: [i], error: undefined })));
  });
});

describe('a lane whose thread was busy (inline lanes)', () => {
  const nodes = nodesOfSuite();

  it('looks into its sockets before it acts on a last miss', async () => {
    const window = 400;
    const peer = await WirePeer.listen();
    const node = await nodes.make({ host: 'inline', heartbeatIntervalMs: window });
    node.registerPeer(peer.info);
    const anchor = node.createAnchor<number>();
    await peer.faces(node).open(anchor.handle, SLOT);
    await until('the slot is open', () => node.stats().liveSlots === 1);
    // Two misses. The heartbeat reaches the socket now; the third window ends before this thread can read it.
    await pause(2.5 * window);
    const beaten = peer.batch(0, (batch) => dataRecord(batch, SLOT, 1, HEARTBEAT_BYTES));
    compute(window);
    await beaten;
    await pause(window / 4);
    expect(node.stats()).to.include({ watchdogFirings: 0, liveSlots: 1 });
    expect((await readAll(anchor)).error?.code).to.equal('ERR_SENDER_DROPPED');
    await peer.close();
  });
});

describe('threads and processes that stand still (piscina lanes)', () => {
  const nodes = nodesOfSuite();
  const host = 'piscina';
  const children: NodeProcess[] = [];
  afterEach(() => Promise.all(children.splice(0).map((child) => child.kill())));

  async function childOf(options: VeloOptions, knows: Velo): Promise<NodeProcess> {
    const child = await NodeProcess.start(options);
    children.push(child);
    await child.meet(knows);
    return child;
  }

  it('a manual producer that computes for seconds is not given up, nor is it by a consumer that computes', async () => {
    const pair = await nodes.pair(host, { heartbeatIntervalMs: 100 }, { flushPolicy: 'manual' });
    const { anchor, sender } = await openStream<number>(pair);
    // Both main threads are this one: from here on only lanes run.
    compute(2_000);
    expect(pair.consumer.stats().watchdogFirings).to.equal(0);
    expect(pair.producer.stats().recordsSent.data).to.be.greaterThan(WINDOWS);
    await sender.send(1);
    pair.producer.flushBatch();
    expect(await take(anchor, 1)).to.deep.equal([1]);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
  });

  it('a sender whose process is killed ends its readers as dropped, behind what it sent', async () => {
    const consumer = await nodes.make({ host, heartbeatIntervalMs: 100 });
    const child = await childOf({ host: 'inline' }, consumer);
    const anchors = range(0, 3).map(() => consumer.createAnchor<number>());
    for (const { handle } of anchors) await (await child.attach(handle)).send(1, 2, 3);
    const reading = anchors.map((anchor) => readAll(anchor));
    // Ten windows in which it is only idle.
    await pause(1_000);
    expect(consumer.stats().watchdogFirings).to.equal(0);
    await child.kill();
    for (const { items, error } of await Promise.all(reading)) {
      expect(items).to.deep.equal([1, 2, 3]);
      expect(error?.code).to.equal('ERR_SENDER_DROPPED');
    }
    expect(consumer.stats()).to.include({ watchdogFirings: 3, anchors: 0, liveSlots: 0 });
  });

  it('AH-07 a producer process that is killed behind a slow reader is given up on time, and what was not read goes with it', async () => {
    const consumer = await nodes.make({ host, heartbeatIntervalMs: 100 });
    const child = await childOf({ host: 'inline' }, consumer);
    const anchor = consumer.createAnchor<number>();
    const sender = await child.attach(anchor.handle);
    await sender.send(1, 2, 3, 4, 5);
    const items = anchor[Symbol.asyncIterator]();
    const next = () => items.next().then(({ value }) => value as number);
    expect([await next(), await next()]).to.deep.equal([1, 2]);
    await until('all five came', () => consumer.stats().recordsInBatchesReceived >= 6);
    await child.kill();
    await until('it was given up', () => consumer.stats().anchors === 0);
    await failure('ERR_SENDER_DROPPED', next());
    expect(consumer.stats()).to.include({ watchdogFirings: 1, liveSlots: 0 });
  });

  it('a consumer that was stopped for many windows finds the heartbeats in its sockets', async () => {
    const producer = await nodes.make({ host });
    const child = await childOf({ host, heartbeatIntervalMs: 100 }, producer);
    const { sender, result } = await child.stream(producer, {});
    await sender.send(1);
    await pause(300);
    for (let i = 0; i < 2; i += 1) {
      child.freeze();
      await pause(1_500);
      child.thaw();
      await pause(500);
    }
    await sender.send(2);
    await sender.finalize();
    expect(await result()).to.deep.equal({ items: [1, 2], end: 'finalized' });
  });

  it('a sender that was stopped for a window lives; one that was for many is dropped, and hears of it', async () => {
    const consumer = await nodes.make({ host, heartbeatIntervalMs: 1_000 });
    const child = await childOf({ host }, consumer);
    const patient = consumer.createAnchor<number>();
    const strict = consumer.createAnchor<number>({ heartbeatIntervalMs: 100 });
    const kept = await child.attach(patient.handle);
    const lost = await child.attach(strict.handle);
    await lost.send(1);
    expect(await take(strict, 1)).to.deep.equal([1]);
    const reading = readAll(strict);
    child.freeze();
    await pause(1_200);
    child.thaw();
    expect((await reading).error?.code).to.equal('ERR_SENDER_DROPPED');
    await kept.send(2);
    await kept.finalize();
    expect(await readAll(patient)).to.deep.equal({ items: [2], error: undefined });
    while (!(await lost.state()).cancelled) await pause(5);
    expect(consumer.stats()).to.include({ watchdogFirings: 1, anchors: 0 });
  });

  it('a bind that its sender did not open is no concern of a node that closes', async () => {
    const peer = await WirePeer.listen();
    const node = await nodes.make({ host, heartbeatIntervalMs: 50 });
    node.registerPeer(peer.info);
    const anchor = node.createAnchor<number>();
    await peer.faces(node).attach(anchor.handle);
    await node.close();
    expect((await readAll(anchor)).error?.code).to.equal('ERR_SENDER_DROPPED');
    await pause(300);
    expect(node.stats().watchdogFirings).to.equal(0);
    await failure('ERR_CLOSED', () => node.createAnchor());
    await peer.close();
  });
});
