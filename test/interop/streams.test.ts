// Streams over the mux between a velomux node and a real velo node, both ways: every item by position and checksum, and exactly one
// end. Lanes, windows, sizes, slow readers.

import { expect } from 'chai';
import type { VeloOptions } from '../../lib/index.js';
import { bothIdle, bytes, consume, expected, interop, type MixedPair } from './kit.js';
import { itemsOf, mixedSizes, type Token, tokenCodec, tokenOf } from './payload.js';
import type { Consumed, RustNodeOptions } from './rust-peer.js';

const SIZES = mixedSizes(300, 1);

interface Reading {
  readonly delayMs?: number;
  readonly delayEvery?: number;
}

/** A whole stream from Rust to us. */
async function fromRust({ node, rust }: MixedPair, sizes: readonly number[], seed: number, reading: Reading = {}) {
  const anchor = node.createAnchor(bytes);
  const consumed = consume(anchor, reading);
  const sender = await rust.attach(anchor.handle);
  await rust.produce(sender, { sizes, seed });
  expect(await rust.end(sender, 'finalize')).to.equal('sent');
  return await consumed;
}

/** A whole stream from us to Rust. */
async function toRust({ node, rust }: MixedPair, sizes: readonly number[], seed: number, reading: Reading = {}) {
  const anchor = await rust.anchor();
  const consumed = rust.consume(anchor, reading);
  const sender = await node.attachAnchor(anchor.handle, bytes);
  for (const item of itemsOf(sizes, seed)) await sender.send(item);
  await sender.finalize();
  return await consumed;
}

function complete(sizes: readonly number[], seed: number): Consumed {
  return { items: expected(sizes, seed), marks: [], end: 'finalized' };
}

/** Nothing was dropped, refused or stalled on either side. */
async function clean({ node, rust }: MixedPair): Promise<void> {
  for (const series of await rust.metrics()) {
    if (/records_dropped|reader_stall|hold_overflow|credit_lost|epoch_deaths|batch_seq_gaps/.test(series.name))
      expect(series.value, series.name).to.equal(0);
  }
  const stats = node.stats();
  for (const name of Object.keys(stats) as (keyof typeof stats)[]) {
    if (/^dropped|readerStalls|holdOverflow|creditLost|epochDeaths|batchSeqGaps|malformedBatches/.test(name))
      expect(stats[name], name).to.equal(0);
  }
}

describe('interop: streams', () => {
  const kit = interop();

  async function bothWays(node: VeloOptions, rust: RustNodeOptions, streams = 12): Promise<void> {
    const pair = await kit.pair(node, rust);
    const seeds = Array.from({ length: streams }, (_, i) => i * 1_000);
    await Promise.all(
      seeds.flatMap((seed) => [
        fromRust(pair, SIZES, seed).then((got) => expect(got).to.deep.equal(complete(SIZES, seed))),
        toRust(pair, SIZES, seed + 500).then((got) => expect(got).to.deep.equal(complete(SIZES, seed + 500))),
      ]),
    );
    await bothIdle(pair);
    await clean(pair);
  }

  for (const ours of [1, 2, 4]) {
    for (const theirs of [1, 4]) {
      it(`12 streams each way, ${ours} lanes here and ${theirs} there`, async () => {
        await bothWays({ lanes: ours }, { lanes: theirs });
      });
    }
  }

  for (const credit of [1, 4, 32, 256]) {
    it(`a window of ${credit} on both sides`, async () => {
      await bothWays({ mux: { initialCredit: credit } }, { initialCredit: credit }, 4);
    });
  }

  it('inline lanes', async () => {
    await bothWays({ host: 'inline' }, {}, 4);
  });

  it('openings that Rust does not wait for', async () => {
    await bothWays({}, { asyncOpenAck: true });
  });

  it('10,000 items of mixed sizes each way, some above one batch', async () => {
    const pair = await kit.pair();
    const sizes = mixedSizes(10_000, 2);
    expect(Math.max(...sizes)).to.be.greaterThan(60_000);
    expect(sizes.filter((size) => size === 0).length).to.be.greaterThan(100);
    expect(await fromRust(pair, sizes, 11)).to.deep.equal(complete(sizes, 11));
    expect(await toRust(pair, sizes, 12)).to.deep.equal(complete(sizes, 12));
    await bothIdle(pair);
    await clean(pair);
  });

  it('items above one batch, up to 256 KiB less the header, go alone and inline', async () => {
    const pair = await kit.pair();
    const sizes = [61_390, 61_405, 61_411, 61_412, 65_536, 100_000, 3, 200_000, 262_000, 1, 0];
    expect(await fromRust(pair, sizes, 21)).to.deep.equal(complete(sizes, 21));
    expect(await toRust(pair, sizes, 22)).to.deep.equal(complete(sizes, 22));
    await bothIdle(pair);
    await clean(pair);
    expect(await pair.rust.metric('velo_streaming_mux_rendezvous_singletons_total')).to.be.greaterThan(3);
  });

  it('slow readers: a window is never exceeded and nothing is lost', async () => {
    const pair = await kit.pair({ mux: { initialCredit: 4 } }, { initialCredit: 4 });
    const sizes = mixedSizes(120, 3);
    const slow = { delayMs: 2, delayEvery: 2 };
    const quick = mixedSizes(2_000, 4);
    const results = await Promise.all([
      fromRust(pair, sizes, 31, slow),
      toRust(pair, sizes, 32, slow),
      fromRust(pair, quick, 33),
      toRust(pair, quick, 34),
    ]);
    expect(results).to.deep.equal([complete(sizes, 31), complete(sizes, 32), complete(quick, 33), complete(quick, 34)]);
    await bothIdle(pair);
    await clean(pair);
    expect(await pair.rust.metric('velo_streaming_slot_credit_exhausted_total')).to.be.greaterThan(0);
    expect(pair.node.stats().creditExhausted).to.be.greaterThan(0);
  });

  it('streams of no items', async () => {
    const pair = await kit.pair();
    expect(await fromRust(pair, [], 0)).to.deep.equal(complete([], 0));
    expect(await toRust(pair, [], 0)).to.deep.equal(complete([], 0));
    await bothIdle(pair);
  });

  it('Rust structs, by a codec of the application', async () => {
    const { node, rust } = await kit.pair();
    const count = 500;
    const tokens = (seed: number) => Array.from({ length: count }, (_, i) => tokenOf(seed, i));
    const codec = tokenCodec();
    const anchor = node.createAnchor<Token>({ codec });
    const consumed = consume(anchor, { report: (token) => token });
    const theirs = await rust.attach(anchor.handle, { kind: 'token' });
    await rust.produce(theirs, { tokens: count, seed: 41 });
    await rust.end(theirs, 'finalize');
    expect(await consumed).to.deep.equal({ items: tokens(41), marks: [], end: 'finalized' });

    const back = await rust.anchor('token');
    const reading = rust.consume<Token>(back);
    const ours = await node.attachAnchor<Token>(back.handle, { codec });
    for (const token of tokens(42)) await ours.send(token);
    await ours.finalize();
    expect(await reading).to.deep.equal({ items: tokens(42), marks: [], end: 'finalized' });
  });

  it('structs as maps, and the default codec, are read by Rust too', async () => {
    const { node, rust } = await kit.pair();
    const back = await rust.anchor('token');
    const ours = await node.attachAnchor<Token>(back.handle);
    const token = { id: 7, text: 'as a map', logprob: -0.5, top: [[1, 0.25]] as const };
    await ours.send(token);
    await ours.finalize();
    expect(await rust.consume<Token>(back)).to.deep.equal({ items: [token], marks: [], end: 'finalized' });
  });

  it('an item that Rust cannot decode ends the stream there and cancels it here', async () => {
    const { node, rust } = await kit.pair();
    const back = await rust.anchor('token');
    const ours = await node.attachAnchor<unknown>(back.handle);
    const cancelled = new Promise((resolve) => ours.cancelSignal.addEventListener('abort', resolve));
    await ours.send([1, 'only two fields']);
    const { items, end } = await rust.consume<Token>(back);
    expect(items).to.deep.equal([]);
    expect(end).to.match(/^deserialization error: /);
    await cancelled;
    await ours.close();
    await bothIdle({ node, rust });
  });

  it('manual flushing on both sides: nothing leaves before the flush, everything after it', async () => {
    const pair = await kit.pair({ flushPolicy: 'manual' }, { flush: 'manual' });
    const { node, rust } = pair;
    const sizes = [1, 2, 3];
    const anchor = node.createAnchor(bytes);
    const theirs = await rust.attach(anchor.handle);
    await rust.produce(theirs, { sizes, seed: 51 });
    const back = await rust.anchor();
    const ours = await node.attachAnchor(back.handle, bytes);
    for (const item of itemsOf(sizes, 52)) await ours.send(item);
    const before = {
      fromRust: (await rust.metric('velo_streaming_mux_records_sent_total', { record_type: 'data' })) === 0,
      fromUs: (await rust.metric('velo_streaming_mux_staged_records')) === 3,
    };
    expect(before).to.deep.equal({ fromRust: true, fromUs: true });
    await rust.flush();
    node.flushBatch();
    expect(await consume(anchor, { max: 3 })).to.deep.equal({ items: expected(sizes, 51), marks: [], end: null });
    expect(await rust.consume(back, { max: 3 })).to.deep.equal({ items: expected(sizes, 52), marks: [], end: null });
    await rust.end(theirs, 'finalize');
    await ours.finalize();
    expect((await consume(anchor)).end).to.equal('finalized');
    expect((await rust.consume(back)).end).to.equal('finalized');
    await bothIdle(pair);
  });

  it('both sides count the same records and batches', async () => {
    const pair = await kit.pair();
    const { node, rust } = pair;
    await Promise.all([
      ...[1, 2, 3].map((seed) => fromRust(pair, SIZES, seed)),
      ...[4, 5, 6].map((seed) => toRust(pair, SIZES, seed)),
    ]);
    await bothIdle(pair);
    const stats = node.stats();
    const batches = (direction: string) => rust.metric('velo_streaming_mux_batches_total', { direction });
    const sent = (record_type: string) => rust.metric('velo_streaming_mux_records_sent_total', { record_type });
    const items = 3 * SIZES.length;
    // An end is a data record too.
    expect(await sent('data')).to.equal(items + 3);
    expect(stats.recordsSent.data).to.equal(items + 3);
    expect([await sent('open_slot'), stats.recordsSent.openSlot]).to.deep.equal([3, 3]);
    expect([await sent('close_slot'), stats.recordsSent.closeSlot]).to.deep.equal([3, 3]);
    expect(stats.batchesReceived).to.equal(await batches('sent'));
    expect(stats.batchesSent).to.equal(await batches('received'));
  });
});
