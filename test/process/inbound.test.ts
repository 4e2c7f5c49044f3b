// Accepted connections and their listener over real loopback sockets.

import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { VeloError } from '../../lib/errors.js';
import { type ConnectionMetrics, connectionMetrics } from '../../lib/lanes/connection-metrics.js';
import type { IntakeHooks } from '../../lib/lanes/frame-intake.js';
import { InboundConnection, WRITE_BACK_BYTES } from '../../lib/lanes/inbound.js';
import { Listener, type ListenerOptions } from '../../lib/lanes/listener.js';
import { MAX_FRAME_BODY, PREAMBLE_LEN, writePreamble } from '../../lib/wire/transport-frame.js';
import { freePort, HOST, numberedFrame, rawClient, turns, until } from './socket-kit.js';

interface Seen {
  readonly type: number;
  readonly header: Uint8Array;
  readonly payload: Uint8Array;
  readonly source: InboundConnection;
}

describe('listener and accepted connections', () => {
  let metrics: ConnectionMetrics;
  let seen: Seen[];
  const listeners: Listener[] = [];
  const clients: Socket[] = [];

  const collect: IntakeHooks['onFrame'] = (type, buffer, headerAt, headerLength, payloadAt, payloadLength, source) => {
    seen.push({
      type,
      header: new Uint8Array(buffer.subarray(headerAt, headerAt + headerLength)),
      payload: new Uint8Array(buffer.subarray(payloadAt, payloadAt + payloadLength)),
      source: source as InboundConnection,
    });
  };

  async function listening(hooks: Partial<IntakeHooks> = {}, options: Partial<ListenerOptions> = {}) {
    const listener = new Listener({ metrics, hooks: { onFrame: collect, ...hooks }, ...options });
    listeners.push(listener);
    return { listener, port: await listener.listen(HOST, 0) };
  }

  async function client(port: number) {
    const made = await rawClient(port);
    clients.push(made.socket);
    return made;
  }

  const indexOf = (frame: Seen): number => new DataView(frame.header.buffer).getUint32(0);

  beforeEach(() => {
    metrics = connectionMetrics();
    seen = [];
  });

  afterEach(async () => {
    for (const socket of clients.splice(0)) socket.destroy();
    for (const listener of listeners.splice(0)) await listener.close();
  });

  it('handles frames of all five types and counts them', async () => {
    const { port } = await listening();
    const { socket } = await client(port);
    socket.write(Buffer.concat([0, 1, 2, 3, 4].map((type) => numberedFrame(type, type * 10, type))));
    await until('all were handled', () => seen.length === 5);
    expect(seen.map((frame) => [frame.type, indexOf(frame), frame.payload.length])).to.deep.equal([
      [0, 0, 0],
      [1, 1, 10],
      [2, 2, 20],
      [3, 3, 30],
      [4, 4, 40],
    ]);
    expect(metrics.framesReceived).to.deep.equal([1, 1, 1, 1, 1]);
    expect(metrics.bytesReceived).to.deep.equal([4, 14, 24, 34, 44]);
    expect(seen[0]?.source.dialed).to.equal(false);
    expect(seen[0]?.source.remote).to.equal(`${HOST}:${socket.localPort}`);
  });

  it('puts frames together that are split at any byte', async () => {
    const { port } = await listening();
    const { socket } = await client(port);
    const frames = Buffer.concat([numberedFrame(1, 0), numberedFrame(2, 9), numberedFrame(3, 30, 1)]);
    for (let at = 1; at < frames.length; at += 1) {
      socket.write(frames.subarray(0, at));
      await turns(3);
      socket.write(frames.subarray(at));
      await until(`the frames split at ${at} were handled`, () => seen.length === at * 3);
      expect(seen.slice(-3).map(indexOf)).to.deep.equal([1, 2, 3]);
      expect(seen.at(-1)?.payload).to.deep.equal(numberedFrame(3, 30).slice(PREAMBLE_LEN + 4));
    }
    expect(metrics.decodeErrors).to.equal(0);
  });

  it('puts frames together that come one byte at a time', async () => {
    const { port } = await listening();
    const { socket } = await client(port);
    for (const byte of Buffer.concat([numberedFrame(7, 12), numberedFrame(8, 0, 4)])) {
      socket.write(new Uint8Array([byte]));
      await turns(1);
    }
    await until('both were handled', () => seen.length === 2);
    expect(seen.map(indexOf)).to.deep.equal([7, 8]);
  });

  const badStarts: [string, Uint8Array][] = [
    ['garbage', new TextEncoder().encode('GET / HTTP/1.1\r\nHost: x\r\n\r\n')],
    ['a wrong version', Uint8Array.from([0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0])],
    ['an unknown type', Uint8Array.from([0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0])],
    ['a frame over the limit', Uint8Array.from([0, 1, 0, 0, 0, 0, 0x16, 0, 0xff, 0xff, 0xeb])],
    ['lengths that overflow', Uint8Array.from([0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])],
  ];
  for (const [what, bytes] of badStarts) {
    it(`${what} closes that connection, unanswered, and no other`, async () => {
      const { port, listener } = await listening();
      const good = await client(port);
      const bad = await client(port);
      bad.socket.write(Buffer.concat([numberedFrame(1), bytes, numberedFrame(2)]));
      await until('it was closed', () => bad.state.closed);
      expect(bad.state.bytes).to.equal(0);
      expect(seen.map(indexOf)).to.deep.equal([1]);
      expect(metrics.decodeErrors).to.equal(1);
      expect(listener.connections.size).to.equal(1);
      good.socket.write(numberedFrame(3));
      await until('the other one goes on', () => seen.length === 2);
      expect(good.state.closed).to.equal(false);
    });
  }

  it('accepts a frame exactly at the limit', async () => {
    const { port } = await listening();
    const { socket } = await client(port);
    const preamble = new Uint8Array(PREAMBLE_LEN);
    writePreamble(preamble, 0, 0, 22, MAX_FRAME_BODY - 22);
    socket.write(preamble);
    const body = Buffer.alloc(MAX_FRAME_BODY, 0x5a);
    socket.write(body);
    await until('it was handled', () => seen.length === 1);
    expect(seen[0]?.payload.length).to.equal(MAX_FRAME_BODY - 22);
    expect(body.subarray(22).equals(seen[0]!.payload)).to.equal(true);
  });

  it('an end inside a frame is a decode error, one between frames is not', async () => {
    const { port, listener } = await listening();
    const clean = await client(port);
    clean.socket.end(numberedFrame(1));
    await until('the first is gone', () => metrics.connectionsClosed === 1);
    expect(metrics.decodeErrors).to.equal(0);
    for (const cut of [1, 10, 11, 14]) {
      const half = await client(port);
      half.socket.end(numberedFrame(2, 4).subarray(0, cut));
      await until('it was closed', () => half.state.closed);
    }
    expect(metrics.decodeErrors).to.equal(4);
    expect(seen.length).to.equal(1);
    expect(listener.connections.size).to.equal(0);
  });

  it('stays calm about connections that come and go without a byte', async () => {
    const { port, listener } = await listening();
    for (let i = 0; i < 20; i += 1) {
      const { socket } = await client(port);
      if (i % 2 === 0) socket.destroy();
      else socket.resetAndDestroy();
    }
    await until('all are gone', () => metrics.connectionsClosed === 20);
    expect(metrics).to.deep.include({ connectionsOpened: 20, decodeErrors: 0, handlerErrors: 0, acceptErrors: 0 });
    expect(listener.connections.size).to.equal(0);
    const after = await client(port);
    after.socket.write(numberedFrame(1));
    await until('the next one is served', () => seen.length === 1);
  });

  it('calls the hooks around the frames of a read, and not for a read without a frame', async () => {
    const events: string[] = [];
    const { port } = await listening({
      onFrame: (type) => events.push(`frame ${type}`),
      onReadable: () => events.push('readable'),
      onChunkEnd: () => events.push('end'),
    });
    const { socket } = await client(port);
    socket.write(Buffer.concat([numberedFrame(0, 1, 0), numberedFrame(1, 1, 1)]));
    await until('the first read was handled', () => events.length === 4);
    socket.write(numberedFrame(2, 500, 2).subarray(0, 300));
    await turns(5);
    expect(events).to.deep.equal(['readable', 'frame 0', 'frame 1', 'end']);
    socket.write(numberedFrame(2, 500, 2).subarray(300));
    await until('the second frame was handled', () => events.length === 7);
    expect(events.slice(4)).to.deep.equal(['readable', 'frame 2', 'end']);
  });

  it('a handler or hook that throws closes its own connection only', async () => {
    let ends = 0;
    const { port } = await listening({
      onFrame: (...frame) => {
        if (frame[0] === 3) throw new Error('a bad handler');
        collect(...frame);
      },
      onReadable: () => {
        if (seen.length === 2) throw new Error('a bad hook');
      },
      onChunkEnd: () => {
        ends += 1;
      },
    });
    const [first, second] = [await client(port), await client(port)];
    first.socket.write(Buffer.concat([numberedFrame(1), numberedFrame(2, 0, 3), numberedFrame(3)]));
    await until('the first was closed', () => first.state.closed);
    expect([seen.map(indexOf), metrics.handlerErrors, metrics.decodeErrors, ends]).to.deep.equal([[1], 1, 0, 1]);
    second.socket.write(numberedFrame(4));
    await until('the second is served', () => seen.length === 2);
    second.socket.write(numberedFrame(5));
    await until('the second was closed', () => second.state.closed);
    expect([seen.map(indexOf), metrics.handlerErrors]).to.deep.equal([[1, 4], 2]);
  });

  it('a connection destroyed by its frame handler delivers nothing more', async () => {
    const { port, listener } = await listening({
      onFrame: (...frame) => {
        collect(...frame);
        (frame[6] as InboundConnection).destroy();
      },
    });
    const { socket, state } = await client(port);
    socket.write(Buffer.concat([numberedFrame(1), numberedFrame(2), numberedFrame(3)]));
    await until('it was closed', () => state.closed);
    expect(seen.map(indexOf)).to.deep.equal([1]);
    expect(metrics).to.deep.include({ connectionsClosed: 1, decodeErrors: 0, handlerErrors: 0 });
    expect(listener.connections.size).to.equal(0);
  });

  it('writes back on the accepted socket, within a bound', async () => {
    const { port } = await listening();
    const { socket, frames } = await client(port);
    socket.write(numberedFrame(1));
    await until('it was handled', () => seen.length === 1);
    const { source } = seen[0]!;
    expect(source.writeBack(numberedFrame(9, 0, 4))).to.equal(true);
    await until('it came back', () => frames.length === 1);
    expect(frames[0]).to.deep.include({ type: 4, index: 9 });
    socket.pause();
    const chunk = new Uint8Array(WRITE_BACK_BYTES / 4);
    let accepted = 0;
    while (source.writeBack(chunk)) {
      accepted += 1;
      await turns(1);
      if (accepted > 1_000) throw new Error('no bound');
    }
    expect(metrics.writeBackDropped).to.equal(1);
    source.destroy();
    expect(source.writeBack(numberedFrame(1))).to.equal(false);
    expect(metrics.writeBackDropped).to.equal(2);
  });

  it('chooses a port when asked for 0, and reports it', async () => {
    const { listener, port } = await listening();
    expect(port).to.be.within(1, 65_535);
    expect(listener.port).to.equal(port);
    const other = await listening();
    expect(other.port).not.to.equal(port);
    const error = await listener.listen(HOST, 0).catch((reason: unknown) => reason);
    expect(VeloError.is(error, 'ERR_INVALID_STATE')).to.equal(true);
  });

  it('a port in use fails by code, naming host and port, and the listener may try again', async () => {
    const { port } = await listening();
    const second = new Listener({ metrics, hooks: { onFrame: collect } });
    listeners.push(second);
    const error = await second.listen(HOST, port).catch((reason: unknown) => reason);
    if (!VeloError.is(error)) throw new Error('not a VeloError');
    expect(error.code).to.equal('ERR_LISTEN_FAILED');
    expect(error.message).to.contain(`${HOST}:${port}`);
    expect((error.cause as NodeJS.ErrnoException).code).to.equal('EADDRINUSE');
    expect(second.port).to.equal(0);
    expect(await second.listen(HOST, 0)).to.be.greaterThan(0);
  });

  it('an address that is not ours, or no port at all, fails the same way', async () => {
    const listener = new Listener({ metrics, hooks: { onFrame: collect } });
    for (const [host, port] of [
      ['192.0.2.1', 0],
      [HOST, 70_000],
    ] as const) {
      const error = await listener.listen(host, port).catch((reason: unknown) => reason);
      expect(VeloError.is(error, 'ERR_LISTEN_FAILED'), `${host}:${port}`).to.equal(true);
    }
  });

  it('holds no more connections than it may: the newest is closed and counted', async () => {
    const { port, listener } = await listening({}, { maxInboundConnections: 3 });
    const kept = [await client(port), await client(port), await client(port)];
    await until('three stand', () => listener.connections.size === 3);
    const refused = await client(port);
    await until('the fourth was closed', () => refused.state.closed);
    expect(metrics.inboundRefused).to.equal(1);
    expect(metrics.connectionsOpened).to.equal(3);
    kept[0]?.socket.destroy();
    await until('one is gone', () => listener.connections.size === 2);
    const next = await client(port);
    next.socket.write(numberedFrame(5));
    await until('the next one is served', () => seen.length === 1);
    expect(kept.slice(1).some((each) => each.state.closed)).to.equal(false);
    expect(() => new Listener({ metrics, hooks: { onFrame: collect }, maxInboundConnections: 0 })).to.throw(VeloError);
  });

  it('close ends all connections and frees the port at once', async () => {
    const { port, listener } = await listening();
    const { state } = await client(port);
    await until('it stands', () => listener.connections.size === 1);
    await listener.close();
    await until('the client was closed', () => state.closed);
    expect(listener.connections.size).to.equal(0);
    await listener.close();
    const error = await listener.listen(HOST, port).catch((reason: unknown) => reason);
    expect(VeloError.is(error, 'ERR_CLOSED')).to.equal(true);
    const again = new Listener({ metrics, hooks: { onFrame: collect } });
    listeners.push(again);
    expect(await again.listen(HOST, port)).to.equal(port);
  });

  it('a close while the address is still being bound leaves nothing behind', async () => {
    const port = await freePort();
    const listener = new Listener({ metrics, hooks: { onFrame: collect } });
    const pending = listener.listen(HOST, port).catch((reason: unknown) => reason);
    await listener.close();
    expect(VeloError.is(await pending, 'ERR_CLOSED')).to.equal(true);
    const probe = connect({ host: HOST, port });
    const [error] = (await once(probe, 'error')) as [NodeJS.ErrnoException];
    expect(error.code).to.equal('ECONNREFUSED');
  });

  it('an accept error gives the port up for a moment and takes it again', async () => {
    const servers: Server[] = [];
    const { port, listener } = await listening(
      {},
      {
        createServer: ((...args: Parameters<typeof createServer>) => {
          const server = createServer(...args);
          servers.push(server);
          return server;
        }) as typeof createServer,
      },
    );
    const held = await client(port);
    await until('it stands', () => listener.connections.size === 1);
    servers[0]?.emit('error', Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' }));
    expect(servers[0]?.listening).to.equal(false);
    expect(metrics.acceptErrors).to.equal(1);
    await until('it listens again', () => servers.length === 2 && servers[1]!.listening);
    expect(listener.port).to.equal(port);
    const after = await client(port);
    after.socket.write(numberedFrame(1));
    held.socket.write(numberedFrame(2));
    await until('both are served', () => seen.length === 2);
    await listener.close();
    expect(servers.some((server) => server.listening)).to.equal(false);
  });

  it('keeps trying while the port cannot be had back, and stops when closed', async () => {
    const port = await freePort();
    let made = 0;
    let server = createServer();
    const options: Partial<ListenerOptions> = {
      createServer: (() => {
        made += 1;
        server = createServer();
        return server;
      }) as unknown as typeof createServer,
    };
    const listener = new Listener({ metrics, hooks: { onFrame: collect }, ...options });
    listeners.push(listener);
    await listener.listen(HOST, port);
    server.emit('error', new Error('accept failed'));
    const thief = createServer();
    await new Promise<void>((resolve) => {
      thief.listen(port, HOST, resolve);
    });
    await until('two attempts failed', () => metrics.acceptErrors === 3);
    await new Promise<void>((resolve) => {
      thief.close(() => resolve());
    });
    await until('it listens again', () => server.listening);
    expect(made).to.be.greaterThan(3);
    server.emit('error', new Error('accept failed'));
    const attempts = made;
    await listener.close();
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(made).to.equal(attempts);
  });

  it('survives running out of file descriptors', async () => {
    const script = fileURLToPath(new URL('./starved-listener.js', import.meta.url));
    const child = spawn('sh', ['-c', `ulimit -n 40; exec "${process.execPath}" "${script}"`], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const flood: Socket[] = [];
    try {
      const [port] = (await once(child, 'message')) as [number];
      const ask = async (): Promise<{ connections: number; metrics: ConnectionMetrics }> => {
        child.send('stats');
        const [stats] = (await once(child, 'message')) as [{ connections: number; metrics: ConnectionMetrics }];
        return stats;
      };
      for (let i = 0; i < 60; i += 1) flood.push(connect({ host: HOST, port }).on('error', () => {}));
      await turns(20);
      const starved = await ask();
      expect(starved.connections).to.be.lessThan(40);
      for (const socket of flood) socket.destroy();
      let served = 0;
      for (let tries = 0; tries < 200 && served === 0; tries += 1) {
        const socket = connect({ host: HOST, port }).on('error', () => {});
        socket.write(numberedFrame(1));
        await new Promise((resolve) => setTimeout(resolve, 20));
        served = (await ask()).metrics.framesReceived[0] ?? 0;
        socket.destroy();
      }
      expect(served).to.be.greaterThan(0);
      expect(child.exitCode).to.equal(null);
    } finally {
      for (const socket of flood) socket.destroy();
      child.kill('SIGKILL');
    }
  });

  it('ref and unref reach the socket, and its close is counted once', () => {
    const calls: string[] = [];
    const socket = Object.assign(new EventEmitter(), {
      remoteAddress: HOST,
      remotePort: 1,
      writableLength: 0,
      ref: () => calls.push('ref'),
      unref: () => calls.push('unref'),
      destroy: () => calls.push('destroy'),
    });
    const connection = new InboundConnection(socket as unknown as Socket, {
      metrics,
      hooks: { onFrame: collect },
      transport: 'tcp',
    });
    connection.unref().ref();
    socket.emit('close');
    socket.emit('close');
    expect(calls).to.deep.equal(['unref', 'ref', 'destroy']);
    expect(metrics.connectionsClosed).to.equal(1);
  });
});
