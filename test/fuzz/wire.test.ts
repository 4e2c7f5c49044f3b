// A real node against a foreign one that means harm, over real sockets, in runs that a seed stands for.

import { SEED_VARIABLE, seeds } from './random.js';
import { WIRE_TARGET } from './wire-world.js';

const RUNS = 6;

describe('a node under hostile bytes', () => {
  for (const seed of seeds(Array.from({ length: RUNS }, (_, i) => i + 1))) {
    it(`seed ${seed} (replay: ${SEED_VARIABLE}=${seed})`, () => WIRE_TARGET.run(seed));
  }
});
