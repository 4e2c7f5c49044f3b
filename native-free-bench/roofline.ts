// What this machine allows: the engine's shape without its protocol. Main thread → ring → lane worker → TCP → lane worker → ring → main
// thread, in two processes, with the benchmark's token encoded and decoded on the main threads and a 13-byte header per record. No credit,
// no flow control per stream, no lifecycle. Owns all its threads. Must never be quoted as a figure of the engine.
//
//   npm run bench:roofline -- [--rounds 3] [--tokens 5000000] [--streams 256] [--json]

import { fork } from 'node:child_process';
import type net from 'node:net';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { machine } from './report.js';
import { newRingMemory, RooflineReader, RooflineWriter } from './roofline-ring.js';
import { decodeToken, encodeToken, FrameReader, getU32, putToken, putU32 } from './rows/rival-codec.js';
import { connect, listen } from './rows/sockets.js';
import type { Spread } from './stats.js';
import { formatSpread, formatTable, spread } from './stats.js';
import type { CpuSnapshot } from './thread-cpu.js';
import { snapshotCpu } from './thread-cpu.js';
import { nowNs, plainToken, Sink } from './workload.js';

const FILE = fileURLToPath(import.meta.url);
/** Type, slot, sequence, length: the size of the engine's record header. */
const RECORD_HEADER_LEN = 13;
const BATCH_BYTES = 60 * 1024;
/** More than a record of the benchmark's token takes. */
const RECORD_ROOM = 128;
const SCRATCH_BYTES = 4096;
const WARM_UP_PART = 5;
const CODEC_ENV = { MSGPACKR_NATIVE_ACCELERATION_DISABLED: 'true' };

interface Job {
  readonly tokens: number;
  readonly warmUp: number;
  readonly streams: number;
  readonly port: number;
}

interface Half {
  readonly cpuUs: number;
  readonly mainNs: number | null;
  /** First to last receipt; the consumer's half only. */
  readonly seconds: number;
}

interface LaneData {
  readonly lane: 'egress' | 'ingress';
  readonly memory: SharedArrayBuffer;
  readonly port: number;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function half(before: CpuSnapshot, after: CpuSnapshot, seconds: number): Half {
  const mainNs =
    before.mainThreadNs === null || after.mainThreadNs === null ? null : after.mainThreadNs - before.mainThreadNs;
  return { cpuUs: after.processUs - before.processUs, mainNs, seconds };
}

// ---- the lanes

/** Ring to socket: as many records as fit a batch go into one write. */
async function egressLane({ memory, port }: LaneData): Promise<void> {
  const ring = new RooflineReader(memory);
  const socket = await connect(port);
  parentPort!.on('message', () => undefined); // keeps the thread while it only waits on the ring
  parentPort!.postMessage(port);
  const sequence = new Uint32Array(1 << 16);
  for (;;) {
    if (!ring.refresh()) {
      await ring.sleep();
      continue;
    }
    const batch = Buffer.allocUnsafe(BATCH_BYTES);
    let used = 0;
    while (used + RECORD_ROOM <= BATCH_BYTES && ring.next()) {
      batch[used] = 0;
      putU32(batch, used + 1, ring.stream);
      putU32(batch, used + 5, sequence[ring.stream]!++);
      putU32(batch, used + 9, ring.length);
      used += RECORD_HEADER_LEN;
      for (let i = 0, from = ring.offset; i < ring.length; i++) batch[used++] = ring.bytes[from + i]!;
    }
    ring.release();
    if (!socket.write(batch.subarray(0, used))) await new Promise((resolve) => socket.once('drain', resolve));
  }
}

/** Socket to ring: one publish per chunk. */
async function ingressLane({ memory }: LaneData): Promise<void> {
  const ring = new RooflineWriter(memory);
  const onSocket = (socket: net.Socket): void => {
    const reader = new FrameReader(RECORD_HEADER_LEN, (buffer, header, start, stop) => {
      let at = ring.reserve(getU32(buffer, header + 1), stop - start);
      for (let i = start; i < stop; i++) ring.bytes[at++] = buffer[i]!;
    });
    socket.on('data', (chunk: Buffer) => {
      reader.push(chunk);
      ring.publish();
    });
  };
  const listener = await listen(onSocket, (error) => {
    throw error;
  });
  parentPort!.postMessage(listener.port);
}

/** Starts a lane; resolves with the port it listens on or is connected to. */
function startLane(data: LaneData): Promise<number> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(FILE, { workerData: data });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

// ---- the two processes

async function producer(job: Job): Promise<() => Half> {
  const memory = newRingMemory();
  await startLane({ lane: 'egress', memory, port: job.port });
  const ring = new RooflineWriter(memory);
  const token = plainToken();
  const send = async (passes: number): Promise<void> => {
    for (let pass = 0; pass < passes; pass++) {
      for (let stream = 0; stream < job.streams; stream++) {
        const at = ring.reserve(stream, encodeToken(token));
        putToken(ring.bytes, at);
      }
      ring.publish();
      await turn();
    }
  };
  await send(job.warmUp / job.streams);
  const before = snapshotCpu();
  await send(job.tokens / job.streams);
  const mainDone = snapshotCpu();
  // The lane may still be at work: the process's own time is read when the consumer has everything.
  return () => half(before, { ...snapshotCpu(), mainThreadNs: mainDone.mainThreadNs }, 0);
}

async function consumer(job: Job, listening: (port: number) => void): Promise<Half> {
  const memory = newRingMemory();
  listening(await startLane({ lane: 'ingress', memory, port: 0 }));
  const ring = new RooflineReader(memory);
  const sink = new Sink(job.streams);
  const scratch = Buffer.alloc(SCRATCH_BYTES);
  const receive = async (tokens: number): Promise<void> => {
    sink.arm('plain', tokens);
    for (let left = tokens; left > 0; ) {
      if (!ring.refresh()) {
        await ring.sleep();
        continue;
      }
      while (left > 0 && ring.next()) {
        for (let i = 0, from = ring.offset; i < ring.length; i++) scratch[i] = ring.bytes[from + i]!;
        sink.token(ring.stream, decodeToken(scratch, 0, ring.length));
        left--;
      }
      ring.release();
    }
    sink.verify(tokens / job.streams);
  };
  await receive(job.warmUp);
  const before = snapshotCpu();
  const start = nowNs();
  await receive(job.tokens);
  return half(before, snapshotCpu(), (nowNs() - start) / 1e9);
}

/** A forked half: runs its job, answers, and goes on living until it is asked for its last reading. */
async function runHalf(role: string): Promise<void> {
  setInterval(() => undefined, 1000); // a wait on shared memory does not keep a process alive
  process.on('disconnect', () => process.exit(0));
  const job = JSON.parse(process.argv[3]!) as Job;
  if (role === 'producer') {
    const asked = new Promise((resolve) => process.once('message', resolve));
    const read = await producer(job);
    await asked;
    process.send!({ half: read() });
  } else {
    const result = await consumer(job, (port) => process.send!({ port }));
    process.send!({ half: result });
  }
}

// ---- the runner

interface Round {
  readonly tokensPerSec: number;
  readonly cpuUsPerToken: number;
  readonly producerCpuUsPerToken: number;
  readonly consumerCpuUsPerToken: number;
  readonly producerCpuNsPerToken: number | null;
}

interface HalfMessage {
  readonly port?: number;
  readonly half?: Half;
}

function startHalf(role: string, job: Job) {
  const child = fork(FILE, [role, JSON.stringify(job)], {
    env: { ...process.env, ...CODEC_ENV },
    stdio: ['ignore', 2, 2, 'ipc'],
  });
  const ended = new Promise<never>((_resolve, reject) => {
    child.once('exit', (code, signal) => reject(new Error(`${role} ended (${signal ?? code})`)));
  });
  ended.catch(() => undefined);
  const message = <K extends keyof HalfMessage>(key: K): Promise<NonNullable<HalfMessage[K]>> =>
    Promise.race([
      ended,
      new Promise<NonNullable<HalfMessage[K]>>((resolve) => {
        child.on('message', (received: HalfMessage) => {
          const value = received[key];
          if (value !== undefined) resolve(value);
        });
      }),
    ]);
  return { child, message, ended };
}

async function runRound(tokens: number, streams: number): Promise<Round> {
  const whole = (count: number) => Math.max(1, Math.round(count / streams)) * streams;
  const job: Job = { tokens: whole(tokens), warmUp: whole(tokens / WARM_UP_PART), streams, port: 0 };
  const receiver = startHalf('consumer', job);
  try {
    const received = receiver.message('half');
    const sender = startHalf('producer', { ...job, port: await receiver.message('port') });
    try {
      const consumed = await Promise.race([received, sender.ended]);
      sender.child.send('report');
      return roundOf(job.tokens, await sender.message('half'), consumed);
    } finally {
      sender.child.kill('SIGKILL');
    }
  } finally {
    receiver.child.kill('SIGKILL');
  }
}

function roundOf(tokens: number, sent: Half, consumed: Half): Round {
  return {
    tokensPerSec: tokens / consumed.seconds,
    cpuUsPerToken: (sent.cpuUs + consumed.cpuUs) / tokens,
    producerCpuUsPerToken: sent.cpuUs / tokens,
    consumerCpuUsPerToken: consumed.cpuUs / tokens,
    producerCpuNsPerToken: sent.mainNs === null ? null : sent.mainNs / tokens,
  };
}

async function runAll(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '3' },
      tokens: { type: 'string', default: '5000000' },
      streams: { type: 'string', default: '256' },
      json: { type: 'boolean', default: false },
    },
  });
  const rounds: Round[] = [];
  for (let n = 0; n < Number(values.rounds); n++) {
    const round = await runRound(Number(values.tokens), Number(values.streams));
    process.stderr.write(`round ${n + 1}  ${Math.round(round.tokensPerSec).toLocaleString('en-US')} tokens/s\n`);
    rounds.push(round);
  }
  const of = (figure: keyof Round): Spread | null => spread(rounds.map((round) => round[figure]));
  if (values.json) {
    const figures = Object.keys(rounds[0] ?? {}).map((figure) => [figure, of(figure as keyof Round)]);
    process.stdout.write(`${JSON.stringify({ ...Object.fromEntries(figures), machine: machine() })}\n`);
    return;
  }
  const head = [
    'roofline',
    'tokens/s',
    'CPU µs/token, both',
    'producer',
    'consumer',
    'producer main thread CPU ns/token',
  ];
  const cells = [
    formatSpread(of('tokensPerSec'), 0),
    formatSpread(of('cpuUsPerToken'), 2),
    formatSpread(of('producerCpuUsPerToken'), 2),
    formatSpread(of('consumerCpuUsPerToken'), 2),
    formatSpread(of('producerCpuNsPerToken'), 0),
  ];
  process.stdout.write(`${formatTable(head, [[`${values.streams} streams`, ...cells]])}\n`);
}

if (!isMainThread) {
  const data = workerData as LaneData;
  await (data.lane === 'egress' ? egressLane(data) : ingressLane(data));
} else if (process.send !== undefined && process.argv[2] !== undefined && !process.argv[2].startsWith('--')) {
  await runHalf(process.argv[2]);
} else {
  await runAll();
}
