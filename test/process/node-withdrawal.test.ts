// Feeds that are withdrawn while records of theirs are unread or on their way: what nobody may read any more, and that it
// disturbs nothing behind it. A foreign node sends the bytes.

import { expect } from 'chai';
import { rawCodec, type StreamAnchorHandle, type Velo } from '../../lib/index.js';
import { type BatchEncoder, CLOSE_TERMINAL_SENT, LIFECYCLE_CANCEL, RECORD_LIFECYCLE } from '../../lib/wire/batch.js';
import { FINALIZED_BYTES, ITEM_PREFIX } from '../../lib/wire/frame.js';
import { provesAlive, range, streamSuite, take, until } from '../support/nodes.js';
import { dataRecord, recordsOf, WirePeer } from '../support/wire-peer.js';

const FIRST = 0x100;
const SECOND = 0x200;
/** Too large for a ring record: it travels beside the ring. */
const LARGE_BYTES = 40_000;
const BIN_16 = 0xc5;
const item = (value: number) => Uint8Array.of(...ITEM_PREFIX, value);

function large(value: number): Uint8Array {
  const head = [...ITEM_PREFIX, BIN_16, LARGE_BYTES >>> 8, LARGE_BYTES & 0xff];
  return Uint8Array.of(...head, ...new Uint8Array(LARGE_BYTES).fill(value));
}

function reference(handle: StreamAnchorHandle): Uint8Array {
  return new TextEncoder().encode(`{"handle":{"hi":${handle.worker},"lo":${handle.local}}}`);
}

/** The end of a stream whose last record was `seq`. */
function finish(batch: BatchEncoder, slot: number, seq: number): void {
  dataRecord(batch, slot, seq + 1, FINALIZED_BYTES);
  batch.closeSlot(slot, seq + 2, CLOSE_TERMINAL_SENT);
}

streamSuite('a feed that is withdrawn', (host, nodes) => {
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

  const cancelled = (slot: number) =>
    until('the sender hears', () =>
      recordsOf(peer, RECORD_LIFECYCLE).some((record) => record.slot === slot && record.action === LIFECYCLE_CANCEL),
    );

  it('AT-15 takes its unread records with it: the next sender is read from its first record', async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, FIRST);
    await peer.batch(0, (batch) => {
      for (const i of range(0, 8)) dataRecord(batch, FIRST, i + 1, item(i));
    });
    const reader = anchor.frames();
    for (const value of range(0, 3)) expect((await reader.next()).value).to.deep.equal({ kind: 'item', value });
    expect((await peer.call('_anchor_detach', reference(anchor.handle))).text).to.equal('null');
    await peer.open(anchor.handle, SECOND);
    await peer.batch(0, (batch) => {
      for (const i of range(50, 60)) dataRecord(batch, SECOND, i - 49, item(i));
      finish(batch, SECOND, 10);
    });
    await until('the second stream is whole', () => node.stats().liveSlots === 0);
    const rest: unknown[] = [];
    for await (const frame of reader) rest.push(frame.kind === 'item' ? frame.value : frame.kind);
    expect(rest).to.deep.equal(['detached', ...range(50, 60), 'finalized']);
    await cancelled(FIRST);
  });

  it('AT-14 gives its anchor nothing that comes later, before and after another sender attached', async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, FIRST);
    await peer.batch(0, (batch) => dataRecord(batch, FIRST, 1, item(0)));
    expect(await take(anchor, 1)).to.deep.equal([0]);
    const reader = anchor.frames();
    // In one write: the lane delivers records behind the detach before it can know of it.
    const socket = await peer.write(new Uint8Array(0));
    socket.cork();
    const detaching = peer.call('_anchor_detach', reference(anchor.handle));
    const late = peer.batch(0, (batch) => {
      for (const seq of range(2, 8)) dataRecord(batch, FIRST, seq, item(99));
    });
    socket.uncork();
    await Promise.all([detaching, late]);
    await peer.open(anchor.handle, SECOND);
    await peer.batch(0, (batch) => {
      for (const i of range(0, 8)) {
        dataRecord(batch, FIRST, i + 8, item(98));
        dataRecord(batch, SECOND, i + 1, item(50 + i));
      }
      dataRecord(batch, FIRST, 16, FINALIZED_BYTES);
      finish(batch, SECOND, 8);
    });
    const got: unknown[] = [];
    for await (const frame of reader) got.push(frame.kind === 'item' ? frame.value : frame.kind);
    expect(got).to.deep.equal(['detached', ...range(50, 58), 'finalized']);
  });

  it('AT-14 gives nothing to an anchor that was removed', async () => {
    const anchor = node.createAnchor<number>();
    await peer.open(anchor.handle, FIRST);
    await peer.batch(0, (batch) => dataRecord(batch, FIRST, 1, item(0)));
    expect(await take(anchor, 1)).to.deep.equal([0]);
    const reader = anchor.frames();
    const next = reader.next();
    anchor.controller.cancel();
    await peer.batch(0, (batch) => {
      for (const seq of range(2, 8)) dataRecord(batch, FIRST, seq, item(99));
    });
    await cancelled(FIRST);
    expect((await next).done).to.equal(true);
    expect((await reader.next()).done).to.equal(true);
    expect(node.stats().liveSlots + node.stats().anchors).to.equal(0);
  });

  it('a large record in it is taken all the same: those of other streams keep their bytes', async () => {
    const anchor = node.createAnchor<Uint8Array>({ codec: rawCodec() });
    const other = node.createAnchor<Uint8Array>({ codec: rawCodec() });
    await peer.open(anchor.handle, FIRST);
    await peer.open(other.handle, SECOND);
    const socket = await peer.write(new Uint8Array(0));
    socket.cork();
    const detaching = peer.call('_anchor_detach', reference(anchor.handle));
    const late = peer.batch(0, (batch) => {
      dataRecord(batch, FIRST, 1, large(1));
      dataRecord(batch, SECOND, 1, large(2));
      dataRecord(batch, FIRST, 2, large(3));
      dataRecord(batch, SECOND, 2, large(4));
      finish(batch, SECOND, 2);
    });
    socket.uncork();
    await Promise.all([detaching, late]);
    const bytes: number[] = [];
    for await (const value of other) {
      expect(value.every((byte) => byte === value[0])).to.equal(true);
      bytes.push(value.length, value[0]!);
    }
    expect(bytes).to.deep.equal([LARGE_BYTES, 2, LARGE_BYTES, 4]);
    anchor.controller.cancel();
    await until('both slots are gone', () => node.stats().liveSlots === 0);
  });
});
