// Endurance of single streams: what a reader that is slower than its sender gets, and the long runs on one node.

import { expect } from 'chai';
import type { AnchorFrame } from '../../lib/index.js';
import { openStream, pause, range, readAll, sendRange, streamSuite } from '../support/nodes.js';

const ITEMS = 1_000;
const SLOW_TIMEOUT_MS = 60_000;

streamSuite('endurance', (host, nodes) => {
  it('AE-05 a thousand items and a reader of a millisecond each: none lost, between nodes and on one', async function () {
    this.timeout(SLOW_TIMEOUT_MS);
    const pair = await nodes.shared(host);
    const slowly = async (producer: typeof pair.producer) => {
      const { anchor, sender } = await openStream<number>({ consumer: pair.consumer, producer });
      const sending = sendRange(sender, 0, ITEMS).then(() => sender.finalize());
      const items: number[] = [];
      for await (const item of anchor) {
        items.push(item);
        await pause(1);
      }
      expect(items).to.deep.equal(range(0, ITEMS));
      await sending;
    };
    await Promise.all([slowly(pair.producer), slowly(pair.consumer)]);
  });

  it('AE-02 a hundred streams of a hundred items at once on one node, each with its own', async () => {
    const { consumer } = await nodes.shared(host);
    const streams = await Promise.all(range(0, 100).map(() => openStream<number>({ consumer, producer: consumer })));
    const reading = streams.map(({ anchor }) => readAll(anchor));
    const sending = streams.map(async ({ sender }, k) => {
      await sendRange(sender, k * ITEMS, k * ITEMS + 100);
      await sender.finalize();
    });
    for (const [k, result] of (await Promise.all(reading)).entries())
      expect(result).to.deep.equal({ items: range(k * ITEMS, k * ITEMS + 100), error: undefined });
    await Promise.all(sending);
    expect(consumer.stats().anchors).to.equal(0);
  });

  it('AE-06 five detach and re-attach cycles of a hundred on one node: five hundred in order', async () => {
    const { consumer } = await nodes.shared(host);
    const stream = await openStream<number>({ consumer, producer: consumer });
    const frames: AnchorFrame<number>[] = [];
    let left: () => void = () => {};
    const reading = (async () => {
      for await (const frame of stream.anchor.frames()) {
        frames.push(frame);
        if (frame.kind === 'detached') left();
      }
    })();
    let { sender } = stream;
    for (let cycle = 0; cycle < 5; cycle += 1) {
      await sendRange(sender, cycle * 100, cycle * 100 + 100);
      const detached = new Promise<void>((resolve) => {
        left = resolve;
      });
      const handle = await sender.detach();
      await detached;
      sender = await consumer.attachAnchor<number>(handle);
    }
    await sender.finalize();
    await reading;
    expect(frames.flatMap((frame) => (frame.kind === 'item' ? [frame.value] : []))).to.deep.equal(range(0, 500));
    expect(frames.flatMap(({ kind }, at) => (kind === 'detached' ? [at] : []))).to.deep.equal([
      100, 201, 302, 403, 504,
    ]);
    expect(frames.at(-1)).to.deep.equal({ kind: 'finalized' });
  });
});
