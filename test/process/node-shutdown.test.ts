// How a node goes down: what its close waits for and what it does not, in which order streams end, what it reports, and that a
// deadline is one.

import { expect } from 'chai';
import { amHandler, type StreamAnchor, unaryHandler, type Velo } from '../../lib/index.js';
import {
  failure,
  holdsNothing,
  introduce,
  nodesOfSuite,
  openStream,
  type Pair,
  pause,
  range,
  readAll,
  sendRange,
  streamSuite,
  take,
  until,
  within,
} from '../support/nodes.js';
import { WirePeer } from '../support/wire-peer.js';

const FOREVER = { timeoutMs: Number.POSITIVE_INFINITY };
const CLEAN = { drained: true, abandonedHandlers: 0, endedAnchors: 0, endedSenders: 0 };
const SOON_MS = 5_000;
const NO_BYTES = new Uint8Array(0);
/** Above what a ring takes inline: counted by the lane while its client is busy. */
const LARGE = new Uint8Array(64 * 1024);

/** A handler that runs until it is let go. */
class Held {
  readonly started: number[] = [];
  private readonly waiting: (() => void)[] = [];

  constructor(node: Velo, name: string, ordered: boolean) {
    const run = async ([value = 0]: Uint8Array) => {
      this.started.push(value);
      await new Promise<void>((resolve) => this.waiting.push(resolve));
      return Uint8Array.of(value);
    };
    node.registerHandler(name, unaryHandler(run, { ordered }));
  }

  letGo(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}

function isPending(promise: Promise<unknown>): Promise<boolean> {
  return Promise.race([
    promise.then(
      () => false,
      () => false,
    ),
    pause(100).then(() => true),
  ]);
}

streamSuite('the drain of a closing node', (host, nodes) => {
  let peer: WirePeer | undefined;
  afterEach(() => peer?.close());

  it('AY-07 waits for a handler that runs, and its answer arrives', async () => {
    const { consumer: caller, producer: node } = await nodes.pair(host);
    const held = new Held(node, 'slow', false);
    const calling = caller.unary(node.peerInfo, 'slow', Uint8Array.of(7));
    await until('the handler runs', () => held.started.length === 1);
    const closing = node.close(FOREVER);
    expect(await isPending(closing)).to.equal(true);
    held.letGo();
    expect(await calling).to.deep.equal(Uint8Array.of(7));
    expect(await within(SOON_MS, closing)).to.deep.equal(CLEAN);
  });

  it('AY-07 what waits in an ordered lane counts as in flight, and every answer arrives', async () => {
    const { consumer: caller, producer: node } = await nodes.pair(host);
    const held = new Held(node, 'slow', true);
    const calls = range(1, 5).map((i) => caller.unary(node.peerInfo, 'slow', Uint8Array.of(i)));
    await until('the first runs', () => held.started.length === 1);
    // A further message of the same connection that has been served: what was sent before it stands in the ordered lane.
    node.registerHandler(
      'fence',
      unaryHandler(() => NO_BYTES),
    );
    await caller.unary(node.peerInfo, 'fence');
    const closing = node.close(FOREVER);
    for (const i of range(1, 5)) {
      await until(`handler ${i} runs`, () => held.started.length === i);
      expect(await isPending(closing)).to.equal(true);
      held.letGo();
    }
    expect(await Promise.all(calls)).to.deep.equal(range(1, 5).map((i) => Uint8Array.of(i)));
    expect(held.started).to.deep.equal([1, 2, 3, 4]);
    expect(await within(SOON_MS, closing)).to.deep.equal(CLEAN);
  });

  it('AY-07 answers that find the ring full arrive too', async () => {
    const { consumer: caller, producer: node } = await nodes.pair(host, {}, { ringBytes: 1024 });
    const held = new Held(node, 'slow', false);
    const calls = range(0, 200).map((i) => caller.unary(node.peerInfo, 'slow', Uint8Array.of(i)));
    await until('all of them run', () => held.started.length === 200);
    const closing = node.close(FOREVER);
    held.letGo();
    expect(await within(SOON_MS, closing)).to.deep.equal(CLEAN);
    expect(await within(SOON_MS, Promise.all(calls))).to.deep.equal(range(0, 200).map((i) => Uint8Array.of(i)));
  });

  it('AY-07 an answer that its connection has no room for counts as in flight', async () => {
    const node = await nodes.make({ host });
    const reader = (await WirePeer.listen()).faces(node);
    peer = reader;
    let runs = 0;
    node.registerHandler(
      'large',
      unaryHandler(() => {
        runs += 1;
        return new Uint8Array(1024 * 1024);
      }),
    );
    await reader.hello();
    for (const socket of reader.dialedHere) socket.pause();
    // More than what a connection and the kernel hold for a peer that does not read.
    const calls = range(0, 40).map(() => reader.call('large'));
    await until('all were handled, and answers wait for room', () => runs === 40 && node.stats().sendBackpressure > 0);
    const closing = node.close(FOREVER);
    expect(await isPending(closing)).to.equal(true);
    node.createAnchor().controller.cancel(); // no teardown yet
    for (const socket of reader.dialedHere) socket.resume();
    expect((await within(SOON_MS, Promise.all(calls))).map(({ payload }) => payload.length)).to.deep.equal(
      calls.map(() => 1024 * 1024),
    );
    expect(await within(SOON_MS, closing)).to.deep.equal(CLEAN);
  });

  it('the node calls, sends, attaches and is read as before while it drains', async () => {
    const { consumer: other, producer: node } = await nodes.pair(host);
    const held = new Held(node, 'slow', false);
    const heard: number[] = [];
    other.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    other.registerHandler(
      'note',
      amHandler(([value]) => heard.push(value!)),
    );
    const { anchor, sender } = await openStream<number>({ consumer: node, producer: other });
    const calling = other.unary(node.peerInfo, 'slow');
    await until('the handler runs', () => held.started.length === 1);
    const closing = node.close(FOREVER);
    expect(await node.unary(other.peerInfo, 'echo', Uint8Array.of(5))).to.deep.equal(Uint8Array.of(5));
    await node.send(other.peerInfo, 'note', Uint8Array.of(6));
    await until('the message came', () => heard.length === 1);
    const out = await openStream<number>({ consumer: other, producer: node });
    await sendRange(out.sender, 0, 10);
    await out.sender.finalize();
    expect(await readAll(out.anchor)).to.deep.equal({ items: range(0, 10), error: undefined });
    const local = node.createAnchor<number>();
    const localSender = await node.attachAnchor<number>(local.handle);
    await localSender.send(1);
    await localSender.finalize();
    expect((await readAll(local)).items).to.deep.equal([1]);
    await sendRange(sender, 0, 100);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: range(0, 100), error: undefined });
    await failure('ERR_PEER_SHUTTING_DOWN', other.unary(node.peerInfo, 'slow'));
    held.letGo();
    await calling;
    expect(await within(SOON_MS, closing)).to.deep.equal(CLEAN);
    await failure('ERR_CLOSED', node.unary(other.peerInfo, 'echo'));
    await failure('ERR_CLOSED', () => node.createAnchor());
    await failure('ERR_CLOSED', () => node.beginDrain());
  });

  it('waits for ever when it was told to, until a second close shortens that', async () => {
    const { consumer: caller, producer: node } = await nodes.pair(host);
    const held = new Held(node, 'slow', true);
    const calls = range(0, 3).map((i) => caller.unary(node.peerInfo, 'slow', Uint8Array.of(i)));
    const outcomes = Promise.all(calls.map((call) => failure('ERR_CLOSED', call)));
    await until('the first runs', () => held.started.length === 1);
    node.registerHandler(
      'fence',
      unaryHandler(() => NO_BYTES),
    );
    await caller.unary(node.peerInfo, 'fence');
    const closing = node.close(FOREVER);
    expect(node.close(FOREVER)).to.equal(closing);
    expect(await isPending(closing)).to.equal(true);
    expect(node.close({ timeoutMs: 20 })).to.equal(closing);
    expect(node.close({ timeoutMs: 60_000 })).to.equal(closing);
    expect(await within(SOON_MS, closing)).to.deep.equal({ ...CLEAN, drained: false, abandonedHandlers: 3 });
    // What had not begun never does, and nobody is answered.
    held.letGo();
    await pause(20);
    expect(held.started).to.deep.equal([0]);
    expect(caller.stats().pendingCalls).to.equal(3);
    await caller.close();
    await outcomes;
  });

  it('a node with nothing to do closes, and reports that', async () => {
    const node = await nodes.make({ host, lanes: 3 });
    expect(await within(SOON_MS, node.close(FOREVER))).to.deep.equal(CLEAN);
    expect(await node.close()).to.deep.equal(CLEAN);
    await node[Symbol.asyncDispose]();
  });

  it('AY-03 a timed close is over in time while a stream flows', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    const sending = (async () => {
      for (let i = 0; ; i += 1) await sender.send(i);
    })();
    const outcome = failure('ERR_CHANNEL_CLOSED', sending);
    const reading = readAll(anchor);
    await until('it flows', () => consumer.stats().batchesReceived > 10);
    const report = await within(SOON_MS, consumer.close({ timeoutMs: 500 }));
    expect(report).to.deep.equal({ ...CLEAN, endedAnchors: 1 });
    expect((await reading).error?.code).to.equal('ERR_SENDER_DROPPED');
    await outcome;
  });

  for (const closes of ['consumer', 'producer'] as const) {
    it(`AY-04 a quiet open stream does not hold the ${closes}, though it would wait for ever`, async () => {
      const pair = await nodes.pair(host);
      const { anchor, sender } = await openStream<number>(pair);
      const burst = sendRange(sender, 0, 256);
      expect(await take(anchor, 256)).to.deep.equal(range(0, 256));
      await burst;
      const report = await within(SOON_MS, pair[closes].close(FOREVER));
      const ended = closes === 'consumer' ? { endedAnchors: 1 } : { endedSenders: 1 };
      expect(report).to.deep.equal({ ...CLEAN, ...ended });
    });
  }
});

describe('the drain of a node whose thread was busy', () => {
  const nodes = nodesOfSuite();

  it('AY-07 a message that waits for the thread counts as in flight', async () => {
    const node = await nodes.make({ host: 'piscina', messageQueueBytes: 1 });
    const caller = await nodes.make({ host: 'piscina' });
    introduce(node, caller);
    // Not done before a mark could have come back.
    node.registerHandler(
      'length',
      unaryHandler(async (payload) => {
        await pause(50);
        return Uint8Array.of(payload.length / 1024);
      }),
    );
    await caller.unary(node.peerInfo, 'length');
    const first = caller.unary(node.peerInfo, 'length', LARGE);
    const second = failure('ERR_HANDLER_FAILED', caller.unary(node.peerInfo, 'length', LARGE));
    // The second finds the first in the queue: so the first has been admitted when it is counted, and nobody has taken it.
    const until = performance.now() + SOON_MS;
    while (node.stats().refusedQueueFull === 0 && performance.now() < until);
    expect(node.stats().refusedQueueFull).to.equal(1);
    const closing = node.close(FOREVER);
    expect(await first).to.deep.equal(Uint8Array.of(64));
    await second;
    expect(await within(SOON_MS, closing)).to.deep.equal(CLEAN);
  });

  it('a message that waits for the thread is counted as abandoned when there is no time for it', async () => {
    const node = await nodes.make({ host: 'piscina', messageQueueBytes: 1 });
    const caller = await nodes.make({ host: 'piscina' });
    introduce(node, caller);
    let runs = 0;
    node.registerHandler(
      'any',
      unaryHandler(() => {
        runs += 1;
      }),
    );
    await caller.unary(node.peerInfo, 'any');
    // From an immediate on, timers come before what other threads say: the deadline is over before the thread takes anything.
    await new Promise<void>((resolve) => setImmediate(resolve));
    const first = failure('ERR_CLOSED', caller.unary(node.peerInfo, 'any', LARGE));
    const second = failure('ERR_HANDLER_FAILED', caller.unary(node.peerInfo, 'any', LARGE));
    const until = performance.now() + SOON_MS;
    while (node.stats().refusedQueueFull === 0 && performance.now() < until);
    expect(node.stats().refusedQueueFull).to.equal(1);
    const closing = node.close({ timeoutMs: 0 });
    const passed = performance.now() + 20;
    while (performance.now() < passed);
    expect(await within(SOON_MS, closing)).to.deep.equal({ ...CLEAN, drained: false, abandonedHandlers: 1 });
    expect(runs).to.equal(1);
    await second;
    await caller.close();
    await first;
  });
});

streamSuite('streams of a closing node', (host, nodes) => {
  const SMALL = { mux: { initialCredit: 4 } };

  /** Streams that are finalized while most of what they carry waits for credit. */
  async function finalizedBehindCredit(pair: Pair, count: number): Promise<StreamAnchor<number>[]> {
    return await Promise.all(
      range(0, count).map(async () => {
        const { anchor, sender } = await openStream<number>(pair);
        await sendRange(sender, 0, 40);
        await sender.finalize();
        return anchor;
      }),
    );
  }

  it('AY-08 what was finalized before the close arrives whole, and as finalized', async () => {
    const pair = await nodes.pair(host, SMALL);
    const anchors = await finalizedBehindCredit(pair, 8);
    await until('most of it waits for credit', () => pair.producer.stats().withheldRecords === 8 * 36);
    const closing = pair.producer.close();
    expect(await isPending(closing)).to.equal(true);
    const read = await Promise.all(anchors.map(readAll));
    expect(read).to.deep.equal(anchors.map(() => ({ items: range(0, 40), error: undefined })));
    expect(await within(SOON_MS, closing)).to.deep.equal(CLEAN);
    await until('nothing is left', () => holdsNothing(pair.consumer));
  });

  it('AY-08 its own readers are retired last: a sender that finishes meanwhile is not dropped', async () => {
    const { consumer: other, producer: node } = await nodes.pair(host, SMALL, SMALL);
    const incoming = await openStream<number>({ consumer: node, producer: other });
    const [slow] = await finalizedBehindCredit({ consumer: other, producer: node }, 1);
    const reading = readAll(incoming.anchor);
    const closing = node.close();
    await until('the teardown has begun', () => {
      try {
        node.createAnchor().controller.cancel();
        return false;
      } catch {
        return true;
      }
    });
    await sendRange(incoming.sender, 0, 20);
    await incoming.sender.finalize();
    expect(await reading).to.deep.equal({ items: range(0, 20), error: undefined });
    expect(await isPending(closing)).to.equal(true);
    expect(await readAll(slow!)).to.deep.equal({ items: range(0, 40), error: undefined });
    expect(await within(SOON_MS, closing)).to.deep.equal(CLEAN);
  });

  it('what a reader does not take in time is dropped, and its reader is told', async () => {
    const pair = await nodes.pair(host, SMALL);
    const [anchor] = await finalizedBehindCredit(pair, 1);
    const report = await within(SOON_MS, pair.producer.close({ timeoutMs: 300 }));
    expect(report).to.deep.equal({ ...CLEAN, endedSenders: 1 });
    const { items, error } = await readAll(anchor!);
    expect(items).to.deep.equal(range(0, 4));
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
  });

  it('a second close shortens a teardown too', async () => {
    const pair = await nodes.pair(host, SMALL);
    nodes.keep(await finalizedBehindCredit(pair, 1));
    const closing = pair.producer.close({ timeoutMs: 60_000 });
    expect(await isPending(closing)).to.equal(true);
    void pair.producer.close({ timeoutMs: 0 });
    expect(await within(SOON_MS, closing)).to.deep.equal({ ...CLEAN, endedSenders: 1 });
  });

  it('AY-09 every stream that had not ended is dropped for its reader, cancelled for its sender, and counted', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const open = await Promise.all(range(0, 5).map(() => openStream<number>({ consumer, producer })));
    const finished = await openStream<number>({ consumer, producer });
    const unattached = consumer.createAnchor<number>();
    const local = consumer.createAnchor<number>();
    const localSender = await consumer.attachAnchor<number>(local.handle);
    await localSender.send(9);
    for (const { sender } of open) await sendRange(sender, 0, 3);
    await finished.sender.send(1);
    await finished.sender.finalize();
    await until('all of it is there', () => consumer.stats().recordsInBatchesReceived >= 5 * 4 + 4);
    const report = await consumer.close();
    expect(report).to.deep.equal({ ...CLEAN, endedAnchors: 6 });
    for (const { anchor, sender } of open) {
      const { items, error } = await readAll(anchor);
      expect(items).to.deep.equal([0, 1, 2]);
      expect(error?.code).to.equal('ERR_SENDER_DROPPED');
      await until('its sender hears', () => sender.cancelled);
      await failure('ERR_CHANNEL_CLOSED', sender.send(1));
      await sender.close();
    }
    expect(await readAll(finished.anchor)).to.deep.equal({ items: [1], error: undefined });
    expect(await readAll(unattached)).to.deep.equal({ items: [], error: undefined });
    const { items, error } = await readAll(local);
    expect(items).to.deep.equal([9]);
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
    await failure('ERR_CHANNEL_CLOSED', localSender.send(1));
    expect(consumer.stats()).to.include({ anchors: 0, liveSlots: 0 });
    await until('the producer holds nothing', () => producer.stats().liveSlots === 0);
  });

  it('counts the senders that were open', async () => {
    const pair = await nodes.pair(host);
    const open = await Promise.all(range(0, 3).map(() => openStream<number>(pair)));
    await open[0]!.sender.finalize();
    expect(await pair.producer.close()).to.deep.equal({ ...CLEAN, endedSenders: 2 });
    expect((await readAll(open[0]!.anchor)).error).to.equal(undefined);
    for (const { anchor } of open.slice(1)) expect((await readAll(anchor)).error?.code).to.equal('ERR_SENDER_DROPPED');
  });
});
