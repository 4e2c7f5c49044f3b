// Drains between a velomux node and a real velo node: what a draining node refuses, what it still serves, and what its peer hears.

import { expect } from 'chai';
import { unaryHandler } from '../../lib/index.js';
import { failure, pause, until } from '../support/nodes.js';
import { WirePeer } from '../support/wire-peer.js';
import { bothIdle, bytes, consume, expected, interop, rustReaches } from './kit.js';
import { OperationError } from './line-process.js';
import { bytesOf, itemsOf } from './payload.js';

const SIZES = [1, 20, 300];

describe('interop: the Rust node drains', () => {
  const kit = interop();

  it('our calls and messages are refused on their socket, and our calls fail at once', async () => {
    const { node, rust } = await kit.pair();
    await node.unary(rust.info, 'echo', bytesOf(3, 3));
    await rust.beginDrain();
    await failure('ERR_PEER_SHUTTING_DOWN', node.unary(rust.info, 'echo', bytesOf(3, 3)));
    await failure('ERR_PEER_SHUTTING_DOWN', node.sync(rust.info, 'count'));
    await node.send(rust.info, 'count');
    await rustReaches(rust, 'velo_transport_rejections_total', 3, { reason: 'drain_rejected' });
    expect((await rust.seen()).counted).to.deep.equal([]);
  });

  it('streams that are open go on to their ends, both ways; new ones are refused', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    const anchor = node.createAnchor(bytes);
    const theirs = await rust.attach(anchor.handle);
    const back = await rust.anchor();
    const ours = await node.attachAnchor(back.handle, bytes);
    const late = await rust.anchor();
    await rust.beginDrain();
    await failure('ERR_PEER_SHUTTING_DOWN', node.attachAnchor(late.handle, bytes));
    await rust.produce(theirs, { sizes: SIZES, seed: 1 });
    await rust.end(theirs, 'finalize');
    for (const item of itemsOf(SIZES, 2)) await ours.send(item);
    await ours.finalize();
    expect(await consume(anchor)).to.deep.equal({ items: expected(SIZES, 1), marks: [], end: 'finalized' });
    expect(await rust.consume(back)).to.deep.equal({ items: expected(SIZES, 2), marks: [], end: 'finalized' });
    await rust.dropAnchor(late);
    await bothIdle(pair);
  });

  it('its own calls, attaches and cancels still work', async () => {
    const { node, rust } = await kit.pair();
    node.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    const anchor = node.createAnchor(bytes);
    const back = await rust.anchor();
    const ours = await node.attachAnchor(back.handle, bytes);
    const cancelled = new Promise((resolve) => ours.cancelSignal.addEventListener('abort', resolve));
    await rust.beginDrain();
    expect((await rust.unary(node, 'echo', { length: 5, seed: 5 })).length).to.equal(5);
    const theirs = await rust.attach(anchor.handle);
    anchor.cancel();
    await rust.cancelled(theirs);
    await rust.cancelAnchor(back);
    await cancelled;
  });

  it('a call that is in its handler is answered before the shutdown ends', async () => {
    const { node, rust } = await kit.pair();
    const started = rust.event('slow_started');
    const answer = node.unary(rust.info, 'slow', new TextEncoder().encode('400'));
    await started;
    await rust.shutdown(5_000);
    expect(new TextDecoder().decode(await answer)).to.equal('400');
    await until('its connections are gone', () => node.stats().connectionsClosed === 2);
    await failure('ERR_CONNECT_FAILED', node.unary(rust.info, 'echo'));
  });

  it('a hello, a list of handlers and staged metadata are refused; exempt messages are served', async () => {
    const rust = await kit.rust();
    const peer = (await WirePeer.listen()).faces({ peerInfo: rust.info });
    await peer.hello();
    const { handle } = await rust.anchor();
    await rust.beginDrain();
    for (const name of ['_hello', '_list_handlers', '_rv_metadata', '_rv_ref', '_anchor_attach', '_mpsc_anchor_attach'])
      void peer.call(name);
    await rustReaches(rust, 'velo_transport_rejections_total', 6, { reason: 'drain_rejected' });
    const reference = new TextEncoder().encode(`{"handle":{"hi":${handle.worker},"lo":${handle.local}}}`);
    for (const name of ['_anchor_detach', '_anchor_cancel', '_anchor_finalize'])
      expect(await peer.call(name, reference), name).to.include({ ok: true, text: 'null' });
    for (const name of ['_rv_acquire', '_rv_pull'])
      expect(await peer.call(name), name).to.include({ via: 'response', ok: false });
    expect(await rust.metric('velo_transport_rejections_total', { reason: 'drain_rejected' })).to.equal(6);
    await peer.close();
  });
});

describe('interop: our node drains', () => {
  const kit = interop();

  it('calls from Rust fail with the shutting-down text', async () => {
    const { node, rust } = await kit.pair();
    node.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    await rust.unary(node, 'echo', { length: 1, seed: 1 });
    node.beginDrain();
    const error = await rust.unary(node, 'echo', { length: 1, seed: 1 }).catch((failed: unknown) => failed);
    expect(error).to.be.instanceOf(OperationError);
    expect((error as Error).message).to.include('request rejected: peer is shutting down');
  });

  it('streams that are open go on to their ends, both ways; an attach from Rust is refused', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    const anchor = node.createAnchor(bytes);
    const late = node.createAnchor(bytes);
    const theirs = await rust.attach(anchor.handle);
    const back = await rust.anchor();
    const ours = await node.attachAnchor(back.handle, bytes);
    node.beginDrain();
    const error = await rust.attach(late.handle).catch((failed: unknown) => failed);
    expect((error as Error).message).to.include('peer is shutting down');
    await rust.produce(theirs, { sizes: SIZES, seed: 1 });
    await rust.end(theirs, 'finalize');
    for (const item of itemsOf(SIZES, 2)) await ours.send(item);
    await ours.finalize();
    expect(await consume(anchor)).to.deep.equal({ items: expected(SIZES, 1), marks: [], end: 'finalized' });
    expect(await rust.consume(back)).to.deep.equal({ items: expected(SIZES, 2), marks: [], end: 'finalized' });
    late.cancel();
    await bothIdle(pair);
  });

  it('a call from Rust that is in its handler is answered before the close ends', async () => {
    const { node, rust } = await kit.pair();
    let started = () => {};
    const inHandler = new Promise<void>((resolve) => {
      started = resolve;
    });
    node.registerHandler(
      'slow',
      unaryHandler(async (payload) => {
        started();
        await pause(300);
        return payload;
      }),
    );
    const call = rust.unary(node, 'slow', { length: 6, seed: 6 });
    await inHandler;
    await node.close();
    expect((await call).length).to.equal(6);
  });
});
