// The series of the transports: frames and bytes by direction and type, refusals, queues, connections. Names and label values are
// those of the reference.

import type { Emit, FamilySpec } from './family.js';
import { EGRESS_SECONDS } from './histogram.js';
import { FRAME_TYPES, readHistogram, TRANSPORT_CELLS, type TransportCells, type TransportKey } from './series-cells.js';
import type { MetricsSource } from './source.js';

/** By transport frame type. */
const MESSAGE_TYPES = ['message', 'response', 'ack', 'event', 'shutting_down'] as const;
/** Reasons that the reference knows of transports this package has not: their counters stay 0. */
const FOREIGN_REASONS = [
  'missing_headers',
  'missing_type',
  'invalid_type',
  'invalid_header_length',
  'truncated_frame',
  'drain_reply_build_failed',
] as const;

type ReadTransport = (source: MetricsSource, emit: Emit, transport: TransportKey, at: TransportCells) => void;

function family(
  name: string,
  type: FamilySpec['type'],
  labels: readonly string[],
  help: string,
  read: ReadTransport,
): FamilySpec {
  return {
    name,
    type,
    help,
    labels: ['transport', ...labels],
    read: (source, emit) => {
      for (const transport of source.transports) read(source, emit, transport, TRANSPORT_CELLS[transport]);
    },
  };
}

function byDirection(
  source: MetricsSource,
  emit: Emit,
  labels: Readonly<Record<string, string>>,
  inbound: number,
  outbound: number,
): void {
  for (const [direction, first] of [
    ['inbound', inbound],
    ['outbound', outbound],
  ] as const) {
    for (let type = 0; type < FRAME_TYPES; type++)
      emit.value({ ...labels, direction, message_type: MESSAGE_TYPES[type]! }, source.cell(first + type));
  }
}

function seconds(pick: (at: TransportCells) => number): ReadTransport {
  return (source, emit, transport, at) => {
    const { buckets, sum } = readHistogram((cell) => source.cell(cell), pick(at), EGRESS_SECONDS);
    emit.histogram({ transport }, EGRESS_SECONDS, buckets, sum);
  };
}

export const TRANSPORT_FAMILIES: readonly FamilySpec[] = [
  family(
    'velo_transport_frames_total',
    'counter',
    ['direction', 'message_type', 'outcome'],
    'Frames read from sockets (inbound; without the requests that a draining node refuses) and taken into the queue of a connection (outbound).',
    (source, emit, transport, at) =>
      byDirection(source, emit, { transport, outcome: 'accepted' }, at.framesReceived, at.framesSent),
  ),
  family(
    'velo_transport_frame_bytes_total',
    'counter',
    ['direction', 'message_type'],
    'Header and payload bytes of those frames; preambles do not count.',
    (source, emit, transport, at) => byDirection(source, emit, { transport }, at.bytesReceived, at.bytesSent),
  ),
  family(
    'velo_transport_frames_written_total',
    'counter',
    ['message_type'],
    'Frames whose write completed. Outbound frames minus these is what the connections hold.',
    (source, emit, transport, at) => {
      for (let type = 0; type < FRAME_TYPES; type++)
        emit.value({ transport, message_type: MESSAGE_TYPES[type]! }, source.cell(at.framesWritten + type));
    },
  ),
  family(
    'velo_transport_egress_queue_wait_seconds',
    'histogram',
    [],
    'Time from a frame being handed to its connection to its write; at most one frame per write is observed, which is the first that had to wait.',
    seconds((at) => at.queueWaitSeconds),
  ),
  family(
    'velo_transport_write_duration_seconds',
    'histogram',
    [],
    'Time of a socket write, of one frame or several, until it completed without error.',
    seconds((at) => at.writeSeconds),
  ),
  family(
    'velo_transport_rejections_total',
    'counter',
    ['reason'],
    'Frames lost with their connection or refused by it (send_error), requests refused by a node that drains (drain_rejected), connections closed for bad framing (decode_error), frames whose handling failed (route_failed).',
    (source, emit, transport, at) => {
      emit.value({ transport, reason: 'send_error' }, source.cell(at.sendErrors));
      emit.value({ transport, reason: 'drain_rejected' }, source.cell(at.drainRejected));
      emit.value({ transport, reason: 'decode_error' }, source.cell(at.decodeErrors));
      emit.value({ transport, reason: 'route_failed' }, source.cell(at.routeFailures));
      for (const reason of FOREIGN_REASONS) emit.value({ transport, reason }, 0);
    },
  ),
  family(
    'velo_transport_send_backpressure_total',
    'counter',
    [],
    'Frames that found the queue of their connection full and had to wait for room.',
    (source, emit, transport, at) => emit.value({ transport }, source.cell(at.sendBackpressure)),
  ),
  family(
    'velo_transport_registered_peers',
    'gauge',
    [],
    'Peers that are reached by this transport.',
    (source, emit, transport) => emit.value({ transport }, source.peers(transport)),
  ),
  family(
    'velo_transport_active_connections',
    'gauge',
    [],
    'Dialed connections that stand.',
    (source, emit, transport, at) => emit.value({ transport }, source.cell(at.dialed)),
  ),
];
