// Heartbeats and watchdogs between a velomux node and a real velo node: quiet senders are kept, and silent ones are dropped.

import { performance } from 'node:perf_hooks';
import { expect } from 'chai';
import { pause } from '../support/nodes.js';
import { bothIdle, bytes, consume, expected, interop, rustReaches } from './kit.js';
import { itemsOf } from './payload.js';
import type { RustPeer } from './rust-peer.js';
import { VelomuxChild } from './velomux-child.js';

const SIZES = [0, 20, 300];
const INTERVAL_MS = 150;
const FIRINGS = 'velo_streaming_heartbeat_watchdog_firings_total';
/** Many windows of silence, and fewer than a window of credit takes beats. */
const QUIET_MS = 15 * INTERVAL_MS;
const DROPPED = 'sender dropped without explicit detach/finalize';

/** Keeps this thread busy. */
function compute(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

describe('interop: liveness', () => {
  const kit = interop();

  for (const flushPolicy of ['auto', 'manual'] as const) {
    it(`a Rust reader keeps a quiet sender of ours (${flushPolicy})`, async () => {
      const pair = await kit.pair({ flushPolicy });
      const { node, rust } = pair;
      const anchor = await rust.anchor('bytes', INTERVAL_MS);
      const consumed = rust.consume(anchor);
      const sender = await node.attachAnchor(anchor.handle, bytes);
      await pause(QUIET_MS);
      for (const item of itemsOf(SIZES, 1)) await sender.send(item);
      node.flushBatch();
      await pause(QUIET_MS);
      await sender.finalize();
      expect(await consumed).to.deep.equal({ items: expected(SIZES, 1), marks: [], end: 'finalized' });
      await rustReaches(rust, FIRINGS, 0);
      await bothIdle(pair);
    });
  }

  it('we keep a quiet Rust sender', async () => {
    const pair = await kit.pair({ heartbeatIntervalMs: INTERVAL_MS });
    const { node, rust } = pair;
    const anchor = node.createAnchor(bytes);
    const consumed = consume(anchor);
    const sender = await rust.attach(anchor.handle);
    await pause(QUIET_MS);
    await rust.produce(sender, { sizes: SIZES, seed: 2 });
    await pause(QUIET_MS);
    await rust.end(sender, 'finalize');
    expect(await consumed).to.deep.equal({ items: expected(SIZES, 2), marks: [], end: 'finalized' });
    expect(node.stats().watchdogFirings).to.equal(0);
    await bothIdle(pair);
  });

  it('kill -9 of the Rust process: our reader ends as dropped, behind what was sent', async () => {
    const { node, rust } = await kit.pair({ heartbeatIntervalMs: INTERVAL_MS });
    const anchor = node.createAnchor(bytes);
    const sender = await rust.attach(anchor.handle);
    await rust.produce(sender, { sizes: SIZES, seed: 3 });
    const { items } = await consume(anchor, { max: SIZES.length });
    expect(items).to.deep.equal(expected(SIZES, 3));
    await rust.kill();
    expect(await consume(anchor)).to.deep.equal({ items: [], marks: [], end: 'ERR_SENDER_DROPPED' });
    expect(node.stats()).to.include({ watchdogFirings: 1, anchors: 0, liveSlots: 0 });
  });

  it('a Rust process that stands still is dropped, and hears of it when it goes on', async () => {
    const pair = await kit.pair({ heartbeatIntervalMs: INTERVAL_MS });
    const { node, rust } = pair;
    const anchor = node.createAnchor(bytes);
    const sender = await rust.attach(anchor.handle);
    rust.freeze();
    expect((await consume(anchor)).end).to.equal('ERR_SENDER_DROPPED');
    rust.thaw();
    await rust.cancelled(sender);
    await bothIdle(pair);
  });

  it('a Rust process that stands still for a window is kept, with the streams it sends and those it reads', async () => {
    const interval = 600;
    const pair = await kit.pair({ heartbeatIntervalMs: interval });
    const { node, rust } = pair;
    const anchor = node.createAnchor(bytes);
    const consumed = consume(anchor);
    const sender = await rust.attach(anchor.handle);
    const back = await rust.anchor('bytes', interval);
    const returned = rust.consume(back);
    const ours = await node.attachAnchor(back.handle, bytes);
    await rust.produce(sender, { sizes: SIZES, seed: 4 });
    rust.freeze();
    const sending = (async () => {
      for (const item of itemsOf(SIZES, 5)) await ours.send(item);
      await ours.finalize();
    })();
    await pause(interval);
    rust.thaw();
    await rust.end(sender, 'finalize');
    await sending;
    expect(await consumed).to.deep.equal({ items: expected(SIZES, 4), marks: [], end: 'finalized' });
    expect(await returned).to.deep.equal({ items: expected(SIZES, 5), marks: [], end: 'finalized' });
    expect(node.stats().watchdogFirings).to.equal(0);
    await bothIdle(pair);
  });

  it('a Rust reader that stands still for many windows gets everything of our sender', async () => {
    const credit = 4;
    const pair = await kit.pair({}, { initialCredit: credit });
    const { node, rust } = pair;
    const anchor = await rust.anchor('bytes', INTERVAL_MS);
    const consumed = rust.consume(anchor);
    const sender = await node.attachAnchor(anchor.handle, bytes);
    const sizes = Array.from({ length: 40 }, (_, i) => i * 10);
    rust.freeze();
    // A spent window may not be held against a sender that cannot beat.
    const sending = (async () => {
      for (const item of itemsOf(sizes, 6)) await sender.send(item);
      await sender.finalize();
    })();
    await pause(QUIET_MS);
    rust.thaw();
    await sending;
    expect(await consumed).to.deep.equal({ items: expected(sizes, 6), marks: [], end: 'finalized' });
    await rustReaches(rust, FIRINGS, 0);
    await bothIdle(pair);
  });

  describe('with a node of ours in a process of its own', () => {
    let rust: RustPeer;
    let child: VelomuxChild;
    beforeEach(async () => {
      rust = await kit.rust();
      child = await VelomuxChild.start(rust.info);
      await rust.register(child.info);
    });
    afterEach(() => child.kill());

    it('our process stands still for many windows: the Rust reader ends as dropped, behind what was sent', async () => {
      const anchor = await rust.anchor('bytes', INTERVAL_MS);
      await child.produce(anchor.handle, SIZES, 7);
      const { items } = await rust.consume(anchor, { max: SIZES.length });
      expect(items).to.deep.equal(expected(SIZES, 7));
      child.freeze();
      expect(await rust.consume(anchor)).to.deep.equal({ items: [], marks: [], end: DROPPED });
      child.thaw();
      await rustReaches(rust, FIRINGS, 1);
      // The process goes on, and so does its node.
      const again = await rust.anchor('bytes', 10 * INTERVAL_MS);
      await child.produce(again.handle, SIZES, 8);
      child.finish([], 0);
      expect(await rust.consume(again)).to.deep.equal({ items: expected(SIZES, 8), marks: [], end: 'finalized' });
      await rustReaches(rust, 'velo_streaming_mux_live_slots', 0);
    });

    it('our process stands still for a window: the Rust reader keeps its stream', async () => {
      const interval = 600;
      const anchor = await rust.anchor('bytes', interval);
      await child.produce(anchor.handle, SIZES, 9);
      const { items } = await rust.consume(anchor, { max: SIZES.length });
      expect(items).to.deep.equal(expected(SIZES, 9));
      child.freeze();
      await pause(interval);
      child.thaw();
      child.finish(SIZES, 10);
      expect(await rust.consume(anchor)).to.deep.equal({ items: expected(SIZES, 10), marks: [], end: 'finalized' });
      await rustReaches(rust, FIRINGS, 0);
    });

    it('our reader stands still for many windows, finds what a Rust sender sent meanwhile, and keeps it', async () => {
      const { handle, consumed } = await child.anchor(INTERVAL_MS);
      const sender = await rust.attach(handle);
      await rust.produce(sender, { sizes: SIZES, seed: 11 });
      child.freeze();
      await pause(QUIET_MS);
      child.thaw();
      await rust.produce(sender, { sizes: SIZES, seed: 11, from: SIZES.length });
      await rust.end(sender, 'finalize');
      const all = [...SIZES, ...SIZES];
      expect(await consumed).to.deep.equal({ items: expected(all, 11), marks: [], end: 'finalized' });
    });
  });

  for (const flushPolicy of ['auto', 'manual'] as const) {
    it(`a process of ours that computes for many windows is kept, as reader and as sender (${flushPolicy})`, async () => {
      const pair = await kit.pair({ heartbeatIntervalMs: INTERVAL_MS, flushPolicy });
      const { node, rust } = pair;
      const anchor = node.createAnchor(bytes);
      const consumed = consume(anchor);
      const sender = await rust.attach(anchor.handle);
      const back = await rust.anchor('bytes', INTERVAL_MS);
      const returned = rust.consume(back);
      const ours = await node.attachAnchor(back.handle, bytes);
      // More than a window: our lane takes what it has room for, and the rest waits at its sender.
      const sizes = Array.from({ length: 100 }, () => 20);
      const producing = rust.produce(sender, { sizes, seed: 12 });
      for (let round = 0; round < 3; round += 1) {
        compute(QUIET_MS / 3);
        for (const item of itemsOf(SIZES, 13, round * SIZES.length)) await ours.send(item);
        node.flushBatch();
      }
      await producing;
      await rust.end(sender, 'finalize');
      await ours.finalize();
      node.flushBatch();
      const sent = [...SIZES, ...SIZES, ...SIZES];
      expect(await consumed).to.deep.equal({ items: expected(sizes, 12), marks: [], end: 'finalized' });
      expect(await returned).to.deep.equal({ items: expected(sent, 13), marks: [], end: 'finalized' });
      expect(node.stats().watchdogFirings).to.equal(0);
      await rustReaches(rust, FIRINGS, 0);
      await bothIdle(pair);
    });
  }
});
