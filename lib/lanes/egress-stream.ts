// A sender row as its lane sees it: between the row's words and the mux slot. It turns what the batcher says about the slot
// into flags of the row, and the row's ending into the slot's terminal.

import { performance } from 'node:perf_hooks';
import type { ClosedReason, Retirement, SlotOwner } from '../mux/batcher-types.js';
import type { EgressSlot } from '../mux/egress-slot.js';
import type { Beat, BeatSource } from '../mux/heartbeats.js';
import type { PeerBatcher } from '../mux/peer-batcher.js';
import {
  ENDING_NONE,
  SENDER_CANCELLED,
  SENDER_CLOSED,
  SENDER_LANE_DIED,
  SENDER_OPEN_FAILED,
  SENDER_OPENED,
  SENDER_OVER,
  SENDER_RETIRED,
  SENDER_SENT,
  SENDER_STOPPED,
} from '../plane/rows.js';
import type { ClientLink } from './client-link.js';

export class EgressStream implements SlotOwner, BeatSource {
  /** Data records taken out of the ring, modulo 2^32. */
  accepted = 0;
  /** How the stream ends, once its sender said so, and after how many records. */
  ending = ENDING_NONE;
  endsAt = 0;
  /** The node closed before its sender had ended it. */
  droppedByNode = false;
  /** What the row's `pulled` word holds. */
  pulledPublished = 0;
  /** Pulled records after which the word is written: half the inlet, so that a sender rarely sees it full; one, if it asked. */
  publishStep: number;
  private readonly ordinaryStep: number;
  slot!: EgressSlot;
  /** When it was asked for, or its slot was opened. */
  openedAt = performance.now();
  private isOpen = false;
  beat: Beat | undefined;

  constructor(
    private readonly link: ClientLink,
    readonly row: number,
    readonly generation: number,
    readonly batcher: PeerBatcher,
    credit: number,
  ) {
    this.ordinaryStep = Math.max(1, (credit + 1) >>> 1);
    this.publishStep = this.ordinaryStep;
  }

  /** Its sender waits for room, and there is none to tell of yet: it hears of the next record that is pulled. */
  roomWanted(): void {
    this.slot.notifyPull = true;
    this.publishStep = 1;
  }

  /** The sender was told. */
  pulledTold(): void {
    this.publishStep = this.ordinaryStep;
  }

  opened(slot: EgressSlot, ok: boolean): void {
    if (ok) {
      this.isOpen = true;
      this.openedAt = performance.now();
      this.link.observer?.egressOpened(this.batcher, slot);
    }
    this.flag(ok ? SENDER_OPENED : SENDER_OPEN_FAILED);
  }

  closed(slot: EgressSlot, reason: ClosedReason): void {
    this.beat?.stop();
    if (this.isOpen) this.link.observer?.egressClosed(this.batcher, slot, this.told(reason), this.openedAt);
    if (reason === 'terminal' || reason === 'abandoned') return;
    this.flag(SENDER_CLOSED);
  }

  /** A slot that is given up because its sender was cancelled by message was cancelled. */
  private told(reason: ClosedReason): ClosedReason {
    if (reason !== 'abandoned') return reason;
    const cancelled = (this.link.rows.senders.flags(this.row) & SENDER_CANCELLED) !== 0;
    return cancelled ? 'cancelled' : reason;
  }

  cancelled(_slot: EgressSlot): void {
    this.flag(SENDER_CANCELLED);
  }

  stopped(_slot: EgressSlot): void {
    this.flag(SENDER_STOPPED);
  }

  retired(_slot: EgressSlot, outcome: Retirement): void {
    this.link.dropSender(this);
    // What its sender had not ended is not all that it had to say, though every byte of it was sent.
    const sent = outcome === 'sent' && !this.droppedByNode;
    this.link.retireSender(this.row, this.generation, sent ? SENDER_RETIRED | SENDER_SENT : SENDER_RETIRED);
  }

  pulledChanged(slot: EgressSlot): void {
    if (this.link.publishPulled(this)) slot.notifyPull = false;
  }

  /** A record of it can never leave, because the lane that it had to lie on stays dead. */
  strand(): void {
    this.flag(SENDER_CLOSED | SENDER_LANE_DIED);
    this.batcher.abandon(this.slot);
  }

  /** A sender that was told to cancel, by message perhaps, has nobody left to beat for. */
  heartbeat(): void {
    if ((this.link.rows.senders.flags(this.row) & SENDER_OVER) === 0) this.batcher.heartbeat(this.slot);
    else this.beat?.stop();
  }

  private flag(flags: number): void {
    this.link.flagSender(this.row, this.generation, flags);
  }
}
