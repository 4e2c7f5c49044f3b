// How long anchors and binds wait: for a sender that attaches, for a stream that opens; and what the attach answer says of heartbeats.

import { execFile } from 'node:child_process';
import { performance } from 'node:perf_hooks';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { Registry } from 'prom-client';
import type { AnchorOptions, StreamAnchor, StreamSender, Velo, VeloOptions } from '../../lib/index.js';
import { registerMetrics } from '../../lib/metrics/register.js';
import { CLOSE_UNKNOWN_SLOT, RECORD_CLOSE_SLOT } from '../../lib/wire/batch.js';
import { abortAttach, anchorReference, streamSignal } from '../../lib/wire/control.js';
import { FINALIZED_BYTES } from '../../lib/wire/frame.js';
import { StreamCancelHandle } from '../../lib/wire/handle.js';
import { HANDLER_ANCHOR_ABORT_ATTACH, HANDLER_ANCHOR_DETACH, HANDLER_STREAM_CANCEL } from '../../lib/wire/names.js';
import { failure, pause, provesAlive, range, readAll, streamSuite, take, until } from '../support/nodes.js';
import { Scrape } from '../support/scrape.js';
import { dataRecord, openRecord, recordsOf, WirePeer } from '../support/wire-peer.js';

const REAPED = 'velo_streaming_unclaimed_bind_reaped_total';
const run = promisify(execFile);

streamSuite('anchors that nobody attaches to', (host, nodes) => {
  async function refusesEverybody(anchor: StreamAnchor<number>, consumer: Velo, producer: Velo): Promise<void> {
    await failure('ERR_ANCHOR_NOT_FOUND', consumer.attachAnchor(anchor.handle));
    expect((await failure('ERR_ATTACH_REFUSED', producer.attachAnchor(anchor.handle))).message).to.include('not found');
    expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
    expect(anchor.ended).to.equal(true);
  }

  it('AF-22 stay for ever by default; with a timeout they are removed, and an attach finds nothing', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const kept = consumer.createAnchor<number>();
    const from = performance.now();
    const anchor = consumer.createAnchor<number>({ unattachedTimeoutMs: 60 });
    await until('it is gone', () => consumer.stats().anchors === 1);
    expect(performance.now() - from).to.be.at.least(59);
    await refusesEverybody(anchor, consumer, producer);
    const sender = await producer.attachAnchor<number>(kept.handle);
    await sender.send(1);
    expect(await take(kept, 1)).to.deep.equal([1]);
    kept.cancel();
    await sender.close();
  });

  it('AF-22 AF-23 the time of the node holds for its anchors, and an anchor may have its own', async () => {
    const { consumer, producer } = await nodes.pair(host, { unattachedTimeoutMs: 100_000 });
    const slow = consumer.createAnchor<number>();
    const quick = consumer.createAnchor<number>({ unattachedTimeoutMs: 50 });
    const changed = consumer.createAnchor<number>();
    changed.setTimeout(50);
    await until('two are gone', () => consumer.stats().anchors === 1);
    await refusesEverybody(quick, consumer, producer);
    await refusesEverybody(changed, consumer, producer);
    slow.setTimeout(undefined);
    slow.setTimeout(20);
    await until('all are gone', () => consumer.stats().anchors === 0);
    const later = (await nodes.make({ host, unattachedTimeoutMs: 50 })).createAnchor<number>();
    expect(await readAll(later)).to.deep.equal({ items: [], error: undefined });
  });

  for (const where of ['another node', 'the same node'] as const) {
    describe(`with a sender on ${where}`, () => {
      async function attached(options: AnchorOptions<number>) {
        const { consumer, producer } = await nodes.shared(host);
        const anchor = consumer.createAnchor<number>(options);
        const from = where === 'another node' ? producer : consumer;
        const attach = (): Promise<StreamSender<number>> => from.attachAnchor<number>(anchor.handle);
        return { consumer, producer, anchor, attach, sender: await attach() };
      }

      it('AF-23 the time stands still until the detach, and another sender stops it again', async () => {
        const { consumer, producer, anchor, attach, sender } = await attached({ unattachedTimeoutMs: 800 });
        await pause(1_000);
        await sender.send(1);
        expect(await take(anchor, 1)).to.deep.equal([1]);
        await sender.detach();
        const frames = anchor.frames();
        expect((await frames.next()).value).to.deep.equal({ kind: 'detached' });
        const second = await attach();
        await pause(1_000);
        await second.send(2);
        expect(await take(anchor, 1)).to.deep.equal([2]);
        await second.detach();
        expect((await frames.next()).value).to.deep.equal({ kind: 'detached' });
        await until('it is gone', () => consumer.stats().anchors === 0);
        await refusesEverybody(anchor, consumer, producer);
      });

      it('AF-23 a time that is set while a sender is attached counts from its detach', async () => {
        const { consumer, anchor, sender } = await attached({});
        anchor.setTimeout(30);
        await pause(150);
        expect(consumer.stats().anchors).to.equal(1);
        await sender.send(1);
        await sender.detach();
        expect(await readAll(anchor)).to.deep.equal({ items: [1], error: undefined });
        expect(consumer.stats().anchors).to.equal(0);
      });

      it('AF-23 without a time the anchor outlives its sender', async () => {
        const { consumer, anchor, attach, sender } = await attached({ unattachedTimeoutMs: 50 });
        anchor.setTimeout(undefined);
        await sender.detach();
        expect((await anchor.frames().next()).value).to.deep.equal({ kind: 'detached' });
        await pause(150);
        expect(consumer.stats().anchors).to.equal(1);
        const second = await attach();
        await second.send(2);
        await second.finalize();
        expect(await readAll(anchor)).to.deep.equal({ items: [2], error: undefined });
        anchor.setTimeout(50);
        await pause(100);
        expect(consumer.stats().anchors).to.equal(0);
      });
    });
  }

  for (const way of ['items', 'batches', 'frames'] as const) {
    it(`AF-24 a reader that waits in ${way}() ends when the time is over`, async () => {
      const { consumer, producer } = await nodes.shared(host);
      const anchor = consumer.createAnchor<number>({ unattachedTimeoutMs: 50 });
      expect(await readAll<unknown>(anchor[way]())).to.deep.equal({ items: [], error: undefined });
      await refusesEverybody(anchor, consumer, producer);
    });
  }

  it('a detach by message, and an attach that is given up, begin the time anew', async () => {
    const peer = await WirePeer.listen();
    const node = await nodes.make({ host });
    node.registerPeer(peer.info);
    peer.faces(node);
    const anchor = node.createAnchor<number>({ unattachedTimeoutMs: 500 });
    await peer.open(anchor.handle, 1 << 8);
    await pause(700);
    expect(node.stats().anchors).to.equal(1);
    await peer.call(HANDLER_ANCHOR_DETACH, anchorReference.encodeJson({ handle: anchor.handle }));
    expect((await anchor.frames().next()).value).to.deep.equal({ kind: 'detached' });
    await until('it is gone', () => node.stats().anchors === 0);
    const other = node.createAnchor<number>({ unattachedTimeoutMs: 500 });
    await peer.attach(other.handle, { sessionId: 9n });
    await pause(700);
    const streamCancelHandle = new StreamCancelHandle(peer.workerId, 9n);
    await peer.call(HANDLER_ANCHOR_ABORT_ATTACH, abortAttach.encodeJson({ handle: other.handle, streamCancelHandle }));
    expect(await readAll(other)).to.deep.equal({ items: [], error: undefined });
    await peer.close();
  });

  const badTimes = [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31, '5' as unknown as number, null as never];
  it('a time that is none is a coded error, of the node, of an anchor, and of a change', async () => {
    const { consumer } = await nodes.shared(host);
    const anchor = consumer.createAnchor<number>();
    for (const unattachedTimeoutMs of badTimes) {
      const error = await failure('ERR_INVALID_ARGUMENT', () => consumer.createAnchor({ unattachedTimeoutMs }));
      expect(error.message).to.include('unattachedTimeoutMs');
      await failure('ERR_INVALID_ARGUMENT', nodes.make({ host, unattachedTimeoutMs }));
      await failure('ERR_INVALID_ARGUMENT', () => anchor.setTimeout(unattachedTimeoutMs));
    }
    for (const acceptWindowMs of badTimes.slice(0, -1)) {
      const error = await failure('ERR_INVALID_ARGUMENT', nodes.make({ host, acceptWindowMs }));
      expect(error.message).to.include('acceptWindowMs');
    }
    anchor.setTimeout(2 ** 31 - 1);
    await pause(20);
    expect(consumer.stats().anchors).to.equal(1);
    anchor.cancel();
    anchor.setTimeout(1);
    await provesAlive(await nodes.shared(host));
  });
});

streamSuite('attaches that nobody opens', (host, nodes) => {
  let peer: WirePeer;
  beforeEach(async () => {
    peer = await WirePeer.listen();
  });
  afterEach(() => peer.close());

  async function consumer(options: VeloOptions): Promise<Velo> {
    const node = await nodes.make({ host, ...options });
    node.registerPeer(peer.info);
    peer.faces(node);
    return node;
  }

  const cancels = () =>
    peer.requests
      .filter(({ handler }) => handler === HANDLER_STREAM_CANCEL)
      .map(({ payload }) => streamSignal.decodeJson(payload).senderStreamId);

  it('AH-11 are taken back when the accept window closes: removed, cancelled, dropped, counted', async () => {
    const node = await consumer({ acceptWindowMs: 80, heartbeatIntervalMs: 60_000 });
    const anchor = node.createAnchor<number>();
    const from = performance.now();
    const answer = await peer.attach(anchor.handle, { sessionId: 99n });
    if (!answer.ok) throw new Error(answer.reason);
    expect((await readAll(anchor)).error?.code).to.equal('ERR_SENDER_DROPPED');
    expect(performance.now() - from).to.be.at.least(79);
    expect(node.stats()).to.include({ unclaimedBindsReaped: 1, watchdogFirings: 0, anchors: 0, liveSlots: 0 });
    await until('the cancel came', () => cancels().length > 0);
    expect(cancels()).to.deep.equal([99n]);
    const registry = new Registry();
    registerMetrics(node, registry);
    expect((await Scrape.of(registry)).value(REAPED)).to.equal(1);
    expect((await peer.attach(anchor.handle)).ok).to.equal(false);
    await peer.batch(0, (batch) => openRecord(batch, 1 << 8, anchor.handle.local, answer.value.routingSessionId));
    await until('the opening was refused', () => recordsOf(peer, RECORD_CLOSE_SLOT).length > 0);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]).to.include({ slot: 1 << 8, closeReason: CLOSE_UNKNOWN_SLOT });
  });

  it('end by the silence of their sender first, where three of its windows are shorter (the attach half of AH-10, AK-11)', async () => {
    const node = await consumer({ acceptWindowMs: 60_000, heartbeatIntervalMs: 30 });
    const anchor = node.createAnchor<number>();
    await peer.attach(anchor.handle, { sessionId: 98n });
    expect((await readAll(anchor)).error?.code).to.equal('ERR_SENDER_DROPPED');
    expect(node.stats()).to.include({ unclaimedBindsReaped: 0, watchdogFirings: 1, anchors: 0 });
    await until('the cancel came', () => cancels().length > 0);
    expect(cancels()).to.deep.equal([98n]);
  });

  it('a stream that opened in time outlives its window', async () => {
    const node = await consumer({ acceptWindowMs: 100, heartbeatIntervalMs: 60_000 });
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, 1 << 8);
    await pause(300);
    await peer.batch(0, (batch) => dataRecord(batch, 1 << 8, 1, FINALIZED_BYTES));
    expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
    expect(node.stats()).to.include({ unclaimedBindsReaped: 0, anchors: 0 });
  });

  it('an opening that races with the end of the window wins or loses, and never both', async () => {
    const windowMs = 60;
    const node = await consumer({ acceptWindowMs: windowMs, heartbeatIntervalMs: 60_000 });
    const streams = await Promise.all(
      range(1, 61).map(async (n) => {
        const anchor = node.createAnchor<number>();
        const reading = readAll(anchor);
        const answer = await peer.attach(anchor.handle, { sessionId: BigInt(n) });
        if (!answer.ok) throw new Error(answer.reason);
        const slot = n << 8;
        await pause(windowMs - 10 + (n % 20));
        await peer.batch(0, (batch) => {
          openRecord(batch, slot, anchor.handle.local, answer.value.routingSessionId);
          dataRecord(batch, slot, 1, FINALIZED_BYTES);
        });
        return { slot, end: (await reading).error?.code };
      }),
    );
    const lost = streams.filter(({ end }) => end === 'ERR_SENDER_DROPPED').map(({ slot }) => slot);
    expect(streams.filter(({ end }) => end === undefined)).to.have.length(streams.length - lost.length);
    await until('all were judged', () => node.stats().liveSlots === 0 && node.stats().anchors === 0);
    expect(node.stats().unclaimedBindsReaped).to.equal(lost.length);
    const refused = () =>
      recordsOf(peer, RECORD_CLOSE_SLOT)
        .filter(({ closeReason }) => closeReason === CLOSE_UNKNOWN_SLOT)
        .map(({ slot }) => slot);
    await until('the losers heard', () => refused().length >= lost.length);
    expect(refused().sort((a, b) => a - b)).to.deep.equal(lost.sort((a, b) => a - b));
  });
});

streamSuite('the heartbeat interval that an attach is answered with', (host, nodes) => {
  it('AF-25 is 5 s, or that of the node, or that of the anchor', async () => {
    const peer = await WirePeer.listen();
    const answerOf = async (node: Velo, options: AnchorOptions<unknown> = {}): Promise<number> => {
      node.registerPeer(peer.info);
      peer.faces(node);
      const answer = await peer.attach(node.createAnchor(options).handle);
      if (!answer.ok) throw new Error(answer.reason);
      return answer.value.heartbeatIntervalMs;
    };
    const plain = await nodes.make({ host });
    expect(await answerOf(plain)).to.equal(5_000);
    const node = await nodes.make({ host, heartbeatIntervalMs: 750 });
    expect(await answerOf(node)).to.equal(750);
    expect(await answerOf(node, { heartbeatIntervalMs: 123 })).to.equal(123);
    expect(await answerOf(node)).to.equal(750);
    await peer.close();
  });

  it('AF-25 reaches the sender, which beats at the pace of its anchor', async () => {
    const { consumer, producer } = await nodes.pair(host, { heartbeatIntervalMs: 60_000 });
    const anchor = consumer.createAnchor<number>({ heartbeatIntervalMs: 20 });
    const slow = consumer.createAnchor<number>();
    const senders = [await producer.attachAnchor(anchor.handle), await producer.attachAnchor(slow.handle)];
    await until('it beats', () => producer.stats().recordsSent.data >= 5);
    await senders[0]!.close();
    const before = producer.stats().recordsSent.data;
    await pause(100);
    expect(producer.stats().recordsSent.data, 'the other does not').to.be.at.most(before + 1);
    await senders[1]!.close();
    slow.cancel();
    anchor.cancel();
  });
});

describe('timers of anchors', () => {
  const url = (file: string) => JSON.stringify(new URL(file, import.meta.url).href);

  /** Ends by itself, or is ended by the timeout of the test. */
  async function ends(script: string): Promise<string> {
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script], { timeout: 20_000 });
    return stdout.trim();
  }

  it('do not keep a process alive', async () => {
    const script = `import { Alarm, Alarms } from ${url('../../lib/control/alarms.js')};
      const alarms = new Alarms(() => performance.now());
      alarms.set(new (class extends Alarm { ring() {} })(3_600_000));
      console.log(alarms.size);`;
    expect(await ends(script)).to.equal('1');
  });

  it('are gone with the node, and so are its anchors', async () => {
    const script = `import { Velo } from ${url('../../lib/index.js')};
      const node = await Velo.create({ host: 'inline', unattachedTimeoutMs: 3_600_000 });
      const anchor = node.createAnchor();
      await node.close();
      anchor.setTimeout(3_600_000);
      let items = 0;
      for await (const _ of anchor) items += 1;
      console.log(items, process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length);`;
    expect(await ends(script)).to.equal('0 0');
  });
});
