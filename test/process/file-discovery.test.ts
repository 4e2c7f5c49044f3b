// Discovery in a file that several processes read and write.

import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { DiscoveryEntries, MAX_DISCOVERY_FILE_BYTES } from '../../lib/control/discovery-file.js';
import { FileLock } from '../../lib/control/file-lock.js';
import { type DiscoveryChanges, FileDiscovery, PeerInfo } from '../../lib/index.js';
import { generateInstanceId } from '../../lib/wire/worker-id.js';
import { failure, pause, until } from '../support/nodes.js';
import { directoryPerTest } from '../support/socket-files.js';

const CHILD = fileURLToPath(new URL('./discovery-child.js', import.meta.url));
const run = promisify(execFile);

function anyPeer(address: Uint8Array = Uint8Array.of(0x80)): PeerInfo {
  return new PeerInfo(
    generateInstanceId((length) => randomBytes(length)),
    address,
  );
}

describe('discovery in a file', () => {
  const directory = directoryPerTest();
  let path = '';
  let discovery: FileDiscovery;
  beforeEach(() => {
    path = directory.at('peers.json');
    discovery = new FileDiscovery(path);
  });

  /** Replaces the file as a writer of another make does: no lock, a rename. */
  function replace(...peers: PeerInfo[]): void {
    const entries = DiscoveryEntries.parse(new Uint8Array(0), path);
    for (const peer of peers) entries.add(peer);
    writeFileSync(`${path}.other`, entries.format());
    renameSync(`${path}.other`, path);
  }

  it('an entry is found by worker and by instance id until it is taken out, and leaves only the file', async () => {
    const [a, b] = [anyPeer(), anyPeer(Uint8Array.of(0x80, 1))];
    const registration = await discovery.register(a);
    await discovery.register(b);
    const other = new FileDiscovery(path);
    expect((await other.resolve(a.workerId))?.instanceId).to.equal(a.instanceId);
    expect((await other.resolveInstance(b.instanceId))?.address).to.deep.equal(b.address);
    expect(await other.peers()).to.have.length(2);
    await registration.unregister();
    await registration.unregister();
    expect(await other.resolve(a.workerId)).to.equal(undefined);
    expect(await other.resolve(b.workerId)).not.to.equal(undefined);
    expect(directory.names()).to.deep.equal(['peers.json']);
  });

  it('disposing of a registration takes it out; one that is gone already is no error', async () => {
    const info = anyPeer();
    {
      await using _registration = await discovery.register(info);
      expect(await discovery.peers()).to.have.length(1);
    }
    expect(await discovery.peers()).to.deep.equal([]);
    const registration = await discovery.register(info);
    replace();
    await registration.unregister();
    rmSync(path);
    await (await discovery.register(info)).unregister();
  });

  it('an instance enters once, also when two try at the same time', async () => {
    const info = anyPeer();
    const tries = await Promise.allSettled(
      [discovery, discovery, new FileDiscovery(path)].map((each) => each.register(info)),
    );
    expect(tries.filter(({ status }) => status === 'fulfilled')).to.have.length(1);
    for (const each of tries)
      if (each.status === 'rejected') expect(each.reason.code).to.equal('ERR_ALREADY_REGISTERED');
    await failure('ERR_ALREADY_REGISTERED', discovery.register(new PeerInfo(info.instanceId, Uint8Array.of(1))));
    expect(await discovery.peers()).to.have.length(1);
  });

  it('a missing file and an empty one hold no peers; directories are made', async () => {
    const deep = new FileDiscovery(directory.at('some/where/peers.json'));
    expect(await deep.peers()).to.deep.equal([]);
    await deep.register(anyPeer());
    expect(await deep.peers()).to.have.length(1);
    writeFileSync(path, '');
    expect(await discovery.resolve(1n)).to.equal(undefined);
    await discovery.register(anyPeer());
    expect(await discovery.peers()).to.have.length(1);
  });

  it('a damaged file is a coded error for readers and writers, and stays as it is', async () => {
    const registration = await discovery.register(anyPeer());
    for (const content of ['{"peers":', '[]', 'velo']) {
      writeFileSync(path, content);
      const error = await failure('ERR_BAD_DISCOVERY_FILE', discovery.peers());
      expect(error.message).to.include(path);
      await failure('ERR_BAD_DISCOVERY_FILE', discovery.resolve(1n));
      await failure('ERR_BAD_DISCOVERY_FILE', discovery.register(anyPeer()));
      await failure('ERR_BAD_DISCOVERY_FILE', registration.unregister());
      expect(readFileSync(path, 'utf8')).to.equal(content);
    }
    expect(directory.names(), 'no lock and no half-written file').to.deep.equal(['peers.json']);
    rmSync(path);
    await registration.unregister();
  });

  it('a file that is too large, or none at all, is a coded error', async () => {
    writeFileSync(path, ' '.repeat(MAX_DISCOVERY_FILE_BYTES + 1));
    const error = await failure('ERR_BAD_DISCOVERY_FILE', discovery.peers());
    expect(error.message).to.include(String(MAX_DISCOVERY_FILE_BYTES));
    mkdirSync(directory.at('folder'));
    await failure('ERR_BAD_DISCOVERY_FILE', new FileDiscovery(directory.at('folder')).peers());
    await failure('ERR_BAD_DISCOVERY_FILE', new FileDiscovery(directory.at('folder')).register(anyPeer()));
    await failure('ERR_BAD_DISCOVERY_FILE', new FileDiscovery(directory.at('peers.json/below')).register(anyPeer()));
  });

  it('damaged entries are counted, hide no other, and outlive a change', async () => {
    writeFileSync(path, '{"peers":[{"instance_id":"what"}, 18446744073709551615]}');
    const info = anyPeer();
    const registration = await discovery.register(info);
    expect((await discovery.resolve(info.workerId))?.instanceId).to.equal(info.instanceId);
    expect(discovery.damagedEntries).to.equal(2);
    await registration.unregister();
    expect(readFileSync(path, 'utf8')).to.include('"what"').and.include('18446744073709551615');
  });

  it('processes that write at once lose nothing, and a reader never sees half a file', async () => {
    const writers = [1, 2].map(() => run(process.execPath, [CHILD, 'churn', path]));
    let over = false;
    const done = Promise.all(writers).finally(() => {
      over = true;
    });
    let looks = 0;
    while (!over) {
      await discovery.peers();
      looks += 1;
      await pause(1);
    }
    const left = (await done).flatMap(({ stdout }) => JSON.parse(stdout) as string[]);
    expect(left).to.have.length(50);
    expect(looks).to.be.greaterThan(0);
    expect((await discovery.peers()).map(({ instanceId }) => instanceId).sort()).to.deep.equal(left.sort());
    expect(directory.names()).to.deep.equal(['peers.json']);
  });

  it('a process that died while it held the lock delays the others, and no more', async () => {
    await run(process.execPath, [CHILD, 'die', path]).catch(() => {});
    expect(directory.names()).to.deep.equal(['peers.json.lock']);
    const patient = [1, 2, 3].map(() => new FileDiscovery(path, { staleMs: 100 }));
    await Promise.all(patient.map((each) => each.register(anyPeer())));
    expect(await discovery.peers()).to.have.length(3);
    expect(directory.names()).to.deep.equal(['peers.json']);
  });

  it('so many changes wait in a process and no more', async () => {
    const lock = await FileLock.take(`${path}.lock`);
    writeFileSync(path, 'damaged');
    const waiting = Array.from({ length: 1_024 }, () =>
      failure('ERR_BAD_DISCOVERY_FILE', discovery.register(anyPeer())),
    );
    await failure('ERR_LIMIT', discovery.register(anyPeer()));
    lock.release();
    await Promise.all(waiting);
    rmSync(path);
    await discovery.register(anyPeer());
  });

  it("a lock passes from holder to holder; who lost one knows it, and releases nobody else's", async () => {
    const lock = directory.at('lock');
    const first = await FileLock.take(lock);
    const second = FileLock.take(lock, { staleMs: 10_000 });
    await pause(30);
    expect(first.held).to.equal(true);
    first.release();
    const stopped = await second;
    expect([first.held, stopped.held]).to.deep.equal([false, true]);
    first.release();
    expect(stopped.held).to.equal(true);
    const heir = await FileLock.take(lock, { staleMs: 30 });
    expect([stopped.held, heir.held]).to.deep.equal([false, true]);
    stopped.release();
    expect(heir.held).to.equal(true);
    heir.release();
    expect(directory.names()).to.deep.equal([]);
  });

  it('a lock that changes hands is not stale, however long one waits for it', async () => {
    const lock = directory.at('lock');
    let others = true;
    const passing = (async () => {
      while (others) {
        const held = await FileLock.take(lock, { staleMs: 60_000 });
        await pause(5);
        expect(held.held).to.equal(true);
        held.release();
        await pause(5);
      }
    })();
    for (let i = 0; i < 5; i += 1) {
      const mine = await FileLock.take(lock, { staleMs: 400 });
      expect(mine.held).to.equal(true);
      await pause(10);
      expect(mine.held).to.equal(true);
      mine.release();
    }
    others = false;
    await passing;
  });

  describe('watched', () => {
    const watching = new Set<AbortController>();
    afterEach(() => {
      for (const each of watching) each.abort();
      watching.clear();
    });

    function watch(pollMs = 60_000): { reports: DiscoveryChanges[]; stop(): void } {
      const reports: DiscoveryChanges[] = [];
      const ended = new AbortController();
      watching.add(ended);
      new FileDiscovery(path, { pollMs }).watch((changes) => reports.push(changes), ended.signal);
      return { reports, stop: () => ended.abort() };
    }

    it('reports who is there, who comes, changes and goes, and nothing after the end', async () => {
      const [a, b] = [anyPeer(), anyPeer()];
      replace(a);
      const { reports, stop } = watch();
      await until('the first report came', () => reports.length === 1);
      expect(reports[0]).to.deep.equal({ added: [a], changed: [], removed: [] });
      const moved = new PeerInfo(a.instanceId, Uint8Array.of(0x80, 2));
      replace(moved, b);
      await until('the second came', () => reports.length === 2);
      expect(reports[1]).to.deep.equal({ added: [b], changed: [moved], removed: [] });
      rmSync(path);
      await until('the third came', () => reports.length === 3);
      expect(reports[2]).to.deep.equal({ added: [], changed: [], removed: [moved, b] });
      stop();
      replace(a);
      await pause(60);
      expect(reports).to.have.length(3);
    });

    it('changes in quick succession are one report, and a rewrite that changes nothing is none', async () => {
      replace();
      const { reports } = watch();
      await pause(60);
      expect(reports).to.deep.equal([]);
      const peers = Array.from({ length: 20 }, () => anyPeer());
      peers.forEach((_, i) => {
        replace(...peers.slice(0, i + 1));
      });
      await until('it is reported', () => reports.length > 0);
      expect(reports).to.deep.equal([{ added: peers, changed: [], removed: [] }]);
      replace(...peers);
      await pause(60);
      expect(reports).to.have.length(1);
    });

    it('says nothing while the file is damaged, and goes on afterwards', async () => {
      const [a, b] = [anyPeer(), anyPeer()];
      replace(a);
      const { reports } = watch();
      await until('the first report came', () => reports.length === 1);
      writeFileSync(path, '{"peers":[');
      await pause(60);
      replace(b);
      await until('the second came', () => reports.length === 2);
      expect(reports[1]).to.deep.equal({ added: [b], changed: [], removed: [a] });
    });

    it('polls where there is no directory to watch, and watches it once it is there', async () => {
      path = directory.at('later/peers.json');
      const { reports } = watch(20);
      await pause(30);
      mkdirSync(directory.at('later'));
      const info = anyPeer();
      replace(info);
      await until('it is reported', () => reports.length === 1);
      expect(reports[0]!.added).to.deep.equal([info]);
    });

    it('does not keep its process alive', async () => {
      replace(anyPeer());
      const { stdout } = await run(process.execPath, [CHILD, 'watch', path], { timeout: 10_000 });
      expect(stdout).to.equal('');
    });
  });

  it('options out of range are coded errors', () => {
    for (const make of [
      () => new FileDiscovery(''),
      () => new FileDiscovery('a\0b'),
      () => new FileDiscovery(path, { pollMs: 0 }),
      () => new FileDiscovery(path, { staleMs: 2 ** 31 }),
    ])
      expect(make).to.throw().with.property('code', 'ERR_INVALID_ARGUMENT');
  });
});
