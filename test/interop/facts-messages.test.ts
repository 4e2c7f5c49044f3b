// What a real velo node does with messages, tried byte by byte by a test peer: the hello, handler lists, anchors' control messages, and
// answers on sockets where nobody would send them.

import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { expect } from 'chai';
import { PeerInfo, StreamAnchorHandle } from '../../lib/index.js';
import { encodeTcpEndpoints, encodeWorkerAddress } from '../../lib/wire/address.js';
import { decodeRequestHeader, encodeAckHeader, encodeResponseHeader } from '../../lib/wire/envelope.js';
import { FINALIZED_BYTES } from '../../lib/wire/frame.js';
import { StreamCancelHandle } from '../../lib/wire/handle.js';
import { encodeHandlerList } from '../../lib/wire/hello.js';
import { encodeJson } from '../../lib/wire/json.js';
import { ADDRESS_KEY_TCP } from '../../lib/wire/names.js';
import {
  encodeFrame,
  FRAME_ACK,
  FRAME_MESSAGE,
  FRAME_RESPONSE,
  FrameReader,
  MAX_FRAME_BODY,
} from '../../lib/wire/transport-frame.js';
import { failure, pause } from '../support/nodes.js';
import { dataRecord, WirePeer } from '../support/wire-peer.js';
import { interop } from './kit.js';
import { OperationError } from './line-process.js';
import { bytesOf, fingerprint } from './payload.js';
import type { RustPeer } from './rust-peer.js';

const utf8 = new TextEncoder();
const NO_BYTES = new Uint8Array(0);

describe('interop facts: messages', () => {
  const kit = interop();
  let rust: RustPeer;
  let peer: WirePeer;

  beforeEach(async () => {
    rust = await kit.rust();
    peer = (await WirePeer.listen()).faces({ peerInfo: rust.info });
  });

  afterEach(() => peer.close());

  for (const [what, spell] of [
    ['upper case', (id: string) => id.toUpperCase()],
    ['without hyphens', (id: string) => id.replaceAll('-', '')],
    ['in braces', (id: string) => `{${id}}`],
  ] as const) {
    it(`a hello may spell its instance id ${what}, and carry fields that are not known`, async () => {
      const { instance_id, worker_address } = peer.info.toJSON();
      const info = { more: 1, instance_id: spell(instance_id), worker_address, label: 'x' };
      const answer = await peer.call('_hello', utf8.encode(JSON.stringify({ peer_info: info, version: 3 })));
      expect(answer).to.include({ via: 'response', ok: true });
    });
  }

  it('a hello whose address has no transport that it speaks is not answered', async () => {
    const lonely = new PeerInfo(peer.info.instanceId, encodeWorkerAddress([['pigeon', Uint8Array.of(1)]]));
    let answered = false;
    void peer.call('_hello', utf8.encode(JSON.stringify({ peer_info: lonely }))).then(() => {
      answered = true;
    });
    await pause(300);
    expect(answered).to.equal(false);
    expect((await peer.hello()).ok).to.equal(true);
  });

  it('the list of handlers takes no payload or null, and no object', async () => {
    await peer.hello();
    for (const payload of [NO_BYTES, utf8.encode('null')]) {
      const { handlers } = JSON.parse((await peer.call('_list_handlers', payload)).text);
      expect(handlers).to.include.members(['_hello', '_list_handlers', 'echo', '_stream_batch', '_stream_batch.15']);
    }
    const refused = await peer.call('_list_handlers', utf8.encode('{}'));
    expect(refused).to.include({ via: 'response', ok: false });
    expect(refused.text).to.match(/^Failed to deserialize input/);
  });

  it('the handlers of this version', async () => {
    const { handlers } = JSON.parse((await peer.hello()).text) as { handlers: string[] };
    const lanes = Array.from({ length: 15 }, (_, i) => `_stream_batch.${i + 1}`);
    expect(handlers.filter((name) => name.startsWith('_')).sort()).to.deep.equal(
      [
        '_hello',
        '_list_handlers',
        '_anchor_abort_attach',
        '_anchor_attach',
        '_anchor_cancel',
        '_anchor_detach',
        '_anchor_finalize',
        '_anchor_renew',
        '_event_subscribe',
        '_event_trigger',
        '_event_trigger_request',
        '_mpsc_anchor_attach',
        '_mpsc_anchor_cancel',
        '_mpsc_anchor_detach',
        '_rv_acquire',
        '_rv_detach',
        '_rv_lease_renew',
        '_rv_metadata',
        '_rv_pull',
        '_rv_ref',
        '_rv_release',
        '_stream_batch',
        '_stream_cancel',
        '_stream_stop',
        ...lanes,
      ].sort(),
    );
  });

  it('a request that fills a frame is served inline; an answer as long comes back when its header is no longer', async () => {
    await peer.hello();
    const envelope = 22 + 'echo'.length;
    const payload = bytesOf(MAX_FRAME_BODY - envelope, 1);
    const answer = await peer.call('echo', payload);
    expect(answer).to.include({ via: 'response', ok: true });
    expect(fingerprint(answer.payload)).to.deep.equal(fingerprint(payload));
  });

  it('a call to itself fails as to any stranger, and works once it is registered with itself', async () => {
    const call = () => rust.op<{ length: number }>('unary', { instance: rust.instanceId, handler: 'echo', length: 4 });
    const error = await call().catch((failed: unknown) => failed);
    expect((error as Error).message).to.include('not registered');
    await rust.register(rust.info);
    expect((await call()).length).to.equal(4);
  });

  it('anchor ids count from 1', async () => {
    const ids = [await rust.anchor(), await rust.anchor(), await rust.anchor()].map(({ handle }) => handle.local);
    expect(ids).to.deep.equal([1n, 2n, 3n]);
  });

  it('detach, finalize and cancel answer null, also for an anchor that does not exist', async () => {
    await peer.hello();
    const { handle } = await rust.anchor();
    const unknown = StreamAnchorHandle.pack(handle.worker, 999n, 'spsc');
    for (const name of ['_anchor_detach', '_anchor_finalize', '_anchor_cancel']) {
      for (const target of [handle, handle, unknown]) {
        const text = `{"handle":{"hi":${target.worker},"lo":${target.local}},"unknown":true}`;
        expect(await peer.call(name, utf8.encode(text)), name).to.include({ via: 'response', ok: true, text: 'null' });
      }
    }
  });

  it('an attach that its sender takes back leaves the anchor free and its reader untold', async () => {
    await peer.hello();
    const anchor = await rust.anchor();
    const { handle } = anchor;
    const abort = async (sender: bigint) => {
      const body = { handle, stream_cancel_handle: new StreamCancelHandle(peer.workerId, sender) };
      const answer = await peer.call('_anchor_abort_attach', encodeJson(body));
      expect(answer).to.include({ via: 'response', ok: true, text: 'null' });
    };
    expect((await peer.attach(handle, { sessionId: 9n })).ok).to.equal(true);
    await abort(10n);
    expect((await peer.attach(handle, { sessionId: 11n })).ok, 'another sender took nothing back').to.equal(false);
    await abort(9n);
    await peer.open(handle, 0);
    await peer.batch(0, (batch) => dataRecord(batch, 0, 1, FINALIZED_BYTES));
    expect(await rust.consume(anchor)).to.deep.equal({ items: [], marks: [], end: 'finalized' });
  });

  it('_anchor_finalize ends the stream for its reader', async () => {
    await peer.hello();
    const anchor = await rust.anchor();
    const { worker, local } = anchor.handle;
    await peer.call('_anchor_finalize', utf8.encode(`{"handle":{"hi":${worker},"lo":${local}}}`));
    expect(await rust.consume(anchor)).to.deep.equal({ items: [], marks: [], end: 'finalized' });
  });

  it('an attach that offers nothing is given the per-stream transport; one that offers strange keys is refused', async () => {
    await peer.hello();
    const first = await rust.anchor();
    const legacy = await peer.attach(first.handle, { supportedTransportKeys: [] });
    expect(legacy).to.deep.include({ ok: true });
    if (legacy.ok)
      expect(legacy.value).to.include({ streamingTransportKey: 'tcp-stream', initialCredit: 0, slotByteBudget: 0 });
    const second = await rust.anchor();
    const strange = await peer.attach(second.handle, { supportedTransportKeys: ['messenger-mux-v1', 'pigeon'] });
    expect(strange).to.deep.equal({
      ok: false,
      reason: 'transport error: no common streaming transport: peer does not support tcp-stream',
    });
  });

  it('the terms of an attach: a session of its own, from 1, the heartbeat of the anchor, its window', async () => {
    await peer.hello();
    const answers = [];
    for (const heartbeat of [undefined, 1_234])
      answers.push(await peer.attach((await rust.anchor('bytes', heartbeat)).handle, { sessionId: 50n }));
    const terms = { streamingTransportKey: 'messenger-mux-v2', initialCredit: 32, slotByteBudget: 1_048_576, lane: 0 };
    expect(answers).to.deep.equal([
      { ok: true, value: { ...terms, routingSessionId: 1n, heartbeatIntervalMs: 5_000 } },
      { ok: true, value: { ...terms, routingSessionId: 2n, heartbeatIntervalMs: 1_234 } },
    ]);
  });

  it('an attach with the other kind of handle is refused by name', async () => {
    await peer.hello();
    const { handle } = await rust.anchor();
    const mpsc = StreamAnchorHandle.pack(handle.worker, handle.local, 'mpsc');
    const answer = await peer.attach(mpsc);
    expect(answer).to.deep.equal({ ok: false, reason: `anchor ${mpsc} is mpsc; use _mpsc_anchor_attach` });
  });

  it('nodes without a common transport refuse each other', async () => {
    const { node, rust: plain } = await kit.pair({}, { mux: false });
    const theirs = await plain.anchor();
    const refused = await failure('ERR_ATTACH_REFUSED', node.attachAnchor(theirs.handle));
    expect(refused.message).to.include('no common streaming transport');
    let text = '';
    await plain.op('attach', { handle: node.createAnchor().handle }).catch((error: Error) => {
      text = error.message;
    });
    expect(text).to.include('this node serves messenger-mux-v2, the sender offers tcp-stream');
  });

  // A node whose listener answers on the very socket a request came on.
  async function backwardNode(answer: (frame: Asked) => Uint8Array) {
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on('error', () => {});
      const reader = new FrameReader((type, buffer, at, length, payloadAt, payloadLength) => {
        if (type !== FRAME_MESSAGE) return;
        const { id, handler } = decodeRequestHeader(buffer, at, length);
        socket.write(answer({ id, handler, payload: buffer.slice(payloadAt, payloadAt + payloadLength) }));
      });
      socket.on('data', (chunk) => reader.push(chunk));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const endpoint = { name: '', host: '127.0.0.1', port, prefixLength: 32, numaNode: null };
    const address = encodeWorkerAddress([[ADDRESS_KEY_TCP, encodeTcpEndpoints([endpoint])]]);
    const info = new PeerInfo(peer.info.instanceId, address);
    await rust.register(info);
    const close = () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    };
    return { info, close };
  }

  interface Asked {
    readonly id: ReturnType<typeof decodeRequestHeader>['id'];
    readonly handler: string;
    readonly payload: Uint8Array;
  }

  const listed = encodeHandlerList(['there']);

  it('it takes an answer from the socket that it dialed', async () => {
    const { info, close } = await backwardNode(({ id, handler, payload }) =>
      encodeFrame(FRAME_RESPONSE, encodeResponseHeader(id, true), handler === '_hello' ? listed : payload),
    );
    const answer = await rust.op<{ length: number }>('unary', {
      instance: info.instanceId,
      handler: 'there',
      length: 5,
    });
    expect(answer.length).to.equal(5);
    close();
  });

  it('an ack completes a unary call with an empty result, a nack fails it', async () => {
    let ok = true;
    const { info, close } = await backwardNode(({ id, handler }) =>
      handler === '_hello'
        ? encodeFrame(FRAME_RESPONSE, encodeResponseHeader(id, true), listed)
        : encodeFrame(FRAME_ACK, encodeAckHeader(id, ok), ok ? NO_BYTES : utf8.encode('nö')),
    );
    const call = () =>
      rust.op<{ length: number }>('unary', {
        instance: info.instanceId,
        handler: 'there',
        length: 5,
        timeoutMs: 5_000,
      });
    expect((await call()).length).to.equal(0);
    ok = false;
    const error = await call().catch((failed: unknown) => failed);
    expect(error).to.be.instanceOf(OperationError);
    expect((error as Error).message).to.equal('nö');
    close();
  });

  it('an answer from another connection counts, one with another generation does not', async () => {
    const calls: Asked[] = [];
    const { info, close } = await backwardNode((asked) => {
      calls.push(asked);
      if (asked.handler === '_hello') return encodeFrame(FRAME_RESPONSE, encodeResponseHeader(asked.id, true), listed);
      const stale = { ...asked.id, generation: asked.id.generation + 1 };
      return encodeFrame(FRAME_RESPONSE, encodeResponseHeader(stale, true), bytesOf(9, 1));
    });
    const calling = rust.op<{ length: number }>('unary', { instance: info.instanceId, handler: 'there', length: 5 });
    while (calls.length < 2) await pause(5);
    await pause(100);
    await peer.write(encodeFrame(FRAME_RESPONSE, encodeResponseHeader(calls[1]!.id, true), bytesOf(3, 1)));
    expect((await calling).length).to.equal(3);
    close();
  });
});
