// Ends that meet each other: stop and cancel of one session, a detach with records in front of it, ends into full inlets, slots that
// are closed twice. What a single end leaves behind is tested in `node-lifecycle`.

import { expect } from 'chai';
import { StreamAnchorHandle, type StreamSender, type Velo } from '../../lib/index.js';
import {
  type BatchEncoder,
  CLOSE_PEER_GONE,
  CLOSE_PROTOCOL_ERROR,
  CLOSE_TERMINAL_SENT,
  CLOSE_UNKNOWN_SLOT,
  LIFECYCLE_CANCEL,
  LIFECYCLE_STOP,
  RECORD_CLOSE_SLOT,
  RECORD_LIFECYCLE,
} from '../../lib/wire/batch.js';
import { anchorReference, streamSignal } from '../../lib/wire/control.js';
import { DETACHED_BYTES, FINALIZED_BYTES, ITEM_PREFIX } from '../../lib/wire/frame.js';
import {
  HANDLER_ANCHOR_DETACH,
  HANDLER_ANCHOR_FINALIZE,
  HANDLER_STREAM_CANCEL,
  HANDLER_STREAM_STOP,
} from '../../lib/wire/names.js';
import { failure, pause, provesAlive, range, readAll, sendRange, streamSuite, take, until } from '../support/nodes.js';
import { accept, dataRecord, recordsOf, WirePeer } from '../support/wire-peer.js';

const SESSION = 77;
const SLOT = 1 << 8;
const item = (value: number) => Uint8Array.of(...ITEM_PREFIX, value);

/** True when the promise is settled in this very turn of the event loop. */
async function settlesAtOnce(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  promise.then(
    () => {
      settled = true;
    },
    () => {
      settled = true;
    },
  );
  for (let i = 0; i < 5; i += 1) await Promise.resolve();
  return settled;
}

streamSuite('stop and cancel of one session', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  let slot: number;
  let sender: StreamSender<number>;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    peer.onAttach = () => accept({ routingSessionId: BigInt(SESSION) });
    node = await nodes.make({ host });
    node.registerPeer(peer.info);
    peer.faces(node);
    sender = await node.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
    await until('it is open', () => peer.records.length === 1);
    slot = peer.records[0]!.slot;
  });
  afterEach(async () => {
    await sender.close();
    await peer.close();
  });

  const stop = (batch: BatchEncoder) => batch.lifecycle(slot, 0, SESSION, LIFECYCLE_STOP);
  const cancel = (batch: BatchEncoder) => batch.lifecycle(slot, 0, SESSION, LIFECYCLE_CANCEL);
  for (const [order, records] of [
    ['after', [stop, cancel]],
    ['before', [cancel, stop]],
    ['between', [stop, cancel, stop]],
  ] as const)
    it(`AD-11 a cancel ${order} a stop wins, in one batch and over several`, async () => {
      await peer.batch(0, (batch) => {
        for (const record of records) record(batch);
      });
      await until('the cancel arrived', () => sender.cancelSignal.aborted);
      expect(sender.stopSignal.aborted).to.equal(true);
      await failure('ERR_CHANNEL_CLOSED', sender.send(1));
      const next = await node.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 6n, 'spsc'));
      await until('it is open', () => peer.batches.length > 1);
      const { slot: reused } = peer.records.at(-1)!;
      for (const record of records) {
        const action = record === stop ? LIFECYCLE_STOP : LIFECYCLE_CANCEL;
        await peer.batch(0, (batch) => batch.lifecycle(reused, 0, SESSION, action));
      }
      await until('the cancel arrived', () => next.cancelled);
      await failure('ERR_CHANNEL_CLOSED', next.send(1));
      expect(await next.retired()).to.equal('discarded');
      await next.close();
    });

  it('AD-11 by message too', async () => {
    const { senderStreamId } = peer.attaches[0]!.streamCancelHandle;
    const signal = streamSignal.encodeJson({ senderStreamId });
    await peer.fire(HANDLER_STREAM_STOP, signal);
    await until('the stop arrived', () => sender.stopped);
    await sender.send(1);
    await peer.fire(HANDLER_STREAM_CANCEL, signal);
    await peer.fire(HANDLER_STREAM_STOP, signal);
    await until('the cancel arrived', () => sender.cancelSignal.aborted);
    await failure('ERR_CHANNEL_CLOSED', sender.send(2));
  });

  it('a stop that is repeated many times is one stop, and the stream goes on', async () => {
    const { senderStreamId } = peer.attaches[0]!.streamCancelHandle;
    let stops = 0;
    sender.stopSignal.addEventListener('abort', () => {
      stops += 1;
    });
    for (let i = 0; i < 50; i += 1) {
      await peer.batch(0, stop);
      await peer.fire(HANDLER_STREAM_STOP, streamSignal.encodeJson({ senderStreamId }));
    }
    await until('all arrived', () => node.stats().batchesReceived === 50 && sender.stopSignal.aborted);
    await sender.send(1);
    await sender.finalize();
    expect(await sender.retired()).to.equal('sent');
    expect([stops, sender.cancelled]).to.deep.equal([1, false]);
  });
});

streamSuite('a consumer that stops and cancels', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    node = await nodes.make({ host });
    node.registerPeer(peer.info);
    peer.faces(node);
  });
  afterEach(() => peer.close());

  const heard = (handler: string) => peer.requests.filter((request) => request.handler === handler).length;

  it('stops asked again and again, before the attach and after it, go out once', async () => {
    const anchor = node.createAnchor<number>();
    for (let i = 0; i < 5; i += 1) anchor.controller.requestStop();
    await peer.open(anchor.handle, SLOT);
    await until('the stop came', () => heard(HANDLER_STREAM_STOP) === 1);
    for (let i = 0; i < 5; i += 1) anchor.controller.requestStop();
    await peer.batch(0, (batch) => {
      dataRecord(batch, SLOT, 1, item(7));
      dataRecord(batch, SLOT, 2, FINALIZED_BYTES);
    });
    expect(await readAll(anchor)).to.deep.equal({ items: [7], error: undefined });
    anchor.controller.requestStop();
    await peer.hello();
    expect([heard(HANDLER_STREAM_STOP), heard(HANDLER_STREAM_CANCEL)]).to.deep.equal([1, 0]);
  });

  it('AD-11 a cancel right after a stop, of an open stream: the session is cancelled, and never stopped after it', async () => {
    const anchor = node.createAnchor<number>();
    const { routingSessionId } = await peer.open(anchor.handle, SLOT);
    await until('it is open', () => node.stats().liveSlots === 1);
    anchor.controller.requestStop();
    anchor.controller.cancel();
    anchor.controller.requestStop();
    await until('the cancel came', () => recordsOf(peer, RECORD_LIFECYCLE).length > 0);
    await peer.hello();
    const [last] = recordsOf(peer, RECORD_LIFECYCLE).slice(-1);
    expect(last).to.include({ slot: SLOT, session: routingSessionId, action: LIFECYCLE_CANCEL });
    expect(heard(HANDLER_STREAM_CANCEL)).to.equal(1);
    expect(heard(HANDLER_STREAM_STOP)).to.be.at.most(1);
  });

  it('AT-12 a slot that is closed twice, by its consumer and by its sender, closes once', async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT);
    await until('it is open', () => node.stats().liveSlots === 1);
    anchor.cancel();
    anchor.controller.cancel();
    await anchor[Symbol.asyncDispose]();
    await until('the cancel came', () => recordsOf(peer, RECORD_LIFECYCLE).length > 0);
    await peer.batch(0, (batch) => {
      batch.closeSlot(SLOT, 1, CLOSE_TERMINAL_SENT);
      batch.closeSlot(SLOT, 2, CLOSE_TERMINAL_SENT);
      batch.closeSlot(99 << 8, 0, CLOSE_TERMINAL_SENT);
      batch.closeSlot(99 << 8, 0, CLOSE_UNKNOWN_SLOT);
      batch.closeSlot(99 << 8, 0, CLOSE_PROTOCOL_ERROR);
    });
    await peer.hello();
    expect(node.stats()).to.include({ liveSlots: 0, anchors: 0 });
    expect(recordsOf(peer, RECORD_LIFECYCLE), 'told once').to.have.length(1);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)).to.deep.equal([]);
    const next = node.createAnchor<number>();
    await peer.open(next.handle, SLOT + 1);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT + 1, 1, FINALIZED_BYTES));
    expect(await readAll(next)).to.deep.equal({ items: [], error: undefined });
  });

  it('AW-10 an anchor is taken until the detach of its sender was read, so no record gets in front of it', async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => {
      for (const i of range(0, 10)) dataRecord(batch, SLOT, 1 + i, item(i));
      dataRecord(batch, SLOT, 11, DETACHED_BYTES);
      batch.closeSlot(SLOT, 12, CLOSE_TERMINAL_SENT);
    });
    await until('all of it came', () => node.stats().recordsInBatchesReceived === 13);
    const refused = await peer.attach(anchor.handle);
    expect(refused.ok ? '' : refused.reason).to.include('already attached');
    expect(await take(anchor, 10)).to.deep.equal(range(0, 10));
    expect((await peer.attach(anchor.handle)).ok).to.equal(false);
    const frames = anchor.frames();
    expect((await frames.next()).value).to.deep.equal({ kind: 'detached' });
    await peer.open(anchor.handle, SLOT + 1);
    await peer.batch(0, (batch) => {
      dataRecord(batch, SLOT + 1, 1, item(42));
      dataRecord(batch, SLOT + 1, 2, FINALIZED_BYTES);
    });
    expect(await readAll(anchor)).to.deep.equal({ items: [42], error: undefined });
  });

  it('AD-17 a detach by message leaves the anchor, another stream works, and a finalize by message ends both', async () => {
    const anchor = node.createAnchor<number>();
    const reference = anchorReference.encodeJson({ handle: anchor.handle });
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 1, item(1)));
    expect(await take(anchor, 1)).to.deep.equal([1]);
    await peer.call(HANDLER_ANCHOR_DETACH, reference);
    expect([anchor.ended, node.stats().anchors]).to.deep.equal([false, 1]);
    const frames = anchor.frames();
    expect((await frames.next()).value).to.deep.equal({ kind: 'detached' });
    await until('the first slot is gone', () => node.stats().liveSlots === 0);
    await peer.open(anchor.handle, SLOT + 1);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT + 1, 1, item(2)));
    expect(await take(anchor, 1)).to.deep.equal([2]);
    await peer.call(HANDLER_ANCHOR_FINALIZE, reference);
    expect((await frames.next()).value).to.deep.equal({ kind: 'finalized' });
    expect(anchor.ended).to.equal(true);
    await until('the second slot is gone', () => node.stats().liveSlots === 0);
    expect(node.stats().anchors).to.equal(0);
    expect((await peer.attach(anchor.handle)).ok).to.equal(false);
  });

  it('AH-07 a silent sender with credit is given up though records wait unread, and the next read says it is gone', async () => {
    const silent = await nodes.make({ host, mux: { initialCredit: 8 } });
    silent.registerPeer(peer.info);
    peer.faces(silent);
    const anchor = silent.createAnchor<number>({ heartbeatIntervalMs: 50 });
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => {
      for (const i of range(0, 4)) dataRecord(batch, SLOT, 1 + i, item(i));
    });
    expect(await take(anchor, 1), 'what it reads in time is its own').to.deep.equal([0]);
    await until('it was given up', () => silent.stats().anchors === 0);
    const { items, error } = await readAll(anchor);
    expect(items).to.deep.equal([]);
    expect(error?.code).to.equal('ERR_SENDER_DROPPED');
    expect(await readAll(anchor), 'and that was its end').to.deep.equal({ items: [], error: undefined });
    expect(silent.stats()).to.include({ anchors: 0, liveSlots: 0, watchdogFirings: 1 });
  });

  it('an end that came in time stays readable with all in front of it, however long nobody reads', async () => {
    const silent = await nodes.make({ host, mux: { initialCredit: 8 } });
    silent.registerPeer(peer.info);
    peer.faces(silent);
    const closed = silent.createAnchor<number>({ heartbeatIntervalMs: 50 });
    const unclosed = silent.createAnchor<number>({ heartbeatIntervalMs: 50 });
    const lost = silent.createAnchor<number>({ heartbeatIntervalMs: 50 });
    await peer.open(closed.handle, SLOT);
    await peer.open(unclosed.handle, SLOT + (1 << 8));
    await peer.open(lost.handle, SLOT + (2 << 8));
    await peer.batch(0, (batch) => {
      for (const slot of [SLOT, SLOT + (1 << 8)]) {
        for (const i of range(0, 4)) dataRecord(batch, slot, 1 + i, item(i));
        dataRecord(batch, slot, 5, FINALIZED_BYTES);
      }
      batch.closeSlot(SLOT, 6, CLOSE_TERMINAL_SENT);
      // The peer itself says that this one is over: no silence, so what it sent counts.
      dataRecord(batch, SLOT + (2 << 8), 1, item(7));
      batch.closeSlot(SLOT + (2 << 8), 2, CLOSE_PEER_GONE);
    });
    await until('all three are tidied away', () => silent.stats().liveSlots === 0);
    expect(silent.stats().watchdogFirings).to.equal(0);
    for (const anchor of [closed, unclosed])
      expect(await readAll(anchor)).to.deep.equal({ items: range(0, 4), error: undefined });
    const { items, error } = await readAll(lost);
    expect([items, error?.code]).to.deep.equal([[7], 'ERR_SENDER_DROPPED']);
  });
});

streamSuite('ends and detaches', (host, nodes) => {
  for (const where of ['another node', 'the same node'] as const) {
    const setUp = async () => {
      const { consumer, producer } = await nodes.pair(host, { mux: { initialCredit: 2, slotByteBudget: 16 } });
      const anchor = consumer.createAnchor<number>();
      const attach = () => (where === 'another node' ? producer : consumer).attachAnchor<number>(anchor.handle);
      return { consumer, producer, anchor, attach };
    };

    for (const end of ['finalize', 'detach', 'close'] as const)
      it(`AW-09 ${end} into a full inlet returns at once, behind everything that was sent (${where})`, async () => {
        const { anchor, attach } = await setUp();
        const sender = await attach();
        let sent = 0;
        // Until it is full and stays full: nobody reads.
        for (let quiet = 0; quiet < 20; quiet += 1) {
          for (; sender.trySend(sent); sent += 1) quiet = 0;
          await pause(2);
        }
        expect(await settlesAtOnce(sender[end]())).to.equal(true);
        expect(await settlesAtOnce(sender.send(-1)), 'and nothing may follow').to.equal(true);
        const kinds: string[] = [];
        const items: number[] = [];
        try {
          for await (const frame of anchor.frames()) {
            kinds.push(frame.kind);
            if (frame.kind === 'item') items.push(frame.value);
            if (frame.kind === 'detached') anchor.cancel();
          }
        } catch (error) {
          kinds.push((error as { code: string }).code);
        }
        expect(items).to.deep.equal(range(0, sent));
        const last = { finalize: 'finalized', detach: 'detached', close: 'ERR_SENDER_DROPPED' }[end];
        expect(kinds.slice(sent)).to.deep.equal([last]);
      });

    it(`AD-17 AW-10 detach, attach, detach, attach, finalize: each stands where it was said (${where})`, async () => {
      const { consumer, anchor, attach } = await setUp();
      const seen: (string | number)[] = [];
      const reading = (async () => {
        for await (const frame of anchor.frames()) seen.push(frame.kind === 'item' ? frame.value : frame.kind);
      })();
      const senders: StreamSender<number>[] = [];
      for (const round of range(0, 3)) {
        const detaches = () => seen.filter((kind) => kind === 'detached').length;
        await until('the anchor is free', () => detaches() === round);
        const sender = await attach();
        senders.push(sender);
        await sendRange(sender, 10 * round, 10 * round + 5);
        if (round < 2) expect((await sender.detach()).local).to.equal(anchor.handle.local);
        else await sender.finalize();
        expect(sender.cancelled, 'nobody cancelled it').to.equal(false);
      }
      await reading;
      expect(seen).to.deep.equal([
        ...range(0, 5),
        'detached',
        ...range(10, 15),
        'detached',
        ...range(20, 25),
        'finalized',
      ]);
      expect(senders.map(({ cancelled, stopped }) => [cancelled, stopped])).to.deep.equal(
        senders.map(() => [false, false]),
      );
      expect(consumer.stats().anchors).to.equal(0);
      await failure(['ERR_ATTACH_REFUSED', 'ERR_ANCHOR_NOT_FOUND'], attach());
    });
  }

  it('AW-10 on one node an anchor is free as soon as the detach stands behind what was sent', async () => {
    const { consumer } = await nodes.shared(host);
    const anchor = consumer.createAnchor<number>();
    const first = await consumer.attachAnchor<number>(anchor.handle);
    let sent = 0;
    while (first.trySend(sent)) sent += 1;
    await failure('ERR_ALREADY_ATTACHED', consumer.attachAnchor(anchor.handle));
    await first.detach();
    const second = await consumer.attachAnchor<number>(anchor.handle);
    expect(second.trySend(-1), 'the channel is still full').to.equal(false);
    const seen: (string | number)[] = [];
    const reading = (async () => {
      for await (const frame of anchor.frames()) seen.push(frame.kind === 'item' ? frame.value : frame.kind);
    })();
    await second.send(42);
    await second.finalize();
    await reading;
    expect(seen).to.deep.equal([...range(0, sent), 'detached', 42, 'finalized']);
    await provesAlive(await nodes.shared(host));
  });
});
