// What a node does when the thread of one of its lanes dies and is not replaced: everything that rode the lane ends with a named error, everything
// that waits wakes, the rest goes on, and the node still closes.

import { connect } from 'node:net';
import { expect } from 'chai';
import { StreamAnchorHandle, Velo, type VeloOptions } from '../../lib/index.js';
import { decodeLanePorts } from '../../lib/wire/address.js';
import { ADDRESS_KEY_LANES } from '../../lib/wire/names.js';
import {
  failure,
  introduce,
  type Nodes,
  nodesOfSuite,
  openStream,
  pause,
  provesAlive,
  range,
  readAll,
  sendRange,
  take,
  until,
} from '../support/nodes.js';
import { accept, WirePeer } from '../support/wire-peer.js';
import { type Death, kill } from './crashing-lane.js';

const MORTAL = new URL('./crashing-lane.js', import.meta.url);
const HASTY = new URL('./hasty-lane.js', import.meta.url);
const STILLBORN = new URL('./stillborn-lane.js', import.meta.url);

function deathSuite(host: 'piscina' | 'worker', nodes: Nodes): void {
  const mortal = (options: VeloOptions = {}) => nodes.make({ host, worker: MORTAL, maxLaneRestarts: 0, ...options });
  let peer: WirePeer;
  beforeEach(async () => {
    peer = await WirePeer.listen();
  });
  afterEach(() => peer.close());

  for (const death of ['exit', 'throw'] as const satisfies Death[]) {
    it(`senders and readers of a lane that dies by ${death} end with ERR_LANE_DIED`, async () => {
      const other = await nodes.make({ host: 'inline', mux: { initialCredit: 1, slotByteBudget: 16 } });
      const node = await mortal();
      introduce(node, other);
      const out = await openStream<number>({ consumer: other, producer: node });
      const inward = await openStream<number>({ consumer: node, producer: other });
      await sendRange(inward.sender, 0, 3);
      expect(await take(inward.anchor, 2)).to.deep.equal([0, 1]);
      const sending = failure('ERR_LANE_DIED', sendRange(out.sender, 0, 1_000));
      await until('records wait for credit', () => node.stats().withheldRecords > 0);
      await pause(20);
      const ready = failure('ERR_LANE_DIED', out.sender.ready());
      const reading = readAll(inward.anchor);
      kill(node.workerId, 0, death);
      const error = await sending;
      expect(error.message).to.include('lane 0');
      if (death === 'throw') expect(error.message).to.include('told to throw');
      await ready;
      expect(out.sender.cancelled).to.equal(true);
      expect(out.sender.cancelSignal.aborted).to.equal(true);
      await failure('ERR_LANE_DIED', () => out.sender.trySend(1));
      await failure('ERR_LANE_DIED', out.sender.send(1));
      const { items, error: end } = await reading;
      expect(items, 'what was delivered comes first').to.deep.equal([2]);
      expect(end?.code).to.equal('ERR_LANE_DIED');
      expect(await readAll(inward.anchor)).to.deep.equal({ items: [], error: undefined });
      await out.sender.close();
      expect(node.stats()).to.include({ senders: 0, anchors: 0 });
      out.anchor.controller.cancel();
      await inward.sender.close();
      await node.close();
    });
  }

  it('what the lane had delivered is read first, though its reader was busy when it died', async () => {
    const other = await nodes.make({ host: 'inline' });
    const node = await mortal();
    introduce(node, other);
    const { anchor, sender } = await openStream<number>({ consumer: node, producer: other });
    await until('it is open at both ends', () => node.stats().liveSlots === 1);
    // The write of the opening is reported in a turn of the event loop, and nothing is written before that.
    for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    for (const i of range(0, 20)) expect(sender.trySend(i)).to.equal(true);
    // The other node's lane is on this thread and works in microtasks: no turn of the event loop passes from here on.
    for (let i = 0; i < 10; i += 1) await Promise.resolve();
    const deadline = Date.now() + 10_000;
    while (node.stats().recordsInBatchesReceived < 21) if (Date.now() > deadline) expect.fail('nothing arrived');
    kill(node.workerId, 0, 'exit');
    const busyUntil = Date.now() + 100;
    while (Date.now() < busyUntil);
    const { items, error } = await readAll(anchor);
    expect(error?.code).to.equal('ERR_LANE_DIED');
    expect(items).to.deep.equal(range(0, 20));
    await sender.close();
  });

  it('calls and attaches that wait fail, and so do all later ones', async () => {
    const node = await mortal();
    peer.handlers = ['slow', '_anchor_attach'];
    peer.onAttach = () => undefined;
    node.registerPeer(peer.info);
    peer.faces(node);
    const handle = StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc');
    const waiting = [
      failure('ERR_LANE_DIED', node.unary(peer.info.instanceId, 'slow')),
      failure('ERR_LANE_DIED', node.sync(peer.info.instanceId, 'slow')),
      failure('ERR_LANE_DIED', node.typedUnary(peer.info.instanceId, 'slow', {})),
      failure('ERR_LANE_DIED', node.attachAnchor(handle)),
    ];
    await until('all are on their way', () => peer.requests.length >= 5);
    kill(node.workerId, 0, 'exit');
    await Promise.all(waiting);
    expect(node.stats()).to.include({ pendingCalls: 0, senders: 0 });
    await failure('ERR_LANE_DIED', node.unary(peer.info.instanceId, 'slow'));
    await failure('ERR_LANE_DIED', node.send(peer.info.instanceId, 'slow'));
    await failure('ERR_LANE_DIED', node.attachAnchor(handle));
    expect(node.stats()).to.include({ pendingCalls: 0, senders: 0 });
  });

  it('what was staged is gone with the lane, and who waits for room hears of it', async () => {
    const node = await mortal({ stagedBytesMax: 1_000_000 });
    peer.handlers = ['slow'];
    node.registerPeer(peer.info);
    peer.faces(node);
    const handle = node.registerData(new Uint8Array(10));
    const to = peer.info.instanceId;
    const large = new Uint8Array(600_000);
    const waiting = [
      failure('ERR_LANE_DIED', node.unary(to, 'slow', large)),
      failure('ERR_LANE_DIED', node.unary(to, 'slow', large, { awaitCapacity: true })),
      failure('ERR_LANE_DIED', node.send(to, 'slow', large, { awaitCapacity: true })),
    ];
    await until('one is on its way', () => peer.requests.some(({ handler }) => handler === 'slow'));
    kill(node.workerId, 0, 'exit');
    await Promise.all(waiting);
    await failure('ERR_LANE_DIED', node.get(handle));
    await failure('ERR_LANE_DIED', () => node.registerData(large));
    await failure('ERR_LANE_DIED', node.sync(to, 'slow', large, { awaitCapacity: true }));
  });

  it('an attached anchor whose slot nobody has opened ends too', async () => {
    const node = await mortal();
    await peer.faces(node).hello();
    const anchor = node.createAnchor<number>();
    expect((await peer.attach(anchor.handle)).ok).to.equal(true);
    const reading = readAll(anchor);
    kill(node.workerId, 0, 'exit');
    expect((await reading).error?.code).to.equal('ERR_LANE_DIED');
    expect(node.stats().anchors).to.equal(0);
  });

  it('an attach whose slot is not open yet fails', async () => {
    const node = await mortal();
    const handle = StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc');
    peer.onAttach = () => accept({ routingSessionId: 77n });
    node.registerPeer(peer.info);
    peer.faces(node);
    const attaching = range(0, 50).map(() => node.attachAnchor(handle));
    await until('the first is asked for', () => peer.attaches.length > 0);
    kill(node.workerId, 0, 'exit');
    const outcomes = await Promise.allSettled(attaching);
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason).to.include({ code: 'ERR_LANE_DIED' });
      else await outcome.value.close();
    }
    await until('no sender is left', () => node.stats().senders === 0);
  });

  it('the other lane goes on: its streams, calls and new attaches', async () => {
    const other = await nodes.make({ host: 'inline', lanes: 2 });
    const node = await mortal({ lanes: 2 });
    introduce(node, other);
    const pair = { consumer: other, producer: node };
    const streams = [await openStream<number>(pair), await openStream<number>(pair)];
    const back = { consumer: node, producer: other };
    const inward = [await openStream<number>(back), await openStream<number>(back)];
    kill(node.workerId, 1, 'exit');
    const dead = failure(
      'ERR_LANE_DIED',
      readAll(inward[1]!.anchor).then(({ error }) => Promise.reject(error)),
    );
    await until('lane 1 is gone', () => streams[1]!.sender.cancelled);
    await failure('ERR_LANE_DIED', () => streams[1]!.sender.trySend(1));
    await dead;
    await sendRange(streams[0]!.sender, 0, 10);
    await streams[0]!.sender.finalize();
    expect(await readAll(streams[0]!.anchor)).to.deep.equal({ items: range(0, 10), error: undefined });
    await sendRange(inward[0]!.sender, 0, 10);
    await inward[0]!.sender.finalize();
    expect(await readAll(inward[0]!.anchor)).to.deep.equal({ items: range(0, 10), error: undefined });
    await failure('ERR_UNKNOWN_HANDLER', node.unary(other.peerInfo, 'nobody'));
    for (const { sender } of streams) await sender.close();
    streams[1]!.anchor.controller.cancel();
    await inward[1]!.sender.close();
  });

  it('a node without its lane still serves itself, flushes, and lets its objects be ended', async () => {
    const node = await mortal();
    const other = await nodes.make({ host: 'inline' });
    introduce(node, other);
    const { sender, anchor } = await openStream<number>({ consumer: other, producer: node });
    kill(node.workerId, 0, 'exit');
    await until('the lane is gone', () => sender.cancelled);
    expect(node.flushBatch()).to.equal(undefined);
    await sender.finalize();
    await failure('ERR_CHANNEL_CLOSED', sender.finalize());
    const local = node.createAnchor<number>();
    const localSender = await node.attachAnchor<number>(local.handle);
    await localSender.send(1);
    await localSender.finalize();
    expect(await readAll(local)).to.deep.equal({ items: [1], error: undefined });
    node.registerPeer(peer.info);
    anchor.controller.cancel();
    await node.close();
  });

  it('a node closes while its lanes are dying', async () => {
    const node = await mortal({ lanes: 2 });
    kill(node.workerId, 0, 'throw');
    kill(node.workerId, 1, 'exit');
    await node.close({ timeoutMs: 500 });
  });

  it('a close ends a thread that hangs, also when another one has died', async () => {
    const node = await mortal({ lanes: 2 });
    const other = await nodes.make({ host: 'inline', lanes: 2 });
    introduce(node, other);
    const pair = { consumer: other, producer: node };
    const { sender } = nodes.keep(await openStream<number>(pair));
    const [, port] = decodeLanePorts(node.peerInfo.entries().get(ADDRESS_KEY_LANES)!);
    kill(node.workerId, 1, 'hang');
    kill(node.workerId, 0, 'exit');
    await until('lane 0 is gone', () => sender.cancelled);
    await node.close({ timeoutMs: 50 });
    expect(await answersAt(port!), 'its port is free').to.equal(false);
  });

  it('a peer of a node whose lane died keeps its other peers', async () => {
    const node = await mortal();
    const survivor = await nodes.make({ host: 'inline' });
    const third = await nodes.make({ host: 'inline' });
    introduce(node, survivor);
    introduce(third, survivor);
    const lost = await openStream<number>({ consumer: node, producer: survivor });
    kill(node.workerId, 0, 'exit');
    await failure(
      'ERR_LANE_DIED',
      readAll(lost.anchor).then(({ error }) => Promise.reject(error)),
    );
    await sendRange(lost.sender, 0, 3).catch(() => {});
    await provesAlive({ consumer: third, producer: survivor });
    await provesAlive({ consumer: survivor, producer: third });
    await lost.sender.close();
  });

  it('a lane that dies while the others are still starting is dead to its node', async () => {
    const node = await nodes.make({ host, worker: HASTY, lanes: 2, maxLaneRestarts: 0 });
    node.registerPeer(peer.info);
    await failure('ERR_LANE_DIED', node.unary(peer.info.instanceId, 'any', undefined, { timeoutMs: 2_000 }));
  });

  it('a worker that dies before it listens fails the build with a code', async () => {
    process.env.VELOMUX_TEST_STILLBORN = '1';
    try {
      const error = await failure('ERR_WORKER_FILE', Velo.create({ host, worker: STILLBORN, lanes: 2 }));
      expect(error.message).to.include('did not start');
    } finally {
      delete process.env.VELOMUX_TEST_STILLBORN;
    }
  });

  it('a worker file that is no lane fails the build with a code', async () => {
    await failure('ERR_WORKER_FILE', Velo.create({ host, worker: STILLBORN }));
  });
}

/** Whether anybody listens on a port of this host. */
async function answersAt(port: number): Promise<boolean> {
  const socket = connect({ host: '127.0.0.1', port });
  const answered = await new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
  });
  socket.destroy();
  return answered;
}

for (const host of ['piscina', 'worker'] as const) {
  describe(`the death of a lane (${host} lanes)`, () => deathSuite(host, nodesOfSuite()));
}
