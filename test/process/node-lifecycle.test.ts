// How streams end and what each end leaves behind: cancel, stop, finalize, detach, drop, from either side, between two nodes
// and on one.

import { expect } from 'chai';
import { customCodec, type StreamSender, unaryHandler } from '../../lib/index.js';
import {
  failure,
  holdsNothing,
  openStream,
  pause,
  range,
  readAll,
  sendRange,
  streamSuite,
  take,
  until,
} from '../support/nodes.js';

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}

async function seesCancel(sender: StreamSender<number>): Promise<void> {
  await aborted(sender.cancelSignal);
  expect(sender.cancelled).to.equal(true);
  expect(sender.stopped).to.equal(true);
  expect(sender.stopSignal.aborted).to.equal(true);
  await failure('ERR_CHANNEL_CLOSED', sender.send(1));
  await failure('ERR_CHANNEL_CLOSED', () => sender.trySend(1));
  await failure('ERR_CHANNEL_CLOSED', sender.sendErr('late'));
  await failure('ERR_CHANNEL_CLOSED', sender.ready());
  await sender.close();
}

/** The sender of a node that is closed. */
async function seesEnd(sender: StreamSender<number>): Promise<void> {
  expect(sender.cancelled).to.equal(true);
  await failure('ERR_CLOSED', () => sender.trySend(1));
  await failure('ERR_CLOSED', sender.send(1));
  await failure('ERR_CLOSED', sender.sendErr('late'));
  await failure('ERR_CLOSED', sender.ready());
  expect(sender.cancelSignal.aborted).to.equal(true);
  await sender.close();
}

streamSuite('ends of a stream between nodes', (host, nodes) => {
  it('AD-01 disposing the anchor fires the cancel signal of its sender and fails its next send', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    await anchor[Symbol.asyncDispose]();
    await seesCancel(sender);
    expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
  });

  it('AD-01 leaving a loop early cancels the producer', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    await sendRange(sender, 0, 10);
    for await (const item of anchor) {
      if (item === 2) break;
    }
    await seesCancel(sender);
    expect(anchor.ended).to.equal(true);
  });

  it('AD-01 an exception in a loop cancels the producer', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    await sender.send(0);
    const boom = new Error('boom');
    const reading = (async () => {
      for await (const _ of anchor) throw boom;
    })();
    expect(
      await reading.then(
        () => undefined,
        (error: unknown) => error,
      ),
    ).to.equal(boom);
    await seesCancel(sender);
  });

  it('AD-02 fifty cancels at once remove the anchor once', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    expect(consumer.stats().anchors).to.equal(1);
    await Promise.all(range(0, 50).map(async () => anchor.controller.cancel()));
    expect(consumer.stats().anchors).to.equal(0);
    await seesCancel(sender);
    const refused = await failure('ERR_ATTACH_REFUSED', producer.attachAnchor(anchor.handle));
    expect(refused.message).to.include('not found');
  });

  it('AD-02 a cancel wakes the reader that waits', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    const reading = readAll(anchor);
    anchor.controller.cancel();
    expect(await reading).to.deep.equal({ items: [], error: undefined });
    await seesCancel(sender);
  });

  it('AD-03 a cancel crosses nodes while the producer sends nothing', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    const cancelled = aborted(sender.cancelSignal);
    anchor.controller.cancel();
    await cancelled;
    await seesCancel(sender);
  });

  it('AD-12 a cancel wakes a send that waits for space', async () => {
    const pair = await nodes.pair(host, { mux: { initialCredit: 1, slotByteBudget: 16 } });
    const { anchor, sender } = await openStream<number>(pair);
    const sending = sendRange(sender, 0, 1_000);
    await until('records wait for credit', () => pair.producer.stats().withheldRecords > 0);
    anchor.controller.cancel();
    await failure('ERR_CHANNEL_CLOSED', sending);
    await seesCancel(sender);
  });

  it('AD-04 an anchor that nobody attached to leaves the registry when it is let go', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const anchor = consumer.createAnchor();
    await anchor[Symbol.asyncDispose]();
    expect(consumer.stats().anchors).to.equal(0);
    expect((await failure('ERR_ATTACH_REFUSED', producer.attachAnchor(anchor.handle))).message).to.include('not found');
    await failure('ERR_ANCHOR_NOT_FOUND', consumer.attachAnchor(anchor.handle));
  });

  it('AD-05 a stop leaves the output usable, and a cancel after it does not', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    anchor.controller.requestStop();
    anchor.controller.requestStop();
    await aborted(sender.stopSignal);
    expect(sender.stopped).to.equal(true);
    expect(sender.cancelled).to.equal(false);
    expect(sender.cancelSignal.aborted).to.equal(false);
    await sender.send(42);
    expect(await take(anchor, 1)).to.deep.equal([42]);
    anchor.controller.cancel();
    await seesCancel(sender);
  });

  it('AD-05 a stop asked before the attach reaches the sender that comes', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const anchor = consumer.createAnchor<number>();
    anchor.controller.requestStop();
    const sender = await producer.attachAnchor<number>(anchor.handle);
    await aborted(sender.stopSignal);
    expect(sender.cancelled).to.equal(false);
    await sender.send(42);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: [42], error: undefined });
  });

  it('AD-13 finalize says finalized and nothing after it', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    await sender.finalize();
    await sender.close();
    const frames = anchor.frames();
    expect((await frames.next()).value).to.deep.equal({ kind: 'finalized' });
    expect((await frames.next()).done).to.equal(true);
  });

  it('AD-13 detach gives the same handle back and never a dropped', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    const handle = await sender.detach();
    await sender.close();
    expect(handle.toJSON()).to.deep.equal(anchor.handle.toJSON());
    const frames = anchor.frames();
    expect((await frames.next()).value).to.deep.equal({ kind: 'detached' });
    anchor.controller.cancel();
    expect((await frames.next()).done).to.equal(true);
  });

  for (const way of ['finalize', 'detach', 'close'] as const) {
    it(`AD-14 ${way} takes the sender off the node`, async () => {
      const { consumer, producer } = await nodes.shared(host);
      const { anchor, sender } = await openStream<number>({ consumer, producer });
      expect(producer.stats().senders).to.equal(1);
      await sender.send(1);
      await sender[way]();
      await until('the sender is gone', () => producer.stats().senders === 0);
      anchor.controller.cancel();
      await until('nothing is left', () => holdsNothing(consumer) && holdsNothing(producer));
    });
  }

  it('AD-14 a sender whose consumer cancelled is gone once it is closed', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    anchor.controller.cancel();
    await aborted(sender.cancelSignal);
    await sender.close();
    await until('the sender is gone', () => producer.stats().senders === 0);
  });

  it('AD-16 a sender ends once: finalize and detach after an end are refused', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    await sender.send(1);
    await sender.finalize();
    await failure('ERR_CHANNEL_CLOSED', sender.finalize());
    await failure('ERR_CHANNEL_CLOSED', sender.detach());
    await failure('ERR_CHANNEL_CLOSED', sender.send(2));
    await failure('ERR_CHANNEL_CLOSED', () => sender.trySend(2));
    await sender.close();
    expect(await readAll(anchor)).to.deep.equal({ items: [1], error: undefined });
  });

  it('AE-04 a producer that throws after five hundred items: those, then dropped', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    const reading = readAll(anchor);
    const producing = (async () => {
      try {
        await sendRange(sender, 0, 500);
        throw new Error('boom');
      } finally {
        await sender[Symbol.asyncDispose]();
      }
    })();
    expect(
      await producing.then(
        () => '',
        (error: Error) => error.message,
      ),
    ).to.equal('boom');
    const { items, error } = await reading;
    expect(items).to.deep.equal(range(0, 500));
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
  });

  for (const way of ['items', 'frames', 'batches'] as const) {
    it(`items that came to a batch reader as it was aborted are the first that ${way}() reads`, async () => {
      const { consumer, producer } = await nodes.shared(host);
      const enough = new AbortController();
      const codec = customCodec<number>({
        encode: (value) => Uint8Array.of(value),
        decode: ([value]) => {
          if (value === 0) enough.abort();
          return value!;
        },
      });
      const anchor = consumer.createAnchor<number>({ codec });
      const sender = await producer.attachAnchor<number>(anchor.handle, { codec });
      const waiting = failure('ERR_ABORTED', anchor.batches({ signal: enough.signal }).next());
      // More than the window: what was left behind must give its credit back too.
      const sending = sendRange(sender, 0, 100).then(() => sender.finalize());
      await waiting;
      const got: number[] = [];
      if (way === 'frames') {
        for await (const frame of anchor.frames()) if (frame.kind === 'item') got.push(frame.value);
      } else if (way === 'batches') for await (const items of anchor.batches()) got.push(...items);
      else for await (const value of anchor) got.push(value);
      await sending;
      expect(got).to.deep.equal(range(0, 100));
    });
  }

  it('two reads at once are refused, and the first goes on', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    const first = anchor[Symbol.asyncIterator]().next();
    await failure('ERR_INVALID_STATE', anchor[Symbol.asyncIterator]().next());
    await sender.send(5);
    expect(await first).to.deep.equal({ done: false, value: 5 });
    await sender.finalize();
    expect((await readAll(anchor)).error).to.equal(undefined);
  });
});

streamSuite('a closing node', (host, nodes) => {
  it('drops its anchors, behind what came, and cancels their senders elsewhere', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    await sender.send(7);
    expect(await take(anchor, 1)).to.deep.equal([7]);
    const reading = readAll(anchor);
    await consumer.close();
    const { items, error } = await reading;
    expect(items).to.deep.equal([]);
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
    await seesCancel(sender);
    await failure('ERR_CLOSED', () => consumer.createAnchor());
    await failure('ERR_CLOSED', consumer.attachAnchor(anchor.handle));
    await failure('ERR_CLOSED', consumer.unary(producer.peerInfo, 'x'));
  });

  it('wakes its senders that wait, and fails everything they try', async () => {
    const { consumer, producer } = await nodes.pair(host, { mux: { initialCredit: 1, slotByteBudget: 16 } });
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    const sending = sendRange(sender, 0, 1_000);
    await until('records wait for credit', () => producer.stats().withheldRecords > 0);
    await pause(20);
    const waiting = sender.ready();
    const closing = producer.close({ timeoutMs: 200 });
    await failure(['ERR_CLOSED', 'ERR_CHANNEL_CLOSED'], sending);
    await failure(['ERR_CLOSED', 'ERR_CHANNEL_CLOSED'], waiting);
    await closing;
    await seesEnd(sender);
    anchor.controller.cancel();
  });

  it('fails everything that its senders try, also those whose streams could end in order', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    await producer.close();
    await seesEnd(sender);
    expect((await readAll(anchor)).error?.code).to.equal('ERR_SENDER_DROPPED');
  });

  it('lets what was sent arrive, then dropped', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    await sendRange(sender, 0, 20);
    await producer.close();
    const { items, error } = await readAll(anchor);
    expect(items).to.deep.equal(range(0, 20));
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
  });

  it('takes any number for its deadline', async () => {
    for (const timeoutMs of [Number.POSITIVE_INFINITY, 2 ** 40, Number.NaN, -1, 0]) {
      const { consumer, producer } = await nodes.pair(host);
      const { anchor, sender } = await openStream<number>({ consumer, producer });
      await sender.send(1);
      await producer.close({ timeoutMs });
      if (timeoutMs > 0) expect((await readAll(anchor)).error?.code).to.equal('ERR_SENDER_DROPPED');
    }
  });

  it('lets a stream that was finalized arrive whole', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    await sendRange(sender, 0, 20);
    await sender.finalize();
    await producer.close();
    expect(await readAll(anchor)).to.deep.equal({ items: range(0, 20), error: undefined });
  });

  it('fails whoever waits between two questions to a peer', async () => {
    const [consumer, producer] = [await nodes.make({ host }), await nodes.make({ host })];
    consumer.registerPeer(producer.peerInfo);
    const waiting = consumer.waitForHandler(producer.peerInfo, 'nothing', { timeoutMs: 20_000 });
    const outcome = failure('ERR_CLOSED', waiting);
    await until('the first was asked', () => producer.stats().peers === 1);
    await pause(50);
    await consumer.close();
    await outcome;
  });

  it('fails its calls, refuses all further ones, and closes once', async () => {
    const { consumer, producer } = await nodes.pair(host);
    let release = (): void => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    producer.registerHandler(
      'held',
      unaryHandler(() => gate),
    );
    const held = consumer.unary(producer.peerInfo, 'held', undefined, { timeoutMs: 20_000 });
    const outcome = failure('ERR_CLOSED', held);
    await Promise.all([consumer.close(), consumer.close()]);
    await outcome;
    release();
    expect(() => consumer.flushBatch()).not.to.throw();
    await failure('ERR_CLOSED', () => consumer.registerPeer(producer.peerInfo));
  });
});
