// Relations between constants that the layouts rely on, checked once when a module is loaded. Never called after that.

import { VeloError } from '../errors.js';

/** Throws `ERR_INTERNAL` when a layout contradicts itself: nothing can work after that, so nothing may start. */
export function invariant(holds: boolean, what: string): void {
  if (!holds) throw new VeloError('ERR_INTERNAL', `the shared layout contradicts itself: ${what}`);
}
