// Calls beside the streams: a node asks another to give its bytes back, small ones and such as the other has to fetch. Owns what an
// answer must be; it must never touch a stream.

import { unaryHandler, VeloError } from '../../lib/index.js';
import type { SimNode } from './sim-node.js';

const HANDLER = 'echo';
/** A payload that is larger is fetched by whom it is for. */
const STAGING_BYTES = 262_144;

export function serveEcho(node: SimNode): void {
  node.velo.registerHandler(
    HANDLER,
    unaryHandler((payload) => payload),
  );
}

/** How a call came out, against what is right: undefined, or what is wrong with it. */
export async function callEcho(
  from: SimNode,
  to: SimNode,
  bytes: number,
  mark: number,
): Promise<CallFault | undefined> {
  const payload = new Uint8Array(bytes).fill(mark & 0xff);
  // Answers travel inline, whatever their size.
  const refused = bytes > STAGING_BYTES && bytes > (to.options.stagedPayloadMax ?? Number.POSITIVE_INFINITY);
  let answer: Uint8Array;
  try {
    answer = await from.wait(`call ${mark}`, from.velo.unary(to.velo.peerInfo.instanceId, HANDLER, payload));
  } catch (error) {
    if (!VeloError.is(error)) throw error;
    return refused ? undefined : { check: 'call failed', message: `${error.code} (${error.message})`, error };
  }
  if (refused) return { check: 'call answer', message: `${bytes} bytes were fetched, above a limit`, error: undefined };
  if (answer.length !== bytes || Buffer.compare(answer, payload) !== 0)
    return { check: 'call answer', message: `${answer.length} bytes came back for ${bytes}`, error: undefined };
  return undefined;
}

export interface CallFault {
  readonly check: string;
  readonly message: string;
  /** Why it failed, where it did. */
  readonly error: VeloError | undefined;
}
