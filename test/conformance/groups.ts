// The acceptance ids, as ranges. The only list of them in the project; which are covered is decided by the tests that ran.

/** One group of behaviours: ids `AF-01` to `AF-25` for prefix `AF` and count 25. */
export interface Group {
  readonly prefix: string;
  readonly count: number;
  readonly title: string;
}

export const GROUPS: readonly Group[] = [
  { prefix: 'AF', count: 25, title: 'handles, frames, anchors' },
  { prefix: 'AP', count: 37, title: 'protocol encode and decode' },
  { prefix: 'AS', count: 19, title: 'slots, generation, epoch' },
  { prefix: 'AN', count: 26, title: 'negotiation' },
  { prefix: 'AL', count: 26, title: 'lanes' },
  { prefix: 'AO', count: 30, title: 'opening and zero round trips' },
  { prefix: 'AC', count: 33, title: 'credit and byte budgets' },
  { prefix: 'AW', count: 11, title: 'withheld queue and backpressure' },
  { prefix: 'AR', count: 20, title: 'ordering, fences, holds, rendezvous' },
  { prefix: 'AX', count: 9, title: 'refused staged records' },
  { prefix: 'AT', count: 15, title: 'terminal and close' },
  { prefix: 'AQ', count: 7, title: 'retirement' },
  { prefix: 'AH', count: 15, title: 'heartbeats and watchdogs' },
  { prefix: 'AU', count: 20, title: 'flush policies' },
  { prefix: 'AG', count: 6, title: 'reply linger' },
  { prefix: 'AB', count: 5, title: 'flushBatch' },
  { prefix: 'AK', count: 18, title: 'control state, peer loss, batcher life' },
  { prefix: 'AM', count: 18, title: 'many senders, one anchor' },
  { prefix: 'AD', count: 17, title: 'cancel, stop, detach, finalize, drop' },
  { prefix: 'AA', count: 8, title: 'transport admission' },
  { prefix: 'AV', count: 9, title: 'metrics' },
  { prefix: 'AZ', count: 4, title: 'kill switch' },
  { prefix: 'AY', count: 9, title: 'shutdown and drain' },
  { prefix: 'AE', count: 6, title: 'endurance' },
];

export function idsOf(group: Group): string[] {
  return Array.from({ length: group.count }, (_, index) => `${group.prefix}-${String(index + 1).padStart(2, '0')}`);
}

export function allIds(): string[] {
  return GROUPS.flatMap(idsOf);
}
