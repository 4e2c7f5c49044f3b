// What is measured: each workload from a fresh pair of processes to its figures. Every count and every item is checked; a wrong
// run throws. Must never know how a side is built.

import type { PeerInfoJson } from '../../../lib/index.js';
import { type HandleText, type Receipt, Side, type SideKind } from './side.js';

/** Who sends and who receives (for calls: who calls and who answers). */
export interface Pairing {
  readonly from: SideKind;
  readonly to: SideKind;
}

export type Figures = Readonly<Record<string, number>>;

export interface Workload {
  readonly name: string;
  readonly run: (pair: Pair, seconds: number) => Promise<Figures>;
}

const CREDIT = 32;
const WARM_UP_PART = 0.3;
const LONE_EVERY_MS = 5;
const LONE_PER_SECOND = 1_000 / LONE_EVERY_MS;
const MESSAGE_BYTES = 64;
const NO_LIMIT = 2 ** 32;
const WARM_UP_CALLS = 300;
const RUN_LIMIT_MS = 120_000;

/** Two processes that know each other. */
export class Pair {
  private constructor(
    readonly from: Side,
    readonly to: Side,
    private readonly toInfo: PeerInfoJson,
  ) {}

  static async open(pairing: Pairing, rustProgram: string, profiled = false): Promise<Pair> {
    const [from, to] = [pairing.from, pairing.to].map((kind) => new Side(kind, rustProgram, profiled)) as [Side, Side];
    const [fromInfo, toInfo] = await Promise.all([from.start(CREDIT), to.start(CREDIT)]);
    await Promise.all([from.ask('peer', toInfo), to.ask('peer', fromInfo)]);
    return new Pair(from, to, toInfo);
  }

  get target(): PeerInfoJson {
    return this.toInfo;
  }

  async openStreams(count: number): Promise<void> {
    const handles = await this.to.ask<HandleText[]>('anchors', { count });
    await this.from.ask('attach', handles);
  }

  /** Both sides' CPU time, microseconds. */
  async cpuUs(): Promise<readonly [number, number]> {
    const [a, b] = await Promise.all([this.from.ask<{ us: number }>('cpu'), this.to.ask<{ us: number }>('cpu')]);
    return [a.us, b.us];
  }

  async finishStreams(count: number): Promise<void> {
    await this.from.ask('finish');
    const ended = await this.to.ask<number>('ended');
    if (ended !== count) throw new Error(`${count - ended} of ${count} streams did not end as finalized`);
  }

  async close(): Promise<void> {
    await Promise.all([this.from.ask('close'), this.to.ask('close')]);
  }

  async end(): Promise<void> {
    await Promise.all([this.from.end(), this.to.end()]);
  }
}

function checked(receipt: Receipt, expected: number): Receipt {
  if (receipt.total !== expected || receipt.wrong !== 0)
    throw new Error(`${receipt.total} of ${expected} arrived, ${receipt.wrong} of them wrong`);
  return receipt;
}

/** CPU of both sides for what `work` does, per unit. */
async function cpuOf<T>(pair: Pair, units: number, work: () => Promise<T>): Promise<{ result: T; cpu: Figures }> {
  const before = await pair.cpuUs();
  const result = await work();
  const after = await pair.cpuUs();
  const spent = after.map((us, i) => (us - before[i]!) / units) as [number, number];
  return { result, cpu: { cpuFromUs: spent[0], cpuToUs: spent[1] } };
}

/** Forward passes over `streams` streams, back to back. */
export function throughput(streams: number): Workload {
  return {
    name: `throughput, ${streams} streams`,
    run: async (pair, seconds) => {
      await pair.openStreams(streams);
      const phase = async (passes: number, ms: number) => {
        await pair.to.ask('arm', { expected: passes * streams });
        return pair.from.ask<{ passes: number }>('passes', { passes, ms });
      };
      // Open-ended first, to compile the code and to learn how many passes fit the time.
      const started = performance.now();
      const { passes: warm } = await phase(NO_LIMIT, seconds * WARM_UP_PART * 1_000);
      await pair.to.ask('expect', { expected: warm * streams });
      checked(await pair.to.ask<Receipt>('full'), warm * streams);
      const rate = warm / ((performance.now() - started) / 1_000);
      const passes = Math.max(2, Math.ceil(rate * seconds));
      const expected = passes * streams;
      const { result, cpu } = await cpuOf(pair, expected, async () => {
        await phase(passes, NO_LIMIT);
        return pair.to.ask<Receipt>('full');
      });
      const { firstNs, lastNs } = checked(result, expected);
      await pair.finishStreams(streams);
      return { perSecond: (expected - 1) / ((lastNs - firstNs) / 1e9), ...cpu };
    },
  };
}

/** One stream, one token at a time: one-way latency. */
export const lone: Workload = {
  name: 'lone stream, a token each 5 ms',
  run: async (pair, seconds) => {
    await pair.openStreams(1);
    const phase = async (count: number) => {
      await pair.to.ask('arm', { expected: count });
      await pair.from.ask('lone', { count, everyMs: LONE_EVERY_MS });
      return checked(await pair.to.ask<Receipt>('full'), count);
    };
    await phase(Math.ceil(LONE_PER_SECOND * seconds * WARM_UP_PART));
    const count = Math.ceil(LONE_PER_SECOND * seconds);
    const { result, cpu } = await cpuOf(pair, count, () => phase(count));
    await pair.finishStreams(1);
    return { p50Us: result.p50Us!, p99Us: result.p99Us!, ...cpu };
  },
};

/** Calls that are answered, `inFlight` at a time. */
export function unary(inFlight: number): Workload {
  return {
    name: `unary of ${MESSAGE_BYTES} bytes, ${inFlight} in flight`,
    run: async (pair, seconds) => {
      const call = (count: number) =>
        pair.from.ask<{ ms: number; p50Us: number; p99Us: number }>('unary', {
          peer: pair.target,
          count,
          inFlight,
          bytes: MESSAGE_BYTES,
        });
      const { ms: warm } = await call(WARM_UP_CALLS * Math.min(inFlight, 10));
      const count = Math.ceil((WARM_UP_CALLS * Math.min(inFlight, 10) * seconds * 1_000) / warm);
      const { result, cpu } = await cpuOf(pair, count, () => call(count));
      return { perSecond: count / (result.ms / 1_000), p50Us: result.p50Us, p99Us: result.p99Us, ...cpu };
    },
  };
}

/** Messages that nobody answers, each sent when the one before was admitted. */
export const pipelined: Workload = {
  name: `messages of ${MESSAGE_BYTES} bytes, pipelined`,
  run: async (pair, seconds) => {
    const fire = async (count: number) => {
      await pair.to.ask('arm', { expected: count });
      await pair.from.ask('fire', { peer: pair.target, count, bytes: MESSAGE_BYTES });
      return checked(await pair.to.ask<Receipt>('full'), count);
    };
    const warm = await fire(WARM_UP_CALLS * 10);
    const rate = (WARM_UP_CALLS * 10) / ((warm.lastNs - warm.firstNs) / 1e9);
    const count = Math.ceil(rate * seconds);
    const { result, cpu } = await cpuOf(pair, count, () => fire(count));
    return { perSecond: (count - 1) / ((result.lastNs - result.firstNs) / 1e9), ...cpu };
  },
};

export const WORKLOADS: readonly Workload[] = [
  throughput(64),
  throughput(256),
  throughput(1_024),
  lone,
  unary(1),
  unary(64),
  pipelined,
];

/** One workload between one pair of fresh processes. */
export async function runOnce(
  workload: Workload,
  pairing: Pairing,
  seconds: number,
  rustProgram: string,
  profiled = false,
): Promise<Figures> {
  const pair = await Pair.open(pairing, rustProgram, profiled);
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no result in ${RUN_LIMIT_MS / 1_000} s`)), RUN_LIMIT_MS);
  });
  try {
    const figures = await Promise.race([workload.run(pair, seconds), limit]);
    await Promise.race([pair.close(), limit]);
    return figures;
  } catch (error) {
    throw new Error(`${pairing.from} → ${pairing.to}, ${workload.name}: ${(error as Error).message}`);
  } finally {
    clearTimeout(timer);
    await pair.end();
  }
}
