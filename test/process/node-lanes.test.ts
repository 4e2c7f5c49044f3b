// The lanes that streams ride: the choice of the receiver, the tables per (peer, lane), replies on the lane of arrival. A foreign
// node reads and writes the bytes.

import { expect } from 'chai';
import { type StreamAnchor, StreamAnchorHandle, type Velo } from '../../lib/index.js';
import { decodeLanePorts } from '../../lib/wire/address.js';
import {
  CLOSE_TERMINAL_SENT,
  LIFECYCLE_CANCEL,
  RECORD_CLOSE_SLOT,
  RECORD_CREDIT_UPDATE,
  RECORD_DATA,
  RECORD_LIFECYCLE,
} from '../../lib/wire/batch.js';
import { FINALIZED_BYTES, ITEM_PREFIX } from '../../lib/wire/frame.js';
import { ADDRESS_KEY_LANES } from '../../lib/wire/names.js';
import {
  failure,
  openStream,
  range,
  readAll,
  type SuiteHost,
  sendRange,
  streamSuite,
  take,
  until,
} from '../support/nodes.js';
import { accept, dataRecord, openRecord, recordsOf, type SeenBatch, WirePeer } from '../support/wire-peer.js';

const SLOT_0 = 0;
const SLOT_1 = 0x100;
const item = (value: number) => Uint8Array.of(...ITEM_PREFIX, value);

streamSuite('lanes of a node', (host, nodes) => {
  let peer: WirePeer;
  afterEach(() => peer?.close());

  const laneNode = async (suiteHost: SuiteHost, lanes: number) => {
    peer = await WirePeer.listen();
    const node = await nodes.make({ host: suiteHost, lanes });
    await peer.faces(node).hello();
    return node;
  };

  it('AL-02 one lane by default, sixteen at most, a port for each', async () => {
    const ports = (node: Velo) => decodeLanePorts(node.peerInfo.entries().get(ADDRESS_KEY_LANES)!);
    const { consumer } = await nodes.shared(host);
    expect(ports(consumer)).to.have.length(1);
    const widest = await nodes.make({ host: 'inline', lanes: 16 });
    expect(new Set(ports(widest)).size).to.equal(16);
    const refused = await failure('ERR_INVALID_ARGUMENT', nodes.make({ host, lanes: 17 }));
    expect(refused.message).to.include('lanes');
  });

  it('AL-03 a batch whose header names another lane is dropped whole and counted', async () => {
    const node = await laneNode(host, 1);
    const anchor = node.createAnchor<number>();
    const answer = await peer.attach(anchor.handle);
    const session = answer.ok ? answer.value.routingSessionId : 0n;
    const open = (headerLane: number) =>
      peer.batch(1, (batch) => openRecord(batch, SLOT_1, anchor.handle.local, session), { headerLane });
    await open(0);
    await until('it is counted', () => node.stats().droppedLaneMismatch === 1);
    expect(node.stats().liveSlots).to.equal(0);
    await open(1);
    await until('it is claimed', () => node.stats().liveSlots === 1);
    await peer.batch(1, (batch) => dataRecord(batch, SLOT_1, 1, item(1)));
    expect(await take(anchor, 1)).to.deep.equal([1]);
    expect(node.stats().droppedLaneMismatch).to.equal(1);
  });

  it('AL-04 AL-05 two lanes of a peer have tables of their own, and replies go back where the batch came', async () => {
    const node = await laneNode(host, 2);
    const anchors = [node.createAnchor<number>(), node.createAnchor<number>()] as const;
    await peer.open(anchors[0].handle, SLOT_1, { lane: 0 });
    const { routingSessionId } = await peer.open(anchors[1].handle, SLOT_1, { lane: 1 });
    await until('both are claimed', () => node.stats().liveSlots === 2);
    await peer.batch(1, (batch) => dataRecord(batch, SLOT_1, 1, item(11)));
    await peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 1, item(10)));
    expect(await take(anchors[0], 1)).to.deep.equal([10]);
    expect(await take(anchors[1], 1)).to.deep.equal([11]);
    await until('both credits came', () => recordsOf(peer, RECORD_CREDIT_UPDATE).length === 2);
    expect(
      recordsOf(peer, RECORD_CREDIT_UPDATE)
        .map(({ lane }) => lane)
        .sort(),
    ).to.deep.equal([0, 1]);
    expect(peer.batches.every(({ lane, headerLane }) => lane === headerLane)).to.equal(true);

    anchors[1].controller.requestStop();
    anchors[1].controller.cancel();
    await until('the cancel came', () =>
      recordsOf(peer, RECORD_LIFECYCLE).some(({ action }) => action === LIFECYCLE_CANCEL),
    );
    for (const record of recordsOf(peer, RECORD_LIFECYCLE))
      expect(record).to.include({ lane: 1, slot: SLOT_1, session: routingSessionId });

    await peer.batch(1, (batch) => openRecord(batch, SLOT_0, 1n, 1n), { epoch: 9n });
    await until('the refusal came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]!.lane).to.equal(1);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 2, item(12)));
    expect(await take(anchors[0], 1), 'the other lane keeps its slot').to.deep.equal([12]);
  });

  it('AL-04 a new epoch on one lane retires only that lane', async () => {
    const node = await laneNode(host, 2);
    const anchors = [node.createAnchor<number>(), node.createAnchor<number>()] as const;
    await peer.open(anchors[0].handle, SLOT_1, { lane: 0 });
    await peer.open(anchors[1].handle, SLOT_1, { lane: 1 });
    await until('both are claimed', () => node.stats().liveSlots === 2);
    await peer.batch(1, (batch) => batch.creditUpdate(0, 1), { epoch: 9n });
    expect((await readAll(anchors[1])).error?.code).to.equal('ERR_SENDER_DROPPED');
    await peer.batch(0, (batch) => dataRecord(batch, SLOT_1, 1, item(12)));
    expect(await take(anchors[0], 1)).to.deep.equal([12]);
  });

  it('AL-06 a stream placed on lane 3 rides lane 3 both ways, two hundred items in order', async () => {
    const node = await laneNode(host, 4);
    await ridesLane(node, 3, 3);
  });

  it('AL-19 a one-lane producer that is told lane 3 uses lane 0', async () => {
    const node = await laneNode(host, 1);
    await ridesLane(node, 3, 0);
  });

  /** Streams to the peer, which names a lane and grants a window of 32 as it takes. */
  async function ridesLane(node: Velo, named: number, ridden: number): Promise<void> {
    peer.onAttach = () => accept({ routingSessionId: 77n, lane: named });
    peer.onBatch = (batch: SeenBatch) => {
      const data = batch.records.filter(({ type }) => type === RECORD_DATA);
      if (data.length > 0) void peer.batch(batch.lane, (reply) => reply.creditUpdate(data[0]!.slot, data.length));
    };
    const sender = await node.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
    await sendRange(sender, 0, 200);
    await sender.finalize();
    await until('all came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(peer.batches.every(({ lane, headerLane }) => lane === ridden && headerLane === ridden)).to.equal(true);
    const bodies = recordsOf(peer, RECORD_DATA).map(({ body }) => body);
    expect(bodies).to.have.length(201);
    expect(bodies.slice(0, 128)).to.deep.equal(range(0, 128).map(item));
    await until('the lane it came from has no slot', () => node.stats().liveSlots === 0);
  }

  it('AL-06 AL-19 nodes of four and of one lane stream on a keyed lane 3', async () => {
    peer = await WirePeer.listen();
    for (const [consumerLanes, producerLanes] of [
      [4, 4],
      [4, 1],
    ] as const) {
      const pair = await nodes.pair(host, { lanes: consumerLanes }, { lanes: producerLanes });
      const { anchor, sender } = await openStream<number>(pair, { key: 0n });
      const reading = readAll(anchor);
      await sendRange(sender, 0, 200);
      await sender.finalize();
      expect(await reading).to.deep.equal({ items: range(0, 200), error: undefined });
      expect(pair.consumer.stats().droppedWrongHome + pair.producer.stats().droppedWrongHome).to.equal(0);
    }
  });

  it('AL-20 a one-lane consumer names lane 0 for every stream, keyed or not', async () => {
    const node = await laneNode(host, 1);
    for (const laneKey of [undefined, 0n, 1n, 2n, 2n ** 64n - 1n]) {
      const anchor = nodes.keep(node.createAnchor());
      const answer = await peer.attach(anchor.handle, { laneKey });
      expect(answer.ok && answer.value.lane).to.equal(0);
    }
  });

  it('AL-07 a four-lane consumer places keys 0 to 7 on lanes 3, 1, 2, 1, 2, 2, 0, 3', async () => {
    const node = await laneNode(host, 4);
    const lanes: unknown[] = [];
    for (const key of range(0, 8)) {
      const anchor = nodes.keep(node.createAnchor());
      const answer = await peer.attach(anchor.handle, { laneKey: BigInt(key) });
      lanes.push(answer.ok && answer.value.lane);
    }
    expect(lanes).to.deep.equal([3, 1, 2, 1, 2, 2, 0, 3]);
  });

  it('AL-09 eight unkeyed attaches answered before any send spread evenly over four lanes', async () => {
    const node = await laneNode(host, 4);
    const lanes: unknown[] = [];
    for (const _ of range(0, 8)) {
      const answer = await peer.attach(nodes.keep(node.createAnchor()).handle);
      lanes.push(answer.ok && answer.value.lane);
    }
    expect(lanes).to.deep.equal([0, 1, 2, 3, 0, 1, 2, 3]);
  });

  it('AL-11 a finished stream frees its lane for the next attach', async () => {
    const node = await laneNode(host, 2);
    const place = async () => {
      const anchor = nodes.keep(node.createAnchor<number>());
      const answer = await peer.attach(anchor.handle);
      if (!answer.ok) throw new Error(answer.reason);
      return { anchor, lane: answer.value.lane, session: answer.value.routingSessionId };
    };
    const first = await place();
    expect([first.lane, (await place()).lane, (await place()).lane, (await place()).lane]).to.deep.equal([0, 1, 0, 1]);
    await peer.batch(0, (batch) => {
      openRecord(batch, SLOT_1, first.anchor.handle.local, first.session);
      dataRecord(batch, SLOT_1, 1, FINALIZED_BYTES);
      batch.closeSlot(SLOT_1, 2, CLOSE_TERMINAL_SENT);
    });
    expect((await readAll(first.anchor)).error).to.equal(undefined);
    await until('its slot is gone', () => node.stats().liveSlots === 0);
    expect((await place()).lane).to.equal(0);
  });

  it('a bind that its anchor gives up frees its lane at once', async () => {
    const node = await laneNode(host, 2);
    const first = node.createAnchor();
    const laneFor = async (anchor: StreamAnchor<unknown>) => {
      const answer = await peer.attach(anchor.handle);
      return answer.ok ? answer.value.lane : -1;
    };
    expect(await laneFor(first)).to.equal(0);
    expect(await laneFor(nodes.keep(node.createAnchor()))).to.equal(1);
    first.controller.cancel();
    expect(await laneFor(node.createAnchor())).to.equal(0);
  });
});
