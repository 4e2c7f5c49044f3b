// A lane of ours dies and is replaced, against a real velo node: both ends of the streams that rode it end at once, and everything
// works again afterwards. And what we leave to the Rust node when a batcher of ours was let go.

import { expect } from 'chai';
import type { Velo } from '../../lib/index.js';
import { kill } from '../process/crashing-lane.js';
import { failure, pause, until, within } from '../support/nodes.js';
import { bothIdle, bytes, consume, expected, interop, type MixedPair, rustReaches } from './kit.js';
import { itemsOf } from './payload.js';

const MORTAL = new URL('../process/crashing-lane.js', import.meta.url);
const SIZES = [0, 20, 300];
const FIRINGS = 'velo_streaming_heartbeat_watchdog_firings_total';
/** Less than any watchdog takes at the default interval. */
const PROMPT_MS = 10_000;

async function both({ node, rust }: MixedPair, seed: number): Promise<void> {
  const out = await rust.anchor('bytes');
  const consumed = rust.consume(out);
  const sender = await node.attachAnchor(out.handle, bytes);
  for (const item of itemsOf(SIZES, seed)) await sender.send(item);
  await sender.finalize();
  expect(await consumed).to.deep.equal({ items: expected(SIZES, seed), marks: [], end: 'finalized' });
  const anchor = node.createAnchor(bytes);
  const inward = consume(anchor);
  const attached = await rust.attach(anchor.handle);
  await rust.produce(attached, { sizes: SIZES, seed });
  await rust.end(attached, 'finalize');
  expect(await inward).to.deep.equal({ items: expected(SIZES, seed), marks: [], end: 'finalized' });
}

function restarted(node: Velo): Promise<void> {
  return until('another lane runs', () => node.stats().laneRestarts === 1);
}

describe('interop: the death of a lane of ours', () => {
  const kit = interop();

  it('a Rust reader hears by our new epoch, a Rust sender by a cancel, and both nodes go on', async () => {
    const pair = await kit.pair({ worker: MORTAL });
    const { node, rust } = pair;
    await both(pair, 1);
    const out = await rust.anchor('bytes');
    const consumed = rust.consume(out);
    const sender = await node.attachAnchor(out.handle, bytes);
    for (const item of itemsOf(SIZES, 2)) await sender.send(item);
    const anchor = node.createAnchor(bytes);
    const attached = await rust.attach(anchor.handle);
    await rust.produce(attached, { sizes: SIZES, seed: 3 });
    expect((await consume(anchor, { max: SIZES.length })).items).to.deep.equal(expected(SIZES, 3));
    await pause(200);
    kill(node.workerId, 0, 'exit');
    const seen = await within(PROMPT_MS, consumed);
    expect([seen.items, seen.end]).to.deep.equal([
      expected(SIZES, 2),
      'sender dropped without explicit detach/finalize',
    ]);
    await within(PROMPT_MS, rust.cancelled(attached));
    await rust.end(attached, 'drop');
    expect((await consume(anchor)).end).to.equal('ERR_LANE_DIED');
    await failure('ERR_LANE_DIED', sender.send(new Uint8Array(1)));
    await sender.close();
    await restarted(node);
    await both(pair, 4);
    await rustReaches(rust, FIRINGS, 0);
    expect(node.stats().watchdogFirings).to.equal(0);
    await bothIdle(pair);
  });
});

describe('interop: idle batchers', () => {
  const kit = interop();

  it('a Rust node takes the higher epoch of a batcher that takes the place of one let go', async () => {
    const pair = await kit.pair({ mux: { batcherIdleTtlMs: 50, creditSweepIntervalMs: 10 } });
    for (let seed = 1; seed <= 3; seed += 1) {
      await both(pair, seed);
      await pause(400);
    }

    expect(pair.node.stats().epochDeaths).to.equal(0);
    await bothIdle(pair);
  });
});
