// Streams between a velomux node and a real velo node that get in each other's way, or stand still: large items beside small ones, windows
// that are spent, readers that are absent for longer than a watchdog waits. Nobody is given up for it, and nobody else is slowed.

import { expect } from 'chai';
import { failure, pause, until } from '../support/nodes.js';
import { bothIdle, bytes, consume, expected, interop, type MixedPair, rustReaches } from './kit.js';
import { bytesOf, itemsOf, mixedSizes } from './payload.js';
import type { Consumed } from './rust-peer.js';

const MIB = 1024 * 1024;
const INTERVAL_MS = 100;
/** Many times what a watchdog waits for. */
const ABSENT_MS = 12 * INTERVAL_MS;
const FIRINGS = 'velo_streaming_heartbeat_watchdog_firings_total';
const NOTHING: readonly number[] = [];

function complete(sizes: readonly number[], seed: number): Consumed {
  return { items: expected(sizes, seed), marks: [], end: 'finalized' };
}

/** Nobody was given up, on either side. */
async function nobodyWasDropped({ node, rust }: MixedPair): Promise<void> {
  expect(node.stats().watchdogFirings).to.equal(0);
  await rustReaches(rust, FIRINGS, 0);
}

describe('interop: large items beside other streams', () => {
  const kit = interop();
  /** Around the largest record of a batch, around what travels inline, and far above both. */
  const LARGE = [61_410, 61_411, 61_412, 262_000, 262_144, 262_145, 300_000, MIB, 3 * MIB + 1, 5 * MIB];
  const SMALL = mixedSizes(1_500, 5).map((size) => size % 2_000);
  const STREAMS = 8;

  async function fromRust({ node, rust }: MixedPair, sizes: readonly number[], seed: number): Promise<void> {
    const anchor = node.createAnchor(bytes);
    const consumed = consume(anchor);
    const sender = await rust.attach(anchor.handle);
    await rust.produce(sender, { sizes, seed });
    await rust.end(sender, 'finalize');
    expect(await consumed).to.deep.equal(complete(sizes, seed));
  }

  async function toRust({ node, rust }: MixedPair, sizes: readonly number[], seed: number): Promise<void> {
    const anchor = await rust.anchor();
    const consumed = rust.consume(anchor);
    const sender = await node.attachAnchor(anchor.handle, bytes);
    for (const item of itemsOf(sizes, seed)) await sender.send(item);
    await sender.finalize();
    expect(await consumed).to.deep.equal(complete(sizes, seed));
  }

  for (const lanes of [1, 3]) {
    it(`two streams of them and ${STREAMS} of small items each way, ${lanes} lanes`, async () => {
      const pair = await kit.pair({ lanes }, { lanes });
      const mixed = LARGE.flatMap((size, i) => [i, size, 30]);
      const streams: Promise<void>[] = [];
      for (const [way, at] of [
        [fromRust, 10_000],
        [toRust, 20_000],
      ] as const) {
        streams.push(way(pair, LARGE, at), way(pair, mixed, at + 1_000));
        for (let i = 0; i < STREAMS; i += 1) streams.push(way(pair, SMALL, at + 2_000 * (i + 1)));
      }
      await Promise.all(streams);
      await bothIdle(pair);
      await nobodyWasDropped(pair);
      await until('nothing stays staged', () => pair.node.stats().rendezvousSlots === 0);
    });
  }
});

describe('interop: windows that are spent', () => {
  const kit = interop();
  const SIZES = mixedSizes(60, 6);

  for (const credit of [1, 2, 32]) {
    it(`a reader of ours that is absent keeps its Rust sender, window ${credit}; other streams flow`, async () => {
      const pair = await kit.pair({ mux: { initialCredit: credit }, heartbeatIntervalMs: INTERVAL_MS });
      const { node, rust } = pair;
      const anchor = node.createAnchor(bytes);
      const sender = await rust.attach(anchor.handle);
      const producing = rust.produce(sender, { sizes: SIZES, seed: 1 }).then(() => rust.end(sender, 'finalize'));
      await pause(ABSENT_MS);
      const beside = node.createAnchor(bytes);
      const reading = consume(beside);
      const other = await rust.attach(beside.handle);
      await rust.produce(other, { sizes: SIZES, seed: 2 });
      await rust.end(other, 'finalize');
      expect(await reading).to.deep.equal(complete(SIZES, 2));
      expect(await consume(anchor, { max: 1 })).to.deep.equal({ ...complete(SIZES.slice(0, 1), 1), end: null });
      await pause(ABSENT_MS);
      expect(await consume(anchor)).to.deep.equal(complete(SIZES.slice(1), 2));
      await producing;
      await bothIdle(pair);
      await nobodyWasDropped(pair);
    });

    it(`a Rust reader that is absent keeps a sender of ours, window ${credit}; other streams flow`, async () => {
      const pair = await kit.pair({}, { initialCredit: credit });
      const { node, rust } = pair;
      const anchor = await rust.anchor('bytes', INTERVAL_MS);
      const sender = await node.attachAnchor(anchor.handle, bytes);
      const producing = (async () => {
        for (const item of itemsOf(SIZES, 3)) await sender.send(item);
        await sender.finalize();
      })();
      await pause(ABSENT_MS);
      const beside = await rust.anchor('bytes', INTERVAL_MS);
      const reading = rust.consume(beside);
      const other = await node.attachAnchor(beside.handle, bytes);
      for (const item of itemsOf(SIZES, 4)) await other.send(item);
      await other.finalize();
      expect(await reading).to.deep.equal(complete(SIZES, 4));
      expect(await rust.consume(anchor, { max: 1 })).to.deep.equal({ ...complete(SIZES.slice(0, 1), 3), end: null });
      await pause(ABSENT_MS);
      expect(await rust.consume(anchor)).to.deep.equal(complete(SIZES.slice(1), 4));
      await producing;
      await bothIdle(pair);
      await nobodyWasDropped(pair);
    });
  }

  it('a cancel reaches a sender without credit, which waits or only is there, both ways', async () => {
    const pair = await kit.pair({ mux: { initialCredit: 2 } }, { initialCredit: 2 });
    const { node, rust } = pair;
    const ours = node.createAnchor(bytes);
    const theirs = await rust.attach(ours.handle);
    // The window and everything that may wait behind it.
    const producing = rust.produce(theirs, { sizes: new Array<number>(10_000).fill(1_000), seed: 1 }).then(
      () => 'all sent',
      (error: Error) => error.message,
    );
    await pause(ABSENT_MS);
    ours.cancel();
    await rust.cancelled(theirs);
    expect(await producing).to.match(/^item \d+: channel closed$/);
    await rust.end(theirs, 'drop');

    const back = await rust.anchor();
    const sender = await node.attachAnchor(back.handle, bytes);
    const sending = (async () => {
      for (;;) await sender.send(bytesOf(1_000, 1));
    })();
    const failed = failure('ERR_CHANNEL_CLOSED', sending);
    const idle = await rust.anchor();
    const waiting = await node.attachAnchor(idle.handle, bytes);
    for (let i = 0; i < 4; i += 1) await waiting.send(bytesOf(10, i));
    await until('both windows are spent', () => node.stats().recordsSent.data >= 4);
    await rust.cancelAnchor(back);
    await rust.cancelAnchor(idle);
    await failed;
    await until('the one that only is there heard', () => waiting.cancelled);
    await Promise.all([sender.close(), waiting.close()]);
    await bothIdle(pair);
  });

  it('a stop reaches a sender without credit, and it ends in order, both ways', async () => {
    const pair = await kit.pair({ mux: { initialCredit: 1 } }, { initialCredit: 1 });
    const { node, rust } = pair;
    const sizes = [10, 20, 30];
    const ours = node.createAnchor(bytes);
    const theirs = await rust.attach(ours.handle);
    await rust.produce(theirs, { sizes, seed: 5 });
    ours.controller.requestStop();
    await rust.stopped(theirs);
    const ended = rust.end(theirs, 'finalize');
    expect(await consume(ours)).to.deep.equal(complete(sizes, 5));
    await ended;
    const back = await rust.anchor();
    const sender = await node.attachAnchor(back.handle, bytes);
    for (const item of itemsOf(sizes, 6)) await sender.send(item);
    await rust.stopAnchor(back);
    await until('our sender heard', () => sender.stopped);
    expect(sender.cancelled).to.equal(false);
    await sender.finalize();
    expect(await rust.consume(back)).to.deep.equal(complete(sizes, 6));
    await bothIdle(pair);
  });

  it('a consumer that cancels senders which were silent for long is heard, both ways', async () => {
    const pair = await kit.pair({ heartbeatIntervalMs: INTERVAL_MS });
    const { node, rust } = pair;
    const ours = node.createAnchor(bytes);
    const theirs = await rust.attach(ours.handle);
    const back = await rust.anchor('bytes', INTERVAL_MS);
    const sender = await node.attachAnchor(back.handle, bytes);
    const reading = [consume(ours), rust.consume(back)] as const;
    await pause(ABSENT_MS);
    ours.cancel();
    await rust.cancelled(theirs);
    await rust.cancelAnchor(back);
    await until('our sender heard', () => sender.cancelled);
    await rust.end(theirs, 'drop');
    await sender.close();
    expect((await reading[0]).items).to.deep.equal(NOTHING);
    expect((await reading[1]).items).to.deep.equal(NOTHING);
    await bothIdle(pair);
    await nobodyWasDropped(pair);
  });
});
