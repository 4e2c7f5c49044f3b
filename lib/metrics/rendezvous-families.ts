// The series of the rendezvous: operations of this node as the one that asks, by its lane and by its main thread. Names and label
// values are those of the reference.

import { CELL_NAMES } from './cells.js';
import type { Emit, FamilySpec } from './family.js';
import { RENDEZVOUS_SECONDS } from './histogram.js';
import { RENDEZVOUS_OPERATIONS, type RendezvousOperation } from './rendezvous-metrics.js';
import { RENDEZVOUS_CELLS, readHistogram } from './series-cells.js';

const OUTCOMES = ['success', 'error'] as const;

const SLOTS = CELL_NAMES.indexOf('rendezvousSlots');
const BYTES = {
  register: CELL_NAMES.indexOf('rendezvousRegisterBytes'),
  get: CELL_NAMES.indexOf('rendezvousGetBytes'),
};

interface OperationLabels extends Readonly<Record<string, string>> {
  readonly operation: RendezvousOperation;
  readonly outcome: (typeof OUTCOMES)[number];
}

/** A family with one value per operation and outcome, of the durations of both threads. */
function operationFamily(
  name: string,
  type: FamilySpec['type'],
  help: string,
  read: (emit: Emit, labels: OperationLabels, buckets: number[], sum: number) => void,
): FamilySpec {
  const labels = ['operation', 'outcome'];
  return {
    name,
    type,
    labels,
    help,
    read: (source, emit) => {
      for (const operation of RENDEZVOUS_OPERATIONS)
        for (const outcome of OUTCOMES) {
          const first = RENDEZVOUS_CELLS[operation][outcome];
          const lane = readHistogram((cell) => source.cell(cell), first, RENDEZVOUS_SECONDS);
          const main = source.rendezvous.operations[operation][outcome];
          const buckets = lane.buckets.map((count, i) => count + main.buckets[i]!);
          read(emit, { operation, outcome }, buckets, lane.sum + main.sum);
        }
    },
  };
}

export const RENDEZVOUS_FAMILIES: readonly FamilySpec[] = [
  operationFamily(
    'velo_rendezvous_operations_total',
    'counter',
    'Payloads that this node staged, registered or fetched, and what it asked of their owners.',
    (emit, labels, buckets) =>
      emit.value(
        labels,
        buckets.reduce((sum, count) => sum + count, 0),
      ),
  ),
  operationFamily(
    'velo_rendezvous_operation_duration_seconds',
    'histogram',
    'Time of those operations; that of a get is its whole transfer.',
    (emit, labels, buckets, sum) => emit.histogram(labels, RENDEZVOUS_SECONDS, buckets, sum),
  ),
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
