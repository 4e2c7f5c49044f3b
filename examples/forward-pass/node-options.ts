// How every node of the example is created. The three settings that matter for the counts, with the reason for each.

import type { Options } from './options.js';

/** More than a stream ever has outstanding here, so that credit decides nothing about when a token leaves. */
const INITIAL_CREDIT = 256;
/** Longer than any run: a heartbeat is a record too, and would add a write of its own. */
const HEARTBEAT_INTERVAL_MS = 600_000;

export function nodeOptions(options: Options) {
  return {
    host: options.host,
    lanes: options.lanes,
    flushPolicy: options.policy,
    mux: { initialCredit: INITIAL_CREDIT },
    heartbeatIntervalMs: HEARTBEAT_INTERVAL_MS,
  };
}
