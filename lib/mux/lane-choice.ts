// Which lane a stream gets (streaming specification §12): by key, or where the load is least. Owns the choice; it must
// never keep the loads: whoever counts live slots and unclaimed binds passes them in.

import { laneOfKey, usableLanes } from '../wire/lane-hash.js';

/**
 * The least loaded of the first `transportLanes` lanes; ties go to the lowest. `loads[k]` is what counts for lane k: of
 * one peer for an attach, of the whole node for a pre-bind. A missing entry is no load.
 */
export function leastLoadedLane(loads: ArrayLike<number>, transportLanes: number): number {
  const lanes = usableLanes(transportLanes);
  let best = 0;
  for (let lane = 1; lane < lanes; lane++) {
    if ((loads[lane] ?? 0) < (loads[best] ?? 0)) best = lane;
  }
  return best;
}

/** The receiver's choice, made once, when it binds: the lane of the key, or the least loaded one. */
export function chooseLane(key: bigint | undefined, loads: ArrayLike<number>, transportLanes: number): number {
  return key === undefined ? leastLoadedLane(loads, transportLanes) : laneOfKey(key, transportLanes);
}

/**
 * The sender's lane for a stream that was placed on `named`: modulo the lanes its own transport keeps to the receiver.
 */
export function ridingLane(named: number, transportLanes: number): number {
  return named % usableLanes(transportLanes);
}
