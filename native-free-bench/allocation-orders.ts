// Owns what the allocation profile and its lanes say to each other.

import type { Allocations } from './allocation-sampler.js';

export const ALLOCATION_CHANNEL = 'velomux-bench-allocations';

export type SamplerOrder = 'start' | 'stop';

/** The answer to either order. `of`: the lower half of the node's worker id. */
export interface SamplerReport {
  readonly of: number;
  readonly allocations: Allocations;
}
