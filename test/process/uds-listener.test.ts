// A listener on a Unix socket: whose path it takes, whose it leaves alone, and what it leaves behind.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, renameSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { VeloError } from '../../lib/errors.js';
import { OutgoingConnection } from '../../lib/lanes/connection.js';
import { connectionMetrics } from '../../lib/lanes/connection-metrics.js';
import type { FrameSource } from '../../lib/lanes/frame-intake.js';
import { Listener, type ListenerOptions } from '../../lib/lanes/listener.js';
import { MAX_SOCKET_PATH_BYTES, socketPathFault } from '../../lib/lanes/socket-file.js';
import { failure } from '../support/nodes.js';
import { closed, directoryPerTest, leaveSocket, listenOn } from '../support/socket-files.js';
import { NO_HOOKS, numberedFrame, RecordedFrame, turns, until } from './socket-kit.js';

describe('a listener on a Unix socket', () => {
  const directory = directoryPerTest();
  let metrics = connectionMetrics();
  let listeners: Listener[] = [];
  let sources: FrameSource[] = [];
  let path = '';

  function listener(options: Partial<ListenerOptions> = {}): Listener {
    const onFrame = (...[, , , , , , source]: Parameters<ListenerOptions['hooks']['onFrame']>) => sources.push(source);
    const made = new Listener({ metrics, hooks: { onFrame }, ...options });
    listeners.push(made);
    return made;
  }

  async function sendsTo(to: string): Promise<void> {
    const connection = new OutgoingConnection({ to: { path: to }, metrics: connectionMetrics(), hooks: NO_HOOKS });
    const frame = new RecordedFrame(numberedFrame(1));
    connection.submit(frame);
    const before = sources.length;
    await until('the frame is written and came', () => frame.events.includes('written') && sources.length > before);
    await connection.close({ drain: true });
  }

  beforeEach(() => {
    metrics = connectionMetrics();
    sources = [];
    listeners = [];
    path = directory.at('node.sock');
  });
  afterEach(async () => {
    await Promise.all(listeners.map((each) => each.close()));
  });

  it('carries frames, leaves one file while it listens and none afterwards', async () => {
    const node = listener();
    const file = await node.listenAt(path);
    expect(file.path).to.equal(path);
    expect(directory.names()).to.deep.equal(['node.sock']);
    expect(statSync(path).isSocket()).to.equal(true);
    await sendsTo(path);
    expect(sources[0]).to.include({ dialed: false, remote: `a client of uds://${path}` });
    expect(node.port).to.equal(0);
    await failure('ERR_INVALID_STATE', node.listenAt(path));
    await node.close();
    expect(directory.names()).to.deep.equal([]);
    await failure('ERR_CLOSED', node.listenAt(path));
  });

  it('replaces the file of a listener that is gone', async () => {
    await leaveSocket(path);
    await listener().listenAt(path);
    await sendsTo(path);
    expect(directory.names()).to.deep.equal(['node.sock']);
  });

  it('leaves a path alone where somebody answers, and serves on', async () => {
    await listener().listenAt(path);
    const error = await failure('ERR_LISTEN_FAILED', listener().listenAt(path));
    expect(error.message).to.contain(path).and.contain('somebody listens there');
    await sendsTo(path);
    expect(directory.names()).to.deep.equal(['node.sock']);
  });

  it('leaves a socket alone of which it cannot tell whether it is in use', async () => {
    const child = fork(fileURLToPath(new URL('./deaf-listener.js', import.meta.url)), [path]);
    const fillers: Socket[] = [];
    try {
      await once(child, 'message');
      child.kill('SIGSTOP');
      // The stopped process accepts nothing: once its backlog is full, further ones are turned away at once.
      let full = false;
      while (!full) {
        const filler = connect({ path });
        fillers.push(filler);
        full = await Promise.race([
          once(filler, 'connect').then(() => false),
          new Promise<boolean>((resolve) => filler.on('error', () => resolve(true))),
        ]).catch(() => true);
      }
      const error = await failure('ERR_LISTEN_FAILED', listener().listenAt(path));
      expect(error.message).to.contain('nobody can tell if it is in use');
      expect(existsSync(path)).to.equal(true);
    } finally {
      for (const filler of fillers) filler.destroy();
      child.kill('SIGKILL');
    }
  });

  it('leaves what is no socket alone, and may try elsewhere then', async () => {
    writeFileSync(path, 'precious');
    mkdirSync(directory.at('folder'));
    const node = listener();
    for (const taken of [path, directory.at('folder')]) {
      const error = await failure('ERR_LISTEN_FAILED', node.listenAt(taken));
      expect(error.message).to.contain(taken).and.contain('not a socket');
    }
    expect(readFileSync(path, 'utf8')).to.equal('precious');
    await node.listenAt(directory.at('other.sock'));
    await node.close();
    expect(directory.names()).to.deep.equal(['folder', 'node.sock']);
  });

  it('makes no directory', async () => {
    const error = await failure('ERR_LISTEN_FAILED', listener().listenAt(directory.at('nowhere/node.sock')));
    expect(error.message).to.contain(directory.at('nowhere/node.sock'));
    expect(directory.names()).to.deep.equal([]);
  });

  it('of several that start at once on one path, one listens', async () => {
    await leaveSocket(path);
    const started = await Promise.allSettled(Array.from({ length: 6 }, () => listener().listenAt(path)));
    const failed = started.filter((each) => each.status === 'rejected');
    expect(failed).to.have.length(5);
    for (const { reason } of failed) expect(VeloError.is(reason, 'ERR_LISTEN_FAILED'), String(reason)).to.equal(true);
    await sendsTo(path);
    expect(directory.names()).to.deep.equal(['node.sock']);
  });

  it('does not remove a file that is not its own any more', async () => {
    const node = listener();
    await node.listenAt(path);
    unlinkSync(path);
    const heir = await listenOn(directory.at('heir'));
    renameSync(directory.at('heir'), path);
    await node.close();
    expect(directory.names()).to.deep.equal(['node.sock']);
    const client = connect({ path });
    await once(client, 'connect');
    client.destroy();
    await closed(heir);
  });

  it('a close while the path is being taken leaves nothing behind', async () => {
    for (const wait of [0, 1, 2, 3, 5]) {
      await leaveSocket(path);
      const node = listener();
      const pending = node.listenAt(path).then(
        () => 'listens',
        (error: unknown) => error,
      );
      await turns(wait);
      await node.close();
      const outcome = await pending;
      if (outcome !== 'listens') expect(VeloError.is(outcome, 'ERR_CLOSED'), String(outcome)).to.equal(true);
      const left = directory.names();
      // Only the file that stood there before, if it had not come to that.
      expect(['', 'node.sock']).to.include(left.join());
      if (left.length > 0) {
        const [error] = (await once(connect({ path }), 'error')) as [NodeJS.ErrnoException];
        expect(error.code).to.equal('ECONNREFUSED');
        unlinkSync(path);
      }
    }
  });

  it('an accept error gives the path up for a moment and takes it again', async () => {
    const servers: Server[] = [];
    const node = listener({
      createServer: ((...args: Parameters<typeof createServer>) => {
        const server = createServer(...args);
        servers.push(server);
        return server;
      }) as typeof createServer,
    });
    await node.listenAt(path);
    const held: Socket = connect({ path });
    await until('it stands', () => node.connections.size === 1);
    servers[0]!.emit('error', Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' }));
    expect(directory.names()).to.deep.equal([]);
    expect(metrics.acceptErrors).to.equal(1);
    await until('it listens again', () => existsSync(path));
    await sendsTo(path);
    held.write(numberedFrame(2));
    await until('the connection that stood is still served', () => sources.length === 2);
    await node.close();
    held.destroy();
    expect(directory.names()).to.deep.equal([]);
    expect(servers.some((server) => server.listening)).to.equal(false);
  });

  it('keeps trying while somebody else has the path, and takes it once it is free', async () => {
    let first: Server | undefined;
    const node = listener({
      createServer: ((...args: Parameters<typeof createServer>) => {
        const server = createServer(...args);
        first ??= server;
        return server;
      }) as typeof createServer,
    });
    await node.listenAt(path);
    first!.emit('error', new Error('accept failed'));
    const thief = await listenOn(path);
    await until('it was refused', () => metrics.acceptErrors >= 2);
    await closed(thief);
    await until('it listens again', () => existsSync(path));
    await sendsTo(path);
  });

  it('says what is wrong with a path', () => {
    const longest = `/${'x'.repeat(MAX_SOCKET_PATH_BYTES - 1)}`;
    expect(socketPathFault(longest, 1)).to.equal(undefined);
    expect(socketPathFault(`${longest}x`, 1)).to.contain(String(MAX_SOCKET_PATH_BYTES));
    expect(socketPathFault(longest, 2), 'the second lane needs two more').to.contain(String(MAX_SOCKET_PATH_BYTES));
    expect(socketPathFault(longest.slice(0, -2), 10)).to.equal(undefined);
    expect(socketPathFault(longest.slice(0, -2), 11)).to.be.a('string');
    expect(socketPathFault(`/${'é'.repeat(MAX_SOCKET_PATH_BYTES - 40)}`, 1), 'bytes, not characters').to.be.a('string');
    const deep = `/${'d'.repeat(MAX_SOCKET_PATH_BYTES - 4)}/s`;
    expect(socketPathFault(deep, 1), 'the name it is bound under').to.be.a('string');
    for (const path of ['', 'relative.sock', '/nul\0byte', 7]) expect(socketPathFault(path, 1)).to.be.a('string');
  });
});
