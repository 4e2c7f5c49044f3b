// A second ingress, written from the specification (streaming §7.10 to §7.14) in the plainest way there is: maps, arrays and no
// shortcut. Fuzz tests hold the real table against it, batch by batch: what readers got, what was counted, what is owed.

import type { ByteBudget } from '../../lib/mux/byte-budget.js';
import {
  BatchDecoder,
  CLOSE_PROTOCOL_ERROR,
  CLOSE_TERMINAL_SENT,
  CLOSE_UNKNOWN_SLOT,
  LIFECYCLE_CANCEL,
  LIFECYCLE_STOP,
} from '../../lib/wire/batch.js';
import { DROPPED_BYTES, HEARTBEAT_BYTES, isTerminalSentinel, transportErrorFrame } from '../../lib/wire/frame.js';
import { slotIndex } from '../../lib/wire/slot-id.js';
import type { FakeReceiver } from '../support/mux-fakes.js';

const MAX_SEQ = 0xffff_ffff;
const TABLE_SLOTS = 65_536;
const DATA = 0;
const OPEN = 1;
const CLOSE = 2;
const CREDIT = 3;
const HEARTBEAT = 4;

/** What the table counts; names as in MuxMetrics. */
export interface IngressCounts {
  liveSlots: number;
  heldRecords: number;
  readerStalls: number;
  generationMismatch: number;
  droppedStaleEpoch: number;
  droppedGeneration: number;
  droppedUnknownSlot: number;
  droppedClosedSlot: number;
  droppedSlotCollision: number;
  droppedDuplicate: number;
  droppedLaneMismatch: number;
  malformedBatches: number;
  holdOverflow: number;
  batchSeqGaps: number;
}

export const NO_COUNTS: Readonly<IngressCounts> = {
  liveSlots: 0,
  heldRecords: 0,
  readerStalls: 0,
  generationMismatch: 0,
  droppedStaleEpoch: 0,
  droppedGeneration: 0,
  droppedUnknownSlot: 0,
  droppedClosedSlot: 0,
  droppedSlotCollision: 0,
  droppedDuplicate: 0,
  droppedLaneMismatch: 0,
  malformedBatches: 0,
  holdOverflow: 0,
  batchSeqGaps: 0,
};

/** The model's half of a bind: what its reader must have got. */
export class ModelReceiver {
  readonly frames: Uint8Array[] = [];
  buffered = 0;
  drained = 0;
  closed = false;

  constructor(readonly real: FakeReceiver) {}

  put(frame: Uint8Array): 'delivered' | 'full' | 'gone' {
    if (this.real.gone) return 'gone';
    if (this.buffered > this.real.limit) return 'full';
    this.frames.push(frame);
    this.buffered += 1;
    return 'delivered';
  }

  /** The consumer took `n`. */
  took(n: number): void {
    this.buffered -= n;
    this.drained += n;
  }
}

class ModelSlot {
  outstanding = 0;
  ungranted = 0;
  /** Sizes of what is in the buffer, oldest first. */
  readonly sizes: number[] = [];
  terminalSeen = false;
  over = false;
  readonly hold = new Map<number, Uint8Array>();
  heldBytes = 0;
  close: { seq: number; injects: boolean } | undefined;
  live = true;

  constructor(
    readonly id: number,
    readonly receiver: ModelReceiver,
    public next: number,
  ) {}

  get limit(): number {
    return this.receiver.real.limit;
  }

  get budget(): number {
    return this.receiver.real.byteBudget;
  }

  get bytes(): number {
    return this.sizes.reduce((sum, size) => sum + size, 0);
  }
}

export class IngressModel {
  readonly counts: IngressCounts = { ...NO_COUNTS };
  /** Everything owed to the peer or passed on to the batcher, but credit: `what slot details`. */
  readonly calls: string[] = [];
  /** Credit owed by slot id. */
  readonly credit = new Map<number, number>();
  readonly binds = new Map<string, ModelReceiver>();
  private readonly table = new Map<number, ModelSlot>();
  private readonly aside = new Map<number, ModelSlot>();
  private replied = false;
  private epoch: bigint | undefined;
  private mark: number | undefined;
  private readonly touched = new Set<ModelSlot>();
  private readonly noted = new Set<ModelSlot>();
  /** Refusals of staged records whose stream is not open yet, by session. */
  private readonly refusals = new Map<bigint, { epoch: bigint; id: number; text: string }>();
  /** The node keeps too many bytes. */
  pressed = false;

  constructor(
    private readonly lane: number,
    private readonly peerBudget: ByteBudget,
    /** Whether our side has a batcher that hears control; asked at the moment of each record. */
    private readonly hasBatcher: () => boolean,
  ) {}

  /** Something must go out: from here on there is a batcher. */
  private reply(call: string): void {
    this.replied = true;
    this.calls.push(call);
  }

  private get isHeard(): boolean {
    return this.replied || this.hasBatcher();
  }

  batch(bytes: Uint8Array): void {
    if (bytes.length < 16) {
      this.counts.malformedBatches += 1;
      return;
    }
    if ((bytes[1]! & 0x0f) !== this.lane) {
      this.counts.droppedLaneMismatch += bytes[2]! * 256 + bytes[3]!;
      return;
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (!this.enterEpoch(view.getBigUint64(4))) {
      this.counts.droppedStaleEpoch += view.getUint16(2);
      return;
    }
    this.meter(view.getUint32(12));
    if (bytes[0] !== 2) {
      this.counts.malformedBatches += 1;
      return;
    }
    const decoder = new BatchDecoder();
    decoder.reset(bytes, 0, bytes.length);
    while (decoder.next()) this.record(decoder, bytes);
    if (decoder.error !== undefined) this.counts.malformedBatches += 1;
    this.visit([...this.touched, ...this.noted]);
    this.touched.clear();
    this.noted.clear();
  }

  /** A staged record will not come (§7.16). */
  refuseStaged(epoch: bigint, id: number, session: bigint, text: string): void {
    if (this.epoch !== undefined && epoch < this.epoch) return;
    const slot = epoch === this.epoch ? this.find(id) : undefined;
    if (slot !== undefined && sessionOf(slot) === session) {
      this.fail(slot, text);
      return;
    }
    const bound = [...this.binds.keys()].some((key) => key.endsWith(`:${session}`));
    if (bound && epoch >= (this.refusals.get(session)?.epoch ?? 0n)) this.refusals.set(session, { epoch, id, text });
  }

  private fail(slot: ModelSlot, text: string): void {
    if (!slot.over) {
      slot.over = true;
      slot.receiver.put(transportErrorFrame(text));
    }
    this.end(slot, false);
    this.lifecycle(slot, LIFECYCLE_CANCEL);
  }

  // -- what the consumer's side does

  noteDrained(id: number): void {
    const slot = this.find(id);
    if (slot !== undefined) this.noted.add(slot);
  }

  visitDrained(): void {
    this.visit([...this.noted]);
    this.noted.clear();
  }

  sweep(): void {
    this.noted.clear();
    this.visit(this.slots());
  }

  closeSlot(id: number): void {
    this.cancel(id, false);
  }

  giveUp(id: number): void {
    this.cancel(id, true);
  }

  requestStop(id: number): void {
    const slot = this.find(id);
    if (slot !== undefined) this.lifecycle(slot, LIFECYCLE_STOP);
  }

  retireAll(): void {
    for (const slot of this.slots()) this.end(slot, true);
  }

  // -- a batch

  private enterEpoch(epoch: bigint): boolean {
    if (epoch === this.epoch) return true;
    if (this.epoch !== undefined) {
      if (epoch < this.epoch) return false;
      this.retireAll();
      if (this.isHeard) this.calls.push('forget');
    }
    this.epoch = epoch;
    this.mark = undefined;
    return true;
  }

  private meter(seq: number): void {
    if (this.mark === undefined) {
      this.mark = seq;
      return;
    }
    const ahead = (seq - this.mark) | 0;
    if (ahead <= 0) return;
    this.counts.batchSeqGaps += ahead - 1;
    this.mark = seq;
  }

  private record(record: BatchDecoder, bytes: Uint8Array): void {
    const { type, slot: id, frameSeq } = record;
    if (type === DATA) this.data(id, frameSeq, bytes.slice(record.bodyOffset, record.bodyOffset + record.bodyLength));
    else if (type === HEARTBEAT) this.data(id, frameSeq, HEARTBEAT_BYTES);
    else if (type === OPEN) this.open(record);
    else if (type === CLOSE) this.closeRecord(id, frameSeq, record.closeReason);
    else if (type === CREDIT) this.control(`credit ${id} ${record.delta}`);
    else this.control(`lifecycle ${id} ${record.sessionHi}:${record.sessionLo} ${record.action}`);
  }

  private control(call: string): void {
    this.calls.push(this.isHeard ? `post ${call}` : 'refused');
  }

  private open(record: BatchDecoder): void {
    const { slot: id, anchorHi, anchorLo, sessionHi, sessionLo } = record;
    const index = slotIndex(id);
    if (index >= TABLE_SLOTS) {
      this.reply(`reject ${id} ${CLOSE_PROTOCOL_ERROR}`);
      return;
    }
    if (!this.makeWay(id, index)) {
      this.counts.droppedSlotCollision += 1;
      this.reply(`reject ${id} ${CLOSE_PROTOCOL_ERROR}`);
      return;
    }
    const key = bindKey(anchorHi, anchorLo, sessionHi, sessionLo);
    const receiver = this.binds.get(key);
    if (receiver === undefined) {
      this.counts.droppedUnknownSlot += 1;
      this.reply(`reject ${id} ${CLOSE_UNKNOWN_SLOT}`);
      return;
    }
    this.binds.delete(key);
    const twin = this.table.get(index);
    if (twin !== undefined) this.end(twin, true);
    const slot = new ModelSlot(id, receiver, following(record.frameSeq));
    this.table.set(index, slot);
    this.counts.liveSlots += 1;
    if (receiver.real.earlyCancel) {
      this.end(slot, false);
      this.lifecycle(slot, LIFECYCLE_CANCEL);
    } else if (receiver.real.earlyStop) this.lifecycle(slot, LIFECYCLE_STOP);
    const refusal = this.refusals.get(sessionOf(slot));
    this.refusals.delete(sessionOf(slot));
    if (slot.live && refusal?.epoch === this.epoch && refusal?.id === id) this.fail(slot, refusal.text);
  }

  private makeWay(id: number, index: number): boolean {
    const waiting = this.aside.get(id);
    if (waiting !== undefined) {
      this.end(waiting, true);
      return false;
    }
    const occupant = this.table.get(index);
    if (occupant === undefined || occupant.id === id) return true;
    if (occupant.close === undefined) return false;
    this.table.delete(index);
    this.aside.set(occupant.id, occupant);
    return true;
  }

  private data(id: number, seq: number, frame: Uint8Array): void {
    const slot = this.find(id);
    if (slot === undefined) this.missing(id);
    else if (seq < slot.next || slot.hold.has(seq)) this.counts.droppedDuplicate += 1;
    else if (seq > slot.next) this.keep(slot, seq, frame);
    else if (slot.over) {
      this.counts.droppedClosedSlot += 1;
      slot.next = following(slot.next);
      this.fillGap(slot);
    } else if (!this.admit(slot, frame)) this.refuse(slot);
    else if (this.deliver(slot, frame)) this.fillGap(slot);
  }

  /** False: the sender broke its window. */
  private admit(slot: ModelSlot, frame: Uint8Array): boolean {
    if (isTerminalSentinel(frame, 0, frame.length)) {
      if (slot.terminalSeen) return false;
      slot.terminalSeen = true;
      return true;
    }
    if (slot.outstanding >= slot.limit) return false;
    slot.outstanding += 1;
    return true;
  }

  private keep(slot: ModelSlot, seq: number, frame: Uint8Array): void {
    if (!this.admit(slot, frame) || slot.heldBytes + frame.length > slot.budget) {
      this.refuse(slot);
      return;
    }
    if (!this.peerBudget.tryReserve(frame.length)) {
      this.refuse(slot);
      return;
    }
    slot.hold.set(seq, frame);
    slot.heldBytes += frame.length;
    this.counts.heldRecords += 1;
    this.touched.add(slot);
  }

  private deliver(slot: ModelSlot, frame: Uint8Array): boolean {
    const outcome = slot.receiver.put(frame);
    if (outcome === 'delivered') {
      slot.sizes.push(frame.length);
      slot.over = isTerminalSentinel(frame, 0, frame.length);
      slot.next = following(slot.next);
      this.touched.add(slot);
      return true;
    }
    if (outcome === 'full') {
      this.counts.readerStalls += 1;
      this.refuse(slot);
    } else this.fault(slot, CLOSE_UNKNOWN_SLOT);
    return false;
  }

  private fillGap(slot: ModelSlot): void {
    for (let frame = slot.hold.get(slot.next); frame !== undefined; frame = slot.hold.get(slot.next)) {
      slot.hold.delete(slot.next);
      slot.heldBytes -= frame.length;
      this.peerBudget.release(frame.length);
      this.counts.heldRecords -= 1;
      if (slot.over) {
        this.counts.droppedClosedSlot += 1;
        slot.next = following(slot.next);
      } else if (!this.deliver(slot, frame)) return;
    }
    if (slot.close !== undefined && slot.next >= slot.close.seq) this.end(slot, slot.close.injects);
  }

  private closeRecord(id: number, seq: number, reason: number): void {
    if (reason === CLOSE_UNKNOWN_SLOT || reason === CLOSE_PROTOCOL_ERROR) {
      this.control(`close ${id} ${reason}`);
      return;
    }
    const slot = this.find(id);
    const injects = reason !== CLOSE_TERMINAL_SENT;
    if (slot === undefined) this.missing(id);
    else if (seq <= slot.next) this.end(slot, injects);
    else slot.close ??= { seq, injects };
  }

  // -- ends

  private refuse(slot: ModelSlot): void {
    this.counts.holdOverflow += 1;
    this.fault(slot, CLOSE_PROTOCOL_ERROR);
  }

  private fault(slot: ModelSlot, reason: number): void {
    this.end(slot, true);
    this.reply(`close ${slot.id} ${reason}`);
  }

  private cancel(id: number, injects: boolean): void {
    const slot = this.find(id);
    if (slot === undefined) return;
    this.end(slot, injects);
    this.lifecycle(slot, LIFECYCLE_CANCEL);
  }

  private end(slot: ModelSlot, injects: boolean): void {
    slot.live = false;
    if (this.table.get(slotIndex(slot.id)) === slot) this.table.delete(slotIndex(slot.id));
    else this.aside.delete(slot.id);
    this.counts.liveSlots -= 1;
    this.counts.heldRecords -= slot.hold.size;
    this.peerBudget.release(slot.heldBytes);
    slot.hold.clear();
    if (injects && !slot.over) {
      slot.over = true;
      slot.receiver.put(DROPPED_BYTES);
    }
    slot.receiver.closed = true;
  }

  private lifecycle(slot: ModelSlot, action: number): void {
    const { sessionHi, sessionLo } = slot.receiver.real;
    this.reply(`lifecycle ${slot.id} ${sessionHi}:${sessionLo} ${action}`);
  }

  // -- credit

  private visit(slots: readonly ModelSlot[]): void {
    for (const slot of new Set(slots)) {
      if (!slot.live) continue;
      const taken = Math.min(slot.receiver.drained, slot.sizes.length);
      slot.receiver.drained = 0;
      slot.sizes.splice(0, taken);
      const data = Math.min(taken, slot.outstanding);
      slot.outstanding -= data;
      slot.ungranted += data;
      const mayGrant = this.pressed ? slot.bytes === 0 && slot.hold.size === 0 : slot.bytes < slot.budget;
      if (!mayGrant || slot.ungranted === 0) continue;
      this.replied = true;
      this.credit.set(slot.id, (this.credit.get(slot.id) ?? 0) + slot.ungranted);
      slot.ungranted = 0;
    }
  }

  private find(id: number): ModelSlot | undefined {
    const slot = this.table.get(slotIndex(id));
    return slot?.id === id ? slot : this.aside.get(id);
  }

  private missing(id: number): void {
    if (this.table.has(slotIndex(id))) {
      this.counts.droppedGeneration += 1;
      this.counts.generationMismatch += 1;
    } else this.counts.droppedClosedSlot += 1;
  }

  private slots(): ModelSlot[] {
    return [...this.table.values(), ...this.aside.values()];
  }
}

export function bindKey(anchorHi: number, anchorLo: number, sessionHi: number, sessionLo: number): string {
  return `${(BigInt(anchorHi) << 32n) | BigInt(anchorLo)}:${(BigInt(sessionHi) << 32n) | BigInt(sessionLo)}`;
}

function sessionOf({ receiver }: ModelSlot): bigint {
  return (BigInt(receiver.real.sessionHi) << 32n) | BigInt(receiver.real.sessionLo);
}

function following(seq: number): number {
  return Math.min(seq + 1, MAX_SEQ);
}
