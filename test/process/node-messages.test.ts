// Messages between nodes: order, answers, errors, waits that end; played against a foreign node where an answer must be missing.

import { expect } from 'chai';
import { amHandler, PeerInfo, typedUnary, unaryHandler, type Velo } from '../../lib/index.js';
import { encodeLanePorts, encodeWorkerAddress } from '../../lib/wire/address.js';
import { RESPONSE_UNARY } from '../../lib/wire/envelope.js';
import { ADDRESS_KEY_LANES } from '../../lib/wire/names.js';
import { failure, provesAlive, range, streamSuite, until, within } from '../support/nodes.js';
import { WirePeer } from '../support/wire-peer.js';

const text = (value: string) => new TextEncoder().encode(value);

streamSuite('messages between nodes', (host, nodes) => {
  it('AA-03 messages keep the order they were sent in, though nobody awaits one', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const got: number[] = [];
    consumer.registerHandler(
      'ordered',
      amHandler((payload) => got.push(payload.length), { ordered: true }),
    );
    await producer.send(consumer.instanceId, 'ordered', new Uint8Array(0));
    const sends = range(1, 500).map((i) => producer.send(consumer.instanceId, 'ordered', new Uint8Array(i)));
    await Promise.all(sends);
    await until('all came', () => got.length === 500);
    expect(got).to.deep.equal(range(0, 500));
  });

  it('messages and answers larger than a ring keep their bytes', async () => {
    const { consumer, producer } = await nodes.shared(host);
    consumer.registerHandler(
      'mirror',
      unaryHandler(async (payload) => payload.slice().reverse()),
    );
    for (const size of [0, 1, 70_000, 3_000_000]) {
      const bytes = new Uint8Array(size).map((_, i) => i % 251);
      const answer = await producer.unary(consumer.peerInfo, 'mirror', bytes);
      expect(Buffer.compare(answer, bytes.reverse())).to.equal(0);
    }
  });

  it('a handler that throws, or answers what does not fit, fails its caller and nobody else', async () => {
    const { consumer, producer } = await nodes.shared(host);
    consumer.registerHandler(
      'throws',
      unaryHandler(() => {
        throw new Error('boom');
      }),
    );
    consumer.registerHandler(
      'huge',
      unaryHandler(() => new Uint8Array(16 * 1024 * 1024)),
    );
    consumer.registerHandler(
      'add',
      typedUnary((value) => (value as bigint) + 1n),
    );
    expect((await failure('ERR_HANDLER_FAILED', producer.unary(consumer.peerInfo, 'throws'))).message).to.include(
      'boom',
    );
    await failure('ERR_HANDLER_FAILED', producer.sync(consumer.peerInfo, 'throws'));
    await failure('ERR_HANDLER_FAILED', producer.unary(consumer.peerInfo, 'huge'));
    expect(await producer.typedUnary(consumer.peerInfo, 'add', 2n ** 60n)).to.equal(2n ** 60n + 1n);
    await producer.send(consumer.peerInfo, 'throws');
    await provesAlive({ consumer, producer });
  });

  it('a worker id, an instance id and a peer info name the same peer', async () => {
    const { consumer, producer } = await nodes.shared(host);
    consumer.registerHandler(
      'who',
      unaryHandler((_, { senderWorkerId }) => text(`${senderWorkerId}`)),
    );
    for (const target of [consumer.peerInfo, consumer.instanceId, consumer.workerId]) {
      const answer = await producer.unary(target, 'who');
      expect(new TextDecoder().decode(answer)).to.equal(`${producer.workerId}`);
    }
  });
});

streamSuite('messages to a foreign node', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  const reason = new Error('enough');
  beforeEach(async () => {
    peer = await WirePeer.listen();
    node = await nodes.make({ host });
    node.registerPeer(peer.info);
    peer.faces(node);
  });
  afterEach(() => peer.close());

  it('a call is aborted before it starts, and during the hello', async () => {
    peer.handlers = ['slow'];
    const target = peer.info.instanceId;
    await failure('ERR_ABORTED', node.unary(target, 'slow', undefined, { signal: AbortSignal.abort(reason) }));
    expect(peer.requests, 'nothing was sent').to.deep.equal([]);
    peer.answers = false;
    const first = new AbortController();
    const early = failure('ERR_ABORTED', node.unary(target, 'slow', undefined, { signal: first.signal }));
    await until('the hello came', () => peer.requests.length === 1);
    first.abort(reason);
    expect((await early).cause).to.equal(reason);
  });

  it('a call is aborted while its handler runs', async () => {
    peer.handlers = ['slow'];
    const abort = new AbortController();
    const { signal } = abort;
    const calls = [
      failure('ERR_ABORTED', node.unary(peer.info.instanceId, 'slow', undefined, { signal })),
      failure('ERR_ABORTED', node.sync(peer.info.instanceId, 'slow', undefined, { signal })),
      failure('ERR_ABORTED', node.typedUnary(peer.info.instanceId, 'slow', 1, { signal })),
    ];
    await until('they came', () => peer.requests.filter(({ handler }) => handler === 'slow').length === 3);
    abort.abort(reason);
    for (const call of calls) expect((await call).cause).to.equal(reason);
    expect(node.stats().pendingCalls).to.equal(0);
  });

  it('a call times out, also during the hello', async () => {
    peer.handlers = ['slow'];
    const target = peer.info.instanceId;
    await failure('ERR_TIMEOUT', node.unary(target, 'slow', undefined, { timeoutMs: 30 }));
    const deaf = await WirePeer.listen();
    deaf.answers = false;
    node.registerPeer(deaf.info);
    await failure('ERR_TIMEOUT', node.unary(deaf.info.instanceId, 'slow', undefined, { timeoutMs: 30 }));
    await deaf.close();
  });

  for (const payload of [text('small'), new Uint8Array(100_000)]) {
    it(`a handler may give the memory of its payload away, ${payload.length} bytes of it`, async () => {
      node.registerHandler(
        'give',
        unaryHandler((given) => {
          new Uint8Array(given.buffer).fill(0xff);
          return Uint8Array.of(structuredClone(given, { transfer: [given.buffer as ArrayBuffer] })[0]!);
        }),
      );
      await peer.hello();
      const answer = await within(5_000, peer.call('give', payload, RESPONSE_UNARY, { trace: 'kept' }));
      expect(answer).to.deep.include({ ok: true, payload: Uint8Array.of(0xff), headers: new Map([['trace', 'kept']]) });
    });
  }

  it('a peer that is registered anew during its hello is one peer still', async () => {
    peer.handlers = ['slow'];
    let release = () => {};
    peer.beforeHello = new Promise((resolve) => {
      release = resolve;
    });
    const first = failure('ERR_TIMEOUT', node.unary(peer.info.instanceId, 'slow', undefined, { timeoutMs: 300 }));
    await until('the hello came', () => peer.requests.length === 1);
    const entries = [...peer.info.entries(), [ADDRESS_KEY_LANES, encodeLanePorts([peer.port])] as const];
    node.registerPeer(new PeerInfo(peer.info.instanceId, encodeWorkerAddress(entries)));
    release();
    await first;
    await failure('ERR_TIMEOUT', node.unary(peer.info.instanceId, 'slow', undefined, { timeoutMs: 30 }));
    expect(peer.requests.filter(({ handler }) => handler === 'slow')).to.have.length(2);
    expect(node.stats().peers).to.equal(1);
  });

  it('a peer that comes back at another address is greeted and called there', async () => {
    peer.handlers = ['slow'];
    await failure('ERR_TIMEOUT', node.unary(peer.info.instanceId, 'slow', undefined, { timeoutMs: 30 }));
    await peer.close();
    await until('the connection is gone', () => node.stats().connectionsClosed > 0);
    const elsewhere = await WirePeer.listen();
    elsewhere.handlers = ['slow'];
    elsewhere.faces(node);
    node.registerPeer(new PeerInfo(peer.info.instanceId, elsewhere.info.address));
    await failure('ERR_TIMEOUT', node.unary(peer.info.instanceId, 'slow', undefined, { timeoutMs: 500 }));
    expect(elsewhere.requests.map(({ handler }) => handler)).to.deep.equal(['_hello', 'slow']);
    await elsewhere.close();
  });

  it('a peer that comes back on the same port is dialed again', async () => {
    peer.handlers = ['slow'];
    await failure('ERR_TIMEOUT', node.unary(peer.info.instanceId, 'slow', undefined, { timeoutMs: 30 }));
    peer.hangUp();
    await until('the connection is gone', () => node.stats().connectionsClosed > 0);
    await failure('ERR_TIMEOUT', node.unary(peer.info.instanceId, 'slow', undefined, { timeoutMs: 30 }));
    expect(peer.requests.filter(({ handler }) => handler === 'slow')).to.have.length(2);
  });
});
