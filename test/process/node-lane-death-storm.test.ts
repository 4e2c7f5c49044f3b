// Lanes that die again and again under traffic both ways: every stream ends, whole or with a named error behind what came in order, and
// in the end nothing is left and everything works.

import { expect } from 'chai';
import type { ErrorCode, StreamSender, Velo } from '../../lib/index.js';
import { VeloError } from '../../lib/index.js';
import {
  holdsNothing,
  introduce,
  nodesOfSuite,
  type Pair,
  pause,
  provesAlive,
  range,
  readAll,
  until,
  within,
} from '../support/nodes.js';
import { kill } from './crashing-lane.js';

const MORTAL = new URL('./crashing-lane.js', import.meta.url);
const ITEMS = 60;
const DEATHS = 8;
const STREAMS_AT_ONCE = 6;
/** Many times what the slowest end takes: a watchdog, or the timeout of a call. */
const STREAM_MS = 12_000;

/** What a stream, or an attach, may come to when a lane of either node dies. */
const ENDS: readonly ErrorCode[] = [
  'ERR_LANE_DIED',
  'ERR_SENDER_DROPPED',
  'ERR_CHANNEL_CLOSED',
  'ERR_CONNECT_FAILED',
  'ERR_CONNECTION_CLOSED',
  // An answer that died with the lane: nothing tells whoever waits for it.
  'ERR_TIMEOUT',
];

interface Tally {
  whole: number;
  cut: number;
}

async function sendAll(sender: StreamSender<number>): Promise<void> {
  try {
    for (let i = 0; i < ITEMS; i += 1) {
      await sender.send(i);
      if (i % 10 === 9) await pause(1);
    }
    await sender.finalize();
  } catch (error) {
    if (!VeloError.is(error) || !ENDS.includes(error.code)) throw error;
    await sender.close();
  }
}

/** One stream, from its attach to its end at both ends. */
async function oneStream({ consumer, producer }: Pair, tally: Tally): Promise<void> {
  const anchor = consumer.createAnchor<number>();
  let sender: StreamSender<number>;
  try {
    sender = await within(STREAM_MS, producer.attachAnchor<number>(anchor.handle));
  } catch (error) {
    if (!VeloError.is(error) || !ENDS.includes(error.code)) throw error;
    anchor.controller.cancel();
    tally.cut += 1;
    await pause(20);
    return;
  }
  const [{ items, error }] = await within(STREAM_MS, Promise.all([readAll(anchor), sendAll(sender)]));
  expect(items, 'in order, without a gap').to.deep.equal(range(0, items.length));
  if (error === undefined) {
    expect(items).to.have.length(ITEMS);
    tally.whole += 1;
    return;
  }
  expect(ENDS).to.include(error.code);
  tally.cut += 1;
}

async function traffic(pair: Pair, going: () => boolean, tally: Tally): Promise<void> {
  while (going()) await oneStream(pair, tally);
}

describe('lanes that die again and again', () => {
  const nodes = nodesOfSuite();

  for (const host of ['piscina', 'worker'] as const) {
    it(`leave no stream behind (${host} lanes)`, async () => {
      const times = { heartbeatIntervalMs: 300, callTimeoutMs: 3_000 };
      const node: Velo = await nodes.make({ host, worker: MORTAL, lanes: 2, maxLaneRestarts: 1_000, ...times });
      const other = await nodes.make({ host: 'inline', lanes: 2, ...times });
      introduce(node, other);
      const tally: Tally = { whole: 0, cut: 0 };
      let going = true;
      const pairs: Pair[] = [
        { consumer: node, producer: other },
        { consumer: other, producer: node },
      ];
      const running = range(0, STREAMS_AT_ONCE).map((i) => traffic(pairs[i % 2]!, () => going, tally));
      const all = Promise.all(running);
      all.catch(() => {});
      try {
        for (let death = 1; death <= DEATHS; death += 1) {
          const { whole } = tally;
          await Promise.race([until('streams flow', () => tally.whole > whole + 2), all]);
          kill(node.workerId, death % 3 === 0 ? 0 : death % 2, death % 2 === 0 ? 'throw' : 'exit');
          await Promise.race([until(`death ${death} is over`, () => node.stats().laneRestarts === death), all]);
        }
      } finally {
        going = false;
      }
      await within(STREAM_MS, all);
      expect(tally.cut, 'streams that a death cut off').to.be.greaterThan(0);
      await until('nothing is left', () => holdsNothing(node) && holdsNothing(other));
      for (const pair of pairs) for (let i = 0; i < 4; i += 1) await provesAlive(pair);
      expect(node.stats().droppedUnknownPeer).to.equal(0);
    });
  }
});
