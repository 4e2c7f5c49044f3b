// The control inbox of a batcher: coalesced state about our slots and replies owed to the peer's slots (streaming
// specification §7.7). Owns what is accepted and how it merges; it must never write a record, and none of its parts
// grows beyond what was allocated.

import { LIFECYCLE_CANCEL } from '../wire/batch.js';
import { slotIndex } from '../wire/slot-id.js';
import type { BatchManifest, LifecycleReply } from './batch-manifest.js';
import { CLOSE_SLOT_RECORD_LEN, CREDIT_UPDATE_RECORD_LEN, LIFECYCLE_RECORD_LEN } from './batch-writer.js';
import type { ControlSink } from './batcher-types.js';
import { saturatingAdd } from './credit.js';
import { ANSWER_ADMITTED, ANSWER_FAILED, type EgressSlot, type EgressSlotTable, NO_ACTION } from './egress-slot.js';
import { REJECT_LANE_LIMIT, REPLY_LIMIT } from './mux-config.js';
import type { MuxMetrics } from './mux-metrics.js';
import { NO_CLOSE, ReplyLedger } from './reply-ledger.js';
import type { Singleton } from './singletons.js';

/**
 * Writes replies. Room is asked for before an entry leaves the inbox; a write that returns false was refused by the
 * transport and has put back what may be sent again, so the drain stops.
 */
export interface ReplyWriter {
  /** False: nothing more can be staged now. */
  makeReplyRoom(bytes: number): boolean;
  writeLifecycle(reply: LifecycleReply): boolean;
  writeCredit(slotId: number, delta: number): boolean;
  writeClose(slotId: number, reason: number): boolean;
}

/** The batcher behind the inbox. */
export interface ControlListener {
  /** Something was posted that a drain should see. */
  controlPosted(): void;
  /** A close was. It names no session, so where it must be said again this is said in its place. */
  closePosted(cancel: LifecycleReply): void;
}

export class ControlInbox implements ControlSink {
  private readonly table: EgressSlotTable;
  private readonly metrics: MuxMetrics;
  private readonly listener: ControlListener;
  private closed = false;

  /** Our slots with control posted; the quantities stand on the slots. */
  private readonly listed: (EgressSlot | undefined)[] = [];
  private listedCount = 0;

  private readonly replies = new ReplyLedger();
  /** By slot id and session. */
  private readonly lifecycles = new Map<string, LifecycleReply>();
  private readonly rejects = new Map<number, number>();

  constructor(table: EgressSlotTable, metrics: MuxMetrics, listener: ControlListener) {
    this.table = table;
    this.metrics = metrics;
    this.listener = listener;
  }

  /** Nothing waits here. */
  get isEmpty(): boolean {
    return this.listedCount === 0 && !this.owesReplies;
  }

  /** Something about our slots waits here. */
  get hasOwn(): boolean {
    return this.listedCount > 0;
  }

  get owesReplies(): boolean {
    return this.replies.size > 0 || this.lifecycles.size > 0 || this.rejects.size > 0;
  }

  /** Entries that wait, all kinds together. */
  get size(): number {
    return this.listedCount + this.replies.size + this.lifecycles.size + this.rejects.size;
  }

  // -- about our slots

  postCredit(slotId: number, delta: number): void {
    const slot = this.ownSlot(slotId);
    if (slot === undefined) return;
    slot.pendingCredit = saturatingAdd(slot.pendingCredit, delta);
    this.list(slot);
  }

  postClose(slotId: number, reason: number): void {
    const slot = this.ownSlot(slotId);
    if (slot === undefined) return;
    if (slot.pendingClose === NO_ACTION) slot.pendingClose = reason;
    this.list(slot);
  }

  postLifecycle(slotId: number, sessionHi: number, sessionLo: number, action: number): void {
    const slot = this.ownSlot(slotId);
    if (slot === undefined || slot.sessionHi !== sessionHi || slot.sessionLo !== sessionLo) return;
    if (slot.pendingAction !== LIFECYCLE_CANCEL) slot.pendingAction = action;
    this.list(slot);
  }

  /**
   * The answer to a singleton of a slot. A failure wins over every other answer; an admission counts only for the singleton that
   * fences the slot. A slot that is gone hears nothing: its failed singleton is counted.
   */
  postSingleton(singleton: Singleton, ok: boolean): void {
    if (this.closed) return;
    const { slot } = singleton;
    if (this.table.at(slot.index) !== slot) {
      if (!ok) this.metrics.droppedStaleSingleton += 1;
      return;
    }
    if (!ok) slot.pendingAnswer = ANSWER_FAILED;
    else if (slot.fence !== singleton) return;
    else if (slot.pendingAnswer !== ANSWER_FAILED) slot.pendingAnswer = ANSWER_ADMITTED;
    this.list(slot);
  }

  /** Calls `apply` once for every slot with control posted, in the order of first posting. */
  applyOwn(apply: (slot: EgressSlot) => void): void {
    for (let i = 0; i < this.listedCount; i++) {
      const slot = this.listed[i]!;
      this.listed[i] = undefined;
      slot.controlListed = false;
      apply(slot);
    }
    this.listedCount = 0;
  }

  // -- about the peer's slots

  replyCredit(slotId: number, delta: number): void {
    if (this.closed || delta === 0) return;
    this.boundReplies();
    this.replies.addCredit(slotId, delta);
    this.listener.controlPosted();
  }

  replyClose(slotId: number, sessionHi: number, sessionLo: number, reason: number): void {
    if (this.closed) return;
    this.boundReplies();
    this.replies.addClose(slotId, reason);
    this.listener.controlPosted();
    this.listener.closePosted({ slotId, sessionHi, sessionLo, action: LIFECYCLE_CANCEL });
  }

  replyLifecycle(slotId: number, sessionHi: number, sessionLo: number, action: number): void {
    if (this.closed) return;
    const key = `${slotId}:${sessionHi}:${sessionLo}`;
    const known = this.lifecycles.get(key);
    if (known === undefined || known.action !== LIFECYCLE_CANCEL) {
      if (known === undefined && this.lifecycles.size >= REPLY_LIMIT) this.dropOldestLifecycle();
      this.lifecycles.set(key, { slotId, sessionHi, sessionLo, action });
    }
    this.listener.controlPosted();
  }

  reject(slotId: number, reason: number): void {
    if (this.closed || this.rejects.has(slotId)) return;
    if (this.rejects.size >= REJECT_LANE_LIMIT) {
      this.metrics.controlRefused += 1;
      return;
    }
    this.rejects.set(slotId, reason);
    this.listener.controlPosted();
  }

  forgetReplies(): void {
    this.replies.clear();
    this.rejects.clear();
  }

  /** Writes replies in order until none is left or `writer` can take no more. True when none is left. */
  drainReplies(writer: ReplyWriter): boolean {
    if (this.lifecycles.size > 0 && !this.drainLifecycles(writer)) return false;
    while (this.replies.size > 0) {
      if (!this.drainReply(writer)) return false;
    }
    return this.rejects.size === 0 || this.drainRejects(writer);
  }

  private drainLifecycles(writer: ReplyWriter): boolean {
    for (const [key, reply] of this.lifecycles) {
      if (!writer.makeReplyRoom(LIFECYCLE_RECORD_LEN)) return false;
      this.lifecycles.delete(key);
      if (!writer.writeLifecycle(reply)) return false;
    }
    return true;
  }

  private drainRejects(writer: ReplyWriter): boolean {
    for (const [slotId, reason] of this.rejects) {
      if (!writer.makeReplyRoom(CLOSE_SLOT_RECORD_LEN)) return false;
      this.rejects.delete(slotId);
      if (!writer.writeClose(slotId, reason)) return false;
    }
    return true;
  }

  /**
   * Posts the replies of a batch that never left again, so that the next one carries them. Credit only `withCredit`:
   * when the transport refused the batch, nobody knows whether the peer has it, and a second grant could overspend its
   * window.
   */
  repost(manifest: BatchManifest, withCredit: boolean): void {
    if (withCredit) {
      for (let i = 0; i < manifest.creditReplies; i++) {
        this.replies.addCredit(manifest.creditSlots[i]!, manifest.creditDeltas[i]!);
      }
      this.metrics.creditReposted += manifest.creditTotal();
    } else {
      this.metrics.creditLost += manifest.creditTotal();
    }
    for (const { slotId, reason } of manifest.closeReplies) this.replies.addClose(slotId, reason);
    for (const { slotId, sessionHi, sessionLo, action } of manifest.lifecycleReplies) {
      const key = `${slotId}:${sessionHi}:${sessionLo}`;
      if (!this.lifecycles.has(key)) this.lifecycles.set(key, { slotId, sessionHi, sessionLo, action });
    }
  }

  /** Refuses everything from here on and forgets what waits. */
  close(): void {
    this.closed = true;
    this.applyOwn(() => {});
    this.forgetReplies();
    this.lifecycles.clear();
  }

  private boundReplies(): void {
    if (this.replies.size < REPLY_LIMIT) return;
    this.replies.shift();
    this.metrics.controlRefused += 1;
  }

  private dropOldestLifecycle(): void {
    for (const oldest of this.lifecycles.keys()) {
      this.lifecycles.delete(oldest);
      break;
    }
    this.metrics.controlRefused += 1;
  }

  private drainReply(writer: ReplyWriter): boolean {
    const replies = this.replies;
    const id = replies.nextId;
    const credit = replies.nextCredit;
    const close = replies.nextClose;
    if (!writer.makeReplyRoom(close === NO_CLOSE ? CREDIT_UPDATE_RECORD_LEN : CLOSE_SLOT_RECORD_LEN)) return false;
    replies.shift();
    return close === NO_CLOSE ? writer.writeCredit(id, credit) : writer.writeClose(id, close);
  }

  /**
   * The live slot of an id. An index never allocated is refused and counted; a retired generation is an ordinary race.
   */
  private ownSlot(slotId: number): EgressSlot | undefined {
    if (this.closed) return undefined;
    const index = slotIndex(slotId);
    if (index >= this.table.allocated) {
      this.metrics.controlRefused += 1;
      return undefined;
    }
    const slot = this.table.at(index);
    return slot !== undefined && slot.id === slotId ? slot : undefined;
  }

  private list(slot: EgressSlot): void {
    if (!slot.controlListed) {
      slot.controlListed = true;
      this.listed[this.listedCount] = slot;
      this.listedCount += 1;
    }
    this.listener.controlPosted();
  }
}
