// Large payloads while the threads of the application compute, and gigabytes of them.

import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { amHandler } from '../../lib/index.js';
import { nodesOfSuite, range, until } from '../support/nodes.js';
import type { Load, LoadReport } from './rendezvous-load-child.js';

const MIB = 1024 * 1024;
const CHILD = fileURLToPath(new URL('./rendezvous-load-child.js', import.meta.url));
/** A loop that waits for what never comes must end the test, not the run. */
const SPIN_MS = 10_000;

/** Keeps this thread busy until the condition holds, as a decode loop would. */
function computeUntil(condition: () => boolean): void {
  const end = Date.now() + SPIN_MS;
  while (!condition() && Date.now() < end);
}

describe('large payloads while the application computes', () => {
  const nodes = nodesOfSuite();

  it('a lane serves what its client staged, and pulls what its client will get, while both compute', async () => {
    const { consumer, producer } = await nodes.pair('piscina');
    const got: number[] = [];
    consumer.registerHandler(
      'take',
      amHandler((payload) => void got.push(payload.length)),
    );
    await producer.sync(consumer.instanceId, 'take');
    const sent = producer.sync(consumer.instanceId, 'take', new Uint8Array(8 * MIB));
    computeUntil(() => consumer.stats().rendezvousGet === 1 && producer.stats().rendezvousSlots === 0);
    // Nothing of this thread has run since the call.
    expect(consumer.stats().rendezvousGetBytes).to.equal(8 * MIB);
    expect([consumer.stats().rendezvousRelease, producer.stats().rendezvousSlots]).to.deep.equal([1, 0]);
    expect(got).to.deep.equal([0]);
    await sent;
    expect(got).to.deep.equal([0, 8 * MIB]);
  });

  it('pulled messages wait for a client that computes, in order, and none is refused', async () => {
    // A peer has half of the places.
    const limits = { messageQueueBytes: 4 * MIB, maxPulls: 6 };
    const { consumer, producer } = await nodes.pair('piscina', limits);
    const got: number[] = [];
    consumer.registerHandler(
      'take',
      amHandler((payload) => void got.push(payload.length)),
    );
    await producer.sync(consumer.instanceId, 'take');
    const lengths = range(0, 12).map((i) => 3 * MIB + i);
    const sent = Promise.all(
      lengths.map((length) => producer.sync(consumer.instanceId, 'take', new Uint8Array(length))),
    );
    // One fits the queue, three hold the places until there is room: the fifth is not even asked for.
    computeUntil(() => consumer.stats().rendezvousGet === 4);
    computeUntil(() => Date.now() % 50 === 0);
    expect(consumer.stats().rendezvousGet).to.equal(4);
    await sent;
    expect([...got].sort()).to.deep.equal([0, ...lengths]);
    expect(consumer.stats().refusedQueueFull).to.equal(0);
    await until('nothing is staged', () => producer.stats().rendezvousSlots === 0);
  });

  it('two gigabytes, sixteen payloads at a time, leave the heap as it was and stay within their bounds', async function () {
    this.timeout(120_000);
    const load: Load = { payloads: 512, bytes: 4 * MIB, atATime: 16 };
    const child = fork(CHILD, [JSON.stringify(load)], { execArgv: [] });
    const report = await new Promise<LoadReport>((resolve, reject) => {
      child.once('message', (message) => resolve(message as LoadReport));
      child.once('exit', (code) => reject(new Error(`the child ended with ${code}`)));
    });
    const { received, receivedBytes, damaged, left } = report;
    expect({ received, receivedBytes, damaged, left }).to.deep.equal({
      received: load.payloads,
      receivedBytes: load.payloads * load.bytes,
      damaged: 0,
      left: 0,
    });
    expect(report.heapGrowth, 'heap of the main thread').to.be.lessThan(32 * MIB);
    const inFlight = load.atATime * load.bytes;
    expect(report.externalMax, 'external memory of the main thread').to.be.lessThan(4 * inFlight);
    expect(report.residentGrowth, 'the whole process').to.be.lessThan(16 * inFlight);
  });
});
