// A draining node as its peers see it: which requests it still takes, what comes back for the others, on which socket, and that
// none of it waits for the thread that made the node. Against bytes, against another node, against another process.

import { type ChildProcess, fork } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { amHandler, PeerInfo, unaryHandler, type Velo } from '../../lib/index.js';
import { RESPONSE_ACK, RESPONSE_NONE, RESPONSE_UNARY } from '../../lib/wire/envelope.js';
import { DRAIN_EXEMPT_HANDLERS, HANDLER_STREAM_BATCH } from '../../lib/wire/names.js';
import { encodeFrame, FRAME_MESSAGE, PREAMBLE_LEN } from '../../lib/wire/transport-frame.js';
import { failure, nodesOfSuite, openStream, pause, streamSuite, until } from '../support/nodes.js';
import { WirePeer } from '../support/wire-peer.js';
import type { DrainingChildReport } from './draining-child.js';

const CHILD = fileURLToPath(new URL('./draining-child.js', import.meta.url));
const PING = '0001000000001a00000005010296bf11e721de6cc50000000000000000040070696e67000068656c6c6f';
const PING_ECHO = '0001040000001a00000000010296bf11e721de6cc50000000000000000040070696e670000';
const NO_BYTES = new Uint8Array(0);
/** Longer than any test: a call that is not refused would wait for it. */
const PATIENT = { timeoutMs: 60_000 };
const EXEMPT_IN_LANES = [/^_stream_batch/, /^_stream_cancel$/, /^_stream_stop$/];
const REFUSED = [
  '_hello',
  '_list_handlers',
  '_anchor_attach',
  '_mpsc_anchor_attach',
  '_rv_metadata',
  '_rv_ref',
  'mine',
];

function header(frame: Uint8Array): Uint8Array {
  return frame.slice(PREAMBLE_LEN, PREAMBLE_LEN + new DataView(frame.buffer).getUint32(3));
}

streamSuite('the gate of a draining node', (host, nodes) => {
  let node: Velo;
  let peer: WirePeer;
  const ran: string[] = [];
  beforeEach(async () => {
    ran.length = 0;
    node = await nodes.make({ host });
    const serve = (name: string) =>
      node.registerHandler(
        name,
        amHandler(() => ran.push(name)),
      );
    for (const name of ['ping', 'mine']) serve(name);
    peer = (await WirePeer.listen()).faces(node);
    await peer.hello();
  });
  afterEach(() => peer.close());

  it('the echo of a request is its header, byte for byte, on the socket it came in on', async () => {
    node.beginDrain();
    const socket = connect(peer.nodePorts[0]!, '127.0.0.1');
    let bytes = '';
    socket.on('data', (chunk) => {
      bytes += chunk.toString('hex');
    });
    socket.write(Buffer.from(PING, 'hex'));
    await until('the echo came', () => bytes.length >= PING_ECHO.length);
    socket.destroy();
    expect(bytes).to.equal(PING_ECHO);
    expect(peer.echoes).to.deep.equal([]);
    expect(ran).to.deep.equal([]);
  });

  for (const [kind, type] of Object.entries({ fire: RESPONSE_NONE, sync: RESPONSE_ACK, unary: RESPONSE_UNARY })) {
    it(`what is not exempt is echoed and counted: ${kind}`, async () => {
      node.beginDrain();
      node.beginDrain();
      const frames = REFUSED.map((name, slot) => peer.request(name, Uint8Array.of(1, 2, 3), type, slot));
      for (const frame of frames) await peer.write(frame);
      await until('every echo came', () => peer.echoes.length === frames.length);
      expect(peer.echoes).to.deep.equal(frames.map((frame) => ({ header: header(frame), payload: NO_BYTES })));
      await until('they are counted', () => node.stats().drainRejected === frames.length);
      expect(ran).to.deep.equal([]);
    });
  }

  it('a header that does not decode is echoed too: the gate reads a name and nothing else', async () => {
    node.beginDrain();
    const headers = [new Uint8Array(0), Uint8Array.of(9), new Uint8Array(40).fill(0xff)];
    for (const bytes of headers) await peer.write(encodeFrame(FRAME_MESSAGE, bytes, Uint8Array.of(1)));
    await until('every echo came', () => peer.echoes.length === headers.length);
    expect(peer.echoes.map((echo) => echo.header)).to.deep.equal(headers);
    expect(node.stats().droppedBadMessage).to.equal(0);
  });

  for (const name of DRAIN_EXEMPT_HANDLERS) {
    it(`${name} passes`, async () => {
      node.beginDrain();
      const served = EXEMPT_IN_LANES.some((pattern) => pattern.test(name));
      if (served) await peer.fire(name, '{}');
      // The answer of the handler, or that there is none: anything but an echo.
      else expect((await peer.call(name, NO_BYTES)).text).to.be.a('string');
      await peer.fire('mine', '');
      await until('the echo of the one behind it came', () => peer.echoes.length > 0);
      expect(peer.echoes.map((echo) => echo.header)).to.deep.equal([header(peer.request('mine', NO_BYTES, 0))]);
    });
  }

  it('on a socket that the node dialed itself it drops without a word, and counts', async () => {
    const [dialed] = peer.dialedHere;
    expect(dialed, 'the answer to the hello came over it').not.to.equal(undefined);
    dialed!.write(peer.request('mine', NO_BYTES, RESPONSE_NONE));
    await until('before the drain it is served', () => ran.length === 1);
    node.beginDrain();
    dialed!.write(peer.request('mine', NO_BYTES, RESPONSE_NONE));
    dialed!.write(peer.request(HANDLER_STREAM_BATCH, NO_BYTES, RESPONSE_NONE));
    await until('both came', () => node.stats().drainRejected + node.stats().malformedBatches === 2);
    expect(node.stats()).to.include({ drainRejected: 1, malformedBatches: 1 });
    await pause(50);
    expect(peer.echoes).to.deep.equal([]);
    expect(ran).to.deep.equal(['mine']);
  });

  it('a peer that does not read its echoes cannot make them pile up', async () => {
    node.beginDrain();
    const long = peer.request('x'.repeat(60_000), NO_BYTES, RESPONSE_NONE);
    const deaf: Socket = connect(peer.nodePorts[0]!, '127.0.0.1');
    deaf.on('error', () => {});
    deaf.pause();
    for (let i = 0; i < 500; i += 1) deaf.write(long);
    await until('all were refused', () => node.stats().drainRejected === 500);
    expect(node.stats().writeBackDropped).to.be.greaterThan(0).and.lessThan(500);
    await peer.fire('mine', '');
    await until('another peer has its echo', () => peer.echoes.length === 1);
    deaf.destroy();
  });

  it('AY-06 a refused call fails at once with the echo, and so do sync, send and attach as far as somebody waits', async () => {
    const { consumer, producer } = await nodes.pair(host);
    consumer.registerHandler(
      'mine',
      unaryHandler(() => NO_BYTES),
    );
    await producer.unary(consumer.peerInfo, 'mine');
    const anchor = consumer.createAnchor();
    consumer.beginDrain();
    const refusal = await failure(
      'ERR_PEER_SHUTTING_DOWN',
      producer.unary(consumer.peerInfo, 'mine', NO_BYTES, PATIENT),
    );
    expect(refusal.message).to.equal('request rejected: peer is shutting down');
    await failure('ERR_PEER_SHUTTING_DOWN', producer.sync(consumer.peerInfo, 'mine', NO_BYTES, PATIENT));
    await failure('ERR_PEER_SHUTTING_DOWN', producer.attachAnchor(anchor.handle));
    // Nobody waits for the end of a send. Its echo comes back all the same, and is nothing bad.
    await producer.send(consumer.peerInfo, 'mine');
    await until('all four were refused', () => consumer.stats().drainRejected === 4);
    await failure('ERR_PEER_SHUTTING_DOWN', producer.unary(consumer.peerInfo, 'mine', NO_BYTES, PATIENT));
    expect(producer.stats()).to.include({ droppedBadMessage: 0, pendingCalls: 0 });
    // The other way nothing has changed.
    producer.registerHandler(
      'theirs',
      unaryHandler((payload) => payload),
    );
    expect(await consumer.unary(producer.peerInfo, 'theirs', Uint8Array.of(7))).to.deep.equal(Uint8Array.of(7));
  });

  it('a node that says hello to a draining one hears that it is shutting down', async () => {
    const { consumer, producer } = await nodes.pair(host);
    consumer.beginDrain();
    await failure('ERR_PEER_SHUTTING_DOWN', producer.unary(consumer.peerInfo, 'any', NO_BYTES, PATIENT));
    await failure('ERR_PEER_SHUTTING_DOWN', producer.attachAnchor(consumer.createAnchor().handle));
  });

  it('lanes beside the first refuse as well', async () => {
    const wide = await nodes.make({ host, lanes: 3 });
    const other = (await WirePeer.listen()).faces(wide);
    wide.beginDrain();
    for (const port of other.nodePorts) await other.write(other.request('mine', NO_BYTES, RESPONSE_NONE), port);
    await until('every echo came', () => other.echoes.length === 3);
    await other.close();
  });
});

describe('the gate of a node whose thread computes', () => {
  const nodes = nodesOfSuite();
  let child: ChildProcess;
  const reports: DrainingChildReport[] = [];
  const heard = async (kind: DrainingChildReport['kind']) => {
    await until(`the child says ${kind}`, () => reports.some((report) => report.kind === kind));
    return reports.find((report) => report.kind === kind)!;
  };
  beforeEach(() => {
    reports.length = 0;
    child = fork(CHILD, { execArgv: [] });
    child.on('message', (report) => reports.push(report as DrainingChildReport));
  });
  afterEach(() => {
    child.kill('SIGKILL');
  });

  it('AY-06 a refused call fails while the draining node computes', async () => {
    const node = await nodes.make({ host: 'inline' });
    const ready = await heard('ready');
    if (ready.kind !== 'ready') throw new Error(ready.kind);
    const info = PeerInfo.fromJSON(ready.peer);
    expect(await node.unary(info, 'ping', Uint8Array.of(1))).to.deep.equal(Uint8Array.of(1));
    child.send({ kind: 'block' });
    await heard('blocked');
    await failure('ERR_PEER_SHUTTING_DOWN', node.unary(info, 'ping', NO_BYTES, PATIENT));
    await failure('ERR_PEER_SHUTTING_DOWN', node.sync(info, 'ping', NO_BYTES, PATIENT));
    expect(reports.map(({ kind }) => kind)).to.deep.equal(['ready', 'blocked']);
  });
});

streamSuite('streams over a drain', (host, nodes) => {
  for (const draining of ['consumer', 'producer'] as const) {
    it(`AY-01 sixty-four items flow while the ${draining} drains`, async () => {
      const pair = await nodes.pair(host, { mux: { initialCredit: 8 } });
      const { anchor, sender } = await openStream<number>(pair);
      pair[draining].beginDrain();
      const sending = (async () => {
        for (let i = 0; i < 64; i += 1) await sender.send(i);
        await sender.finalize();
      })();
      const got: number[] = [];
      for await (const item of anchor) got.push(item);
      await sending;
      expect(got).to.deep.equal(Array.from({ length: 64 }, (_, i) => i));
      expect(pair[draining].stats().drainRejected).to.equal(0);
    });
  }

  it('a draining producer hears the cancel and the stop of its consumers', async () => {
    const pair = await nodes.pair(host);
    const first = await openStream<number>(pair);
    const second = await openStream<number>(pair);
    pair.producer.beginDrain();
    first.anchor.controller.cancel();
    second.anchor.controller.requestStop();
    await until('both arrived', () => first.sender.cancelled && second.sender.stopped);
    expect(second.sender.cancelled).to.equal(false);
    await second.sender.finalize();
    await first.sender.close();
  });
});
