// The machines of one (peer, lane) against a peer that means harm, in runs that a seed stands for.

import { IngressWorld } from './ingress-world.js';
import { SEED_VARIABLE, seeds } from './random.js';

const STEPS = 400;
const RUNS = 40;

describe('ingress under hostile traffic', () => {
  for (const seed of seeds(Array.from({ length: RUNS }, (_, i) => i + 1))) {
    it(`seed ${seed} (replay: ${SEED_VARIABLE}=${seed})`, () => new IngressWorld(seed).run(STEPS));
  }
});
