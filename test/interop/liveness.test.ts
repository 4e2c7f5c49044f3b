// Heartbeats and watchdogs between a velomux node and a real velo node: quiet senders are kept, and silent ones are dropped.

import { expect } from 'chai';
import { pause } from '../support/nodes.js';
import { bothIdle, bytes, consume, expected, interop, rustReaches } from './kit.js';
import { itemsOf } from './payload.js';

const SIZES = [0, 20, 300];
const INTERVAL_MS = 150;
const FIRINGS = 'velo_streaming_heartbeat_watchdog_firings_total';
/** Many windows of silence, and fewer than a window of credit takes beats. */
const QUIET_MS = 15 * INTERVAL_MS;

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
});
