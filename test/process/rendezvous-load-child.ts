// A process of two nodes that moves many large payloads from one to the other, some at a time, and reports what memory it took.

import { amHandler, Velo } from '../../lib/index.js';

export interface Load {
  readonly payloads: number;
  readonly bytes: number;
  readonly atATime: number;
}

export interface LoadReport {
  readonly received: number;
  readonly receivedBytes: number;
  /** Payloads whose marks were not where they belong. */
  readonly damaged: number;
  readonly heapGrowth: number;
  readonly externalMax: number;
  /** Growth of the whole process, threads included. */
  readonly residentGrowth: number;
  readonly left: number;
}

const load = JSON.parse(process.argv[2]!) as Load;
const payload = new Uint8Array(load.bytes);
const [consumer, producer] = await Promise.all([Velo.create(), Velo.create()]);
consumer.registerPeer(producer.peerInfo);
producer.registerPeer(consumer.peerInfo);
let received = 0;
let receivedBytes = 0;
let damaged = 0;
consumer.registerHandler(
  'take',
  amHandler((bytes) => {
    received += 1;
    receivedBytes += bytes.length;
    if (bytes[0] !== bytes.at(-1) || bytes[bytes.length >> 1] !== bytes[0]) damaged += 1;
  }),
);
await producer.sync(consumer.instanceId, 'take');
const first = process.memoryUsage();
let heapMax = 0;
let externalMax = 0;
let residentMax = 0;
let next = 0;
async function sendAll(): Promise<void> {
  while (next < load.payloads) {
    payload[0] = payload[load.bytes >> 1] = payload[load.bytes - 1] = next++ % 256;
    await producer.sync(consumer.instanceId, 'take', payload);
    const { heapUsed, external, rss } = process.memoryUsage();
    heapMax = Math.max(heapMax, heapUsed);
    externalMax = Math.max(externalMax, external);
    residentMax = Math.max(residentMax, rss);
  }
}
await Promise.all(Array.from({ length: load.atATime }, sendAll));
const report: LoadReport = {
  received: received - 1,
  receivedBytes,
  damaged,
  heapGrowth: heapMax - first.heapUsed,
  externalMax: externalMax - first.external,
  residentGrowth: residentMax - first.rss,
  left: producer.stats().rendezvousSlots,
};
await Promise.all([consumer.close(), producer.close()]);
process.send!(report);
