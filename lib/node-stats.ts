// What a node says of itself in numbers: the sums over its lanes, and what the main thread counts. It reads and adds; it must never count.

import type { ControlPlane } from './control-plane.js';
import { type CellTotals, readTotals } from './metrics/cells.js';
import { DIAGNOSTICS_DROPPED } from './metrics/series-cells.js';
import { SCHEME_LOCAL } from './metrics/streaming-metrics.js';
import type { NodeBlock } from './plane/node-block.js';
import { MESSENGER_MUX_KEY } from './wire/names.js';

/** A snapshot of a node's numbers, summed over its lanes. */
export interface VeloStats extends CellTotals {
  /** Records written, by type. */
  recordsSent: { data: number; openSlot: number; closeSlot: number; creditUpdate: number; lifecycle: number };
  /** Streams that ended because nobody opened them within the accept window. */
  unclaimedBindsReaped: number;
  /** Attaches from other nodes that were accepted, by transport key. */
  attaches: Readonly<Record<string, number>>;
  /** Senders and anchors that were garbage-collected before their streams had ended. */
  abandonedSenders: number;
  abandonedAnchors: number;
  /** Anchors that exist, senders that are open, calls in flight, peers known. */
  anchors: number;
  senders: number;
  pendingCalls: number;
  peers: number;
  /** Lanes that took the place of dead ones. */
  laneRestarts: number;
  /** Answers that came to nobody: late ones, second ones, made-up ones. */
  lateAnswers: number;
  /** Sends that found no room and waited, and attaches of other nodes that were refused. */
  sendsThatWaited: number;
  attachesRefused: number;
  /** Events for subscribers that were left out because this thread was busy. */
  diagnosticsDropped: number;
}

export function readStats(node: NodeBlock, parts: ControlPlane): VeloStats {
  const totals = readTotals(node);
  const { registry, plane, calls, peers, gate, messenger, abandoned } = parts;
  const { sendsThatWaited, attachesRefused } = registry.metrics;
  return {
    ...totals,
    spoofSuspected: totals.spoofSuspected + gate.moves,
    watchdogFirings: totals.watchdogFirings + registry.neverOpened,
    unclaimedBindsReaped: registry.bindsReaped,
    droppedReplyToNobody: totals.droppedReplyToNobody + messenger.repliesToNobody,
    recordsSent: {
      data: totals.recordsSentData,
      openSlot: totals.recordsSentOpenSlot,
      closeSlot: totals.recordsSentCloseSlot,
      creditUpdate: totals.recordsSentCreditUpdate,
      lifecycle: totals.recordsSentLifecycle,
    },
    attaches: { ...registry.attaches },
    abandonedSenders: abandoned.senders,
    abandonedAnchors: abandoned.anchors,
    anchors: registry.active,
    senders: plane.liveRows().senders,
    pendingCalls: calls.pending,
    peers: peers.size,
    laneRestarts: parts.laneRestarts,
    lateAnswers: calls.lateAnswers,
    sendsThatWaited: sendsThatWaited[MESSENGER_MUX_KEY].count + sendsThatWaited[SCHEME_LOCAL].count,
    attachesRefused,
    diagnosticsDropped: node.total(DIAGNOSTICS_DROPPED),
  };
}
