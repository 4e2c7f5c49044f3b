// Nodes that find each other through a directory.

import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { expect } from 'chai';
import {
  DataHandle,
  type Discovery,
  type DiscoveryChanges,
  FileDiscovery,
  PeerInfo,
  StreamAnchorHandle,
  unaryHandler,
  type Velo,
  VeloError,
  type VeloOptions,
} from '../../lib/index.js';
import { generateInstanceId } from '../../lib/wire/worker-id.js';
import {
  failure,
  nodesOfSuite,
  pause,
  range,
  readAll,
  sendRange,
  streamSuite,
  until,
  within,
} from '../support/nodes.js';
import { directoryPerTest } from '../support/socket-files.js';
import { WirePeer } from '../support/wire-peer.js';
import { freePort, Peer } from './socket-kit.js';

/** A directory in memory that counts what it is asked. */
class Directory implements Discovery {
  readonly asked: (bigint | string)[] = [];
  readonly there = new Map<string, PeerInfo>();
  listener: (changes: DiscoveryChanges) => void = () => {};
  signal: AbortSignal | undefined;
  /** What it waits for before it answers. */
  gate: Promise<unknown> = Promise.resolve();

  async register(info: PeerInfo) {
    this.there.set(info.instanceId, info);
    const unregister = async () => {
      this.there.delete(info.instanceId);
    };
    return { unregister, [Symbol.asyncDispose]: unregister };
  }

  async resolve(workerId: bigint): Promise<PeerInfo | undefined> {
    this.asked.push(workerId);
    await this.gate;
    return [...this.there.values()].find((info) => info.workerId === workerId);
  }

  async resolveInstance(instanceId: string): Promise<PeerInfo | undefined> {
    this.asked.push(instanceId);
    await this.gate;
    return this.there.get(instanceId);
  }

  watch(listener: (changes: DiscoveryChanges) => void, signal?: AbortSignal): void {
    this.listener = listener;
    this.signal = signal;
  }
}

function serveEcho(node: Velo): void {
  node.registerHandler(
    'echo',
    unaryHandler((payload) => payload),
  );
}

function stranger(address: Uint8Array = Uint8Array.of(0x80)): PeerInfo {
  return new PeerInfo(
    generateInstanceId((length) => randomBytes(length)),
    address,
  );
}

const BYTES = Uint8Array.of(1, 2, 3);

streamSuite('nodes with a directory', (host, nodes) => {
  const files = directoryPerTest();

  it('nodes find each other through a file, by worker id and by instance id, and leave it as they close', async () => {
    const path = files.at('peers.json');
    const look = new FileDiscovery(path);
    const a = await nodes.make({ host, discovery: new FileDiscovery(path) });
    const b = await nodes.make({ host, discovery: new FileDiscovery(path) });
    const c = await nodes.make({ host, discovery: look });
    expect((await look.peers()).map(({ workerId }) => workerId)).to.have.members([a.workerId, b.workerId, c.workerId]);
    serveEcho(b);
    expect(a.stats().peers).to.equal(0);
    expect(await a.unary(b.workerId, 'echo', BYTES)).to.deep.equal(BYTES);
    expect(await c.unary(b.instanceId, 'echo', BYTES)).to.deep.equal(BYTES);
    expect([a, b, c].map((node) => node.stats().peers)).to.deep.equal([1, 2, 1]);

    const anchor = c.createAnchor<number>();
    const sender = await a.attachAnchor<number>(anchor.handle);
    await sendRange(sender, 0, 20);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: range(0, 20), error: undefined });

    await b.close();
    expect(await look.resolve(b.workerId)).to.equal(undefined);
    await Promise.all([a.close(), c.close()]);
    expect(await look.peers()).to.deep.equal([]);
    expect(files.names()).to.deep.equal(['peers.json']);
  });

  it('the owner of data, and a peer that is asked for its handlers, are found as well', async () => {
    const discovery = new Directory();
    const owner = await nodes.make({ host, discovery });
    serveEcho(owner);
    const handle = owner.registerData(BYTES);
    const askers = await Promise.all(range(0, 7).map(() => nodes.make({ host, discovery })));
    const [get, metadata, ref, list, fresh, wait, release] = askers as [Velo, Velo, Velo, Velo, Velo, Velo, Velo];
    const lease = await get.get(handle);
    expect(lease.bytes).to.deep.equal(BYTES);
    await lease.detach();
    expect((await metadata.metadata(handle)).totalLength).to.equal(BYTES.length);
    await ref.refHandle(handle);
    expect(await list.availableHandlers(owner.workerId)).to.include('echo');
    expect(await fresh.refreshHandlers(owner.instanceId)).to.include('echo');
    await wait.waitForHandler(owner.workerId, 'echo');
    await release.releaseData(handle);
    expect(discovery.asked).to.have.length(7);
  });

  it('a lookup of those takes no longer than its call, either', async () => {
    const discovery = new Directory();
    discovery.gate = new Promise(() => {});
    const node = await nodes.make({ host, discovery });
    const handle = new DataHandle(5n, 1n);
    await failure('ERR_TIMEOUT', node.get(handle, { timeoutMs: 20 }));
    await failure('ERR_TIMEOUT', node.metadata(handle, { timeoutMs: 20 }));
    await failure('ERR_TIMEOUT', node.releaseData(handle, { timeoutMs: 20 }));
    await failure('ERR_TIMEOUT', node.availableHandlers(5n, { timeoutMs: 20 }));
    await failure('ERR_TIMEOUT', node.waitForHandler(5n, 'echo', { timeoutMs: 20 }));
    await failure('ERR_ABORTED', node.get(handle, { signal: AbortSignal.timeout(20) }));
  });

  it('data is asked of an owner that only the directory knows', async () => {
    const discovery = new Directory();
    const [owner, ...readers] = await Promise.all(range(0, 5).map(() => nodes.make({ host, discovery })));
    const handle = owner!.registerData(BYTES);
    const [get, metadata, ref, release] = readers as [Velo, Velo, Velo, Velo];
    expect((await get.get(handle)).bytes).to.deep.equal(BYTES);
    await ref.refHandle(handle);
    expect((await metadata.metadata(handle)).refcount).to.equal(2);
    await release.releaseData(handle);
    // Nobody is told when a release arrives.
    while ((await owner!.metadata(handle)).refcount > 1) await pause(2);
    const gone = new DataHandle(5n, 1n);
    await failure('ERR_UNKNOWN_PEER', get.get(gone));
    discovery.gate = new Promise(() => {});
    await failure('ERR_TIMEOUT', get.get(gone, { timeoutMs: 20 }));
    await failure('ERR_TIMEOUT', get.metadata(gone, { timeoutMs: 20 }));
    await failure('ERR_ABORTED', get.refHandle(gone, { signal: AbortSignal.timeout(20) }));
  });

  it('a target that nobody knows, or the directory calls by another name, is ERR_UNKNOWN_PEER', async () => {
    const discovery = new Directory();
    const node = await nodes.make({ host, discovery });
    const error = await failure('ERR_UNKNOWN_PEER', node.unary(5n, 'echo'));
    expect(error.message).to.include('5');
    await failure('ERR_UNKNOWN_PEER', node.send('no such instance', 'echo'));
    const handle = StreamAnchorHandle.pack(6n, 1n, 'spsc');
    await failure('ERR_UNKNOWN_PEER', node.attachAnchor(handle));
    expect(discovery.asked).to.deep.equal([5n, 'no such instance', 6n]);
    discovery.resolve = async () => stranger();
    await failure('ERR_UNKNOWN_PEER', node.unary(7n, 'echo'));
    discovery.resolve = async () => 'nonsense' as unknown as PeerInfo;
    await failure('ERR_UNKNOWN_PEER', node.unary(7n, 'echo'));
    const unusable = stranger();
    discovery.there.set(unusable.instanceId, unusable);
    await failure('ERR_BAD_ADDRESS', node.unary(unusable.instanceId, 'echo'));
    expect(node.stats().peers).to.equal(0);
  });

  it('a directory that fails fails the call by code: its own, or ERR_UNKNOWN_PEER with the reason', async () => {
    const discovery = new Directory();
    const node = await nodes.make({ host, discovery });
    discovery.resolve = () => Promise.reject(new VeloError('ERR_BAD_DISCOVERY_FILE', 'rotten'));
    await failure('ERR_BAD_DISCOVERY_FILE', node.unary(5n, 'echo'));
    discovery.resolve = () => Promise.reject(new TypeError('bang'));
    const error = await failure('ERR_UNKNOWN_PEER', node.unary(5n, 'echo'));
    expect(error.message).to.include('bang');
    expect(error.cause).to.be.instanceOf(TypeError);
    discovery.resolve = () => {
      throw new TypeError('at once');
    };
    await failure('ERR_UNKNOWN_PEER', node.unary(5n, 'echo'));
  });

  it('many that wait for one peer ask once, and it is not asked again once it is known', async () => {
    const discovery = new Directory();
    const [a, b] = [await nodes.make({ host, discovery }), await nodes.make({ host, discovery })];
    serveEcho(b);
    let open = () => {};
    discovery.gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const calls = range(0, 10).map(() => a.unary(b.workerId, 'echo', BYTES));
    await pause(20);
    expect(discovery.asked).to.deep.equal([b.workerId]);
    open();
    expect(await Promise.all(calls)).to.deep.equal(range(0, 10).map(() => BYTES));
    await a.unary(b.workerId, 'echo', BYTES);
    expect(discovery.asked).to.deep.equal([b.workerId]);
  });

  it('a lookup takes no longer than its call: timeout, abort and close end the wait', async () => {
    const discovery = new Directory();
    const node = await nodes.make({ host, discovery });
    let open = () => {};
    discovery.gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const late = stranger(node.peerInfo.address);
    discovery.there.set(late.instanceId, late);
    await failure('ERR_TIMEOUT', node.unary(late.workerId, 'echo', BYTES, { timeoutMs: 20 }));
    const enough = new AbortController();
    const aborted = failure('ERR_ABORTED', node.unary(late.workerId, 'echo', BYTES, { signal: enough.signal }));
    const attach = failure(
      'ERR_ABORTED',
      node.attachAnchor(StreamAnchorHandle.pack(late.workerId, 1n, 'spsc'), { signal: enough.signal }),
    );
    enough.abort();
    await Promise.all([aborted, attach]);
    const waiting = failure('ERR_CLOSED', node.unary(late.workerId, 'echo', BYTES));
    const sending = failure('ERR_CLOSED', node.send(late.workerId, 'echo', BYTES));
    await pause(5);
    await node.close();
    await Promise.all([waiting, sending]);
    open();
    await pause(5);
    expect(node.stats().peers).to.equal(0);
  });

  it('looks up so many peers at once and no more', async () => {
    const discovery = new Directory();
    const node = await nodes.make({ host, discovery });
    let open = () => {};
    discovery.gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const calls = range(1, 1_025).map((worker) => failure('ERR_UNKNOWN_PEER', node.unary(BigInt(worker), 'echo')));
    await failure('ERR_LIMIT', node.unary(2_000n, 'echo'));
    const shared = failure('ERR_UNKNOWN_PEER', node.unary(5n, 'echo'));
    open();
    await Promise.all([...calls, shared]);
    await failure('ERR_UNKNOWN_PEER', node.unary(2_000n, 'echo'));
  });

  it('an answer to a stranger asks nobody', async () => {
    const discovery = new Directory();
    const node = await nodes.make({ host, discovery });
    let ran = 0;
    node.registerHandler(
      'echo',
      unaryHandler((payload) => {
        ran += 1;
        return payload;
      }),
    );
    const peer = await WirePeer.listen();
    try {
      discovery.there.set(peer.info.instanceId, peer.info);
      void peer.faces(node).call('echo', BYTES);
      await until('the handler ran', () => ran === 1);
      await pause(20);
      expect(discovery.asked).to.deep.equal([]);
      expect(node.stats().peers).to.equal(0);
    } finally {
      await peer.close();
    }
  });

  it('a node that cannot enter is not made, and leaves nothing behind', async () => {
    writeFileSync(files.at('peers.json'), 'damaged');
    const port = await freePort();
    const options: VeloOptions = {
      host,
      port,
      udsPath: files.at('node'),
      discovery: new FileDiscovery(files.at('peers.json')),
    };
    await failure('ERR_BAD_DISCOVERY_FILE', nodes.make(options));
    expect(files.names()).to.deep.equal(['peers.json']);
    await (await Peer.listen(port)).close();
  });

  it('a node closes although it cannot leave', async () => {
    const path = files.at('peers.json');
    const damaged = await nodes.make({ host, discovery: new FileDiscovery(path) });
    writeFileSync(path, 'damaged');
    await damaged.close();
    const discovery = new Directory();
    discovery.register = async () => {
      const unregister = () => new Promise<void>(() => {});
      return { unregister, [Symbol.asyncDispose]: unregister };
    };
    await (await nodes.make({ host, discovery })).close({ timeoutMs: 20 });
    const rude = () => {
      throw new Error('no');
    };
    discovery.register = async () => ({ unregister: rude, [Symbol.asyncDispose]: rude });
    await (await nodes.make({ host, discovery })).close();
  });
});

describe('a directory that does not let go of a node', () => {
  const nodes = nodesOfSuite();

  it('holds it no longer than a teardown may take, also when its drain might wait for ever', async () => {
    const discovery = new Directory();
    const unregister = () => new Promise<void>(() => {});
    discovery.register = async () => ({ unregister, [Symbol.asyncDispose]: unregister });
    const node = await nodes.make({ host: 'inline', discovery });
    const report = await within(15_000, node.close({ timeoutMs: Number.POSITIVE_INFINITY }));
    expect(report.drained).to.equal(true);
  });

  it('may close the node itself as that leaves', async () => {
    const discovery = new Directory();
    const again: Promise<unknown>[] = [];
    const unregister = async () => {
      again.push(node.close());
    };
    discovery.register = async () => ({ unregister, [Symbol.asyncDispose]: unregister });
    const node: Velo = await nodes.make({ host: 'inline', discovery });
    const closing = node.close();
    expect((await within(15_000, closing)).drained).to.equal(true);
    expect(again).to.have.length(1);
    expect(again[0]).to.equal(closing);
  });
});

describe('a node that registers whom its directory tells of', () => {
  const nodes = nodesOfSuite();
  const files = directoryPerTest();

  it('knows them without a call, and itself not', async () => {
    const path = files.at('peers.json');
    const a = await nodes.make({ host: 'inline', discovery: new FileDiscovery(path) });
    const watcher = await nodes.make({ host: 'inline', discovery: new FileDiscovery(path), registerDiscovered: true });
    await until('the one that was there is known', () => watcher.stats().peers === 1);
    const b = await nodes.make({ host: 'inline', discovery: new FileDiscovery(path) });
    await until('the one that came is known', () => watcher.stats().peers === 2);
    expect(
      [a, b].map((node) => node.stats().peers),
      'those that do not',
    ).to.deep.equal([0, 0]);
  });

  it('takes a new address, ignores one that cannot be used, and stops listening at its close', async () => {
    const discovery = new Directory();
    const node = await nodes.make({ host: 'inline', discovery, registerDiscovered: true });
    const peer = await WirePeer.listen();
    try {
      const old = new PeerInfo(peer.info.instanceId, node.peerInfo.address);
      discovery.listener({ added: [stranger(), node.peerInfo, old], changed: [], removed: [] });
      expect(node.stats().peers).to.equal(1);
      discovery.listener({ added: [], changed: [peer.info], removed: [old] });
      peer.faces(node).handlers.push('any');
      await node.send(peer.workerId, 'any');
      await until('it came to the new address', () => peer.requests.some(({ handler }) => handler === 'any'));
      expect(discovery.signal?.aborted).to.equal(false);
      await node.close();
      expect(discovery.signal?.aborted).to.equal(true);
      expect(discovery.there.size).to.equal(0);
    } finally {
      await peer.close();
    }
  });

  it('needs a directory that can be watched', async () => {
    const { register, resolve } = Directory.prototype;
    for (const discovery of [undefined, { register, resolve }]) {
      const options: VeloOptions = { host: 'inline', discovery, registerDiscovered: true };
      const error = await failure('ERR_INVALID_ARGUMENT', nodes.make(options));
      expect(error.message).to.include('registerDiscovered');
    }
    for (const discovery of [null, {}, { register }, 'file'])
      await failure('ERR_INVALID_ARGUMENT', nodes.make({ discovery: discovery as unknown as Discovery }));
  });
});
