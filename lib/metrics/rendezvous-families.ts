// The series of the rendezvous: operations of this node as the one that asks, by its lane and by its main thread. Names and label
// values are those of the reference.

import { CELL_NAMES } from './cells.js';
import type { FamilySpec } from './family.js';
import { RENDEZVOUS_SECONDS } from './histogram.js';
import { RENDEZVOUS_OPERATIONS, type RendezvousOperation } from './rendezvous-metrics.js';
import { RENDEZVOUS_CELLS, readHistogram } from './series-cells.js';
import type { MetricsSource } from './source.js';

const OUTCOMES = ['success', 'error'] as const;

const SLOTS = CELL_NAMES.indexOf('rendezvousSlots');
const BYTES = {
  register: CELL_NAMES.indexOf('rendezvousRegisterBytes'),
  get: CELL_NAMES.indexOf('rendezvousGetBytes'),
};

/** Both threads' durations of one kind, as one histogram. */
function durations(
  source: MetricsSource,
  operation: RendezvousOperation,
  outcome: 'success' | 'error',
): { buckets: number[]; sum: number } {
  const lane = readHistogram((cell) => source.cell(cell), RENDEZVOUS_CELLS[operation][outcome], RENDEZVOUS_SECONDS);
  const main = source.rendezvous.operations[operation][outcome];
  return { buckets: lane.buckets.map((count, i) => count + main.buckets[i]!), sum: lane.sum + main.sum };
}

export const RENDEZVOUS_FAMILIES: readonly FamilySpec[] = [
  {
    name: 'velo_rendezvous_operations_total',
    type: 'counter',
    labels: ['operation', 'outcome'],
    help: 'Payloads that this node staged, registered or fetched, and what it asked of their owners.',
    read: (source, emit) => {
      for (const operation of RENDEZVOUS_OPERATIONS)
        for (const outcome of OUTCOMES) {
          const { buckets } = durations(source, operation, outcome);
          emit.value(
            { operation, outcome },
            buckets.reduce((sum, count) => sum + count, 0),
          );
        }
    },
  },
  {
    name: 'velo_rendezvous_operation_duration_seconds',
    type: 'histogram',
    labels: ['operation', 'outcome'],
    help: 'Time of those operations; that of a get is its whole transfer.',
    read: (source, emit) => {
      for (const operation of RENDEZVOUS_OPERATIONS)
        for (const outcome of OUTCOMES) {
          const { buckets, sum } = durations(source, operation, outcome);
          emit.histogram({ operation, outcome }, RENDEZVOUS_SECONDS, buckets, sum);
        }
    },
  },
  {
    name: 'velo_rendezvous_bytes_total',
    type: 'counter',
    labels: ['operation'],
    help: 'Payload bytes staged or registered (register) and fetched (get).',
    read: (source, emit) => {
      for (const operation of ['register', 'get'] as const)
        emit.value({ operation }, source.cell(BYTES[operation]) + source.rendezvous.bytes[operation]);
    },
  },
  {
    name: 'velo_rendezvous_active_slots',
    type: 'gauge',
    labels: [],
    help: 'Payloads that this node keeps for others now.',
    read: (source, emit) => emit.value({}, source.cell(SLOTS)),
  },
];
