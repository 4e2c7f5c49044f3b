// What a real velo node does with the batches of a sender, tried byte by byte: a test peer attaches to a Rust anchor and says what no
// well-behaved node would, or what the specifications only infer.

import { expect } from 'chai';
import {
  CLOSE_PROTOCOL_ERROR,
  CLOSE_TERMINAL_SENT,
  CLOSE_UNKNOWN_SLOT,
  LIFECYCLE_CANCEL,
  RECORD_CLOSE_SLOT,
  RECORD_CREDIT_UPDATE,
  RECORD_LIFECYCLE,
} from '../../lib/wire/batch.js';
import { rawCodec } from '../../lib/wire/codec.js';
import { encodeStreamFrame, FINALIZED_BYTES, HEARTBEAT_BYTES, transportErrorFrame } from '../../lib/wire/frame.js';
import { slotId } from '../../lib/wire/slot-id.js';
import { pause, until } from '../support/nodes.js';
import { dataRecord, openRecord, recordsOf, WirePeer } from '../support/wire-peer.js';
import { expected, interop, rustReaches } from './kit.js';
import { bytesOf, type Token } from './payload.js';
import type { ItemKind, RustAnchor, RustNodeOptions, RustPeer } from './rust-peer.js';

const DROPPED = 'sender dropped without explicit detach/finalize';
const SLOT = slotId(0, 0);

function itemFrame(size: number, seed: number): Uint8Array {
  return encodeStreamFrame({ kind: 'item', value: bytesOf(size, seed) }, rawCodec());
}

/** The Item frame around these MessagePack bytes. */
function itemOf(...value: number[]): Uint8Array {
  return Uint8Array.of(0x81, 0xa4, 0x49, 0x74, 0x65, 0x6d, ...value);
}

describe('interop facts: Rust as the consumer', () => {
  const kit = interop();
  let rust: RustPeer;
  let peer: WirePeer;
  let anchor: RustAnchor;

  /** A Rust node that knows the test peer, and an anchor of it. */
  async function setUp(options: RustNodeOptions = {}, kind: ItemKind = 'bytes', heartbeatMs?: number): Promise<void> {
    rust = await kit.rust(options);
    peer = (await WirePeer.listen()).faces({ peerInfo: rust.info });
    await peer.hello();
    anchor = await rust.anchor(kind, heartbeatMs);
  }

  afterEach(() => peer.close());

  /** Sends items 1..sizes.length, from frame_seq `from` on. */
  function items(sizes: readonly number[], from = 1, slot = SLOT): Promise<void> {
    return peer.batch(0, (batch) => {
      sizes.forEach((size, i) => {
        dataRecord(batch, slot, from + i, itemFrame(size, i));
      });
    });
  }

  function finalize(seq: number, slot = SLOT): Promise<void> {
    return peer.batch(0, (batch) => {
      dataRecord(batch, slot, seq, FINALIZED_BYTES);
      batch.closeSlot(slot, seq + 1, CLOSE_TERMINAL_SENT);
    });
  }

  it('an OpenSlot with data and the end in one batch is a whole stream', async () => {
    await setUp();
    const answer = await peer.attach(anchor.handle);
    if (!answer.ok) throw new Error(answer.reason);
    await peer.batch(0, (batch) => {
      openRecord(batch, SLOT, anchor.handle.local, answer.value.routingSessionId);
      dataRecord(batch, SLOT, 1, itemFrame(5, 0));
      dataRecord(batch, SLOT, 2, FINALIZED_BYTES);
      batch.closeSlot(SLOT, 3, CLOSE_TERMINAL_SENT);
    });
    expect(await rust.consume(anchor)).to.deep.equal({ items: expected([5], 0), marks: [], end: 'finalized' });
  });

  it('a slot may start at another frame_seq than 0: the OpenSlot says which', async () => {
    await setUp();
    const answer = await peer.attach(anchor.handle);
    if (!answer.ok) throw new Error(answer.reason);
    const session = answer.value.routingSessionId;
    await peer.batch(0, (batch) => {
      batch.openSlot(SLOT, 41, 0, Number(anchor.handle.local), 0, Number(session));
      dataRecord(batch, SLOT, 42, itemFrame(5, 0));
    });
    await finalize(43);
    expect((await rust.consume(anchor)).items).to.deep.equal(expected([5], 0));
  });

  it('the reserved half of the flags is ignored', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT, { headerLane: 0xf0 });
    await items([3]);
    await finalize(2);
    expect((await rust.consume(anchor)).end).to.equal('finalized');
    expect(await rust.metric('velo_streaming_mux_records_dropped_total')).to.equal(0);
  });

  it('a batch whose lane is not that of its handler is dropped whole', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 1, itemFrame(9, 9)), { headerLane: 3, seq: 1 });
    await rustReaches(rust, 'velo_streaming_mux_records_dropped_total', 1, { reason: 'lane_mismatch' });
    await items([3]);
    await finalize(2);
    expect((await rust.consume(anchor)).items).to.deep.equal(expected([3], 0));
  });

  it('records ahead of their turn are held, late ones are dropped as duplicates', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => {
      dataRecord(batch, SLOT, 2, itemFrame(20, 1));
      dataRecord(batch, SLOT, 1, itemFrame(10, 0));
      dataRecord(batch, SLOT, 1, itemFrame(99, 9));
    });
    await finalize(3);
    expect((await rust.consume(anchor)).items).to.deep.equal(expected([10, 20], 0));
    expect(await rust.metric('velo_streaming_mux_records_dropped_total', { reason: 'duplicate' })).to.equal(1);
  });

  it('a CloseSlot ahead of the terminal waits for it', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => batch.closeSlot(SLOT, 3, CLOSE_TERMINAL_SENT));
    await items([4]);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 2, FINALIZED_BYTES));
    expect(await rust.consume(anchor)).to.deep.equal({ items: expected([4], 0), marks: [], end: 'finalized' });
  });

  it('records before a bad one are applied; the stream goes on', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(
      0,
      (batch) => {
        dataRecord(batch, SLOT, 1, itemFrame(4, 0));
        batch.slotHeartbeat(SLOT, 2);
      },
      // The type of the second record, which stands 13 bytes before the end.
      { spoil: (bytes) => bytes.with(bytes.length - 13, 6) },
    );
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 2, itemFrame(5, 1)));
    await finalize(3);
    expect((await rust.consume(anchor)).items).to.deep.equal(expected([4, 5], 0));
  });

  it('a gap in batch_seq is counted and harmless', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 1, itemFrame(4, 0)), { seq: 9 });
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 2, FINALIZED_BYTES), { seq: 3 });
    expect((await rust.consume(anchor)).end).to.equal('finalized');
    expect(await rust.metric('velo_streaming_mux_batch_seq_gaps_total')).to.equal(8);
  });

  it('a higher epoch ends the slots of the one before as dropped; a lower one is dropped whole', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT, { epoch: 5n });
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 1, itemFrame(4, 0)), { epoch: 5n });
    await peer.batch(0, (batch) => batch.creditUpdate(SLOT, 1), { epoch: 6n });
    expect(await rust.consume(anchor)).to.deep.equal({ items: expected([4], 0), marks: [], end: DROPPED });
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 2, itemFrame(4, 0)), { epoch: 5n });
    await rustReaches(rust, 'velo_streaming_mux_records_dropped_total', 1, { reason: 'stale_epoch' });
  });

  it('an OpenSlot that nobody waits for is answered with CloseSlot{UnknownSlot}', async () => {
    await setUp();
    await peer.batch(0, (batch) => openRecord(batch, slotId(5, 2), anchor.handle.local, 999n));
    await until('the refusal came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]).to.include({
      slot: slotId(5, 2),
      frameSeq: 0,
      closeReason: CLOSE_UNKNOWN_SLOT,
    });
  });

  it('an index that is in use by another generation is refused with CloseSlot{ProtocolError}', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT);
    const other = await rust.anchor();
    const answer = await peer.attach(other.handle, { sessionId: 10n });
    if (!answer.ok) throw new Error(answer.reason);
    await peer.batch(0, (batch) => openRecord(batch, slotId(0, 1), other.handle.local, answer.value.routingSessionId));
    await until('the refusal came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]).to.include({
      slot: slotId(0, 1),
      closeReason: CLOSE_PROTOCOL_ERROR,
    });
    await items([3]);
    await finalize(2);
    expect((await rust.consume(anchor)).end, 'the occupant').to.equal('finalized');
  });

  it('the last index of a lane is 65,535', async () => {
    await setUp();
    await peer.open(anchor.handle, slotId(65_535, 0));
    await items([3], 1, slotId(65_535, 0));
    await finalize(2, slotId(65_535, 0));
    expect((await rust.consume(anchor)).end).to.equal('finalized');
    const other = await rust.anchor();
    await peer.open(other.handle, slotId(65_536, 0));
    await until('the refusal came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]).to.include({
      slot: slotId(65_536, 0),
      closeReason: CLOSE_PROTOCOL_ERROR,
    });
  });

  it('no credit comes for an opening or a terminal, and exactly what was taken for data', async () => {
    await setUp({ initialCredit: 4 });
    await peer.open(anchor.handle, SLOT);
    await items([1, 2, 3]);
    await pause(300);
    expect(recordsOf(peer, RECORD_CREDIT_UPDATE), 'before anything was taken').to.deep.equal([]);
    await rust.consume(anchor, { max: 3 });
    const credit = () => recordsOf(peer, RECORD_CREDIT_UPDATE).reduce((sum, { delta }) => sum + delta, 0);
    await until('the credit of three came', () => credit() === 3);
    await finalize(4);
    expect((await rust.consume(anchor)).end).to.equal('finalized');
    await pause(300);
    expect(credit()).to.equal(3);
  });

  it('one data record more than the window ends the stream: CloseSlot{ProtocolError}, dropped', async () => {
    await setUp({ initialCredit: 4 });
    await peer.open(anchor.handle, SLOT);
    await items([1, 2, 3, 4, 5]);
    await until('the refusal came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]).to.include({ slot: SLOT, closeReason: CLOSE_PROTOCOL_ERROR });
    expect(await rust.consume(anchor)).to.deep.equal({ items: expected([1, 2, 3, 4], 0), marks: [], end: DROPPED });
    expect(await rust.metric('velo_streaming_mux_hold_overflow_total')).to.equal(1);
    expect(await rust.metric('velo_streaming_mux_reader_stall_total')).to.equal(0);
  });

  it('a terminal passes a full window', async () => {
    await setUp({ initialCredit: 2 });
    await peer.open(anchor.handle, SLOT);
    await items([1, 2]);
    await finalize(3);
    expect(await rust.consume(anchor)).to.deep.equal({ items: expected([1, 2], 0), marks: [], end: 'finalized' });
  });

  it('heartbeats, as data or as records, are not items; as data they spend and return credit', async () => {
    await setUp({ initialCredit: 2 });
    await peer.open(anchor.handle, SLOT);
    const reading = rust.consume(anchor);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 1, HEARTBEAT_BYTES));
    await peer.batch(0, (batch) => batch.slotHeartbeat(SLOT, 2));
    const credit = () => recordsOf(peer, RECORD_CREDIT_UPDATE).reduce((sum, { delta }) => sum + delta, 0);
    await until('the credit of two came', () => credit() === 2);
    await items([7], 3);
    await finalize(4);
    expect(await reading).to.deep.equal({ items: expected([7], 0), marks: [], end: 'finalized' });
  });

  it('a sender that sends nothing is dropped by the watchdog, and told so by a lifecycle record', async () => {
    await setUp({}, 'bytes', 100);
    await peer.open(anchor.handle, SLOT);
    expect((await rust.consume(anchor)).end).to.equal(DROPPED);
    await rustReaches(rust, 'velo_streaming_heartbeat_watchdog_firings_total', 1);
    await until('the sender was told', () => recordsOf(peer, RECORD_LIFECYCLE).length > 0);
    expect(recordsOf(peer, RECORD_LIFECYCLE)[0]).to.include({ slot: SLOT, action: LIFECYCLE_CANCEL });
  });

  it('an attach whose OpenSlot never comes is dropped by the watchdog too', async () => {
    await setUp({}, 'bytes', 100);
    expect((await peer.attach(anchor.handle)).ok).to.equal(true);
    expect((await rust.consume(anchor)).end).to.equal(DROPPED);
  });

  it('an attach whose OpenSlot never comes is reaped when the accept window closes; a late OpenSlot is refused', async () => {
    await setUp({ prebindTimeoutMs: 300 });
    const answer = await peer.attach(anchor.handle);
    if (!answer.ok) throw new Error(answer.reason);
    expect((await rust.consume(anchor)).end).to.equal(DROPPED);
    await rustReaches(rust, 'velo_streaming_unclaimed_bind_reaped_total', 1);
    await peer.batch(0, (batch) => openRecord(batch, SLOT, anchor.handle.local, answer.value.routingSessionId));
    await until('the refusal came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]).to.include({ closeReason: CLOSE_UNKNOWN_SLOT });
  });

  it('a budget that was set to 0 is offered as 1 MiB', async () => {
    await setUp({ slotByteBudget: 0 });
    const answer = await peer.attach(anchor.handle);
    expect(answer.ok && answer.value.slotByteBudget).to.equal(1_048_576);
  });

  it('a silent sender without credit is spared', async () => {
    await setUp({ initialCredit: 3 }, 'bytes', 100);
    await peer.open(anchor.handle, SLOT);
    await items([1, 2, 3]);
    await pause(1_000);
    await finalize(4);
    expect(await rust.consume(anchor)).to.deep.equal({ items: expected([1, 2, 3], 0), marks: [], end: 'finalized' });
  });

  it('a transport error from the sender ends the stream with its text', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => {
      dataRecord(batch, SLOT, 1, transportErrorFrame('tëxt'));
      batch.closeSlot(SLOT, 2, CLOSE_TERMINAL_SENT);
    });
    expect((await rust.consume(anchor)).end).to.equal('transport error: tëxt');
  });

  it('byte items of any bin width are read', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => {
      dataRecord(batch, SLOT, 1, itemOf(0xc4, 1, 7));
      dataRecord(batch, SLOT, 2, itemOf(0xc5, 0, 1, 7));
      dataRecord(batch, SLOT, 3, itemOf(0xc6, 0, 0, 0, 1, 7));
    });
    await finalize(4);
    const { items: seen } = await rust.consume(anchor);
    expect(new Set(seen.map(String)).size).to.equal(1);
    expect(seen).to.have.length(3);
  });

  const ID = 0x07;
  const TEXT = [0xa2, 0x68, 0x69];
  const NIL = 0xc0;
  const EMPTY = 0x90;

  async function decodes(...value: number[]): Promise<Token | string> {
    await setUp({}, 'token');
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 1, itemOf(...value)));
    await finalize(2);
    const { items: seen, end } = await rust.consume<Token>(anchor);
    return seen[0] ?? end!;
  }

  it('a struct: an integer is read for a float', async () => {
    const token = await decodes(0x94, ID, ...TEXT, 0x03, 0x91, 0x92, 0x01, 0x02);
    expect(token).to.deep.equal({ id: 7, text: 'hi', logprob: 3, top: [[1, 2]] });
  });

  it('a struct: an f64 is read for an f32', async () => {
    const token = await decodes(0x94, ID, ...TEXT, 0xcb, 0xbf, 0xe0, 0, 0, 0, 0, 0, 0, EMPTY);
    expect(token).to.deep.equal({ id: 7, text: 'hi', logprob: -0.5, top: [] });
  });

  it('a struct: a float is not read for an integer', async () => {
    const end = await decodes(0x94, 0xcb, 0x40, 0x1c, 0, 0, 0, 0, 0, 0, ...TEXT, NIL, EMPTY);
    expect(end).to.match(/^deserialization error/);
  });

  it('a struct: an array that is one element too long is an error', async () => {
    expect(await decodes(0x95, ID, ...TEXT, NIL, EMPTY, NIL)).to.match(/^deserialization error/);
  });

  it('a struct: an array that lacks the last element is an error', async () => {
    expect(await decodes(0x93, ID, ...TEXT, NIL)).to.match(/^deserialization error/);
  });

  it('a struct as a map: any order, unknown members ignored', async () => {
    const key = (name: string) => [0xa0 | name.length, ...new TextEncoder().encode(name)];
    const value = [...key('top'), EMPTY, ...key('more'), 0x01, ...key('text'), ...TEXT];
    const token = await decodes(0x85, ...value, ...key('id'), ID, ...key('logprob'), NIL);
    expect(token).to.deep.equal({ id: 7, text: 'hi', logprob: null, top: [] });
  });

  it('bytes behind the item are ignored', async () => {
    expect(await decodes(0x94, ID, ...TEXT, NIL, EMPTY, 0xc1, 0xff)).to.deep.equal({
      id: 7,
      text: 'hi',
      logprob: null,
      top: [],
    });
  });

  it('a frame whose variant is an index is read', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 1, Uint8Array.of(0x81, 0x00, 0xc4, 0x01, 0x07)));
    await finalize(2);
    expect((await rust.consume(anchor)).items).to.have.length(1);
  });

  it('an empty frame does not decode and ends the stream', async () => {
    await setUp();
    await peer.open(anchor.handle, SLOT);
    await peer.batch(0, (batch) => dataRecord(batch, SLOT, 1, new Uint8Array(0)));
    expect((await rust.consume(anchor)).end).to.match(/^deserialization error/);
  });
});
