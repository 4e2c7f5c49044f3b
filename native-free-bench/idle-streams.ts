// What an open stream costs while nothing flows: bytes in the heap and in buffers, for the anchor's process and for the sender's. Lanes are
// inline, so that everything a node keeps is in the process that is looked at. Owns both roles. Must be run on a quiet machine, and with
// a collector that can be called:
//
//   node --expose-gc dist/native-free-bench/idle-streams.js [--streams 10000] [--json]

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { PeerInfo, type StreamAnchor, StreamAnchorHandle, type StreamSender, Velo } from '../lib/index.js';
import { machine } from './report.js';

const SENDER_ROLE = 'sender';
const WARM_UP_STREAMS = 200;
/** Timers and sockets come to rest. */
const SETTLE_MS = 300;
/** Shared memory of a stream: a row at either end. It is reserved when a node is made, for `maxStreams` of each kind. */
const ROW_BYTES = 64;

interface ToSender {
  readonly peer?: string;
  readonly attach?: readonly (readonly [worker: bigint, local: bigint])[];
  readonly finalize?: boolean;
}

interface FromSender {
  readonly peer?: string;
  readonly used?: number;
}

function bytesInUse(): number {
  if (globalThis.gc === undefined) throw new Error('run with node --expose-gc');
  globalThis.gc();
  globalThis.gc();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

async function sendSide(maxStreams: number): Promise<void> {
  const node = await Velo.create({ host: 'inline', maxStreams });
  const senders: StreamSender<number>[] = [];
  const say = (message: FromSender) => process.send!(message);
  process.on('message', async ({ peer, attach, finalize }: ToSender) => {
    if (peer !== undefined) node.registerPeer(PeerInfo.fromJSON(JSON.parse(peer)));
    if (attach !== undefined) {
      const handles = attach.map(([worker, local]) => StreamAnchorHandle.pack(worker, local, 'spsc'));
      for (const handle of handles) senders.push(await node.attachAnchor<number>(handle));
    }
    if (finalize) await Promise.all(senders.splice(0).map((sender) => sender.finalize()));
    await pause(SETTLE_MS);
    say({ used: bytesInUse() });
  });
  process.on('disconnect', () => void node.close());
  say({ peer: JSON.stringify(node.peerInfo) });
}

async function readSide(streams: number, json: boolean): Promise<void> {
  const node = await Velo.create({ host: 'inline', maxStreams: streams + WARM_UP_STREAMS });
  const child = fork(fileURLToPath(import.meta.url), [SENDER_ROLE, '--streams', String(streams)], {
    serialization: 'advanced',
  });
  const answer = async (): Promise<FromSender> => (await once(child, 'message'))[0] as FromSender;
  const ask = async (message: ToSender): Promise<number> => {
    const answered = answer();
    child.send(message);
    return (await answered).used!;
  };
  node.registerPeer(PeerInfo.fromJSON(JSON.parse((await answer()).peer!)));
  await ask({ peer: JSON.stringify(node.peerInfo) });
  const create = (count: number) => Array.from({ length: count }, () => node.createAnchor<number>());
  const attach = (anchors: readonly StreamAnchor<number>[]) =>
    ask({ attach: anchors.map(({ handle }) => [handle.worker, handle.local] as const) });

  const first = create(WARM_UP_STREAMS);
  await attach(first);
  const sender0 = await ask({ finalize: true });
  for (const anchor of first) for await (const _ of anchor);
  await pause(SETTLE_MS);
  const reader0 = bytesInUse();
  const anchors = create(streams);
  const waiting = bytesInUse();
  const sender = await attach(anchors);
  await pause(SETTLE_MS);
  const reader = bytesInUse();
  if (node.stats().liveSlots !== streams) throw new Error(`${node.stats().liveSlots} of ${streams} streams are open`);

  const per = (from: number, to: number) => Math.round((to - from) / streams);
  const result = {
    streams,
    anchorUnattached: per(reader0, waiting),
    readerPerStream: per(reader0, reader),
    senderPerStream: per(sender0, sender),
    sharedRowBytesEachSide: ROW_BYTES,
  };
  if (json) process.stdout.write(`${JSON.stringify({ ...result, machine: machine() })}\n`);
  else
    process.stdout.write(
      [
        `${streams} idle streams on one peer and lane, bytes per stream (heap and buffers)`,
        `  anchor nobody attached to   ${result.anchorUnattached}`,
        `  open, at its reader         ${result.readerPerStream} and ${ROW_BYTES} of shared rows`,
        `  open, at its sender         ${result.senderPerStream} and ${ROW_BYTES} of shared rows`,
        '',
      ].join('\n'),
    );
  child.disconnect();
  await node.close({ timeoutMs: 1_000 });
  process.exit(0);
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { streams: { type: 'string', default: '10000' }, json: { type: 'boolean', default: false } },
});
const streams = Number(values.streams);
if (positionals[0] === SENDER_ROLE) await sendSide(streams + WARM_UP_STREAMS);
else await readSide(streams, values.json);
