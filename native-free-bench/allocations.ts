// What the per-record path allocates: streams between two nodes of one process, each with its lane on a thread of its own, and the sampling
// heap profiler on all three threads. Owns the run and its table. Times say nothing here: sampling is slow.
//
//   npm run bench:allocations [-- --streams 64 --records 1 --passes 2000 --json]
//
// `--records` is how many each stream gets per pass. What is paid per pass, batch or wake falls with it; what a record costs does not.

import { setImmediate as turn } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { BroadcastChannel } from 'node:worker_threads';
import { type ItemCodec, type StreamAnchor, type StreamSender, Velo } from '../lib/index.js';
import { ALLOCATION_CHANNEL, type SamplerOrder, type SamplerReport } from './allocation-orders.js';
import { AllocationSampler, type Allocations } from './allocation-sampler.js';
import { machine } from './report.js';

const WARM_UP_PASSES = 500;
const LANES = 2;
const ITEM_BYTES = 28;
const SHOWN_PLACES = 6;
/** Less than this per record is the price of passes, batches and samples, not of records. */
const SHOWN_BYTES = 0.5;

/** An item that costs the application nothing: every record is the same bytes, and decodes to their number. */
class FixedCodec implements ItemCodec<number> {
  readonly bytes = new Uint8Array(ITEM_BYTES + 2);
  readonly start = 0;
  readonly end = ITEM_BYTES + 2;

  constructor() {
    this.bytes.set([0xc4, ITEM_BYTES]);
  }

  encode(): void {}

  decode(_bytes: Uint8Array, start: number, end: number): number {
    return end - start;
  }
}

class Samplers {
  private readonly own = new AllocationSampler();
  private readonly channel = new BroadcastChannel(ALLOCATION_CHANNEL);

  async start(): Promise<void> {
    await this.ask('start');
    this.own.start();
  }

  async stop(consumer: Velo): Promise<ReadonlyMap<string, Allocations>> {
    const found = new Map([['main', this.own.stop()]]);
    const consumerLo = Number(BigInt.asUintN(32, consumer.workerId));
    for (const { of, allocations } of await this.ask('stop'))
      found.set(of === consumerLo ? 'consumer lane' : 'producer lane', allocations);
    this.channel.close();
    return found;
  }

  private ask(order: SamplerOrder): Promise<SamplerReport[]> {
    return new Promise((resolve) => {
      const reports: SamplerReport[] = [];
      this.channel.onmessage = (event: { data?: unknown }) => {
        reports.push(event.data as SamplerReport);
        if (reports.length === LANES) resolve(reports);
      };
      this.channel.postMessage(order);
    });
  }
}

async function read(anchor: StreamAnchor<number>): Promise<number> {
  let items = 0;
  for await (const batch of anchor.batches()) items += batch.length;
  return items;
}

async function run(senders: readonly StreamSender<number>[], producer: Velo, passes: number): Promise<void> {
  for (let pass = 0; pass < passes; pass++) {
    // By index: an array's iterator may cost an object per step.
    for (let record = 0; record < perPass; record++)
      for (let i = 0; i < senders.length; i++) while (!senders[i]!.trySend(pass)) await senders[i]!.ready();
    producer.flushBatch();
    await turn();
  }
}

async function measure(streams: number, passes: number): Promise<ReadonlyMap<string, Allocations>> {
  const worker = new URL('./allocation-lane.js', import.meta.url);
  const consumer = await Velo.create({ host: 'worker', worker });
  const producer = await Velo.create({ host: 'worker', worker, flushPolicy: 'manual' });
  consumer.registerPeer(producer.peerInfo);
  producer.registerPeer(consumer.peerInfo);
  const codec = new FixedCodec();
  const anchors = Array.from({ length: streams }, () => consumer.createAnchor<number>({ codec }));
  const reading = anchors.map(read);
  const senders: StreamSender<number>[] = [];
  for (const { handle } of anchors) senders.push(await producer.attachAnchor<number>(handle, { codec }));
  await run(senders, producer, WARM_UP_PASSES);
  const samplers = new Samplers();
  await samplers.start();
  await run(senders, producer, passes);
  const found = await samplers.stop(consumer);
  await Promise.all(senders.map((sender) => sender.finalize()));
  for (const items of await Promise.all(reading)) {
    if (items !== (passes + WARM_UP_PASSES) * perPass) throw new Error(`a reader got ${items} items`);
  }
  await Promise.all([producer.close(), consumer.close()]);
  return found;
}

const { values } = parseArgs({
  options: {
    streams: { type: 'string', default: '64' },
    records: { type: 'string', default: '1' },
    passes: { type: 'string', default: '2000' },
    json: { type: 'boolean', default: false },
  },
});
const streams = Number(values.streams);
const perPass = Number(values.records);
const passes = Number(values.passes);
const records = streams * perPass * passes;
const threads = [...(await measure(streams, passes))].map(([thread, allocations]) => {
  const places = Object.entries(allocations)
    .map(([place, bytes]) => ({ place, bytesPerRecord: bytes / records }))
    .sort((a, b) => b.bytesPerRecord - a.bytesPerRecord);
  return { thread, bytesPerRecord: places.reduce((sum, place) => sum + place.bytesPerRecord, 0), places };
});
if (values.json) console.log(JSON.stringify({ machine: machine(), streams, perPass, passes, records, threads }));
else {
  console.log(`${records} records on ${streams} streams, bytes allocated per record, garbage included`);
  for (const { thread, bytesPerRecord, places } of threads) {
    console.log(`\n${thread}: ${bytesPerRecord.toFixed(2)}`);
    for (const place of places.slice(0, SHOWN_PLACES)) {
      if (place.bytesPerRecord >= SHOWN_BYTES)
        console.log(`  ${place.bytesPerRecord.toFixed(2).padStart(8)}  ${place.place}`);
    }
  }
}
