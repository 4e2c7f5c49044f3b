// What a peer must not be able to do to a node that behaves: make it hoard, or repeat what it was told.

import { expect } from 'chai';
import { StreamAnchorHandle } from '../../lib/index.js';
import { CLOSE_UNKNOWN_SLOT, RECORD_CLOSE_SLOT, RECORD_DATA, RECORD_OPEN_SLOT } from '../../lib/wire/batch.js';
import { RESPONSE_UNARY } from '../../lib/wire/envelope.js';
import { MAX_CONTROL_BYTES } from '../../lib/wire/message-codec.js';
import { slotId } from '../../lib/wire/slot-id.js';
import {
  failure,
  openStream,
  type Pair,
  pause,
  provesAlive,
  range,
  readAll,
  streamSuite,
  until,
} from '../support/nodes.js';
import { accept, dataRecord, openRecord, recordsOf, WirePeer } from '../support/wire-peer.js';

const utf8 = new TextEncoder();

streamSuite('a peer that asks for too much', (host, nodes) => {
  let peer: WirePeer;
  beforeEach(async () => {
    peer = await WirePeer.listen();
  });
  afterEach(() => peer.close());

  it('a window and a byte budget without measure are taken up to what this node would ask for itself', async () => {
    const { producer: node } = await nodes.shared(host);
    node.registerPeer(peer.info);
    peer.faces(node);
    peer.onAttach = () => accept({ routingSessionId: 77n, initialCredit: 0xffff_ffff, slotByteBudget: 0xffff_ffff });
    const sender = await node.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
    await until('the slot is opened', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 1);
    const window = 65_536;
    const sent = (async () => {
      for (let i = 0; i <= window; i += 1) await sender.send(i % 100);
    })();
    const records = () => recordsOf(peer, RECORD_DATA).length;
    await until('the window is used up', () => records() >= window);
    await sent;
    await until('one more waits for credit', () => node.stats().withheldRecords === 1);
    expect(records()).to.equal(window);
    await sender.close();
    await peer.batch(0, (batch) => batch.closeSlot(recordsOf(peer, RECORD_OPEN_SLOT)[0]!.slot, 0, 2));
    await until('nothing is left', () => node.stats().senders === 0);
  });

  it('an attach that offers thousands of transports is refused in a few words', async () => {
    const pair = await nodes.shared(host);
    const node = pair.consumer;
    await peer.faces(node).hello();
    const anchor = node.createAnchor<number>();
    const supportedTransportKeys = Array.from({ length: 3_000 }, (_, i) => `transport-${i}`);
    const answer = await peer.attach(anchor.handle, { supportedTransportKeys });
    const reason = answer.ok ? '' : answer.reason;
    expect(reason).to.contain('the sender offers transport-0, transport-1');
    expect(utf8.encode(reason)).to.have.length.below(1_000);
    anchor.controller.cancel();
    await provesAlive(pair);
  });

  it('messages of the system that are long, or come as a handle, are not read: refused, counted', async () => {
    const pair = await nodes.shared(host);
    const node = pair.consumer;
    await peer.faces(node).hello();
    const before = node.stats().droppedBadMessage;
    const long = utf8.encode('null'.padEnd(MAX_CONTROL_BYTES + 1));
    const handlers = ['_anchor_attach', '_anchor_cancel', '_list_handlers', '_rv_acquire', '_nobody'];
    for (const handler of handlers) {
      const { ok, text } = await peer.call(handler, long);
      expect([ok, text]).to.deep.equal([false, `${handler} of 65537 bytes: this node reads 65536`]);
    }
    await peer.fire('_stream_cancel', long);
    const staged = { _rv: String((peer.workerId << 64n) | 1n) };
    for (const handler of ['_anchor_attach', '_hello', '_stream_stop']) {
      const { ok, text } = await peer.call(handler, new Uint8Array(0), RESPONSE_UNARY, staged);
      expect([ok, text]).to.deep.equal([false, `${handler} must come inline`]);
    }
    await until('all are counted', () => node.stats().droppedBadMessage - before === handlers.length + 1 + 3);
    expect(
      (await peer.call('_list_handlers', long.subarray(0, MAX_CONTROL_BYTES))).ok,
      'one byte less is read',
    ).to.equal(true);
    await provesAlive(pair);
  });

  it('an answer to an attach that is long is not read', async () => {
    const { producer: node } = await nodes.shared(host);
    node.registerPeer(peer.info);
    peer.faces(node);
    peer.onAttach = () => utf8.encode('['.repeat(MAX_CONTROL_BYTES + 1));
    const handle = StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc');
    const { message } = await failure('ERR_BAD_CONTROL_MESSAGE', node.attachAnchor(handle));
    expect(message).to.contain('of 65537 bytes');
  });

  it('a list of handlers without measure is not kept', async () => {
    const { producer: node } = await nodes.shared(host);
    node.registerPeer(peer.info);
    peer.faces(node);
    peer.handlers = Array.from({ length: 40_000 }, (_, i) => `handler-of-a-peer-with-too-many-${i}`);
    await failure('ERR_LIMIT', node.unary(peer.info.instanceId, 'handler-of-a-peer-with-too-many-1'));
    peer.handlers = ['echo'];
    peer.services = { echo: (payload) => payload };
    expect(await node.unary(peer.info.instanceId, 'echo', utf8.encode('x'))).to.deep.equal(utf8.encode('x'));
  });
});

streamSuite('a peer that floods', (host, nodes) => {
  let pair: Pair;
  let peer: WirePeer;
  beforeEach(async () => {
    pair = await nodes.pair(host);
    peer = await WirePeer.listen();
    await peer.faces(pair.consumer).hello();
  });
  afterEach(() => peer.close());

  /** `act`, while another peer streams; every item of that must come. */
  async function beside(act: () => Promise<void>): Promise<void> {
    const { anchor, sender } = await openStream<number>(pair);
    const reading = readAll(anchor);
    let going = true;
    let sent = 0;
    const sending = (async () => {
      while (going || sent < 100) {
        await sender.send(sent++);
        if (sent % 16 === 0) await pause(1);
      }
      await sender.finalize();
    })();
    await act();
    going = false;
    await sending;
    expect(await reading).to.deep.equal({ items: range(0, sent), error: undefined });
  }

  it('with openings of made-up streams, at every index there is, is refused each once or counted', async () => {
    const { consumer: node } = pair;
    const batches = 12;
    const perBatch = 4_000;
    const indexOf = (i: number) => (i * 349) % 0x100_0000;
    const known = range(0, batches * perBatch).filter((i) => indexOf(i) < 65_536).length;
    const closes = () => recordsOf(peer, RECORD_CLOSE_SLOT);
    await beside(async () => {
      for (const at of range(0, batches))
        await peer.batch(0, (batch) => {
          for (const i of range(at * perBatch, (at + 1) * perBatch))
            openRecord(batch, slotId(indexOf(i), i & 0xff), BigInt(i), BigInt(i) << 40n);
        });
      await until('each is refused or counted', () => {
        const { controlRefused } = node.stats();
        return closes().length + controlRefused === batches * perBatch;
      });
    });
    expect(node.stats()).to.include({ droppedUnknownSlot: known, liveSlots: 0, holdOverflow: 0, handlerErrors: 0 });
    expect(new Set(closes().map(({ slot }) => slot)).size).to.equal(closes().length);
    expect(closes().filter(({ closeReason }) => closeReason === CLOSE_UNKNOWN_SLOT)).to.have.length.at.most(known);
  });

  it('with rising epochs retires its own slots, once, and nobody else’s', async () => {
    const { consumer: node } = pair;
    const anchors = range(0, 100).map(() => node.createAnchor<number>());
    for (const [i, { handle }] of anchors.entries()) await peer.open(handle, slotId(i, 0));
    await until('all are claimed', () => node.stats().liveSlots === 100);
    await beside(async () => {
      for (const i of range(2, 1_002)) await peer.batch(0, (batch) => batch.creditUpdate(0, 1), { epoch: BigInt(i) });
      await peer.batch(0, (batch) => batch.creditUpdate(0, 1), { epoch: 500n });
      await until('the last is counted', () => node.stats().droppedStaleEpoch === 1);
    });
    for (const anchor of anchors) {
      const { items, error } = await readAll(anchor);
      expect([items, error?.code]).to.deep.equal([[], 'ERR_SENDER_DROPPED']);
    }
    expect(node.stats().controlRefused).to.equal(1_000);
    await until('no slot is left', () => node.stats().liveSlots === 0);
    const last = node.createAnchor<number>();
    await peer.open(last.handle, slotId(0, 0), { epoch: 1_001n });
    await until('the newest epoch counts', () => node.stats().liveSlots === 1);
    last.controller.cancel();
  });

  it('with records that open gaps and never close them holds no more than its budget, and loses its own streams alone', async () => {
    const { consumer: node } = pair;
    const anchors = range(0, 12).map(() => node.createAnchor<number>());
    const body = new Uint8Array(200_000);
    await beside(async () => {
      for (const [i, { handle }] of anchors.entries()) {
        const slot = slotId(i, 0);
        await peer.open(handle, slot);
        for (const seq of [3, 5, 7, 9]) await peer.batch(0, (batch) => dataRecord(batch, slot, seq, body));
      }
      // 8 MiB hold 41 of these records; the slot that asks for more is closed, and gives back what it held.
      await until('all were read', () => node.stats().heldRecords + 4 * node.stats().holdOverflow >= 44);
      expect(node.stats().heldRecords * body.length).to.be.at.most(8 * 1024 * 1024);
    });
    expect(node.stats().holdOverflow).to.be.within(1, 3);
    for (const anchor of anchors) anchor.controller.cancel();
    await until('nothing is held', () => node.stats().heldRecords + node.stats().liveSlots === 0);
  });
});
