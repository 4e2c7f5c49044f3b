// Large records after the death of a lane: the new one has its port to the others again, both for what it stages and for what it has
// pulled, whichever lane died.

import { expect } from 'chai';
import { rawCodec, type Velo } from '../../lib/index.js';
import { introduce, nodesOfSuite, range, readAll, until } from '../support/nodes.js';
import { kill } from './crashing-lane.js';

const MORTAL = new URL('./crashing-lane.js', import.meta.url);
const LARGE = 600_000;
const RAW = { codec: rawCodec() };
/** A key that the receiver puts on lane 0 of two, and one for lane 1. */
const KEYS = [2n, 0n] as const;

async function carriesLarge(from: Velo, to: Velo): Promise<void> {
  for (const key of KEYS) {
    const anchor = to.createAnchor<Uint8Array>(RAW);
    const sender = await from.attachAnchor<Uint8Array>(anchor.handle, { ...RAW, key });
    const reading = readAll(anchor);
    for (const i of range(0, 3)) await sender.send(new Uint8Array(LARGE).fill(i));
    await sender.finalize();
    const { items, error } = await reading;
    expect(error).to.equal(undefined);
    expect(items.map((item) => [item.length, item[0], item.at(-1)])).to.deep.equal(
      range(0, 3).map((i) => [LARGE, i, i]),
    );
  }
  await until('nothing stays staged', () => from.stats().rendezvousSlots === 0);
}

describe('large records and lanes that start again', () => {
  const nodes = nodesOfSuite();

  for (const lane of [0, 1])
    it(`a new lane ${lane} stages and pulls large records on every lane, both ways`, async () => {
      const other = await nodes.make({ host: 'inline', lanes: 2 });
      const node = await nodes.make({ host: 'worker', worker: MORTAL, lanes: 2 });
      introduce(node, other);
      await carriesLarge(node, other);
      await carriesLarge(other, node);
      kill(node.workerId, lane, 'exit');
      await until('it started again', () => node.stats().laneRestarts === 1);
      await carriesLarge(node, other);
      await carriesLarge(other, node);
    });
});
