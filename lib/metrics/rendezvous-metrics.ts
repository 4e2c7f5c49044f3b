// What one thread counts of the rendezvous. Plain fields; names and labels of the series belong to the registry that reads them.

import { Histogram, RENDEZVOUS_SECONDS } from './histogram.js';

export const RENDEZVOUS_OPERATIONS = ['register', 'get', 'detach', 'release', 'metadata', 'ref'] as const;
export type RendezvousOperation = (typeof RENDEZVOUS_OPERATIONS)[number];

/** Durations, in seconds, by how it ended. */
export interface OperationCounts {
  readonly success: Histogram;
  readonly error: Histogram;
}

function counts(): OperationCounts {
  return { success: new Histogram(RENDEZVOUS_SECONDS), error: new Histogram(RENDEZVOUS_SECONDS) };
}

export class RendezvousMetrics {
  /** Operations of this node as the one that asks; what peers ask of it is not among them. */
  readonly operations: Readonly<Record<RendezvousOperation, OperationCounts>> = {
    register: counts(),
    get: counts(),
    detach: counts(),
    release: counts(),
    metadata: counts(),
    ref: counts(),
  };
  /** All operations of all kinds. */
  total = 0;
  /** Bytes of the operations that move any. */
  readonly bytes: { register: number; get: number } = { register: 0, get: 0 };
  /** Payloads staged or registered here now, and their bytes. */
  activeSlots = 0;
  activeBytes = 0;
  /** Leases whose holder was not heard of for `leaseTtlMs`. */
  reapedLeases = 0;
  /** Staged messages that nobody fetched in `stagedTtlMs`. */
  expiredSlots = 0;
  /** Releases, detaches and renewals whose lease is unknown or another payload's. */
  badLeases = 0;

  record(operation: RendezvousOperation, ok: boolean, seconds: number): void {
    const { success, error } = this.operations[operation];
    (ok ? success : error).observe(seconds);
    this.total += 1;
  }
}
