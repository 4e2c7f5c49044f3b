// "What may never happen", as checks that run after every event, over the node whose event it was. Each has a name, which failures
// carry. They read through `inside.ts` and change nothing.

import type { Lane } from '../../lib/lanes/lane.js';
import { slotBufferDepth } from '../../lib/mux/credit.js';
import type { EgressSlot } from '../../lib/mux/egress-slot.js';
import type { IngressSlot } from '../../lib/mux/ingress-slot.js';
import { DEFAULT_SLOT_BYTE_BUDGET, MAX_WITHHELD_RECORDS } from '../../lib/mux/mux-config.js';
import {
  batchersOf,
  budgetsOf,
  connectionsOf,
  controlOf,
  egressSlotsOf,
  epochOf,
  ingressSlotsOf,
  lanesOf,
  metricsOf,
  slotsByPeer,
  tablesOf,
  unreadOf,
} from './inside.js';
import type { SimNode } from './sim-node.js';

/** Frames of one connection's queue, from the library's defaults. */
const QUEUE_FRAMES = 256;
const REJECT_LANE = 8_192;
/** More than any program sends. */
const LARGEST_RECORD = 1_000_000;

export type Report = (check: string, message: string) => void;

/** What a table's epoch was when it was looked at last. */
const epochs = new WeakMap<object, number>();

/** All of a node's lanes. `calm`: nothing was lost, cut or killed anywhere. */
export function checkNode(node: SimNode, calm: boolean, disturbed: boolean, report: Report): void {
  const window = slotBufferDepth(node.options.mux!.initialCredit!);
  for (const unread of unreadOf(node.velo))
    if (unread > window)
      report('reader overrun', `n${node.number}: ${unread} records before one reader, at most ${window}`);
  for (const lane of lanesOf(node.velo)) {
    const where = `n${node.number} lane ${lane.lane}`;
    checkGauges(lane, where, disturbed, report);
    checkCounters(lane, where, calm, disturbed, report);
    checkQueues(node, lane, where, report);
  }
}

function checkGauges(lane: Lane, where: string, disturbed: boolean, report: Report): void {
  const { liveSlots, heldRecords, withheldRecords, stagedRecords } = metricsOf(lane);
  for (const [name, value] of Object.entries({ liveSlots, heldRecords, withheldRecords, stagedRecords }))
    if (value < 0) report('gauge below zero', `${where}: ${name} = ${value}`);
  let live = 0;
  let held = 0;
  let withheld = 0;
  let staged = 0;
  for (const table of tablesOf(lane)) {
    const epoch = epochOf(table);
    if (epoch < (epochs.get(table) ?? 0)) report('epoch went back', `${where}: from ${epochs.get(table)} to ${epoch}`);
    epochs.set(table, epoch);
    for (const slot of ingressSlotsOf(table)) {
      live += 1;
      held += slot.heldRecords;
      checkIngressSlot(slot, where, disturbed, report);
    }
  }
  for (const batcher of batchersOf(lane)) {
    staged += batcher.staged;
    for (const slot of egressSlotsOf(batcher)) {
      live += 1;
      withheld += slot.withheld.length;
      checkEgressSlot(slot, where, report);
    }
  }
  if (live !== liveSlots) report('gauge', `${where}: liveSlots = ${liveSlots}, and ${live} live`);
  if (held !== heldRecords) report('gauge', `${where}: heldRecords = ${heldRecords}, and ${held} are held`);
  if (withheld !== withheldRecords)
    report('gauge', `${where}: withheldRecords = ${withheldRecords}, and ${withheld} are withheld`);
  if (staged !== stagedRecords) report('gauge', `${where}: stagedRecords = ${stagedRecords}, and ${staged} are staged`);
}

function checkCounters(lane: Lane, where: string, calm: boolean, disturbed: boolean, report: Report): void {
  const metrics = metricsOf(lane);
  if (metrics.readerStalls > 0) report('reader stall', `${where}: readerStalls = ${metrics.readerStalls}`);
  if (metrics.creditLost > 0 && !disturbed)
    report('credit lost', `${where}: ${metrics.creditLost}, no batch was refused`);
  if (metrics.malformedBatches > 0) report('malformed batch', `${where}: ${metrics.malformedBatches}`);
  if (metrics.droppedLaneMismatch > 0) report('lane mismatch', `${where}: ${metrics.droppedLaneMismatch}`);
  if (!calm) return;
  const { holdOverflow, droppedDuplicate, droppedStaleEpoch, droppedSlotCollision, watchdogFirings } = metrics;
  const never = {
    holdOverflow,
    droppedDuplicate,
    droppedStaleEpoch,
    droppedSlotCollision,
    watchdogFirings,
  };
  for (const [name, value] of Object.entries(never))
    if (value > 0) report('calm counter', `${where}: ${name} = ${value} although nothing was lost or cut`);
}

function checkIngressSlot(slot: IngressSlot, where: string, disturbed: boolean, report: Report): void {
  const { limit, outstanding, ungranted, buffered } = slot;
  if (outstanding > limit) report('window', `${where} slot ${slot.id}: ${outstanding} outstanding of ${limit}`);
  // A grant that the network repeats is spent twice.
  if (outstanding + ungranted > limit && !disturbed)
    report('window', `${where} slot ${slot.id}: ${outstanding} outstanding and ${ungranted} ungranted of ${limit}`);
  if (buffered > slotBufferDepth(limit)) report('buffer', `${where} slot ${slot.id}: ${buffered} buffered of ${limit}`);
  if (outstanding < 0 || ungranted < 0 || slot.bufferedBytes < 0)
    report('ledger below zero', `${where} slot ${slot.id}: ${outstanding} ${ungranted} ${slot.bufferedBytes}`);
  if (!slot.live) report('dead slot listed', `${where} slot ${slot.id}`);
}

function checkEgressSlot(slot: EgressSlot, where: string, report: Report): void {
  const { withheld, inlet, byteBudget } = slot;
  if (inlet.length > slot.inletLimit)
    report('inlet', `${where} slot ${slot.id}: ${inlet.length} stand of ${slot.inletLimit}`);
  if (withheld.length > MAX_WITHHELD_RECORDS)
    report('withheld queue', `${where} slot ${slot.id}: ${withheld.length} records`);
  // The record that reaches the budget may be of any size.
  const bytes = (byteBudget || DEFAULT_SLOT_BYTE_BUDGET) + LARGEST_RECORD;
  if (withheld.byteLength > bytes)
    report('withheld bytes', `${where} slot ${slot.id}: ${withheld.byteLength} of ${bytes}`);
  if (slot.credit < 0) report('ledger below zero', `${where} slot ${slot.id}: credit ${slot.credit}`);
}

function checkQueues(node: SimNode, lane: Lane, where: string, report: Report): void {
  const bytes = node.options.connectionQueueBytes ?? Number.POSITIVE_INFINITY;
  for (const { queuedFrames, queuedBytes } of connectionsOf(lane)) {
    if (queuedFrames > QUEUE_FRAMES) report('connection queue', `${where}: ${queuedFrames} frames`);
    if (queuedFrames > 1 && queuedBytes > bytes)
      report('connection queue', `${where}: ${queuedBytes} of ${bytes} bytes`);
  }
  for (const { used, limit } of budgetsOf(lane))
    if (used < 0 || used > limit) report('hold budget', `${where}: ${used} of ${limit} bytes held`);
  for (const batcher of batchersOf(lane)) {
    const known = tablesOf(lane).reduce((sum, table) => sum + table.liveSlots, 0);
    const bound = 4 * (known + batcher.liveSlots + 1_024) + REJECT_LANE;
    if (controlOf(batcher) > bound) report('control inbox', `${where}: ${controlOf(batcher)} entries of ${bound}`);
  }
}

/**
 * The two ends of every stream: what a sender may still send, with what its receiver has on account, is never more than the window.
 * Only between processes that nothing befell: a grant that was repeated by the network is one too many.
 */
export function checkCredit(
  nodes: readonly SimNode[],
  untouched: (a: SimNode, b: SimNode) => boolean,
  report: Report,
): void {
  for (const node of nodes)
    for (const lane of lanesOf(node.velo))
      for (const { workerId, egress } of slotsByPeer(lane)) {
        const other = nodes.find(({ velo }) => velo.workerId === workerId);
        if (other === undefined || !untouched(node, other)) continue;
        const name = `n${node.number} → n${other.number}`;
        egress.forEach((slots, k) => {
          for (const slot of slots) checkWindow(slot, receiverOf(other, node, k, slot), `${name} lane ${k}`, report);
        });
      }
}

function receiverOf(node: SimNode, sender: SimNode, k: number, slot: EgressSlot): IngressSlot | undefined {
  for (const lane of lanesOf(node.velo))
    for (const { workerId, ingress } of slotsByPeer(lane)) {
      if (workerId !== sender.velo.workerId) continue;
      const found = ingress[k]?.find(
        ({ id, sessionHi, sessionLo }) =>
          id === slot.id && sessionHi === slot.sessionHi && sessionLo === slot.sessionLo,
      );
      if (found !== undefined) return found;
    }
  return undefined;
}

function checkWindow(sender: EgressSlot, receiver: IngressSlot | undefined, where: string, report: Report): void {
  if (receiver === undefined) return;
  const { outstanding, ungranted, limit } = receiver;
  if (sender.credit + sender.pendingCredit + outstanding + ungranted <= limit) return;
  const has = `${sender.credit}+${sender.pendingCredit} at the sender`;
  report(
    'credit made',
    `${where} slot ${sender.id}: ${has}, ${outstanding} outstanding, ${ungranted} ungranted of ${limit}`,
  );
}
