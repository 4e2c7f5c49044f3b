// What a call threw, for tests of coded errors.

import { VeloError } from '../../../lib/errors.js';

/** The code of the `VeloError` that `call` throws; a text that says otherwise when it throws none. */
export function errorCode(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    return VeloError.is(error) ? error.code : `not a VeloError: ${error}`;
  }
  return 'nothing was thrown';
}
