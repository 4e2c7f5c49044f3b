// The bounds that all lanes of a node share: what is held for one peer, and what is kept for all streams. Foreign nodes and real ones.

import { expect } from 'chai';
import { rawCodec, type StreamSender, type Velo } from '../../lib/index.js';
import { CLOSE_PROTOCOL_ERROR, RECORD_CLOSE_SLOT, RECORD_CREDIT_UPDATE } from '../../lib/wire/batch.js';
import { FINALIZED_BYTES, ITEM_PREFIX } from '../../lib/wire/frame.js';
import {
  nodesOfSuite,
  type OpenStream,
  openStream,
  range,
  readAll,
  sendRange,
  streamSuite,
  take,
  until,
} from '../support/nodes.js';
import { dataRecord, recordsOf, WirePeer } from '../support/wire-peer.js';
import { kill } from './crashing-lane.js';

const BIN_8 = 0xc4;
const SLOT_1 = 0x100;
const SLOT_2 = 0x200;
const SLOT_3 = 0x300;

/** An item frame of `length` bytes in all, at most 255. */
function frameOf(length: number, fill: number): Uint8Array {
  const bytes = new Uint8Array(length).fill(fill);
  bytes.set(ITEM_PREFIX);
  bytes[ITEM_PREFIX.length] = BIN_8;
  bytes[ITEM_PREFIX.length + 1] = length - ITEM_PREFIX.length - 2;
  return bytes;
}

streamSuite('bytes held for one peer', (host, nodes) => {
  let peer: WirePeer;
  afterEach(() => peer.close());

  it('AL-22 its lanes share one budget, each on its own worker: what one holds the other may not, until it lets go', async () => {
    peer = await WirePeer.listen({ lanes: 2 });
    const node = await nodes.make({ host, lanes: 2, mux: { peerByteBudget: 300 } });
    await peer.faces(node).hello();
    const port = peer.nodePorts[1]!;
    const anchors = range(0, 3).map(() => node.createAnchor({ codec: rawCodec() }));
    await peer.open(anchors[0]!.handle, SLOT_1, { lane: 0 });
    await peer.open(anchors[1]!.handle, SLOT_1, { lane: 1, port });
    await peer.open(anchors[2]!.handle, SLOT_2, { lane: 1, port });
    await peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 2, frameOf(180, 1)));
    await until('lane 0 holds it', () => node.stats().heldRecords === 1);
    await peer.batch(1, (batch) => dataRecord(batch, SLOT_1, 2, frameOf(180, 2)), { port });
    expect((await readAll(anchors[1]!)).error?.code).to.equal('ERR_SENDER_DROPPED');
    await until('the close came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]).to.include({
      lane: 1,
      slot: SLOT_1,
      closeReason: CLOSE_PROTOCOL_ERROR,
    });
    expect(node.stats()).to.include({ holdOverflow: 1, heldRecords: 1 });

    // A new epoch retires what lane 0 holds.
    await peer.batch(0, (batch) => batch.creditUpdate(0, 1), { epoch: 9n });
    expect((await readAll(anchors[0]!)).error?.code).to.equal('ERR_SENDER_DROPPED');
    await peer.batch(1, (batch) => dataRecord(batch, SLOT_2, 2, frameOf(180, 3)), { port });
    await peer.batch(1, (batch) => dataRecord(batch, SLOT_2, 1, frameOf(20, 4)), { port });
    await peer.batch(1, (batch) => dataRecord(batch, SLOT_2, 3, FINALIZED_BYTES), { port });
    expect((await readAll(anchors[2]!)).items.map((item) => item.length)).to.deep.equal([12, 172]);
    expect(node.stats().holdOverflow).to.equal(1);
  });
});

describe('bytes held for one peer by a lane that dies', () => {
  const nodes = nodesOfSuite();

  it('are nobody’s any more: another lane may hold as many', async () => {
    const peer = await WirePeer.listen({ lanes: 2 });
    try {
      const worker = new URL('./crashing-lane.js', import.meta.url);
      const node = await nodes.make({ host: 'worker', worker, lanes: 2, mux: { peerByteBudget: 300 } });
      await peer.faces(node).hello();
      const port = peer.nodePorts[1]!;
      const anchors = range(0, 3).map(() => node.createAnchor({ codec: rawCodec() }));
      await peer.open(anchors[0]!.handle, SLOT_1, { lane: 1, port });
      await peer.open(anchors[1]!.handle, SLOT_1);
      await peer.open(anchors[2]!.handle, SLOT_2);
      await peer.batch(1, (batch) => dataRecord(batch, SLOT_1, 2, frameOf(180, 1)), { port });
      await until('lane 1 holds it', () => node.stats().heldRecords === 1);
      await peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 2, frameOf(180, 2)));
      expect((await readAll(anchors[1]!)).error?.code).to.equal('ERR_SENDER_DROPPED');
      kill(node.workerId, 1, 'exit');
      expect((await readAll(anchors[0]!)).error?.code).to.equal('ERR_LANE_DIED');
      await peer.batch(0, (batch) => dataRecord(batch, SLOT_2, 2, frameOf(180, 3)));
      await peer.batch(0, (batch) => dataRecord(batch, SLOT_2, 1, frameOf(20, 4)));
      await peer.batch(0, (batch) => dataRecord(batch, SLOT_2, 3, FINALIZED_BYTES));
      expect((await readAll(anchors[2]!)).items.map((item) => item.length)).to.deep.equal([12, 172]);
    } finally {
      await peer.close();
    }
  });
});

streamSuite('bytes that a node keeps', (host, nodes) => {
  let peer: WirePeer | undefined;
  afterEach(async () => {
    await peer?.close();
    peer = undefined;
  });

  it('above half of nodeBufferBytes a stream that withholds is pulled no further, and one that is read goes on', async () => {
    const streams = 8;
    const items = 100;
    const itemBytes = 4_000;
    const bound = 32_000;
    // Of the bound over all, and of each stream: the record that found it over, and those that stand behind it or travel.
    const most = bound + streams * 4 * (itemBytes + 20);
    const nodesOf = await nodes.pair(host, { mux: { initialCredit: 1 } }, { nodeBufferBytes: 2 * bound });
    const open = await Promise.all(range(0, streams).map(() => openStream<Uint8Array>(nodesOf)));
    let sent = 0;
    const sendAll = async ({ sender }: OpenStream<Uint8Array>) => {
      for (const i of range(0, items)) {
        await sender.send(new Uint8Array(itemBytes).fill(i));
        sent += 1;
      }
      await sender.finalize();
    };
    const sends = open.map(sendAll);
    const { producer } = nodesOf;
    await until('the bound is reached', () => producer.stats().withheldRecords * itemBytes > bound);
    // Meanwhile another stream of the same node comes and goes.
    const lively = await openStream<number>(nodesOf);
    const read = readAll(lively.anchor);
    await sendRange(lively.sender as StreamSender<number>, 0, 100);
    await lively.sender.finalize();
    expect((await read).items).to.deep.equal(range(0, 100));
    expect(sent * itemBytes, 'far from what the streams could keep each').to.be.below(most + streams * 3 * itemBytes);
    expect(producer.stats().withheldRecords * itemBytes).to.be.below(most);

    const ends = await Promise.all(open.map(({ anchor }) => readAll(anchor)));
    await Promise.all(sends);
    for (const { items: got, error } of ends) {
      expect(error).to.equal(undefined);
      expect(got.map((item) => item[0])).to.deep.equal(range(0, items));
    }
    await until('nothing is withheld any more', () => producer.stats().withheldRecords === 0);
  });

  it('above the other half a stream gets credit once it is read empty; one that is read as it comes gets it as ever', async () => {
    peer = await WirePeer.listen();
    const node: Velo = await nodes.make({ host, nodeBufferBytes: 300 });
    await peer.faces(node).hello();
    const anchors = range(0, 3).map(() => node.createAnchor({ codec: rawCodec() }));
    const [gapped, slow, quick] = anchors as [(typeof anchors)[0], (typeof anchors)[0], (typeof anchors)[0]];
    await peer.open(gapped.handle, SLOT_1);
    await peer.open(slow.handle, SLOT_2);
    await peer.open(quick.handle, SLOT_3);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 2, frameOf(200, 1)));
    await until('more than half is held', () => node.stats().heldRecords === 1);
    await peer.batch(0, (batch) => {
      for (const seq of range(1, 5)) dataRecord(batch, SLOT_2, seq, frameOf(20, seq));
    });
    const credits = (slot: number) =>
      recordsOf(peer!, RECORD_CREDIT_UPDATE)
        .filter((record) => record.slot === slot)
        .map(({ delta }) => delta);
    await take(slow, 2);
    for (const seq of range(1, 4)) {
      await peer.batch(0, (batch) => dataRecord(batch, SLOT_3, seq, frameOf(20, seq)));
      await take(quick, 1);
      await until('it gets its credit back', () => credits(SLOT_3).length === seq);
    }
    expect(credits(SLOT_2), 'two are unread').to.deep.equal([]);
    await take(slow, 2);
    await until('it gets all of it', () => credits(SLOT_2).length > 0);
    expect(credits(SLOT_2)).to.deep.equal([4]);

    // The gap closes: what it held is delivered, and nobody waits any more.
    await peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 1, frameOf(20, 0)));
    await take(gapped, 1);
    await until('its reader gets credit for a part', () => credits(SLOT_1).length > 0);
    expect(credits(SLOT_1)).to.deep.equal([1]);
    for (const anchor of anchors) anchor.controller.cancel();
  });
});
