// The plane between two real threads, both directions at once: records of 0 bytes to 1 MiB, kicks, pulls, drains, doorbells. This
// thread sleeps in one standing asynchronous wait without a timeout, the worker in a blocking one. VELOMUX_STRESS_SECONDS sets
// how long each size runs (default 1).

import { MessageChannel, Worker } from 'node:worker_threads';
import { expect } from 'chai';
import {
  ClientConduit,
  ClientRows,
  createClientRows,
  createConduit,
  type PlaneSizes,
} from '../../lib/plane/conduit.js';
import { ParcelReceiver, ParcelSender } from '../../lib/plane/parcels.js';
import { clientFlow, ROWS, StressPeer } from './plane-stress-peer.js';
import type { StressResult, StressWorkerData } from './plane-stress-worker.js';

const FOR_MS = Number(process.env.VELOMUX_STRESS_SECONDS ?? 1) * 1000;
/** Far above any pause of a loaded machine: only a lost wake lasts so long. */
const STALL_MS = 15_000;
const SEED = Number(process.env.VELOMUX_STRESS_SEED ?? 0x5eed);

/** One turn of the client: `worked`, `done`, or the standing wait that it sleeps in. */
function clientTurn(peer: StressPeer, conduit: ClientConduit): 'worked' | 'done' | Promise<unknown> {
  if (peer.turn()) return 'worked';
  if (peer.done) return 'done';
  const bell = conduit.clientBell;
  const value = bell.park();
  if (peer.hasWork()) {
    bell.unpark();
    return 'worked';
  }
  const wait = Atomics.waitAsync(conduit.memory.words, bell.bellWord, value);
  return wait.async ? wait.value : 'worked';
}

/** Runs the client's end. Resolves with how often it slept. */
async function runClient(peer: StressPeer, conduit: ClientConduit): Promise<number> {
  for (let sleeps = 0; ; ) {
    const state = clientTurn(peer, conduit);
    if (state === 'done') return sleeps;
    if (state === 'worked') await new Promise(setImmediate);
    else {
      sleeps++;
      await state;
    }
  }
}

/** Resolves with the number of records that went both ways. */
async function stress(sizes: PlaneSizes, seed: number): Promise<number> {
  const [conduitBuffer, rowsBuffer] = [createConduit(sizes), createClientRows(sizes)];
  const [out, back] = [new MessageChannel(), new MessageChannel()];
  const workerData: StressWorkerData = {
    sizes,
    conduit: conduitBuffer,
    rows: rowsBuffer,
    parcelsIn: out.port2,
    parcelsOut: back.port2,
    seedOut: seed ^ 0x1234,
    seedIn: seed,
    forMs: FOR_MS,
    stallMs: STALL_MS,
  };
  const conduit = new ClientConduit(conduitBuffer, sizes);
  const rows = new ClientRows(rowsBuffer, sizes);
  for (let row = 0; row < ROWS; row++) rows.senders.allocate(row);
  const peer = new StressPeer({
    bytes: conduit.memory.bytes,
    out: conduit.egress,
    in: conduit.ingress,
    otherBell: conduit.workerBell,
    parcelsOut: new ParcelSender(out.port1),
    parcelsIn: new ParcelReceiver(back.port1),
    flow: clientFlow(conduit, rows),
    seedOut: workerData.seedIn,
    seedIn: workerData.seedOut,
    until: performance.now() + FOR_MS,
  });
  const worker = new Worker(new URL('./plane-stress-worker.js', import.meta.url), {
    workerData,
    transferList: [out.port2, back.port2],
  });
  try {
    const result = new Promise<StressResult>((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
    });
    const failed = result.then((value) => {
      if ('error' in value) throw new Error(value.error);
      return value;
    });
    const sleeps = await Promise.race([runClient(peer, conduit), failed.then(() => new Promise<never>(() => {}))]);
    const other = await failed;
    expect(other.counts.received, 'egress records').to.equal(peer.counts.sent);
    expect(peer.counts.received, 'ingress records').to.equal(other.counts.sent);
    expect(other.counts.flushes, 'egress kicks').to.equal(peer.counts.kicks);
    expect(peer.counts.flushes, 'ingress kicks').to.equal(other.counts.kicks);
    for (const counts of [peer.counts, other.counts]) {
      expect(counts.sent, 'records in each direction').to.be.above(ROWS);
      expect(counts.parcels, 'parcels in each direction').to.be.above(0);
    }
    expect(sleeps, 'sleeps in the asynchronous wait').to.be.above(0);
    return peer.counts.sent + other.counts.sent;
  } finally {
    out.port1.close();
    back.port1.close();
    await worker.terminate();
  }
}

describe('plane under stress between two threads', function () {
  this.timeout(FOR_MS + 2 * STALL_MS);
  for (const ringBytes of [1024, 256 * 1024]) {
    it(`keeps every record, kick, pull and drain with rings of ${ringBytes} bytes (seed ${SEED})`, async function () {
      const records = await stress({ ringBytes, rows: 1024 }, SEED + ringBytes);
      if (this.test !== undefined) this.test.title += `: ${records} records`;
    });
  }
});
