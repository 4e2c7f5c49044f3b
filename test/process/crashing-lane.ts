// A lane's thread entry whose thread dies when a test says so. Otherwise it is the real one.

import { BroadcastChannel, isMainThread, type MessagePort, workerData } from 'node:worker_threads';
import type { LaneBoot } from '../../lib/lanes/lane-boot.js';
import { runLane } from '../../lib/lanes/lane-thread.js';

/** How a lane's thread may die; `hang`: it lives and does nothing any more. */
export type Death = 'exit' | 'throw' | 'hang';

interface Order {
  readonly lane: number;
  readonly death: Death;
}

const EXIT_CODE = 3;

function channelOf(workerLo: number): BroadcastChannel {
  return new BroadcastChannel(`velomux-test-lanes-${workerLo}`);
}

/** Kills one lane of a node that runs this file. */
export function kill(workerId: bigint, lane: number, death: Death): void {
  const channel = channelOf(Number(workerId & 0xffff_ffffn));
  channel.postMessage({ lane, death } satisfies Order);
  channel.close();
}

export function lane(boot: LaneBoot): Promise<void> {
  const channel = channelOf(boot.options.workerLo);
  (channel as unknown as MessagePort).unref();
  channel.onmessage = ({ data }: { data: unknown }) => {
    const order = data as Order;
    if (order.lane !== boot.options.lane) return;
    if (order.death === 'exit') process.exit(EXIT_CODE);
    while (order.death === 'hang');
    setImmediate(() => {
      throw new Error('the lane was told to throw');
    });
  };
  return runLane(boot);
}

const data: unknown = workerData;
if (!isMainThread && typeof data === 'object' && data !== null && 'velomuxLane' in data) {
  void lane(data.velomuxLane as LaneBoot);
}
