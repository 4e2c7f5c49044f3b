// What an application may do wrong with a stream: a coded error each time, nothing of it on the wire, and the stream goes on.

import { expect } from 'chai';
import {
  type AnchorOptions,
  type AttachStreamOptions,
  customCodec,
  exactMsgpackCodec,
  type ItemCodec,
  msgpackCodec,
  rawCodec,
  type StreamAnchor,
  type StreamAnchorHandle,
  type StreamSender,
  type Velo,
} from '../../lib/index.js';
import { failure, pause, provesAlive, readAll, streamSuite, take } from '../support/nodes.js';
import { until } from './socket-kit.js';

/** Passed where types forbid it. */
// biome-ignore lint/suspicious/noExplicitAny: the point of these tests
const wrong = (value: unknown): any => value;

const cycle: Record<string, unknown> = { name: 'cycle' };
cycle.self = cycle;
const ring: unknown[] = [];
ring.push(ring);

function nested(levels: number): unknown {
  let item: unknown = 1;
  for (let i = 0; i < levels; i += 1) item = [item];
  return item;
}

/** What neither codec of MessagePack can write; all but the first ones fail half-way. */
const UNENCODABLE: Readonly<Record<string, unknown>> = {
  'a function': () => 1,
  'a symbol': Symbol('item'),
  'a bigint above u64': 2n ** 64n,
  'a bigint below i64': -(2n ** 63n) - 1n,
  'a map that holds itself': cycle,
  'an array that holds itself': ring,
  'an array of 100,000 levels': nested(100_000),
  'a map with a function in it': { a: 'x'.repeat(5_000), f: () => 1 },
  'a getter that throws': {
    a: 'x'.repeat(5_000),
    get b() {
      throw new Error('boom');
    },
  },
  'a getter that throws no error': {
    a: 1,
    get b() {
      throw undefined;
    },
  },
  'a proxy that throws': new Proxy(
    {},
    {
      ownKeys() {
        throw new Error('boom');
      },
    },
  ),
};

streamSuite('an item that cannot be encoded', (host, nodes) => {
  for (const where of ['another node', 'the same node'] as const) {
    async function open<T>(codec: () => ItemCodec<T>) {
      const { consumer, producer } = await nodes.shared(host);
      const anchor = consumer.createAnchor<T>({ codec: codec() });
      const from = where === 'another node' ? producer : consumer;
      return { anchor, sender: await from.attachAnchor<T>(anchor.handle, { codec: codec() }), from };
    }

    /** Each bad item fails in each way to send, and what is good before and after it arrives alone. */
    async function survives<T>(codec: () => ItemCodec<T>, bad: Iterable<T>, good: (n: number) => T): Promise<void> {
      const { anchor, sender, from } = await open(codec);
      const before = from.stats().recordsSent.data;
      let sent = 0;
      const reading = readAll(anchor);
      for (const item of bad) {
        await failure('ERR_SERIALIZATION', () => sender.trySend(item));
        await failure('ERR_SERIALIZATION', sender.send(item));
        if (host === 'piscina') await failure('ERR_SERIALIZATION', () => sender.sendBlocking(item));
        await sender.send(good(sent++));
      }
      await sender.finalize();
      const { items, error } = await reading;
      expect(error).to.equal(undefined);
      expect(items).to.deep.equal(Array.from({ length: sent }, (_, n) => good(n)));
      if (where === 'another node')
        await until('all are counted', () => from.stats().recordsSent.data - before === sent + 1);
    }

    for (const [name, codec] of [
      ['msgpackCodec', msgpackCodec],
      ['exactMsgpackCodec', exactMsgpackCodec],
    ] as const)
      it(`is refused by ${name}, and nothing of it goes to ${where}`, () =>
        survives<unknown>(codec, Object.values(UNENCODABLE), (n) => ({ n, text: 'good' })));

    it(`is refused by rawCodec, and nothing of it goes to ${where}`, () =>
      survives<Uint8Array>(rawCodec, [wrong('text'), wrong(undefined), wrong([1])], (n) => Uint8Array.of(n)));

    it(`is refused by a codec of the application, and nothing of it goes to ${where}`, async () => {
      const codec = () =>
        customCodec<number>({
          encode(value) {
            if (value < 0) throw value === -1 ? new Error('boom') : 'boom';
            return value === 100 ? wrong('text') : Uint8Array.of(value);
          },
          decode: (bytes) => bytes[0]!,
        });
      await survives<number>(codec, [-1, -2, 100], (n) => n);
    });

    it(`is refused where a codec object lends bytes that are not there, and nothing goes to ${where}`, async () => {
      const lies: readonly [unknown, unknown, unknown][] = [
        [new Uint8Array(4), 3, 1],
        [new Uint8Array(4), 0, 5],
        [new Uint8Array(4), -1, 2],
        [new Uint8Array(4), 0.5, 2],
        [new Uint8Array(4), Number.NaN, Number.NaN],
        [new Uint8Array(4), 0, 2 ** 40],
        [new Uint8Array(4), undefined, 2],
        [[1, 2, 3], 0, 1],
        [undefined, 0, 0],
      ];
      const codec = (): ItemCodec<number> => {
        let lent: readonly [unknown, unknown, unknown] = [Uint8Array.of(0), 0, 1];
        return {
          get bytes() {
            return wrong(lent[0]);
          },
          get start() {
            return wrong(lent[1]);
          },
          get end() {
            return wrong(lent[2]);
          },
          encode(n) {
            if (n === -100) throw new RangeError('boom');
            lent = n < 0 ? lies[-1 - n]! : [Uint8Array.of(9, n, 9), 1, 2];
          },
          decode: (bytes, start) => bytes[start]!,
        };
      };
      await survives<number>(codec, [-100, ...lies.map((_, i) => -1 - i)], (n) => n);
    });
  }

  it('a getter that sends with the same codec fails both, or sends both, and mixes nothing', async () => {
    for (const codec of [msgpackCodec<unknown>(), exactMsgpackCodec<unknown>()]) {
      const { consumer, producer } = await nodes.shared(host);
      const anchor = consumer.createAnchor<unknown>();
      const sender = await producer.attachAnchor<unknown>(anchor.handle, { codec });
      const item = {
        a: 'before',
        get b() {
          sender.trySend({ inner: true });
          return 2;
        },
        c: [3],
      };
      await sender.send(item).catch(() => {});
      await sender.send('last');
      await sender.finalize();
      const { items, error } = await readAll(anchor);
      expect(error).to.equal(undefined);
      for (const got of items) expect([{ inner: true }, { a: 'before', b: 2, c: [3] }, 'last']).to.deep.include(got);
      expect(items.at(-1)).to.equal('last');
    }
  });

  it('an item nested deeper than its reader takes is refused by the exact codec, and ends the reader of the other', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const exact = exactMsgpackCodec<unknown>();
    const anchor = consumer.createAnchor<unknown>();
    const sender = await producer.attachAnchor<unknown>(anchor.handle, { codec: exact });
    await failure('ERR_SERIALIZATION', sender.send(nested(129)));
    await sender.send(nested(128));
    expect(await take(anchor, 1)).to.deep.equal([nested(128)]);
    await sender.finalize();
    expect((await readAll(anchor)).error).to.equal(undefined);
    const other = consumer.createAnchor<unknown>();
    const plain = await producer.attachAnchor<unknown>(other.handle);
    await plain.send(nested(129));
    expect((await readAll(other)).error?.code).to.equal('ERR_DESERIALIZATION');
    await plain.close();
  });
});

streamSuite('calls of an application that make no sense', (host, nodes) => {
  for (const where of ['another node', 'the same node'] as const) {
    async function open(): Promise<{ anchor: StreamAnchor<number>; sender: StreamSender<number> }> {
      const { consumer, producer } = await nodes.shared(host);
      const anchor = consumer.createAnchor<number>();
      const from: Velo = where === 'another node' ? producer : consumer;
      return { anchor, sender: await from.attachAnchor<number>(anchor.handle) };
    }

    for (const end of ['finalize', 'detach'] as const)
      it(`after ${end} every send and every further end fails, and the stream has ended once (${where})`, async () => {
        const { anchor, sender } = await open();
        await sender.send(1);
        await sender[end]();
        await failure('ERR_CHANNEL_CLOSED', sender.send(2));
        await failure('ERR_CHANNEL_CLOSED', () => sender.trySend(2));
        await failure('ERR_CHANNEL_CLOSED', () => sender.sendBlocking(2));
        await failure('ERR_CHANNEL_CLOSED', sender.sendErr('late'));
        await failure('ERR_CHANNEL_CLOSED', sender.ready());
        await failure('ERR_CHANNEL_CLOSED', sender.finalize());
        await failure('ERR_CHANNEL_CLOSED', sender.detach());
        await sender.close();
        const frames = anchor.frames();
        expect((await frames.next()).value).to.deep.equal({ kind: 'item', value: 1 });
        expect((await frames.next()).value).to.deep.equal({ kind: end === 'finalize' ? 'finalized' : 'detached' });
        if (end === 'detach') anchor.cancel();
        expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
      });

    it(`a soft error that is no string is refused, and one of any string arrives (${where})`, async () => {
      const { anchor, sender } = await open();
      for (const message of [undefined, null, 7, {}, new Error('boom'), Symbol('x')])
        await failure('ERR_INVALID_ARGUMENT', sender.sendErr(wrong(message)));
      const texts = ['', 'plain', 'é\u{1f600}', 'x'.repeat(300_000)];
      const sending = (async () => {
        for (const text of texts) await sender.sendErr(text);
        await sender.sendErr('\ud800');
        await sender.finalize();
      })();
      const got: string[] = [];
      for await (const frame of anchor.frames()) if (frame.kind === 'senderError') got.push(frame.message);
      await sending;
      expect(got).to.deep.equal([...texts, '\ufffd']);
    });

    it(`a signal that is none is refused by whatever takes one, and nothing is left waiting (${where})`, async () => {
      const { anchor, sender } = await open();
      while (sender.trySend(7));
      for (const signal of [{}, 7, 'abort', null, { aborted: false }].map(wrong)) {
        for (const way of ['items', 'batches', 'frames'] as const)
          await failure('ERR_INVALID_ARGUMENT', () => anchor[way]({ signal }));
        await failure('ERR_INVALID_ARGUMENT', sender.ready({ signal }));
        // Room may have come meanwhile: then nobody asks for the signal.
        await sender.send(7, { signal }).catch((error) => failure('ERR_INVALID_ARGUMENT', Promise.reject(error)));
      }
      const sending = sender.send(8).then(() => sender.finalize());
      const { items, error } = await readAll(anchor);
      await sending;
      expect([items.at(-1), error]).to.deep.equal([8, undefined]);
    });

    it(`two reads at once are refused in every way to read, and the first goes on (${where})`, async () => {
      const { anchor, sender } = await open();
      const first = anchor.items().next();
      for (const way of ['items', 'batches', 'frames'] as const)
        await failure('ERR_INVALID_STATE', anchor[way]().next() as Promise<unknown>);
      await failure('ERR_INVALID_STATE', readTwice(anchor));
      await sender.send(5);
      expect(await first).to.deep.equal({ done: false, value: 5 });
      await sender.finalize();
      expect((await readAll(anchor)).error).to.equal(undefined);
    });
  }

  async function readTwice(anchor: StreamAnchor<number>): Promise<void> {
    for await (const _ of anchor) return;
  }

  it('options that there are not, and values of another kind, are refused by name', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const bad: readonly [string, AnchorOptions<unknown>][] = [
      ['heartbeatMs', wrong({ heartbeatMs: 50 })],
      ['createAnchor', wrong(null)],
      ['createAnchor', wrong(5)],
      ['codec', { codec: wrong({}) }],
      ['codec', { codec: wrong('json') }],
      ['codec', { codec: wrong(null) }],
      ['heartbeatIntervalMs', { heartbeatIntervalMs: wrong('50') }],
    ];
    for (const [name, options] of bad)
      expect((await failure('ERR_INVALID_ARGUMENT', () => consumer.createAnchor(options))).message).to.include(name);
    const anchor = consumer.createAnchor();
    const attach: readonly [string, AttachStreamOptions<unknown>][] = [
      ['lane', wrong({ lane: 1 })],
      ['attachAnchor', wrong(null)],
      ['codec', { codec: wrong({ encode() {} }) }],
      ['signal', { signal: wrong({}) }],
      ['signal', { signal: wrong(1) }],
    ];
    for (const node of [producer, consumer]) {
      for (const [name, options] of attach) {
        const error = await failure('ERR_INVALID_ARGUMENT', node.attachAnchor(anchor.handle, options));
        expect(error.message).to.include(name);
      }
      for (const handle of [undefined, null, 5, 'handle', {}, anchor.handle.toJSON()])
        await failure('ERR_INVALID_ARGUMENT', node.attachAnchor(wrong(handle)));
      const halves = { worker: -1n, local: 1n };
      await failure('ERR_BAD_HANDLE', node.attachAnchor(wrong(halves)));
    }
    await failure('ERR_INVALID_ARGUMENT', producer.attachAnchor(anchor.handle, { key: wrong(5) }));
    await failure('ERR_INVALID_ARGUMENT', producer.attachAnchor(anchor.handle, { key: wrong('5') }));
    expect(producer.stats().senders).to.equal(0);
    const { worker, local } = anchor.handle;
    const sender = await producer.attachAnchor(wrong({ worker, local }) as StreamAnchorHandle);
    await sender.finalize();
    expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
    await provesAlive({ consumer, producer });
  });

  it('an anchor that has ended takes every call and does nothing', async () => {
    const { consumer } = await nodes.shared(host);
    const anchor = consumer.createAnchor<number>();
    anchor.cancel();
    anchor.cancel();
    anchor.controller.cancel();
    anchor.controller.requestStop();
    anchor.setTimeout(1);
    anchor.setTimeout(undefined);
    await anchor[Symbol.asyncDispose]();
    await pause(5);
    for (const way of ['items', 'batches', 'frames'] as const)
      expect(await anchor[way]().next()).to.deep.equal({ done: true, value: undefined });
    expect(consumer.stats().anchors).to.equal(0);
  });
});
