// Long runs and wide tables between nodes: what is sent stays in order and within its window, batches are numbered without a hole, and
// there is one sequence of them per peer and lane.

import { expect } from 'chai';
import { StreamAnchorHandle, type StreamSender, Velo } from '../../lib/index.js';
import { RECORD_CREDIT_UPDATE, RECORD_OPEN_SLOT } from '../../lib/wire/batch.js';
import { ITEM_PREFIX } from '../../lib/wire/frame.js';
import { slotId } from '../../lib/wire/slot-id.js';
import { failure, openStream, pause, range, readAll, sendRange, streamSuite, take, until } from '../support/nodes.js';
import { accept, dataRecord, recordsOf, type SeenBatch, WirePeer } from '../support/wire-peer.js';

const DEFAULT_SLOT_BYTES = 1_048_576;
const KIB = 1_024;
/** A beat would be one more batch. */
const HOUR_MS = 3_600_000;

streamSuite('long runs', (host, nodes) => {
  it('AW-03 10,000 records of 1 KiB pass the default window, and no more than the byte budget ever waits for credit', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const { anchor, sender } = await openStream<Uint8Array>({ consumer, producer });
    let most = 0;
    const look = () => {
      most = Math.max(most, producer.stats().withheldRecords);
    };
    const body = new Uint8Array(KIB);
    const view = new DataView(body.buffer);
    const sending = (async () => {
      for (const i of range(0, 10_000)) {
        view.setUint32(0, i);
        // The bytes are copied before the call returns.
        await sender.send(body);
        look();
      }
      await sender.finalize();
    })();
    // Its reader comes late, so that the sender is stopped by the budget first.
    await until('the budget is full', () => {
      look();
      return most >= 1_000;
    });
    const got: number[] = [];
    for await (const item of anchor) {
      look();
      expect(item).to.have.length(KIB);
      got.push(new DataView(item.buffer, item.byteOffset).getUint32(0));
    }
    await sending;
    expect(got).to.deep.equal(range(0, 10_000));
    expect(most).to.be.at.most(DEFAULT_SLOT_BYTES / KIB + 1);
    await until('nothing is withheld', () => producer.stats().withheldRecords === 0);
    expect(consumer.stats().readerStalls + producer.stats().creditLost).to.equal(0);
  });

  it('AR-17 a fast remote sender keeps its order under a reader that dawdles', async () => {
    const pair = await nodes.pair(host, { mux: { initialCredit: 8 } });
    const { anchor, sender } = await openStream<number>(pair);
    const sent = sendRange(sender, 0, 200).then(() => sender.finalize());
    const got: number[] = [];
    for await (const item of anchor) {
      got.push(item);
      if (got.length % 3 === 0) await pause(1);
    }
    await sent;
    expect(got).to.deep.equal(range(0, 200));
    expect(pair.producer.stats().creditExhausted, 'the sender was ahead').to.be.greaterThan(0);
  });
});

streamSuite('batches in sequence', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  beforeEach(async () => {
    peer = await WirePeer.listen({ lanes: 2 });
    node = await nodes.make({ host, lanes: 2 });
    node.registerPeer(peer.info);
    peer.faces(node);
  });
  afterEach(() => peer.close());

  const attach = (lane: number, anchor: bigint): Promise<StreamSender<unknown>> => {
    peer.onAttach = () => accept({ routingSessionId: anchor, lane, heartbeatIntervalMs: HOUR_MS });
    return node.attachAnchor(StreamAnchorHandle.pack(peer.workerId, anchor, 'spsc'));
  };
  const opens = () => recordsOf(peer, RECORD_OPEN_SLOT);

  it('AR-20 a send that comes to nothing takes no number: 1,000 opens arrive as 0 to 999', async () => {
    const loop: unknown[] = [];
    loop.push(loop);
    const senders: StreamSender<unknown>[] = [];
    for (const i of range(0, 1_000)) {
      if (i % 3 === 2) {
        await failure('ERR_SERIALIZATION', () => senders.at(-1)!.trySend(loop));
        node.flushBatch();
      }
      senders.push(await attach(0, BigInt(i + 1)));
    }
    await until('all are open', () => opens().length === 1_000);
    expect(peer.batches.map(({ batchSeq }) => batchSeq)).to.deep.equal(range(0, 1_000));
    expect(peer.batches.every(({ records }) => records.length === 1)).to.equal(true);
    expect(opens().map(({ session }) => Number(session))).to.deep.equal(range(1, 1_001));
    await peer.batch(0, (batch) => {
      for (const { slot } of opens()) batch.closeSlot(slot, 0, 2);
    });
    await until('all are closed', () => senders.every((sender) => sender.cancelled));
    for (const sender of senders) void sender.close();
  });

  it('AK-16 one batcher per peer and lane, made when there is something to send on it', async () => {
    const other = await WirePeer.listen({ lanes: 2 });
    node.registerPeer(other.info);
    other.faces(node);
    const ends = [await attach(1, 1n), await attach(1, 2n), await attach(0, 3n), await attach(1, 4n)];
    other.onAttach = () => accept({ routingSessionId: 5n, lane: 1, heartbeatIntervalMs: HOUR_MS });
    ends.push(await node.attachAnchor(StreamAnchorHandle.pack(other.workerId, 5n, 'spsc')));
    for (const sender of ends) await sender.send(1);
    for (const sender of ends) await sender.finalize();
    await until('both are told everything', () => peer.records.length === 4 * 4 && other.records.length === 4);
    const epochs = [peer, other].flatMap((each) => [0, 1].map((lane) => epochOf(each.batches, lane)));
    expect(epochs[2], 'nothing was sent on lane 0 of the other').to.equal(undefined);
    const known = epochs.filter((epoch) => epoch !== undefined);
    expect(new Set(known).size, 'each lane of each peer has an epoch of its own').to.equal(3);
    await other.close();
  });

  it('AK-16 a node that only receives has no batcher until it owes something', async () => {
    await peer.hello();
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, 0, { port: peer.nodePorts[0]! });
    const item = Uint8Array.of(...ITEM_PREFIX, 1);
    await peer.batch(0, (batch) => dataRecord(batch, 0, 1, item));
    await until('the record is there', () => node.stats().recordsInBatchesReceived === 2);
    expect(node.stats()).to.include({ batchesSent: 0, wakesControl: 0 });
    expect(await take(anchor, 1)).to.deep.equal([1]);
    await until('the credit came', () => recordsOf(peer, RECORD_CREDIT_UPDATE).length === 1);
    expect(peer.batches[0]).to.include({ lane: 0, batchSeq: 0 });
    anchor.controller.cancel();
  });
});

/** The one epoch of a lane's batches, which must be numbered from 0 without a hole; undefined when there are none. */
function epochOf(batches: readonly SeenBatch[], lane: number): bigint | undefined {
  const own = batches.filter((batch) => batch.lane === lane);
  expect(own.map(({ batchSeq }) => batchSeq)).to.deep.equal(range(0, own.length));
  expect(new Set(own.map(({ epoch }) => epoch)).size).to.be.at.most(1);
  return own[0]?.epoch;
}

describe('wide tables (inline lanes)', () => {
  let peer: WirePeer;
  let node: Velo;
  before(async () => {
    peer = await WirePeer.listen();
    node = await Velo.create({ host: 'inline', lanes: 16 });
    await peer.faces(node).hello();
  });
  after(async () => {
    await node.close();
    await peer.close();
  });

  it('AL-21 a one-lane sender opens slots 4,096 and 65,535 on lane 0 of a node with 16 lanes, and no further', async () => {
    for (const index of [4_095, 4_096, 65_535]) {
      const anchor = node.createAnchor<number>();
      const slot = slotId(index, 0);
      await peer.open(anchor.handle, slot);
      await peer.batch(0, (batch) => {
        for (const value of range(1, 4)) dataRecord(batch, slot, value, Uint8Array.of(...ITEM_PREFIX, value));
      });
      expect(await take(anchor, 3)).to.deep.equal([1, 2, 3]);
      anchor.controller.cancel();
    }
    const refused = node.createAnchor<number>();
    await peer.open(refused.handle, slotId(65_536, 0));
    await until('it is refused', () =>
      peer.records.some(({ closeReason, slot }) => slot === slotId(65_536, 0) && closeReason === 3),
    );
    refused.controller.cancel();
  });

  it('AL-21 4,200 streams of a one-lane node are open at once on lane 0 of a node with 16 lanes', async () => {
    const producer = await Velo.create({ host: 'inline' });
    node.registerPeer(producer.peerInfo);
    producer.registerPeer(node.peerInfo);
    const anchors = range(0, 4_200).map(() => node.createAnchor<number>());
    const senders = await Promise.all(anchors.map(({ handle }) => producer.attachAnchor<number>(handle)));
    expect(producer.stats().liveSlots).to.equal(4_200);
    for (const i of range(0, 4_200)) expect(senders[i]!.trySend(i)).to.equal(true);
    await Promise.all(senders.map((sender) => sender.finalize()));
    const read = await Promise.all(anchors.map((anchor) => readAll(anchor)));
    expect(read.map(({ items }) => items)).to.deep.equal(range(0, 4_200).map((i) => [i]));
    await producer.close();
  });
});
