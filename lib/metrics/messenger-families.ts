// The series of messages: handlers, ordered lanes, dispatch, calls. Names and label values are those of the reference.

import { BATCH_HANDLERS } from '../wire/names.js';
import type { Emit, FamilySpec } from './family.js';
import { HANDLER_SECONDS } from './histogram.js';
import { type HandlerRuns, type HandlerSeries, RESPONSE_TYPES } from './messenger-metrics.js';
import { BATCH_WAIT_CELLS, MESSAGES_ENDED, MESSAGES_UNDECODED, readHistogram } from './series-cells.js';
import type { MetricsSource } from './source.js';

/** By response type of the request. */
const RESPONSE_TYPE_NAMES = ['fire_and_forget', 'ack_nack', 'unary'] as const;

interface RunLabels extends Readonly<Record<string, string>> {
  readonly handler: string;
  readonly response_type: string;
  readonly outcome: string;
}

function handlerFamily(
  name: string,
  type: FamilySpec['type'],
  labels: readonly string[],
  help: string,
  read: (emit: Emit, handler: string, series: HandlerSeries) => void,
): FamilySpec {
  return {
    name,
    type,
    help,
    labels: ['handler', ...labels],
    read: (source, emit) => {
      for (const [handler, series] of source.messenger.handlers) read(emit, handler, series);
    },
  };
}

/** A family with one value per handler, response type and outcome. */
function runFamily(
  name: string,
  type: FamilySpec['type'],
  help: string,
  read: (emit: Emit, labels: RunLabels, runs: HandlerRuns) => void,
): FamilySpec {
  return handlerFamily(name, type, ['response_type', 'outcome'], help, (emit, handler, series) => {
    for (let i = 0; i < RESPONSE_TYPES; i++) {
      const labels = { handler, response_type: RESPONSE_TYPE_NAMES[i]! };
      read(emit, { ...labels, outcome: 'success' }, series.succeeded[i]!);
      read(emit, { ...labels, outcome: 'error' }, series.failed[i]!);
    }
  });
}

/** A family of handlers that have, or had, ordered lanes. */
function laneFamily(
  name: string,
  type: FamilySpec['type'],
  help: string,
  read: (emit: Emit, handler: string, series: HandlerSeries, source: MetricsSource) => void,
): FamilySpec {
  return {
    name,
    type,
    help,
    labels: ['handler'],
    read: (source, emit) => {
      for (const [handler, series] of source.messenger.handlers)
        if (series.laneWait !== undefined) read(emit, handler, series, source);
    },
  };
}

function plain(
  name: string,
  type: 'counter' | 'gauge',
  help: string,
  read: (source: MetricsSource) => number,
): FamilySpec {
  return { name, type, help, labels: [], read: (source, emit) => emit.value({}, read(source)) };
}

/** The two words of a key as two labels. */
function pairs(emit: Emit, first: string, second: string, counts: Readonly<Record<string, number>>): void {
  for (const [key, count] of Object.entries(counts)) {
    const [a, b] = key.split(' ') as [string, string];
    emit.value({ [first]: a, [second]: b }, count);
  }
}

/** Batches that waited for their turn, by the handler of their lane; a lane that had none is no series. */
function batchWaits(source: MetricsSource, emit: Emit): void {
  for (const [lane, first] of BATCH_WAIT_CELLS.entries()) {
    const { buckets, sum } = readHistogram((cell) => source.cell(cell), first, HANDLER_SECONDS);
    if (buckets.some((count) => count > 0))
      emit.histogram({ handler: BATCH_HANDLERS[lane]! }, HANDLER_SECONDS, buckets, sum);
  }
}

export const MESSENGER_FAMILIES: readonly FamilySpec[] = [
  runFamily('velo_messenger_handler_requests_total', 'counter', 'Runs of handlers.', (emit, labels, runs) =>
    emit.value(labels, runs.seconds.count),
  ),
  runFamily(
    'velo_messenger_handler_duration_seconds',
    'histogram',
    'Time of a run, until its reply was handed over.',
    (emit, labels, { seconds }) => emit.histogram(labels, HANDLER_SECONDS, seconds.buckets, seconds.sum),
  ),
  handlerFamily(
    'velo_messenger_handler_request_bytes_total',
    'counter',
    ['response_type'],
    'Payload bytes of the requests that handlers ran for.',
    (emit, handler, series) => {
      for (const [i, bytes] of series.requestBytes.entries())
        emit.value({ handler, response_type: RESPONSE_TYPE_NAMES[i]! }, bytes);
    },
  ),
  runFamily(
    'velo_messenger_handler_response_bytes_total',
    'counter',
    'Payload bytes of the replies, error texts included.',
    (emit, labels, runs) => emit.value(labels, runs.responseBytes),
  ),
  handlerFamily('velo_messenger_handler_in_flight', 'gauge', [], 'Runs now.', (emit, handler, series) =>
    emit.value({ handler }, series.inFlight),
  ),
  laneFamily('velo_messenger_ordered_lanes', 'gauge', 'Ordered lanes that exist.', (emit, handler, _series, source) =>
    emit.value({ handler }, source.orderedLanes(handler).lanes),
  ),
  laneFamily(
    'velo_messenger_ordered_lane_depth',
    'gauge',
    'Requests on ordered lanes, the running ones included.',
    (emit, handler, series) => emit.value({ handler }, series.laneDepth),
  ),
  {
    name: 'velo_messenger_ordered_lane_wait_seconds',
    type: 'histogram',
    help: 'Time from the arrival of a request on its ordered lane to its turn. Batches of streams: one sample each, by their lane.',
    labels: ['handler'],
    read: (source, emit) => {
      for (const [handler, { laneWait }] of source.messenger.handlers)
        if (laneWait !== undefined) emit.histogram({ handler }, HANDLER_SECONDS, laneWait.buckets, laneWait.sum);
      batchWaits(source, emit);
    },
  },
  laneFamily(
    'velo_messenger_ordered_lanes_created_total',
    'counter',
    'Ordered lanes ever made. Minus those that exist: lanes that were given up.',
    (emit, handler, _series, source) => emit.value({ handler }, source.orderedLanes(handler).created),
  ),
  {
    name: 'velo_messenger_dispatch_failures_total',
    type: 'counter',
    help: 'Requests and replies that came to nothing on this node, by where and why.',
    labels: ['stage', 'reason'],
    read: (source, emit) => {
      emit.value({ stage: 'decode', reason: 'active_message' }, source.cell(MESSAGES_UNDECODED));
      pairs(emit, 'stage', 'reason', { ...source.messenger.failures });
    },
  },
  {
    name: 'velo_messenger_client_resolution_total',
    type: 'counter',
    help: 'How sends found their peer: known to serve the handler (direct), or asked first (handshake).',
    labels: ['path', 'outcome'],
    read: (source, emit) => pairs(emit, 'path', 'outcome', { ...source.messenger.resolutions }),
  },
  plain('velo_messenger_pending_responses', 'gauge', 'Calls that wait for an answer.', (source) =>
    source.pendingResponses(),
  ),
  plain(
    'velo_messenger_response_slot_exhausted_total',
    'counter',
    'Sends that found every response slot taken.',
    (source) => source.responseSlotsExhausted(),
  ),
  plain(
    'velo_messenger_inbound_dequeued_total',
    'counter',
    'Messages taken up, by a lane or on the main thread. Inbound frames of type message, over all transports, minus these is what waits between the two.',
    (source) => source.cell(MESSAGES_ENDED) + source.messenger.messagesTaken,
  ),
];
