// Streams whose two ends live on one node: no transport, the same frames.

import { expect } from 'chai';
import { failure, pause, range, readAll, sendRange, streamSuite, take, until } from '../support/nodes.js';

streamSuite('a stream on one node', (host, nodes) => {
  it('AF-18 ten items and a finalize arrive in order, and the anchors count 0, 1, 0', async () => {
    const { consumer: node } = await nodes.shared(host);
    expect(node.stats().anchors).to.equal(0);
    const anchor = node.createAnchor<number>();
    expect(node.stats().anchors).to.equal(1);
    const sender = await node.attachAnchor<number>(anchor.handle);
    await sendRange(sender, 0, 10);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: range(0, 10), error: undefined });
    expect(node.stats().anchors).to.equal(0);
  });

  it('AF-21 uses no transport, no batch and no heartbeat', async () => {
    const node = await nodes.make({ host, heartbeatIntervalMs: 10 });
    const anchor = node.createAnchor<number>();
    const sender = await node.attachAnchor<number>(anchor.handle);
    expect(sender.negotiatedTransport).to.equal(undefined);
    await sendRange(sender, 0, 10);
    await pause(30);
    await sender.finalize();
    expect(await readAll(anchor.frames()))
      .to.have.property('items')
      .with.length(11);
    const { batchesSent, recordsSent, connectionsOpened, liveSlots } = node.stats();
    expect({ batchesSent, connectionsOpened, liveSlots, data: recordsSent.data }).to.deep.equal({
      batchesSent: 0,
      connectionsOpened: 0,
      liveSlots: 0,
      data: 0,
    });
  });

  it('AB-03 needs no flush under manual, and a flush of a node without a mux stream does nothing', async () => {
    const node = await nodes.make({ host, flushPolicy: 'manual' });
    node.flushBatch();
    const anchor = node.createAnchor<number>();
    const sender = await node.attachAnchor<number>(anchor.handle);
    await sender.send(1);
    expect(await take(anchor, 1)).to.deep.equal([1]);
    for (let i = 0; i < 100; i += 1) expect(node.flushBatch()).to.equal(undefined);
    await sender.send(2);
    node.flushBatch();
    await sender.finalize();
    node.flushBatch();
    expect(await readAll(anchor)).to.deep.equal({ items: [2], error: undefined });
    const { batchesSent, liveSlots, connectionsOpened } = node.stats();
    expect([batchesSent, liveSlots, connectionsOpened]).to.deep.equal([0, 0, 0]);
  });

  it('AF-16 AF-17 AD-04 refuses a second attach and an attach after the end', async () => {
    const { consumer: node } = await nodes.shared(host);
    const anchor = node.createAnchor<number>();
    const sender = await node.attachAnchor<number>(anchor.handle);
    await failure('ERR_ALREADY_ATTACHED', node.attachAnchor(anchor.handle));
    await sender.close();
    expect((await readAll(anchor)).error?.code).to.equal('ERR_SENDER_DROPPED');
    await failure('ERR_ANCHOR_NOT_FOUND', node.attachAnchor(anchor.handle));
  });

  it('an attach whose signal has fired already attaches nobody', async () => {
    const { consumer: node } = await nodes.shared(host);
    const anchor = node.createAnchor<number>();
    await failure('ERR_ABORTED', node.attachAnchor(anchor.handle, { signal: AbortSignal.abort() }));
    const sender = await node.attachAnchor<number>(anchor.handle);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
  });

  it('AD-08 a stop reaches the sender, and so does a cancel', async () => {
    const { consumer: node } = await nodes.shared(host);
    const anchor = node.createAnchor<number>();
    const sender = await node.attachAnchor<number>(anchor.handle);
    anchor.controller.requestStop();
    expect(sender.stopped).to.equal(true);
    expect(sender.stopSignal.aborted).to.equal(true);
    expect(sender.cancelled).to.equal(false);
    await sender.send(42);
    expect(await take(anchor, 1)).to.deep.equal([42]);
    anchor.controller.cancel();
    expect(sender.cancelled).to.equal(true);
    expect(sender.cancelSignal.aborted).to.equal(true);
    await failure('ERR_CHANNEL_CLOSED', sender.send(1));
    await sender.close();
  });

  it('AD-15 detach frees the anchor at once for the next sender, behind what was sent', async () => {
    const { consumer: node } = await nodes.shared(host);
    const anchor = node.createAnchor<number>();
    const first = await node.attachAnchor<number>(anchor.handle);
    await sendRange(first, 0, 3);
    await first.detach();
    const second = await node.attachAnchor<number>(anchor.handle);
    await sendRange(second, 3, 6);
    await second.finalize();
    const { items } = await readAll(anchor.frames());
    expect(items.map((frame) => (frame.kind === 'item' ? frame.value : frame.kind))).to.deep.equal([
      ...[0, 1, 2],
      'detached',
      ...[3, 4, 5],
      'finalized',
    ]);
  });

  it('an anchor whose sender has ended its stream takes no other sender, though nobody has read the end', async () => {
    const { consumer: node, producer } = await nodes.shared(host);
    for (const end of ['finalize', 'close'] as const) {
      const anchor = node.createAnchor<number>();
      const sender = await node.attachAnchor<number>(anchor.handle);
      await sender.send(1);
      await sender[end]();
      await failure('ERR_ANCHOR_NOT_FOUND', node.attachAnchor(anchor.handle));
      await failure('ERR_ATTACH_REFUSED', producer.attachAnchor(anchor.handle));
      const { items, error } = await readAll(anchor);
      expect(items).to.deep.equal([1]);
      expect(error?.code).to.equal(end === 'close' ? 'ERR_SENDER_DROPPED' : undefined);
    }
  });

  it('AD-15 a remote sender after a local one does not overtake it', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const anchor = consumer.createAnchor<number>();
    const local = await consumer.attachAnchor<number>(anchor.handle);
    await sendRange(local, 0, 3);
    await local.detach();
    const remote = await producer.attachAnchor<number>(anchor.handle);
    await sendRange(remote, 3, 6);
    await remote.finalize();
    await until('the remote items are there', () => consumer.stats().liveSlots === 0);
    expect(await readAll(anchor)).to.deep.equal({ items: range(0, 6), error: undefined });
  });

  it('a reader that does not read holds its sender to the channel, and the end still comes', async () => {
    const { consumer: node } = await nodes.shared(host);
    const anchor = node.createAnchor<number>();
    const sender = await node.attachAnchor<number>(anchor.handle);
    let sent = 0;
    while (sender.trySend(sent)) sent += 1;
    expect(sent).to.equal(256);
    const sending = sender.send(sent).then(() => sender.finalize());
    expect(await readAll(anchor)).to.deep.equal({ items: range(0, sent + 1), error: undefined });
    await sending;
  });

  it('AE-03 a thousand create and finalize rounds leave nothing', async () => {
    const { consumer: node } = await nodes.shared(host);
    for (let round = 0; round < 1_000; round += 1) {
      const anchor = node.createAnchor<number>();
      const sender = await node.attachAnchor<number>(anchor.handle);
      await sender.send(round);
      await sender.finalize();
      const { items } = await readAll(anchor);
      if (items[0] !== round || node.stats().anchors !== 0) expect.fail(`round ${round}`);
    }
  });
});
