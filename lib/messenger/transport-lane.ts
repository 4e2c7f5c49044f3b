// Which connection to a peer carries a stream's lane. Pure arithmetic; the lane a peer names is advice, never a fault.

import { VeloError } from '../errors.js';
import { usableLanes } from '../wire/lane-hash.js';

/**
 * The lane to use for the one a peer named, given the connections this node may hold to that peer (1 when the peer is not
 * resolvable). A one-lane node uses lane 0 whatever it was told.
 */
export function transportLane(namedLane: number, transportLanes: number): number {
  if (!Number.isInteger(namedLane) || namedLane < 0) {
    throw new VeloError('ERR_INVALID_ARGUMENT', `lane must be a whole number, not ${namedLane}`);
  }
  return namedLane % usableLanes(transportLanes);
}
