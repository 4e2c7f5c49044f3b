// Opening streams: OpenSlot on the wire, sessions, refusals, terminals. A foreign node reads and writes the bytes.

import { expect } from 'chai';
import { type StreamAnchor, StreamAnchorHandle, type Velo } from '../../lib/index.js';
import {
  CLOSE_PEER_GONE,
  CLOSE_TERMINAL_SENT,
  CLOSE_UNKNOWN_SLOT,
  LIFECYCLE_CANCEL,
  LIFECYCLE_STOP,
  RECORD_CLOSE_SLOT,
  RECORD_CREDIT_UPDATE,
  RECORD_DATA,
  RECORD_LIFECYCLE,
  RECORD_OPEN_SLOT,
} from '../../lib/wire/batch.js';
import { DROPPED_BYTES, FINALIZED_BYTES, ITEM_PREFIX } from '../../lib/wire/frame.js';
import { failure, pause, provesAlive, range, readAll, sendRange, streamSuite, take, until } from '../support/nodes.js';
import { accept, dataRecord, openRecord, recordsOf, WirePeer } from '../support/wire-peer.js';

const SLOT_0 = 0;
const SLOT_1 = 0x100;
const item = (value: number) => Uint8Array.of(...ITEM_PREFIX, value);

streamSuite('many streams opened at once', (host, nodes) => {
  it('2,000 attaches at once all open, though the first of them has yet to dial', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const anchors = range(0, 2_000).map(() => consumer.createAnchor<number>());
    const senders = await Promise.all(anchors.map(({ handle }) => producer.attachAnchor<number>(handle)));
    const read = Promise.all(anchors.map((anchor) => readAll(anchor)));
    expect(senders.every((sender, i) => sender.trySend(i))).to.equal(true);
    await Promise.all(senders.map((sender) => sender.finalize()));
    expect((await read).map(({ items }) => items)).to.deep.equal(range(0, 2_000).map((i) => [i]));
  });
});

streamSuite('a slot opened by a node', (host, nodes) => {
  let peer: WirePeer;
  beforeEach(async () => {
    peer = await WirePeer.listen();
  });
  afterEach(() => peer.close());

  it('AO-01 OpenSlot goes when the stream attaches, alone in its batch, and the first data follows it', async () => {
    const { producer } = await nodes.shared(host);
    producer.registerPeer(peer.info);
    peer.faces(producer);
    const handle = StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc');
    const sender = await producer.attachAnchor<number>(handle);
    await until('the slot is opened', () => peer.batches.length > 0);
    expect(peer.batches).to.have.length(1);
    expect(peer.batches[0]).to.include({ lane: 0, headerLane: 0, batchSeq: 0 });
    expect(peer.batches[0]!.records).to.have.length(1);
    expect(peer.records[0]).to.include({ type: RECORD_OPEN_SLOT, frameSeq: 0, anchor: 5n, session: 77n });
    await sender.send(1);
    await sender.send(2);
    await sender.finalize();
    await until('the close came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length > 0);
    expect(peer.records.map(({ type, frameSeq }) => [type, frameSeq])).to.deep.equal([
      [RECORD_OPEN_SLOT, 0],
      [RECORD_DATA, 1],
      [RECORD_DATA, 2],
      [RECORD_DATA, 3],
      [RECORD_CLOSE_SLOT, 4],
    ]);
    expect(peer.records[3]!.body).to.deep.equal(FINALIZED_BYTES);
    expect(peer.records[4]!.closeReason).to.equal(CLOSE_TERMINAL_SENT);
    expect(
      peer.batches
        .at(-1)!
        .records.slice(-2)
        .map(({ type }) => type),
      'terminal and close',
    ).to.deep.equal([RECORD_DATA, RECORD_CLOSE_SLOT]);
  });

  it('AO-04 a slot that the peer does not know closes its sender, and another stream goes on', async () => {
    const { producer } = await nodes.shared(host);
    producer.registerPeer(peer.info);
    peer.faces(producer);
    let session = 70n;
    peer.onAttach = () => accept({ routingSessionId: ++session });
    const orphan = await producer.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
    const live = await producer.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 6n, 'spsc'));
    await until('both are open', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 2);
    const [first, second] = recordsOf(peer, RECORD_OPEN_SLOT);
    await peer.batch(0, (batch) => batch.closeSlot(first!.slot, 0, CLOSE_UNKNOWN_SLOT));
    await until('the orphan hears', () => orphan.cancelled);
    await failure('ERR_CHANNEL_CLOSED', orphan.send(1));
    await orphan.close();
    await sendRange(live, 0, 3);
    await live.finalize();
    await until('the live stream ended', () => recordsOf(peer, RECORD_CLOSE_SLOT).length > 0);
    expect(recordsOf(peer, RECORD_DATA).every(({ slot }) => slot === second!.slot)).to.equal(true);
    expect(recordsOf(peer, RECORD_DATA)).to.have.length(4);
  });

  it('AD-10 a cancel for another session of the same slot is ignored', async () => {
    const { producer } = await nodes.shared(host);
    producer.registerPeer(peer.info);
    peer.faces(producer);
    const sender = await producer.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
    await until('it is open', () => peer.records.length === 1);
    const { slot } = peer.records[0]!;
    await peer.batch(0, (batch) => {
      batch.lifecycle(slot, 0, 76, LIFECYCLE_CANCEL);
      batch.lifecycle(slot, 0, 77, LIFECYCLE_STOP);
    });
    await until('the stop arrived', () => sender.stopped);
    expect(sender.cancelled).to.equal(false);
    await sender.send(1);
    await peer.batch(0, (batch) => batch.lifecycle(slot, 0, 77, LIFECYCLE_CANCEL));
    await until('the cancel arrived', () => sender.cancelled);
    await failure('ERR_CHANNEL_CLOSED', sender.send(2));
    await sender.close();
  });
});

streamSuite('a slot opened by a foreign node', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    node = (await nodes.shared(host)).consumer;
    await peer.faces(node).hello();
  });
  afterEach(async () => {
    await peer.close();
    await provesAlive(await nodes.shared(host));
  });

  it('AO-02 a claim grants no credit: what comes back is what was taken', async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT_1);
    await until('it is claimed', () => node.stats().liveSlots === 1);
    await pause(30);
    expect(recordsOf(peer, RECORD_CREDIT_UPDATE)).to.deep.equal([]);
    await peer.batch(0, (batch) => {
      for (const i of range(0, 5)) dataRecord(batch, SLOT_1, i + 1, item(i));
    });
    expect(await take(anchor, 5)).to.deep.equal(range(0, 5));
    const granted = () => recordsOf(peer, RECORD_CREDIT_UPDATE).reduce((sum, { delta }) => sum + delta, 0);
    await until('the credit came back', () => granted() === 5);
    await peer.batch(0, (batch) => {
      dataRecord(batch, SLOT_1, 6, FINALIZED_BYTES);
      batch.closeSlot(SLOT_1, 7, CLOSE_TERMINAL_SENT);
    });
    expect((await readAll(anchor)).error).to.equal(undefined);
    await pause(30);
    expect(granted(), 'a terminal gives nothing back').to.equal(5);
    expect(recordsOf(peer, RECORD_CREDIT_UPDATE).every(({ slot }) => slot === SLOT_1)).to.equal(true);
  });

  it('AO-03 an OpenSlot for a pair that nobody bound refuses that slot alone', async () => {
    const anchor = node.createAnchor<number>();
    const answer = await peer.attach(anchor.handle);
    const session = answer.ok ? answer.value.routingSessionId : 0n;
    const before = node.stats().droppedUnknownSlot;
    await peer.batch(0, (batch) => {
      openRecord(batch, SLOT_0, anchor.handle.local, session + 1n);
      openRecord(batch, 0x300, anchor.handle.local ^ 1n, session);
      openRecord(batch, SLOT_1, anchor.handle.local, session);
      dataRecord(batch, SLOT_1, 1, item(1));
      dataRecord(batch, SLOT_0, 1, item(9));
    });
    expect(await take(anchor, 1)).to.deep.equal([1]);
    await until('the refusals came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 2);
    const closes = recordsOf(peer, RECORD_CLOSE_SLOT).map(({ slot, closeReason }) => [slot, closeReason]);
    expect(closes.sort()).to.deep.equal([
      [SLOT_0, CLOSE_UNKNOWN_SLOT],
      [0x300, CLOSE_UNKNOWN_SLOT],
    ]);
    await until('they are counted', () => node.stats().droppedUnknownSlot - before === 2);
    anchor.controller.cancel();
  });

  it('AO-05 two sessions of one anchor stay separate', async () => {
    const anchor = node.createAnchor<number>();
    const first = await peer.open(anchor.handle, SLOT_0);
    await peer.batch(0, (batch) => {
      for (const i of range(0, 16)) dataRecord(batch, SLOT_0, i + 1, item(i));
    });
    const reader = anchor.frames();
    for (const i of range(0, 16)) expect((await reader.next()).value).to.deep.equal({ kind: 'item', value: i });
    const body = new TextEncoder().encode(handleJson(anchor.handle));
    expect((await peer.call('_anchor_detach', body)).text).to.equal('null');
    expect((await reader.next()).value).to.deep.equal({ kind: 'detached' });
    const second = await peer.open(anchor.handle, SLOT_1);
    expect(second.routingSessionId).not.to.equal(first.routingSessionId);
    await peer.batch(0, (batch) => {
      for (const i of range(0, 16)) {
        dataRecord(batch, SLOT_0, i + 17, item(99));
        dataRecord(batch, SLOT_1, i + 1, item(50 + i));
      }
      dataRecord(batch, SLOT_1, 17, FINALIZED_BYTES);
      batch.closeSlot(SLOT_1, 18, CLOSE_TERMINAL_SENT);
    });
    const rest: number[] = [];
    for await (const frame of reader) if (frame.kind === 'item') rest.push(frame.value);
    expect(rest).to.deep.equal(range(50, 66));
  });

  it('an anchor is finalized, and cancelled, by message: its reader ends, its slot closes, its sender hears', async () => {
    for (const [handler, last] of [
      ['_anchor_finalize', ['item', 'finalized']],
      ['_anchor_cancel', ['item']],
    ] as const) {
      const slot = handler === '_anchor_finalize' ? SLOT_0 : SLOT_1;
      const anchor = node.createAnchor<number>();
      await peer.open(anchor.handle, slot);
      await peer.batch(0, (batch) => dataRecord(batch, slot, 1, item(1)));
      const reader = anchor.frames();
      const kinds = [(await reader.next()).value?.kind];
      const body = new TextEncoder().encode(handleJson(anchor.handle));
      for (const _ of range(0, 2)) expect((await peer.call(handler, body)).text).to.equal('null');
      for await (const frame of reader) kinds.push(frame.kind);
      expect(kinds).to.deep.equal(last);
      await until('the slot is cancelled', () =>
        recordsOf(peer, RECORD_LIFECYCLE).some((record) => record.slot === slot && record.action === LIFECYCLE_CANCEL),
      );
      expect(node.stats().anchors).to.equal(0);
    }
  });

  it("AO-30 a message about another worker's anchor leaves the one with the same local id alone", async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT_1);
    const foreign = StreamAnchorHandle.pack(peer.workerId, anchor.handle.local, 'spsc');
    const body = new TextEncoder().encode(handleJson(foreign));
    for (const handler of ['_anchor_detach', '_anchor_finalize', '_anchor_cancel'])
      expect((await peer.call(handler, body)).text).to.equal('null');
    await peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 1, item(1)));
    expect(await take(anchor, 1)).to.deep.equal([1]);
    anchor.controller.cancel();
  });

  it('AT-03 a terminal and its close give the terminal alone, then the end', async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT_1);
    await peer.batch(0, (batch) => {
      dataRecord(batch, SLOT_1, 1, item(1));
      dataRecord(batch, SLOT_1, 2, FINALIZED_BYTES);
      batch.closeSlot(SLOT_1, 3, CLOSE_TERMINAL_SENT);
    });
    const { items, error } = await readAll(anchor.frames());
    expect(items.map(({ kind }) => kind)).to.deep.equal(['item', 'finalized']);
    expect(error).to.equal(undefined);
    await until('the slot is gone', () => node.stats().liveSlots === 0);
  });

  const vanishings: [string, (anchor: StreamAnchor<number>) => Promise<void>][] = [
    ['closes its slot', () => peer.batch(0, (batch) => batch.closeSlot(SLOT_1, 2, CLOSE_PEER_GONE))],
    ['closes it as if after one', () => peer.batch(0, (batch) => batch.closeSlot(SLOT_1, 2, CLOSE_TERMINAL_SENT))],
    ['starts a new epoch', () => peer.batch(0, (batch) => batch.creditUpdate(0, 1), { epoch: 2n })],
    ['says so itself', () => peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 2, DROPPED_BYTES))],
  ];
  for (const [how, vanish] of vanishings) {
    it(`AT-07 a producer that vanishes without a terminal (it ${how}) gives dropped`, async () => {
      const anchor = node.createAnchor<number>();
      await peer.open(anchor.handle, SLOT_1);
      await peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 1, item(1)));
      await vanish(anchor);
      const { items, error } = await readAll(anchor);
      expect(items).to.deep.equal([1]);
      expect(error?.code).to.equal('ERR_SENDER_DROPPED');
    });
  }

  it('AR-02 records ahead of their turn wait for it, and so does a close', async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT_1);
    await peer.batch(0, (batch) => {
      dataRecord(batch, SLOT_1, 3, item(3));
      dataRecord(batch, SLOT_1, 2, item(2));
      dataRecord(batch, SLOT_1, 4, FINALIZED_BYTES);
      batch.closeSlot(SLOT_1, 5, CLOSE_TERMINAL_SENT);
    });
    await until('they are held', () => node.stats().heldRecords === 3);
    expect(node.stats().liveSlots).to.equal(1);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 1, item(1)));
    expect(await readAll(anchor)).to.deep.equal({ items: [1, 2, 3], error: undefined });
  });
});

function handleJson(handle: StreamAnchorHandle): string {
  return `{"handle":{"hi":${handle.worker},"lo":${handle.local}}}`;
}
