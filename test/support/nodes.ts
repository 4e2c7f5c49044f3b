// What the node tests share: nodes that are closed after each test, pairs that know each other, polling without a fixed
// sleep, and the code of an error. It must never look inside a node: tests see what a user of the package sees.

import { expect } from 'chai';
import {
  type ErrorCode,
  type LaneHostKind,
  type StreamAnchor,
  type StreamSender,
  Velo,
  VeloError,
  type VeloOptions,
} from '../../lib/index.js';

export type SuiteHost = Extract<LaneHostKind, 'inline' | 'piscina'>;

const HOSTS: readonly SuiteHost[] = ['inline', 'piscina'];
const PATIENCE_MS = 15_000;
const POLL_MS = 2;

/** Two nodes that have registered each other. */
export interface Pair {
  readonly consumer: Velo;
  readonly producer: Velo;
}

/** A stream with both ends in hand. */
export interface OpenStream<T> {
  readonly anchor: StreamAnchor<T>;
  readonly sender: StreamSender<T>;
}

/** The nodes of a suite: some live for one test, one pair for all of them, because a lane's thread takes long to start. */
export class Nodes {
  /** Tests that forge batches break windows on purpose. */
  mayStall = false;
  private readonly open: Velo[] = [];
  private readonly kept: unknown[] = [];
  private common: Pair | undefined;

  async make(options: VeloOptions): Promise<Velo> {
    const node = await Velo.create(options);
    this.open.push(node);
    return node;
  }

  /**
   * Keeps what the test needs to exist and does not refer to any more, until it ends: an anchor or sender that is garbage-collected is
   * ended.
   */
  keep<T>(value: T): T {
    this.kept.push(value);
    return value;
  }

  /** Two nodes for this test alone. */
  async pair(host: LaneHostKind, consumer: VeloOptions = {}, producer: VeloOptions = {}): Promise<Pair> {
    const made = await Promise.all([this.make({ host, ...consumer }), this.make({ host, ...producer })]);
    introduce(made[0], made[1]);
    return { consumer: made[0], producer: made[1] };
  }

  /** Two nodes with default options for the whole suite. Every test must leave them without a stream. */
  async shared(host: LaneHostKind): Promise<Pair> {
    if (this.common === undefined) {
      const [consumer, producer] = await Promise.all([Velo.create({ host }), Velo.create({ host })]);
      introduce(consumer, producer);
      this.common = { consumer, producer };
    }
    return this.common;
  }

  /** After a test: its own nodes close, the shared ones hold nothing any more. */
  async endTest(): Promise<void> {
    const nodes = this.open.splice(0);
    this.kept.length = 0;
    const mayStall = this.mayStall;
    this.mayStall = false;
    const stalls = nodes.map(stallsOf);
    await Promise.all(nodes.map((node) => node.close({ timeoutMs: 1_000 })));
    if (!mayStall) expect(stalls, 'reader stalls and lost credit').to.deep.equal(nodes.map(() => 0));
    if (this.common === undefined) return;
    const { consumer, producer } = this.common;
    await until('the shared nodes hold nothing', () => holdsNothing(consumer) && holdsNothing(producer));
    expect(stallsOf(consumer) + stallsOf(producer), 'reader stalls and lost credit').to.equal(0);
  }

  async endSuite(): Promise<void> {
    if (this.common === undefined) return;
    const { consumer, producer } = this.common;
    this.common = undefined;
    await Promise.all([consumer.close(), producer.close()]);
  }
}

function stallsOf(node: Velo): number {
  const { readerStalls, creditLost } = node.stats();
  return readerStalls + creditLost;
}

/** No stream, no call, nothing that waits to be sent. */
export function holdsNothing(node: Velo): boolean {
  const { anchors, senders, liveSlots, pendingCalls, withheldRecords, stagedRecords, heldRecords } = node.stats();
  return anchors + senders + liveSlots + pendingCalls + withheldRecords + stagedRecords + heldRecords === 0;
}

/** The nodes of the surrounding suite, ended after each test and after the last. */
export function nodesOfSuite(): Nodes {
  const nodes = new Nodes();
  afterEach(() => nodes.endTest());
  after(() => nodes.endSuite());
  return nodes;
}

/** Runs a suite once per lane host. */
export function streamSuite(title: string, suite: (host: SuiteHost, nodes: Nodes) => void): void {
  for (const host of HOSTS) {
    describe(`${title} (${host} lanes)`, () => suite(host, nodesOfSuite()));
  }
}

export function introduce(a: Velo, b: Velo): void {
  a.registerPeer(b.peerInfo);
  b.registerPeer(a.peerInfo);
}

/** An anchor at the consumer with the producer attached. */
export async function openStream<T = unknown>(
  { consumer, producer }: Pair,
  options: { key?: bigint } = {},
): Promise<OpenStream<T>> {
  const anchor = consumer.createAnchor<T>();
  const sender = await producer.attachAnchor<T>(anchor.handle, options);
  return { anchor, sender };
}

export async function sendRange(sender: StreamSender<number>, from: number, to: number): Promise<void> {
  for (let i = from; i < to; i += 1) await sender.send(i);
}

export function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, i) => from + i);
}

/** Everything a reader gets until the end; what the end rejected with, if it did. */
export async function readAll<T>(items: AsyncIterable<T>): Promise<{ items: T[]; error: VeloError | undefined }> {
  const got: T[] = [];
  try {
    for await (const item of items) got.push(item);
  } catch (error) {
    if (!VeloError.is(error)) throw error;
    return { items: got, error };
  }
  return { items: got, error: undefined };
}

/** The next `count` items, without ending the stream as leaving a loop would. */
export async function take<T>(anchor: StreamAnchor<T>, count: number): Promise<T[]> {
  const reader = anchor[Symbol.asyncIterator]();
  const items: T[] = [];
  while (items.length < count) {
    const { done, value } = await reader.next();
    if (done) throw new Error(`the stream ended after ${items.length} of ${count} items`);
    items.push(value);
  }
  return items;
}

/** Polls until `condition` holds; fails with `what`. */
export async function until(what: string, condition: () => boolean): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`gave up waiting until ${what}`);
    await pause(POLL_MS);
  }
}

/** Lets time pass where a test must show that nothing happens. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** What a promise comes to, which must be soon: a generous bound against waiting for ever. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came of it in ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The error a call ends with, which must carry (one of) the code(s). */
export async function failure(
  code: ErrorCode | readonly ErrorCode[],
  action: Promise<unknown> | (() => unknown),
): Promise<VeloError> {
  try {
    await (typeof action === 'function' ? action() : action);
  } catch (error) {
    if (!VeloError.is(error)) throw error;
    expect([code].flat(), error.message).to.include(error.code);
    return error;
  }
  throw new Error(`nothing failed; ${code} was expected`);
}

/** A whole small stream from one node to another: proof that both still work. */
export async function provesAlive(pair: Pair, count = 5): Promise<void> {
  const { anchor, sender } = await openStream<number>(pair);
  await sendRange(sender, 0, count);
  await sender.finalize();
  expect(await readAll(anchor)).to.deep.equal({ items: range(0, count), error: undefined });
}
