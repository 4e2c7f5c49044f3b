// A lane's thread entry whose thread dies before it starts.

import { isMainThread } from 'node:worker_threads';

const EXIT_CODE = 4;

export function lane(): void {
  process.exit(EXIT_CODE);
}

if (!isMainThread && process.env.VELOMUX_TEST_STILLBORN !== undefined) lane();
