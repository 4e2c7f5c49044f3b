// A lane's thread entry for nodes of two lanes: the first dies as soon as it listens, while the second has not started yet.

import { setTimeout as delay } from 'node:timers/promises';
import { isMainThread, workerData } from 'node:worker_threads';
import type { LaneBoot } from '../../lib/lanes/lane-boot.js';
import { runLane } from '../../lib/lanes/lane-thread.js';

const EXIT_CODE = 5;
const LATE_MS = 300;

export async function lane(boot: LaneBoot): Promise<void> {
  if (boot.options.lane > 0) await delay(LATE_MS);
  else {
    const { control } = boot;
    const post = control.postMessage.bind(control);
    control.postMessage = (message: unknown) => {
      post(message);
      // The report must leave before the thread does.
      setImmediate(() => process.exit(EXIT_CODE));
    };
  }
  await runLane(boot);
}

const data: unknown = workerData;
if (!isMainThread && typeof data === 'object' && data !== null && 'velomuxLane' in data) {
  void lane(data.velomuxLane as LaneBoot);
}
