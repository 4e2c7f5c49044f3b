// Floods: connections that come and go, hellos that nobody decides about, requests to a node that computes.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { unaryHandler } from '../../lib/index.js';
import { RESPONSE_NONE, RESPONSE_UNARY } from '../../lib/wire/envelope.js';
import { encodeHello } from '../../lib/wire/hello.js';
import { nodesOfSuite, provesAlive, streamSuite, until } from '../support/nodes.js';
import { oversizedPreamble, WirePeer } from '../support/wire-peer.js';

const utf8 = (text: string) => new TextEncoder().encode(text);

streamSuite('floods', (host, nodes) => {
  const dial = async (port: number): Promise<Socket> => {
    const socket = connect({ host: '127.0.0.1', port }).on('error', () => {});
    await once(socket, 'connect');
    return socket;
  };

  it('a storm of connections that come, say rubbish or half a frame, and go, leaves nothing', async () => {
    const pair = await nodes.pair(host);
    const node = pair.consumer;
    const peer = await WirePeer.listen();
    await peer.faces(node).hello();
    const port = peer.nodePorts[0]!;
    const said = [
      new Uint8Array(0),
      utf8('GET / HTTP/1.1\r\n\r\n'),
      oversizedPreamble(),
      peer.request('_hello', encodeHello(peer.info), RESPONSE_NONE, 0).subarray(0, 40),
      peer.request('nobody', new Uint8Array(100), RESPONSE_NONE, 0),
    ];
    expect((await peer.call('_list_handlers')).ok, 'both connections stand').to.equal(true);
    const before = node.stats();
    for (let round = 0; round < 10; round += 1) {
      const sockets = await Promise.all(Array.from({ length: 50 }, () => dial(port)));
      sockets.forEach((socket, i) => {
        socket.end(said[i % said.length]!);
      });
      await Promise.all(sockets.map((socket) => once(socket.resume(), 'close')));
    }
    await until(
      'all were seen to come and go',
      () => node.stats().connectionsClosed - before.connectionsClosed === 500,
    );
    const after = node.stats();
    expect(after.connectionsOpened - before.connectionsOpened).to.equal(500);
    expect(after.decodeErrors - before.decodeErrors, 'rubbish, oversize and half frames').to.equal(300);
    expect(after).to.include({ handlerErrors: 0, spoofSuspected: 0 });
    expect((await peer.call('_list_handlers')).ok).to.equal(true);
    await peer.close();
    await provesAlive(pair);
  });

  it('hellos that acceptPeer never answers are bounded, and the node goes on', async () => {
    const node = await nodes.make({ host, acceptPeer: () => new Promise(() => {}) });
    const peer = await WirePeer.listen();
    peer.faces(node);
    const info = encodeHello(peer.info);
    await peer.write(new Uint8Array(0));
    for (let i = 0; i < 1_024; i += 1) void peer.call('_hello', info);
    const { ok, text } = await peer.hello();
    expect([ok, text]).to.deep.equal([false, '1024 hellos already wait for this node']);
    node.registerPeer(peer.info);
    expect((await peer.call('_list_handlers')).ok).to.equal(true);
    await peer.close();
  });
});

describe('a flood of requests while the node computes (piscina lanes)', () => {
  const nodes = nodesOfSuite();
  const SOCKETS = 40;
  const EACH = 4;
  const BYTES = 4_096;

  it('is bounded, refused with a text, and everybody hears something', async () => {
    const node = await nodes.make({ host: 'piscina', messageQueueBytes: 32_768, ringBytes: 8_192 });
    const peer = await WirePeer.listen();
    await peer.faces(node).hello();
    const stranger = await WirePeer.listen();
    await stranger.faces(node).write(new Uint8Array(0));
    let served = 0;
    node.registerHandler(
      'x',
      unaryHandler(() => {
        served += 1;
      }),
    );
    const sockets = await Promise.all(
      Array.from({ length: SOCKETS }, async () => {
        const socket = connect({ host: '127.0.0.1', port: peer.nodePorts[0]! });
        await once(socket, 'connect');
        return socket;
      }),
    );
    const answers = Array.from({ length: SOCKETS * EACH }, (_, slot) => peer.answerTo(1_000 + slot));
    sockets.forEach((socket, i) => {
      const requests = Array.from({ length: EACH }, (_, j) =>
        peer.request('x', new Uint8Array(BYTES), RESPONSE_UNARY, 1_000 + i * EACH + j),
      );
      socket.write(Buffer.concat(requests));
    });
    // This thread computes; the lane reads on.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
    const refused = (await Promise.all(answers)).filter(({ ok }) => !ok);
    expect(refused.length).to.be.greaterThan(0);
    expect(served + refused.length).to.equal(SOCKETS * EACH);
    expect(served * BYTES, 'no more than the queue and the ring hold').to.be.at.most(32_768 + 8_192 + BYTES);
    expect(node.stats().refusedQueueFull).to.equal(refused.length);
    for (const { via, text } of refused)
      expect([via, text]).to.deep.equal(['ack', 'Handler failed: ordered lane queue full']);
    for (const socket of sockets) socket.destroy();
    expect((await stranger.hello()).ok).to.equal(true);
    await peer.close();
    await stranger.close();
  });
});
