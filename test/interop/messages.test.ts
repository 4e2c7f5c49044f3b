// Active messages between a velomux node and a real velo node: the checks of the messenger specification §10.3 that concern
// messages, in its order.

import { expect } from 'chai';
import { amHandler, typedUnary, unaryHandler } from '../../lib/index.js';
import { decodeAckHeader, decodeRequestHeader, decodeResponseHeader, RESPONSE_ACK } from '../../lib/wire/envelope.js';
import { FRAME_ACK, FRAME_RESPONSE } from '../../lib/wire/transport-frame.js';
import { failure, pause, until } from '../support/nodes.js';
import { WirePeer } from '../support/wire-peer.js';
import { interop, OURS, RUST } from './kit.js';
import { OperationError } from './line-process.js';
import { bytesOf, checksum, fingerprint } from './payload.js';

/** Long enough for an answer that should not come to have come. */
const SILENCE_MS = 300;
/** The longest payload that is never staged. */
const STAGING_THRESHOLD = 262_144;

async function rustFailure(action: Promise<unknown>): Promise<string> {
  try {
    await action;
  } catch (error) {
    if (error instanceof OperationError) return error.message;
    throw error;
  }
  throw new Error('nothing failed over there');
}

describe('interop: messages', () => {
  const kit = interop();

  it('a caller that Rust does not know gets no answer; after a hello the same call is answered', async () => {
    const rust = await kit.rust();
    const stranger = (await WirePeer.listen()).faces({ peerInfo: rust.info });
    let answered = false;
    void stranger.call('describe').then(() => {
      answered = true;
    });
    await pause(SILENCE_MS);
    expect(answered).to.equal(false);
    const hello = await stranger.hello();
    expect(JSON.parse(hello.text).handlers).to.include.members(['_hello', '_list_handlers', '_anchor_attach', 'echo']);
    const answer = await stranger.call('describe', bytesOf(5, 1));
    expect(answer.via).to.equal('response');
    expect(JSON.parse(answer.text)).to.include({ length: 5, sum: checksum(bytesOf(5, 1)) });
    expect(answered, 'the first call').to.equal(false);
    await stranger.close();
  });

  it('payloads of 0 bytes to 16 MiB reach Rust, up to the staging threshold inline', async () => {
    const { node, rust } = await kit.pair();
    for (const length of [0, 5, 65_536, STAGING_THRESHOLD, 300_000, 16 * 1024 * 1024 - 100]) {
      const payload = bytesOf(length, length);
      const described = JSON.parse(new TextDecoder().decode(await node.unary(rust.info, 'describe', payload)));
      expect([described.length, described.sum]).to.deep.equal(fingerprint(payload));
      if (length <= STAGING_THRESHOLD) expect(described.headers).to.equal(null);
    }
  });

  it('what Rust answers comes back equal, up to the staging threshold', async () => {
    const { node, rust } = await kit.pair();
    for (const length of [0, 5, 65_536, STAGING_THRESHOLD]) {
      const answer = await node.unary(rust.info, 'echo', bytesOf(length, length));
      expect(fingerprint(answer)).to.deep.equal(fingerprint(bytesOf(length, length)));
    }
  });

  it('payloads up to the staging threshold come from Rust inline', async () => {
    const { node, rust } = await kit.pair();
    node.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    for (const length of [0, 5, 65_536, STAGING_THRESHOLD]) {
      const { length: back, sum } = await rust.unary(node, 'echo', { length, seed: length });
      expect([back, sum]).to.deep.equal(fingerprint(bytesOf(length, length)));
    }
  });

  it('Rust does not send a request for a handler we do not list: two hellos, then it fails there', async () => {
    const { node, rust, proxy } = await kit.recordedPair();
    expect(await rustFailure(rust.unary(node, 'absent'))).to.include("Handler 'absent' not found");
    expect(proxy.requestsOf(RUST)).to.deep.equal(['_hello', '_hello']);
  });

  it('a handler that Rust does not have is answered by an ack that carries an error', async () => {
    const rust = await kit.rust();
    const peer = (await WirePeer.listen()).faces({ peerInfo: rust.info });
    await peer.hello();
    expect(await peer.call('absent')).to.deep.include({ via: 'ack', ok: false, text: "Handler 'absent' not found" });
    expect(await peer.call('absent', undefined, RESPONSE_ACK)).to.deep.include({ via: 'ack', ok: false });
    await peer.close();
  });

  it('calls that our side knows Rust cannot serve fail here', async () => {
    const { node, rust } = await kit.pair();
    await failure('ERR_UNKNOWN_HANDLER', node.unary(rust.info, 'absent'));
  });

  it('headers reach the handler, and the response carries the same map', async () => {
    const { node, rust, proxy } = await kit.recordedPair();
    const headers = { k: 'v', 'λ-key': 'ünïcode', empty: '' };
    const described = JSON.parse(
      new TextDecoder().decode(await node.unary(rust.instanceId, 'describe', undefined, { headers })),
    );
    expect(described.headers).to.deep.equal(headers);
    const response = proxy.sentBy(RUST).findLast(({ type }) => type === FRAME_RESPONSE)!;
    const echoed = decodeResponseHeader(response.header, 0, response.header.length).headers!;
    expect(Object.fromEntries(echoed)).to.deep.equal(headers);
  });

  it('headers from Rust reach our handler', async () => {
    const { node, rust } = await kit.pair();
    let seen: unknown;
    node.registerHandler(
      'look',
      unaryHandler((_payload, context) => {
        seen = Object.fromEntries(context.headers);
      }),
    );
    const headers = { k: 'v', other: 'x'.repeat(1_024) };
    expect(await rust.unary(node, 'look', { headers })).to.include({ length: 0 });
    expect(seen).to.deep.equal(headers);
  });

  it('500 ordered messages from us on one socket are handled in order', async () => {
    const { node, rust } = await kit.pair();
    const count = 500;
    await Promise.all(Array.from({ length: count }, (_, i) => node.send(rust.info, 'ordered', bytesOf(16, i))));
    const sums: number[] = [];
    while (sums.length < count) sums.push(...(await rust.seen()).ordered.map(({ sum }) => sum));
    expect(sums).to.deep.equal(Array.from({ length: count }, (_, i) => checksum(bytesOf(16, i))));
  });

  it('500 ordered messages from Rust are handled in order', async () => {
    const { node, rust } = await kit.pair();
    const count = 500;
    const sums: number[] = [];
    node.registerHandler(
      'ordered',
      amHandler(
        async (payload) => {
          sums.push(checksum(payload));
          await pause(0);
        },
        { ordered: true },
      ),
    );
    // Sends that have to wait for the hello overtake each other over there.
    await rust.handlersOf(node);
    await rust.send(node, 'ordered', { length: 16, seed: 0, count });
    await until('all were handled', () => sums.length === count);
    expect(sums).to.deep.equal(Array.from({ length: count }, (_, i) => checksum(bytesOf(16, i))));
  });

  it('typed calls speak JSON both ways, also beyond 2^53', async () => {
    const { node, rust } = await kit.pair();
    node.registerHandler(
      'typed',
      typedUnary((input) => input),
    );
    const big = 2n ** 63n;
    expect(await node.typedUnary(rust.info, 'typed', { a: big, b: 3, text: 'ü' })).to.deep.equal({
      sum: big + 3n,
      text: 'ü',
    });
    const value = { n: 2n ** 64n - 1n, list: [1, -1.5, null, 'λ'], deep: { ok: true } };
    expect(await rust.typed(node, 'typed', value)).to.deep.equal(value);
    const text = (await failure('ERR_HANDLER_FAILED', node.typedUnary(rust.info, 'typed', 'not an object'))).message;
    expect(text).to.include('Failed to deserialize input');
  });

  it('what a handler fails with reaches the caller, on either side', async () => {
    const { node, rust } = await kit.pair();
    node.registerHandler(
      'fail',
      unaryHandler(() => {
        throw new Error('failed as asked');
      }),
    );
    for (const call of [node.unary(rust.info, 'fail'), node.sync(rust.info, 'fail'), node.sync(rust.info, 'fail_am')]) {
      expect((await failure('ERR_HANDLER_FAILED', call)).message).to.include('failed as asked');
    }
    expect(await rustFailure(rust.unary(node, 'fail'))).to.include('failed as asked');
    expect(await rustFailure(rust.sync(node, 'fail'))).to.include('failed as asked');
  });

  it('a Rust handler that panics fails its caller, spawned or ordered', async () => {
    const { node, rust } = await kit.pair();
    expect((await failure('ERR_HANDLER_FAILED', node.unary(rust.info, 'panic'))).message).to.include('panicked');
    expect((await failure('ERR_HANDLER_FAILED', node.unary(rust.info, 'panic_ordered'))).message).to.include(
      'panicked',
    );
    expect(await node.unary(rust.info, 'echo', bytesOf(3, 0))).to.deep.equal(bytesOf(3, 0));
  });

  it('acknowledged calls and empty results', async () => {
    const { node, rust, proxy } = await kit.recordedPair();
    node.registerHandler(
      'nothing',
      unaryHandler(() => undefined),
    );
    await node.sync(rust.instanceId, 'count', bytesOf(9, 9));
    expect((await rust.seen()).counted).to.have.length(1);
    const ack = proxy.sentBy(RUST).findLast(({ type }) => type === FRAME_ACK)!;
    expect(decodeAckHeader(ack.header, 0, ack.header.length)).to.deep.include({ ok: true });
    expect(ack.payload).to.have.length(0);
    expect(await node.unary(rust.instanceId, 'nothing')).to.have.length(0);
    await rust.sync(node, 'nothing');
    expect(await rust.unary(node, 'nothing')).to.include({ length: 0 });
  });

  it('a unary call to a Rust handler without a result is told so', async () => {
    const { node, rust } = await kit.pair();
    const { message } = await failure('ERR_HANDLER_FAILED', node.unary(rust.info, 'count'));
    expect(message).to.include("Unary message incorrectly routed to AM handler 'count'");
  });

  it('calls overlap in both directions, each with its own answer', async () => {
    const { node, rust } = await kit.pair();
    node.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    const calls = Array.from({ length: 200 }, (_, i) => i);
    await Promise.all([
      ...calls.map(async (i) =>
        expect(await node.unary(rust.info, 'echo', bytesOf(i * 31, i))).to.deep.equal(bytesOf(i * 31, i)),
      ),
      ...calls.map(async (i) => {
        const { length, sum } = await rust.unary(node, 'echo', { length: i * 31, seed: i });
        expect([length, sum]).to.deep.equal(fingerprint(bytesOf(i * 31, i)));
      }),
    ]);
  });

  it('a connection that is cut under a call leaves Rust waiting for its own timeout; its next call dials again', async () => {
    const { node, rust, proxy } = await kit.recordedPair();
    let started = () => {};
    const inHandler = new Promise<void>((resolve) => {
      started = resolve;
    });
    node.registerHandler(
      'hang',
      unaryHandler(() => {
        started();
        return new Promise<undefined>(() => {});
      }),
    );
    node.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    const hanging = rustFailure(rust.unary(node, 'hang', { timeoutMs: 700 }));
    await inHandler;
    const before = proxy.connections;
    proxy.hangUp();
    expect(await hanging).to.include('no response within 700ms');
    const { length, sum } = await rust.unary(node, 'echo', { length: 10, seed: 4 });
    expect([length, sum]).to.deep.equal(fingerprint(bytesOf(10, 4)));
    expect(proxy.connections).to.be.greaterThan(before);
    expect(proxy.requestsOf(OURS).filter((name) => name === '_hello').length).to.be.at.most(1);
  });

  it('every envelope that Rust sends decodes, and names its handler', async () => {
    const { node, rust, proxy } = await kit.recordedPair();
    node.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    await rust.unary(node, 'echo', { length: 3, seed: 3 });
    expect(proxy.requestsOf(RUST)).to.deep.equal(['_hello', 'echo']);
    for (const { header } of proxy.sentBy(RUST).filter(({ type }) => type === 0)) {
      const { id, mapLength } = decodeRequestHeader(header, 0, header.length);
      expect([id.workerHi, id.workerLo]).to.deep.equal([
        Number(rust.info.workerId >> 32n),
        Number(rust.info.workerId & 0xffffffffn),
      ]);
      expect(mapLength).to.equal(0);
    }
  });
});
