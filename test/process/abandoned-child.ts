// A process whose application drops senders and anchors, ended and not ended, and lets the collector come (`--expose-gc`). It prints
// what was seen, as JSON.

import { type StreamAnchor, type StreamAnchorHandle, type StreamSender, Velo } from '../../lib/index.js';
import { introduce, readAll, until } from '../support/nodes.js';

declare const gc: () => void;

const STREAMS = 8;

export interface AbandonedReport {
  readonly warnings: readonly { readonly code: string | undefined; readonly text: string }[];
  /** How readers of dropped senders ended, by code. */
  readonly readers: readonly (string | undefined)[];
  readonly items: readonly number[];
  /** Senders whose anchor was dropped that heard of it. */
  readonly cancelled: number;
  readonly counts: readonly (readonly [senders: number, anchors: number])[];
  /** What is left, in the order consumer, producer. */
  readonly left: readonly (readonly [anchors: number, senders: number])[];
  readonly stopped: number;
}

const warnings: { code: string | undefined; text: string }[] = [];
process.on('warning', (warning) => {
  warnings.push({ code: (warning as { code?: string }).code, text: warning.message });
});

const host = process.argv[2] === 'piscina' ? 'piscina' : 'inline';
const consumer = await Velo.create({ host });
const producer = await Velo.create({ host });
introduce(consumer, producer);

/** Collects again and again, and lets the finalizers run, until `holds`. */
async function collected(what: string, holds: () => boolean): Promise<void> {
  await until(what, () => {
    gc();
    return holds();
  });
}

const total = (of: 'abandonedSenders' | 'abandonedAnchors') => consumer.stats()[of] + producer.stats()[of];

// Each in a function of its own, so that nothing stays in a frame that is still running.
async function dropSenders(node: Velo, handles: readonly StreamAnchorHandle[]): Promise<void> {
  for (const [i, handle] of handles.entries()) {
    const sender = await node.attachAnchor<number>(handle);
    await sender.send(i);
  }
}

async function dropAnchors(node: Velo): Promise<StreamSender<number>[]> {
  const senders: StreamSender<number>[] = [];
  for (let i = 0; i < STREAMS; i += 1)
    senders.push(await node.attachAnchor<number>(consumer.createAnchor<number>().handle));
  return senders;
}

async function dropEnded(node: Velo): Promise<void> {
  for (const end of ['finalize', 'close', 'detach'] as const) {
    const anchor = consumer.createAnchor<number>();
    const sender = await node.attachAnchor<number>(anchor.handle);
    await sender.send(1);
    await sender[end]();
    if (end === 'detach') await anchor.frames().next();
    if (end === 'detach') anchor.cancel();
    else await readAll(anchor);
  }
}

/** The consumer cancels, and the producer drops its sender without another word. */
async function dropCancelled(node: Velo): Promise<void> {
  const anchor = consumer.createAnchor<number>();
  const sender = await node.attachAnchor<number>(anchor.handle);
  anchor.cancel();
  await until('the cancel came', () => sender.cancelled);
}

/** Nothing but the wait for an item holds the anchor, and nothing but its loop the sender. */
async function waitForItem(node: Velo): Promise<number[]> {
  const anchor = consumer.createAnchor<number>();
  const sender = await node.attachAnchor<number>(anchor.handle);
  const produce = async () => {
    for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setImmediate(resolve));
    await sender.send(42);
    await sender.finalize();
  };
  void produce();
  return (await readAll(anchor)).items;
}

const counts: [number, number][] = [];
const readers: (string | undefined)[] = [];
const items: number[] = [];
let cancelled = 0;
let stopped = 0;
for (const node of [producer, consumer]) {
  const from: [number, number] = [total('abandonedSenders'), total('abandonedAnchors')];
  await dropEnded(node);
  await dropCancelled(node);
  for (let i = 0; i < 10; i += 1) gc();
  const anchors: StreamAnchor<number>[] = Array.from({ length: STREAMS }, () => consumer.createAnchor<number>());
  await dropSenders(
    node,
    anchors.map(({ handle }) => handle),
  );
  const reading = Promise.all(anchors.map((anchor) => readAll(anchor)));
  await collected('the senders were found', () => total('abandonedSenders') - from[0] === STREAMS);
  for (const { items: got, error } of await reading) {
    items.push(...got);
    readers.push(error?.code);
  }
  const senders = await dropAnchors(node);
  await collected('the anchors were found', () => senders.every(({ cancelSignal }) => cancelSignal.aborted));
  cancelled += senders.filter((sender) => sender.cancelSignal.aborted).length;
  for (const sender of senders) await sender.close();
  const waiting = waitForItem(node);
  gc();
  setImmediate(gc);
  items.push(...(await waiting));
  // A finalizer may ask for a stop, or end a stream, of anybody.
  const anchor = consumer.createAnchor<number>();
  const sender = await node.attachAnchor<number>(anchor.handle);
  const finalizers = new FinalizationRegistry<number>(() => anchor.controller.requestStop());
  (() => finalizers.register({}, 1))();
  await collected('the stop came', () => sender.stopSignal.aborted);
  stopped += Number(sender.stopSignal.aborted && !sender.cancelled);
  await sender.send(7);
  await sender.finalize();
  items.push(...(await readAll(anchor)).items);
  counts.push([total('abandonedSenders') - from[0], total('abandonedAnchors') - from[1]]);
}
await collected('nothing is left', () =>
  [consumer, producer].every((node) => node.stats().anchors + node.stats().senders === 0),
);
const left = [consumer, producer].map((node) => [node.stats().anchors, node.stats().senders] as const);
await Promise.all([consumer.close(), producer.close()]);
const report: AbandonedReport = { warnings, readers, items, cancelled, counts, left, stopped };
console.log(JSON.stringify(report));
