// The ingress of one (peer, lane): batches in, frames to receivers, credit and refusals out. Owns the peer's slot
// table, its epoch and its batch numbering (streaming specification §7.10–7.14); it must never wait, and nothing a peer
// sends makes it throw.

import {
  BATCH_HEADER_LEN,
  BatchDecoder,
  batchSeqGap,
  batchSeqNewer,
  CLOSE_PROTOCOL_ERROR,
  CLOSE_TERMINAL_SENT,
  CLOSE_UNKNOWN_SLOT,
  FLAGS_LANE_MASK,
  LIFECYCLE_CANCEL,
  LIFECYCLE_STOP,
  RECORD_CLOSE_SLOT,
  RECORD_CREDIT_UPDATE,
  RECORD_DATA,
  RECORD_LIFECYCLE,
  RECORD_OPEN_SLOT,
  RECORD_SLOT_HEARTBEAT,
} from '../wire/batch.js';
import { readU16BE, u64From, u64High, u64Low } from '../wire/bytes.js';
import { HEARTBEAT_BYTES } from '../wire/frame.js';
import type { MuxSlotName } from '../wire/mux-slot.js';
import { slotIndex } from '../wire/slot-id.js';
import { ByteMeter } from './byte-meter.js';
import { CreditReturn } from './credit-return.js';
import { IngressDelivery, refusalOf } from './ingress-delivery.js';
import { SlotDirectory } from './ingress-directory.js';
import type { IngressSlot } from './ingress-slot.js';
import type { ByteReservation, IngressPort } from './ingress-types.js';
import { MAX_TABLE_SLOTS, type MuxConfig } from './mux-config.js';
import type { MuxMetrics } from './mux-metrics.js';
import { StagedRefusals } from './staged-refusals.js';

export interface IngressTableOptions {
  /** Names the peer in errors. */
  readonly peerLabel: string;
  readonly lane: number;
  readonly config: MuxConfig;
  readonly port: IngressPort;
  readonly metrics: MuxMetrics;
  /** Bytes all holds of this peer may keep; the peer's lanes share it. */
  readonly peerBudget: ByteReservation;
  /** Counts what is held; while it is over, credit goes only to slots that keep nothing. Without one, nothing is ever over. */
  readonly meter?: ByteMeter;
}

const FLAGS_OFFSET = 1;
const COUNT_OFFSET = 2;
const NO_BYTES = new Uint8Array(0);
/** What a refusal says is cut here: some of it is the peer's own text. */
const MAX_REFUSAL_TEXT = 512;

/** What became of a refused record: its stream ended, or will at its OpenSlot, or is none of this (peer, lane). */
export type RefusalOutcome = 'ended' | 'waits' | 'ignored';

/**
 * Whether a batch that came to the handler of `lane` names that lane; else it is dropped whole and its records are counted. Asked
 * before a table is looked up, so that a stray batch makes none.
 */
export function isForLane(buffer: Uint8Array, start: number, end: number, lane: number, metrics: MuxMetrics): boolean {
  if (end - start < BATCH_HEADER_LEN) {
    metrics.malformedBatches += 1;
    return false;
  }
  if ((buffer[start + FLAGS_OFFSET]! & FLAGS_LANE_MASK) === lane) return true;
  metrics.droppedLaneMismatch += readU16BE(buffer, start + COUNT_OFFSET);
  return false;
}

export class IngressTable {
  readonly lane: number;
  /** Names the peer to people. */
  readonly peer: string;
  /** The lane has this table among those with new drains: its own mark, or it would have to look for it there. */
  drainsNoted = false;
  private readonly port: IngressPort;
  private readonly metrics: MuxMetrics;
  private readonly directory: SlotDirectory;
  private readonly credit: CreditReturn;
  private readonly delivery: IngressDelivery;
  private readonly refusals: StagedRefusals;
  private readonly decoder = new BatchDecoder();
  private buffer: Uint8Array = NO_BYTES;

  private epochKnown = false;
  private epochHi = 0;
  private epochLo = 0;
  private seqKnown = false;
  /** Highest batch_seq seen in this epoch. */
  private seqMark = 0;

  constructor(options: IngressTableOptions) {
    this.lane = options.lane;
    this.peer = options.peerLabel;
    this.port = options.port;
    this.metrics = options.metrics;
    this.directory = new SlotDirectory();
    this.refusals = new StagedRefusals(options.metrics);
    const { port, metrics, peerBudget, meter = new ByteMeter() } = options;
    this.credit = new CreditReturn(port, meter);
    this.delivery = new IngressDelivery(port, metrics, peerBudget, this.directory, this.credit, meter);
  }

  /** Slots of the peer that are not over, those moved aside included. */
  get liveSlots(): number {
    return this.directory.live.length;
  }

  /** Slots that credit visits looked at since the start. */
  get visitedSlots(): number {
    return this.credit.visitedSlots;
  }

  /**
   * Applies one batch of this lane ({@link isForLane}). Records before a malformed one are applied, the rest is dropped;
   * neither peer nor slots fail for it.
   */
  handleBatch(buffer: Uint8Array, start: number, end: number): void {
    const decoder = this.decoder;
    const metrics = this.metrics;
    decoder.reset(buffer, start, end);
    if (!decoder.readHeader()) {
      metrics.malformedBatches += 1;
      return;
    }
    if (!this.admitEpoch(decoder.epochHi, decoder.epochLo)) {
      metrics.droppedStaleEpoch += decoder.recordCount;
      return;
    }
    this.meterSequence(decoder.batchSeq);
    if (!decoder.checkVersion()) {
      metrics.malformedBatches += 1;
      return;
    }
    metrics.received.observe(decoder.recordCount);
    this.buffer = buffer;
    while (decoder.next()) this.apply(decoder);
    this.buffer = NO_BYTES;
    if (decoder.error !== undefined) metrics.malformedBatches += 1;
    this.credit.afterBatch();
  }

  /** The consumer of the slot took records: the lane found its bit in the shared set. Counts at the next visit. */
  noteDrained(slot: IngressSlot): void {
    this.credit.noteDrained(slot);
  }

  /** The doorbell's visit: slots with noted drains. How often it may come is the caller's business (`DrainVisits`). */
  visitDrained(): void {
    this.metrics.drainVisits += 1;
    this.credit.visitDrained();
  }

  /** The periodic walk over all slots. */
  sweep(): void {
    if (this.directory.live.length > 0) this.credit.sweep(this.directory.live);
    if (this.refusals.size > 0) this.pruneRefusals();
  }

  private pruneRefusals(): void {
    this.refusals.prune((session) => this.isBound(session));
  }

  private isBound(session: bigint): boolean {
    return this.port.isBound(u64High(session), u64Low(session));
  }

  /**
   * A record that the sender staged will not be fetched; `text` says why. The stream it names ends at once if it is open here under
   * this very epoch, id and session, aside or not: records in front of the refused one are not waited for. If its bind still waits, it
   * ends at its OpenSlot. Whatever else a peer may name is none of its own streams, and nothing happens.
   */
  refuseStaged(name: MuxSlotName, text: string): RefusalOutcome {
    const { epoch, slot: id, session } = name;
    const current = u64From(this.epochHi, this.epochLo);
    if (this.epochKnown && epoch < current) return 'ignored';
    const what = text.slice(0, MAX_REFUSAL_TEXT);
    const slot = this.epochKnown && epoch === current ? this.directory.find(id) : undefined;
    if (slot !== undefined && u64From(slot.sessionHi, slot.sessionLo) === session) {
      this.delivery.fail(slot, what);
      return 'ended';
    }
    if (!this.isBound(session)) return 'ignored';
    if (this.refusals.keep(name, what)) return 'waits';
    this.pruneRefusals();
    return this.refusals.keep(name, what) ? 'waits' : 'ignored';
  }

  /**
   * The consumer is done with the slot: it ends here, and the sender is told to cancel that session. Nothing for a slot
   * that is over.
   */
  closeSlot(slot: IngressSlot): void {
    if (!slot.live) return;
    this.delivery.end(slot, false);
    this.port.control(true)?.replyLifecycle(slot.id, slot.sessionHi, slot.sessionLo, LIFECYCLE_CANCEL);
  }

  /**
   * The sender is silent: its consumer gets Dropped behind everything delivered, and the sender is told to cancel, if it can hear.
   * Nothing for a slot that is over.
   */
  giveUp(slot: IngressSlot): void {
    if (!slot.live) return;
    this.delivery.end(slot, true);
    this.port.control(true)?.replyLifecycle(slot.id, slot.sessionHi, slot.sessionLo, LIFECYCLE_CANCEL);
  }

  /**
   * The consumer asks the sender to stop; the slot stays open for what still comes. Nothing for a slot that is over.
   */
  requestStop(slot: IngressSlot): void {
    if (!slot.live) return;
    this.port.control(true)?.replyLifecycle(slot.id, slot.sessionHi, slot.sessionLo, LIFECYCLE_STOP);
  }

  /** Ends every slot; those without a terminal get Dropped. Sends nothing. */
  retireAll(): void {
    for (const slot of this.directory.live.slice()) this.delivery.end(slot, true);
    this.directory.forgetIndices();
  }

  /**
   * The node shuts down: every slot ends as `retireAll` ends it, and the senders of those that had no terminal are told to cancel.
   * Returns how many those were.
   */
  shutdown(): number {
    let dropped = 0;
    for (const slot of this.directory.live.slice()) {
      const finished = slot.terminalDelivered;
      this.delivery.end(slot, true);
      if (finished) continue;
      dropped += 1;
      this.port.control(true)?.replyLifecycle(slot.id, slot.sessionHi, slot.sessionLo, LIFECYCLE_CANCEL);
    }
    return dropped;
  }

  /** False for a batch of an older epoch. A newer one retires all slots of the old. */
  private admitEpoch(hi: number, lo: number): boolean {
    if (this.epochKnown && hi === this.epochHi && lo === this.epochLo) return true;
    if (this.epochKnown) {
      if (hi < this.epochHi || (hi === this.epochHi && lo < this.epochLo)) return false;
      this.port.epochEnded?.(this.liveSlots);
      this.retireAll();
      this.port.control(false)?.forgetReplies();
    }
    this.epochKnown = true;
    this.epochHi = hi;
    this.epochLo = lo;
    this.seqKnown = false;
    return true;
  }

  /** Counts missing batches; a batch behind the mark is late, not a gap. */
  private meterSequence(seq: number): void {
    if (!this.seqKnown) {
      this.seqKnown = true;
      this.seqMark = seq;
    } else if (batchSeqNewer(seq, this.seqMark)) {
      this.metrics.batchSeqGaps += batchSeqGap((this.seqMark + 1) >>> 0, seq);
      this.seqMark = seq;
    }
  }

  private apply(decoder: BatchDecoder): void {
    switch (decoder.type) {
      case RECORD_DATA:
        this.data(decoder.slot, decoder.frameSeq, this.buffer, decoder.bodyOffset, decoder.bodyLength);
        return;
      case RECORD_SLOT_HEARTBEAT:
        this.data(decoder.slot, decoder.frameSeq, HEARTBEAT_BYTES, 0, HEARTBEAT_BYTES.length);
        return;
      case RECORD_OPEN_SLOT:
        this.open(decoder);
        return;
      case RECORD_CLOSE_SLOT:
        this.close(decoder);
        return;
      case RECORD_CREDIT_UPDATE: {
        const control = this.port.control(false);
        if (control === undefined) this.metrics.controlRefused += 1;
        else control.postCredit(decoder.slot, decoder.delta);
        return;
      }
      case RECORD_LIFECYCLE: {
        const control = this.port.control(false);
        if (control === undefined) this.metrics.controlRefused += 1;
        else control.postLifecycle(decoder.slot, decoder.sessionHi, decoder.sessionLo, decoder.action);
        return;
      }
      default:
        return;
    }
  }

  private data(id: number, frameSeq: number, src: Uint8Array, off: number, len: number): void {
    const slot = this.directory.find(id);
    if (slot === undefined) this.countMissing(id);
    else if (frameSeq === slot.next) this.delivery.inOrder(slot, src, off, len);
    else if (frameSeq < slot.next) this.metrics.droppedDuplicate += 1;
    else this.delivery.ahead(slot, frameSeq, src, off, len);
  }

  private close(decoder: BatchDecoder): void {
    const id = decoder.slot;
    const reason = decoder.closeReason;
    if (reason === CLOSE_UNKNOWN_SLOT || reason === CLOSE_PROTOCOL_ERROR) {
      const control = this.port.control(false);
      if (control === undefined) this.metrics.controlRefused += 1;
      else control.postClose(id, reason);
      return;
    }
    const slot = this.directory.find(id);
    if (slot === undefined) this.countMissing(id);
    else this.delivery.close(slot, decoder.frameSeq, reason !== CLOSE_TERMINAL_SENT);
  }

  private open(decoder: BatchDecoder): void {
    const id = decoder.slot;
    const index = slotIndex(id);
    if (index >= MAX_TABLE_SLOTS) {
      this.reject(id, CLOSE_PROTOCOL_ERROR);
      return;
    }
    if (!this.clearIndex(id, index)) {
      this.metrics.droppedSlotCollision += 1;
      this.reject(id, CLOSE_PROTOCOL_ERROR);
      return;
    }
    const { anchorHi, anchorLo, sessionHi, sessionLo } = decoder;
    const receiver = this.port.claim(anchorHi, anchorLo, sessionHi, sessionLo);
    if (receiver === undefined) {
      this.metrics.droppedUnknownSlot += 1;
      this.reject(id, CLOSE_UNKNOWN_SLOT);
      return;
    }
    const incumbent = this.directory.at(index);
    if (incumbent !== undefined) this.delivery.end(incumbent, true);
    const slot = this.delivery.start(id, index, receiver, decoder.frameSeq);
    if (this.refusals.size === 0) return;
    const epoch = u64From(this.epochHi, this.epochLo);
    const refused = this.refusals.claim(epoch, id, u64From(sessionHi, sessionLo));
    if (refused !== undefined && slot.live) this.delivery.fail(slot, refused);
  }

  /**
   * Makes the index free for `id`, as far as that is allowed. False: a collision. The occupant of the very same id
   * stays for now.
   */
  private clearIndex(id: number, index: number): boolean {
    const directory = this.directory;
    const waiting = directory.findAside(id);
    if (waiting !== undefined) {
      // 256 streams later the same id: records of the two could not be told apart, so neither may have them.
      this.delivery.end(waiting, true);
      return false;
    }
    const occupant = directory.at(index);
    if (occupant === undefined || occupant.id === id) return true;
    if (occupant.closeSeq < 0) return false;
    directory.moveAside(occupant);
    return true;
  }

  private reject(id: number, reason: number): void {
    this.port.refused?.(id, refusalOf(reason));
    this.port.control(true)?.reject(id, reason);
  }

  private countMissing(id: number): void {
    if (this.directory.at(slotIndex(id)) === undefined) {
      this.metrics.droppedClosedSlot += 1;
    } else {
      this.metrics.droppedGeneration += 1;
      this.metrics.generationMismatch += 1;
    }
  }
}
