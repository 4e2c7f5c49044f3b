// Batches of one record: too large for a packed batch, or an OpenSlot that nobody waits for. Owns which of them are on their way, who
// waits for room among them, and what the answer to each means for its slot; it must never write a record.
//
// Nobody waits for a singleton but its own slot, which is fenced until the answer. What one batcher may have on its way is bounded, and
// so are the bytes that are staged on the node: a slot whose record finds no room there keeps it, and tries again when room comes.

import type { BatchWriter } from './batch-writer.js';
import type { ControlInbox } from './batcher-control.js';
import { ADMITTED, type BatcherPort, PENDING, type SubmitOutcome } from './batcher-types.js';
import { type EgressSlot, SLOT_OPEN } from './egress-slot.js';
import { DEFAULT_PEER_BYTE_BUDGET } from './mux-config.js';
import type { MuxMetrics } from './mux-metrics.js';
import type { ReadyList } from './ready-list.js';
import type { SlotLife } from './slot-life.js';

/** Singletons of one batcher that may wait for admission. */
export const MAX_PENDING_SINGLETONS = 256;
/** Bytes of those that go inline; a lone one may be larger. */
export const MAX_PENDING_SINGLETON_BYTES = 4_194_304;

/** Bytes that all slots of a batcher may have handed over behind staged records. */
export const MAX_BEHIND_BYTES = 1_048_576;

/**
 * The same for one of `lanes` lanes to a peer. A receiver bounds what it holds for a peer over all of them, 8 MiB unless it was told
 * otherwise, and says so nowhere: no lane takes more than its share.
 */
export function behindShare(lanes: number): number {
  return Math.min(MAX_BEHIND_BYTES, Math.floor(DEFAULT_PEER_BYTE_BUDGET / lanes));
}

/** `data` fences its slot, `terminal` has closed it, `open` fences it while `asyncOpenAck` is on. */
export type SingletonKind = 'data' | 'terminal' | 'open';

/** One of them, from its record to its answer, and for a staged one until its bytes are let go of. */
export class Singleton {
  /** What it carries, once it is written. */
  records = 0;
  openSlots = 0;
  closes = 0;
  /** Epoch of the batch. */
  epoch = 0;

  constructor(
    private readonly desk: Singletons,
    readonly slot: EgressSlot,
    readonly kind: SingletonKind,
    /** Size of the batch. */
    readonly bytes: number,
    /** Larger than what travels inline: it goes as a handle, and the receiver pulls it. */
    readonly staged: boolean,
  ) {}

  /** The transport's answer to a singleton that it left pending. */
  admission(ok: boolean): void {
    this.desk.settled(this, ok);
  }

  /** The bytes of a staged one were let go of: its reader has them, or nobody ever will. */
  fetched(): void {
    this.desk.fetched(this);
  }
}

/** The batcher behind them. */
export interface SingletonListener {
  /** An answer or room came: a drain should see it. */
  singletonsMoved(): void;
  /** The transport refused a singleton whose slot lives: the epoch is over. */
  singletonRefused(): void;
}

export class Singletons {
  /** When slots that wait should try again, if nobody told of room before; Infinity: none waits. */
  retryAt = Number.POSITIVE_INFINITY;

  private readonly pending = new Set<Singleton>();
  private pendingBytes = 0;
  private readonly waiting = new Set<EgressSlot>();
  /** Staged ones whose bytes are still kept, and what slots handed over behind theirs. */
  private stagedOut = 0;
  private behindBytes = 0;

  constructor(
    private readonly writer: BatchWriter,
    private readonly port: BatcherPort,
    private readonly metrics: MuxMetrics,
    private readonly life: SlotLife,
    private readonly inbox: ControlInbox,
    private readonly ready: ReadyList,
    private readonly listener: SingletonListener,
    private readonly retryMs: number,
    private readonly maxBehindBytes: number,
  ) {}

  /** Some wait for their admission. */
  get onTheirWay(): boolean {
    return this.pending.size > 0;
  }

  /** Some lie staged, and their receiver may not have them yet. */
  get unfetched(): boolean {
    return this.stagedOut > 0;
  }

  /** Records may stand behind a singleton, or behind the want of room for one. */
  get holdBack(): boolean {
    return this.pending.size > 0 || this.waiting.size > 0 || this.stagedOut > 0;
  }

  /**
   * Takes the room that a batch of `bytes` needs, before anything is written. Undefined: there is none, the slot waits. What was
   * prepared is submitted or given up.
   */
  prepare(slot: EgressSlot, kind: SingletonKind, bytes: number): Singleton | undefined {
    const staged = kind !== 'open' && bytes > this.port.eagerBudget();
    const inline = staged ? 0 : bytes;
    const full =
      this.pending.size >= MAX_PENDING_SINGLETONS ||
      (this.pendingBytes > 0 && this.pendingBytes + inline > MAX_PENDING_SINGLETON_BYTES);
    if (full || (staged && !this.port.reserveStaging(bytes, slot))) {
      this.wait(slot);
      return undefined;
    }
    return new Singleton(this, slot, kind, bytes, staged);
  }

  giveUp(singleton: Singleton): void {
    if (singleton.staged) this.port.releaseStaging(singleton.bytes);
  }

  /**
   * What is handed over behind a staged record waits at the receiver until that one was pulled, in a hold that has a bound: more than
   * it has room for must not leave before. A slot that may not is served again when its own was let go of.
   */
  mayOvertake(slot: EgressSlot, bytes: number): boolean {
    if (slot.stagedOut === 0) return true;
    return slot.behindBytes + bytes <= slot.byteBudget && this.behindBytes + bytes <= this.maxBehindBytes;
  }

  overtakes(slot: EgressSlot, bytes: number): void {
    slot.behindBytes += bytes;
    this.behindBytes += bytes;
  }

  /** The slot tries again when room may have come. */
  wait(slot: EgressSlot): void {
    if (this.waiting.size === 0) this.retryAt = this.port.now() + this.retryMs;
    this.waiting.add(slot);
  }

  /** Hands over the batch that was written for it. False: refused. A fence goes up unless the transport took it inline, at once. */
  submit(singleton: Singleton): boolean {
    const { slot, kind, staged } = singleton;
    singleton.epoch = this.writer.epoch;
    const outcome: SubmitOutcome = this.writer.submitSingleton(singleton);
    if (outcome !== ADMITTED && outcome !== PENDING) {
      this.refused(singleton);
      return false;
    }
    if (staged) {
      this.stagedOut += 1;
      slot.stagedOut += 1;
    }
    if (kind !== 'terminal' && (staged || outcome === PENDING)) {
      slot.fence = singleton;
      slot.direct = false;
    }
    if (outcome === ADMITTED) this.settled(singleton, true);
    else {
      this.pending.add(singleton);
      if (!staged) this.pendingBytes += singleton.bytes;
    }
    return true;
  }

  private refused(singleton: Singleton): void {
    this.giveUp(singleton);
    if (singleton.kind !== 'terminal') {
      this.listener.singletonRefused();
      return;
    }
    if (singleton.staged) this.life.table.free(singleton.slot.index);
    this.endTerminal(singleton, false);
  }

  settled(singleton: Singleton, ok: boolean): void {
    const late = this.pending.delete(singleton);
    if (late && !singleton.staged) this.pendingBytes -= singleton.bytes;
    if (ok) this.writer.countSingleton(singleton);
    if (singleton.kind === 'terminal') this.endTerminal(singleton, ok);
    else this.inbox.postSingleton(singleton, ok);
    if (late) this.listener.singletonsMoved();
  }

  /** Its slot was closed when it was written: all that hangs on the answer is what became of the stream's output. */
  private endTerminal({ slot }: Singleton, ok: boolean): void {
    if (!ok) this.metrics.droppedStaleSingleton += 1;
    this.life.retire(slot, ok ? 'sent' : 'discarded');
  }

  fetched({ slot, kind }: Singleton): void {
    this.stagedOut -= 1;
    slot.stagedOut -= 1;
    if (kind === 'terminal') this.life.table.free(slot.index);
    if (slot.stagedOut === 0) {
      this.behindBytes -= slot.behindBytes;
      slot.behindBytes = 0;
    }
    if (slot.state !== SLOT_OPEN) return;
    this.ready.push(slot);
    this.listener.singletonsMoved();
  }

  /** Room may have come. */
  retry(): void {
    this.retryAt = Number.POSITIVE_INFINITY;
    if (this.waiting.size === 0) return;
    for (const slot of this.waiting) if (slot.state === SLOT_OPEN) this.ready.push(slot);
    this.waiting.clear();
  }

  /** Every slot is closed. */
  forgetWaiting(): void {
    this.waiting.clear();
    this.retryAt = Number.POSITIVE_INFINITY;
  }

  /** The batcher ends for good: no answer matters any more. */
  shutdown(): void {
    this.forgetWaiting();
    for (const { kind, slot } of this.pending) if (kind === 'terminal') this.life.retire(slot, 'discarded');
    this.pending.clear();
    this.pendingBytes = 0;
  }
}
