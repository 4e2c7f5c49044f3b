// Dialed connections over real loopback sockets.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { VeloError } from '../../lib/errors.js';
import { ADMITTED, DEFAULT_QUEUE_FRAMES, type OutgoingConnection, PENDING } from '../../lib/lanes/connection.js';
import { MAX_FRAME_BODY, PREAMBLE_LEN } from '../../lib/wire/transport-frame.js';
import { dial, digest, freePort, HOST, numberedFrame, Peer, RecordedFrame, turns, until } from './socket-kit.js';

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

describe('outgoing connection', () => {
  let peer: Peer;
  const open: OutgoingConnection[] = [];
  const dialed = (...args: Parameters<typeof dial>): ReturnType<typeof dial> => {
    const made = dial(...args);
    open.push(made.connection);
    return made;
  };

  beforeEach(async () => {
    peer = await Peer.listen();
  });

  afterEach(async () => {
    for (const connection of open.splice(0)) connection.destroy();
    await peer.close();
  });

  it('dials at the first frame, and sends nothing before it', async () => {
    const { connection, metrics } = dialed(peer.port);
    await turns(5);
    expect([connection.state, peer.sockets.length]).to.deep.equal(['idle', 0]);
    const frame = new RecordedFrame(numberedFrame(0));
    expect(connection.submit(frame)).to.equal(ADMITTED);
    expect(connection.state).to.equal('connecting');
    await until('the frame arrived', () => peer.frames.length === 1);
    expect(frame.events).to.deep.equal(['written']);
    expect(peer.bytes).to.equal(frame.buffer.length);
    expect(connection.state).to.equal('open');
    expect(metrics).to.deep.include({ connectionsOpened: 1, framesSent: [1, 0, 0, 0, 0], bytesSent: [8, 0, 0, 0, 0] });
    expect(metrics.framesWritten).to.deep.equal([1, 0, 0, 0, 0]);
  });

  it('writes the first frame of an idle connection in the same call, and joins those that follow', async () => {
    const { connection, metrics } = dialed(peer.port);
    connection.submit(new RecordedFrame(numberedFrame(0)));
    await until('the connection is open and idle', () => connection.state === 'open' && metrics.framesWritten[0] === 1);
    const before = metrics.writes;
    connection.submit(new RecordedFrame(numberedFrame(1)));
    expect(metrics.writes).to.equal(before + 1);
    expect(connection.queuedFrames).to.equal(0);
    for (const index of range(2, 102)) connection.submit(new RecordedFrame(numberedFrame(index)));
    expect(metrics.writes).to.equal(before + 1);
    await until('all arrived', () => peer.frames.length === 102);
    expect(metrics.writes).to.equal(before + 2);
    expect(peer.indices).to.deep.equal(range(0, 102));
  });

  it('sends a frame that stands inside a larger buffer', async () => {
    const { connection } = dialed(peer.port);
    const bytes = numberedFrame(5, 100);
    const frame = new RecordedFrame(new Uint8Array(300).fill(0xee));
    frame.buffer.set(bytes, 64);
    frame.start = 64;
    frame.end = 64 + bytes.length;
    connection.submit(frame);
    await until('the frame arrived', () => peer.frames.length === 1);
    expect(peer.bytes).to.equal(bytes.length);
    expect(peer.frames[0]?.payload).to.deep.equal(bytes.slice(PREAMBLE_LEN + 4));
  });

  it('AA-01 a full queue takes frames in order and reports them pending', async () => {
    const { connection } = dialed(peer.port);
    const log: RecordedFrame[] = [];
    const frames = range(0, 300).map((index) => new RecordedFrame(numberedFrame(index), log));
    const results = frames.map((frame) => connection.submit(frame));
    expect(results).to.deep.equal(range(0, 300).map((i) => (i < DEFAULT_QUEUE_FRAMES ? ADMITTED : PENDING)));
    expect([connection.queuedFrames, connection.pendingFrames]).to.deep.equal([256, 44]);
    await until('all arrived', () => peer.frames.length === 300);
    expect(peer.indices).to.deep.equal(range(0, 300));
    await until('all were reported', () => frames.every((frame) => frame.events.includes('written')));
    expect(frames[255]?.events).to.deep.equal(['written']);
    expect(frames[256]?.events).to.deep.equal(['admitted', 'written']);
  });

  it('AA-01 AA-03 a slow reader fills the queue; once it reads again, frames are admitted first in, first out', async () => {
    let slow: Socket | undefined;
    peer.onSocket = (socket) => {
      slow = socket;
      socket.pause();
    };
    const { connection, metrics } = dialed(peer.port, { connectionQueueBytes: 1024 * 1024 * 1024 });
    const payload = 80_000;
    const log: RecordedFrame[] = [];
    const frames: RecordedFrame[] = [];
    const add = (): number => {
      const frame = new RecordedFrame(numberedFrame(frames.length, payload), log);
      frames.push(frame);
      return connection.submit(frame);
    };
    add();
    await until('the connection stands', () => connection.state === 'open');
    let result: number = ADMITTED;
    while (result === ADMITTED) {
      result = add();
      await turns();
    }
    for (let i = 0; i < 10; i += 1) expect(add()).to.equal(PENDING);
    await turns(20);
    expect(connection.queuedFrames).to.equal(DEFAULT_QUEUE_FRAMES);
    expect(connection.pendingFrames).to.equal(11);
    expect(metrics.sendBackpressure).to.equal(11);
    expect(frames.slice(-11).every((frame) => frame.events.length === 0)).to.equal(true);
    slow?.resume();
    await until('all arrived', () => peer.frames.length === frames.length);
    expect(peer.indices).to.deep.equal(range(0, frames.length));
    await until('all were reported', () => frames.every((frame) => frame.events.at(-1) === 'written'));
    const admitted = log.filter((frame) => frame.events.includes('admitted'));
    expect([...new Set(admitted)]).to.deep.equal(frames.slice(-11));
    expect(frames.slice(-11).every((frame) => frame.events.join() === 'admitted,written')).to.equal(true);
  });

  it('AA-02 abandoning or timing out a wait withdraws nothing; an explicit cancel does', async () => {
    const { connection } = dialed(peer.port, { queueFrames: 2 });
    const frames = range(0, 6).map((index) => new RecordedFrame(numberedFrame(index)));
    const results = frames.map((frame) => connection.submit(frame));
    expect(results).to.deep.equal([ADMITTED, ADMITTED, PENDING, PENDING, PENDING, PENDING]);
    const waiting = new Promise<string>((resolve) => {
      frames[2]!.onAdmitted = () => resolve('admitted');
    });
    expect(await Promise.race([waiting, Promise.resolve('timed out')])).to.equal('timed out');
    expect(connection.cancelAdmission(frames[3]!)).to.equal(true);
    expect(connection.cancelAdmission(frames[3]!)).to.equal(false);
    expect(connection.cancelAdmission(frames[0]!)).to.equal(false);
    await until('the others arrived', () => peer.frames.length === 5);
    await turns(5);
    expect(peer.indices).to.deep.equal([0, 1, 2, 4, 5]);
    expect(await waiting).to.equal('admitted');
    expect(frames[3]?.events).to.deep.equal([]);
    // a withdrawn frame is its caller's again
    expect(connection.submit(frames[3]!)).to.equal(ADMITTED);
    await until('it arrived after all', () => peer.frames.length === 6);
    expect(peer.indices.at(-1)).to.equal(3);
  });

  it('AA-02 a cancelled head lets those behind it in', async () => {
    const { connection } = dialed(peer.port, { connectionQueueBytes: 1_000 });
    const small = new RecordedFrame(numberedFrame(0, 100));
    const large = new RecordedFrame(numberedFrame(1, 2_000));
    const behind = new RecordedFrame(numberedFrame(2, 100));
    expect([small, large, behind].map((frame) => connection.submit(frame))).to.deep.equal([ADMITTED, PENDING, PENDING]);
    expect(connection.cancelAdmission(large)).to.equal(true);
    expect(behind.events).to.deep.equal(['admitted']);
    await until('both arrived', () => peer.frames.length === 2);
    expect(peer.indices).to.deep.equal([0, 2]);
  });

  it('AA-03 frames keep their order when nobody watches, admitted and pending alike', async () => {
    const { connection } = dialed(peer.port, { queueFrames: 3 });
    let index = 0;
    for (let burst = 0; burst < 50; burst += 1) {
      for (let i = 0; i < 20; i += 1) connection.submit(new RecordedFrame(numberedFrame(index++, 50)));
      if (burst % 5 === 0) await turns(1);
    }
    await until('all arrived', () => peer.frames.length === 1_000);
    expect(peer.indices).to.deep.equal(range(0, 1_000));
  });

  it('AA-04 each frame that finds the queue full adds one to send backpressure', () => {
    const { connection, metrics } = dialed(peer.port, { queueFrames: 4 });
    for (let i = 0; i < 4; i += 1) connection.submit(new RecordedFrame(numberedFrame(i)));
    expect(metrics.sendBackpressure).to.equal(0);
    for (let i = 1; i <= 5; i += 1) {
      connection.submit(new RecordedFrame(numberedFrame(i)));
      expect(metrics.sendBackpressure).to.equal(i);
    }
  });

  it('bounds the bytes of the queue, but takes one large frame when it is empty', async () => {
    const { connection } = dialed(peer.port, { connectionQueueBytes: 10_000 });
    const sizes = [50_000, 10, 50_000, 10, 10];
    const frames = sizes.map((size, index) => new RecordedFrame(numberedFrame(index, size)));
    const results = frames.map((frame) => connection.submit(frame));
    expect(results).to.deep.equal([ADMITTED, PENDING, PENDING, PENDING, PENDING]);
    expect(connection.queuedBytes).to.equal(frames[0]?.buffer.length);
    await until('all arrived', () => peer.frames.length === 5);
    expect(peer.indices).to.deep.equal([0, 1, 2, 3, 4]);
  });

  it('bounds what may wait, and says so after the turn', async () => {
    const { connection, metrics } = dialed(peer.port, { queueFrames: 1, pendingFrames: 2 });
    const frames = range(0, 4).map((index) => new RecordedFrame(numberedFrame(index)));
    expect(frames.map((frame) => connection.submit(frame))).to.deep.equal([ADMITTED, PENDING, PENDING, PENDING]);
    expect(frames[3]?.events).to.deep.equal([]);
    await turns(1);
    expect(frames[3]?.events).to.deep.equal(['refused']);
    expect(frames[3]?.error?.code).to.equal('ERR_LIMIT');
    expect(metrics.sendErrors).to.equal(1);
    await until('the others arrived', () => peer.frames.length === 3);
    const bytes = dialed(peer.port, { queueFrames: 1, pendingBytes: 100 }).connection;
    const waiting = [500, 500, 500].map((size) => new RecordedFrame(numberedFrame(9, size)));
    for (const frame of waiting) bytes.submit(frame);
    expect(bytes.pendingFrames).to.equal(1);
    expect(bytes.cancelAdmission(waiting[2]!)).to.equal(true);
    await turns(1);
    expect(waiting[2]?.events).to.deep.equal([]);
  });

  it('a refused connect fails queue and pending frames in order, and the next submit dials anew', async () => {
    const port = await freePort();
    const { connection, metrics } = dialed(port, { queueFrames: 2 });
    const log: RecordedFrame[] = [];
    const frames = range(0, 4).map((index) => new RecordedFrame(numberedFrame(index), log));
    for (const frame of frames) connection.submit(frame);
    await until('all failed', () => log.length === 4);
    expect(log).to.deep.equal(frames);
    expect(frames.map((frame) => frame.events.join())).to.deep.equal(['failed', 'failed', 'refused', 'refused']);
    for (const frame of frames) {
      expect(frame.error?.code).to.equal('ERR_CONNECT_FAILED');
      expect(frame.error?.message).to.contain(`${HOST}:${port}`);
    }
    expect(connection.state).to.equal('idle');
    expect(metrics).to.deep.include({ connectFailures: 1, connectionsOpened: 0, connectionsClosed: 0, sendErrors: 4 });
    const late = await Peer.listen(port);
    expect(connection.submit(frames[3]!)).to.equal(ADMITTED);
    await until('it arrived', () => late.frames.length === 1);
    expect(late.indices).to.deep.equal([3]);
    await late.close();
  });

  it('gives up a connect that gets no answer', async () => {
    const child = fork(fileURLToPath(new URL('./deaf-listener.js', import.meta.url)));
    const fillers: Socket[] = [];
    try {
      const [port] = (await once(child, 'message')) as [number];
      child.kill('SIGSTOP');
      // the stopped process accepts nothing: a few connections fill its backlog, and further ones get no answer
      for (let i = 0; i < 6; i += 1) fillers.push(connect({ host: HOST, port }).on('error', () => {}));
      await until('the first stood', () => fillers[0]?.readyState === 'open');
      const { connection } = dialed(port, { connectTimeoutMs: 150 });
      const frame = new RecordedFrame(numberedFrame(0));
      connection.submit(frame);
      await until('the frame failed', () => frame.events.length > 0);
      expect(frame.events).to.deep.equal(['failed']);
      expect(frame.error?.code).to.equal('ERR_CONNECT_FAILED');
      expect(frame.error?.message).to.contain('no answer in 150 ms');
      expect(connection.state).to.equal('idle');
    } finally {
      for (const socket of fillers) socket.destroy();
      child.kill('SIGKILL');
    }
  });

  it('a peer that closes fails what is still here, in order; the next connection goes on in order', async () => {
    peer.onSocket = (socket) => socket.pause();
    const { connection, metrics } = dialed(peer.port, { connectionQueueBytes: 2 ** 30 });
    const log: RecordedFrame[] = [];
    const frames: RecordedFrame[] = [];
    const add = (): number => {
      const frame = new RecordedFrame(numberedFrame(frames.length, 100_000), log);
      frames.push(frame);
      return connection.submit(frame);
    };
    add();
    await until('the connection stands', () => peer.sockets.length === 1 && connection.state === 'open');
    while (add() === ADMITTED) await turns();
    add();
    log.length = 0;
    peer.sockets[0]?.destroy();
    await until('the connection is lost', () => connection.state === 'idle');
    const failed = log.filter((frame) => frame.events.at(-1) !== 'written');
    expect(failed.length).to.be.greaterThan(DEFAULT_QUEUE_FRAMES);
    expect(failed).to.deep.equal(frames.slice(-failed.length));
    expect(failed.slice(-2).map((frame) => frame.events.join())).to.deep.equal(['refused', 'refused']);
    expect(failed.every((frame) => frame.error?.code === 'ERR_CONNECTION_CLOSED')).to.equal(true);
    expect(metrics).to.deep.include({ connectionsOpened: 1, connectionsClosed: 1, sendErrors: failed.length });
    peer.onSocket = () => {};
    const again = range(0, 50).map((index) => new RecordedFrame(numberedFrame(1_000 + index)));
    for (const frame of again) expect(connection.submit(frame)).to.equal(ADMITTED);
    await until('the new ones arrived', () => peer.frames.length === 50);
    expect(peer.indices).to.deep.equal(range(1_000, 1_050));
    expect(peer.sockets.length).to.equal(2);
  });

  it('keeps order over reconnects: what arrives is ascending, and nothing arrives twice', async () => {
    const { connection } = dialed(peer.port);
    let sent = 0;
    for (let round = 0; round < 8; round += 1) {
      const last = sent + 40;
      while (sent < last) connection.submit(new RecordedFrame(numberedFrame(sent++, 300)));
      await until('the last of the round arrived', () => peer.indices.at(-1) === last - 1);
      peer.sockets.at(-1)?.destroy();
      await until('the end was noticed', () => connection.state === 'idle');
    }
    expect(peer.indices).to.deep.equal(range(0, 320));
    expect(peer.sockets.length).to.equal(8);
  });

  it('carries 10,000 frames of mixed sizes whole and in order', async () => {
    const { connection, metrics } = dialed(peer.port);
    const sizes = [0, 1, 40, 64, 300, 1_500, 9_000, 65_521, 65_522, 70_000];
    const sizeOf = (index: number): number => (index % 97 === 0 ? sizes[6 + ((index / 97) % 4)]! : sizes[index % 6]!);
    const total = 10_000;
    let next = 0;
    await new Promise<void>((resolve) => {
      let written = 0;
      const submit = (): void => {
        while (next < total) {
          const index = next++;
          const frame = new RecordedFrame(numberedFrame(index, sizeOf(index)), [], (_frame, event) => {
            if (event === 'written' && ++written === total) resolve();
            if (event === 'admitted') submit();
          });
          if (connection.submit(frame) === PENDING) return;
        }
      };
      submit();
    });
    await until('all arrived', () => peer.frames.length === total);
    expect(peer.indices).to.deep.equal(range(0, total));
    const expected = function* (): Generator<Uint8Array> {
      for (let index = 0; index < total; index += 1) {
        yield numberedFrame(index, sizeOf(index)).subarray(PREAMBLE_LEN + 4);
      }
    };
    expect(digest(peer.frames.map((frame) => frame.payload))).to.equal(digest(expected()));
    expect(metrics.framesWritten[0]).to.equal(total);
    expect(metrics.writes).to.be.lessThan(total / 4);
  });

  it('a frame at the limit goes out; one byte more is refused before it can harm the connection', async () => {
    const { connection } = dialed(peer.port);
    const frame = new RecordedFrame(numberedFrame(1, MAX_FRAME_BODY - 4));
    connection.submit(frame);
    await until('it arrived', () => peer.frames.length === 1);
    expect(peer.frames[0]?.payload.length).to.equal(MAX_FRAME_BODY - 4);
    const bad: [RecordedFrame, string][] = [
      [new RecordedFrame(new Uint8Array(PREAMBLE_LEN + MAX_FRAME_BODY + 1)), 'ERR_FRAME_TOO_LARGE'],
      [new RecordedFrame(new Uint8Array(10)), 'ERR_INVALID_ARGUMENT'],
      [Object.assign(new RecordedFrame(numberedFrame(0)), { end: 1_000 }), 'ERR_INVALID_ARGUMENT'],
      [Object.assign(new RecordedFrame(numberedFrame(0)), { start: -1 }), 'ERR_INVALID_ARGUMENT'],
    ];
    for (const [wrong, code] of bad) {
      expect(() => connection.submit(wrong))
        .to.throw(VeloError)
        .with.property('code', code);
    }
    const once = new RecordedFrame(numberedFrame(2));
    connection.submit(once);
    expect(() => connection.submit(once))
      .to.throw(VeloError)
      .with.property('code', 'ERR_INVALID_STATE');
    await until('the frame after arrived', () => peer.frames.length === 2);
  });

  it('callbacks may submit, resubmit and throw', async () => {
    const { connection, metrics } = dialed(peer.port, { queueFrames: 2 });
    let rounds = 0;
    const again = new RecordedFrame(numberedFrame(7), [], (frame, event) => {
      if (event === 'written' && ++rounds < 100) connection.submit(frame);
      throw new Error('a bad callback');
    });
    connection.submit(again);
    const nested = new RecordedFrame(numberedFrame(8), [], (_frame, event) => {
      if (event === 'written') for (let i = 0; i < 10; i += 1) connection.submit(new RecordedFrame(numberedFrame(9)));
    });
    connection.submit(nested);
    await until('all arrived', () => peer.frames.length === 111);
    expect(peer.indices.filter((index) => index === 7).length).to.equal(100);
    expect(peer.indices.filter((index) => index === 9).length).to.equal(10);
    expect(metrics.handlerErrors).to.be.at.least(100);
  });

  it('destroy from within a callback reports every frame exactly once', async () => {
    const { connection } = dialed(peer.port);
    const log: RecordedFrame[] = [];
    const frames = range(0, 20).map(
      (index) =>
        new RecordedFrame(numberedFrame(index), log, (_frame, event) => {
          if (index === 3 && event === 'written') {
            connection.submit(new RecordedFrame(numberedFrame(99), log));
            connection.destroy();
          }
        }),
    );
    for (const frame of frames) connection.submit(frame);
    await until('all were reported', () => log.length === 21);
    expect(frames.map((frame) => frame.events.join())).to.deep.equal(range(0, 20).map(() => 'written'));
    expect(log.map((frame) => frame.events.join()).filter((event) => event === 'failed').length).to.equal(1);
    expect(connection.state).to.equal('closed');
  });

  it('close with drain writes everything first, pending frames too, and then ends the stream', async () => {
    const { connection } = dialed(peer.port, { queueFrames: 2 });
    const frames = range(0, 30).map((index) => new RecordedFrame(numberedFrame(index, 10_000)));
    for (const frame of frames) connection.submit(frame);
    const closed = connection.close({ drain: true });
    expect(connection.state).to.equal('closing');
    const late = new RecordedFrame(numberedFrame(99));
    expect(connection.submit(late)).to.equal(PENDING);
    await closed;
    expect(connection.state).to.equal('closed');
    expect(frames.every((frame) => frame.events.at(-1) === 'written')).to.equal(true);
    expect(late.events).to.deep.equal(['refused']);
    expect(late.error?.code).to.equal('ERR_CONNECTION_CLOSED');
    await until('all arrived', () => peer.frames.length === 30);
    expect(peer.indices).to.deep.equal(range(0, 30));
    expect(peer.ended.length).to.equal(1);
  });

  it('close without drain, and destroy, fail what is here; an idle connection closes at once', async () => {
    const first = dialed(peer.port).connection;
    const frame = new RecordedFrame(numberedFrame(0));
    first.submit(frame);
    await first.close({ drain: false });
    expect(frame.events).to.deep.equal(['failed']);
    expect(frame.error?.code).to.equal('ERR_CONNECTION_CLOSED');
    const idle = dialed(peer.port).connection;
    await idle.close({ drain: true });
    expect(idle.state).to.equal('closed');
    await idle.close({ drain: false });
    const stuck = dialed(peer.port, { connectionQueueBytes: 2 ** 30 }).connection;
    peer.onSocket = (socket) => socket.pause();
    const frames = range(0, 200).map((index) => new RecordedFrame(numberedFrame(index, 100_000)));
    for (const each of frames) stuck.submit(each);
    await until('it stands', () => stuck.state === 'open');
    const drained = stuck.close({ drain: true });
    await turns(5);
    stuck.destroy();
    await drained;
    expect(frames.every((each) => each.events.length === 1)).to.equal(true);
    expect(frames.at(-1)?.events).to.deep.equal(['failed']);
  });

  it('reads what the peer sends on the dialed socket, and closes on bad framing', async () => {
    const seen: string[] = [];
    const { connection, metrics } = dialed(peer.port, {
      hooks: {
        onFrame: (type, _buffer, _headerAt, _headerLength, _payloadAt, payloadLength, source) => {
          seen.push(`${type} ${payloadLength} ${source.dialed} ${source.remote}`);
        },
        onReadable: () => seen.push('readable'),
        onChunkEnd: () => seen.push('end'),
      },
    });
    connection.submit(new RecordedFrame(numberedFrame(0)));
    await until('it stands', () => peer.frames.length === 1);
    peer.sockets[0]?.write(Buffer.concat([numberedFrame(1, 5, 1), numberedFrame(2, 0, 4)]));
    await until('both were handled', () => seen.length === 4);
    expect(seen).to.deep.equal(['readable', `1 5 true ${HOST}:${peer.port}`, `4 0 true ${HOST}:${peer.port}`, 'end']);
    peer.sockets[0]?.write(new Uint8Array(11).fill(0xff));
    await until('it was closed', () => connection.state === 'idle');
    expect(metrics).to.deep.include({ decodeErrors: 1, connectionsClosed: 1 });
    expect(metrics.framesReceived).to.deep.equal([0, 1, 0, 0, 1]);
    expect(metrics.bytesReceived).to.deep.equal([0, 9, 0, 0, 4]);
    connection.submit(new RecordedFrame(numberedFrame(3)));
    await until('it dialed anew', () => peer.frames.length === 2);
  });

  it('an unreferenced connection does not keep its process alive, a referenced one does', async () => {
    const script = fileURLToPath(new URL('./unref-child.js', import.meta.url));
    const child = fork(script, [String(peer.port), 'unref']);
    const [code] = (await once(child, 'exit')) as [number | null];
    expect(code).to.equal(0);
    const kept = fork(script, [String(peer.port), 'ref']);
    try {
      await once(kept, 'message');
      await new Promise((resolve) => setTimeout(resolve, 300));
      expect(kept.exitCode).to.equal(null);
    } finally {
      kept.kill('SIGKILL');
    }
  });

  it('refuses options that make no sense', () => {
    for (const options of [
      { queueFrames: 0 },
      { connectionQueueBytes: 0.5 },
      { pendingFrames: 0 },
      { to: { host: '', port: 1 } },
      { to: { path: '' } },
    ]) {
      expect(() => dial(peer.port, options))
        .to.throw(VeloError)
        .with.property('code', 'ERR_INVALID_ARGUMENT');
    }
    for (const port of [0, 65_536, 1.5]) {
      expect(() => dial(port))
        .to.throw(VeloError)
        .with.property('code', 'ERR_INVALID_ARGUMENT');
    }
  });
});
