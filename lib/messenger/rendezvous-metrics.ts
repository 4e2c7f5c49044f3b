// What one thread counts of the rendezvous. Plain fields; names and labels of the series belong to the registry that reads them.

export const RENDEZVOUS_OPERATIONS = ['register', 'get', 'detach', 'release', 'metadata', 'ref'] as const;
export type RendezvousOperation = (typeof RENDEZVOUS_OPERATIONS)[number];

/** Upper bounds of the duration buckets, in seconds; what is longer is only in the count. */
export const DURATION_BUCKETS: readonly number[] = Array.from({ length: 20 }, (_, k) => 0.0005 * 2 ** k);

export interface Durations {
  count: number;
  /** Seconds. */
  sum: number;
  /** Per bound of `DURATION_BUCKETS`, not cumulative. */
  readonly buckets: number[];
}

export interface OperationCounts {
  readonly success: Durations;
  readonly error: Durations;
}

function durations(): Durations {
  return { count: 0, sum: 0, buckets: DURATION_BUCKETS.map(() => 0) };
}

function counts(): OperationCounts {
  return { success: durations(), error: durations() };
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
    const into = ok ? success : error;
    into.count += 1;
    into.sum += seconds;
    const bucket = DURATION_BUCKETS.findIndex((bound) => seconds <= bound);
    if (bucket >= 0) into.buckets[bucket]! += 1;
  }
}
