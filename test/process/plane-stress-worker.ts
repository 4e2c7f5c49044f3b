// The worker's end of the stress test: it sleeps in a blocking wait on its own bell, with a limit that only a lost wake reaches.

import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { ClientRows, type PlaneSizes, WorkerConduit } from '../../lib/plane/conduit.js';
import { ParcelReceiver, ParcelSender } from '../../lib/plane/parcels.js';
import { StressPeer, workerFlow } from './plane-stress-peer.js';

export interface StressWorkerData {
  sizes: PlaneSizes;
  conduit: SharedArrayBuffer;
  rows: SharedArrayBuffer;
  parcelsIn: MessagePort;
  parcelsOut: MessagePort;
  seedOut: number;
  seedIn: number;
  forMs: number;
  stallMs: number;
}

/** What the worker says when it is done. */
export type StressResult = { counts: StressPeer['counts']; sleeps: number } | { error: string };

function run(data: StressWorkerData): StressResult {
  const conduit = new WorkerConduit(data.conduit, data.sizes);
  const peer = new StressPeer({
    bytes: conduit.memory.bytes,
    out: conduit.ingress,
    in: conduit.egress,
    otherBell: conduit.clientBell,
    parcelsOut: new ParcelSender(data.parcelsOut),
    parcelsIn: new ParcelReceiver(data.parcelsIn),
    flow: workerFlow(conduit, new ClientRows(data.rows, data.sizes)),
    seedOut: data.seedOut,
    seedIn: data.seedIn,
    until: performance.now() + data.forMs,
  });
  const { words } = conduit.memory;
  const bell = conduit.workerBell;
  let sleeps = 0;
  for (;;) {
    const worked = peer.turn();
    if (peer.done) return { counts: peer.counts, sleeps };
    if (worked) continue;
    const value = bell.park();
    if (peer.hasWork()) {
      bell.unpark();
      continue;
    }
    sleeps++;
    if (Atomics.wait(words, bell.bellWord, value, data.stallMs) === 'timed-out')
      return { error: `nothing woke the worker for ${data.stallMs} ms: ${JSON.stringify(peer.counts)}` };
  }
}

try {
  parentPort!.postMessage(run(workerData as StressWorkerData));
} catch (error) {
  parentPort!.postMessage({ error: String(error) } satisfies StressResult);
}
