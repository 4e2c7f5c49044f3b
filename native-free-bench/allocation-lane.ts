// Owns the worker file of a lane whose allocations are sampled. Must never be loaded in a run whose times count.

import { BroadcastChannel, isMainThread, workerData } from 'node:worker_threads';
import type { LaneBoot } from '../lib/lanes/lane-boot.js';
import { ALLOCATION_CHANNEL, type SamplerOrder, type SamplerReport } from './allocation-orders.js';
import { AllocationSampler } from './allocation-sampler.js';

export { lane } from '../workers/lane.js';

function sample(): void {
  const of = (workerData as { velomuxLane: LaneBoot }).velomuxLane.options.workerLo;
  const sampler = new AllocationSampler();
  const channel = new BroadcastChannel(ALLOCATION_CHANNEL);
  channel.onmessage = (event: { data?: unknown }) => {
    const order = event.data as SamplerOrder | SamplerReport;
    if (typeof order !== 'string') return;
    const allocations = order === 'start' ? {} : sampler.stop();
    if (order === 'start') sampler.start();
    channel.postMessage({ of, allocations } satisfies SamplerReport);
  };
}

if (!isMainThread) sample();
