// Every way a stream between a velomux node and a real velo node can end, on both sides: what was sent before is read, and there is
// exactly one end. Processes that die or stand still without a word: `liveness.test.ts`.

import { expect } from 'chai';
import { failure, pause, until } from '../support/nodes.js';
import { bothIdle, bytes, consume, expected, interop, rustReaches } from './kit.js';
import { OperationError } from './line-process.js';
import { itemsOf } from './payload.js';
import { VelomuxChild } from './velomux-child.js';

const SIZES = [0, 1, 20, 300, 4_000, 7];

describe('interop: endings', () => {
  const kit = interop();

  it('Rust detaches and attaches again, from another sender: one stream to us', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    const anchor = node.createAnchor(bytes);
    const consumed = consume(anchor);
    for (const [turn, how] of [
      [0, 'detach'],
      [1, 'detach'],
      [2, 'finalize'],
    ] as const) {
      let sender: number | undefined;
      // The anchor is free again once our reader has met the end of the attachment before.
      while (sender === undefined)
        sender = await rust.attach(anchor.handle).catch((error: unknown) => {
          if (error instanceof OperationError && /already attached/.test(error.message)) return undefined;
          throw error;
        });
      await rust.produce(sender, { sizes: SIZES, seed: 1, from: turn * SIZES.length });
      await rust.end(sender, how);
    }
    const n = SIZES.length;
    expect(await consumed).to.deep.equal({
      items: expected([...SIZES, ...SIZES, ...SIZES], 1),
      marks: [
        [n, 'detached'],
        [2 * n, 'detached'],
      ],
      end: 'finalized',
    });
    await bothIdle(pair);
  });

  it('we detach and attach again: one stream to Rust', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    const anchor = await rust.anchor();
    const consumed = rust.consume(anchor);
    const attach = async () => {
      for (;;) {
        try {
          return await node.attachAnchor(anchor.handle, bytes);
        } catch (error) {
          if (!/already attached/.test(String(error))) throw error;
        }
      }
    };
    for (const [turn, how] of [
      [0, 'detach'],
      [1, 'detach'],
      [2, 'finalize'],
    ] as const) {
      const sender = await attach();
      for (const item of itemsOf(SIZES, 2, turn * SIZES.length)) await sender.send(item);
      await sender[how]();
    }
    const n = SIZES.length;
    expect(await consumed).to.deep.equal({
      items: expected([...SIZES, ...SIZES, ...SIZES], 2),
      marks: [
        [n, 'detached'],
        [2 * n, 'detached'],
      ],
      end: 'finalized',
    });
    await bothIdle(pair);
  });

  it('a second sender is refused while the first is attached, on either side', async () => {
    const { node, rust } = await kit.pair();
    const ours = node.createAnchor(bytes);
    await rust.attach(ours.handle);
    let refusal = '';
    await rust.attach(ours.handle).catch((error: Error) => {
      refusal = error.message;
    });
    expect(refusal).to.include('already attached');
    const theirs = await rust.anchor();
    await node.attachAnchor(theirs.handle, bytes);
    const { message } = await failure('ERR_ATTACH_REFUSED', node.attachAnchor(theirs.handle, bytes));
    expect(message).to.include('already attached');
  });

  it('an anchor that does not exist is refused, on either side', async () => {
    const { node, rust } = await kit.pair();
    const ours = node.createAnchor(bytes);
    ours.cancel();
    let refusal = '';
    await rust.attach(ours.handle).catch((error: Error) => {
      refusal = error.message;
    });
    expect(refusal).to.include('not found');
    const theirs = await rust.anchor();
    await rust.dropAnchor(theirs);
    const { message } = await failure('ERR_ATTACH_REFUSED', node.attachAnchor(theirs.handle, bytes));
    expect(message).to.include('not found');
  });

  it('a sender that is dropped ends the stream as dropped, behind what it sent', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    const ours = node.createAnchor(bytes);
    const theirs = await rust.attach(ours.handle);
    await rust.produce(theirs, { sizes: SIZES, seed: 3 });
    await rust.end(theirs, 'drop');
    expect(await consume(ours)).to.deep.equal({
      items: expected(SIZES, 3),
      marks: [],
      end: 'ERR_SENDER_DROPPED',
    });
    const back = await rust.anchor();
    const sender = await node.attachAnchor(back.handle, bytes);
    for (const item of itemsOf(SIZES, 4)) await sender.send(item);
    await sender.close();
    expect(await rust.consume(back)).to.deep.equal({
      items: expected(SIZES, 4),
      marks: [],
      end: 'sender dropped without explicit detach/finalize',
    });
    await bothIdle(pair);
  });

  it('soft errors stand between the items where they were sent', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    const ours = node.createAnchor(bytes);
    const theirs = await rust.attach(ours.handle);
    await rust.produce(theirs, { sizes: [1, 2], seed: 5 });
    await rust.softError(theirs, 'söft');
    await rust.produce(theirs, { sizes: [3], seed: 5, from: 2 });
    await rust.end(theirs, 'finalize');
    const wanted = { items: expected([1, 2, 3], 5), marks: [[2, 'söft']], end: 'finalized' };
    expect(await consume(ours)).to.deep.equal(wanted);
    const back = await rust.anchor();
    const sender = await node.attachAnchor(back.handle, bytes);
    const [first, second, third] = itemsOf([1, 2, 3], 5);
    await sender.send(first!);
    await sender.send(second!);
    await sender.sendErr('söft');
    await sender.send(third!);
    await sender.finalize();
    expect(await rust.consume(back)).to.deep.equal(wanted);
    await bothIdle(pair);
  });

  it('our consumer cancels: the Rust producer hears of it and its sends fail', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    const anchor = node.createAnchor(bytes);
    const sender = await rust.attach(anchor.handle);
    const producing = rust.produce(sender, { sizes: new Array<number>(100_000).fill(10), seed: 6 }).then(
      () => 'all sent',
      (error: Error) => error.message,
    );
    const { items, end } = await consume(anchor, { max: 50 });
    expect({ items, end }).to.deep.equal({ items: expected(new Array<number>(50).fill(10), 6), end: null });
    anchor.cancel();
    await rust.cancelled(sender);
    expect(await producing).to.match(/^item \d+: channel closed$/);
    expect(await rust.end(sender, 'drop')).to.equal('discarded');
    await bothIdle(pair);
  });

  for (const how of ['cancelAnchor', 'dropAnchor'] as const) {
    it(`the Rust consumer ends the stream (${how}): our producer hears of it and its sends fail`, async () => {
      const pair = await kit.pair();
      const { node, rust } = pair;
      const anchor = await rust.anchor();
      const sender = await node.attachAnchor(anchor.handle, bytes);
      const cancelled = new Promise((resolve) => sender.cancelSignal.addEventListener('abort', resolve));
      const producing = (async () => {
        for (const item of itemsOf(new Array<number>(100_000).fill(10), 7)) await sender.send(item);
      })();
      const failed = failure('ERR_CHANNEL_CLOSED', producing);
      const { items } = await rust.consume(anchor, { max: 50 });
      expect(items).to.deep.equal(expected(new Array<number>(50).fill(10), 7));
      await rust[how](anchor);
      await cancelled;
      await failed;
      await sender.close();
      await bothIdle(pair);
    });
  }

  it('a consumer that cancels a producer which sends nothing is heard, both ways', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    const ours = node.createAnchor(bytes);
    const theirs = await rust.attach(ours.handle);
    ours.cancel();
    await rust.cancelled(theirs);
    await rust.end(theirs, 'drop');
    const back = await rust.anchor();
    const sender = await node.attachAnchor(back.handle, bytes);
    await rust.cancelAnchor(back);
    await until('our sender heard of it', () => sender.cancelled);
    await sender.close();
    await bothIdle(pair);
  });

  it('a stop is heard and the stream goes on to its end, both ways', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    const ours = node.createAnchor(bytes);
    const theirs = await rust.attach(ours.handle);
    ours.controller.requestStop();
    await rust.stopped(theirs);
    await rust.produce(theirs, { sizes: SIZES, seed: 8 });
    await rust.end(theirs, 'finalize');
    expect(await consume(ours)).to.deep.equal({ items: expected(SIZES, 8), marks: [], end: 'finalized' });
    const back = await rust.anchor();
    const sender = await node.attachAnchor(back.handle, bytes);
    await rust.stopAnchor(back);
    await until('our sender heard of it', () => sender.stopped);
    expect(sender.cancelled).to.equal(false);
    for (const item of itemsOf(SIZES, 9)) await sender.send(item);
    await sender.finalize();
    expect(await rust.consume(back)).to.deep.equal({ items: expected(SIZES, 9), marks: [], end: 'finalized' });
    await bothIdle(pair);
  });

  it('our node closes: its reader is cancelled over there, its sender dropped', async () => {
    const { node, rust } = await kit.pair();
    const ours = node.createAnchor(bytes);
    const theirs = await rust.attach(ours.handle);
    const back = await rust.anchor();
    const sender = await node.attachAnchor(back.handle, bytes);
    for (const item of itemsOf(SIZES, 10)) await sender.send(item);
    const consumed = rust.consume(back);
    await node.close();
    await rust.cancelled(theirs);
    expect(await consumed).to.deep.equal({
      items: expected(SIZES, 10),
      marks: [],
      end: 'sender dropped without explicit detach/finalize',
    });
    expect((await consume(ours)).end).to.equal('ERR_SENDER_DROPPED');
  });

  it('the Rust node shuts down gracefully: its sender is dropped here', async () => {
    const { node, rust } = await kit.pair();
    const ours = node.createAnchor(bytes);
    const theirs = await rust.attach(ours.handle);
    await rust.produce(theirs, { sizes: SIZES, seed: 11 });
    const { items } = await consume(ours, { max: SIZES.length });
    expect(items).to.deep.equal(expected(SIZES, 11));
    await rust.shutdown(1_000);
    expect(await rust.end(theirs, 'finalize').catch((error: Error) => error.message)).to.be.a('string');
  });

  it('kill -9 of our process: the Rust reader ends as dropped after its watchdog', async () => {
    const rust = await kit.rust();
    const child = await VelomuxChild.start(rust.info);
    try {
      await rust.register(child.info);
      const anchor = await rust.anchor('bytes', 200);
      await child.produce(anchor.handle, SIZES, 12);
      const { items } = await rust.consume(anchor, { max: SIZES.length });
      expect(items).to.deep.equal(expected(SIZES, 12));
      await child.kill();
      expect(await rust.consume(anchor)).to.deep.equal({
        items: [],
        marks: [],
        end: 'sender dropped without explicit detach/finalize',
      });
      // Counted behind the end that the reader sees.
      await rustReaches(rust, 'velo_streaming_heartbeat_watchdog_firings_total', 1);
      await rustReaches(rust, 'velo_streaming_mux_live_slots', 0);
    } finally {
      await child.kill();
    }
  });

  it('kill -9 of our process under a call: the Rust caller waits for its timeout, and a new process is called', async () => {
    const rust = await kit.rust();
    const first = await VelomuxChild.start(rust.info);
    const second = await VelomuxChild.start(rust.info);
    try {
      await rust.register(first.info);
      const call = (info: typeof first.info, handler: string, timeoutMs: number) =>
        rust.op('unary', { instance: info.instanceId, handler, length: 4, seed: 4, timeoutMs }).then(
          () => 'answered',
          (error: Error) => error.message,
        );
      expect(await call(first.info, 'echo', 10_000)).to.equal('answered');
      const hanging = call(first.info, 'hang', 1_000);
      await first.hanging();
      await first.kill();
      expect(await hanging).to.equal('no response within 1s');
      expect(await call(first.info, 'echo', 3_000)).to.not.equal('answered');
      await rust.register(second.info);
      expect(await call(second.info, 'echo', 10_000)).to.equal('answered');
    } finally {
      await first.kill();
      await second.kill();
    }
  });

  it('kill -9 of the Rust process: our sender fills its window and waits until it is closed here', async () => {
    const credit = 4;
    const { node, rust } = await kit.pair({}, { initialCredit: credit });
    const anchor = await rust.anchor();
    const sender = await node.attachAnchor(anchor.handle, bytes);
    await rust.kill();
    await until('the connection is gone', () => node.stats().connectionsClosed > 0);
    const sending = (async () => {
      for (;;) await sender.send(new Uint8Array(10));
    })();
    const failed = failure('ERR_CHANNEL_CLOSED', sending);
    await until('the window is full', () => node.stats().recordsSent.data === credit);
    await failure('ERR_CONNECT_FAILED', node.attachAnchor(anchor.handle, bytes));
    await pause(500);
    expect(sender.cancelled).to.equal(false);
    expect(node.stats().recordsSent.data).to.equal(credit);
    await sender.close();
    await failed;
  });
});
