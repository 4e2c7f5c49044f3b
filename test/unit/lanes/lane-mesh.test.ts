// The port between lane 0 and another lane: what is staged is there before it is asked for, pulls come back, and the death of either
// end leaves nothing open at the other. Real ports, on one thread.

import { once } from 'node:events';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import { type Fetched, StagedAccount } from '../../../lib/lanes/batch-shelf.js';
import { MeshEnd, MeshHub, type MeshLane } from '../../../lib/lanes/lane-mesh.js';
import { createNodeBlock, NodeBlock } from '../../../lib/plane/node-block.js';
import { HEADER_RENDEZVOUS } from '../../../lib/wire/names.js';
import { failure, until } from '../../support/nodes.js';

const LIMIT = 10_000;
const NO_HEAD = new Uint8Array(0);
const lane: MeshLane = {
  inTurn: (turn) => turn(),
  touch: () => {},
  fail: (error) => {
    throw error;
  },
};
const named = (handle: string) => ({ headers: new Map([[HEADER_RENDEZVOUS, handle]]) });

describe('lane mesh', () => {
  let node: NodeBlock;
  let hub: MeshHub;
  let end: MeshEnd;
  let hubPort: MessagePort;
  let endPort: MessagePort;
  let freed: number;
  /** What lane 0 keeps. */
  let kept: Map<number, { batch: Uint8Array; gone: () => void }>;
  /** How pulls of a handle end. */
  let pulls: Map<string, Promise<Fetched>>;
  let gone: number[];

  const drop = (id: number) => {
    const entry = kept.get(id);
    kept.delete(id);
    entry?.gone();
  };

  const join = () => {
    const channel = new MessageChannel();
    hubPort = channel.port1;
    endPort = channel.port2;
    hub.join({ lane: 1, port: hubPort });
    end.join({ lane: 0, port: endPort });
  };

  beforeEach(() => {
    node = new NodeBlock(createNodeBlock(2, 8));
    kept = new Map();
    pulls = new Map();
    gone = [];
    freed = 0;
    hub = new MeshHub(lane, {
      keep: (id, batch, whenGone) => kept.set(id, { batch, gone: whenGone }),
      drop,
      pull: (handle) => pulls.get(handle) ?? Promise.reject(new VeloError('ERR_UNKNOWN_DATA', `no ${handle}`)),
    });
    end = new MeshEnd(lane, new StagedAccount(node, 1, LIMIT), () => (freed += 1));
    join();
    freed = 0;
  });
  afterEach(() => {
    hub.close();
    end.close();
  });

  /** Stages `length` bytes; `gone` gets its first byte. */
  const stage = (length: number, fill: number): number => {
    expect(end.reserve(length)).to.equal(true);
    return end.stage(new Uint8Array(length).fill(fill), () => gone.push(fill));
  };
  /** Nothing is reserved: all of it can be. */
  const expectAllFree = () => {
    expect(node.reserveStaged(0, LIMIT, LIMIT)).to.equal(true);
    node.releaseStaged(0, LIMIT);
  };

  it('a batch is there as soon as lane 0 looks, without a turn of its event loop, and its memory has moved', () => {
    const batch = new Uint8Array(new ArrayBuffer(164), 64).fill(7);
    expect(end.reserve(100)).to.equal(true);
    const id = end.stage(batch, () => gone.push(7));
    expect([id > 2 ** 32, batch.length, kept.size]).to.deep.equal([true, 0, 0]);
    hub.drain();
    expect([...kept.get(id)!.batch]).to.deep.equal(new Array(100).fill(7));
  });

  it('what is let go of is told once, and its room is free again', async () => {
    const ids = [stage(6_000, 1), stage(4_000, 2)];
    expect(end.reserve(1)).to.equal(false);
    hub.drain();
    end.drop(ids[0]!);
    await until('it is gone', () => gone.length === 1);
    expect([gone, freed, [...kept.keys()]]).to.deep.equal([[1], 1, [ids[1]]]);
    expect(end.reserve(6_000)).to.equal(true);
    end.release(6_000);
    drop(ids[1]!);
    await until('both are gone', () => gone.length === 2);
    expectAllFree();
  });

  it('all lanes share the limit', () => {
    const other = new StagedAccount(node, 0, LIMIT);
    expect(other.reserve(7_000)).to.equal(true);
    expect([end.reserve(3_001), end.reserve(3_000)]).to.deep.equal([false, true]);
    other.release(7_000);
    expect(end.reserve(7_000)).to.equal(true);
  });

  it('a pull comes back with its bytes, whose share ends when they are taken; one that fails says why', async () => {
    let ended = 0;
    const bytes = new Uint8Array([1, 2, 3]);
    pulls.set('a', Promise.resolve({ bytes, end: () => (ended += 1) }));
    const fetched = await end.take(named('a'), NO_HEAD);
    expect([[...fetched.bytes], bytes.length, ended]).to.deep.equal([[1, 2, 3], 0, 0]);
    fetched.end();
    await until('its share ends', () => ended === 1);
    const error = await failure('ERR_UNKNOWN_DATA', end.take(named('b'), NO_HEAD));
    expect(error.message).to.include('no b');
  });

  it('a lane that dies takes what it staged along, and shares of its pulls', async () => {
    let ended = 0;
    let arrive = (_fetched: Fetched) => {};
    pulls.set('done', Promise.resolve({ bytes: new Uint8Array(1), end: () => (ended += 1) }));
    pulls.set('late', new Promise((resolve) => (arrive = resolve)));
    stage(100, 1);
    await end.take(named('done'), NO_HEAD);
    end.take(named('late'), NO_HEAD).catch(() => {});
    await until('lane 0 heard all', () => kept.size === 1);
    const closed = once(hubPort, 'close');
    endPort.close();
    await closed;
    await until('it is over', () => ended === 1 && kept.size === 0);
    arrive({ bytes: new Uint8Array(1), end: () => (ended += 1) });
    await until('what comes late ends too', () => ended === 2);
    expect(hub.ended).to.equal(true);
  });

  it('after an orderly end receivers may still come for what it staged', async () => {
    stage(100, 1);
    expect(hub.ended).to.equal(false);
    end.ended();
    await until('lane 0 knows', () => hub.ended);
    const closed = once(hubPort, 'close');
    end.close();
    await closed;
    expect(kept.size).to.equal(1);
    await failure('ERR_CLOSED', end.take(named('a'), NO_HEAD));
  });

  it('when lane 0 dies nothing can be staged or pulled, and what was is over; a new port starts afresh', async () => {
    pulls.set('never', new Promise(() => {}));
    stage(9_000, 1);
    const waiting = failure('ERR_LANE_DIED', end.take(named('never'), NO_HEAD));
    hubPort.close();
    await waiting;
    expect([gone, end.reserve(1)]).to.deep.equal([[1], false]);
    await failure('ERR_LANE_DIED', end.take(named('a'), NO_HEAD));
    expectAllFree();
    kept.clear();
    freed = 0;
    join();
    expect(freed).to.equal(1);
    const id = stage(9_000, 2);
    hub.drain();
    expect([...kept.keys()]).to.deep.equal([id]);
  });

  it('a port that is joined again replaces the one before, at both ends', async () => {
    stage(100, 1);
    hub.drain();
    join();
    expect([gone, kept.size]).to.deep.equal([[1], 0]);
    stage(200, 2);
    hub.drain();
    expect([...kept.values()].map(({ batch }) => batch.length)).to.deep.equal([200]);
    end.drop([...kept.keys()][0]!);
    await until('it is told on the new port', () => gone.length === 2);
    expectAllFree();
  });
});
