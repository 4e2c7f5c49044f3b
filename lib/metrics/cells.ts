// The numbers that lanes publish into the node block, by cell. One lane writes its own cells; anybody reads the sums. A cell is a
// number here and a name nowhere: names and labels belong to the registry that reads them.

import type { NodeBlock } from '../plane/node-block.js';

/** Cell order. Append only. */
export const CELL_NAMES = [
  'batchesSent',
  'batchesReceived',
  'recordsInBatchesSent',
  'recordsInBatchesReceived',
  'recordsSentData',
  'recordsSentOpenSlot',
  'recordsSentCloseSlot',
  'recordsSentCreditUpdate',
  'recordsSentLifecycle',
  'singletons',
  'liveSlots',
  'heldRecords',
  'withheldRecords',
  'stagedRecords',
  'creditExhausted',
  'readerStalls',
  'generationMismatch',
  'droppedStaleEpoch',
  'droppedGeneration',
  'droppedUnknownSlot',
  'droppedClosedSlot',
  'droppedSlotCollision',
  'droppedStaleSingleton',
  'droppedDuplicate',
  'droppedLaneMismatch',
  'malformedBatches',
  'controlRefused',
  'holdOverflow',
  'epochDeaths',
  'creditReposted',
  'creditLost',
  'batchSeqGaps',
  'drainVisits',
  'wakesOpen',
  'wakesControl',
  'wakesFrame',
  'wakesInletClosed',
  'wakesLinger',
  'droppedUnknownPeer',
  'droppedWrongHome',
  'droppedStagedBatch',
  'droppedBadMessage',
  'refusedQueueFull',
  'droppedReplyToNobody',
  'socketWrites',
  'sendBackpressure',
  'sendErrors',
  'decodeErrors',
  'handlerErrors',
  'connectFailures',
  'connectionsOpened',
  'connectionsClosed',
  'inboundRefused',
  'spoofSuspected',
  'rendezvousRegister',
  'rendezvousGet',
  'rendezvousGetError',
  'rendezvousDetach',
  'rendezvousRelease',
  'rendezvousRegisterBytes',
  'rendezvousGetBytes',
  'rendezvousSlots',
  'rendezvousSlotBytes',
  'rendezvousReapedLeases',
  'rendezvousExpired',
  'rendezvousBadLeases',
  'writeBackDropped',
  'drainRejected',
  'watchdogFirings',
] as const;

export type CellName = (typeof CELL_NAMES)[number];

/** A snapshot of all cells, summed over the lanes. Counters only grow; live, held, withheld, staged, and slots and slot bytes of the rendezvous are gauges. */
export type CellTotals = Record<CellName, number>;

export function readTotals(node: NodeBlock): CellTotals {
  return Object.fromEntries(CELL_NAMES.map((name, cell) => [name, node.total(cell)])) as CellTotals;
}

/** Publishes one lane's numbers: only those that changed are written. */
export class CellPublisher {
  /** The numbers to publish, in the order of `CELL_NAMES`; what stands behind those is laid out in `series-cells.ts`. */
  readonly values: Float64Array;
  private readonly last: Float64Array;
  /** What lanes counted that had died before this one. Their gauges were set to zero. */
  private readonly base: Float64Array;

  constructor(
    private readonly node: NodeBlock,
    private readonly lane: number,
    cells: number,
  ) {
    this.values = new Float64Array(cells);
    this.last = new Float64Array(cells);
    this.base = Float64Array.from({ length: cells }, (_, cell) => node.readCell(lane, cell));
  }

  publish(first: number, end: number): void {
    const { values, last, base } = this;
    for (let cell = first; cell < end; cell++) {
      if (values[cell] === last[cell]) continue;
      last[cell] = values[cell]!;
      this.node.setCell(this.lane, cell, base[cell]! + values[cell]!);
    }
  }
}
