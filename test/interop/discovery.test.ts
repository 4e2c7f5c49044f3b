// One directory file for a velomux node and a real velo node: either enters itself, either finds the other.

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { FileDiscovery, PeerInfo, parseJson, unaryHandler } from '../../lib/index.js';
import { failure } from '../support/nodes.js';
import { bytes, consume, expected, interop } from './kit.js';
import { bytesOf, fingerprint, itemsOf } from './payload.js';

interface Entry {
  readonly instance_id: string;
  readonly worker_id: bigint;
  readonly worker_address: readonly number[];
  readonly address_checksum: bigint;
}

/** Rust writes the entries of an address in another order each time: compare them, not the bytes. */
function infoOf({ instance_id, worker_address }: Entry): PeerInfo {
  return new PeerInfo(instance_id, Uint8Array.from(worker_address));
}

describe('interop: a directory of peers in a file', () => {
  const kit = interop();
  let directory: string;
  let file: string;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'velomux-interop-'));
    file = join(directory, 'peers.json');
  });

  afterEach(() => rm(directory, { recursive: true, force: true }));

  async function entries(): Promise<Entry[]> {
    return (parseJson(await readFile(file)) as unknown as { peers: Entry[] }).peers;
  }

  for (const first of ['rust', 'velomux'] as const) {
    it(`${first} writes first: both are in it, and each finds the other by worker`, async () => {
      const early = first === 'rust' ? await kit.rust({ discovery: file }) : undefined;
      const node = await kit.node({ discovery: new FileDiscovery(file) });
      const rust = early ?? (await kit.rust({ discovery: file }));
      node.registerHandler(
        'echo',
        unaryHandler((payload) => payload),
      );
      const written = await entries();
      for (const { peerInfo } of [node, { peerInfo: rust.info }]) {
        const entry = written.find(({ instance_id }) => instance_id === peerInfo.instanceId)!;
        expect(BigInt(entry.worker_id)).to.equal(peerInfo.workerId);
        expect(infoOf(entry).entries()).to.deep.equal(peerInfo.entries());
      }
      expect(written).to.have.length(2);

      const answer = await node.unary(rust.info.workerId, 'echo', bytesOf(9, 9));
      expect(fingerprint(answer)).to.deep.equal(fingerprint(bytesOf(9, 9)));
      const theirs = await rust.op<{ length: number }>('unary', { worker: node.workerId, handler: 'echo', length: 7 });
      expect(theirs.length).to.equal(7);

      await rust.op('leaveDirectory');
      expect((await entries()).map(({ instance_id }) => instance_id)).to.deep.equal([node.instanceId]);
      await node.close();
      expect(await entries()).to.deep.equal([]);
    });
  }

  it('an attach finds its anchor’s node in it', async () => {
    const rust = await kit.rust({ discovery: file });
    const node = await kit.node({ discovery: new FileDiscovery(file) });
    const anchor = await rust.anchor();
    const sender = await node.attachAnchor(anchor.handle, bytes);
    for (const item of itemsOf([1, 2], 1)) await sender.send(item);
    await sender.finalize();
    expect((await rust.consume(anchor)).items).to.deep.equal(expected([1, 2], 1));
    const ours = node.createAnchor(bytes);
    const theirs = await rust.attach(ours.handle);
    await rust.produce(theirs, { sizes: [3], seed: 2 });
    await rust.end(theirs, 'finalize');
    expect((await consume(ours)).items).to.deep.equal(expected([3], 2));
  });

  it('the checksum of an address is the one that Rust writes', async () => {
    await kit.rust({ discovery: file });
    const [theirs] = await entries();
    const other = join(directory, 'other.json');
    await new FileDiscovery(other).register(infoOf(theirs!));
    const [ours] = (parseJson(await readFile(other)) as unknown as { peers: Entry[] }).peers;
    expect(ours).to.deep.equal(theirs);
  });

  it('an empty file is no peers for us; Rust refuses to start on it', async () => {
    await writeFile(file, '');
    const node = await kit.node({ discovery: new FileDiscovery(file) });
    await failure('ERR_UNKNOWN_PEER', node.unary(12345n, 'echo'));
    await node.close();
    await writeFile(file, '');
    const error = await kit.rust({ discovery: file }).catch((failed: unknown) => failed);
    expect((error as Error).message).to.include('Failed to parse discovery file');
  });
});
