// Bytes that no node sends, at the listener of a real velo node and at ours while both talk: the connection is closed without a
// byte, everything else goes on.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { encodeFrame, FRAME_MESSAGE } from '../../lib/wire/transport-frame.js';
import { until } from '../support/nodes.js';
import { oversizedPreamble } from '../support/wire-peer.js';
import { bothIdle, bytes, consume, expected, interop, type MixedPair, tcpPort } from './kit.js';
import { bytesOf, fingerprint, itemsOf } from './payload.js';

async function dial(port: number): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port });
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

/** Everything the socket receives until the other end closes it. */
async function untilClosed(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  await once(socket, 'close');
  return Buffer.concat(chunks);
}

function withByte(frame: Uint8Array, at: number, value: number): Uint8Array {
  const spoilt = frame.slice();
  spoilt[at] = value;
  return spoilt;
}

const GOOD = encodeFrame(FRAME_MESSAGE, bytesOf(40, 1), bytesOf(40, 2));

const HOSTILE: readonly (readonly [string, Uint8Array])[] = [
  ['random bytes', bytesOf(4_096, 7)],
  ['a frame of version 2', withByte(GOOD, 1, 2)],
  ['a frame of type 9', withByte(GOOD, 2, 9)],
  ['a preamble above 16 MiB', oversizedPreamble()],
  ['text', new TextEncoder().encode('GET / HTTP/1.1\r\n\r\n')],
];

describe('interop: hostile bytes', () => {
  const kit = interop();
  let pair: MixedPair;

  beforeEach(async () => {
    pair = await kit.pair();
  });

  async function streamsBothWays(): Promise<void> {
    const { node, rust } = pair;
    const sizes = [0, 1, 100];
    const anchor = node.createAnchor(bytes);
    const sender = await rust.attach(anchor.handle);
    await rust.produce(sender, { sizes, seed: 5 });
    await rust.end(sender, 'finalize');
    expect(await consume(anchor)).to.deep.equal({ items: expected(sizes, 5), marks: [], end: 'finalized' });
    const theirs = await rust.anchor();
    const ours = await node.attachAnchor(theirs.handle, bytes);
    for (const item of itemsOf(sizes, 6)) await ours.send(item);
    await ours.finalize();
    expect(await rust.consume(theirs)).to.deep.equal({ items: expected(sizes, 6), marks: [], end: 'finalized' });
  }

  for (const [what, hostile] of HOSTILE) {
    it(`${what}: the Rust listener closes without a byte and goes on`, async () => {
      const { rust } = pair;
      const socket = await dial(tcpPort(rust.info));
      socket.write(hostile);
      expect(await untilClosed(socket)).to.have.length(0);
      expect(await rust.metric('velo_transport_rejections_total', { reason: 'decode_error' })).to.equal(1);
      await streamsBothWays();
      await bothIdle(pair);
    });

    it(`${what}: our listener closes without a byte and goes on`, async () => {
      const { node } = pair;
      const socket = await dial(tcpPort(node.peerInfo));
      socket.write(hostile);
      expect(await untilClosed(socket)).to.have.length(0);
      await until('it was counted', () => node.stats().decodeErrors === 1);
      await streamsBothWays();
      await bothIdle(pair);
    });
  }

  it('a frame that ends in the middle closes the connection at the Rust listener', async () => {
    const socket = await dial(tcpPort(pair.rust.info));
    socket.end(GOOD.subarray(0, 30));
    expect(await untilClosed(socket)).to.have.length(0);
    await streamsBothWays();
  });

  it('a well-framed header that does not decode is dropped; the connection stays open', async () => {
    const { node, rust } = pair;
    for (const port of [tcpPort(rust.info), tcpPort(node.peerInfo)]) {
      const socket = await dial(port);
      let closed = false;
      socket.on('close', () => {
        closed = true;
      });
      socket.write(GOOD);
      await streamsBothWays();
      expect(closed).to.equal(false);
      socket.destroy();
    }
    expect(await rust.metric('velo_messenger_dispatch_failures_total', { stage: 'decode' })).to.equal(1);
  });

  it('connections that come and go without a byte are no errors on either side', async () => {
    const { node, rust } = pair;
    for (let i = 0; i < 20; i++) {
      for (const port of [tcpPort(rust.info), tcpPort(node.peerInfo)]) (await dial(port)).end();
    }
    await streamsBothWays();
    expect(await rust.metric('velo_transport_rejections_total')).to.equal(0);
    expect(node.stats().decodeErrors).to.equal(0);
    const answer = await node.unary(rust.info, 'echo', bytesOf(50, 1));
    expect(fingerprint(answer)).to.deep.equal(fingerprint(bytesOf(50, 1)));
  });
});
