// A cancel that was on a connection when that was cut: the sender hears of it all the same, whatever it is doing.

import { expect } from 'chai';
import type { StreamSender, Velo } from '../../lib/index.js';
import { REPEAT_INTERVAL_MS } from '../../lib/lanes/cancel-repeats.js';
import { CuttingProxy } from '../soak/cutting-proxy.js';
import { failure, openStream, range, streamSuite, until } from '../support/nodes.js';

const PATIENCE_MS = 10_000;
const CREDIT = 8;

streamSuite('a cancel that is lost with its connection', (host, nodes) => {
  let proxy: CuttingProxy;
  let consumer: Velo;
  let producer: Velo;
  beforeEach(async () => {
    proxy = new CuttingProxy();
    ({ consumer, producer } = await nodes.pair(host, { mux: { initialCredit: CREDIT }, heartbeatIntervalMs: 60_000 }));
    const [c, p] = [await proxy.add(consumer.peerInfo), await proxy.add(producer.peerInfo)];
    consumer.registerPeer(p);
    producer.registerPeer(c);
  });
  afterEach(() => proxy.close());

  /** Opens a stream, does `first` with its sender, and cancels it; what the cancel is written on is cut before it arrives. */
  async function cutWithItsCancel(
    first: (sender: StreamSender<number>) => Promise<void>,
  ): Promise<StreamSender<number>> {
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    await first(sender);
    await until('its slot is open', () => consumer.stats().liveSlots === 1);
    const cut = proxy.cut(producer.instanceId, 0, { frames: 0, within: 0 }, PATIENCE_MS);
    anchor.cancel();
    expect(await cut).to.equal(true);
    return sender;
  }

  it('reaches a sender that sends nothing', async () => {
    const sender = await cutWithItsCancel(async () => {});
    await until('it heard', () => sender.cancelled);
    await sender.close();
  });

  it('reaches a sender without credit, and one that waits to send', async () => {
    const sender = await cutWithItsCancel(async (starved) => {
      for (const item of range(0, 3 * CREDIT)) await starved.send(item);
      await until('its window is spent', () => producer.stats().withheldRecords > 0);
    });
    await failure(
      'ERR_CHANNEL_CLOSED',
      (async () => {
        for (;;) await sender.send(1);
      })(),
    );
    expect(sender.cancelled).to.equal(true);
    await sender.close();
    await until('nothing waits', () => producer.stats().senders + producer.stats().withheldRecords === 0);
  });

  it('is said again for many streams at once; streams that nobody cancelled go on', async () => {
    const kept = await openStream<number>({ consumer, producer });
    const streams = await Promise.all(range(0, 50).map(() => openStream<number>({ consumer, producer })));
    await until('all slots are open', () => consumer.stats().liveSlots === streams.length + 1);
    const cut = proxy.cut(producer.instanceId, 0, { frames: 0, within: 0.5 }, PATIENCE_MS);
    for (const { anchor } of streams) anchor.cancel();
    await cut;
    await until('all heard', () => streams.every(({ sender }) => sender.cancelled));
    for (const { sender } of streams) await sender.close();
    await kept.sender.send(1);
    await kept.sender.finalize();
    const items: number[] = [];
    for await (const item of kept.anchor) items.push(item);
    expect(items).to.deep.equal([1]);
  });

  it('reaches a sender whose slot the consumer never saw, because that was lost as well', async () => {
    const warm = await openStream<number>({ consumer, producer });
    await warm.sender.finalize();
    for await (const item of warm.anchor) expect(item).to.equal(undefined);
    const anchor = consumer.createAnchor<number>();
    const opening = proxy.cut(consumer.instanceId, 0, { frames: 1, within: 0 }, PATIENCE_MS);
    const sender = await producer.attachAnchor<number>(anchor.handle);
    expect(await opening).to.equal(true);
    expect(consumer.stats().liveSlots, 'its OpenSlot did not come').to.equal(0);
    const cancel = proxy.cut(producer.instanceId, 0, { frames: 0, within: 0 }, PATIENCE_MS);
    anchor.cancel();
    expect(await cancel).to.equal(true);
    await until('it heard', () => sender.cancelled);
    await sender.close();
  });

  it('reaches a sender whose node is out of reach for longer than a second', async () => {
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    await until('its slot is open', () => consumer.stats().liveSlots === 1);
    const away = proxy.beAway(producer.instanceId, 1_500);
    anchor.cancel();
    await away;
    expect(sender.cancelled, 'nobody could tell it').to.equal(false);
    await until('it heard', () => sender.cancelled);
    await sender.close();
  });

  it('is not said without pause to whoever drops every connection', async () => {
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    await until('its slot is open', () => consumer.stats().liveSlots === 1);
    proxy.drop(producer.instanceId, true);
    const cut = proxy.cut(producer.instanceId, 0, { frames: 0, within: 0 }, PATIENCE_MS);
    const begun = performance.now();
    anchor.cancel();
    await cut;
    await until('it was said three times more', () => proxy.drop(producer.instanceId, true) >= 3);
    expect(performance.now() - begun, 'an interval apart').to.be.greaterThan(1.9 * REPEAT_INTERVAL_MS);
    proxy.drop(producer.instanceId, false);
    await until('it heard', () => sender.cancelled);
    await sender.close();
  });
});
