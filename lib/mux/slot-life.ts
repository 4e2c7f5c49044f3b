// What a slot of ours is told and what becomes of it: opened, controlled by the peer, closed, retired. Owns the
// "exactly once" of these reports and the index table; it must never write a record.

import { CLOSE_PROTOCOL_ERROR, LIFECYCLE_CANCEL } from '../wire/batch.js';
import type { ClosedReason, Retirement, SlotOwner } from './batcher-types.js';
import { type EgressSlot, EgressSlotTable, NO_ACTION, SLOT_CLOSED, type SlotTerms } from './egress-slot.js';
import { MAX_TABLE_SLOTS } from './mux-config.js';
import type { MuxMetrics } from './mux-metrics.js';

export class SlotLife {
  readonly table: EgressSlotTable;
  private readonly metrics: MuxMetrics;
  private readonly label: string;

  constructor(metrics: MuxMetrics, label: string, firstGeneration: number) {
    this.table = new EgressSlotTable(MAX_TABLE_SLOTS, firstGeneration);
    this.metrics = metrics;
    this.label = label;
  }

  /** @throws VeloError `ERR_SLOTS_EXHAUSTED` when no index is free. */
  start(owner: SlotOwner, terms: SlotTerms): EgressSlot {
    const slot = this.table.open(owner, terms, this.label);
    this.metrics.liveSlots += 1;
    return slot;
  }

  /** The OpenSlot was admitted. */
  opened(slot: EgressSlot): void {
    if (slot.openedReported) return;
    slot.openedReported = true;
    slot.owner.opened(slot, true);
  }

  /**
   * Applies what the peer posted about the slot: lifecycle, then close, then credit. True when withheld records may go
   * now.
   */
  applyControl(slot: EgressSlot): boolean {
    const action = slot.pendingAction;
    const close = slot.pendingClose;
    const credit = slot.pendingCredit;
    slot.pendingAction = NO_ACTION;
    slot.pendingClose = NO_ACTION;
    slot.pendingCredit = 0;
    if (slot.state === SLOT_CLOSED) return false;
    if (action === LIFECYCLE_CANCEL) {
      slot.owner.cancelled(slot);
      this.close(slot, 'cancelled');
      return false;
    }
    if (action !== NO_ACTION) slot.owner.stopped(slot);
    if (close !== NO_ACTION) {
      this.close(slot, close === CLOSE_PROTOCOL_ERROR ? 'protocolError' : 'unknownSlot');
      return false;
    }
    slot.grant(credit);
    return credit > 0 && slot.withheld.length > 0;
  }

  /**
   * Ends the slot here: queues dropped, index freed, owner told. A slot that ended with its terminal retires with the
   * batch, any other now.
   */
  close(slot: EgressSlot, reason: ClosedReason): void {
    slot.state = SLOT_CLOSED;
    slot.direct = false;
    this.metrics.withheldRecords -= slot.withheld.length;
    slot.withheld.clear();
    slot.inlet.clear();
    slot.terminal = undefined;
    this.table.remove(slot);
    this.metrics.liveSlots -= 1;
    if (!slot.openedReported) {
      slot.openedReported = true;
      slot.owner.opened(slot, false);
    }
    slot.owner.closed(slot, reason);
    if (reason !== 'terminal') this.retire(slot, 'discarded');
  }

  /** The first outcome stands. */
  retire(slot: EgressSlot, outcome: Retirement): void {
    if (slot.retiredReported) return;
    slot.retiredReported = true;
    slot.owner.retired(slot, outcome);
  }
}
