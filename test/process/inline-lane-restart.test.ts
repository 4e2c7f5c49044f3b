// Lanes on the calling thread that fail: a new one takes the place, as on a thread. A control plane is built by hand, because nobody who
// uses a node can make such a lane fail.

import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { ownAddress, ownEndpoints } from '../../lib/control/own-address.js';
import { ControlPlane } from '../../lib/control-plane.js';
import { PeerInfo, unaryHandler, type Velo } from '../../lib/index.js';
import type { LaneHost } from '../../lib/lanes/host.js';
import { CELL_COUNT } from '../../lib/metrics/series-cells.js';
import { resolveOptions, rowsFor, type VeloOptions } from '../../lib/options.js';
import { ClientRows, createClientRows, type PlaneSizes, WorkerConduit } from '../../lib/plane/conduit.js';
import { createNodeBlock, NodeBlock } from '../../lib/plane/node-block.js';
import { startLanes } from '../../lib/start-lanes.js';
import { generateInstanceId, workerIdOf } from '../../lib/wire/worker-id.js';
import { failure, nodesOfSuite, pause, readAll, until, within } from '../support/nodes.js';

const HOUR_MS = 3_600_000;

interface Parts {
  readonly host: LaneHost;
  readonly plane: ControlPlane;
  readonly node: NodeBlock;
  readonly sizes: PlaneSizes;
}

async function make(options: VeloOptions): Promise<Parts> {
  const resolved = resolveOptions({ host: 'inline', ...options });
  const instanceId = generateInstanceId((length) => randomBytes(length));
  const sizes = { ringBytes: resolved.ringBytes, rows: rowsFor(resolved.maxStreams) };
  const block = createNodeBlock(resolved.lanes, CELL_COUNT);
  const rows = createClientRows(sizes);
  const host = await startLanes(resolved, workerIdOf(instanceId), { node: block, rows, sizes });
  const ports = host.links.map((link) => link.port);
  const endpoints = ownEndpoints(resolved.bindAddress, ports[0]!);
  const info = new PeerInfo(instanceId, ownAddress(endpoints, ports, undefined));
  const reach = { local: endpoints, numaNode: undefined, uds: false };
  const node = new NodeBlock(block);
  return { host, node, sizes, plane: new ControlPlane(resolved, host, node, info, reach, new ClientRows(rows, sizes)) };
}

describe('a lane on the calling thread that fails', () => {
  const nodes = nodesOfSuite();
  let made: Parts[];
  let other: Velo;
  beforeEach(async () => {
    made = [];
    other = await nodes.make({ host: 'inline' });
    other.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
  });
  afterEach(async () => {
    for (const { plane } of made) {
      plane.shutdown.limit({ timeoutMs: 0 });
      await plane.shutdown.run(undefined);
    }
  });

  async function meet(options: VeloOptions = {}): Promise<Parts> {
    const parts = await make(options);
    made.push(parts);
    parts.plane.peers.register(other.peerInfo);
    other.registerPeer(parts.plane.peerInfo);
    parts.plane.messenger.register(
      'echo',
      unaryHandler((payload) => payload),
    );
    return parts;
  }

  it('is replaced on its port: calls go both ways, counters only grow, epochs are higher', async () => {
    const parts = await meet({ lanes: 2 });
    const { plane, host, node } = parts;
    const bytes = new Uint8Array([1, 2]);
    const both = async () => {
      expect(await plane.messenger.unary(other.instanceId, 'echo', bytes)).to.deep.equal(bytes);
      expect(await other.unary(plane.peerInfo.instanceId, 'echo', bytes)).to.deep.equal(bytes);
    };
    await both();
    const opened = plane.metricsSource().cell(0);
    const epoch = node.nextEpoch();
    const { port } = host.links[0]!;
    for (let death = 1; death <= 3; death += 1) {
      const waiting = failure('ERR_LANE_DIED', plane.messenger.unary(other.instanceId, 'echo', bytes));
      host.terminate(0, `death ${death}`);
      expect((await waiting).message).to.include(`death ${death}`);
      await until('another one runs', () => plane.laneRestarts === death);
      expect(host.links[0]!.port).to.equal(port);
      await both();
    }
    expect(plane.metricsSource().cell(0)).to.be.at.least(opened);
    expect(node.nextEpoch()).to.be.greaterThan(epoch);
  });

  it('a lane whose conduit makes no sense is ended and replaced', async () => {
    const { plane, host, sizes } = await meet();
    const lane = new WorkerConduit(host.links[0]!.conduit.memory.buffer, sizes);
    expect(lane.ingress.reserve(31, 0, 0)).to.be.at.least(0);
    lane.ingress.commit();
    lane.ingress.publish();
    // What the bell would bring about, were it the lane's own.
    plane.plane.port(0).drain();
    await failure('ERR_LANE_DIED', plane.messenger.unary(other.instanceId, 'echo'));
    await until('another one runs', () => plane.laneRestarts === 1);
    expect(await plane.messenger.unary(other.instanceId, 'echo', new Uint8Array(3))).to.have.length(3);
  });

  it('one that fails while it starts dies once, and is replaced once', async () => {
    const { plane, host } = await meet({ lanes: 2, maxLaneRestarts: 10 });
    const deaths: string[] = [];
    const { onLaneDeath, onLaneRestart } = host;
    host.onLaneDeath = (lane, reason) => {
      deaths.push(reason);
      onLaneDeath(lane, reason);
    };
    let starts = 0;
    host.onLaneRestart = (lane, link) => {
      onLaneRestart(lane, link);
      starts += 1;
      // It does not listen yet.
      if (starts === 1) host.terminate(lane, 'too early');
    };
    host.terminate(0, 'first');
    await until('another one runs', () => plane.laneRestarts === 1);
    // Longer than the third replacement would wait.
    await pause(500);
    expect([deaths, starts, plane.laneRestarts]).to.deep.equal([['first', 'too early'], 2, 1]);
    expect(await plane.messenger.unary(other.instanceId, 'echo', new Uint8Array(3))).to.have.length(3);
  });

  it('what a dead lane left is told by the first that runs after it, also when others died before they ran', async () => {
    const { plane, host } = await meet({ lanes: 2, maxLaneRestarts: 10 });
    const { onLaneRestart } = host;
    let starts = 0;
    host.onLaneRestart = (lane, link) => {
      onLaneRestart(lane, link);
      starts += 1;
      if (starts <= 2) host.terminate(lane, 'too early');
    };
    const anchor = other.createAnchor<number>({ heartbeatIntervalMs: HOUR_MS });
    const core = await plane.attacher.attach(anchor.handle, {});
    const reading = readAll(anchor);
    const entry = plane.registry.create(HOUR_MS);
    const sender = await other.attachAnchor<number>(entry.handle);
    await sender.send(1);
    await until('both streams are open', () => other.stats().liveSlots === 2);
    host.terminate(0, 'first');
    await until('another one runs', () => plane.laneRestarts === 1);
    expect(starts).to.equal(3);
    // Nobody beats, and nobody sends: what the ends hear now, they were told.
    expect((await within(5_000, reading)).error?.code).to.equal('ERR_SENDER_DROPPED');
    await until('the sender hears', () => sender.cancelled);
    await sender.close();
    expect(core.over).to.equal(true);
  });

  it('stays dead in the end', async () => {
    const { plane, host } = await meet({ maxLaneRestarts: 1 });
    host.terminate(0, 'once');
    await until('another one runs', () => plane.laneRestarts === 1);
    host.terminate(0, 'twice');
    await until('it is dead', () => !plane.plane.port(0).isOpen);
    await failure('ERR_LANE_DIED', plane.messenger.unary(other.instanceId, 'echo'));
    expect(plane.laneRestarts).to.equal(1);
  });
});
