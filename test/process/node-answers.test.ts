// Who answers what, at the wire: a node with handlers of every kind as a foreign node sees it, and a node that calls as a foreign
// node answers it.

import { expect } from 'chai';
import { amHandler, type PeerInfo, typedUnary, unaryHandler, type Velo } from '../../lib/index.js';
import {
  encodeAckHeader,
  encodeRequestHeader,
  encodeResponseHeader,
  RESPONSE_ACK,
  RESPONSE_NONE,
  RESPONSE_UNARY,
} from '../../lib/wire/envelope.js';
import {
  encodeFrame,
  FRAME_ACK,
  FRAME_EVENT,
  FRAME_RESPONSE,
  FRAME_SHUTTING_DOWN,
  MAX_FRAME_BODY,
} from '../../lib/wire/transport-frame.js';
import { failure, streamSuite, until } from '../support/nodes.js';
import { type SeenRequest, WirePeer } from '../support/wire-peer.js';

const utf8 = (text: string) => new TextEncoder().encode(text);
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const NO_BYTES = new Uint8Array(0);
const MISROUTED = (name: string) => `Unary message incorrectly routed to AM handler '${name}'`;

streamSuite('a node that answers', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  let ran: string[];
  beforeEach(async () => {
    ran = [];
    peer = await WirePeer.listen();
    node = await nodes.make({ host });
    await peer.faces(node).hello();
    const boom = (): never => {
      throw new Error('boom');
    };
    const panic = (): never => {
      throw undefined;
    };
    const noted = (name: string) => () => void ran.push(name);
    node.registerHandler('am', amHandler(noted('am')));
    node.registerHandler('am-throws', amHandler(boom));
    node.registerHandler(
      'unary',
      unaryHandler((payload) => {
        ran.push('unary');
        return payload;
      }),
    );
    node.registerHandler('unary-nothing', unaryHandler(noted('unary-nothing')));
    node.registerHandler('unary-throws', unaryHandler(boom));
    node.registerHandler(
      'typed',
      typedUnary((value) => {
        ran.push('typed');
        return { got: value };
      }),
    );
    node.registerHandler(
      'typed-loop',
      typedUnary(() => {
        const loop: { self?: unknown } = {};
        loop.self = loop;
        return loop;
      }),
    );
    node.registerHandler('ordered-panics', amHandler(panic, { ordered: true }));
    node.registerHandler('panics', unaryHandler(panic));
    node.registerHandler(
      'huge',
      unaryHandler(() => new Uint8Array(MAX_FRAME_BODY)),
    );
  });
  afterEach(() => peer.close());

  const ack = { via: 'ack', ok: true, text: '' };
  const nack = (why: string) => ({ via: 'ack', ok: false, text: why });
  const response = (result: string) => ({ via: 'response', ok: true, text: result });
  const error = (why: string) => ({ via: 'response', ok: false, text: why });

  type Seen = { via: string; ok: boolean; text: string };
  const rows: [handler: string, payload: string, onAck: Seen, onUnary: Seen][] = [
    ['am', '', ack, error(MISROUTED('am'))],
    ['am-throws', '', nack('boom'), error(`${MISROUTED('am-throws')}: boom`)],
    ['unary', 'bytes', ack, response('bytes')],
    ['unary-nothing', '', ack, response('')],
    ['unary-throws', '', nack('boom'), error('boom')],
    ['typed', '[1]', ack, response('{"got":[1]}')],
    ['typed', '', ack, response('{"got":null}')],
    ['nobody', '', nack("Handler 'nobody' not found"), nack("Handler 'nobody' not found")],
    ['panics', '', nack('Handler failed: handler panicked'), nack('Handler failed: handler panicked')],
    ['ordered-panics', '', nack('Handler failed: handler panicked'), nack('Handler failed: handler panicked')],
  ];
  for (const [handler, payload, onAck, onUnary] of rows) {
    it(`'${handler}' with '${payload}' answers an ack request and a unary one as specified, and no other`, async () => {
      for (const [kind, wanted] of [
        [RESPONSE_ACK, onAck],
        [RESPONSE_UNARY, onUnary],
      ] as const) {
        const { via, ok, text: said } = await peer.call(handler, utf8(payload), kind);
        expect({ via, ok, text: said }).to.deep.equal(wanted);
      }
      await peer.fire(handler, payload);
      expect((await peer.call('_list_handlers')).ok).to.equal(true);
      expect(peer.unasked, 'answers to the message that nobody waits for').to.equal(0);
    });
  }

  it('a typed handler whose input or output is no JSON says so', async () => {
    for (const [kind, via] of [
      [RESPONSE_ACK, 'ack'],
      [RESPONSE_UNARY, 'response'],
    ] as const) {
      const input = await peer.call('typed', utf8('{"a":'), kind);
      expect([input.via, input.ok]).to.deep.equal([via, false]);
      expect(input.text).to.match(/^Failed to deserialize input: ./);
    }
    expect(ran).to.deep.equal([]);
    const output = await peer.call('typed-loop', utf8('1'));
    expect([output.via, output.ok]).to.deep.equal(['response', false]);
    expect(output.text).to.match(/^Failed to serialize output: ./);
    const acked = await peer.call('typed-loop', utf8('1'), RESPONSE_ACK);
    expect([acked.via, acked.ok], 'an ack carries no result').to.deep.equal(['ack', true]);
  });

  it('a message that nobody waits for runs a handler of any kind', async () => {
    for (const handler of ['am', 'unary', 'unary-nothing', 'typed']) await peer.fire(handler, '1');
    await until('all ran', () => ran.length === 4);
    expect(ran).to.deep.equal(['am', 'unary', 'unary-nothing', 'typed']);
  });

  it('a lane that is full under reject sheds, and its callers hear', async () => {
    let open: () => void = () => {};
    const held = new Promise<undefined>((resolve) => {
      open = () => resolve(undefined);
    });
    node.registerHandler(
      'full',
      unaryHandler(() => held, { ordered: true, maxQueueDepth: 1, overflow: 'reject' }),
    );
    const first = peer.call('full');
    for (const kind of [RESPONSE_ACK, RESPONSE_UNARY]) {
      const { via, ok, text: said } = await peer.call('full', NO_BYTES, kind);
      expect({ via, ok, text: said }).to.deep.equal(nack('Handler failed: ordered lane queue full'));
    }
    open();
    expect((await first).ok).to.equal(true);
  });

  it('a result that does not fit one frame is an error of its caller', async () => {
    const { via, ok, text: said } = await peer.call('huge');
    expect([via, ok]).to.deep.equal(['response', false]);
    expect(said).to.include(`${MAX_FRAME_BODY} bytes`);
    expect((await peer.call('huge', NO_BYTES, RESPONSE_ACK)).ok, 'an ack carries no result').to.equal(true);
  });

  it('a response echoes the header map of its request, an ack does not', async () => {
    const map = { k: 'v', traceparent: '00-01' };
    for (const handler of ['unary', 'unary-throws', 'am']) {
      const answer = await peer.call(handler, NO_BYTES, RESPONSE_UNARY, map);
      expect([...(answer.headers ?? [])]).to.deep.equal([
        ['k', 'v'],
        ['traceparent', '00-01'],
      ]);
    }
    expect((await peer.call('unary')).headers).to.equal(undefined);
    expect((await peer.call('unary', NO_BYTES, RESPONSE_ACK, map)).headers).to.equal(undefined);
  });

  it('a header map at its limit is taken, a longer one is dropped and its connection stays', async () => {
    const value = 'v'.repeat(1_000);
    const entries = Array.from({ length: 16 }, (_, i): [string, string] => [`k${i}`, value]);
    const full = Object.fromEntries(entries);
    let seen = 0;
    node.registerHandler(
      'headers',
      unaryHandler((_, { headers }) => {
        seen = headers.size;
      }),
    );
    expect((await peer.call('headers', NO_BYTES, RESPONSE_UNARY, full)).ok).to.equal(true);
    expect(seen).to.equal(16);
    const id = { workerHi: 1, workerLo: 2, slot: 0, generation: 0 };
    const header = encodeRequestHeader(RESPONSE_NONE, id, 'headers');
    // The length of the map stands in the last two bytes.
    const long = new Uint8Array(header.length + 16_385);
    long.set(header);
    new DataView(long.buffer).setUint16(header.length - 2, 16_385, true);
    const before = node.stats().droppedBadMessage;
    await peer.write(encodeFrame(0, long, NO_BYTES));
    await until('it is counted', () => node.stats().droppedBadMessage === before + 1);
    expect((await peer.call('unary')).ok).to.equal(true);
  });

  it('a handler knows its sender by instance once it is registered', async () => {
    const seen: (string | undefined)[] = [];
    node.registerHandler(
      'who',
      unaryHandler((_, { senderInstanceId }) => void seen.push(senderInstanceId)),
    );
    await peer.call('who');
    const stranger = await WirePeer.listen();
    await stranger.faces(node).fire('who', '');
    await until('both came', () => seen.length === 2);
    expect(seen).to.deep.equal([peer.info.instanceId, undefined]);
    await stranger.close();
  });
});

streamSuite('a node that calls', (host, nodes) => {
  let peer: WirePeer;
  let node: Velo;
  let target: PeerInfo;
  beforeEach(async () => {
    peer = await WirePeer.listen();
    peer.handlers = ['x'];
    node = await nodes.make({ host });
    node.registerPeer(peer.info);
    peer.faces(node);
    target = peer.info;
    await node.refreshHandlers(target);
  });
  afterEach(() => peer.close());

  const answersWith = (...frames: ((request: SeenRequest) => Uint8Array)[]) => {
    peer.onCall = (request) => (request.handler === 'x' ? frames.map((frame) => frame(request)) : []);
  };
  const response = (ok: boolean, body: string | Uint8Array) => (request: SeenRequest) =>
    encodeFrame(FRAME_RESPONSE, encodeResponseHeader(request.id, ok), typeof body === 'string' ? utf8(body) : body);
  const ack =
    (ok: boolean, body = '', type = FRAME_ACK) =>
    (request: SeenRequest) =>
      encodeFrame(type, encodeAckHeader(request.id, ok), utf8(body));

  it('both frame types end a call of either kind', async () => {
    for (const good of [response(true, '7'), ack(true, '7'), ack(true, '7', FRAME_EVENT)]) {
      answersWith(good);
      await node.sync(target, 'x');
      expect(text(await node.unary(target, 'x'))).to.equal('7');
      expect(await node.typedUnary(target, 'x', 1)).to.equal(7);
    }
    for (const bad of [response(false, 'boom'), ack(false, 'boom'), ack(false, 'boom', FRAME_EVENT)]) {
      answersWith(bad);
      for (const call of [node.sync(target, 'x'), node.unary(target, 'x'), node.typedUnary(target, 'x', 1)])
        expect((await failure('ERR_HANDLER_FAILED', call)).message).to.equal('boom');
    }
    expect(node.stats().pendingCalls).to.equal(0);
  });

  it('an answer without bytes is an empty result, and no value of a typed call', async () => {
    for (const empty of [response(true, ''), ack(true)]) {
      answersWith(empty);
      expect((await node.unary(target, 'x')).length).to.equal(0);
      await node.sync(target, 'x');
      await failure('ERR_BAD_JSON', node.typedUnary(target, 'x', 1));
    }
    answersWith(response(true, '{"a":'));
    await failure('ERR_BAD_JSON', node.typedUnary(target, 'x', 1));
  });

  it('a refusal has the code of its reason', async () => {
    answersWith(ack(false, "Handler 'x' not found"));
    await failure('ERR_UNKNOWN_HANDLER', node.unary(target, 'x'));
    answersWith((request) =>
      encodeFrame(FRAME_SHUTTING_DOWN, encodeRequestHeader(RESPONSE_UNARY, request.id, 'x'), NO_BYTES),
    );
    const refused = await failure('ERR_PEER_SHUTTING_DOWN', node.unary(target, 'x'));
    expect(refused.message).to.equal('request rejected: peer is shutting down');
    answersWith(response(false, Uint8Array.of(0x62, 0xff)));
    expect((await failure('ERR_HANDLER_FAILED', node.unary(target, 'x'))).message).to.equal('unknown error');
  });

  it('an event, an answer to another node, another life of the slot and a second answer end nothing', async () => {
    const foreign = ({ id }: SeenRequest) =>
      encodeFrame(FRAME_RESPONSE, encodeResponseHeader({ ...id, workerLo: id.workerLo ^ 1 }, true), utf8('foreign'));
    const other = ({ id }: SeenRequest) =>
      encodeFrame(FRAME_RESPONSE, encodeResponseHeader({ ...id, generation: id.generation + 1 }, true), utf8('other'));
    const event = ({ id }: SeenRequest) => encodeFrame(FRAME_EVENT, encodeAckHeader(id, true, true), NO_BYTES);
    const before = node.stats().droppedBadMessage;
    answersWith(event, foreign, other, response(true, 'mine'), response(true, 'again'), ack(false, 'again'));
    expect(text(await node.unary(target, 'x'))).to.equal('mine');
    await until('five were dropped', () => node.stats().droppedBadMessage === before + 5);
    expect(node.stats()).to.include({ lateAnswers: 0, pendingCalls: 0 });
  });

  it('a late answer is counted, and the next call gets its own', async () => {
    let late: SeenRequest | undefined;
    peer.onCall = (request) => {
      if (request.handler === 'x') late = request;
      return [];
    };
    await failure('ERR_TIMEOUT', node.unary(target, 'x', undefined, { timeoutMs: 30 }));
    await until('it came', () => late !== undefined);
    await peer.write(response(true, 'late')(late!));
    await until('it is counted', () => node.stats().lateAnswers === 1);
    answersWith(response(true, 'fresh'));
    expect(text(await node.unary(target, 'x'))).to.equal('fresh');
  });

  it('a message that was not written is no late answer', async () => {
    answersWith(response(true, ''));
    await node.unary(target, 'x');
    await peer.close();
    await until('the connection is gone', () => node.stats().connectionsClosed > 0);
    await node.send(target, 'x');
    // What became of it is told before this.
    await failure(['ERR_CONNECT_FAILED', 'ERR_CONNECTION_CLOSED'], node.unary(target, 'x'));
    expect(node.stats()).to.include({ lateAnswers: 0, pendingCalls: 0 });
  });

  it('headers out of bounds fail their call alone, and leave no slot', async () => {
    answersWith(response(true, 'fine'));
    const wide = Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, 'v'.repeat(1_000)]));
    for (const headers of [{ k: 'v'.repeat(1_025) }, wide]) {
      await failure('ERR_INVALID_ARGUMENT', node.unary(target, 'x', undefined, { headers }));
      await failure('ERR_INVALID_ARGUMENT', node.sync(target, 'x', undefined, { headers }));
      await failure('ERR_INVALID_ARGUMENT', node.send(target, 'x', undefined, { headers }));
    }
    expect(node.stats().pendingCalls).to.equal(0);
    const headers = { k: 'v'.repeat(1_024), empty: '' };
    expect(text(await node.unary(target, 'x', undefined, { headers }))).to.equal('fine');
    const { headers: seen } = peer.requests.at(-1)!;
    expect(Object.fromEntries(seen ?? [])).to.deep.equal(headers);
  });

  it('handlers with maxConcurrent run so many at once, however many calls are out', async () => {
    let running = 0;
    let most = 0;
    const order: number[] = [];
    node.registerHandler(
      'few',
      unaryHandler(
        async (payload) => {
          order.push(payload.length);
          running += 1;
          most = Math.max(most, running);
          await new Promise((resolve) => setImmediate(resolve));
          running -= 1;
        },
        { maxConcurrent: 3 },
      ),
    );
    await peer.hello();
    const calls = Array.from({ length: 40 }, (_, i) => peer.call('few', new Uint8Array(i)));
    expect((await Promise.all(calls)).every(({ ok }) => ok)).to.equal(true);
    expect(most).to.equal(3);
    expect(order).to.deep.equal(Array.from({ length: 40 }, (_, i) => i));
  });
});
