// Nodes that reach each other over Unix sockets: which way is chosen, what rides it, and what stays in the file system.

import { renameSync, rmSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { expect } from 'chai';
import { Registry } from 'prom-client';
import { type LaneHostKind, PeerInfo, StreamAnchorHandle, unaryHandler, type Velo } from '../../lib/index.js';
import { registerMetrics } from '../../lib/metrics/register.js';
import { decodeTcpEndpoints, encodeUdsPath, encodeWorkerAddress } from '../../lib/wire/address.js';
import { RECORD_OPEN_SLOT } from '../../lib/wire/batch.js';
import { ADDRESS_KEY_LANES, ADDRESS_KEY_TCP, ADDRESS_KEY_UDS } from '../../lib/wire/names.js';
import {
  failure,
  introduce,
  nodesOfSuite,
  openStream,
  pause,
  provesAlive,
  range,
  readAll,
  sendRange,
  streamSuite,
  until,
} from '../support/nodes.js';
import { Scrape } from '../support/scrape.js';
import { closed, directoryPerTest, leaveSocket, listenOn } from '../support/socket-files.js';
import { accept, recordsOf, WirePeer } from '../support/wire-peer.js';
import { kill } from './crashing-lane.js';
import { freePort, Peer } from './socket-kit.js';

/** The same node, with other entries in its address. */
function altered(info: PeerInfo, change: (entries: Map<string, Uint8Array>) => void): PeerInfo {
  const entries = info.entries();
  change(entries);
  return new PeerInfo(info.instanceId, encodeWorkerAddress(entries));
}

function withoutTcp(info: PeerInfo): PeerInfo {
  return altered(info, (entries) => entries.delete(ADDRESS_KEY_TCP));
}

function tcpPort(node: Velo): number {
  return decodeTcpEndpoints(node.peerInfo.entries().get(ADDRESS_KEY_TCP)!)[0]!.port;
}

/** All numbers of one transport that have to do with its sockets. Whole once the node is closed. */
async function countsOf(node: Velo, transport: string): Promise<{ frames: number[]; rest: number }> {
  const registry = new Registry();
  registerMetrics(node, registry);
  const own = (await Scrape.of(registry)).samples.filter(({ labels }) => labels.transport === transport);
  const frames = ['inbound', 'outbound'].map((direction) =>
    sum(own.filter(({ name, labels }) => name === 'velo_transport_frames_total' && labels.direction === direction)),
  );
  return { frames, rest: sum(own.filter(({ name }) => name !== 'velo_transport_frames_total')) };
}

function sum(samples: readonly { readonly value: number }[]): number {
  return samples.reduce((total, { value }) => total + value, 0);
}

async function echoes(from: Velo, to: Velo): Promise<void> {
  to.registerHandler(
    'echo',
    unaryHandler((payload) => payload),
  );
  expect(await from.unary(to.workerId, 'echo', Uint8Array.of(1, 2, 3))).to.deep.equal(Uint8Array.of(1, 2, 3));
}

streamSuite('nodes on Unix sockets', (host, nodes) => {
  const directory = directoryPerTest();
  let peer: WirePeer | undefined;
  afterEach(async () => {
    await peer?.close();
    peer = undefined;
  });

  for (const lanes of [1, 4]) {
    it(`messages and streams go over the sockets alone, with ${lanes} lane(s)`, async () => {
      const a = await nodes.make({ host, lanes, udsPath: directory.at('a') });
      const b = await nodes.make({ host, lanes, udsPath: directory.at('b') });
      const files = (name: string) => range(0, lanes).map((lane) => (lane === 0 ? name : `${name}.${lane}`));
      expect(directory.names()).to.deep.equal([...files('a'), ...files('b')]);
      a.registerPeer(withoutTcp(b.peerInfo));
      b.registerPeer(withoutTcp(a.peerInfo));
      await echoes(a, b);
      await echoes(b, a);
      const streams = await Promise.all(
        range(0, lanes).map((lane) => openStream<number>({ consumer: a, producer: b }, { key: BigInt(lane) })),
      );
      const reading = streams.map(({ anchor }) => readAll(anchor));
      await Promise.all(streams.map(({ sender }) => sendRange(sender, 0, 200)));
      await Promise.all(streams.map(({ sender }) => sender.finalize()));
      for (const read of reading) expect(await read).to.deep.equal({ items: range(0, 200), error: undefined });
      expect(a.stats()).to.include({ droppedWrongHome: 0, droppedUnknownPeer: 0, connectFailures: 0 });
      await Promise.all([a.close(), b.close()]);
      expect(directory.names()).to.deep.equal([]);
      for (const node of [a, b]) {
        expect(await countsOf(node, 'tcp')).to.deep.equal({ frames: [0, 0], rest: 0 });
        for (const frames of (await countsOf(node, 'uds')).frames) expect(frames).to.be.greaterThan(lanes);
        expect(node.stats().spoofSuspected).to.equal(0);
      }
    });
  }

  it('nodes with different numbers of lanes find each other lane by lane', async () => {
    const a = await nodes.make({ host, lanes: 3, udsPath: directory.at('a') });
    const b = await nodes.make({ host, lanes: 2, udsPath: directory.at('b') });
    introduce(a, b);
    for (const key of [0n, 1n, 2n]) {
      for (const [consumer, producer] of [
        [a, b],
        [b, a],
      ] as const) {
        const { anchor, sender } = await openStream<number>({ consumer, producer }, { key });
        await sendRange(sender, 0, 50);
        await sender.finalize();
        expect(await readAll(anchor)).to.deep.equal({ items: range(0, 50), error: undefined });
      }
    }
    expect(a.stats().droppedWrongHome + b.stats().droppedWrongHome).to.equal(0);
  });

  it('a peer that has one socket and no lanes gets every lane over it, and nothing over TCP', async () => {
    peer = await WirePeer.listen({ udsPath: directory.at('peer') });
    const node = await nodes.make({ host, lanes: 4, udsPath: directory.at('node') });
    node.registerPeer(peer.info);
    peer.faces(node).onAttach = ({ laneKey }) => accept({ routingSessionId: 70n + laneKey!, lane: Number(laneKey) });
    for (const lane of [0, 1, 3]) {
      const handle = StreamAnchorHandle.pack(peer.workerId, BigInt(5 + lane), 'spsc');
      const sender = await node.attachAnchor<number>(handle, { key: BigInt(lane) });
      await sender.finalize();
      await until('the slot is opened', () => recordsOf(peer!, RECORD_OPEN_SLOT).some((open) => open.lane === lane));
    }
    expect(peer.accepted).to.deep.equal({ tcp: 0, uds: 3 });
  });

  it('a peer whose lanes all have sockets is dialed lane by lane; one missing, and everything goes over TCP', async () => {
    for (const lanes of [3, 4]) {
      peer = await WirePeer.listen({ udsPath: directory.at('peer'), lanes });
      // Three of them stand, whatever it publishes.
      const others = [await listenOn(directory.at('peer.1')), await listenOn(directory.at('peer.2'))];
      let onOthers = 0;
      for (const other of others)
        other.on('connection', (socket) => {
          onOthers += 1;
          socket.on('error', () => {}).destroy();
        });
      const node = await nodes.make({ host, lanes: 4, udsPath: directory.at('node') });
      node.registerPeer(peer.info);
      peer.faces(node).onAttach = () => accept({ routingSessionId: 70n, lane: 1 });
      const sender = await node
        .attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'))
        .catch(() => {});
      await until('both lanes are dialed', () => peer!.accepted.uds + peer!.accepted.tcp + onOthers >= 2);
      if (lanes === 3)
        expect({ ...peer.accepted, onOthers: onOthers > 0 }).to.deep.equal({ tcp: 0, uds: 1, onOthers: true });
      else expect({ ...peer.accepted, onOthers }).to.deep.equal({ tcp: 2, uds: 0, onOthers: 0 });
      await sender?.close();
      await Promise.all([node.close({ timeoutMs: 0 }), peer.close(), ...others.map(closed)]);
      peer = undefined;
    }
  });

  it('a peer whose socket is not to be seen, or is none, is reached over TCP', async () => {
    const udsPath = directory.at('peer');
    for (const instead of ['nothing', 'a file'] as const) {
      peer = await WirePeer.listen({ udsPath });
      unlinkSync(udsPath);
      if (instead === 'a file') writeFileSync(udsPath, '');
      const node = await nodes.make({ host, udsPath: directory.at('node') });
      node.registerPeer(peer.info);
      peer.faces(node).handlers.push('any');
      await node.send(peer.workerId, 'any');
      expect(peer.accepted, instead).to.deep.equal({ tcp: 1, uds: 0 });
      await Promise.all([node.close(), peer.close()]);
      rmSync(udsPath, { force: true });
    }
    peer = undefined;
  });

  it('a path that no socket address holds, or that is none, is as good as none', async () => {
    peer = await WirePeer.listen();
    const node = await nodes.make({ host, udsPath: directory.at('node') });
    const entry = (value: Uint8Array) => altered(peer!.info, (entries) => entries.set(ADDRESS_KEY_UDS, value));
    peer.faces(node).handlers.push('any');
    for (const value of [
      encodeUdsPath('x'.repeat(300)),
      encodeUdsPath('/a\0b'),
      encodeUdsPath(''),
      Uint8Array.of(255),
    ]) {
      node.registerPeer(entry(value));
      await node.send(peer.workerId, 'any');
    }
    expect(peer.accepted).to.deep.equal({ tcp: 1, uds: 0 });
  });

  it('a node without a Unix socket uses none: over TCP, and ERR_BAD_ADDRESS where there is no TCP', async () => {
    const a = await nodes.make({ host });
    const b = await nodes.make({ host, udsPath: directory.at('b') });
    const refused = await failure('ERR_BAD_ADDRESS', () => a.registerPeer(withoutTcp(b.peerInfo)));
    expect(refused.message).to.include(b.instanceId);
    introduce(a, b);
    await provesAlive({ consumer: a, producer: b });
    await provesAlive({ consumer: b, producer: a });
  });

  it('a peer without TCP whose socket is not there is ERR_BAD_ADDRESS', async () => {
    const a = await nodes.make({ host, udsPath: directory.at('a') });
    const b = await nodes.make({ host, udsPath: directory.at('b') });
    unlinkSync(directory.at('b'));
    await failure('ERR_BAD_ADDRESS', () => a.registerPeer(withoutTcp(b.peerInfo)));
    await leaveSocket(directory.at('b'));
    // Whether somebody listens there is seen when it is dialed.
    a.registerPeer(withoutTcp(b.peerInfo));
    const error = await failure('ERR_CONNECT_FAILED', a.unary(b.workerId, 'any'));
    expect(error.message).to.include(`uds://${directory.at('b')}`);
  });

  it('registering a peer again chooses again', async () => {
    peer = await WirePeer.listen({ udsPath: directory.at('peer') });
    const { info } = peer;
    renameSync(directory.at('peer'), directory.at('moved'));
    const node = await nodes.make({ host, udsPath: directory.at('node') });
    peer.faces(node).handlers.push('any');
    node.registerPeer(info);
    await node.send(peer.workerId, 'any');
    expect(peer.accepted).to.deep.equal({ tcp: 1, uds: 0 });

    const moved = altered(info, (entries) => entries.set(ADDRESS_KEY_UDS, encodeUdsPath(directory.at('moved'))));
    node.registerPeer(moved);
    await node.send(peer.workerId, 'any');
    expect(peer.accepted, 'the connection that stands is kept').to.deep.equal({ tcp: 1, uds: 0 });
    const closedBefore = node.stats().connectionsClosed;
    peer.hangUp();
    await until('the node noticed', () => node.stats().connectionsClosed > closedBefore);
    await node.send(peer.workerId, 'any');
    await until('the new one stands', () => peer!.accepted.uds === 1);

    renameSync(directory.at('moved'), directory.at('peer'));
    node.registerPeer(info);
    const closedThen = node.stats().connectionsClosed;
    peer.hangUp();
    await until('the node noticed', () => node.stats().connectionsClosed > closedThen);
    await node.send(peer.workerId, 'any');
    await until('the new one stands', () => peer!.accepted.uds === 2);
    expect(peer.accepted.tcp).to.equal(1);
  });

  it('publishes its path beside its port and its lanes', async () => {
    const node = await nodes.make({ host, lanes: 2, udsPath: directory.at('node') });
    const entries = node.peerInfo.entries();
    expect([...entries.keys()].sort()).to.deep.equal([ADDRESS_KEY_TCP, ADDRESS_KEY_UDS, ADDRESS_KEY_LANES].sort());
    expect(entries.get(ADDRESS_KEY_UDS)).to.deep.equal(encodeUdsPath(directory.at('node')));
    expect(statSync(directory.at('node.1')).isSocket()).to.equal(true);
  });

  it('a stale file is replaced; a path in use is refused, and its owner serves on', async () => {
    await leaveSocket(directory.at('a'));
    await leaveSocket(directory.at('a.1'));
    const a = await nodes.make({ host, lanes: 2, udsPath: directory.at('a') });
    const error = await failure('ERR_LISTEN_FAILED', nodes.make({ host, lanes: 2, udsPath: directory.at('a') }));
    expect(error.message).to.include(directory.at('a'));
    const b = await nodes.make({ host, udsPath: directory.at('b') });
    a.registerPeer(withoutTcp(b.peerInfo));
    b.registerPeer(withoutTcp(a.peerInfo));
    await provesAlive({ consumer: a, producer: b });
  });

  it('a path that cannot be used is a coded error that names the option', async () => {
    for (const udsPath of ['relative', `/${'x'.repeat(200)}`, '/nul\0']) {
      const error = await failure('ERR_INVALID_ARGUMENT', nodes.make({ host, udsPath }));
      expect(error.message).to.include('udsPath');
    }
  });
});

describe('a node that cannot take all of its sockets', () => {
  const nodes = nodesOfSuite();
  const directory = directoryPerTest();

  for (const host of ['inline', 'piscina', 'worker'] satisfies LaneHostKind[]) {
    it(`leaves no file and no port behind (${host} lanes)`, async () => {
      const port = await freePort();
      writeFileSync(directory.at('node.2'), 'precious');
      const error = await failure(
        'ERR_LISTEN_FAILED',
        nodes.make({ host, lanes: 4, port, udsPath: directory.at('node') }),
      );
      expect(error.message).to.include(directory.at('node.2'));
      expect(directory.names()).to.deep.equal(['node.2']);
      await (await Peer.listen(port)).close();
    });
  }

  it('a lane whose port is taken leaves no file either', async () => {
    const other = await nodes.make({ host: 'inline' });
    for (const host of ['inline', 'piscina'] as const) {
      const taken = { host, lanes: 2, port: tcpPort(other), udsPath: directory.at('node') };
      await failure('ERR_LISTEN_FAILED', nodes.make(taken));
      expect(directory.names()).to.deep.equal([]);
    }
  });

  it('the file of a lane whose thread died goes with the node', async () => {
    const worker = new URL('./crashing-lane.js', import.meta.url);
    const options = { lanes: 2, worker, udsPath: directory.at('node'), maxLaneRestarts: 0 };
    const node = await nodes.make({ host: 'worker', ...options });
    kill(node.workerId, 1, 'exit');
    const refuses = async () => {
      const probe = connect({ path: directory.at('node.1') });
      const refused = await new Promise((resolve) =>
        probe.on('connect', () => resolve(false)).on('error', () => resolve(true)),
      );
      probe.destroy();
      return refused;
    };
    while (!(await refuses())) await pause(5);
    expect(directory.names()).to.deep.equal(['node', 'node.1']);
    await node.close();
    expect(directory.names()).to.deep.equal([]);
  });
});
