// Thread entry of a lane, for the pool's file (calls `lane`) and for a plain Worker (hands its boot over as workerData).

import { isMainThread, workerData } from 'node:worker_threads';
import type { LaneBoot } from '../lib/lanes/lane-boot.js';
import { runLane } from '../lib/lanes/lane-thread.js';

/** Starts a lane on this thread and returns once it runs. */
export function lane(boot: LaneBoot): Promise<void> {
  return runLane(boot);
}

const data: unknown = workerData;
if (!isMainThread && typeof data === 'object' && data !== null && 'velomuxLane' in data) {
  void runLane(data.velomuxLane as LaneBoot);
}
