// Large records and lanes that die with them: what lay staged on lane 0, what it was pulling for another lane, both lanes at once, a
// node that closes in between. Every stream ends with a named error or goes on, no byte stays counted, and both lanes stage and pull
// again. A foreign node is the other end, so that nothing is pulled before a test says so.

import { expect } from 'chai';
import { rawCodec, type StreamAnchor, StreamAnchorHandle, type StreamSender, type Velo } from '../../lib/index.js';
import type { LaneHost } from '../../lib/lanes/host.js';
import { RECORD_CLOSE_SLOT, RECORD_DATA } from '../../lib/wire/batch.js';
import { RESPONSE_UNARY } from '../../lib/wire/envelope.js';
import { ITEM_PREFIX } from '../../lib/wire/frame.js';
import { DataHandle } from '../../lib/wire/handle.js';
import { encodeHello } from '../../lib/wire/hello.js';
import { BATCH_HANDLERS, HANDLER_HELLO } from '../../lib/wire/names.js';
import { dataLease, dataReference, decodeDataReady, pullRequest } from '../../lib/wire/rendezvous-messages.js';
import { failure, nodesOfSuite, pause, range, readAll, until, within } from '../support/nodes.js';
import { batchBytes, StagingPeer } from '../support/staging-peer.js';
import { accept, dataRecord, openRecord, recordsOf, type SeenRequest, WirePeer } from '../support/wire-peer.js';
import { kill } from './crashing-lane.js';

const MORTAL = new URL('./crashing-lane.js', import.meta.url);
const KIB = 1024;
const MIB = 1024 * KIB;
const RAW = { codec: rawCodec() };
const BIN_32 = 0xc6;
/** What a record of nearly everything that may be staged leaves for its batch. */
const BATCH_ROOM = 1_000;
const SOON_MS = 10_000;
const HELLO_MS = 300;
const SLOT = 0x100;

function frameOf(length: number, fill: number): Uint8Array {
  const bytes = new Uint8Array(ITEM_PREFIX.length + 5 + length).fill(fill);
  bytes.set(ITEM_PREFIX);
  bytes[ITEM_PREFIX.length] = BIN_32;
  new DataView(bytes.buffer).setUint32(ITEM_PREFIX.length + 1, length);
  return bytes;
}

for (const host of ['inline', 'worker', 'piscina'] as const) {
  describe(`lanes that die with large records (${host})`, () => {
    const nodes = nodesOfSuite();
    let peer: WirePeer;
    let node: Velo;
    let session: bigint;
    /** Response slots of its own. */
    let nextHello = 40_000;

    beforeEach(async () => {
      peer = await WirePeer.listen({ lanes: 2 });
      session = 77n;
      peer.onAttach = ({ handle }) => accept({ routingSessionId: session++, lane: Number(handle.local) });
      const worker = host === 'inline' ? {} : { worker: MORTAL };
      node = await nodes.make({ host, ...worker, lanes: 2, stagedBytesMax: MIB, maxPulls: 2, maxLaneRestarts: 100 });
      await peer.faces(node).hello();
    });
    afterEach(() => peer.close());

    function die(lane: number): void {
      if (host !== 'inline') kill(node.workerId, lane, 'exit');
      else {
        // Nobody who uses a node can make such a lane fail.
        const inside = node as unknown as { parts: { shutdown: { host: LaneHost } } };
        inside.parts.shutdown.host.terminate(lane, 'the test says so');
      }
    }

    async function restarted(times: number): Promise<void> {
      await until(`${times} lanes started again`, () => node.stats().laneRestarts === times);
      for (const port of peer.nodePorts) await within(SOON_MS, connected(port));
    }
    /** The peer's connection is one to a lane that lives: what it wrote to one that was just dying is lost. */
    async function connected(port: number): Promise<void> {
      for (;;) {
        const slot = nextHello++;
        const answered = peer.answerTo(slot);
        await peer.write(peer.request(HANDLER_HELLO, encodeHello(peer.info), RESPONSE_UNARY, slot), port);
        if ((await Promise.race([answered, pause(HELLO_MS)])) !== undefined) return;
      }
    }
    const attach = (lane: number) =>
      node.attachAnchor<Uint8Array>(StreamAnchorHandle.pack(peer.workerId, BigInt(lane), 'spsc'), RAW);
    const announced = (lane: number) =>
      peer.requests.filter(({ handler, headers }) => handler === BATCH_HANDLERS[lane] && headers?.has('_rv'));
    const handleOf = ({ headers }: SeenRequest) => DataHandle.fromText(headers!.get('_rv')!);
    const acquire = (request: SeenRequest) =>
      within(SOON_MS, peer.call('_rv_acquire', dataReference.encodeJson({ handle: handleOf(request) })));

    /** A stream with a record that lies on lane 0 and that nobody fetches. */
    async function withStaged(lane: number, length: number) {
      const before = announced(lane).length;
      const sender = await attach(lane);
      await sender.send(new Uint8Array(length).fill(lane));
      await until('it is announced', () => announced(lane).length > before);
      return { sender, request: announced(lane).at(-1)! };
    }

    async function pulled(request: SeenRequest): Promise<number> {
      const handle = handleOf(request);
      const { leaseId, transferId, totalLength, chunkCount } = decodeDataReady((await acquire(request)).payload);
      let length = 0;
      for (const chunkIndex of range(0, chunkCount))
        length += (await peer.call('_rv_pull', pullRequest.encodeJson({ transferId, chunkIndex }))).payload.length;
      expect(length).to.equal(Number(totalLength));
      await peer.fire('_rv_release', dataLease.encodeJson({ handle, leaseId }));
      return length;
    }

    /** The stream is over by the death of its lane, and its node says so. */
    async function endedByDeath(sender: StreamSender<Uint8Array>, length = 8): Promise<void> {
      await within(
        SOON_MS,
        failure('ERR_LANE_DIED', async () => {
          for (;;) await sender.send(new Uint8Array(length));
        }),
      );
      expect(await within(SOON_MS, sender.retired())).to.equal('discarded');
      await sender.close();
    }

    /** Every lane stages a record of nearly all that may be staged: the share of each is whole again. */
    async function stagesOnBoth(): Promise<void> {
      for (const lane of [0, 1, 0, 1]) {
        const { sender, request } = await withStaged(lane, MIB - BATCH_ROOM);
        expect(await pulled(request)).to.be.greaterThan(MIB - BATCH_ROOM);
        await sender.finalize();
        expect(await within(SOON_MS, sender.retired())).to.equal('sent');
        await until('nothing stays staged', () => node.stats().rendezvousSlots === 0);
      }
    }

    /** Every lane gets a record pulled. */
    async function pullsOnBoth(staging: StagingPeer, ids: number, epoch: bigint): Promise<void> {
      for (const lane of [0, 1]) {
        const { anchor, send } = await incoming(staging, lane, epoch);
        await send(ids + lane);
        const { value } = await within(SOON_MS, anchor[Symbol.asyncIterator]().next());
        expect(value).to.have.length(300 * KIB);
        anchor.controller.cancel();
      }
      await emptied();
    }

    async function emptied(): Promise<void> {
      await until('nothing is held', () => {
        const stats = node.stats();
        const { anchors, senders, liveSlots, withheldRecords, stagedRecords, heldRecords, rendezvousSlots } = stats;
        return (
          anchors + senders + liveSlots + withheldRecords + stagedRecords + heldRecords === 0 &&
          rendezvousSlots + stats.rendezvousSlotBytes === 0
        );
      });
    }

    /** A stream of the peer, whose next record of 300 KiB stands at the peer under the id that `send` is given. */
    async function incoming(staging: StagingPeer, lane: number, epoch: bigint) {
      const anchor: StreamAnchor<Uint8Array> = nodes.keep(node.createAnchor<Uint8Array>(RAW));
      const answer = await peer.attach(anchor.handle);
      if (!answer.ok) throw new Error(answer.reason);
      const port = peer.nodePorts[lane]!;
      const large = frameOf(300 * KIB, lane + 1);
      const open = batchBytes(epoch, 0, lane, 64, (batch) =>
        openRecord(batch, SLOT, anchor.handle.local, answer.value.routingSessionId),
      );
      await peer.write(peer.request(BATCH_HANDLERS[lane]!, open, 0), port);
      const muxSlot = `${epoch}:${SLOT}:${answer.value.routingSessionId}`;
      const send = (id: number) =>
        staging.send(
          id,
          batchBytes(epoch, 1, lane, large.length, (batch) => dataRecord(batch, SLOT, 1, large)),
          { lane, port, muxSlot },
        );
      return { anchor, send };
    }

    it('lane 0 dies with what lane 1 had staged: the handle is nobody’s, and lane 1 goes on', async () => {
      const [zero, one] = [await withStaged(0, 300 * KIB), await withStaged(1, 700 * KIB)];
      die(0);
      await restarted(1);
      await endedByDeath(zero.sender);
      expect((await acquire(one.request)).ok).to.equal(false);
      await one.sender.send(new Uint8Array(MIB - BATCH_ROOM));
      await until('lane 1 stages again', () => announced(1).length === 2);
      await pulled(announced(1)[1]!);
      await one.sender.send(new Uint8Array(3));
      await until('what is small comes behind it', () => recordsOf(peer, RECORD_DATA).length === 1);
      await one.sender.finalize();
      await stagesOnBoth();
      await emptied();
    });

    it('lane 1 dies with what it had staged on lane 0: it goes, and lane 0 goes on', async () => {
      const [zero, one] = [await withStaged(0, 300 * KIB), await withStaged(1, 700 * KIB)];
      die(1);
      await restarted(1);
      await endedByDeath(one.sender);
      expect((await acquire(one.request)).ok).to.equal(false);
      await pulled(zero.request);
      await zero.sender.finalize();
      await stagesOnBoth();
      await emptied();
    });

    for (const order of [
      [0, 1],
      [1, 0],
    ]) {
      it(`lanes ${order.join(' and ')} die at once, three times`, async () => {
        for (const death of [1, 2, 3]) {
          const streams = [await withStaged(0, 300 * KIB), await withStaged(1, 600 * KIB)];
          for (const lane of order) die(lane);
          await restarted(2 * death);
          for (const { sender, request } of streams) {
            await endedByDeath(sender);
            expect((await acquire(request)).ok).to.equal(false);
          }
          await stagesOnBoth();
          await emptied();
        }
      });
    }

    for (const dying of [0, 1])
      it(`lane ${dying} dies while lane 0 pulls for lane 1: the stream ends with a named error, and both pull again`, async () => {
        const staging = new StagingPeer(peer);
        let open = () => {};
        staging.gates.set(1, new Promise((resolve) => (open = resolve)));
        const { anchor, send } = await incoming(staging, 1, 1n);
        const reading = readAll(anchor);
        await send(1);
        await until('it is asked for', () => staging.count('_rv_acquire') === 1);
        die(dying);
        await restarted(1);
        open();
        const { items, error } = await within(SOON_MS, reading);
        expect(items).to.deep.equal([]);
        expect(error?.code).to.equal(dying === 0 ? 'ERR_TRANSPORT' : 'ERR_LANE_DIED');
        await emptied();
        // More often than there are places.
        for (const round of [2, 3, 4, 5]) await pullsOnBoth(staging, 10 * round, BigInt(round));
        await stagesOnBoth();
      });

    for (const dying of [0, 1])
      it(`the node closes while lane ${dying} starts again and another has staged records`, async () => {
        const [zero, one] = [await withStaged(0, 300 * KIB), await withStaged(1, 300 * KIB)];
        const outcomes = [zero, one].map(({ sender }) => sender.retired());
        const listed = node.streams().catch((error: { code: string }) => error.code);
        die(dying);
        const report = await within(SOON_MS, node.close({ timeoutMs: 500 }));
        expect(report.drained).to.equal(true);
        expect(await within(SOON_MS, Promise.all(outcomes))).to.include('discarded');
        await within(SOON_MS, listed);
        for (const { sender } of [zero, one]) await sender.close();
      });

    it('lane 0 stays dead: on lane 1 streams with large records end with a named error, those with small ones go on', async () => {
      const mortal = host === 'inline' ? {} : { worker: MORTAL };
      node = await nodes.make({ host, ...mortal, lanes: 2, stagedBytesMax: MIB, maxLaneRestarts: 0 });
      await peer.faces(node).hello();
      const [staged, waiting] = [await withStaged(1, 700 * KIB), await attach(1)];
      const small = await attach(1);
      await waiting.send(new Uint8Array(700 * KIB));
      await waiting.send(new Uint8Array(8));
      await waiting.finalize();
      const retired = waiting.retired();
      die(0);
      expect(await within(SOON_MS, retired)).to.equal('discarded');
      await until('the reader hears', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
      await staged.sender.send(new Uint8Array(8));
      await until('what is small still goes', () => recordsOf(peer, RECORD_DATA).length === 1);
      // More than its window: it would wait for ever.
      await endedByDeath(staged.sender, 300 * KIB);
      await small.send(new Uint8Array(8));
      await small.finalize();
      expect(await within(SOON_MS, small.retired())).to.equal('sent');
      await emptied();
    });

    it('a close waits until receivers have pulled what both lanes staged, or for its deadline', async () => {
      const streams = [await withStaged(0, 300 * KIB), await withStaged(1, 300 * KIB)];
      for (const { sender } of streams) await sender.finalize();
      let over = false;
      const closing = node.close({ timeoutMs: SOON_MS }).finally(() => (over = true));
      await pulled(streams[0]!.request);
      expect(over).to.equal(false);
      await pulled(streams[1]!.request);
      expect(await within(SOON_MS, closing)).to.include({ endedSenders: 0, drained: true });
    });
  });
}
