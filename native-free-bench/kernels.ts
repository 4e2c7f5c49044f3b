// Nanosecond kernels of the per-record path, one thread, no I/O: codec, batch encoding and decoding, ring, terminal test. Owns their inputs.
// Must never be taken for throughput: caches are warm, branches are learned, nobody else runs.
//
//   npm run bench:kernels -- [--seconds 1] [--json]

import { parseArgs } from 'node:util';
import Benchmark from 'benchmark';
import { SharedMemory } from '../lib/plane/memory.js';
import { RingConsumer, RingProducer, ringWords } from '../lib/plane/ring.js';
import { BatchDecoder, BatchEncoder } from '../lib/wire/batch.js';
import { isTerminalSentinel } from '../lib/wire/frame.js';
import { machine } from './report.js';
import { formatTable } from './stats.js';
import { plainToken } from './workload.js';

interface Kernel {
  readonly name: string;
  /** Does the operation REPEAT times and returns something that depends on it. */
  readonly run: () => number;
}

interface Result {
  readonly name: string;
  readonly nsPerOp: number;
  /** Relative margin of error, percent. */
  readonly rme: number;
  readonly samples: number;
}

/** Operations per call: enough to bury the call itself, few enough for one batch of 60 KiB and one ring. */
const REPEAT = 1000;
const BATCH_BYTES = 60 * 1024;
const RING_BYTES = 256 * 1024;
const RING_RECORD_KIND = 1;
const SLOTS = 256;

async function codecKernels(): Promise<{ kernels: Kernel[]; frame: Uint8Array }> {
  process.env.MSGPACKR_NATIVE_ACCELERATION_DISABLED ??= 'true'; // read by the package when it is loaded
  const { decodeToken, encodeToken, putToken } = await import('./rows/rival-codec.js');
  const token = plainToken();
  const frame = new Uint8Array(encodeToken(token));
  putToken(frame, 0);
  const many = new Uint8Array(frame.length * REPEAT);
  for (let i = 0; i < REPEAT; i++) many.set(frame, i * frame.length);
  const kernels: Kernel[] = [
    {
      name: 'msgpackr encode, reuse mode',
      run: () => {
        let sum = 0;
        for (let i = 0; i < REPEAT; i++) sum += encodeToken(token);
        return sum;
      },
    },
    {
      name: 'msgpackr encode, reuse mode, and copy out with the item prefix',
      run: () => {
        let sum = 0;
        for (let i = 0; i < REPEAT; i++) {
          encodeToken(token);
          sum += putToken(many, i * frame.length);
        }
        return sum;
      },
    },
    {
      name: 'msgpackr decode in place',
      run: () => {
        let sum = 0;
        for (let i = 0; i < REPEAT; i++) sum += decodeToken(many, i * frame.length, (i + 1) * frame.length).i;
        return sum;
      },
    },
  ];
  return { kernels, frame };
}

function batchKernels(frame: Uint8Array): Kernel[] {
  const encoder = new BatchEncoder();
  const decoder = new BatchDecoder();
  const buffer = new Uint8Array(BATCH_BYTES);
  const encode = (): number => {
    encoder.begin(buffer, 0, 0, 1, 2, 3);
    for (let i = 0; i < REPEAT; i++) encoder.data((i % SLOTS) << 8, i, frame, 0, frame.length);
    return encoder.finish();
  };
  const length = encode();
  return [
    { name: 'BatchEncoder.data', run: encode },
    {
      name: 'BatchDecoder.next, Data',
      run: () => {
        let sum = 0;
        decoder.reset(buffer, 0, length);
        while (decoder.next()) sum += decoder.slot + decoder.bodyLength;
        return sum;
      },
    },
  ];
}

function terminalKernels(frame: Uint8Array): Kernel[] {
  const test = (name: string, bytes: Uint8Array): Kernel => ({
    name,
    run: () => {
      let terminals = 0;
      for (let i = 0; i < REPEAT; i++) if (isTerminalSentinel(bytes, 0, bytes.length)) terminals++;
      return terminals + 1;
    },
  });
  return [
    test('isTerminalSentinel, an item', frame),
    test('isTerminalSentinel, Finalized', Uint8Array.of(0xa9, ...new TextEncoder().encode('Finalized'))),
  ];
}

function ringKernels(frame: Uint8Array): Kernel[] {
  const memory = new SharedMemory(new SharedArrayBuffer(ringWords(RING_BYTES) * 4));
  const producer = new RingProducer(memory, 0, RING_BYTES);
  const consumer = new RingConsumer(memory, 0, RING_BYTES);
  const target = new Uint8Array(frame.length);
  const write = (): void => {
    const at = producer.reserve(RING_RECORD_KIND, 0, frame.length);
    memory.copyIn(at, frame, 0, frame.length);
    producer.commit();
  };
  const read = (): number => {
    if (!consumer.next()) return 0;
    memory.copyOut(consumer.offset, target, 0, consumer.length);
    return consumer.length;
  };
  return [
    {
      name: 'ring write and read, published once per burst',
      run: () => {
        let sum = 0;
        for (let i = 0; i < REPEAT; i++) write();
        producer.publish();
        consumer.refresh();
        for (let i = 0; i < REPEAT; i++) sum += read();
        consumer.release();
        return sum;
      },
    },
    {
      name: 'ring write and read, published for each record',
      run: () => {
        let sum = 0;
        for (let i = 0; i < REPEAT; i++) {
          write();
          producer.publish();
          consumer.refresh();
          sum += read();
          consumer.release();
        }
        return sum;
      },
    },
  ];
}

function measure(kernels: readonly Kernel[], seconds: number, done: (result: Result) => void): Promise<void> {
  let sink = 0;
  const suite = new Benchmark.Suite();
  for (const kernel of kernels) {
    const run = kernel.run;
    if (run() <= 0) throw new Error(`${kernel.name} did nothing`);
    suite.add(kernel.name, {
      maxTime: seconds,
      fn: () => {
        sink += run();
      },
    });
  }
  return new Promise((resolve, reject) => {
    suite.on('cycle', (event: Benchmark.Event) => {
      const { name = '', hz = 0, stats, error } = event.target as Benchmark.Target & { error?: Error };
      if (error !== undefined) reject(error);
      else done({ name, nsPerOp: 1e9 / hz / REPEAT, rme: stats?.rme ?? 0, samples: stats?.sample.length ?? 0 });
    });
    suite.on('complete', () => (sink > 0 ? resolve() : reject(new Error('the kernels did nothing'))));
    suite.run({ async: true });
  });
}

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '1' }, json: { type: 'boolean', default: false } },
});
const { kernels: codec, frame } = await codecKernels();
const results: Result[] = [];
await measure(
  [...codec, ...batchKernels(frame), ...terminalKernels(frame), ...ringKernels(frame)],
  Number(values.seconds),
  (result) => {
    process.stderr.write(`${result.name}\n`);
    results.push(result);
  },
);
if (values.json) {
  process.stdout.write(`${JSON.stringify({ kernels: results, itemBytes: frame.length, machine: machine() })}\n`);
} else {
  const body = results.map(({ name, nsPerOp, rme, samples }) => [
    name,
    nsPerOp.toFixed(1),
    `±${rme.toFixed(1)} %`,
    String(samples),
  ]);
  process.stdout.write(`${formatTable([`${frame.length}-byte item`, 'ns/op', 'margin', 'samples'], body)}\n`);
}
