// `velo.streams()`: what it says of streams that flow, starve, wait and end, held against the gauges; and that no lane that is dead,
// stuck or closing keeps it.

import { expect } from 'chai';
import { MESSENGER_MUX_KEY, type StreamInfo, type Velo } from '../../lib/index.js';
import { ITEM_PREFIX } from '../../lib/wire/frame.js';
import {
  failure,
  introduce,
  nodesOfSuite,
  openStream,
  range,
  readAll,
  sendRange,
  streamSuite,
  take,
  until,
} from '../support/nodes.js';
import { dataRecord, WirePeer } from '../support/wire-peer.js';
import { kill } from './crashing-lane.js';

const MORTAL = new URL('./crashing-lane.js', import.meta.url);
const SLOT = 0x100;
const item = (n: number) => Uint8Array.of(...ITEM_PREFIX, n);

/** Asks again until the rows are what is waited for: lanes account for reads at their next visit. */
async function listed(node: Velo, what: string, holds: (rows: StreamInfo[]) => boolean): Promise<StreamInfo[]> {
  for (let i = 0; i < 2_000; i += 1) {
    const rows = await node.streams();
    if (holds(rows)) return rows;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  throw new Error(`gave up waiting until ${what}`);
}

const sum = (rows: readonly StreamInfo[], field: 'withheld' | 'held' | 'standing' | 'buffered' | 'bytes') =>
  rows.reduce((total, row) => total + row[field], 0);

streamSuite('the streams of a node', (host, nodes) => {
  it('a slow reader shows: no credit and records withheld at its sender, a full window buffered where it reads', async () => {
    // No heartbeat comes between the records.
    const pair = await nodes.pair(host, { mux: { initialCredit: 8 }, heartbeatIntervalMs: 60_000 });
    const { consumer, producer } = pair;
    const slow = await openStream<number>(pair);
    const fast = await openStream<number>(pair);
    await sendRange(slow.sender, 0, 20);
    await sendRange(fast.sender, 0, 4);
    expect(await take(fast.anchor, 4)).to.deep.equal(range(0, 4));
    await until('the window is spent', () => producer.stats().withheldRecords === 12);
    await until('it came', () => consumer.stats().recordsInBatchesReceived >= 2 + 8 + 4);

    const out = await producer.streams();
    expect(out).to.have.length(producer.stats().liveSlots);
    expect(sum(out, 'withheld')).to.equal(producer.stats().withheldRecords);
    const slowOut = out.find(({ anchor }) => anchor === slow.anchor.handle.local)!;
    expect(slowOut).to.include({
      direction: 'out',
      peer: consumer.instanceId,
      transport: MESSENGER_MUX_KEY,
      lane: 0,
      worker: 0,
      state: 'open',
      credit: 0,
      window: 8,
      withheld: 12,
      held: 0,
      buffered: 0,
      records: 9,
      starving: true,
      paused: false,
      fenced: false,
    });
    expect(slowOut.bytes).to.equal(12 * item(1).length);
    expect(slowOut.ageMs).to.be.greaterThan(0);
    const fastOut = out.find(({ anchor }) => anchor === fast.anchor.handle.local)!;
    expect(fastOut).to.include({ withheld: 0, starving: false, records: 5, bytes: 0 });

    const incoming = await listed(consumer, 'the fast one is read', (rows) => sum(rows, 'buffered') === 8);
    expect(incoming).to.have.length(consumer.stats().liveSlots);
    const slowIn = incoming.find(({ session }) => session === slowOut.session)!;
    expect(slowIn).to.include({
      direction: 'in',
      peer: producer.instanceId,
      anchor: slow.anchor.handle.local,
      slot: slowOut.slot,
      state: 'open',
      credit: 0,
      window: 8,
      buffered: 8,
      withheld: 0,
      records: 9,
      bytes: 8 * item(1).length,
      silentWindows: 0,
    });
    const fastIn = incoming.find(({ session }) => session === fastOut.session)!;
    expect(fastIn).to.include({ anchor: fast.anchor.handle.local, buffered: 0, bytes: 0 });
    expect(fastIn.credit).to.be.within(4, 8);

    await slow.sender.finalize();
    const [ending] = (await producer.streams()).filter(({ session }) => session === slowOut.session);
    expect(ending?.state).to.equal('ending');
    await fast.sender.finalize();
    expect((await readAll(slow.anchor)).items).to.deep.equal(range(0, 20));
    await readAll(fast.anchor);
    for (const node of [consumer, producer]) await listed(node, 'nothing lives', (rows) => rows.length === 0);
  });

  it('records behind a gap are held in their row, as in the gauge', async () => {
    const node = await nodes.make({ host });
    const peer = (await WirePeer.listen()).faces(node);
    await peer.hello();
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => {
      dataRecord(batch, SLOT, 2, item(2));
      dataRecord(batch, SLOT, 3, item(3));
    });
    await until('both are held', () => node.stats().heldRecords === 2);
    const [row] = await node.streams();
    expect(row).to.include({ peer: peer.info.instanceId, slot: SLOT, held: 2, buffered: 0, records: 1 });
    expect(row).to.include({ window: 32, credit: 30, bytes: 2 * item(2).length });
    anchor.controller.cancel();
    await peer.close();
  });

  it('a stream within the node has both its ends listed', async () => {
    const node = await nodes.make({ host });
    const anchor = node.createAnchor<number>();
    const sender = await node.attachAnchor<number>(anchor.handle);
    await sendRange(sender, 0, 3);
    const rows = await node.streams();
    expect(rows.map(({ direction }) => direction)).to.deep.equal(['out', 'in']);
    for (const row of rows)
      expect(row).to.include({
        peer: node.instanceId,
        transport: undefined,
        lane: -1,
        worker: -1,
        anchor: anchor.handle.local,
        window: 256,
        credit: 253,
        buffered: 3,
        bytes: 3 * item(1).length,
      });
    await sender.finalize();
    expect(await node.streams()).to.deep.equal([]);
    await readAll(anchor);
  });

  it('hundreds of streams over two lanes come once each, in pieces, while others open and close', async () => {
    const count = 300;
    const pair = await nodes.pair(host, { lanes: 2 }, { lanes: 2 });
    const streams = await Promise.all(range(0, count).map((k) => openStream<number>(pair, { key: BigInt(k) })));
    await until('all live', () => pair.consumer.stats().liveSlots === count);
    const churn = (async () => {
      for (let i = 0; i < 30; i += 1) {
        const { sender, anchor } = await openStream<number>(pair);
        await sender.finalize();
        await readAll(anchor);
      }
    })();
    const lists = await Promise.all([pair.producer.streams(), pair.producer.streams(), pair.consumer.streams()]);
    const anchors = streams.map(({ anchor }) => anchor.handle.local);
    for (const rows of lists) {
      const found = rows.map(({ anchor }) => anchor);
      for (const anchor of anchors) expect(found.filter((other) => other === anchor)).to.have.length(1);
      expect(new Set(rows.map(({ lane }) => lane))).to.deep.equal(new Set([0, 1]));
    }
    await churn;
    await Promise.all(streams.map(({ sender }) => sender.close()));
    for (const { anchor } of streams) await failure('ERR_SENDER_DROPPED', take(anchor, 1));
    expect(await listed(pair.producer, 'none lives', (rows) => rows.length === 0)).to.deep.equal([]);
  });

  it('a closed node rejects with ERR_CLOSED, and one that closes meanwhile does too, or lists', async () => {
    const pair = await nodes.pair(host);
    const { anchor } = await openStream(pair);
    const asked = pair.producer.streams().catch((error: { code: string }) => error.code);
    await pair.producer.close();
    expect(await asked).to.satisfy((came: unknown) => came === 'ERR_CLOSED' || Array.isArray(came));
    await failure('ERR_CLOSED', pair.producer.streams());
    anchor.controller.cancel();
  });
});

describe('the streams of a node with a dead lane', () => {
  const nodes = nodesOfSuite();

  it('lists those of the other lane, at once', async () => {
    const other = await nodes.make({ host: 'inline', lanes: 2 });
    const node = await nodes.make({ host: 'piscina', lanes: 2, worker: MORTAL });
    introduce(node, other);
    const streams = await Promise.all(
      range(0, 8).map((k) => openStream<number>({ consumer: other, producer: node }, { key: BigInt(k) })),
    );
    const before = await node.streams();
    expect(new Set(before.map(({ worker }) => worker))).to.deep.equal(new Set([0, 1]));
    // Asked in the same turn: the lane dies with the question unanswered, or answered in part.
    kill(node.workerId, 1, 'exit');
    const meanwhile = await node.streams();
    const ofLane0 = before.filter(({ worker }) => worker === 0).length;
    expect(meanwhile.filter(({ worker }) => worker === 0)).to.have.length(ofLane0);
    const after = await listed(node, 'the dead lane is gone', (rows) => rows.every(({ worker }) => worker === 0));
    expect(after).to.have.length(ofLane0);
    for (const { anchor } of streams) anchor.controller.cancel();
  });
});
