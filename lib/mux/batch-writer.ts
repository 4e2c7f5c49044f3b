// The open batch of one (peer, lane), the one on its way, and the numbering of both (epoch, batch_seq). Owns buffers,
// clamps and the parked state; it must never decide when a batch is due or what becomes of a slot.

import { VeloError } from '../errors.js';
import {
  BATCH_HEADER_LEN,
  BatchEncoder,
  CLOSE_SLOT_BODY_LEN,
  CREDIT_UPDATE_BODY_LEN,
  LIFECYCLE_BODY_LEN,
  OPEN_SLOT_BODY_LEN,
  RECORD_HEADER_LEN,
} from '../wire/batch.js';
import { TWO_POW_32 } from '../wire/bytes.js';
import { BatchManifest, type LifecycleReply } from './batch-manifest.js';
import { ADMITTED, type BatcherPort, PENDING, REFUSED, type SubmitOutcome } from './batcher-types.js';
import type { EgressSlot } from './egress-slot.js';
import type { FlushGate } from './flush-gate.js';
import { BATCH_HEADROOM, effectiveBatchCap } from './mux-config.js';
import type { MuxMetrics } from './mux-metrics.js';
import type { Singleton } from './singletons.js';

/** Whole size of the fixed records. */
export const OPEN_SLOT_RECORD_LEN = RECORD_HEADER_LEN + OPEN_SLOT_BODY_LEN;
export const CLOSE_SLOT_RECORD_LEN = RECORD_HEADER_LEN + CLOSE_SLOT_BODY_LEN;
export const CREDIT_UPDATE_RECORD_LEN = RECORD_HEADER_LEN + CREDIT_UPDATE_BODY_LEN;
export const LIFECYCLE_RECORD_LEN = RECORD_HEADER_LEN + LIFECYCLE_BODY_LEN;

/** The record goes into the open batch. */
export const ROOM = 0;
/**
 * The cap is too small for it: a batch of its own is open, to be handed over with `submitAlone` right after it was written. Data goes
 * alone in another way, see `beginAlone`.
 */
export const ALONE = 1;
/** Nothing can be staged now: parked on admission, or the flush that made room was refused. */
export const BLOCKED = 2;

export type RoomOutcome = typeof ROOM | typeof ALONE | typeof BLOCKED;

/** No batch is open: no record fits. */
const NO_ROOM = -1;
const NO_BUFFER = new Uint8Array(0);

/** What the writer reports. */
export interface WriterEvents {
  /** The transport took the batch. */
  batchAdmitted(manifest: BatchManifest): void;
  /** It did not: the epoch is over. */
  batchRefused(manifest: BatchManifest): void;
}

export class BatchWriter {
  /** Bytes the open batch may still take under the cap; −1 when none is open. */
  room = NO_ROOM;
  /** A batch waits for admission: nothing may be staged. */
  parked = false;
  /** Number of the epoch all batches carry. */
  epoch = 0;

  private readonly port: BatcherPort;
  private readonly gate: FlushGate;
  private readonly metrics: MuxMetrics;
  private readonly events: WriterEvents;
  private readonly maxBatchBytes: number;
  private readonly lane: number;

  private readonly encoder = new BatchEncoder();
  private buffer: Uint8Array = NO_BUFFER;
  private openCap = 0;
  private epochHi = 0;
  private epochLo = 0;
  private batchSeq = 0;
  private manifest = new BatchManifest();
  private inFlight: BatchManifest | undefined;
  private spare: BatchManifest | undefined = new BatchManifest();

  constructor(
    port: BatcherPort,
    gate: FlushGate,
    metrics: MuxMetrics,
    events: WriterEvents,
    maxBatchBytes: number,
    lane: number,
  ) {
    this.port = port;
    this.gate = gate;
    this.metrics = metrics;
    this.events = events;
    this.maxBatchBytes = maxBatchBytes;
    this.lane = lane;
  }

  get isOpen(): boolean {
    return this.room !== NO_ROOM;
  }

  /** No batch of this epoch was handed over yet. */
  get isUnshown(): boolean {
    return this.batchSeq === 0 && !this.parked;
  }

  /** A fresh epoch; batches are numbered from 0 again. No batch may be open. */
  startEpoch(): void {
    const epoch = this.port.nextEpoch();
    if (!Number.isSafeInteger(epoch) || epoch <= this.epoch) {
      throw new VeloError('ERR_INTERNAL', `epoch ${epoch} does not follow ${this.epoch}`);
    }
    this.epoch = epoch;
    this.epochHi = Math.floor(epoch / TWO_POW_32);
    this.epochLo = epoch >>> 0;
    this.batchSeq = 0;
  }

  /** Size of the open batch. */
  get bytes(): number {
    return this.isOpen ? this.openCap - this.room : 0;
  }

  /** True when no packed batch holds `need` bytes of records. */
  goesAlone(need: number): boolean {
    return BATCH_HEADER_LEN + need > effectiveBatchCap(this.maxBatchBytes, this.port.eagerBudget());
  }

  /**
   * Opens a batch of `whole` bytes for one singleton. No batch may be open, nor the batcher parked. False: there is no memory for it.
   */
  beginAlone(whole: number): boolean {
    const buffer = this.port.acquireLarge(BATCH_HEADROOM + whole);
    if (buffer !== undefined) this.begin(buffer, whole);
    return buffer !== undefined;
  }

  /** Makes room for `need` bytes of records; writes the open batch first when they do not fit behind it. */
  makeRoom(need: number): RoomOutcome {
    if (need <= this.room) return ROOM;
    if (this.parked) return BLOCKED;
    if (this.isOpen && !this.flush()) return BLOCKED;
    const cap = effectiveBatchCap(this.maxBatchBytes, this.port.eagerBudget());
    const whole = BATCH_HEADER_LEN + need;
    if (whole <= cap) {
      this.begin(this.port.acquireBuffer(), cap);
      return ROOM;
    }
    // Only records of some 30 bytes come here: any pooled buffer holds one.
    this.begin(this.port.acquireBuffer(), whole);
    return ALONE;
  }

  /** The caller has made sure of the room. */
  data(slotId: number, frameSeq: number, src: Uint8Array, off: number, len: number): void {
    this.encoder.data(slotId, frameSeq, src, off, len);
    this.room -= RECORD_HEADER_LEN + len;
  }

  openSlot(slot: EgressSlot): void {
    this.encoder.openSlot(slot.id, slot.nextSeq, slot.anchorHi, slot.anchorLo, slot.sessionHi, slot.sessionLo);
    this.room -= OPEN_SLOT_RECORD_LEN;
    this.manifest.openSlots += 1;
    this.manifest.opened = slot;
  }

  /** The close of a slot of ours. */
  closeSlot(slot: EgressSlot, reason: number): void {
    this.writeClose(slot.id, slot.nextSeq, reason);
  }

  /** The slot's terminal is in the open batch: the slot retires with it. */
  retireWithBatch(slot: EgressSlot): void {
    this.manifest.terminals.push(slot);
  }

  replyCredit(slotId: number, delta: number): void {
    this.encoder.creditUpdate(slotId, delta);
    this.room -= CREDIT_UPDATE_RECORD_LEN;
    this.manifest.addCredit(slotId, delta);
  }

  /** The close of a slot of the peer. */
  replyClose(slotId: number, reason: number): void {
    this.writeClose(slotId, 0, reason);
    this.manifest.closeReplies.push({ slotId, reason });
  }

  replyLifecycle(reply: LifecycleReply): void {
    this.encoder.lifecycle(reply.slotId, reply.sessionHi, reply.sessionLo, reply.action);
    this.room -= LIFECYCLE_RECORD_LEN;
    this.manifest.lifecycles += 1;
    this.manifest.lifecycleReplies.push(reply);
  }

  /** Hands over the open batch. True when it was admitted at once; false: parked, or refused and the epoch is over. */
  flush(): boolean {
    this.metrics.stagedRecords -= this.gate.staged;
    this.gate.written();
    return this.submit() === ADMITTED;
  }

  /** Hands over a batch that `makeRoom` opened for one record. True unless it was refused. */
  submitAlone(): boolean {
    return this.submit() !== REFUSED;
  }

  /** Hands over the open batch, which holds one singleton. The batcher does not wait for it. */
  submitSingleton(singleton: Singleton): SubmitOutcome {
    const length = this.encoder.finish();
    const { manifest } = this;
    singleton.records = this.encoder.count;
    singleton.openSlots = manifest.openSlots;
    singleton.closes = manifest.closes;
    manifest.reset();
    this.batchSeq = (this.batchSeq + 1) >>> 0;
    const buffer = this.endBatch();
    if (singleton.kind !== 'open') this.gate.wroteData();
    const outcome = this.port.submitSingleton(buffer, BATCH_HEADROOM, BATCH_HEADROOM + length, singleton);
    if (outcome === REFUSED) this.port.releaseBuffer(buffer);
    return outcome;
  }

  /** A singleton counts as sent when the transport took it. */
  countSingleton({ records, openSlots, closes, kind }: Singleton): void {
    const { metrics } = this;
    metrics.sent.observe(records);
    metrics.recordsSentData += records - openSlots - closes;
    metrics.recordsSentOpenSlot += openSlots;
    metrics.recordsSentCloseSlot += closes;
    if (kind !== 'open') metrics.singletons += 1;
  }

  /** Hands over a batch that holds one OpenSlot. True unless it was refused. */
  submitOpen(): boolean {
    return this.submit() !== REFUSED;
  }

  /** The transport's answer to the batch on its way. */
  admission(ok: boolean): void {
    const manifest = this.inFlight;
    if (manifest === undefined) throw new VeloError('ERR_INTERNAL', 'an admission without a pending batch');
    this.inFlight = undefined;
    this.parked = false;
    this.settle(manifest, ok);
  }

  /** The epoch ends: the batch on its way no longer speaks for any slot. Returns it, if there is one. */
  abandonInFlight(): BatchManifest | undefined {
    if (this.inFlight !== undefined) this.inFlight.stale = true;
    return this.inFlight;
  }

  /** Throws the open batch away. `visit` sees what it carried; the manifest is reused after it. */
  discard(visit: (manifest: BatchManifest) => void): void {
    if (!this.isOpen) return;
    this.metrics.stagedRecords -= this.gate.staged;
    this.gate.cleared();
    const manifest = this.manifest;
    this.port.releaseBuffer(this.endBatch());
    visit(manifest);
    manifest.reset();
  }

  private writeClose(slotId: number, frameSeq: number, reason: number): void {
    this.encoder.closeSlot(slotId, frameSeq, reason);
    this.room -= CLOSE_SLOT_RECORD_LEN;
    this.manifest.closes += 1;
  }

  private begin(buffer: Uint8Array, cap: number): void {
    this.buffer = buffer;
    this.encoder.begin(buffer, BATCH_HEADROOM, this.lane, this.epochHi, this.epochLo, this.batchSeq);
    this.room = cap - BATCH_HEADER_LEN;
    this.openCap = cap;
  }

  private endBatch(): Uint8Array {
    const buffer = this.buffer;
    this.buffer = NO_BUFFER;
    this.room = NO_ROOM;
    return buffer;
  }

  private submit(): SubmitOutcome {
    const length = this.encoder.finish();
    const manifest = this.manifest;
    manifest.records = this.encoder.count;
    this.batchSeq = (this.batchSeq + 1) >>> 0;
    const buffer = this.endBatch();
    this.manifest = this.spare ?? new BatchManifest();
    this.spare = undefined;
    const outcome = this.port.submit(buffer, BATCH_HEADROOM, BATCH_HEADROOM + length);
    if (outcome === PENDING) {
      this.inFlight = manifest;
      this.parked = true;
      return outcome;
    }
    if (outcome === REFUSED) this.port.releaseBuffer(buffer);
    this.settle(manifest, outcome === ADMITTED);
    return outcome;
  }

  private settle(manifest: BatchManifest, ok: boolean): void {
    if (ok) {
      this.count(manifest);
      this.events.batchAdmitted(manifest);
    } else {
      this.events.batchRefused(manifest);
    }
    manifest.reset();
    this.spare = manifest;
  }

  /** A batch counts as sent when the transport took it, not when it was staged. */
  private count(manifest: BatchManifest): void {
    const metrics = this.metrics;
    metrics.sent.observe(manifest.records);
    metrics.recordsSentData += manifest.dataRecords;
    metrics.recordsSentOpenSlot += manifest.openSlots;
    metrics.recordsSentCloseSlot += manifest.closes;
    metrics.recordsSentCreditUpdate += manifest.creditReplies;
    metrics.recordsSentLifecycle += manifest.lifecycles;
  }
}
