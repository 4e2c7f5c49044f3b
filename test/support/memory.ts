// How much memory is in use once the garbage is gone: for tests that say that something does not grow.

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Bytes in the heap of this thread and in buffers of the process that hang on it. */
export function bytesInUse(): number {
  // Twice: buffers are let go of by finalizers of the first.
  collect();
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
