// A process whose lanes die again and again, whose application drops its senders then (`--expose-gc`), and that closes its nodes at
// the end, or at once after a death. Nothing may keep it alive after that. It prints what was seen, as JSON.

import { subscribe } from 'node:diagnostics_channel';
import {
  type StreamAnchor,
  type StreamCloseEvent,
  type StreamEvent,
  type StreamSender,
  Velo,
} from '../../lib/index.js';
import { introduce, readAll, until } from '../support/nodes.js';
import { kill } from './crashing-lane.js';

declare const gc: () => void;

const MORTAL = new URL('./crashing-lane.js', import.meta.url);
const HOUR = 3_600_000;
const DEATHS = [0, 1, 1, 0] as const;
const PER_LANE = 4;
/** A key that the receiver puts on lane 0 of two, and one for lane 1. */
const KEYS = [2n, 0n] as const;

export interface LaneDeathReport {
  readonly deaths: readonly number[];
  /** How readers ended after each death, by code. */
  readonly readers: readonly (readonly string[])[];
  readonly outcomes: readonly string[];
  readonly abandoned: number;
  readonly warnings: number;
  /** Streams listed before, right after each death, and in the end. */
  readonly listed: readonly number[];
  /** Events of the streams that came after each death, at the node: opened, closed, and closed in order. */
  readonly events: readonly (readonly [opened: number, closed: number, terminal: number])[];
  readonly left: readonly number[];
}

const [host, when] = process.argv.slice(2) as ['piscina' | 'worker', 'settled' | 'restarting'];
let warnings = 0;
process.on('warning', () => (warnings += 1));
const deaths: number[] = [];
const opened: StreamEvent[] = [];
const closed: StreamCloseEvent[] = [];
subscribe('velomux:lane:death', (event) => void deaths.push((event as { worker: number }).worker));
subscribe('velomux:stream:open', (event) => void opened.push(event as StreamEvent));
subscribe('velomux:stream:close', (event) => void closed.push(event as StreamCloseEvent));

const other = await Velo.create({ host: 'inline', lanes: 2 });
const node = await Velo.create({ host, worker: MORTAL, lanes: 2, maxLaneRestarts: 100, unattachedTimeoutMs: HOUR });
introduce(node, other);

const readers: string[][] = [];
const outcomes: Promise<string>[] = [];
const listed: number[] = [];
const events: [number, number, number][] = [];
const unattached: StreamAnchor<number>[] = [];

async function produce(): Promise<{ anchors: StreamAnchor<number>[]; senders: StreamSender<number>[] }> {
  const anchors: StreamAnchor<number>[] = [];
  const senders: StreamSender<number>[] = [];
  for (let i = 0; i < 2 * PER_LANE; i += 1) {
    anchors.push(other.createAnchor<number>());
    senders.push(await node.attachAnchor<number>(anchors[i]!.handle, { key: KEYS[i % 2]! }));
    await senders[i]!.send(i);
  }
  return { anchors, senders };
}

/** Streams whose senders are dropped when their lane is dead. Those of the lane that lives end in order. */
async function dropWithTheirLane(lane: number, restarts: number): Promise<void> {
  const { anchors, senders } = await produce();
  const lanes = new Map((await node.streams()).map(({ anchor, worker }) => [anchor, worker]));
  const reading = Promise.all(anchors.map((anchor) => readAll(anchor)));
  const mine = senders.filter((_, i) => lanes.get(anchors[i]!.handle.local) === lane);
  for (const sender of mine) outcomes.push(sender.retired());
  const list = node.streams();
  kill(node.workerId, lane, 'exit');
  listed.push((await list).length >= PER_LANE ? 1 : 0);
  await until('it started again', () => node.stats().laneRestarts === restarts);
  for (const sender of senders) if (!mine.includes(sender)) await sender.finalize();
  readers.push((await reading).map(({ error }) => error?.code ?? 'ended'));
  unattached.push(node.createAnchor<number>());
}

async function countEvents(): Promise<void> {
  opened.length = 0;
  closed.length = 0;
  const { anchors, senders } = await produce();
  for (const sender of senders) await sender.finalize();
  await Promise.all(anchors.map((anchor) => readAll(anchor)));
  const begun = () => opened.filter((event) => event.node === node.instanceId);
  // Not those of streams that lived on through the death: they may be told late.
  const over = () => {
    const sessions = new Set(begun().map(({ session }) => session));
    return closed.filter((event) => event.node === node.instanceId && sessions.has(event.session));
  };
  await until('the node told of every end', () => over().length >= senders.length);
  events.push([begun().length, over().length, over().filter(({ reason }) => reason === 'terminal').length]);
}

for (const [i, lane] of DEATHS.entries()) {
  await dropWithTheirLane(lane, i + 1);
  await countEvents();
}
await until('the collector found every sender', () => {
  gc();
  return node.stats().senders === 0;
});
listed.push((await node.streams()).length);
const stats = node.stats();
const left = [stats.liveSlots, stats.stagedRecords, stats.withheldRecords, stats.heldRecords, stats.rendezvousSlots];
const abandoned = stats.abandonedSenders;

const pending = await produce();
const late = pending.senders.map((sender) => sender.retired());
if (when === 'restarting') kill(node.workerId, 0, 'exit');
const census = node.streams().then(
  () => 'listed',
  (error: { code: string }) => error.code,
);
await Promise.all([node.close({ timeoutMs: 300 }), other.close({ timeoutMs: 300 })]);
await census;
const report: LaneDeathReport = {
  deaths,
  readers,
  outcomes: [...(await Promise.all(outcomes)), ...(await Promise.all(late))],
  abandoned,
  warnings,
  listed,
  events,
  left,
};
console.log(JSON.stringify(report));
