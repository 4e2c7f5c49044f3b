// Unix sockets between a velomux node and a real velo node: one of them, or both transports in the address.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { PeerInfo, unaryHandler } from '../../lib/index.js';
import { encodeWorkerAddress } from '../../lib/wire/address.js';
import { bothIdle, bytes, consume, expected, interop, type MixedPair } from './kit.js';
import { OperationError } from './line-process.js';
import { bytesOf, fingerprint, itemsOf } from './payload.js';

const SIZES = [0, 10, 5_000, 70_000];

describe('interop: unix sockets', () => {
  const kit = interop();
  let directory: string;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'velomux-interop-'));
  });

  afterEach(() => rm(directory, { recursive: true, force: true }));

  const path = (name: string) => join(directory, name);

  async function exchange({ node, rust }: MixedPair): Promise<void> {
    node.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    expect(fingerprint(await node.unary(rust.instanceId, 'echo', bytesOf(9, 9)))).to.deep.equal(
      fingerprint(bytesOf(9, 9)),
    );
    expect((await rust.unary(node, 'echo', { length: 9, seed: 9 })).length).to.equal(9);
    const anchor = node.createAnchor(bytes);
    const theirs = await rust.attach(anchor.handle);
    const consumed = consume(anchor);
    await rust.produce(theirs, { sizes: SIZES, seed: 1 });
    await rust.end(theirs, 'finalize');
    expect((await consumed).items).to.deep.equal(expected(SIZES, 1));
    const back = await rust.anchor();
    const ours = await node.attachAnchor(back.handle, bytes);
    for (const item of itemsOf(SIZES, 2)) await ours.send(item);
    await ours.finalize();
    expect((await rust.consume(back)).items).to.deep.equal(expected(SIZES, 2));
    await bothIdle({ node, rust });
  }

  it('an address with uds and tcp reaches a node without unix sockets over tcp', async () => {
    const pair = await kit.pair({}, { uds: path('rust.sock') });
    expect([...pair.rust.info.entries().keys()].sort()).to.deep.equal(['tcp', 'tcp-stream', 'uds']);
    expect(new TextDecoder().decode(pair.rust.info.entries().get('uds')!)).to.equal(`uds://${path('rust.sock')}`);
    await exchange(pair);
    expect(await pair.rust.metric('velo_transport_frames_total', { transport: 'uds' })).to.equal(0);
  });

  it('Rust falls back to tcp when the unix socket in our address is absent', async () => {
    const node = await kit.node();
    const rust = await kit.rust({ uds: path('rust.sock') });
    const uds = ['uds', new TextEncoder().encode(`uds://${path('absent.sock')}`)] as const;
    const both = new PeerInfo(node.instanceId, encodeWorkerAddress([uds, ...node.peerInfo.entries()]));
    node.registerPeer(rust.info);
    await rust.register(both);
    await exchange({ node, rust });
    expect(await rust.metric('velo_transport_frames_total', { transport: 'uds' })).to.equal(0);
  });

  it('Rust does not make the directory of its socket', async () => {
    const error = await kit.rust({ uds: path('absent/rust.sock') }).catch((failed: unknown) => failed);
    expect(error).to.be.instanceOf(OperationError);
    expect((error as Error).message).to.include('rust.sock');
  });

  it('both nodes on unix sockets: nothing goes over tcp', async () => {
    const pair = await kit.pair({ udsPath: path('node.sock') }, { uds: path('rust.sock') });
    await exchange(pair);
    expect(await pair.rust.metric('velo_transport_frames_total', { transport: 'tcp' })).to.equal(0);
  });

  it('a Rust node with a unix socket only', async () => {
    const pair = await kit.pair({ udsPath: path('node.sock') }, { tcp: false, uds: path('rust.sock') });
    await exchange(pair);
  });

  it('our socket file is gone before Rust registers us: tcp', async () => {
    const node = await kit.node({ udsPath: path('node.sock') });
    const rust = await kit.rust({ uds: path('rust.sock') });
    await rm(path('node.sock'));
    await rust.introduce(node);
    await exchange({ node, rust });
    expect(await rust.metric('velo_transport_frames_total', { transport: 'uds', direction: 'outbound' })).to.equal(0);
  });
});
