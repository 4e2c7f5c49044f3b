// Records of streams that are too large for a packed batch, or for a frame: announced, staged and pulled, on every lane, while other
// streams go on. A foreign node reads the bytes; two nodes carry the sizes.

import { expect } from 'chai';
import { rawCodec, type StreamAnchor, StreamAnchorHandle, type StreamSender, type Velo } from '../../lib/index.js';
import { CLOSE_TERMINAL_SENT, RECORD_CLOSE_SLOT, RECORD_DATA, RECORD_OPEN_SLOT } from '../../lib/wire/batch.js';
import { ITEM_PREFIX_LEN } from '../../lib/wire/frame.js';
import { DataHandle } from '../../lib/wire/handle.js';
import { BATCH_HANDLERS } from '../../lib/wire/names.js';
import { dataLease, dataReference, decodeDataReady, pullRequest } from '../../lib/wire/rendezvous-messages.js';
import {
  failure,
  holdsNothing,
  type Pair,
  range,
  readAll,
  sendRange,
  streamSuite,
  take,
  until,
} from '../support/nodes.js';
import { accept, decodeBatch, recordsOf, type SeenBatch, type SeenRequest, WirePeer } from '../support/wire-peer.js';

const KIB = 1024;
const MIB = 1024 * KIB;
const CHUNK = 524_288;
const RAW = { codec: rawCodec() };
/** Item prefix and the header of a 32-bit byte string. */
const ITEM_HEAD = ITEM_PREFIX_LEN + 5;
/** A key that the receiver puts on lane 0 of two, and one for lane 1. */
const KEYS = [2n, 0n] as const;

/** Bytes that differ from place to place and from item to item. */
function itemOf(length: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i += 997) bytes[i] = (i / 997 + seed) & 0xff;
  bytes[length - 1] = seed;
  return bytes;
}

function expectItems(items: readonly Uint8Array[], sent: readonly (readonly [number, number])[]): void {
  expect(items.map(({ length }) => length)).to.deep.equal(sent.map(([length]) => length));
  items.forEach((item, i) => {
    const [length, seed] = sent[i]!;
    expect(Buffer.compare(item, itemOf(length, seed)), `item ${i}`).to.equal(0);
  });
}

streamSuite('large records on the wire', (host, nodes) => {
  let peer: WirePeer;
  afterEach(() => peer?.close());

  async function laneNode(stagedBytesMax?: number): Promise<Velo> {
    peer = await WirePeer.listen({ lanes: 2 });
    let session = 77n;
    peer.onAttach = ({ handle }) => accept({ routingSessionId: session++, lane: Number(handle.local) });
    const node = await nodes.make({ host, lanes: 2, stagedBytesMax });
    await peer.faces(node).hello();
    return node;
  }

  const attach = (node: Velo, lane: number) =>
    node.attachAnchor<Uint8Array>(StreamAnchorHandle.pack(peer.workerId, BigInt(lane), 'spsc'), RAW);
  const batchRequests = (lane: number) => peer.requests.filter(({ handler }) => handler === BATCH_HANDLERS[lane]);
  const announced = (lane: number) => batchRequests(lane).filter(({ headers }) => headers?.has('_rv'));
  const handleOf = ({ headers }: SeenRequest) => DataHandle.fromText(headers!.get('_rv')!);

  /** Fetches a batch that was announced, as any receiver does. */
  async function pulled(lane: number, request: SeenRequest): Promise<SeenBatch> {
    const handle = handleOf(request);
    const answer = await peer.call('_rv_acquire', dataReference.encodeJson({ handle }));
    const { leaseId, transferId, totalLength, chunkCount } = decodeDataReady(answer.payload);
    const bytes = new Uint8Array(Number(totalLength));
    for (const chunkIndex of range(0, chunkCount)) {
      const chunk = await peer.call('_rv_pull', pullRequest.encodeJson({ transferId, chunkIndex }));
      bytes.set(chunk.payload, chunkIndex * CHUNK);
    }
    await peer.fire('_rv_release', dataLease.encodeJson({ handle, leaseId }));
    return decodeBatch(lane, bytes);
  }

  for (const lane of [0, 1]) {
    it(`AX-02 AR-07 on lane ${lane} a staged record is an empty batch that names bytes and stream; an inline one has no header`, async () => {
      const node = await laneNode();
      const sender = await attach(node, lane);
      await sender.send(itemOf(100 * KIB, 1));
      await sender.send(itemOf(300 * KIB, 2));
      await sender.send(itemOf(3, 3));
      await until('the record behind it came', () => recordsOf(peer, RECORD_DATA).length === 2);
      const requests = batchRequests(lane);
      const [opened, inline, staged, last] = requests;
      expect(requests.map(({ headers, payload }) => [headers === undefined, payload.length === 0])).to.deep.equal([
        [true, false],
        [true, false],
        [false, true],
        [true, false],
      ]);
      const [open] = peer.batches;
      const { slot, session } = open!.records[0]!;
      expect([...staged!.headers!.keys()]).to.deep.equal(['_mux_slot', '_rv']);
      expect(staged!.headers!.get('_mux_slot')).to.equal(`${open!.epoch}:${slot}:${session}`);
      expect(handleOf(staged!).worker).to.equal(node.workerId);
      const batch = await pulled(lane, staged!);
      expect([batch.epoch, batch.headerLane]).to.deep.equal([open!.epoch, lane]);
      const seqs = [opened, inline, batch, last].map((one, i) => ('batchSeq' in one! ? one.batchSeq : i));
      expect(seqs).to.deep.equal([0, 1, 2, 3]);
      expect(peer.batches.map(({ batchSeq }) => batchSeq)).to.deep.equal([0, 1, 3]);
      expect(batch.records.map(({ type, slot: id, frameSeq }) => [type, id, frameSeq])).to.deep.equal([
        [RECORD_DATA, slot, 2],
      ]);
      expect(Buffer.compare(batch.records[0]!.body.subarray(ITEM_HEAD), itemOf(300 * KIB, 2))).to.equal(0);
      expect(recordsOf(peer, RECORD_DATA).map(({ frameSeq }) => frameSeq)).to.deep.equal([1, 3]);
      await until('nothing stays staged', () => node.stats().rendezvousSlots === 0);
      await sender.finalize();
    });

    it(`AR-06 on lane ${lane} other streams go on while a record lies unpulled, and its own as far as a receiver can hold`, async () => {
      const node = await laneNode();
      const [large, other] = [await attach(node, lane), await attach(node, lane)];
      await until('both are open', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 2);
      const slots = recordsOf(peer, RECORD_OPEN_SLOT).map(({ slot }) => slot);
      await large.send(itemOf(2 * MIB, 1));
      await large.send(itemOf(2 * MIB, 2));
      await large.send(itemOf(5, 3));
      for (const i of range(0, 30)) await other.send(itemOf(8, i));
      await other.finalize();
      await until('the other stream came whole', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
      const closed = recordsOf(peer, RECORD_CLOSE_SLOT)[0]!;
      expect([slots.indexOf(closed.slot), closed.closeReason]).to.deep.equal([1, CLOSE_TERMINAL_SENT]);
      expect(recordsOf(peer, RECORD_DATA)).to.have.length(31);
      expect(announced(lane)).to.have.length(1);
      expect((await pulled(lane, announced(lane)[0]!)).records[0]!.frameSeq).to.equal(1);
      await until('the second is announced once the first was released', () => announced(lane).length === 2);
      expect((await pulled(lane, announced(lane)[1]!)).records[0]!.frameSeq).to.equal(2);
      await until('the last came', () => recordsOf(peer, RECORD_DATA).length === 32);
      await large.finalize();
    });
  }

  it('what is staged stays below stagedBytesMax over all lanes; a record without room waits, small ones of others do not', async () => {
    const node = await laneNode(MIB);
    const first = await attach(node, 0);
    const second = await attach(node, 1);
    const third = await attach(node, 1);
    await failure('ERR_FRAME_TOO_LARGE', first.send(itemOf(MIB, 1)));
    await first.send(itemOf(700 * KIB, 1));
    await until('it is announced', () => announced(0).length === 1);
    await second.send(itemOf(700 * KIB, 2));
    for (const i of range(0, 5)) await third.send(itemOf(8, i));
    await until('the small ones came', () => recordsOf(peer, RECORD_DATA).length === 5);
    expect(announced(1)).to.have.length(0);
    await pulled(0, announced(0)[0]!);
    await until('there is room for the next', () => announced(1).length === 1);
    const { records } = await pulled(1, announced(1)[0]!);
    expect(Buffer.compare(records[0]!.body.subarray(ITEM_HEAD), itemOf(700 * KIB, 2))).to.equal(0);
    await until('nothing stays staged', () => node.stats().rendezvousSlots === 0);
    for (const sender of [first, second, third]) await sender.finalize();
  });

  it('a handle that never left takes its bytes along', async () => {
    const node = await laneNode();
    const senders = await Promise.all([attach(node, 0), attach(node, 1)]);
    await peer.close();
    await until('the node knows', () => node.stats().connectionsClosed === node.stats().connectionsOpened);
    for (const sender of senders) await sender.send(itemOf(300 * KIB, 1));
    await until('both were staged', () => node.stats().singletons === 2);
    await until('nothing stays staged', () => node.stats().rendezvousSlots === 0);
  });

  it('records on their way to the lane are bounded by their bytes too', async () => {
    const node = await laneNode();
    const sender = await attach(node, 0);
    const sent: boolean[] = [];
    if (host === 'inline') {
      // The lane takes nothing before this thread turns.
      for (const i of range(0, 6)) sent.push(sender.trySend(itemOf(1_000_000, i)));
      expect(sent).to.deep.equal([true, true, true, true, false, false]);
      await sender.ready();
      expect(sender.trySend(itemOf(1_000_000, 9))).to.equal(true);
    } else {
      // One on its way, one behind it, two withheld (the second passes the slot's budget), four before the lane.
      for (const i of range(0, 8)) sender.sendBlocking(itemOf(1_000_000, i), 10_000);
      await failure('ERR_TIMEOUT', () => sender.sendBlocking(itemOf(1_000_000, 8), 20));
    }
    await sender.send(itemOf(4, 1));
    await sender.finalize();
    const count = host === 'inline' ? 5 : 8;
    for (const i of range(0, count)) {
      await until('it is announced', () => announced(0).length > i);
      expect((await pulled(0, announced(0)[i]!)).records[0]!.frameSeq).to.equal(i + 1);
    }
    await until('the end came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
  });
});

for (const lanes of [1, 2]) {
  streamSuite(`large records between nodes of ${lanes} lanes`, (host, nodes) => {
    const open = async ({ consumer, producer }: Pair, lane: number) => {
      const anchor = consumer.createAnchor<Uint8Array>(RAW);
      const key = KEYS[lane % lanes]!;
      const sender = await producer.attachAnchor<Uint8Array>(anchor.handle, { ...RAW, key });
      return { anchor, sender };
    };

    for (const length of [300 * KIB, 2 * MIB, 20 * MIB]) {
      it(`${length} bytes keep their bytes and their place among small ones, on every lane, while other streams flow`, async () => {
        const pair = await nodes.pair(host, { lanes }, { lanes });
        const others = await Promise.all(range(0, 4).map((i) => open(pair, i)));
        const small = range(0, 200).map((i) => [8, i & 0xff] as const);
        const flows = others.map(async ({ anchor, sender }) => {
          const reading = readAll(anchor);
          for (const [size, seed] of small) await sender.send(itemOf(size, seed));
          await sender.finalize();
          return await reading;
        });
        const large = [0, 1, 2].flatMap((i) => [[length, i + 1] as const, [9, i + 100] as const]);
        for (const lane of range(0, lanes)) {
          const { anchor, sender } = await open(pair, lane);
          const reading = readAll(anchor);
          for (const [size, seed] of large) await sender.send(itemOf(size, seed));
          await sender.finalize();
          const { items, error } = await reading;
          expect(error).to.equal(undefined);
          expectItems(items, large);
        }
        for (const { items, error } of await Promise.all(flows)) {
          expect(error).to.equal(undefined);
          expectItems(items, small);
        }
        await until('nothing is left', () => [pair.consumer, pair.producer].every(holdsNothing));
        await until('nothing stays staged', () => pair.producer.stats().rendezvousSlots === 0);
        expect(pair.consumer.stats().holdOverflow).to.equal(0);
      });
    }

    for (const how of ['', 'while their producer drains', 'though their producer closes behind them'] as const) {
      it(`AR-18 three records of 300 KiB arrive intact, their end behind them ${how}`, async () => {
        const pair = await nodes.pair(host, { lanes }, { lanes });
        const streams = await Promise.all(range(0, lanes).map((lane) => open(pair, lane)));
        const readings = streams.map(({ anchor }) => readAll(anchor));
        const sent = [1, 2, 3].map((seed) => [300 * KIB, seed] as const);
        if (how === 'while their producer drains') pair.producer.beginDrain();
        for (const { sender } of streams) {
          for (const [size, seed] of sent) await sender.send(itemOf(size, seed));
          await sender.finalize();
        }
        if (how === 'though their producer closes behind them') {
          const report = await pair.producer.close({ timeoutMs: 10_000 });
          expect(report).to.include({ endedSenders: 0, drained: true });
        }
        for (const { items, error } of await Promise.all(readings)) {
          expect(error).to.equal(undefined);
          expectItems(items, sent);
        }
      });
    }

    it('AX-03 AX-04 a record above what the receiver pulls ends its stream with both sizes, its sender’s next send fails, others go on', async () => {
      const pair = await nodes.pair(host, { lanes, stagedPayloadMax: MIB }, { lanes });
      for (const lane of range(0, lanes)) {
        const [refused, other] = [await open(pair, lane), await open(pair, lane)];
        await refused.sender.send(itemOf(4, 1));
        await refused.sender.send(itemOf(MIB, 2));
        const { items, error } = await readAll(refused.anchor);
        expectItems(items, [[4, 1]]);
        // The item, its frame and the batch around it.
        expect((error as Error).message)
          .to.match(new RegExp(`payload of ${Math.floor(MIB / 1000)}\\d{3} bytes`))
          .and.include(`stagedPayloadMax = ${MIB}`);
        await until('its sender hears', () => refused.sender.cancelled);
        await failure('ERR_CHANNEL_CLOSED', refused.sender.send(itemOf(4, 3)));
        await refused.sender.close();
        await other.sender.send(itemOf(MIB - 100, 3));
        await other.sender.finalize();
        expectItems((await readAll(other.anchor)).items, [[MIB - 100, 3]]);
      }
      await until('nothing is left', () => [pair.consumer, pair.producer].every(holdsNothing));
      await until('nothing stays staged', () => pair.producer.stats().rendezvousSlots === 0);
    });

    it('a consumer that cancels while its record is on the way leaves nothing staged', async () => {
      const pair = await nodes.pair(host, { lanes }, { lanes });
      for (const lane of range(0, lanes)) {
        const { anchor, sender } = await open(pair, lane);
        await sender.send(itemOf(2 * MIB, 1));
        await until('it is staged', () => pair.producer.stats().singletons > lane);
        anchor.controller.cancel();
        await until('its sender hears', () => sender.cancelled);
        await sender.close();
      }
      await until('nothing is left', () => [pair.consumer, pair.producer].every(holdsNothing));
      await until('nothing stays staged', () => pair.producer.stats().rendezvousSlots === 0);
    });

    it('streams open without waiting for their OpenSlot, and carry large and small records', async () => {
      const pair = await nodes.pair(host, { lanes }, { lanes, mux: { asyncOpenAck: true } });
      const streams = await Promise.all(range(0, 20).map((i) => open(pair, i)));
      await Promise.all(streams.map(({ sender }, i) => sendAll(sender, i)));
      for (const [i, { anchor }] of streams.entries()) await expectAll(anchor, i);
      await until('nothing is left', () => [pair.consumer, pair.producer].every(holdsNothing));
    });

    const sizesOf = (i: number) => (i % 5 === 0 ? [4, 300 * KIB, 5] : [4, 5, 70 * KIB]);
    async function sendAll(sender: StreamSender<Uint8Array>, i: number): Promise<void> {
      for (const size of sizesOf(i)) await sender.send(itemOf(size, i));
      await sender.finalize();
    }
    async function expectAll(anchor: StreamAnchor<Uint8Array>, i: number): Promise<void> {
      const { items, error } = await readAll(anchor);
      expect(error).to.equal(undefined);
      expectItems(
        items,
        sizesOf(i).map((size) => [size, i]),
      );
    }
  });
}

streamSuite('flush conditions', (host, nodes) => {
  const HOUR = 3_600_000;

  it('AU-12 a batch with a record of every live stream goes an hour before its window ends', async () => {
    const pair = await nodes.pair(
      host,
      {},
      { flushPolicy: { onAdmission: false, maxLingerMs: HOUR, onComplete: true } },
    );
    const anchors = range(0, 3).map(() => pair.consumer.createAnchor<number>());
    const senders = await Promise.all(anchors.map(({ handle }) => pair.producer.attachAnchor<number>(handle)));
    await until('all are open', () => pair.consumer.stats().batchesReceived === 3);
    for (const [i, sender] of senders.entries()) await sender.send(i);
    for (const [i, anchor] of anchors.entries()) expect(await take(anchor, 1)).to.deep.equal([i]);
    expect(pair.consumer.stats().batchesReceived).to.equal(4);
    for (const sender of senders) await sender.finalize();
    for (const anchor of anchors) expect((await readAll(anchor)).items).to.deep.equal([]);
  });

  it('AU-15 a batch that reaches atBytes goes without a window and without a kick', async () => {
    const pair = await nodes.pair(host, {}, { flushPolicy: { onAdmission: false, atBytes: 600 } });
    const anchor = pair.consumer.createAnchor<number>();
    const sender = await pair.producer.attachAnchor<number>(anchor.handle);
    await sendRange(sender, 0, 10);
    await until('they are staged', () => pair.producer.stats().stagedRecords === 10);
    await sendRange(sender, 10, 30);
    expect(await take(anchor, 1)).to.deep.equal([0]);
    await sender.finalize();
    expect((await readAll(anchor)).items).to.deep.equal(range(1, 30));
  });
});
