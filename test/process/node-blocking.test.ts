// Producers whose loop never yields, against a consumer in another process: records leave, credit comes back, stop and cancel
// show, while the event loop of this thread stands still. And what may be awaited with a signal.

import { expect } from 'chai';
import { StreamAnchorHandle, type Velo } from '../../lib/index.js';
import { RECORD_CLOSE_SLOT, RECORD_DATA, RECORD_OPEN_SLOT } from '../../lib/wire/batch.js';
import { DROPPED_BYTES } from '../../lib/wire/frame.js';
import { NodeProcess } from '../support/node-process.js';
import { failure, nodesOfSuite, openStream, range, readAll, sendRange, streamSuite, until } from '../support/nodes.js';
import { type AttachAnswer, accept, recordsOf, WirePeer } from '../support/wire-peer.js';

/** A loop that waits for what never comes must end the test, not the run. */
const SPIN_MS = 10_000;

/** Holds the thread until `done`, as a computation does that never yields. */
function computeUntil(what: string, done: () => boolean): void {
  const deadline = Date.now() + SPIN_MS;
  while (!done()) if (Date.now() > deadline) throw new Error(`computed in vain until ${what}`);
}

describe('a producer that never yields (piscina lanes)', () => {
  const nodes = nodesOfSuite();
  let child: NodeProcess;
  let node: Velo;
  before(async () => {
    child = await NodeProcess.start({ host: 'inline', mux: { initialCredit: 4, slotByteBudget: 64 } });
  });
  after(() => child.end());
  beforeEach(async () => {
    node = await nodes.make({ host: 'piscina' });
    await child.meet(node);
  });

  it('its records leave while it computes: the consumer stops it on the last one', async () => {
    const { sender, result } = await child.stream(node, { after: 4, and: 'stop' });
    for (const i of range(0, 4)) expect(sender.trySend(i)).to.equal(true);
    computeUntil('the consumer asks to stop', () => sender.stopped);
    expect(sender.cancelled).to.equal(false);
    expect(sender.stopSignal.aborted, 'signals need the event loop').to.equal(false);
    await sender.finalize();
    expect(await result()).to.deep.equal({ items: range(0, 4), end: 'finalized' });
  });

  it('a cancel from another process shows inside its loop', async () => {
    const { sender, result } = await child.stream(node, { after: 2, and: 'cancel' });
    for (const i of range(0, 3)) expect(sender.trySend(i)).to.equal(true);
    computeUntil('the consumer cancels', () => sender.cancelled);
    await failure('ERR_CHANNEL_CLOSED', () => sender.trySend(9));
    await sender.close();
    expect((await result()).items).to.deep.equal([0, 1]);
  });

  it('credit comes back inside its loop: many windows pass without a turn', async () => {
    const { sender, result } = await child.stream(node, { after: 200, and: 'stop' });
    let sent = 0;
    computeUntil('two hundred were read', () => {
      if (sender.trySend(sent)) sent += 1;
      return sender.stopped;
    });
    await sender.finalize();
    const { items, end } = await result();
    expect(end).to.equal('finalized');
    expect(items).to.deep.equal(range(0, sent));
    expect(sent).to.be.at.least(200);
  });

  it('under manual a flush inside its loop is a write', async () => {
    const manual = await nodes.make({ host: 'piscina', flushPolicy: 'manual' });
    await child.meet(manual);
    const { sender, result } = await child.stream(manual, { after: 4, and: 'stop' });
    for (const i of range(0, 4)) expect(sender.trySend(i)).to.equal(true);
    manual.flushBatch();
    computeUntil('the consumer asks to stop', () => sender.stopped);
    await sender.finalize();
    expect(await result()).to.deep.equal({ items: range(0, 4), end: 'finalized' });
  });

  it('sendBlocking waits for a slow consumer, and everything arrives in order', async () => {
    const { sender, result } = await child.stream(node, { pauseMs: 1 });
    for (const i of range(0, 100)) sender.sendBlocking(i, SPIN_MS);
    await sender.finalize();
    expect(await result()).to.deep.equal({ items: range(0, 100), end: 'finalized' });
  });

  it('sendBlocking gives up at its bound, and the stream goes on', async () => {
    const { sender, result } = await child.stream(node, { hold: true });
    let sent = 0;
    await failure('ERR_TIMEOUT', () => {
      for (;;) {
        sender.sendBlocking(sent, 50);
        sent += 1;
      }
    });
    expect(sent).to.be.greaterThan(4);
    await sender.finalize();
    expect(await result()).to.deep.equal({ items: range(0, sent), end: 'finalized' });
  });

  it('a cancel wakes sendBlocking', async () => {
    const { sender, result } = await child.stream(node, { pauseMs: 20, after: 5, and: 'cancel' });
    await failure('ERR_CHANNEL_CLOSED', () => {
      for (let i = 0; ; i += 1) sender.sendBlocking(i, SPIN_MS);
    });
    expect(sender.cancelled).to.equal(true);
    await sender.close();
    expect((await result()).items).to.deep.equal(range(0, 5));
  });

  it('a consumer whose process has gone fails what is sent to it, and the node goes on', async () => {
    const brief = await NodeProcess.start({ host: 'inline' });
    await brief.meet(node);
    const { sender } = await brief.stream(node, {});
    await brief.end();
    await until('the sender hears', () => sender.cancelled);
    await failure('ERR_CHANNEL_CLOSED', sender.send(1));
    await sender.close();
    const { sender: other, result } = await child.stream(node, {});
    await sendRange(other, 0, 5);
    await other.finalize();
    expect(await result()).to.deep.equal({ items: range(0, 5), end: 'finalized' });
  });
});

describe('a blocking send where the lane is on this thread', () => {
  const nodes = nodesOfSuite();

  it('is refused when it would wait for itself', async () => {
    const pair = await nodes.pair('inline', { mux: { initialCredit: 1, slotByteBudget: 1 } });
    const { anchor, sender } = await openStream<number>(pair);
    const forever = () => {
      for (let i = 0; i < 1_000; i += 1) sender.sendBlocking(i, SPIN_MS);
    };
    await failure('ERR_INVALID_STATE', forever);
    anchor.controller.cancel();
    await sender.close();
    const local = pair.consumer.createAnchor<number>();
    const localSender = await pair.consumer.attachAnchor<number>(local.handle);
    await failure('ERR_INVALID_STATE', () => {
      for (let i = 0; i < 1_000; i += 1) localSender.sendBlocking(i, SPIN_MS);
    });
    await localSender.finalize();
    expect((await readAll(local)).items).to.deep.equal(range(0, 256));
  });
});

streamSuite('waits with a signal', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  let handle: StreamAnchorHandle;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    node = await nodes.make({ host });
    node.registerPeer(peer.info);
    peer.faces(node);
    handle = StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc');
  });
  afterEach(() => peer.close());

  const reason = new Error('enough');

  it('an attach that is aborted before it starts sends nothing', async () => {
    const error = await failure('ERR_ABORTED', node.attachAnchor(handle, { signal: AbortSignal.abort(reason) }));
    expect(error.cause).to.equal(reason);
    expect(peer.requests).to.deep.equal([]);
    expect(node.stats()).to.include({ senders: 0, pendingCalls: 0 });
  });

  it('an attach is aborted while the peer does not say hello', async () => {
    peer.answers = false;
    const abort = new AbortController();
    const attaching = failure('ERR_ABORTED', node.attachAnchor(handle, { signal: abort.signal }));
    await until('the hello came', () => peer.requests.length === 1);
    abort.abort(reason);
    expect((await attaching).cause).to.equal(reason);
    expect(node.stats().senders).to.equal(0);
  });

  it('an attach is aborted while the peer does not answer it, and a late answer ends its stream as dropped', async () => {
    let answer: (value: AttachAnswer) => void = () => {};
    peer.onAttach = () =>
      new Promise((resolve) => {
        answer = resolve;
      });
    const abort = new AbortController();
    const attaching = failure('ERR_ABORTED', node.attachAnchor(handle, { signal: abort.signal }));
    await until('the attach came', () => peer.attaches.length === 1);
    abort.abort(reason);
    expect((await attaching).cause).to.equal(reason);
    answer(accept({ routingSessionId: 77n }));
    await until('the slot is closed', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(recordsOf(peer, RECORD_OPEN_SLOT)).to.have.length(1);
    expect(recordsOf(peer, RECORD_DATA).map(({ body }) => body)).to.deep.equal([DROPPED_BYTES]);
    await until('no sender is left', () => node.stats().senders === 0);
  });

  it('ready is aborted while the window is full, and the sender goes on', async () => {
    peer.onAttach = () => accept({ routingSessionId: 77n, initialCredit: 1, slotByteBudget: 1 });
    const sender = await node.attachAnchor<number>(handle);
    const abort = new AbortController();
    const filling = (async () => {
      for (let i = 0; ; i += 1) while (!sender.trySend(i)) await sender.ready({ signal: abort.signal });
    })();
    await until('records wait for credit', () => node.stats().withheldRecords > 0);
    const aborted = failure('ERR_ABORTED', filling);
    setImmediate(() => abort.abort(reason));
    expect((await aborted).cause).to.equal(reason);
    await failure('ERR_ABORTED', sender.ready({ signal: AbortSignal.abort(reason) }));
    const again = sender.ready();
    await peer.batch(0, (batch) => batch.creditUpdate(0, 100));
    await again;
    await sender.send(1);
    await sender.close();
  });
});
