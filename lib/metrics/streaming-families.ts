// The series of streams and the mux. Names and label values are those of the reference.

import { CELL_NAMES, type CellName } from './cells.js';
import { cellFamily, type FamilySpec, labelledFamily } from './family.js';
import { BATCH_RECORDS } from './histogram.js';
import { BATCH_BUCKETS_RECEIVED, BATCH_BUCKETS_SENT } from './series-cells.js';

const index = (name: CellName): number => CELL_NAMES.indexOf(name);

function counter(name: string, cell: CellName, help: string): FamilySpec {
  return cellFamily(name, 'counter', index(cell), help);
}

function gauge(name: string, cell: CellName, help: string): FamilySpec {
  return cellFamily(name, 'gauge', index(cell), help);
}

function labelled(name: string, label: string, cells: Readonly<Record<string, CellName>>, help: string): FamilySpec {
  return labelledFamily(name, label, cells, index, help);
}

const BATCH_SIZES = [
  ['sent', BATCH_BUCKETS_SENT, index('recordsInBatchesSent')],
  ['received', BATCH_BUCKETS_RECEIVED, index('recordsInBatchesReceived')],
] as const;

export const STREAMING_FAMILIES: readonly FamilySpec[] = [
  {
    name: 'velo_streaming_active_anchors',
    type: 'gauge',
    help: 'Anchors of this node.',
    labels: [],
    read: (source, emit) => emit.value({}, source.activeAnchors()),
  },
  {
    name: 'velo_streaming_heartbeat_watchdog_firings_total',
    type: 'counter',
    help: 'Streams that ended because their sender was silent.',
    labels: [],
    read: (source, emit) => emit.value({}, source.cell(index('watchdogFirings')) + source.bindsNeverOpened()),
  },
  {
    name: 'velo_streaming_unclaimed_bind_reaped_total',
    type: 'counter',
    help: 'Streams that ended because nobody opened them within the accept window.',
    labels: [],
    read: (source, emit) => emit.value({}, source.bindsReaped()),
  },
  counter(
    'velo_streaming_slot_credit_exhausted_total',
    'creditExhausted',
    'Slots that began to starve for credit, once per episode.',
  ),
  gauge(
    'velo_streaming_mux_live_slots',
    'liveSlots',
    'Slots of both directions. Back at 0 once every stream has ended.',
  ),
  counter(
    'velo_streaming_mux_reader_stall_total',
    'readerStalls',
    'Records that found a full buffer although credit was granted. Anything but 0 is a bug.',
  ),
  counter(
    'velo_streaming_mux_generation_mismatch_total',
    'generationMismatch',
    'Records for an earlier life of a slot.',
  ),
  labelled(
    'velo_streaming_mux_records_dropped_total',
    'reason',
    {
      stale_epoch: 'droppedStaleEpoch',
      generation: 'droppedGeneration',
      unknown_slot: 'droppedUnknownSlot',
      closed_slot: 'droppedClosedSlot',
      slot_collision: 'droppedSlotCollision',
      stale_singleton: 'droppedStaleSingleton',
      duplicate: 'droppedDuplicate',
      lane_mismatch: 'droppedLaneMismatch',
    },
    'Records dropped before they reached a stream.',
  ),
  labelled(
    'velo_streaming_mux_batches_total',
    'direction',
    { sent: 'batchesSent', received: 'batchesReceived' },
    'Batches.',
  ),
  {
    name: 'velo_streaming_mux_records_per_batch',
    type: 'histogram',
    help: 'Records in a batch.',
    labels: ['direction'],
    read: (source, emit) => {
      for (const [direction, first, sum] of BATCH_SIZES) {
        const buckets = Array.from({ length: BATCH_RECORDS.length + 1 }, (_, i) => source.cell(first + i));
        emit.histogram({ direction }, BATCH_RECORDS, buckets, source.cell(sum));
      }
    },
  },
  labelled(
    'velo_streaming_mux_records_sent_total',
    'record_type',
    {
      data: 'recordsSentData',
      open_slot: 'recordsSentOpenSlot',
      close_slot: 'recordsSentCloseSlot',
      credit_update: 'recordsSentCreditUpdate',
      lifecycle: 'recordsSentLifecycle',
    },
    'Records written, by type.',
  ),
  counter(
    'velo_streaming_mux_rendezvous_singletons_total',
    'singletons',
    'Batches of one record that is too large to be packed with others.',
  ),
  gauge('velo_streaming_mux_held_records', 'heldRecords', 'Records held at the receiver behind a gap.'),
  gauge('velo_streaming_mux_withheld_records', 'withheldRecords', 'Records withheld at the sender for want of credit.'),
  gauge('velo_streaming_mux_staged_records', 'stagedRecords', 'Records in batches that are not written yet.'),
  counter(
    'velo_streaming_mux_control_refused_total',
    'controlRefused',
    'Control for a slot that was never allocated, and refusals beyond what may wait.',
  ),
  counter(
    'velo_streaming_mux_hold_overflow_total',
    'holdOverflow',
    'Slots ended because what they held, or were sent, went beyond their window.',
  ),
  counter('velo_streaming_mux_epoch_deaths_total', 'epochDeaths', 'Epochs that ended with their slots.'),
  counter(
    'velo_streaming_mux_credit_reposted_total',
    'creditReposted',
    'Credit staged again because its batch was thrown away.',
  ),
  counter(
    'velo_streaming_mux_credit_lost_total',
    'creditLost',
    'Credit that was thrown away with its batch. Anything but 0 is a bug.',
  ),
  counter('velo_streaming_mux_batch_seq_gaps_total', 'batchSeqGaps', 'Batches missing in the numbering of a peer.'),
  counter('velo_streaming_mux_drain_visits_total', 'drainVisits', 'Visits to a (peer, lane) because its readers read.'),
  labelled(
    'velo_streaming_mux_batcher_wakes_total',
    'source',
    {
      open: 'wakesOpen',
      control: 'wakesControl',
      frame: 'wakesFrame',
      inlet_closed: 'wakesInletClosed',
      linger: 'wakesLinger',
    },
    'Wakes of batchers, by their first cause.',
  ),
  labelled(
    'velomux_lane_dropped_total',
    'reason',
    {
      unknown_peer: 'droppedUnknownPeer',
      wrong_home: 'droppedWrongHome',
      staged_batch: 'droppedStagedBatch',
      malformed_batch: 'malformedBatches',
      bad_message: 'droppedBadMessage',
      queue_full: 'refusedQueueFull',
      reply_to_nobody: 'droppedReplyToNobody',
    },
    'Inbound messages and batches that a lane dropped or refused. Not in the reference.',
  ),
  counter(
    'velomux_spoof_suspected_total',
    'spoofSuspected',
    'Requests and batches in the name of a registered peer that came from none of its hosts. Not in the reference.',
  ),
];
