// Owns the workloads: what a producer sends and when, and the sink that counts and checks every token at the consumer.
// The same for every row. Must never know which row it drives, nor open a socket.

import { quantile } from './stats.js';

/** What travels: one decoded token. `ts` is CLOCK_MONOTONIC in nanoseconds, only in stamped phases. */
export interface Token {
  t: string;
  i: number;
  lp: number;
  ts?: bigint | number;
}

/** One row's producer half, with all its streams open. */
export interface TokenSender {
  /** Sends one token on one stream, at once. What a full stream refuses is kept and goes with `endPass`; the caller may not change it until then. */
  send(stream: number, token: Token): void;
  /** Ends the pass. Undefined: there is room for the next one; otherwise resolves when every stream took its token and has room again. */
  endPass(): Promise<void> | undefined;
  /** The last pass of a phase is over: whatever still waits inside must go without another pass. */
  rest?(): void;
}

/**
 * How a phase's tokens are checked beyond their fixed fields: `numbered` ones carry the pass in `i` (order and identity per stream),
 * `stamped` ones a clock reading (order per stream, and the latency), `plain` ones are the benchmark's constant token.
 */
export type Phase = 'numbered' | 'plain' | 'stamped';

export interface SinkReport {
  readonly tokens: number;
  readonly firstNs: number;
  readonly lastNs: number;
  /** Latency in microseconds, stamped phases only. */
  readonly p50Us: number | null;
  readonly p99Us: number | null;
  readonly maxUs: number | null;
}

const TOKEN_TEXT = 'token';
const TOKEN_NUMBER = 12345;
const TOKEN_LOGPROB = -0.5;
/** Numbered tokens stay in the range that MessagePack writes as a u16, like TOKEN_NUMBER, so that all have one size. */
const NUMBER_BASE = 256;
const NUMBER_SPAN = 65_000;

export const nowNs = (): number => Number(process.hrtime.bigint());
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The token of every throughput pass; one object, as a decode loop that reuses its output record would have. */
export const plainToken = (): Token => ({ t: TOKEN_TEXT, i: TOKEN_NUMBER, lp: TOKEN_LOGPROB });
const stampedToken = (ts: bigint): Token => ({ t: TOKEN_TEXT, i: TOKEN_NUMBER, lp: TOKEN_LOGPROB, ts });
const numberOfPass = (pass: number): number => NUMBER_BASE + (pass % NUMBER_SPAN);

export interface PassesArgs {
  readonly streams: number;
  readonly phase: Phase;
  /** Whole passes to send; a phase ends at whichever of the two comes first. */
  readonly passes?: number | undefined;
  readonly ms?: number | undefined;
}

/** Back-to-back passes, one token on every stream each; the event loop turns once between passes that found room. */
export async function runPasses(sender: TokenSender, args: PassesArgs): Promise<{ passes: number; wallNs: number }> {
  const { streams, phase, passes = Number.POSITIVE_INFINITY, ms = Number.POSITIVE_INFINITY } = args;
  const start = nowNs();
  const until = start + ms * 1e6;
  const token = plainToken();
  let done = 0;
  while (done < passes && nowNs() < until) {
    if (phase === 'stamped') {
      for (let s = 0; s < streams; s++) sender.send(s, stampedToken(process.hrtime.bigint()));
    } else {
      if (phase === 'numbered') token.i = numberOfPass(done);
      for (let s = 0; s < streams; s++) sender.send(s, token);
    }
    done++;
    await (sender.endPass() ?? turn());
  }
  sender.rest?.();
  return { passes: done, wallNs: nowNs() - start };
}

/** One stream, one stamped token each `everyMs`. */
export function runLone(sender: TokenSender, count: number, everyMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let sent = 0;
    let waiting: Promise<void> = Promise.resolve();
    const timer = setInterval(() => {
      sender.send(0, stampedToken(process.hrtime.bigint()));
      const room = sender.endPass();
      if (room !== undefined) waiting = room;
      if (++sent < count) return;
      clearInterval(timer);
      sender.rest?.();
      waiting.then(resolve, reject);
    }, everyMs);
  });
}

export interface BusyArgs {
  readonly streams: number;
  readonly passes: number;
  /** Length of one pass of synchronous work, milliseconds. */
  readonly passMs: number;
}

/** Wall time of a send on the main thread. The mean holds what the scheduler took; the median is the call itself. */
export interface SendTimes {
  readonly nsPerSend: number;
  readonly medianNsPerSend: number;
}

/**
 * A decode loop that owns the event loop: every pass computes for `passMs`, sends its streams' tokens evenly spread over it, and
 * lets the loop turn only when it is over. Send time is measured around each send and holds one clock reading.
 */
export async function runBusy(sender: TokenSender, args: BusyArgs): Promise<SendTimes> {
  const { streams, passes, passMs } = args;
  const stepNs = (passMs * 1e6) / streams;
  const times = new Float64Array(passes * streams);
  let sent = 0;
  for (let pass = 0; pass < passes; pass++) {
    const start = nowNs();
    for (let s = 0; s < streams; s++) {
      spinUntil(start + s * stepNs);
      const before = process.hrtime.bigint();
      sender.send(s, stampedToken(before));
      times[sent++] = nowNs() - Number(before);
    }
    spinUntil(start + passMs * 1e6);
    await (sender.endPass() ?? turn());
  }
  sender.rest?.();
  const sum = times.reduce((total, ns) => total + ns, 0);
  return { nsPerSend: sum / times.length, medianNsPerSend: quantile(times.sort(), 0.5) };
}

function spinUntil(untilNs: number): void {
  while (nowNs() < untilNs);
}

/** The consumer's end of every row: attributes each token to its stream, checks it, and knows when a phase is complete. */
export class Sink {
  private readonly counts: Uint32Array;
  private readonly newest: Float64Array;
  private phase: Phase = 'plain';
  private expected = Number.POSITIVE_INFINITY;
  private total = 0;
  private wrong = 0;
  private firstWrong = '';
  private firstNs = 0;
  private lastNs = 0;
  private latencies: number[] = [];
  private onFull: (() => void) | undefined;
  private failure: Error | undefined;

  constructor(readonly streams: number) {
    this.counts = new Uint32Array(streams);
    this.newest = new Float64Array(streams);
  }

  /** Starts a phase. With `expected` unknown the phase is open until `expect` names it. */
  arm(phase: Phase, expected: number = Number.POSITIVE_INFINITY): void {
    this.counts.fill(0);
    this.newest.fill(0);
    this.phase = phase;
    this.expected = expected;
    this.total = 0;
    this.firstNs = 0;
    this.lastNs = 0;
    this.latencies = [];
  }

  /** Counts and checks one token. */
  token(stream: number, token: Token): void {
    if (this.total === 0) this.firstNs = nowNs();
    this.total++;
    const count = this.counts[stream]!++;
    if (token.t !== TOKEN_TEXT || token.lp !== TOKEN_LOGPROB) this.reject(stream, token);
    if (this.phase === 'plain') {
      if (token.i !== TOKEN_NUMBER) this.reject(stream, token);
    } else if (this.phase === 'numbered') {
      if (token.i !== numberOfPass(count)) this.reject(stream, token);
    } else {
      this.stamped(stream, token);
    }
    if (this.total === this.expected) this.full();
  }

  /** Remembers a fault of the row's own (a socket error, a stream that ended early). The run fails with the first one. */
  fail(error: Error): void {
    this.failure ??= error;
    this.onFull?.();
  }

  expect(expected: number): void {
    this.expected = expected;
    if (this.total >= expected) this.full();
  }

  /** Resolves when the phase is complete; rejects when the row reported a fault. */
  async whenFull(): Promise<void> {
    if (this.total < this.expected && this.failure === undefined) {
      await new Promise<void>((resolve) => {
        this.onFull = resolve;
      });
    }
    if (this.failure !== undefined) throw this.failure;
  }

  /** Throws unless every stream got exactly `perStream` tokens of this phase, each right in content and order. */
  verify(perStream: number): void {
    if (this.failure !== undefined) throw this.failure;
    if (this.wrong > 0) throw new Error(`${this.wrong} wrong tokens, the first ${this.firstWrong}`);
    const stream = this.counts.findIndex((count) => count !== perStream);
    if (stream >= 0) throw new Error(`stream ${stream} got ${this.counts[stream]} tokens of ${perStream}`);
  }

  report(): SinkReport {
    const sorted = Float64Array.from(this.latencies).sort();
    const at = (q: number) => (sorted.length === 0 ? null : quantile(sorted, q) / 1000);
    return {
      tokens: this.total,
      firstNs: this.firstNs,
      lastNs: this.lastNs,
      p50Us: at(0.5),
      p99Us: at(0.99),
      maxUs: at(1),
    };
  }

  private stamped(stream: number, token: Token): void {
    const sentNs = Number(token.ts);
    if (token.i !== TOKEN_NUMBER || !(sentNs > this.newest[stream]!)) this.reject(stream, token);
    this.newest[stream] = sentNs;
    this.latencies.push(nowNs() - sentNs);
  }

  private reject(stream: number, token: Token): void {
    if (this.wrong++ === 0) {
      const text = JSON.stringify(token, (_key, value) => (typeof value === 'bigint' ? `${value}n` : value));
      this.firstWrong = `on stream ${stream}, number ${this.counts[stream]! - 1}: ${text}`;
    }
  }

  private full(): void {
    this.lastNs = nowNs();
    const resolve = this.onFull;
    this.onFull = undefined;
    resolve?.();
  }
}
