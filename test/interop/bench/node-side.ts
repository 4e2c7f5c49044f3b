// One side of a benchmark run, on velomux: it is asked by JSON lines on stdin and answers on stdout, as the velo side does
// (peer/src/bench.rs). It measures nothing but its own half: counts, first and last receipt, latencies, CPU time.

import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  amHandler,
  type LaneHostKind,
  PeerInfo,
  type PeerInfoJson,
  type StreamAnchor,
  StreamAnchorHandle,
  type StreamSender,
  unaryHandler,
  Velo,
} from '../../../lib/index.js';
import { isProfiled, writeLaneProfiles } from '../../../native-free-bench/profile-env.js';
import { quantile } from '../../../native-free-bench/stats.js';
import type { HandleText, Receipt } from './side.js';

const TEXT = 'token';
const NUMBER = 12_345;
const LOGPROB = -0.5;
const NO_STAMP = 0;
const NS_PER_MS = 1e6;
/** Messages that a sender has handed over and not seen admitted: the depth of velo's own queue. */
const ADMISSIONS_AHEAD = 256;

/** What travels: text, number, logprob, and CLOCK_MONOTONIC in nanoseconds, or 0 where nobody asks for the latency. */
type Token = [string, number, number, number | bigint];

const nowNs = (): number => Number(process.hrtime.bigint());
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** What arrived: items of streams, or messages. */
class Sink {
  private total = 0;
  private wrong = 0;
  private firstNs = 0;
  private lastNs = 0;
  private expected = 0;
  private latencies: number[] = [];
  private whenFull: () => void = () => {};

  arm(expected: number): void {
    this.total = 0;
    this.wrong = 0;
    this.firstNs = 0;
    this.lastNs = 0;
    this.latencies = [];
    this.expected = expected;
  }

  one(): void {
    if (this.total === 0) this.firstNs = nowNs();
    this.total += 1;
    if (this.total !== this.expected) return;
    this.lastNs = nowNs();
    this.whenFull();
  }

  token(token: Token): void {
    const [text, number, logprob, stamp] = token;
    if (text !== TEXT || number !== NUMBER || logprob !== LOGPROB) this.wrong += 1;
    if (stamp !== NO_STAMP) this.latencies.push(nowNs() - Number(stamp));
    this.one();
  }

  /** Names what an open-ended phase comes to, once that is known. */
  expect(expected: number): void {
    this.expected = expected;
    if (this.total >= expected) this.lastNs = nowNs();
  }

  async wait(): Promise<Receipt> {
    if (this.total < this.expected)
      await new Promise<void>((resolve) => {
        this.whenFull = resolve;
      });
    const sorted = this.latencies.sort((a, b) => a - b);
    const at = (q: number) => (sorted.length === 0 ? null : quantile(sorted, q) / 1000);
    const { total, wrong, firstNs, lastNs } = this;
    return { total, wrong, firstNs, lastNs, p50Us: at(0.5), p99Us: at(0.99) };
  }
}

class NodeSide {
  private readonly sink = new Sink();
  private senders: StreamSender<Token>[] = [];
  private readers: Promise<boolean>[] = [];
  private resting: NodeJS.Timeout | undefined;

  private constructor(
    private readonly velo: Velo,
    private readonly host: LaneHostKind,
  ) {
    velo.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    velo.registerHandler(
      'count',
      amHandler(() => this.sink.one()),
    );
  }

  static async start(credit: number, host: LaneHostKind): Promise<NodeSide> {
    const worker = isProfiled() ? new URL('../../../native-free-bench/lane-profile.js', import.meta.url) : undefined;
    return new NodeSide(
      await Velo.create({ host, worker, flushPolicy: 'manual', mux: { initialCredit: credit } }),
      host,
    );
  }

  get peerInfo(): PeerInfoJson {
    return this.velo.peerInfo.toJSON();
  }

  private async read(anchor: StreamAnchor<Token>): Promise<boolean> {
    try {
      for await (const items of anchor.batches()) for (const item of items) this.sink.token(item);
      return true;
    } catch {
      return false;
    }
  }

  private anchors(count: number): HandleText[] {
    return Array.from({ length: count }, () => {
      const anchor = this.velo.createAnchor<Token>();
      this.readers.push(this.read(anchor));
      const { hi, lo } = anchor.handle.toJSON();
      return { hi: String(hi), lo: String(lo) };
    });
  }

  /** Back-to-back passes, one token on every stream each, one flush per pass. */
  private async passes(count: number, ms: number): Promise<{ passes: number }> {
    clearInterval(this.resting);
    const until = nowNs() + ms * NS_PER_MS;
    const token: Token = [TEXT, NUMBER, LOGPROB, NO_STAMP];
    let done = 0;
    while (done < count && nowNs() < until) {
      let waited = false;
      for (const sender of this.senders) {
        if (sender.trySend(token)) continue;
        await sender.send(token);
        waited = true;
      }
      this.velo.flushBatch();
      done += 1;
      if (!waited) await turn();
    }
    // What a grant releases after the last flush waits for the next one; a decode loop has a next pass, the end of a phase has none.
    this.resting = setInterval(() => this.velo.flushBatch(), 1);
    return { passes: done };
  }

  private async lone(count: number, everyMs: number): Promise<void> {
    clearInterval(this.resting);
    const sender = this.senders[0]!;
    for (let i = 0; i < count; i++) {
      await sleep(everyMs);
      await sender.send([TEXT, NUMBER, LOGPROB, process.hrtime.bigint()]);
      this.velo.flushBatch();
    }
  }

  private async unary(peer: PeerInfo, count: number, inFlight: number, bytes: number): Promise<unknown> {
    const payload = new Uint8Array(bytes).fill(7);
    const times: number[] = [];
    let left = count;
    const caller = async () => {
      while (left-- > 0) {
        const from = nowNs();
        const answer = await this.velo.unary(peer, 'echo', payload);
        if (answer.length !== bytes) throw new Error('the echo differs');
        times.push(nowNs() - from);
      }
    };
    const started = nowNs();
    await Promise.all(Array.from({ length: inFlight }, caller));
    const ms = (nowNs() - started) / NS_PER_MS;
    times.sort((a, b) => a - b);
    return { ms, p50Us: quantile(times, 0.5) / 1000, p99Us: quantile(times, 0.99) / 1000 };
  }

  private async fire(peer: PeerInfo, count: number, bytes: number): Promise<void> {
    const payload = new Uint8Array(bytes).fill(7);
    // Each admission is an answer of the lane: a caller that waits for one before the next message sends one per round trip of threads.
    const admitted: Promise<void>[] = [];
    for (let i = 0; i < count; i++) {
      admitted.push(this.velo.send(peer, 'count', payload));
      if (admitted.length < ADMISSIONS_AHEAD) continue;
      await Promise.all(admitted);
      admitted.length = 0;
    }
    await Promise.all(admitted);
  }

  // biome-ignore lint/suspicious/noExplicitAny: the arguments of ten operations, each with its own shape
  async answer(op: string, args: any): Promise<unknown> {
    switch (op) {
      case 'peer':
        this.velo.registerPeer(PeerInfo.fromJSON(args));
        return null;
      case 'anchors':
        return this.anchors(args.count);
      case 'attach': {
        const handles = (args as HandleText[]).map(({ hi, lo }) => ({ hi: BigInt(hi), lo: BigInt(lo) }));
        const attach = (handle: { hi: bigint; lo: bigint }) =>
          this.velo.attachAnchor<Token>(StreamAnchorHandle.fromJSON(handle));
        this.senders = await Promise.all(handles.map(attach));
        return null;
      }
      case 'passes':
        return this.passes(args.passes, args.ms);
      case 'lone':
        await this.lone(args.count, args.everyMs);
        return null;
      case 'unary':
        return this.unary(PeerInfo.fromJSON(args.peer), args.count, args.inFlight, args.bytes);
      case 'fire':
        await this.fire(PeerInfo.fromJSON(args.peer), args.count, args.bytes);
        return null;
      case 'arm':
        this.sink.arm(args.expected);
        return null;
      case 'expect':
        this.sink.expect(args.expected);
        return null;
      case 'full':
        return this.sink.wait();
      case 'cpu': {
        const { user, system } = process.cpuUsage();
        return { us: user + system, ns: nowNs() };
      }
      case 'finish':
        clearInterval(this.resting);
        await Promise.all(this.senders.map((sender) => sender.finalize()));
        return null;
      case 'ended':
        return (await Promise.all(this.readers)).filter(Boolean).length;
      case 'close':
        if (isProfiled() && this.host !== 'inline') await writeLaneProfiles(1);
        await this.velo.close();
        return null;
      default:
        throw new Error(`no operation ${op}`);
    }
  }
}

let side: NodeSide | undefined;

// biome-ignore lint/suspicious/noExplicitAny: see above
async function answer(op: string, args: any): Promise<unknown> {
  if (op === 'start') {
    side = await NodeSide.start(args.credit, args.host);
    return side.peerInfo;
  }
  if (side === undefined) throw new Error('not started');
  return side.answer(op, args);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, op, args } = JSON.parse(line);
  answer(op, args).then(
    (ok) => process.stdout.write(`${JSON.stringify({ id, ok })}\n`),
    (error: Error) => process.stdout.write(`${JSON.stringify({ id, error: error.message })}\n`),
  );
}
