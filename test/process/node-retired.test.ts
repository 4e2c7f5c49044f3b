// What `retired()` says of a stream's output: sent once the batch with its end was admitted, discarded at every other end; and that
// nobody is needed to ask for it.

import { expect } from 'chai';
import { StreamAnchorHandle, type StreamSender, type Velo, VeloError } from '../../lib/index.js';
import { CLOSE_PROTOCOL_ERROR, CLOSE_UNKNOWN_SLOT, LIFECYCLE_CANCEL, RECORD_CLOSE_SLOT } from '../../lib/wire/batch.js';
import { streamSignal } from '../../lib/wire/control.js';
import { HANDLER_STREAM_CANCEL } from '../../lib/wire/names.js';
import {
  failure,
  nodesOfSuite,
  openStream,
  pause,
  provesAlive,
  range,
  readAll,
  sendRange,
  streamSuite,
  until,
} from '../support/nodes.js';
import { accept, recordsOf, WirePeer } from '../support/wire-peer.js';
import { kill } from './crashing-lane.js';

const ENDS = ['finalize', 'detach', 'close'] as const;
const SESSION = 77;

/** True when nothing has come of the promise yet. */
async function isPending(promise: Promise<unknown>): Promise<boolean> {
  const nothing = Symbol('nothing');
  return (await Promise.race([promise, pause(50).then(() => nothing)])) === nothing;
}

streamSuite('retirement between nodes', (host, nodes) => {
  for (const end of ENDS) {
    it(`AQ-01 what ended with ${end} was sent, whenever it is asked`, async () => {
      const { anchor, sender } = await openStream<number>(await nodes.shared(host));
      const before = [sender.retired(), sender.retired()];
      await sendRange(sender, 0, 10);
      expect(await isPending(before[0]!)).to.equal(true);
      await sender[end]();
      expect(await Promise.all([...before, sender.retired()])).to.deep.equal(['sent', 'sent', 'sent']);
      expect(await sender.retired()).to.equal('sent');
      // Nothing of it was read yet.
      anchor.cancel();
      expect(await sender.retired()).to.equal('sent');
    });
  }

  it('AQ-04 what the consumer cancels is discarded, also when its sender ends it afterwards', async () => {
    const { anchor, sender } = await openStream<number>(await nodes.shared(host));
    const retired = sender.retired();
    await sender.send(1);
    anchor.cancel();
    expect(await retired).to.equal('discarded');
    await sender.finalize();
    expect(await sender.retired()).to.equal('discarded');
  });

  it('AQ-04 an end that waits for credit behind what was sent goes with it when the consumer cancels', async () => {
    const { consumer, producer } = await nodes.pair(host, { mux: { initialCredit: 2 } });
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    for (const i of range(0, 5)) await sender.send(i);
    await sender.finalize();
    const retired = sender.retired();
    expect(await isPending(retired)).to.equal(true);
    anchor.cancel();
    expect(await retired).to.equal('discarded');
  });

  it('a stream that nobody watches gives its row back all the same', async () => {
    const pair = await nodes.pair(host, {}, { maxStreams: 1 });
    for (const round of range(0, 20)) {
      const anchor = pair.consumer.createAnchor<number>();
      const sender = await attachWhenFree(pair.producer, anchor.handle);
      await sender.send(round);
      await sender.finalize();
      expect(await readAll(anchor)).to.deep.equal({ items: [round], error: undefined });
    }
    await until('no sender is left', () => pair.producer.stats().senders === 0);
  });

  it('AQ-02 a node that closes discards what its senders had not ended, and sends what they had', async () => {
    const { consumer, producer } = await nodes.pair(host);
    const open = await openStream<number>({ consumer, producer });
    const ended = await openStream<number>({ consumer, producer });
    await open.sender.send(1);
    await ended.sender.send(2);
    await ended.sender.finalize();
    const retired = [open.sender.retired(), ended.sender.retired()];
    await producer.close();
    expect(await Promise.all(retired)).to.deep.equal(['discarded', 'sent']);
    await open.sender.close();
    expect(await open.sender.retired()).to.equal('discarded');
    expect((await readAll(open.anchor)).error?.code).to.equal('ERR_SENDER_DROPPED');
    expect(await readAll(ended.anchor)).to.deep.equal({ items: [2], error: undefined });
  });

  it('AQ-02 a node that closes without time discards what it could not send', async () => {
    const { consumer, producer } = await nodes.pair(host, { mux: { initialCredit: 1 } });
    const { anchor, sender } = await openStream<number>({ consumer, producer });
    for (const i of range(0, 10)) await sender.send(i);
    await sender.finalize();
    await until('records wait for credit', () => producer.stats().withheldRecords > 0);
    await producer.close({ timeoutMs: 0 });
    expect(await sender.retired()).to.equal('discarded');
    anchor.cancel();
  });
});

async function attachWhenFree(node: Velo, handle: StreamAnchorHandle): Promise<StreamSender<number>> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await node.attachAnchor<number>(handle);
    } catch (error) {
      if (!VeloError.is(error, 'ERR_LIMIT') || tries > 1_000) throw error;
      await pause(2);
    }
  }
}

streamSuite('retirement against a foreign node', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  let slot: number;
  let sender: StreamSender<unknown>;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    peer.onAttach = () => accept({ routingSessionId: BigInt(SESSION) });
    node = await nodes.make({ host, connectionQueueBytes: 70_000 });
    node.registerPeer(peer.info);
    peer.faces(node);
    sender = await node.attachAnchor(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
    await until('it is open', () => peer.records.length === 1);
    slot = peer.records[0]!.slot;
  });
  afterEach(() => peer.close());

  /** The peer reads nothing more, and a batch waits for admission, with a send behind it. */
  async function park(): Promise<void> {
    // More credit than the test needs: only the connection can make a sender wait.
    await peer.batch(0, (batch) => batch.creditUpdate(slot, 100_000));
    await until('the grant is there', () => node.stats().batchesReceived === 1);
    peer.pauseReading();
    let sent = 0;
    const sending = (async () => {
      for (; ; sent += 1) await sender.send(new Uint8Array(20_000));
    })();
    sending.catch(() => {});
    // Sockets take more for a while, after the first of it had to wait.
    for (let before = -1; before !== sent || node.stats().sendBackpressure === 0; await pause(200)) before = sent;
  }

  it('AQ-01 no message crosses the wire for it: the peer says nothing, and hears of the stream alone', async () => {
    const asked = peer.requests.filter(({ handler }) => !handler.startsWith('_stream_batch')).length;
    const retired = sender.retired();
    await sender.send(1);
    await sender.finalize();
    expect(await retired).to.equal('sent');
    await until('the end came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(peer.requests.filter(({ handler }) => !handler.startsWith('_stream_batch'))).to.have.length(asked);
  });

  it('AQ-01 it waits for the admission of the batch with the end, and for nothing after it', async () => {
    await park();
    await sender.finalize();
    const retired = sender.retired();
    expect(await isPending(retired)).to.equal(true);
    peer.resumeReading();
    expect(await retired).to.equal('sent');
  });

  it('AQ-02 a connection that breaks before the admission discards it', async () => {
    await park();
    await sender.finalize();
    const retired = sender.retired();
    await peer.close();
    expect(await retired).to.equal('discarded');
  });

  it('AQ-02 an epoch that dies with the stream open discards it', async () => {
    await park();
    const retired = sender.retired();
    await peer.close();
    expect(await retired).to.equal('discarded');
    await sender.close();
    expect(await sender.retired()).to.equal('discarded');
  });

  for (const reason of [CLOSE_UNKNOWN_SLOT, CLOSE_PROTOCOL_ERROR]) {
    it(`AQ-04 a slot that the peer closes with reason ${reason} is discarded`, async () => {
      const retired = sender.retired();
      await peer.batch(0, (batch) => batch.closeSlot(slot, 0, reason));
      expect(await retired).to.equal('discarded');
      await sender.close();
    });
  }

  it('AQ-04 a slot that the peer cancels is discarded, though it was asked only afterwards', async () => {
    await peer.batch(0, (batch) => batch.lifecycle(slot, 0, SESSION, LIFECYCLE_CANCEL));
    await until('the cancel arrived', () => sender.cancelled);
    expect(await sender.retired()).to.equal('discarded');
    await sender.close();
    expect(await sender.retired()).to.equal('discarded');
  });

  it('AQ-05 a cancel by message alone discards it, and the dropped that is sent then changes nothing', async () => {
    const { senderStreamId } = peer.attaches[0]!.streamCancelHandle;
    await peer.fire(HANDLER_STREAM_CANCEL, streamSignal.encodeJson({ senderStreamId }));
    expect(await sender.retired()).to.equal('discarded');
    await sender.close();
    await until('the end came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    expect(await sender.retired()).to.equal('discarded');
    await until('it is over', () => node.stats().senders === 0);
  });

  it('AQ-05 a cancel by message, a close and a broken connection after the end change nothing', async () => {
    await sender.send(1);
    await sender.finalize();
    await until('the end came', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
    const { senderStreamId } = peer.attaches[0]!.streamCancelHandle;
    await peer.fire(HANDLER_STREAM_CANCEL, streamSignal.encodeJson({ senderStreamId }));
    await peer.batch(0, (batch) => batch.closeSlot(slot, 0, CLOSE_UNKNOWN_SLOT));
    expect(await sender.retired()).to.equal('sent');
    await peer.close();
    await node.close();
    expect(await sender.retired()).to.equal('sent');
  });

  it('a slot that the peer refuses at once is an attach that succeeded, and then discarded', async () => {
    peer.onBatch = () => void peer.batch(0, (batch) => batch.closeSlot(1 << 8, 0, CLOSE_UNKNOWN_SLOT));
    const refused = await node.attachAnchor(StreamAnchorHandle.pack(peer.workerId, 6n, 'spsc'));
    expect(await refused.retired()).to.equal('discarded');
    await failure('ERR_CHANNEL_CLOSED', refused.send(1));
    await refused.close();
    await sender.close();
  });
});

describe('retirement when a lane dies (piscina lanes)', () => {
  const nodes = nodesOfSuite();

  it('AQ-02 AQ-05 what was sent stays sent, what was open is discarded', async () => {
    const worker = new URL('./crashing-lane.js', import.meta.url);
    const { consumer, producer } = await nodes.pair('piscina', {}, { worker });
    const sent = await openStream<number>({ consumer, producer });
    const unasked = await openStream<number>({ consumer, producer });
    const open = await openStream<number>({ consumer, producer });
    for (const { sender } of [sent, unasked]) await sender.finalize();
    expect(await sent.sender.retired()).to.equal('sent');
    for (const { anchor } of [sent, unasked]) expect((await readAll(anchor)).error).to.equal(undefined);
    const retired = open.sender.retired();
    kill(producer.workerId, 0, 'exit');
    expect(await retired).to.equal('discarded');
    for (const { sender } of [sent, unasked]) expect(await sender.retired()).to.equal('sent');
    await open.sender.close();
    open.anchor.cancel();
  });
});

streamSuite('retirement on one node', (host, nodes) => {
  async function localStream(node: Velo) {
    const anchor = node.createAnchor<number>();
    return { anchor, sender: await node.attachAnchor<number>(anchor.handle) };
  }

  for (const end of ENDS) {
    it(`what ended with ${end} was sent, into a full channel too, and whatever its reader does then`, async () => {
      const { consumer: node } = await nodes.shared(host);
      const { anchor, sender } = await localStream(node);
      const before = sender.retired();
      while (sender.trySend(7));
      expect(await isPending(before)).to.equal(true);
      await sender[end]();
      expect(await Promise.all([before, sender.retired()])).to.deep.equal(['sent', 'sent']);
      anchor.cancel();
      expect(await sender.retired()).to.equal('sent');
    });
  }

  it('what the consumer cancels is discarded, whatever its sender does then', async () => {
    const { consumer: node } = await nodes.shared(host);
    const { anchor, sender } = await localStream(node);
    const before = sender.retired();
    await sender.send(7);
    anchor.cancel();
    expect(await before).to.equal('discarded');
    await sender.finalize();
    expect(await sender.retired()).to.equal('discarded');
    await provesAlive(await nodes.shared(host));
  });

  it('a node that closes discards what was not ended', async () => {
    const node = await nodes.make({ host });
    const { sender } = await localStream(node);
    const retired = sender.retired();
    await node.close();
    expect(await retired).to.equal('discarded');
  });
});
