// The machines of one (peer, lane) against a peer that means harm, in runs that a seed stands for.

import { INGRESS_TARGET } from './ingress-world.js';
import { SEED_VARIABLE, seeds } from './random.js';

const RUNS = 15;

describe('ingress under hostile traffic', () => {
  for (const seed of seeds(Array.from({ length: RUNS }, (_, i) => i + 1))) {
    it(`seed ${seed} (replay: ${SEED_VARIABLE}=${seed})`, () => INGRESS_TARGET.run(seed));
  }
});
