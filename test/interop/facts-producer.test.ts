// What a real velo node does as a sender, tried byte by byte: it attaches to an anchor of a test peer, which answers what a test tells
// it and watches the records.

import { expect } from 'chai';
import { StreamAnchorHandle, stringifyJson } from '../../lib/index.js';
import {
  CLOSE_TERMINAL_SENT,
  CLOSE_UNKNOWN_SLOT,
  LIFECYCLE_CANCEL,
  LIFECYCLE_STOP,
  RECORD_CLOSE_SLOT,
  RECORD_DATA,
  RECORD_OPEN_SLOT,
} from '../../lib/wire/batch.js';
import { type AttachAccepted, streamSignal } from '../../lib/wire/control.js';
import { FINALIZED_BYTES, HEARTBEAT_BYTES } from '../../lib/wire/frame.js';
import { HANDLER_STREAM_CANCEL, HANDLER_STREAM_STOP } from '../../lib/wire/names.js';
import { slotId } from '../../lib/wire/slot-id.js';
import { pause, until } from '../support/nodes.js';
import { accept, recordsOf, type SeenRecord, WirePeer } from '../support/wire-peer.js';
import { interop, rustReaches } from './kit.js';
import { OperationError } from './line-process.js';
import type { RustNodeOptions, RustPeer } from './rust-peer.js';

const SESSION = 77n;
const MANY = new Array<number>(1_000).fill(4);
const utf8 = new TextEncoder();
const utf8Text = new TextDecoder();

describe('interop facts: Rust as the producer', () => {
  const kit = interop();
  let rust: RustPeer;
  let peer: WirePeer;
  let handle: StreamAnchorHandle;

  async function setUp(options: RustNodeOptions = {}, terms: Partial<AttachAccepted> = {}): Promise<void> {
    rust = await kit.rust(options);
    peer = (await WirePeer.listen()).faces({ peerInfo: rust.info });
    peer.onAttach = () => accept({ routingSessionId: SESSION, ...terms });
    await rust.register(peer.info);
    handle = StreamAnchorHandle.pack(peer.workerId, 0x7123_4567_89ab_cdefn, 'spsc');
  }

  afterEach(() => peer.close());

  async function refusal(action: Promise<unknown>): Promise<string> {
    try {
      await action;
    } catch (error) {
      if (error instanceof OperationError) return error.message;
      throw error;
    }
    throw new Error('nothing failed over there');
  }

  const data = (): SeenRecord[] => recordsOf(peer, RECORD_DATA);

  it('it offers the mux and its per-stream transport, sorted, with a lane key only when there is one', async () => {
    await setUp();
    await rust.attach(handle);
    await rust.attach(handle, { key: 2n ** 64n - 1n });
    expect(peer.attaches.map(({ supportedTransportKeys, laneKey }) => [supportedTransportKeys, laneKey])).to.deep.equal(
      [
        [['messenger-mux-v2', 'tcp-stream'], undefined],
        [['messenger-mux-v2', 'tcp-stream'], 2n ** 64n - 1n],
      ],
    );
    expect(peer.attaches[0]!.streamCancelHandle.senderStreamId).to.equal(peer.attaches[0]!.sessionId);
    expect(peer.attaches[0]!.handle.toJSON()).to.deep.equal(handle.toJSON());
  });

  it('an attach needs no hello and no handler list', async () => {
    await setUp();
    await rust.attach(handle);
    expect(peer.requests.map(({ handler }) => handler)).to.not.include('_hello');
  });

  it('its OpenSlot is frame 0, data counts from 1, the terminal and its CloseSlot share a batch', async () => {
    await setUp();
    const sender = await rust.attach(handle);
    await rust.produce(sender, { sizes: [1, 2], seed: 1 });
    await rust.end(sender, 'finalize');
    await until('the end came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(peer.records.map(({ type, slot, frameSeq }) => [type, slot, frameSeq])).to.deep.equal([
      [RECORD_OPEN_SLOT, 0, 0],
      [RECORD_DATA, 0, 1],
      [RECORD_DATA, 0, 2],
      [RECORD_DATA, 0, 3],
      [RECORD_CLOSE_SLOT, 0, 4],
    ]);
    expect(recordsOf(peer, RECORD_OPEN_SLOT)[0]).to.include({ anchor: handle.local, session: SESSION });
    expect(data()[2]!.body).to.deep.equal(FINALIZED_BYTES);
    expect(recordsOf(peer, RECORD_CLOSE_SLOT)[0]).to.include({ closeReason: CLOSE_TERMINAL_SENT });
    const last = peer.batches.at(-1)!;
    expect(last.records.slice(-2).map(({ type }) => type)).to.deep.equal([RECORD_DATA, RECORD_CLOSE_SLOT]);
    expect(peer.batches.map(({ batchSeq }) => batchSeq)).to.deep.equal(peer.batches.map((_, i) => i));
    expect(new Set(peer.batches.map(({ epoch }) => epoch))).to.deep.equal(new Set([1n]));
  });

  it('a closed index comes again with the next generation', async () => {
    await setUp();
    for (let i = 0; i < 3; i++) await rust.end(await rust.attach(handle), 'finalize');
    await until('three ends came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 3);
    expect(recordsOf(peer, RECORD_OPEN_SLOT).map(({ slot }) => slot)).to.deep.equal([0, 1, 2].map((g) => slotId(0, g)));
  });

  it('it sends a window of data and no more until credit comes; a grant releases as many', async () => {
    await setUp({}, { initialCredit: 4 });
    const sender = await rust.attach(handle);
    const producing = rust.produce(sender, { sizes: MANY.slice(0, 10), seed: 1 });
    await until('the window was used', () => data().length === 4);
    await pause(200);
    expect(data()).to.have.length(4);
    await peer.batch(0, (batch) => batch.creditUpdate(0, 3));
    await until('the grant was used', () => data().length === 7);
    await pause(200);
    expect(data()).to.have.length(7);
    await peer.batch(0, (batch) => batch.creditUpdate(0, 100));
    await producing;
    await until('all came', () => data().length === 10);
    expect(data().map(({ frameSeq }) => frameSeq)).to.deep.equal(Array.from({ length: 10 }, (_, i) => i + 1));
  });

  it('a terminal passes an empty window, but not records that wait', async () => {
    await setUp({}, { initialCredit: 2 });
    const sender = await rust.attach(handle);
    await rust.produce(sender, { sizes: [1, 1], seed: 1 });
    await rust.end(sender, 'finalize');
    await until('the end came', () => data().length === 3);
    const second = await rust.attach(handle);
    await rust.produce(second, { sizes: [1, 1, 1], seed: 1 });
    const ending = rust.end(second, 'finalize');
    await until('the window was used', () => data().length === 5);
    await pause(200);
    expect(data()).to.have.length(5);
    await peer.batch(0, (batch) => batch.creditUpdate(slotId(0, 1), 1));
    expect(await ending).to.equal('sent');
    await until('the end came', () => data().length === 7);
  });

  it('CloseSlot{UnknownSlot} fails its sends and fires its token', async () => {
    await setUp();
    const sender = await rust.attach(handle);
    await peer.batch(0, (batch) => batch.closeSlot(0, 0, CLOSE_UNKNOWN_SLOT));
    await rust.cancelled(sender);
    expect(await refusal(rust.produce(sender, { sizes: MANY, seed: 1 }))).to.match(/channel closed$/);
    expect(await rust.end(sender, 'drop')).to.equal('discarded');
  });

  it('a CloseSlot for another generation does nothing', async () => {
    await setUp();
    const sender = await rust.attach(handle);
    await peer.batch(0, (batch) => batch.closeSlot(slotId(0, 9), 0, CLOSE_UNKNOWN_SLOT));
    await rust.produce(sender, { sizes: [1], seed: 1 });
    await until('the item came', () => data().length === 1);
    expect(await rust.end(sender, 'finalize')).to.equal('sent');
  });

  it('control for an index that it never allocated is refused and counted', async () => {
    await setUp();
    const sender = await rust.attach(handle);
    await peer.batch(0, (batch) => batch.creditUpdate(slotId(7, 0), 5));
    await rust.produce(sender, { sizes: [1], seed: 1 });
    await until('the item came', () => data().length === 1);
    expect(await rust.metric('velo_streaming_mux_control_refused_total')).to.equal(1);
  });

  it('a lifecycle record is obeyed for its own session only: stop, then cancel', async () => {
    await setUp();
    const sender = await rust.attach(handle);
    let heard = '';
    void rust.stopped(sender).then(() => {
      heard += 'stop ';
    });
    const cancelled = rust.cancelled(sender).then(() => {
      heard += 'cancel';
    });
    await peer.batch(0, (batch) => batch.lifecycle(0, 0, 78, LIFECYCLE_CANCEL));
    await rust.produce(sender, { sizes: [1], seed: 1 });
    await until('the item came', () => data().length === 1);
    expect(heard).to.equal('');
    await peer.batch(0, (batch) => batch.lifecycle(0, 0, Number(SESSION), LIFECYCLE_STOP));
    await until('the stop was heard', () => heard === 'stop ');
    await rust.produce(sender, { sizes: [1], seed: 2, from: 1 });
    await peer.batch(0, (batch) => batch.lifecycle(0, 0, Number(SESSION), LIFECYCLE_CANCEL));
    await cancelled;
    expect(heard).to.equal('stop cancel');
    expect(await refusal(rust.produce(sender, { sizes: MANY, seed: 1 }))).to.match(/channel closed$/);
  });

  it('_stream_stop and _stream_cancel are obeyed; unknown ids are ignored', async () => {
    await setUp();
    const sender = await rust.attach(handle);
    const { sessionId } = peer.attaches[0]!;
    const signal = (senderStreamId: bigint) => streamSignal.encodeJson({ senderStreamId });
    await peer.fire(HANDLER_STREAM_CANCEL, signal(sessionId + 1_000n));
    await peer.fire(HANDLER_STREAM_STOP, signal(sessionId));
    await rust.stopped(sender);
    await rust.produce(sender, { sizes: [1], seed: 1 });
    await peer.fire(HANDLER_STREAM_CANCEL, signal(sessionId));
    await rust.cancelled(sender);
  });

  it('heartbeats of a sender without credit wait with its data, and leave in order', async () => {
    await setUp({}, { heartbeatIntervalMs: 50, initialCredit: 1 });
    const sender = await rust.attach(handle);
    await rust.produce(sender, { sizes: [1], seed: 1 });
    await until('the window was used', () => data().length === 1);
    await pause(300);
    expect(data()).to.have.length(1);
    await peer.batch(0, (batch) => batch.creditUpdate(0, 3));
    await until('the grant was used', () => data().length === 4);
    expect(
      data()
        .slice(1)
        .map(({ body }) => body),
    ).to.deep.equal([HEARTBEAT_BYTES, HEARTBEAT_BYTES, HEARTBEAT_BYTES]);
  });

  it('a lane key is sent by a node without the mux too', async () => {
    await setUp({ mux: false });
    await refusal(rust.op('attach', { handle, key: 5 }));
    expect(peer.attaches[0]).to.deep.include({ laneKey: 5n, supportedTransportKeys: ['tcp-stream'] });
  });

  it('heartbeats come as data, by the interval of the answer', async () => {
    await setUp({}, { heartbeatIntervalMs: 100 });
    await rust.attach(handle);
    await until('three came', () => data().length >= 3);
    for (const { body } of data()) expect(body).to.deep.equal(HEARTBEAT_BYTES);
  });

  it('an answer that names no session: its own session id goes into the OpenSlot', async () => {
    await setUp({}, { routingSessionId: 0n });
    await rust.attach(handle);
    await until('the opening came', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 1);
    expect(recordsOf(peer, RECORD_OPEN_SLOT)[0]!.session).to.equal(peer.attaches[0]!.sessionId);
  });

  it('an answer with only the fields that have no default, and one it does not know', async () => {
    await setUp();
    peer.onAttach = () =>
      utf8.encode(
        '{"Ok":{"new_field":[1],"initial_credit":8,"routing_session_id":77,"streaming_transport_key":"messenger-mux-v2"}}',
      );
    const sender = await rust.attach(handle);
    await rust.produce(sender, { sizes: [1], seed: 1 });
    await until('the item came', () => data().length === 1);
  });

  it('an answer with a window of 0 is refused', async () => {
    await setUp({}, { initialCredit: 0 });
    expect(await refusal(rust.attach(handle))).to.include('peer advertised initial_credit = 0');
    // It gives back what the answer gave it.
    const { payload } = peer.requests.find(({ handler }) => handler === '_anchor_abort_attach')!;
    const { streamCancelHandle } = peer.attaches[0]!;
    expect(utf8Text.decode(payload)).to.equal(stringifyJson({ handle, stream_cancel_handle: streamCancelHandle }));
  });

  it('an answer with a transport that it does not have is refused', async () => {
    await setUp({}, { streamingTransportKey: 'pigeon-stream' });
    expect(await refusal(rust.attach(handle))).to.include('unsupported streaming transport key: pigeon-stream');
  });

  it('an answer that is no answer, and a refusal with its reason', async () => {
    await setUp();
    peer.onAttach = () => utf8.encode('{"Maybe":1}');
    expect(await refusal(rust.attach(handle))).to.include('unknown variant `Maybe`');
    peer.onAttach = () => ({ ok: false, reason: 'as it pleases' });
    expect(await refusal(rust.attach(handle))).to.include('as it pleases');
  });

  it('a lane beyond its own is taken modulo its lanes', async () => {
    await setUp({ lanes: 4 }, { lane: 7 });
    await rust.attach(handle);
    await until('the opening came', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 1);
    expect(peer.batches[0]).to.include({ lane: 3, headerLane: 3 });
  });

  it('under manual flushing an opening and an end leave at once, data does not', async () => {
    await setUp({ flush: 'manual' });
    const sender = await rust.attach(handle);
    await until('the opening came', () => peer.records.length === 1);
    await rust.produce(sender, { sizes: [1], seed: 1 });
    await pause(200);
    expect(peer.records).to.have.length(1);
    await rust.end(sender, 'finalize');
    await until('the end came', () => peer.records.length === 4);
    expect(peer.batches).to.have.length(2);
  });

  it('a full pass under manual flushing is one batch', async () => {
    await setUp({ flush: 'manual' });
    const senders = await Promise.all(Array.from({ length: 20 }, () => rust.attach(handle)));
    await until('the openings came', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 20);
    const before = peer.batches.length;
    for (const sender of senders) await rust.produce(sender, { sizes: [4], seed: sender });
    await rustReaches(rust, 'velo_streaming_mux_staged_records', 20);
    await rust.flush();
    await until('the pass came', () => data().length === 20);
    expect(peer.batches.length - before).to.equal(1);
  });

  it('a record above one batch goes alone, and the records behind it in order', async () => {
    await setUp();
    const sender = await rust.attach(handle);
    await rust.produce(sender, { sizes: [1, 100_000, 2, 3], seed: 1 });
    await until('all came', () => data().length === 4);
    expect(data().map(({ frameSeq }) => frameSeq)).to.deep.equal([1, 2, 3, 4]);
    const large = peer.batches.find(({ records }) => records.some(({ body }) => body.length > 100_000))!;
    expect(large.records).to.have.length(1);
    const name = peer.requests.find(({ payload }) => payload.length > 100_000)!;
    expect(name.handler).to.equal('_stream_batch');
  });

  it('a peer whose process is gone fails its next batch; all its streams end', async () => {
    await setUp();
    const sender = await rust.attach(handle);
    const idle = await rust.attach(handle);
    await peer.close();
    await Promise.all([rust.cancelled(sender), rust.cancelled(idle)]);
    expect(await rust.metric('velo_streaming_mux_epoch_deaths_total')).to.equal(1);
  }).timeout(30_000);
});
