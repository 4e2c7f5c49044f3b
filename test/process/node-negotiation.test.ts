// What two nodes agree on before a stream flows: keys, windows, ids, addresses; played against a foreign node where the other
// side's bytes matter.

import { expect } from 'chai';
import { MESSENGER_MUX_KEY, PeerInfo, StreamAnchorHandle, Velo } from '../../lib/index.js';
import { RECORD_DATA, RECORD_OPEN_SLOT } from '../../lib/wire/batch.js';
import { abortAttach } from '../../lib/wire/control.js';
import { StreamCancelHandle } from '../../lib/wire/handle.js';
import { decodeHandlerList } from '../../lib/wire/hello.js';
import { ADDRESS_KEY_LANES, ADDRESS_KEY_TCP, BATCH_HANDLERS } from '../../lib/wire/names.js';
import {
  failure,
  openStream,
  pause,
  provesAlive,
  range,
  readAll,
  sendRange,
  streamSuite,
  until,
} from '../support/nodes.js';
import { type AttachAnswer, accept, WirePeer } from '../support/wire-peer.js';

const MIB = 1_048_576;
/** The part of an id that names a row, which is used again. */
const rowOf = (id: bigint): bigint => id & 0xffffn;
const ids = <T>(values: readonly T[]): number => new Set(values).size;

streamSuite('negotiation between nodes', (host, nodes) => {
  it('AN-01 AN-15 the sender reports the key it settled on, the literal messenger-mux-v2', async () => {
    const pair = await nodes.shared(host);
    const { anchor, sender } = await openStream<number>(pair);
    expect(sender.negotiatedTransport).to.equal('messenger-mux-v2');
    expect(MESSENGER_MUX_KEY).to.equal('messenger-mux-v2');
    await sender.finalize();
    await readAll(anchor);
  });

  it('AN-02 the mux has no endpoint of its own in the address', async () => {
    const { consumer } = await nodes.shared(host);
    expect([...consumer.peerInfo.entries().keys()].sort()).to.deep.equal([ADDRESS_KEY_TCP, ADDRESS_KEY_LANES].sort());
    const again = PeerInfo.fromJSON(JSON.parse(JSON.stringify(consumer.peerInfo)));
    expect(again.workerId).to.equal(consumer.workerId);
  });

  it('AN-10 four hundred items ride the mux, and its key alone counts an attach', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const before = { sent: producer.stats().recordsSent.data, received: consumer.stats().recordsInBatchesReceived };
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    expect(sender.negotiatedTransport).to.equal(MESSENGER_MUX_KEY);
    const reading = readAll(anchor);
    await sendRange(sender, 0, 400);
    await sender.finalize();
    expect(await reading).to.deep.equal({ items: range(0, 400), error: undefined });
    await until('all are counted', () => producer.stats().recordsSent.data - before.sent === 401);
    await until('the close is counted', () => consumer.stats().recordsInBatchesReceived - before.received === 403);
    expect(consumer.stats().attaches).to.deep.equal({ [MESSENGER_MUX_KEY]: 1 });
    expect(producer.stats().attaches).to.deep.equal({ [MESSENGER_MUX_KEY]: 0 });
  });

  it('AN-16 six streams of a hundred to one peer share the batches and keep their order', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const before = producer.stats().batchesSent;
    const streams = await Promise.all(range(0, 6).map(() => openStream<number>({ consumer, producer })));
    const reading = streams.map(({ anchor }) => readAll(anchor));
    for (let i = 0; i < 100; i += 1) {
      for (const [k, { sender }] of streams.entries()) while (!sender.trySend(k * 1_000 + i)) await sender.ready();
    }
    for (const { sender } of streams) await sender.finalize();
    for (const [k, { items, error }] of (await Promise.all(reading)).entries()) {
      expect(error).to.equal(undefined);
      expect(items).to.deep.equal(range(k * 1_000, k * 1_000 + 100));
    }
    expect(producer.stats().batchesSent - before).to.be.lessThan(606);
  });

  it('AF-15 anchor ids are random: 63 bits, no two alike, none next to another', async () => {
    const { consumer } = await nodes.shared(host);
    const anchors = range(0, 300).map(() => consumer.createAnchor());
    const locals = anchors.map((anchor) => anchor.handle.local);
    for (const anchor of anchors) anchor.controller.cancel();
    expect(ids(locals)).to.equal(locals.length);
    expect(locals.every((id) => id > 0n && id < 1n << 63n)).to.equal(true);
    const sorted = [...locals].sort((a, b) => (a < b ? -1 : 1));
    expect(locals).not.to.deep.equal(sorted);
    for (let i = 1; i < sorted.length; i += 1) expect(sorted[i]! - sorted[i - 1]! > 1n).to.equal(true);
    // The highest bit of an id is as good as a coin.
    const high = locals.filter((id) => id >= 1n << 62n).length;
    expect(high).to.be.within(90, 210);
  });

  it('AN-20 AN-21 a window or a sweep of zero is refused, naming the field, and a later build works', async () => {
    const window = await failure('ERR_INVALID_ARGUMENT', Velo.create({ host, mux: { initialCredit: 0 } }));
    expect(window.message).to.include('initialCredit');
    const sweep = await failure('ERR_INVALID_ARGUMENT', Velo.create({ host, mux: { creditSweepIntervalMs: 0 } }));
    expect(sweep.message).to.include('creditSweepIntervalMs');
    await provesAlive(await nodes.shared(host));
  });
});

streamSuite('attach answers of a foreign node', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  let handle: StreamAnchorHandle;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    node = (await nodes.shared(host)).producer;
    node.registerPeer(peer.info);
    peer.faces(node);
    handle = StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc');
  });
  afterEach(async () => {
    await peer.close();
    await provesAlive(await nodes.shared(host));
  });

  const answersWith = (answer: AttachAnswer) => {
    peer.onAttach = () => answer;
  };

  it('AN-01 the request offers the key, and names a cancel handle of this node', async () => {
    answersWith({ ok: false, reason: 'not today' });
    const refused = await failure('ERR_ATTACH_REFUSED', node.attachAnchor(handle, { key: 7n }));
    expect(refused.message).to.equal('not today');
    const [request] = peer.attaches;
    expect(request?.supportedTransportKeys).to.deep.equal([MESSENGER_MUX_KEY]);
    expect(request?.streamCancelHandle.worker).to.equal(node.workerId);
    expect(request?.streamCancelHandle.senderStreamId).to.equal(request?.sessionId);
    expect(request?.laneKey).to.equal(7n);
    expect(request?.handle.equals(handle)).to.equal(true);
  });

  it('AN-08 the mux key without a window is refused: no slot opens, no batch goes out', async () => {
    const before = node.stats().recordsSent.openSlot;
    answersWith(accept({ routingSessionId: 77n, initialCredit: 0 }));
    const refused = await failure('ERR_NO_WINDOW', node.attachAnchor(handle));
    expect(refused.message).to.include(MESSENGER_MUX_KEY).and.to.include('initial_credit = 0');
    await pause(30);
    expect(peer.batches).to.deep.equal([]);
    expect(node.stats().recordsSent.openSlot).to.equal(before);
    expect(node.stats().senders).to.equal(0);
  });

  it('AN-09 a byte cap of zero means one MiB, not a refusal', async () => {
    answersWith(accept({ routingSessionId: 77n, initialCredit: 1, slotByteBudget: 0 }));
    const sender = await node.attachAnchor<Uint8Array>(handle);
    const item = new Uint8Array(16_000);
    let sent = 0;
    const waiting = new AbortController();
    const sending = (async () => {
      for (;;) {
        if (sender.trySend(item)) sent += 1;
        else await sender.ready({ signal: waiting.signal });
      }
    })();
    await until('the slot is paused', () => node.stats().withheldRecords * item.length >= MIB);
    await pause(30);
    waiting.abort();
    await failure('ERR_ABORTED', sending);
    // One on the wire, what makes a MiB withheld, and an inlet of two.
    expect(sent).to.be.within(Math.floor(MIB / item.length), Math.ceil(MIB / item.length) + 3);
    expect(peer.records.filter(({ type }) => type === RECORD_DATA)).to.have.length(1);
    await peer.batch(0, (batch) => batch.creditUpdate(0, 100));
    await sender.finalize();
    await until('the rest came', () => peer.records.filter(({ type }) => type === RECORD_DATA).length === sent + 1);
  });

  it('a transport this node does not speak is refused', async () => {
    answersWith(accept({ streamingTransportKey: 'tcp-stream', routingSessionId: 77n, initialCredit: 0 }));
    const refused = await failure('ERR_UNSUPPORTED_TRANSPORT', node.attachAnchor(handle));
    expect(refused.message).to.include('tcp-stream');
    expect(node.stats().senders).to.equal(0);
  });

  it('a routing session of zero means the session of the request', async () => {
    answersWith(accept({ routingSessionId: 0n }));
    const sender = await node.attachAnchor<number>(handle);
    await until('the slot is opened', () => peer.records.length > 0);
    const [open] = peer.records;
    expect(open).to.include({ type: RECORD_OPEN_SLOT, anchor: handle.local, session: peer.attaches[0]!.sessionId });
    await sender.close();
  });

  const nonsense: [string, AttachAnswer][] = [
    ['broken JSON', new TextEncoder().encode('{"Ok":')],
    ['null', new TextEncoder().encode('null')],
    ['nothing', new Uint8Array(0)],
    ['neither Ok nor Err', new TextEncoder().encode('{"Maybe":{}}')],
    [
      'a lane that is no number',
      new TextEncoder().encode('{"Ok":{"streaming_transport_key":"messenger-mux-v2","lane":"x"}}'),
    ],
  ];
  for (const [what, bytes] of nonsense) {
    it(`an answer that is ${what} fails the attach with a code and leaves no sender`, async () => {
      answersWith(bytes);
      await failure(['ERR_BAD_JSON', 'ERR_BAD_CONTROL_MESSAGE'], node.attachAnchor(handle));
      expect(node.stats().senders).to.equal(0);
      expect(peer.batches).to.deep.equal([]);
    });
  }

  it('AF-15 sender ids are never reused, however often rows are', async () => {
    const small = await nodes.make({ host, maxStreams: 1 });
    small.registerPeer(peer.info);
    peer.faces(small);
    answersWith({ ok: false, reason: 'no' });
    for (let i = 0; i < 1_100; i += 1) await failure('ERR_ATTACH_REFUSED', small.attachAnchor(handle));
    const sessions = peer.attaches.map(({ sessionId }) => sessionId);
    expect(ids(sessions)).to.equal(1_100);
    expect(sessions.every((id) => id > 0n)).to.equal(true);
    expect(ids(sessions.map(rowOf)), 'rows').to.be.lessThan(1_100);
  });
});

streamSuite('attach requests of a foreign node', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    node = (await nodes.shared(host)).consumer;
    peer.faces(node);
  });
  afterEach(async () => {
    await peer.close();
    await provesAlive(await nodes.shared(host));
  });

  it('AL-01 sixteen batch handlers are served from the start', async () => {
    const { ok, payload } = await peer.hello();
    expect(ok).to.equal(true);
    const names = decodeHandlerList(payload);
    expect(BATCH_HANDLERS).to.have.length(16);
    expect(BATCH_HANDLERS[0]).to.equal('_stream_batch');
    expect(BATCH_HANDLERS[15]).to.equal('_stream_batch.15');
    expect(names).to.include.members([...BATCH_HANDLERS, '_hello', '_anchor_attach', '_stream_cancel', '_stream_stop']);
  });

  it('AN-02 a peer whose address names nothing but a TCP endpoint can stream', async () => {
    await peer.hello();
    expect([...peer.info.entries().keys()]).to.deep.equal([ADDRESS_KEY_TCP]);
    const anchor = node.createAnchor();
    const answer = await peer.attach(anchor.handle);
    expect(answer.ok && answer.value.streamingTransportKey).to.equal(MESSENGER_MUX_KEY);
    anchor.controller.cancel();
  });

  it('AF-15 routing sessions are never reused, however often anchors and rows are', async () => {
    const small = await nodes.make({ host, maxStreams: 1 });
    await peer.faces(small).hello();
    const sessions: bigint[] = [];
    for (let i = 0; i < 1_100; i += 1) {
      const anchor = small.createAnchor();
      const answer = await peer.attach(anchor.handle);
      if (!answer.ok) throw new Error(answer.reason);
      sessions.push(answer.value.routingSessionId);
      anchor.controller.cancel();
    }
    expect(ids(sessions)).to.equal(1_100);
    expect(sessions.every((id) => id > 0n)).to.equal(true);
    expect(ids(sessions.map(rowOf)), 'rows').to.be.lessThan(1_100);
  });

  it('AN-06 a sender that does not offer the mux is refused', async () => {
    await peer.hello();
    const anchor = node.createAnchor();
    for (const supportedTransportKeys of [[], ['tcp-stream'], ['messenger-mux-v1']]) {
      const answer = await peer.attach(anchor.handle, { supportedTransportKeys });
      expect(answer.ok ? '' : answer.reason).to.include(MESSENGER_MUX_KEY);
    }
    anchor.controller.cancel();
  });

  it('a sender that nobody registered is refused', async () => {
    await peer.hello();
    const stranger = await WirePeer.listen();
    const anchor = node.createAnchor();
    const streamCancelHandle = new StreamCancelHandle(stranger.workerId, 9n);
    const answer = await peer.attach(anchor.handle, { streamCancelHandle });
    expect(answer.ok ? '' : answer.reason).to.include('not registered');
    anchor.controller.cancel();
    await stranger.close();
  });

  it('AF-16 AF-17 a second attach, an unknown anchor and an MPSC handle are refused with a reason', async () => {
    await peer.hello();
    const anchor = node.createAnchor();
    expect((await peer.attach(anchor.handle)).ok).to.equal(true);
    const reasonFor = async (wanted: StreamAnchorHandle) => {
      const answer = await peer.attach(wanted);
      return answer.ok ? '' : answer.reason;
    };
    expect(await reasonFor(anchor.handle)).to.include('already attached');
    expect(await reasonFor(StreamAnchorHandle.pack(node.workerId, 5n, 'spsc'))).to.include('not found');
    expect(await reasonFor(StreamAnchorHandle.pack(node.workerId, 5n, 'mpsc'))).to.include('mpsc');
    expect(await reasonFor(StreamAnchorHandle.pack(99n, anchor.handle.local, 'spsc'))).to.include('not found');
    anchor.controller.cancel();
  });

  it('a sender that could not open its slot aborts its attach: another may come, and the reader hears nothing', async () => {
    await peer.hello();
    const anchor = node.createAnchor<number>();
    const abort = async (sender: bigint, handle = anchor.handle) => {
      const payload = abortAttach.encodeJson({
        handle,
        streamCancelHandle: new StreamCancelHandle(peer.workerId, sender),
      });
      return peer.call('_anchor_abort_attach', payload);
    };
    expect((await abort(9n)).text, 'nobody is attached').to.equal('null');
    expect((await peer.attach(anchor.handle, { sessionId: 9n })).ok).to.equal(true);
    expect((await abort(10n)).text, 'somebody else').to.equal('null');
    expect((await peer.attach(anchor.handle)).ok, 'still taken').to.equal(false);
    expect((await abort(9n)).text).to.equal('null');
    expect((await abort(9n)).text, 'once more').to.equal('null');
    const reading = readAll(anchor);
    const sender = await (await nodes.shared(host)).producer.attachAnchor<number>(anchor.handle);
    await sender.send(1);
    await sender.finalize();
    expect(await reading).to.deep.equal({ items: [1], error: undefined });
    const foreign = await abort(9n, StreamAnchorHandle.pack(99n, 1n, 'spsc'));
    expect(foreign).to.include({ ok: false, text: 'abort attach requires a local SPSC anchor' });
  });

  it('an attach whose answer cannot be used is aborted at the anchor', async () => {
    const { producer } = await nodes.shared(host);
    producer.registerPeer(peer.info);
    peer.faces(producer);
    peer.onAttach = () => accept({ initialCredit: 0 });
    const handle = StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc');
    await failure('ERR_NO_WINDOW', producer.attachAnchor(handle));
    const aborts = () => peer.requests.filter(({ handler }) => handler === '_anchor_abort_attach');
    await until('the abort came', () => aborts().length > 0);
    const { streamCancelHandle } = abortAttach.decodeJson(aborts()[0]!.payload);
    expect(streamCancelHandle.equals(peer.attaches[0]!.streamCancelHandle)).to.equal(true);
  });
});
