// Many streams at once that end in every way, through rings that are always full, with readers that are busy. What a reader got
// must be the beginning of what its sender sent, in order, and nothing may be left behind.

import { expect } from 'chai';
import {
  rawCodec,
  type StreamAnchor,
  type StreamSender,
  type Velo,
  VeloError,
  type VeloOptions,
} from '../../lib/index.js';
import { holdsNothing, openStream, pause, range, readAll, sendRange, streamSuite, until } from '../support/nodes.js';

/** 64 MiB less what a batch needs, the item prefix and the header of a 32-bit byte string. */
const LARGEST_ITEM = 64 * 1024 * 1024 - 64 - 6 - 5;
const SMALLEST_RING = 1_024;

/** xorshift32: the same storm in every run. */
function seeded(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

/** An item that says which stream it is of and where it stands; its size varies from a few bytes to more than a ring holds. */
function itemOf(stream: number, position: number): [number, number, string] {
  return [stream, position, 'x'.repeat((stream * 31 + position * 7) % 300)];
}

interface Fate {
  readonly count: number;
  readonly end: 'finalize' | 'detach' | 'close' | 'cancel' | 'stop';
}

async function produce(sender: StreamSender<unknown>, stream: number, { count, end }: Fate): Promise<number> {
  let sent = 0;
  try {
    while (sent < count || end === 'cancel') {
      if (end === 'stop' && sender.stopped) break;
      await sender.send(itemOf(stream, sent));
      sent += 1;
    }
    if (end === 'close') await sender.close();
    else if (end === 'detach') await sender.detach();
    else await sender.finalize();
  } catch (error) {
    if (!VeloError.is(error, 'ERR_CHANNEL_CLOSED')) throw error;
    await sender.close();
  }
  return sent;
}

async function consume(
  anchor: StreamAnchor<unknown>,
  { count, end }: Fate,
): Promise<{ items: unknown[]; last: string }> {
  const items: unknown[] = [];
  let last = 'nothing';
  try {
    for await (const frame of anchor.frames()) {
      last = frame.kind;
      if (frame.kind === 'item') items.push(frame.value);
      if (items.length === count && end === 'cancel') anchor.controller.cancel();
      if (items.length === count >> 1 && end === 'stop') anchor.controller.requestStop();
      if (frame.kind === 'detached') anchor.controller.cancel();
      if (items.length % 16 === 0) await pause(0);
    }
  } catch (error) {
    if (!VeloError.is(error)) throw error;
    last = error.code;
  }
  return { items, last };
}

const LAST: Record<Fate['end'], readonly string[]> = {
  finalize: ['finalized'],
  stop: ['finalized'],
  detach: ['detached'],
  close: ['ERR_SENDER_DROPPED'],
  cancel: ['item'],
};
const ENDS = Object.keys(LAST) as Fate['end'][];

async function oneStream(consumer: Velo, producer: Velo, stream: number, fate: Fate): Promise<void> {
  const { anchor, sender } = await openStream<unknown>({ consumer, producer });
  const [sent, { items, last }] = await Promise.all([produce(sender, stream, fate), consume(anchor, fate)]);
  const what = `stream ${stream}, ${fate.end} after ${fate.count}`;
  expect(LAST[fate.end], what).to.include(last);
  expect(items, what).to.deep.equal(range(0, items.length).map((i) => itemOf(stream, i)));
  if (fate.end === 'cancel') expect(items.length, what).to.equal(fate.count);
  else expect(items.length, what).to.equal(sent);
}

streamSuite('a storm of streams', (host, nodes) => {
  const storms: [string, VeloOptions, number][] = [
    ['with default options', {}, 60],
    [
      'through the smallest rings and windows',
      { ringBytes: SMALLEST_RING, mux: { initialCredit: 2, slotByteBudget: 100 } },
      30,
    ],
    ['over four lanes, small batches', { lanes: 4, mux: { initialCredit: 8, maxBatchBytes: 400 } }, 40],
  ];
  for (const [how, options, streams] of storms) {
    it(`both ways at once, ${how}: every reader gets the beginning of its stream, and nothing is left`, async () => {
      const { consumer, producer } = await nodes.pair(host, options, options);
      const random = seeded(0x5eed + streams);
      const all = range(0, streams).map((stream) => {
        const fate: Fate = { count: 1 + random(60), end: ENDS[random(ENDS.length)]! };
        return stream % 2 === 0
          ? oneStream(consumer, producer, stream, fate)
          : oneStream(producer, consumer, stream, fate);
      });
      await Promise.all(all);
      await until('nothing is left', () => holdsNothing(consumer) && holdsNothing(producer));
    });
  }

  it('AD-02 cancels that race their attach leave nothing, and each sender hears or was refused', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const races = range(0, 60).map(async (i) => {
      const anchor = consumer.createAnchor<number>();
      const attaching = producer.attachAnchor<number>(anchor.handle).then(
        (sender) => sender,
        (error: unknown) => error,
      );
      for (let step = 0; step < i % 12; step += 1) await (step % 2 === 0 ? Promise.resolve() : pause(0));
      anchor.controller.cancel();
      const outcome = await attaching;
      if (outcome instanceof Error) {
        // Refused by the registry, or cancelled before its slot was open.
        expect(['ERR_ATTACH_REFUSED', 'ERR_CHANNEL_CLOSED']).to.include((outcome as VeloError).code);
        return;
      }
      const sender = outcome as StreamSender<number>;
      await until('the sender hears', () => sender.cancelled);
      await sender.close();
    });
    await Promise.all(races);
    await until('nothing is left', () => holdsNothing(consumer) && holdsNothing(producer));
  });

  it('records that come while the reader computes wait in order, though its ring is full', async () => {
    const options = { ringBytes: SMALLEST_RING, mux: { initialCredit: 16 } };
    const pair = await nodes.pair(host, options, options);
    const streams = await Promise.all(range(0, 8).map(() => openStream<unknown>(pair)));
    // Nobody reads: everything that the windows allow stands between the socket and the readers.
    await Promise.all(streams.map(({ sender }, k) => produceSome(sender, k, 16)));
    await until('all came', () => pair.consumer.stats().recordsInBatchesReceived >= 8 * 17);
    for (const { sender } of streams) await sender.finalize();
    for (const [k, { anchor }] of streams.entries()) {
      const { items, error } = await readAll(anchor);
      expect(error).to.equal(undefined);
      expect(items).to.deep.equal(range(0, 16).map((i) => itemOf(k, i)));
    }
  });

  it('the largest item there is arrives, and one byte more is refused', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const anchor = consumer.createAnchor<Uint8Array>({ codec: rawCodec() });
    const sender = await producer.attachAnchor<Uint8Array>(anchor.handle, { codec: rawCodec() });
    const item = new Uint8Array(LARGEST_ITEM).fill(7);
    const reading = readAll(anchor);
    await sender.send(item);
    const tooLarge = await sender.send(new Uint8Array(LARGEST_ITEM + 1)).catch((error: unknown) => error);
    expect(tooLarge).to.include({ code: 'ERR_FRAME_TOO_LARGE' });
    await sender.send(Uint8Array.of(1));
    await sender.finalize();
    const { items, error } = await reading;
    expect(error).to.equal(undefined);
    expect(items.map(({ length }) => length)).to.deep.equal([LARGEST_ITEM, 1]);
    expect(items[0]!.every((byte) => byte === 7)).to.equal(true);
  });

  it('streams in both directions between two nodes do not meet', async () => {
    const { consumer, producer } = await nodes.shared(host);
    const there = await openStream<number>({ consumer, producer });
    const back = await openStream<number>({ consumer: producer, producer: consumer });
    const reading = [readAll(there.anchor), readAll(back.anchor)] as const;
    await Promise.all([sendRange(there.sender, 0, 300), sendRange(back.sender, 1_000, 1_300)]);
    await Promise.all([there.sender.finalize(), back.sender.finalize()]);
    expect(await reading[0]).to.deep.equal({ items: range(0, 300), error: undefined });
    expect(await reading[1]).to.deep.equal({ items: range(1_000, 1_300), error: undefined });
  });
});

async function produceSome(sender: StreamSender<unknown>, stream: number, count: number): Promise<void> {
  for (let i = 0; i < count; i += 1) await sender.send(itemOf(stream, i));
}
