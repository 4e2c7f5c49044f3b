// How records flow between nodes: the window, what waits for it, flushes, and long runs. What is counted must add up.

import { expect } from 'chai';
import type { StreamSender, Velo } from '../../lib/index.js';
import { introduce, openStream, pause, range, readAll, sendRange, streamSuite, take, until } from '../support/nodes.js';

const HOUR_MS = 3_600_000;

streamSuite('credit between nodes', (host, nodes) => {
  /** Streams `count` items through a window of `credit`; the nodes' totals are checked after the test. */
  async function runs(count: number, mux: { initialCredit: number; creditSweepIntervalMs?: number }) {
    const pair = await nodes.pair(host, { mux });
    const { anchor, sender } = await openStream<number>(pair);
    const reading = readAll(anchor);
    await sendRange(sender, 0, count);
    await sender.finalize();
    expect(await reading).to.deep.equal({ items: range(0, count), error: undefined });
    await until('the slots are gone', () => pair.consumer.stats().liveSlots + pair.producer.stats().liveSlots === 0);
    return pair;
  }

  it('AC-11 two hundred items pass a window of 4, though the producer stops at each', async () => {
    const { producer, consumer } = await runs(200, { initialCredit: 4 });
    expect(producer.stats().creditExhausted).to.be.greaterThan(0);
    expect(consumer.stats().recordsSent.creditUpdate).to.be.greaterThan(0);
  });

  it('AC-12 credit comes back from draining alone: the sweep is an hour away', async () => {
    const { consumer } = await runs(200, { initialCredit: 4, creditSweepIntervalMs: HOUR_MS });
    expect(consumer.stats().readerStalls).to.equal(0);
  });

  it('AC-14 a sweep that walks all the time and the drains together never overspend', async () => {
    const { consumer, producer } = await runs(500, { initialCredit: 4, creditSweepIntervalMs: 1 });
    expect(consumer.stats()).to.include({ readerStalls: 0, holdOverflow: 0, creditLost: 0 });
    expect(producer.stats()).to.include({ readerStalls: 0, holdOverflow: 0, creditLost: 0 });
  });

  it('AC-24 the doorbell visits a peer no faster than its floor', async () => {
    const started = performance.now();
    const { consumer } = await runs(host === 'piscina' ? 8_000 : 2_000, {
      initialCredit: 8,
      creditSweepIntervalMs: 5_000,
    });
    const elapsedMs = performance.now() - started;
    expect(consumer.stats().drainVisits).to.be.within(1, elapsedMs / 2 + 10);
  });

  it('AC-26 AC-33 a consumer that never reads holds its sender to the window, then everything arrives', async () => {
    const { consumer, producer } = await nodes.pair(host, { mux: { initialCredit: 8 } });
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    await sendRange(sender, 0, 300);
    await until('the window is full', () => consumer.stats().recordsInBatchesReceived >= 9);
    await pause(100);
    expect(consumer.stats().recordsInBatchesReceived, 'an OpenSlot and the window').to.equal(9);
    expect(producer.stats().withheldRecords).to.be.greaterThan(0);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: range(0, 300), error: undefined });
    expect(consumer.stats()).to.include({ readerStalls: 0, creditLost: 0 });
  });

  it('AC-26 what batches() hands out returns its credit too', async () => {
    const pair = await nodes.pair(host, { mux: { initialCredit: 4 } });
    const { anchor, sender } = await openStream<number>(pair);
    const reading = readAll(anchor.batches());
    await sendRange(sender, 0, 100);
    await sender.finalize();
    const { items, error } = await reading;
    expect(error).to.equal(undefined);
    expect(items.flat()).to.deep.equal(range(0, 100));
    expect(items.every((batch) => batch.length > 0)).to.equal(true);
  });

  it('a slow reader stalls itself and no other stream', async () => {
    const pair = await nodes.pair(host, { mux: { initialCredit: 4, slotByteBudget: 64 } });
    const slow = await openStream<number>(pair);
    const fast = await openStream<number>(pair);
    let blocked = sendRange(slow.sender, 0, 100);
    await until('the slow stream is stuck', () => pair.producer.stats().withheldRecords > 0);
    const reading = readAll(fast.anchor);
    await sendRange(fast.sender, 0, 500);
    await fast.sender.finalize();
    expect((await reading).items).to.have.length(500);
    blocked = blocked.then(() => slow.sender.finalize());
    expect(await readAll(slow.anchor)).to.deep.equal({ items: range(0, 100), error: undefined });
    await blocked;
  });

  for (const [way, end] of [
    ['finalize', 'finalized'],
    ['detach', 'detached'],
    ['close', 'ERR_SENDER_DROPPED'],
  ] as const) {
    it(`AW-09 ${way} does not wait on a full inlet, and goes behind what was sent`, async () => {
      const pair = await nodes.pair(host, { mux: { initialCredit: 2, slotByteBudget: 16 } });
      const { anchor, sender } = await openStream<number>(pair);
      const sent = await fill(sender, pair.producer);
      let ended = false;
      void sender[way]().then(() => {
        ended = true;
      });
      await Promise.resolve();
      await Promise.resolve();
      expect(ended, 'it ends in the turn it is asked').to.equal(true);
      const reader = anchor.frames();
      for (const value of range(0, sent)) expect((await reader.next()).value).to.deep.equal({ kind: 'item', value });
      const last = await reader.next().then(
        ({ value }) => value?.kind,
        ({ code }: { code: string }) => code,
      );
      expect(last).to.equal(end);
    });
  }
});

/** Sends until the inlet is full and stays so. Returns how many went in. */
async function fill(sender: StreamSender<number>, producer: Velo): Promise<number> {
  let sent = 0;
  for (let quiet = 0; quiet < 10; quiet += 1) {
    while (sender.trySend(sent)) {
      sent += 1;
      quiet = 0;
    }
    await pause(2);
  }
  expect(producer.stats().withheldRecords).to.be.greaterThan(0);
  return sent;
}

streamSuite('flushes of a node', (host, nodes) => {
  /** `count` streams from the producer to each consumer, open and quiet. */
  async function quietStreams(producer: Velo, consumers: readonly Velo[], count: number) {
    const streams = [];
    for (const consumer of consumers) {
      introduce(consumer, producer);
      for (let i = 0; i < count; i += 1) streams.push(await openStream<number>({ consumer, producer }));
    }
    await until('the opens are counted', () => producer.stats().recordsSent.openSlot === streams.length);
    return streams;
  }

  it('AB-01 AU-04 a flush under manual writes one batch to every peer, and nothing leaves before', async () => {
    const producer = await nodes.make({ host, flushPolicy: 'manual' });
    const consumers = [await nodes.make({ host: 'inline' }), await nodes.make({ host: 'inline' })];
    const streams = await quietStreams(producer, consumers, 8);
    const before = producer.stats();
    for (const { sender } of streams) expect(sender.trySend(7)).to.equal(true);
    await until('all is staged', () => producer.stats().stagedRecords === 16);
    await pause(30);
    expect(producer.stats().batchesSent).to.equal(before.batchesSent);
    expect(producer.flushBatch()).to.equal(undefined);
    for (const { anchor } of streams) expect(await take(anchor, 1)).to.deep.equal([7]);
    await until('all are counted', () => producer.stats().recordsSent.data - before.recordsSent.data === 16);
    expect(producer.stats().batchesSent - before.batchesSent).to.equal(2);
    producer.flushBatch();
    await pause(30);
    expect(producer.stats().batchesSent - before.batchesSent, 'nothing staged, nothing written').to.equal(2);
  });

  it('AB-01 a pass of sends and a flush without a turn between is one batch per peer', async () => {
    const producer = await nodes.make({ host, flushPolicy: 'manual' });
    const consumers = [await nodes.make({ host: 'inline' }), await nodes.make({ host: 'inline' })];
    const streams = await quietStreams(producer, consumers, 4);
    const before = producer.stats().batchesSent;
    for (const pass of range(0, 3)) {
      for (const { sender } of streams) expect(sender.trySend(pass)).to.equal(true);
      producer.flushBatch();
    }
    for (const { anchor } of streams) expect(await take(anchor, 3)).to.deep.equal([0, 1, 2]);
    await until('all are counted', () => producer.stats().recordsSent.data === 24);
    expect(producer.stats().batchesSent - before).to.equal(6);
  });

  it('AB-02 AU-10 a flush beats an auto window that has not elapsed', async () => {
    const flushPolicy = { onAdmission: false, maxLingerMs: HOUR_MS };
    const producer = await nodes.make({ host, flushPolicy });
    const [stream] = await quietStreams(producer, [await nodes.make({ host: 'inline' })], 1);
    const { anchor, sender } = stream!;
    await sendRange(sender, 0, 5);
    await until('all is staged', () => producer.stats().stagedRecords === 5);
    expect(producer.stats().batchesSent).to.equal(1);
    producer.flushBatch();
    expect(await take(anchor, 5)).to.deep.equal(range(0, 5));
    await until('the batch is counted', () => producer.stats().batchesSent > 1);
    expect(producer.stats().batchesSent).to.equal(2);
  });

  it('AU-02 an auto window writes by itself', async () => {
    const pair = await nodes.pair(host, {}, { flushPolicy: { onAdmission: false, maxLingerMs: 20 } });
    const { anchor, sender } = await openStream<number>(pair);
    await sendRange(sender, 0, 5);
    expect(await take(anchor, 5)).to.deep.equal(range(0, 5));
  });

  it('AU-07 under manual a finalize moves without a flush, with what was sent before it', async () => {
    const pair = await nodes.pair(host, {}, { flushPolicy: 'manual' });
    const { anchor, sender } = await openStream<number>(pair);
    await sendRange(sender, 0, 5);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: range(0, 5), error: undefined });
  });

  it('under manual a stream that ended with more withheld than its window ends without another flush', async () => {
    const pair = await nodes.pair(host, { mux: { initialCredit: 4 } }, { flushPolicy: 'manual' });
    const { anchor, sender } = await openStream<number>(pair);
    await sendRange(sender, 0, 20);
    pair.producer.flushBatch();
    await until('more waits than the window holds', () => pair.producer.stats().withheldRecords > 4);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: range(0, 20), error: undefined });
  });

  it('a flush of an idle node does nothing', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const before = producer.stats().batchesSent;
    for (let i = 0; i < 1_000; i += 1) producer.flushBatch();
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    await sendRange(sender, 0, 3);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: [0, 1, 2], error: undefined });
    expect(producer.stats().batchesSent - before).to.be.within(1, 5);
  });
});

streamSuite('long runs', (host, nodes) => {
  it('AV-01 live slots count both ends: four streams make eight, then none', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const live = () => consumer.stats().liveSlots + producer.stats().liveSlots;
    const streams = await Promise.all(range(0, 4).map(() => openStream<number>({ consumer, producer })));
    await until('four are open at both ends', () => live() === 8);
    for (const { sender } of streams) await sender.finalize();
    for (const { anchor } of streams) expect((await readAll(anchor)).error).to.equal(undefined);
    await until('none is', () => live() === 0);
  });

  it('AE-01 ten thousand items on one stream, between nodes and on one, in order', async () => {
    const { consumer, producer } = await nodes.shared(host);
    for (const node of [producer, consumer]) {
      const anchor = consumer.createAnchor<number>();
      const sender = await node.attachAnchor<number>(anchor.handle);
      const sending = sendRange(sender, 0, 10_000).then(() => sender.finalize());
      let next = 0;
      for await (const batch of anchor.batches()) for (const item of batch) if (item !== next++) expect.fail(`${item}`);
      expect(next).to.equal(10_000);
      await sending;
    }
  });

  it('AE-02 a hundred streams of a hundred items at once, each with its own', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const streams = await Promise.all(range(0, 100).map(() => openStream<number>({ consumer, producer })));
    const reading = streams.map(({ anchor }) => readAll(anchor));
    const sending = streams.map(async ({ sender }, k) => {
      await sendRange(sender, k * 1_000, k * 1_000 + 100);
      await sender.finalize();
    });
    for (const [k, { items, error }] of (await Promise.all(reading)).entries()) {
      expect(error).to.equal(undefined);
      expect(items).to.deep.equal(range(k * 1_000, k * 1_000 + 100));
    }
    await Promise.all(sending);
    expect(consumer.stats().anchors).to.equal(0);
  });

  it('a hundred create and finalize rounds between nodes leave nothing', async () => {
    const { consumer, producer } = await nodes.shared(host);
    for (const round of range(0, 100)) {
      const { anchor, sender } = await openStream<number>({ consumer, producer });
      await sender.send(round);
      await sender.finalize();
      expect((await readAll(anchor)).items).to.deep.equal([round]);
      expect(consumer.stats().anchors).to.equal(0);
    }
    await until('no sender is left', () => producer.stats().senders === 0);
  });

  it('records larger than a batch, and than a ring record, keep their place among small ones', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const sizes = [1, 70_000, 1, 300_000, 40_000, 2, 1_500_000, 3];
    const anchor = consumer.createAnchor<Uint8Array>();
    const sender = await producer.attachAnchor<Uint8Array>(anchor.handle);
    const sending = (async () => {
      for (const [i, size] of sizes.entries()) await sender.send(new Uint8Array(size).fill(i));
      await sender.finalize();
    })();
    const { items, error } = await readAll(anchor);
    expect(error).to.equal(undefined);
    expect(items.map((item) => item.length)).to.deep.equal(sizes);
    expect(items.every((item, i) => item[0] === i && item.at(-1) === i)).to.equal(true);
    await sending;
  });
});
