// What a slot of ours is told and what becomes of it: opened, controlled by the peer, closed, retired. Owns the
// "exactly once" of these reports and the index table; it must never write a record.

import { CLOSE_PROTOCOL_ERROR, LIFECYCLE_CANCEL } from '../wire/batch.js';
import type { BatcherPort, ClosedReason, Retirement, SlotOwner } from './batcher-types.js';
import {
  ANSWER_ADMITTED,
  ANSWER_FAILED,
  type EgressSlot,
  EgressSlotTable,
  NO_ACTION,
  NO_ANSWER,
  SLOT_CLOSED,
  type SlotTerms,
} from './egress-slot.js';
import type { FlushGate } from './flush-gate.js';
import { MAX_TABLE_SLOTS } from './mux-config.js';
import type { MuxMetrics } from './mux-metrics.js';

/** What a posted control asks for beyond the slot. */
export const CONTROL_DONE = 0;
/** Records that waited may go now. */
export const CONTROL_SERVE = 1;
/** A singleton of a live slot was not admitted: the epoch is over. */
export const CONTROL_EPOCH_OVER = 2;

export type ControlOutcome = typeof CONTROL_DONE | typeof CONTROL_SERVE | typeof CONTROL_EPOCH_OVER;

export class SlotLife {
  readonly table: EgressSlotTable;
  private readonly gate: FlushGate;
  private readonly metrics: MuxMetrics;
  private readonly label: string;
  private readonly port: Pick<BatcherPort, 'dropStaged'>;

  constructor(
    gate: FlushGate,
    metrics: MuxMetrics,
    port: Pick<BatcherPort, 'dropStaged'>,
    label: string,
    firstGeneration: number,
  ) {
    this.port = port;
    this.table = new EgressSlotTable(MAX_TABLE_SLOTS, firstGeneration);
    this.gate = gate;
    this.metrics = metrics;
    this.label = label;
  }

  /** @throws VeloError `ERR_SLOTS_EXHAUSTED` when no index is free. */
  start(owner: SlotOwner, terms: SlotTerms): EgressSlot {
    const slot = this.table.open(owner, terms, this.label);
    this.metrics.liveSlots += 1;
    this.gate.slotStarted();
    return slot;
  }

  /** The OpenSlot was admitted. */
  opened(slot: EgressSlot): void {
    if (slot.openedReported) return;
    slot.openedReported = true;
    slot.owner.opened(slot, true);
  }

  /** Applies what was posted about the slot: lifecycle, then close, then credit, then the answer to its singleton. */
  applyControl(slot: EgressSlot): ControlOutcome {
    const action = slot.pendingAction;
    const close = slot.pendingClose;
    const credit = slot.pendingCredit;
    const answer = slot.pendingAnswer;
    slot.pendingAction = NO_ACTION;
    slot.pendingClose = NO_ACTION;
    slot.pendingCredit = 0;
    slot.pendingAnswer = NO_ANSWER;
    this.applySignals(slot, action, close);
    if (slot.state === SLOT_CLOSED) {
      // A singleton that outlived its slot ends nothing.
      if (answer === ANSWER_FAILED) this.metrics.droppedStaleSingleton += 1;
      return CONTROL_DONE;
    }
    slot.grant(credit);
    if (answer === ANSWER_FAILED) return CONTROL_EPOCH_OVER;
    if (answer === ANSWER_ADMITTED) {
      slot.fence = undefined;
      return CONTROL_SERVE;
    }
    return credit > 0 && slot.withheld.length > 0 ? CONTROL_SERVE : CONTROL_DONE;
  }

  private applySignals(slot: EgressSlot, action: number, close: number): void {
    if (slot.state === SLOT_CLOSED) return;
    if (action === LIFECYCLE_CANCEL) {
      slot.owner.cancelled(slot);
      this.close(slot, 'cancelled');
      return;
    }
    if (action !== NO_ACTION) slot.owner.stopped(slot);
    if (close !== NO_ACTION) this.close(slot, close === CLOSE_PROTOCOL_ERROR ? 'protocolError' : 'unknownSlot');
  }

  /**
   * Ends the slot here: queues dropped, index freed unless it is to be kept, owner told. A slot that ended with its terminal retires
   * with the batch, any other now.
   */
  close(slot: EgressSlot, reason: ClosedReason, keepIndex = false): void {
    slot.state = SLOT_CLOSED;
    this.gate.slotEnded(slot);
    slot.direct = false;
    this.metrics.withheldRecords -= slot.withheld.length;
    slot.withheld.clear();
    slot.inlet.clear();
    slot.terminal = undefined;
    this.table.remove(slot, keepIndex);
    this.metrics.liveSlots -= 1;
    if (!slot.openedReported) {
      slot.openedReported = true;
      slot.owner.opened(slot, false);
    }
    slot.owner.closed(slot, reason);
    if (reason !== 'terminal') this.retire(slot, 'discarded');
    // A sender that left, in order or not, leaves what it sent to its receiver. Whoever ended the stream otherwise wants no more of it.
    if (slot.stagedOut > 0 && reason !== 'terminal' && reason !== 'abandoned') this.port.dropStaged?.(slot);
  }

  /** The first outcome stands. */
  retire(slot: EgressSlot, outcome: Retirement): void {
    if (slot.retiredReported) return;
    slot.retiredReported = true;
    slot.owner.retired(slot, outcome);
  }
}
