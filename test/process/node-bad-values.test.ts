// What a node does with values of an application that are wrong, and with things that are not there: a coded error that names
// them; and then it carries on.

import { createServer } from 'node:net';
import { expect } from 'chai';
import { StreamAnchorHandle, Velo, type VeloOptions } from '../../lib/index.js';
import { failure, openStream, provesAlive, streamSuite, take, until } from '../support/nodes.js';
import { WirePeer } from '../support/wire-peer.js';

describe('values from an application', () => {
  const refused: [string, VeloOptions][] = [
    ['host', { host: 'nowhere' as 'inline' }],
    ['lanes', { lanes: 0 }],
    ['lanes', { lanes: 17 }],
    ['lanes', { lanes: 1.5 }],
    ['bindAddress', { bindAddress: '' }],
    ['port', { port: -1 }],
    ['port', { port: 65_536 }],
    ['flushPolicy', { flushPolicy: 'sometimes' as 'auto' }],
    ['flushPolicy.maxLingerMs', { flushPolicy: { maxLingerMs: -1 } }],
    ['flushPolicy.onAdmission', { flushPolicy: { onAdmission: 1 as unknown as boolean } }],
    ['heartbeatIntervalMs', { heartbeatIntervalMs: 9 }],
    ['callTimeoutMs', { callTimeoutMs: 0 }],
    ['callTimeoutMs', { callTimeoutMs: 2 ** 31 }],
    ['connectTimeoutMs', { connectTimeoutMs: Number.NaN }],
    ['ringBytes', { ringBytes: 1_000 }],
    ['ringBytes', { ringBytes: 512 }],
    ['ringBytes', { ringBytes: 3_000_000 }],
    ['maxStreams', { maxStreams: 0 }],
    ['maxStreams', { maxStreams: 65_537 }],
    ['maxInboundConnections', { maxInboundConnections: 0 }],
    ['connectionQueueBytes', { connectionQueueBytes: 0 }],
    ['messageQueueBytes', { messageQueueBytes: -1 }],
    ['nodeBufferBytes', { nodeBufferBytes: 0 }],
    ['nodeBufferBytes', { nodeBufferBytes: 2 ** 31 }],
    ['initialCredit', { mux: { initialCredit: 0 } }],
    ['initialCredit', { mux: { initialCredit: 65_537 } }],
    ['slotByteBudget', { mux: { slotByteBudget: -1 } }],
    ['peerByteBudget', { mux: { peerByteBudget: -1 } }],
    ['maxBatchBytes', { mux: { maxBatchBytes: -1 } }],
    ['creditSweepIntervalMs', { mux: { creditSweepIntervalMs: 0 } }],
    ['drainVisitFloorMs', { mux: { drainVisitFloorMs: -1 } }],
    ['replyLingerMs', { mux: { replyLingerMs: -1 } }],
    ['window', { window: 3 } as VeloOptions],
    ['mux.window', { mux: { window: 3 } as VeloOptions['mux'] }],
    ['mux', { mux: 7 as unknown as VeloOptions['mux'] }],
  ];
  for (const [field, options] of refused) {
    it(`the options ${JSON.stringify(options)} are refused, naming ${field}`, async () => {
      const error = await failure('ERR_INVALID_ARGUMENT', Velo.create(options));
      expect(error.message).to.include(field);
    });
  }
});

streamSuite('things that are not there', (host, nodes) => {
  it('a port in use is a coded error that names it, and the port is free for another node later', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    const error = await failure('ERR_LISTEN_FAILED', Velo.create({ host, port }));
    expect(error.message).to.include(String(port));
    await new Promise((resolve) => server.close(resolve));
    await provesAlive(await nodes.pair(host, { port }));
  });

  it('AA-05 a peer that nobody registered is a coded error', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const stranger = await WirePeer.listen();
    const { instanceId } = stranger.info;
    for (const target of [instanceId, stranger.workerId]) {
      await failure('ERR_UNKNOWN_PEER', consumer.send(target, 'x'));
      await failure('ERR_UNKNOWN_PEER', consumer.sync(target, 'x'));
      await failure('ERR_UNKNOWN_PEER', consumer.unary(target, 'x'));
      await failure('ERR_UNKNOWN_PEER', consumer.typedUnary(target, 'x', 1));
    }
    const handle = StreamAnchorHandle.pack(stranger.workerId, 5n, 'spsc');
    await failure('ERR_UNKNOWN_PEER', consumer.attachAnchor(handle));
    await stranger.close();
    await provesAlive({ consumer, producer });
  });

  it('a peer that does not listen any more fails what is sent to it', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const gone = await WirePeer.listen();
    consumer.registerPeer(gone.info);
    await gone.close();
    await failure('ERR_CONNECT_FAILED', consumer.unary(gone.info.instanceId, 'x'));
    await failure('ERR_CONNECT_FAILED', consumer.attachAnchor(StreamAnchorHandle.pack(gone.workerId, 5n, 'spsc')));
    await provesAlive({ consumer, producer });
  });

  it('an unknown handler, a system name and an empty one are coded errors', async () => {
    const { consumer, producer } = await nodes.shared(host);
    await failure('ERR_UNKNOWN_HANDLER', consumer.unary(producer.instanceId, 'nobody'));
    await failure('ERR_UNKNOWN_HANDLER', consumer.sync(producer.instanceId, 'nobody'));
    await failure('ERR_UNKNOWN_HANDLER', consumer.send(producer.instanceId, 'nobody'));
    for (const name of ['', '_hello']) await failure('ERR_INVALID_ARGUMENT', consumer.unary(producer.instanceId, name));
    await provesAlive({ consumer, producer });
  });

  it('a handle of the wrong kind is refused before anything is sent', async () => {
    const { consumer, producer } = await nodes.shared(host);
    for (const { workerId } of [consumer, producer]) {
      const handle = StreamAnchorHandle.pack(workerId, 5n, 'mpsc');
      await failure('ERR_WRONG_HANDLE_KIND', consumer.attachAnchor(handle));
    }
    await provesAlive({ consumer, producer });
  });

  it('more anchors or senders than maxStreams are a coded error, and those there are go on', async () => {
    const pair = await nodes.pair(host, { maxStreams: 2 }, { maxStreams: 1 });
    const first = await openStream<number>(pair);
    const second = pair.consumer.createAnchor();
    await failure('ERR_LIMIT', () => pair.consumer.createAnchor());
    await failure('ERR_LIMIT', pair.producer.attachAnchor(second.handle));
    await first.sender.send(1);
    expect(await take(first.anchor, 1)).to.deep.equal([1]);
    await first.sender.finalize();
    await take(first.anchor, 1).catch(() => {});
    second.controller.cancel();
    await until('there is room again', () => pair.producer.stats().senders === 0);
    await provesAlive(pair);
  });

  it('an anchor option or a key out of range is a coded error', async () => {
    const { consumer, producer } = await nodes.shared(host);
    for (const heartbeatIntervalMs of [0, 9, -1, 10.5, Number.NaN, 2 ** 31]) {
      const error = await failure('ERR_INVALID_ARGUMENT', () => consumer.createAnchor({ heartbeatIntervalMs }));
      expect(error.message).to.include('heartbeatIntervalMs');
    }
    const anchor = consumer.createAnchor();
    for (const key of [-1n, 2n ** 64n])
      await failure('ERR_INVALID_ARGUMENT', producer.attachAnchor(anchor.handle, { key }));
    anchor.controller.cancel();
    await provesAlive({ consumer, producer });
  });

  it('a timeout out of range is a coded error, of a call and of a blocking send', async () => {
    const { consumer, producer } = await nodes.shared(host);
    for (const timeoutMs of [-1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31]) {
      const call = consumer.unary(producer.instanceId, 'x', undefined, { timeoutMs });
      expect((await failure('ERR_INVALID_ARGUMENT', call)).message).to.include('timeoutMs');
    }
    const pair = await nodes.pair('piscina', { mux: { initialCredit: 1, slotByteBudget: 1 } });
    const { anchor, sender } = await openStream<number>(pair);
    await failure('ERR_TIMEOUT', () => {
      for (let i = 0; i < 100; i += 1) sender.sendBlocking(i, Number.NaN);
    });
    anchor.controller.cancel();
    await sender.close();
  });

  it('an item that cannot be encoded fails its send and nothing else', async () => {
    const pair = await nodes.shared(host);
    const { anchor, sender } = await openStream<unknown>(pair);
    const cyclic: Record<string, unknown> = {};
    cyclic.self = {
      get boom() {
        throw new Error('boom');
      },
    };
    await failure('ERR_SERIALIZATION', sender.send(cyclic));
    await failure('ERR_FRAME_TOO_LARGE', sender.send(new Uint8Array(64 * 1024 * 1024)));
    await sender.send('fine');
    expect(await take(anchor, 1)).to.deep.equal(['fine']);
    await sender.finalize();
    await take(anchor, 1).catch(() => {});
  });
});

describe('a worker file that is not there', () => {
  for (const host of ['piscina', 'worker'] as const) {
    for (const worker of [
      new URL('file:///nowhere/lane.js'),
      '/nowhere/lane.js',
      'https://example.com/lane.js',
      'http://',
    ])
      it(`${worker} with ${host} lanes is a coded error`, async () => {
        const error = await failure('ERR_WORKER_FILE', Velo.create({ host, worker }));
        expect(error.message).to.include('worker');
      });
  }
});
