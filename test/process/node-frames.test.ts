// What a reader sees of a stream: items, soft errors, the four ends, re-attachment; between two nodes and on one.

import { expect } from 'chai';
import { type AnchorFrame, parseJson, StreamAnchorHandle, stringifyJson, type Velo } from '../../lib/index.js';
import { HEARTBEAT_BYTES, ITEM_PREFIX, transportErrorFrame } from '../../lib/wire/frame.js';
import {
  failure,
  type OpenStream,
  openStream,
  range,
  readAll,
  sendRange,
  streamSuite,
  take,
  until,
} from '../support/nodes.js';
import { dataRecord, WirePeer } from '../support/wire-peer.js';

const ITEM_7 = Uint8Array.of(...ITEM_PREFIX, 7);
const SLOT = 0x100;

async function framesOf<T>(stream: OpenStream<T>): Promise<AnchorFrame<T>[]> {
  const frames: AnchorFrame<T>[] = [];
  for await (const frame of stream.anchor.frames()) frames.push(frame);
  return frames;
}

streamSuite('frames of a stream between nodes', (host, nodes) => {
  it('AF-08 a sender error is not an end: the item after it still comes', async () => {
    const stream = await openStream<number>(await nodes.shared(host));
    await stream.sender.sendErr('oops');
    await stream.sender.send(99);
    await stream.sender.finalize();
    expect(await framesOf(stream)).to.deep.equal([
      { kind: 'senderError', message: 'oops' },
      { kind: 'item', value: 99 },
      { kind: 'finalized' },
    ]);
  });

  it('AF-08 an item loop rejects on a sender error, and a new loop goes on behind it', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    await sender.send(1);
    await sender.sendErr('oops');
    await sender.send(2);
    await sender.finalize();
    const first = await readAll(anchor);
    expect(first.items).to.deep.equal([1]);
    expect(first.error).to.include({ code: 'ERR_SENDER_ERROR', message: 'oops' });
    expect(anchor.ended).to.equal(false);
    expect(await readAll(anchor)).to.deep.equal({ items: [2], error: undefined });
  });

  it('AF-10 finalized comes once, then the end, and the anchor is gone', async () => {
    const pair = await nodes.shared(host);
    const { anchor, sender } = await openStream<number>(pair);
    await sender.finalize();
    const frames = anchor.frames();
    expect(await frames.next()).to.deep.equal({ done: false, value: { kind: 'finalized' } });
    expect(await frames.next()).to.deep.equal({ done: true, value: undefined });
    expect(pair.consumer.stats().anchors).to.equal(0);
    const refused = await failure('ERR_ATTACH_REFUSED', pair.producer.attachAnchor(anchor.handle));
    expect(refused.message).to.include('not found');
  });

  it('AF-11 a sender that is given up surfaces as dropped, then the end', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    await sender.send(1);
    await sender.close();
    const { items, error } = await readAll(anchor);
    expect(items).to.deep.equal([1]);
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
    expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
  });

  it('AF-14 detached is a frame: the anchor stays open for another sender', async () => {
    const pair = await nodes.shared(host);
    const { anchor, sender } = await openStream<number>(pair);
    expect((await sender.detach()).equals(anchor.handle)).to.equal(true);
    const frames = anchor.frames();
    expect((await frames.next()).value).to.deep.equal({ kind: 'detached' });
    expect(anchor.ended).to.equal(false);
    const second = await pair.producer.attachAnchor<number>(anchor.handle);
    await second.send(7);
    expect((await frames.next()).value).to.deep.equal({ kind: 'item', value: 7 });
    await second.finalize();
    expect((await frames.next()).value).to.deep.equal({ kind: 'finalized' });
  });

  it('AF-16 a second attach while one is live is refused', async () => {
    const pair = await nodes.shared(host);
    const { anchor, sender } = await openStream<number>(pair);
    const refused = await failure('ERR_ATTACH_REFUSED', pair.producer.attachAnchor(anchor.handle));
    expect(refused.message).to.include('already attached');
    await failure('ERR_ALREADY_ATTACHED', pair.consumer.attachAnchor(anchor.handle));
    await sendRange(sender, 0, 3);
    await sender.finalize();
    expect((await readAll(anchor)).items).to.deep.equal([0, 1, 2]);
  });

  it('AF-17 an attach to an unknown anchor is refused', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const unknown = StreamAnchorHandle.pack(consumer.workerId, 4_711n, 'spsc');
    expect((await failure('ERR_ATTACH_REFUSED', producer.attachAnchor(unknown))).message).to.include('not found');
    await failure('ERR_ANCHOR_NOT_FOUND', consumer.attachAnchor(unknown));
    expect(producer.stats().senders).to.equal(0);
  });

  it('AF-19 a thousand items and a dropped sender: exactly those, then dropped, then nothing', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    const reading = readAll(anchor);
    await sendRange(sender, 0, 1_000);
    await sender.close();
    const { items, error } = await reading;
    expect(items).to.deep.equal(range(0, 1_000));
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
    expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
  });

  it('AF-20 a handle that travelled as two u64 halves of JSON attaches', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const anchor = consumer.createAnchor<number>();
    const text = stringifyJson(anchor.handle.toJSON());
    expect(text).to.match(/^\{"hi":\d+,"lo":\d+\}$/);
    const sender = await producer.attachAnchor<number>(StreamAnchorHandle.fromJSON(parseJson(text)));
    await sendRange(sender, 0, 5);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: range(0, 5), error: undefined });
  });

  it('AD-15 two senders one after the other: three items each with one detached between, in order', async () => {
    const pair = await nodes.shared(host);
    const stream = await openStream<number>(pair);
    const frames = framesOf(stream);
    await sendRange(stream.sender, 0, 3);
    await stream.sender.detach();
    const second = await attachAgain(pair.producer, stream);
    await sendRange(second, 3, 6);
    await second.finalize();
    const item = (value: number) => ({ kind: 'item', value });
    expect(await frames).to.deep.equal([
      ...[0, 1, 2].map(item),
      { kind: 'detached' },
      ...[3, 4, 5].map(item),
      { kind: 'finalized' },
    ]);
  });

  it('AD-15 an item loop waits on over a detached', async () => {
    const pair = await nodes.shared(host);
    const stream = await openStream<number>(pair);
    const reading = readAll(stream.anchor);
    await sendRange(stream.sender, 0, 3);
    await stream.sender.detach();
    const second = await attachAgain(pair.producer, stream);
    await sendRange(second, 3, 6);
    await second.finalize();
    expect(await reading).to.deep.equal({ items: range(0, 6), error: undefined });
  });

  it('AT-09 eight items and a terminal round trip, then no slot is live on either side', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    await sendRange(sender, 0, 8);
    await sender.finalize();
    expect((await readAll(anchor)).items).to.deep.equal(range(0, 8));
    await until('the slots are gone', () => consumer.stats().liveSlots + producer.stats().liveSlots === 0);
    // The lane's numbers may run ahead of what its client has heard.
    await until('the sender has heard', () => producer.stats().senders === 0);
    expect(consumer.stats()).to.include({ anchors: 0, senders: 0 });
    expect(producer.stats()).to.include({ anchors: 0, senders: 0 });
  });

  it('AE-06 five detach and re-attach cycles of a hundred: five hundred in order', async () => {
    const pair = await nodes.shared(host);
    const stream = await openStream<number>(pair);
    const reading = framesOf(stream);
    let sender = stream.sender;
    for (let cycle = 0; cycle < 5; cycle += 1) {
      await sendRange(sender, cycle * 100, cycle * 100 + 100);
      await sender.detach();
      sender = await attachAgain(pair.producer, stream);
    }
    await sender.finalize();
    const frames = await reading;
    expect(frames.flatMap((frame) => (frame.kind === 'item' ? [frame.value] : []))).to.deep.equal(range(0, 500));
    expect(frames.filter((frame) => frame.kind === 'detached')).to.have.length(5);
    expect(frames.findIndex((frame) => frame.kind === 'detached')).to.equal(100);
  });
});

/** An anchor takes another sender once its reader has read that the last one left. */
async function attachAgain<T>(producer: Velo, { anchor }: OpenStream<T>) {
  for (;;) {
    try {
      return await producer.attachAnchor<T>(anchor.handle);
    } catch (error) {
      if (!(error instanceof Error) || !error.message.includes('already attached')) throw error;
    }
  }
}

streamSuite('frames of a foreign sender', (host, nodes) => {
  let peer: WirePeer;
  beforeEach(async () => {
    peer = await WirePeer.listen();
  });
  afterEach(() => peer.close());

  /** An anchor whose slot the peer has opened. */
  async function opened() {
    const node = await nodes.make({ host });
    node.registerPeer(peer.info);
    const anchor = node.createAnchor<number>();
    await peer.faces(node).open(anchor.handle, SLOT);
    const data = (frameSeq: number, ...frames: Uint8Array[]) =>
      peer.batch(0, (batch) => {
        frames.forEach((frame, i) => {
          dataRecord(batch, SLOT, frameSeq + i, frame);
        });
      });
    return { node, anchor, data };
  }

  it('AF-09 heartbeats are never surfaced', async () => {
    const { anchor, data } = await opened();
    await data(1, HEARTBEAT_BYTES);
    await peer.batch(0, (batch) => batch.slotHeartbeat(SLOT, 2));
    await data(3, ITEM_7);
    const frame = await anchor.frames().next();
    expect(frame).to.deep.equal({ done: false, value: { kind: 'item', value: 7 } });
  });

  it('AF-12 a transport error surfaces as that error, then the end', async () => {
    const { anchor, data } = await opened();
    await data(1, ITEM_7, transportErrorFrame('conn reset'));
    const { items, error } = await readAll(anchor);
    expect(items).to.deep.equal([7]);
    expect(error).to.include({ code: 'ERR_TRANSPORT', message: 'conn reset' });
    expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
  });

  const undecodable: [string, Uint8Array][] = [
    ['FF FE FD', Uint8Array.of(0xff, 0xfe, 0xfd)],
    ['C1', Uint8Array.of(0xc1)],
    ['an item that is C1', Uint8Array.of(...ITEM_PREFIX, 0xc1)],
    ['no bytes at all', new Uint8Array(0)],
  ];
  for (const [what, bytes] of undecodable) {
    it(`AF-13 ${what} cannot be decoded and ends the stream`, async () => {
      const { node, anchor, data } = await opened();
      await data(1, ITEM_7, bytes, ITEM_7);
      const { items, error } = await readAll(anchor);
      expect(items).to.deep.equal([7]);
      expect(error?.code).to.equal('ERR_DESERIALIZATION');
      expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
      expect(node.stats().anchors).to.equal(0);
    });
  }

  it('AF-13 a batch of items ends before one that cannot be decoded', async () => {
    const { anchor, data } = await opened();
    await data(1, ITEM_7, ITEM_7, Uint8Array.of(...ITEM_PREFIX, 0xc1));
    const { items, error } = await readAll(anchor.batches());
    expect(items.flat()).to.deep.equal([7, 7]);
    expect(error?.code).to.equal('ERR_DESERIALIZATION');
  });

  it('AT-11 an undecodable record closes the slot and tells the sender while the anchor is still held', async () => {
    const { node, anchor, data } = await opened();
    await data(1, Uint8Array.of(0xc1));
    await failure('ERR_DESERIALIZATION', take(anchor, 1));
    await until('the sender is told', () => peer.requests.some(({ handler }) => handler === '_stream_cancel'));
    await until('the slot is told to cancel', () =>
      peer.records.some(({ type, action }) => type === 5 && action === 1),
    );
    await until('the slot is gone', () => node.stats().liveSlots === 0);
    expect(anchor.ended).to.equal(true);
  });
});
