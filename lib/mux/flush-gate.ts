// Decides when a batch is due (streaming specification §7.20). Owns the conditions and their deadlines; it must never
// touch a batch, and it reads the time only for a condition that needs it.
//
// A condition is a reason in shouldFlush and, when it waits for a time, a term in deadline. A clamp is no condition:
// whoever stages writes a full batch at once and says so with cleared(); a kick that is set survives it.

import type { EgressSlot } from './egress-slot.js';
import type { FlushPolicy } from './mux-config.js';

/** The clock of the gate's owner, in milliseconds. */
export interface GateClock {
  now(): number;
}

/**
 * | policy                  | data alone            | replies alone        | close, terminal, open, lifecycle | kick |
 * |-------------------------|-----------------------|----------------------|----------------------------------|------|
 * | auto, on admission      | end of the wake       | after the reply window | end of the wake                | now  |
 * | auto, linger w          | w after the oldest    | the earlier of the two | end of the wake                | now  |
 * | auto, neither; manual   | kick, clamp, reply window | after the reply window | end of the wake            | now  |
 *
 * Two more conditions of auto end a linger window early: `onComplete`, when every live slot has a data record in the batch, though not
 * sooner than w after the last write that carried data; `atBytes`, when the batch has reached that size.
 */
export class FlushGate {
  /** Records in the open batch. */
  staged = 0;
  /** Whoever stages a data record must also call `stamp`. */
  readonly stamps: boolean;

  private readonly clock: GateClock;
  private readonly onAdmission: boolean;
  /** Window from the oldest record; −1: none. */
  private readonly lingerMs: number;
  private readonly replyLingerMs: number;
  /** Size of a batch that is due; Infinity: none. */
  private readonly atBytes: number;

  private live = 0;
  /** Number of the open batch, and slots with a data record in it that live; kept only for `onComplete`. */
  private batch = 1;
  private stamped = 0;
  private dataStaged = false;
  private lastDataWrite = Number.NEGATIVE_INFINITY;

  private urgent = false;
  private kicked = false;
  private nonReply = false;
  /** Time of the oldest record; kept only under a linger window. */
  private oldest = Number.POSITIVE_INFINITY;
  /** Time of the first credit reply. Its window belongs to it: records that join later do not move it. */
  private replySince = Number.POSITIVE_INFINITY;

  constructor(policy: FlushPolicy, replyLingerMs: number, clock: GateClock) {
    this.clock = clock;
    this.replyLingerMs = replyLingerMs;
    this.onAdmission = policy.kind === 'auto' && policy.onAdmission;
    this.lingerMs = policy.kind === 'auto' && policy.maxLingerMs !== undefined ? policy.maxLingerMs : -1;
    this.stamps = policy.kind === 'auto' && policy.onComplete;
    this.atBytes = policy.kind === 'auto' ? (policy.atBytes ?? Number.POSITIVE_INFINITY) : Number.POSITIVE_INFINITY;
  }

  slotStarted(): void {
    this.live += 1;
  }

  slotEnded(slot: EgressSlot): void {
    this.live -= 1;
    if (slot.stamp === this.batch) this.stamped -= 1;
  }

  /** The slot's data record is in the open batch. */
  stamp(slot: EgressSlot): void {
    this.dataStaged = true;
    if (slot.stamp === this.batch) return;
    slot.stamp = this.batch;
    this.stamped += 1;
  }

  /** One data record joined the batch. */
  stage(): void {
    if (this.staged === 0 && this.lingerMs >= 0) this.oldest = this.clock.now();
    this.nonReply = true;
    this.staged += 1;
  }

  /** `records` that carry liveness joined: a close, a terminal with its close, a lifecycle record. */
  stageUrgent(records: number): void {
    this.stage();
    this.staged += records - 1;
    this.urgent = true;
  }

  /** One credit reply joined. */
  stageReply(): void {
    const first = this.staged === 0;
    this.staged += 1;
    if (this.replySince !== Number.POSITIVE_INFINITY) return;
    const now = this.clock.now();
    this.replySince = now;
    if (first && this.lingerMs >= 0) this.oldest = now;
  }

  /**
   * What was staged last must not wait longer than a reply would, whatever the policy. Nothing when nothing is staged.
   */
  limitWait(): void {
    if (this.staged > 0 && this.replySince === Number.POSITIVE_INFINITY) this.replySince = this.clock.now();
  }

  /** What was staged last is due at the end of this wake, whatever the policy. Nothing when nothing is staged. */
  hurry(): void {
    if (this.staged > 0) this.urgent = true;
  }

  /** The application asked for a write. A thousand kicks are one. */
  kick(): void {
    this.kicked = true;
  }

  /** True once per kick. */
  takeKick(): boolean {
    const kicked = this.kicked;
    this.kicked = false;
    return kicked;
  }

  /** The batch is handed over. */
  written(): void {
    if (this.dataStaged) this.wroteData();
    this.cleared();
  }

  /** A write carried data. */
  wroteData(): void {
    if (this.stamps && this.lingerMs >= 0) this.lastDataWrite = this.clock.now();
  }

  /** The batch was handed over or thrown away. A kick stays: it speaks of the whole wake. */
  cleared(): void {
    this.batch += 1;
    this.stamped = 0;
    this.dataStaged = false;
    this.staged = 0;
    this.urgent = false;
    this.nonReply = false;
    this.oldest = Number.POSITIVE_INFINITY;
    this.replySince = Number.POSITIVE_INFINITY;
  }

  /** True when the open batch, of `bytes`, is due at the end of this wake. An empty batch never is. */
  shouldFlush(bytes: number): boolean {
    if (this.staged === 0) return false;
    if (this.urgent || (this.onAdmission && this.nonReply) || bytes >= this.atBytes) return true;
    const deadline = this.deadline();
    return deadline !== Number.POSITIVE_INFINITY && this.clock.now() >= deadline;
  }

  /** When to look again if nothing happens before; Infinity: never. */
  deadline(): number {
    const reply = this.replySince + this.replyLingerMs;
    const complete = this.stamps && this.stamped > 0 && this.stamped === this.live;
    if (this.lingerMs < 0) return complete ? Number.NEGATIVE_INFINITY : reply;
    const window = Math.min(reply, this.oldest + this.lingerMs);
    return complete ? Math.min(window, Math.max(this.oldest, this.lastDataWrite + this.lingerMs)) : window;
  }
}
