// What a piscina pool runs: it imports the lane's file, and calls `lane` of it. Piscina would load that file itself by `require`, and Node 20
// and 22 abort the whole process when a thread is ended while it links modules for `require`.

import type { LaneBoot, PoolLane } from '../lib/lanes/lane-boot.js' with { 'resolution-mode': 'import' };

interface LaneFile {
  lane(boot: LaneBoot): Promise<void>;
}

/** Starts a lane on this thread and returns once it runs. */
async function lane({ file, boot }: PoolLane): Promise<void> {
  const module: LaneFile = await import(file);
  await module.lane(boot);
}

export = { lane };
