// What comes after the death of a lane: a new one on the same port, that knows every peer; streams and calls work again, and the other
// ends of the streams that died hear of it at once, without a watchdog.

import { expect } from 'chai';
import { StreamAnchorHandle, unaryHandler, type Velo, type VeloOptions } from '../../lib/index.js';
import { decodeLanePorts } from '../../lib/wire/address.js';
import { RECORD_DATA, RECORD_OPEN_SLOT } from '../../lib/wire/batch.js';
import { ADDRESS_KEY_LANES, HANDLER_STREAM_CANCEL } from '../../lib/wire/names.js';
import { CuttingProxy } from '../support/cutting-proxy.js';
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
  within,
} from '../support/nodes.js';
import { directoryPerTest } from '../support/socket-files.js';
import { accept, recordsOf, WirePeer } from '../support/wire-peer.js';
import { kill } from './crashing-lane.js';

const MORTAL = new URL('./crashing-lane.js', import.meta.url);
/** Far below what a watchdog of the default interval takes. */
const PROMPT_MS = 10_000;

const echo = unaryHandler((payload) => payload);

function restarted(node: Velo, times = 1): Promise<void> {
  return until(`lane ${times} is there`, () => node.stats().laneRestarts === times);
}

async function answers(from: Velo, to: Velo): Promise<void> {
  const bytes = new Uint8Array([1, 2, 3]);
  expect(await from.unary(to.instanceId, 'echo', bytes)).to.deep.equal(bytes);
}

function restartSuite(host: 'piscina' | 'worker', nodes: Nodes): void {
  const mortal = (options: VeloOptions = {}) => nodes.make({ host, worker: MORTAL, ...options });

  it('streams and calls work again both ways, with the peers and the port of before', async () => {
    const other = await nodes.make({ host: 'inline' });
    const node = await mortal();
    introduce(node, other);
    for (const each of [node, other]) each.registerHandler('echo', echo);
    await provesAlive({ consumer: other, producer: node });
    await provesAlive({ consumer: node, producer: other });
    const before = node.stats();
    const waiting = failure('ERR_LANE_DIED', node.unary(other.instanceId, 'never', undefined, { timeoutMs: 60_000 }));
    other.registerHandler(
      'never',
      unaryHandler(() => new Promise<Uint8Array>(() => {})),
    );
    await until('the call waits', () => node.stats().pendingCalls > 0);
    kill(node.workerId, 0, 'exit');
    await waiting;
    await restarted(node);
    await provesAlive({ consumer: other, producer: node });
    await provesAlive({ consumer: node, producer: other });
    await answers(node, other);
    await answers(other, node);
    const after = node.stats();
    expect(after.batchesSent, 'counters only grow').to.be.greaterThan(before.batchesSent);
    expect(after.recordsSent.data).to.be.greaterThan(before.recordsSent.data);
    expect(after.liveSlots).to.equal(0);
    expect([after.droppedUnknownPeer, other.stats().droppedStaleEpoch]).to.deep.equal([0, 0]);
  });

  it('both ends of the streams that died hear of it at once, and other streams go on', async () => {
    const other = await nodes.make({ host: 'inline', lanes: 2 });
    const node = await mortal({ lanes: 2 });
    introduce(node, other);
    const streams = [];
    for (let i = 0; i < 4; i += 1)
      streams.push({ ...(await openStream<number>({ consumer: other, producer: node })), lane: i % 2 });
    const inward = [];
    for (let i = 0; i < 4; i += 1)
      inward.push({ ...(await openStream<number>({ consumer: node, producer: other })), lane: i % 2 });
    for (const { sender } of [...streams, ...inward]) await sendRange(sender, 0, 3);
    for (const { anchor } of [...streams, ...inward]) expect(await take(anchor, 3)).to.deep.equal(range(0, 3));
    kill(node.workerId, 1, 'exit');
    for (const { anchor, sender, lane } of streams) {
      if (lane === 0) continue;
      expect((await within(PROMPT_MS, readAll(anchor))).error?.code).to.equal('ERR_SENDER_DROPPED');
      await failure('ERR_LANE_DIED', sender.ready());
      await sender.close();
    }
    for (const { anchor, sender, lane } of inward) {
      if (lane === 0) continue;
      expect((await readAll(anchor)).error?.code).to.equal('ERR_LANE_DIED');
      await until('its sender is cancelled', () => sender.cancelled);
      await sender.close();
    }
    for (const { anchor, sender, lane } of [...streams, ...inward]) {
      if (lane === 1) continue;
      await sendRange(sender, 3, 6);
      await sender.finalize();
      expect(await readAll(anchor)).to.deep.equal({ items: range(3, 6), error: undefined });
    }
    expect([node.stats().watchdogFirings, other.stats().watchdogFirings]).to.deep.equal([0, 0]);
    await until('nothing is live', () => node.stats().liveSlots + other.stats().liveSlots === 0);
    for (let i = 0; i < 4; i += 1) await provesAlive({ consumer: node, producer: other });
  });

  it('senders of a peer are cancelled though the lane that died is the one of messages', async () => {
    const other = await nodes.make({ host: 'inline' });
    const node = await mortal();
    introduce(node, other);
    const inward = await openStream<number>({ consumer: node, producer: other });
    const outward = await openStream<number>({ consumer: other, producer: node });
    kill(node.workerId, 0, 'throw');
    expect((await within(PROMPT_MS, readAll(outward.anchor))).error?.code).to.equal('ERR_SENDER_DROPPED');
    await until('it is cancelled', () => inward.sender.cancelled);
    expect((await readAll(inward.anchor)).error?.code).to.equal('ERR_LANE_DIED');
    await inward.sender.close();
    await outward.sender.close();
  });

  it('the new epoch is above the old one, and shown by a batch without a record', async () => {
    const node = await mortal();
    const peer = await WirePeer.listen();
    try {
      await peer.faces(node).hello();
      const anchor = node.createAnchor<number>();
      expect((await peer.attach(anchor.handle)).ok).to.equal(true);
      peer.onAttach = () => accept({ routingSessionId: 77n });
      const sender = await node.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
      await sender.send(1);
      await until('a record is there', () => recordsOf(peer, RECORD_DATA).length > 0);
      const { epoch } = peer.batches[0]!;
      const known = peer.batches.length;
      kill(node.workerId, 0, 'exit');
      await until('the new epoch is shown', () => peer.batches.length > known);
      const shown = peer.batches[known]!;
      expect(shown.records).to.deep.equal([]);
      expect(shown.epoch > epoch).to.equal(true);
      expect(shown.batchSeq).to.equal(0);
      await until('the attached sender is cancelled', () =>
        peer.requests.some(({ handler }) => handler === HANDLER_STREAM_CANCEL),
      );
      const next = await node.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
      await until('a slot is opened', () => recordsOf(peer, RECORD_OPEN_SLOT).length === 2);
      const opened = peer.batches.at(-1)!;
      expect([opened.epoch, opened.batchSeq]).to.deep.equal([shown.epoch, 1]);
      await next.close();
      await sender.close();
      await failure(
        'ERR_LANE_DIED',
        readAll(anchor).then(({ error }) => Promise.reject(error)),
      );
    } finally {
      await peer.close();
    }
  });

  it('a thread that blocks in a send while its lane dies is woken with the error', async () => {
    const node = await mortal({ laneSilenceMs: 0 });
    const other = await nodes.make({ host: 'piscina', mux: { initialCredit: 1, slotByteBudget: 16 } });
    introduce(node, other);
    const { sender, anchor } = await openStream<number>({ consumer: other, producer: node });
    const started = Date.now();
    kill(node.workerId, 0, 'exit');
    await failure('ERR_LANE_DIED', () => {
      for (let i = 0; ; i += 1) sender.sendBlocking(i, 60_000);
    });
    expect(Date.now() - started, 'not by its timeout').to.be.lessThan(60_000);
    await sender.close();
    await within(PROMPT_MS, readAll(anchor));
  });

  it('what is staged from then on is kept and pulled, and waits for room again', async () => {
    const node = await mortal({ stagedBytesMax: 1_000_000 });
    const other = await nodes.make({ host: 'inline' });
    introduce(node, other);
    other.registerHandler('echo', echo);
    const lost = node.registerData(new Uint8Array(10));
    kill(node.workerId, 0, 'exit');
    await restarted(node);
    await failure('ERR_UNKNOWN_DATA', node.get(lost));
    const large = new Uint8Array(600_000).fill(7);
    const calls = [1, 2, 3].map(() => node.unary(other.instanceId, 'echo', large, { awaitCapacity: true }));
    for (const answer of await Promise.all(calls)) expect(answer.length).to.equal(large.length);
    const lease = await node.get(node.registerData(large.subarray(0, 100)));
    expect(lease.bytes.length).to.equal(100);
    await lease.release();
  });

  it('a lane that dies again and again stays dead in the end', async () => {
    const node = await mortal({ maxLaneRestarts: 2 });
    const other = await nodes.make({ host: 'inline' });
    introduce(node, other);
    for (let death = 1; death <= 2; death += 1) {
      kill(node.workerId, 0, 'exit');
      await restarted(node, death);
      await provesAlive({ consumer: other, producer: node });
    }
    const { sender } = await openStream<number>({ consumer: other, producer: node });
    kill(node.workerId, 0, 'exit');
    await until('it is dead', () => sender.cancelled);
    await failure('ERR_LANE_DIED', node.unary(other.instanceId, 'echo'));
    await failure('ERR_LANE_DIED', node.attachAnchor(other.createAnchor().handle));
    expect(node.stats().laneRestarts).to.equal(2);
    await sender.close();
  });

  it('a lane that hangs is ended and replaced', async () => {
    const node = await mortal({ laneSilenceMs: 1_000, lanes: 2 });
    const other = await nodes.make({ host: 'inline', lanes: 2 });
    introduce(node, other);
    const { sender, anchor } = await openStream<number>({ consumer: other, producer: node });
    kill(node.workerId, 0, 'hang');
    await restarted(node);
    const error = await failure('ERR_LANE_DIED', sender.send(1));
    expect(error.message).to.include('laneSilenceMs');
    expect((await within(PROMPT_MS, readAll(anchor))).error?.code).to.equal('ERR_SENDER_DROPPED');
    for (let i = 0; i < 2; i += 1) await provesAlive({ consumer: other, producer: node });
    await sender.close();
  });

  it('a cancel that died with its lane is said by the next one', async () => {
    const node = await mortal({ laneSilenceMs: 1_000 });
    const peer = await WirePeer.listen();
    try {
      await peer.faces(node).hello();
      const anchor = node.createAnchor<number>();
      await peer.open(anchor.handle, 0);
      await until('it is open', () => node.stats().liveSlots === 1);
      kill(node.workerId, 0, 'hang');
      // Long enough for a thread to take up its order.
      await pause(200);
      anchor.controller.cancel();
      await restarted(node);
      await until('the sender hears', () => peer.requests.some(({ handler }) => handler === HANDLER_STREAM_CANCEL));
      expect(node.stats()).to.include({ anchors: 0, liveSlots: 0 });
    } finally {
      await peer.close();
    }
  });

  it('a cancel that its lane had written, but that did not arrive before it died, is said by the next one', async () => {
    const node = await mortal();
    const other = await nodes.make({ host: 'inline' });
    const proxy = await CuttingProxy.before(other.peerInfo);
    try {
      node.registerPeer(proxy.info);
      other.registerPeer(node.peerInfo);
      // Dials before the other one says where it really is.
      await node.refreshHandlers(other.instanceId);
      const { anchor, sender } = await openStream<number>({ consumer: node, producer: other });
      await until('it is open', () => node.stats().liveSlots === 1);
      proxy.lose();
      anchor.cancel();
      await until('it is lost', () => proxy.lostBytes > 0);
      await until('the lane is done with it', () => node.stats().liveSlots === 0);
      kill(node.workerId, 0, 'exit');
      await restarted(node);
      await until('the sender hears', () => sender.cancelled);
      await sender.close();
    } finally {
      await proxy.close();
    }
  });

  it('a node closes while a lane is being replaced', async () => {
    for (const death of ['exit', 'throw'] as const) {
      const node = await mortal({ lanes: 2 });
      const other = await nodes.make({ host: 'inline' });
      introduce(node, other);
      const { sender } = await openStream<number>({ consumer: other, producer: node });
      kill(node.workerId, 0, death);
      await until('it died', () => sender.cancelled);
      await within(PROMPT_MS, node.close({ timeoutMs: 2_000 }));
    }
  });

  it('every lane listens where it did', async () => {
    const node = await mortal({ lanes: 2 });
    const ports = decodeLanePorts(node.peerInfo.entries().get(ADDRESS_KEY_LANES)!);
    for (const lane of [0, 1]) kill(node.workerId, lane, 'exit');
    await restarted(node, 2);
    const late = await nodes.make({ host: 'inline', lanes: 2 });
    late.registerPeer(node.peerInfo);
    for (let i = 0; i < 4; i += 1) await provesAlive({ consumer: node, producer: late });
    expect(decodeLanePorts(node.peerInfo.entries().get(ADDRESS_KEY_LANES)!)).to.deep.equal(ports);
  });
}

for (const host of ['piscina', 'worker'] as const) {
  describe(`a lane that takes the place of a dead one (${host} lanes)`, () => restartSuite(host, nodesOfSuite()));
}

describe('a lane that takes the place of a dead one, over Unix sockets', () => {
  const nodes = nodesOfSuite();
  const directory = directoryPerTest();

  it('takes its socket file too', async () => {
    const udsPath = directory.at('node');
    const node = await nodes.make({ host: 'worker', worker: MORTAL, udsPath });
    const other = await nodes.make({ host: 'inline', udsPath: directory.at('other') });
    introduce(node, other);
    await provesAlive({ consumer: node, producer: other });
    kill(node.workerId, 0, 'exit');
    await restarted(node);
    await provesAlive({ consumer: node, producer: other });
    await provesAlive({ consumer: other, producer: node });
    expect(node.stats().inboundRefused).to.equal(0);
  });
});
