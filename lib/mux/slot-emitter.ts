// Moves the records of our slots into batches: inlet → withheld queue → batch, by credit, reserve and fence (streaming
// specification §7.3–7.5). Owns the order of one slot's records; it must never decide when a batch is due or reuse an
// index itself.

import { VeloError } from '../errors.js';
import { BATCH_HEADER_LEN, CLOSE_PEER_GONE, CLOSE_TERMINAL_SENT, RECORD_HEADER_LEN } from '../wire/batch.js';
import { MAX_U32 } from '../wire/bytes.js';
import { HEARTBEAT_BYTES } from '../wire/frame.js';
import { ALONE, type BatchWriter, BLOCKED, CLOSE_SLOT_RECORD_LEN } from './batch-writer.js';
import type { ByteMeter } from './byte-meter.js';
import { type EgressSlot, INLET_ENDED, INLET_LIVE, INLET_TERMINAL, SLOT_CLOSED, SLOT_OPEN } from './egress-slot.js';
import type { FlushGate } from './flush-gate.js';
import { MAX_WITHHELD_RECORDS } from './mux-config.js';
import type { MuxMetrics } from './mux-metrics.js';
import type { ReadyList } from './ready-list.js';
import type { Singletons } from './singletons.js';
import type { SlotLife } from './slot-life.js';
import { isTerminal } from './terminal-test.js';

/** The record was handed over, or joined the open batch; also when that batch was refused and the slot is closed now. */
const SENT = 0;
/** It goes alone, and there is no room for that now: the slot waits, others do not. */
const WAITS = 1;
/** Nothing can be staged now. */
const STOPPED = 2;

type EmitOutcome = typeof SENT | typeof WAITS | typeof STOPPED;

export class SlotEmitter {
  private readonly writer: BatchWriter;
  private readonly gate: FlushGate;
  private readonly metrics: MuxMetrics;
  private readonly ready: ReadyList;
  private readonly life: SlotLife;
  private readonly singletons: Singletons;
  private readonly maxRecordBytes: number;
  private readonly label: string;
  private readonly meter: ByteMeter;

  constructor(
    writer: BatchWriter,
    gate: FlushGate,
    metrics: MuxMetrics,
    ready: ReadyList,
    life: SlotLife,
    singletons: Singletons,
    maxRecordBytes: number,
    label: string,
    meter: ByteMeter,
  ) {
    this.writer = writer;
    this.gate = gate;
    this.metrics = metrics;
    this.ready = ready;
    this.life = life;
    this.singletons = singletons;
    this.maxRecordBytes = maxRecordBytes;
    this.label = label;
    this.meter = meter;
  }

  /** A frame from the ring that cannot go straight into the open batch. */
  accept(slot: EgressSlot, src: Uint8Array, off: number, len: number): void {
    if (slot.state === SLOT_CLOSED || slot.inletState !== INLET_LIVE) {
      slot.pulledTotal = (slot.pulledTotal + 1) >>> 0;
      return;
    }
    if (isTerminal(src, off, len)) {
      slot.pulledTotal = (slot.pulledTotal + 1) >>> 0;
      this.endInlet(slot, src.slice(off, off + len));
      return;
    }
    if (len > this.maxRecordBytes) this.failOversized(slot, len);
    if (this.writer.parked || slot.inlet.length > 0 || slot.paused || slot.state !== SLOT_OPEN) {
      this.stand(slot, src, off, len);
      return;
    }
    const outcome = slot.withheld.length === 0 ? this.emitHead(slot, src, off, len) : WAITS;
    if (outcome === WAITS) this.withhold(slot, src, off, len);
    else if (outcome === STOPPED && slot.state === SLOT_OPEN) {
      this.stand(slot, src, off, len);
      return;
    }
    slot.pulledTotal = (slot.pulledTotal + 1) >>> 0;
    slot.updateDirect();
  }

  /** The inlet ends: with a terminal, or (undefined) with a PeerGone close. Both go after everything accepted. */
  endInlet(slot: EgressSlot, terminal: Uint8Array | undefined): void {
    slot.inletState = terminal === undefined ? INLET_ENDED : INLET_TERMINAL;
    slot.terminal = terminal;
    slot.direct = false;
    if (terminal !== undefined && terminal.length > this.maxRecordBytes) this.failOversized(slot, terminal.length);
    this.serveSoon(slot);
    // Its end waits for credit, which comes back only for what has left: nobody is left to flush that.
    if (slot.state === SLOT_OPEN && slot.credit === 0) this.gate.hurry();
  }

  /** False: it did not go. The caller has made sure that nothing stands in front of it. */
  emitHeartbeat(slot: EgressSlot): boolean {
    const { length } = HEARTBEAT_BYTES;
    if (!this.singletons.mayOvertake(slot, length)) return false;
    if (this.emitData(slot, HEARTBEAT_BYTES, 0, length) !== SENT) return false;
    this.gate.limitWait();
    return true;
  }

  /** Throws away what the slot still has; its close goes as soon as possible. */
  dropQueued(slot: EgressSlot): void {
    this.metrics.withheldRecords -= slot.withheld.length;
    slot.withheld.clear();
    slot.inlet.clear();
    slot.terminal = undefined;
    slot.inletState = INLET_ENDED;
    slot.paused = false;
    slot.direct = false;
    this.serveSoon(slot);
  }

  /** Serves the slot now, or once the batcher may stage again. */
  serveSoon(slot: EgressSlot): void {
    if (this.writer.parked || !this.serve(slot)) {
      if (slot.state !== SLOT_CLOSED) this.ready.push(slot);
    }
  }

  /** Serves every slot that is ready. False when staging stopped; a slot it stopped in goes to the end of the line. */
  serveReady(): boolean {
    for (let slot = this.ready.shift(); slot !== undefined; slot = this.ready.shift()) {
      if (slot.state !== SLOT_OPEN) continue;
      if (this.serve(slot)) continue;
      if (slot.state === SLOT_OPEN) this.ready.push(slot);
      return false;
    }
    return true;
  }

  /** Does all a slot can do now. False when staging stopped before that. */
  private serve(slot: EgressSlot): boolean {
    if (slot.state !== SLOT_OPEN) return true;
    const done = this.releaseWithheld(slot) && this.pullInlet(slot) && this.finish(slot);
    slot.updateDirect();
    return done;
  }

  private releaseWithheld(slot: EgressSlot): boolean {
    const queue = slot.withheld;
    while (queue.length > 0) {
      const outcome = this.emitHead(slot, queue.buffer, queue.frontOffset, queue.frontLength);
      if (outcome === WAITS) return true;
      if (outcome === STOPPED) return false;
      if (slot.state !== SLOT_OPEN) return true;
      queue.pop();
      this.metrics.withheldRecords -= 1;
    }
    slot.starving = false;
    return true;
  }

  private pullInlet(slot: EgressSlot): boolean {
    const inlet = slot.inlet;
    slot.paused = this.overBudget(slot);
    if (inlet.length === 0) return true;
    let pulled = 0;
    let going = true;
    while (inlet.length > 0 && !slot.paused) {
      going = !this.writer.parked;
      if (!going) break;
      const { buffer, frontOffset, frontLength } = inlet;
      const outcome = slot.withheld.length === 0 ? this.emitHead(slot, buffer, frontOffset, frontLength) : WAITS;
      if (outcome === WAITS) this.withhold(slot, buffer, frontOffset, frontLength);
      else {
        going = outcome === SENT;
        if (!going || slot.state !== SLOT_OPEN) break;
      }
      inlet.pop();
      pulled += 1;
    }
    if (pulled > 0) {
      slot.pulledTotal = (slot.pulledTotal + pulled) >>> 0;
      if (slot.notifyPull && slot.state === SLOT_OPEN) slot.owner.pulledChanged(slot);
    }
    return going;
  }

  /** The end of the slot, once nothing stands in front of it. */
  private finish(slot: EgressSlot): boolean {
    if (slot.state !== SLOT_OPEN || slot.inletState === INLET_LIVE) return true;
    if (slot.withheld.length > 0 || slot.inlet.length > 0 || slot.fence !== undefined) return true;
    return slot.inletState === INLET_TERMINAL ? this.emitTerminal(slot, slot.terminal!) : this.emitClose(slot);
  }

  /** The slot's next data record, if credit and fence allow it. */
  private emitHead(slot: EgressSlot, src: Uint8Array, off: number, len: number): EmitOutcome {
    if (slot.fence !== undefined || slot.credit === 0 || !this.singletons.mayOvertake(slot, len)) return WAITS;
    return this.emitData(slot, src, off, len);
  }

  private emitData(slot: EgressSlot, src: Uint8Array, off: number, len: number): EmitOutcome {
    const writer = this.writer;
    if (writer.parked) return STOPPED;
    const need = RECORD_HEADER_LEN + len;
    if (need > writer.room) {
      if (writer.goesAlone(need)) return this.emitAlone(slot, src, off, len, false);
      if (writer.makeRoom(need) === BLOCKED) return STOPPED;
    }
    slot.spendData();
    this.writeData(slot, src, off, len);
    if (this.gate.stamps) this.gate.stamp(slot);
    // A stream whose end stands behind these records has nobody left to flush them, under any policy: they go by themselves.
    if (slot.inletState === INLET_LIVE) this.gate.stage();
    else this.gate.stageUrgent(1);
    this.metrics.stagedRecords += 1;
    return SENT;
  }

  /** The terminal and its close, next to each other in one batch. False when staging stopped before it. */
  private emitTerminal(slot: EgressSlot, bytes: Uint8Array): boolean {
    const writer = this.writer;
    if (writer.parked) return false;
    if (!this.singletons.mayOvertake(slot, bytes.length)) return true;
    const need = RECORD_HEADER_LEN + bytes.length + CLOSE_SLOT_RECORD_LEN;
    if (need > writer.room) {
      if (writer.goesAlone(need)) return this.emitAlone(slot, bytes, 0, bytes.length, true) !== STOPPED;
      if (writer.makeRoom(need) === BLOCKED) return false;
    }
    slot.spendTerminal();
    this.writeData(slot, bytes, 0, bytes.length);
    if (this.gate.stamps) this.gate.stamp(slot);
    writer.closeSlot(slot, CLOSE_TERMINAL_SENT);
    writer.retireWithBatch(slot);
    this.life.close(slot, 'terminal');
    return this.stageUrgent(false, 2);
  }

  /** A record that no packed batch holds, a terminal with its close: alone, behind everything staged. */
  private emitAlone(slot: EgressSlot, src: Uint8Array, off: number, len: number, terminal: boolean): EmitOutcome {
    const { writer, singletons } = this;
    const whole = BATCH_HEADER_LEN + RECORD_HEADER_LEN + len + (terminal ? CLOSE_SLOT_RECORD_LEN : 0);
    const singleton = singletons.prepare(slot, terminal ? 'terminal' : 'data', whole);
    if (singleton === undefined) return WAITS;
    if (writer.isOpen && !writer.flush()) {
      singletons.giveUp(singleton);
      return STOPPED;
    }
    if (!writer.beginAlone(whole)) {
      singletons.giveUp(singleton);
      singletons.wait(slot);
      return WAITS;
    }
    if (terminal) slot.spendTerminal();
    else slot.spendData();
    this.writeData(slot, src, off, len);
    if (terminal) {
      writer.closeSlot(slot, CLOSE_TERMINAL_SENT);
      this.life.close(slot, 'terminal', singleton.staged);
    }
    // A terminal that is refused has closed its slot and ends nobody else.
    return singletons.submit(singleton) || terminal ? SENT : STOPPED;
  }

  private writeData(slot: EgressSlot, src: Uint8Array, off: number, len: number): void {
    if (slot.stagedOut > 0) this.singletons.overtakes(slot, len);
    this.writer.data(slot.id, slot.nextSeq, src, off, len);
    if (slot.nextSeq < MAX_U32) slot.nextSeq += 1;
  }

  private emitClose(slot: EgressSlot): boolean {
    const writer = this.writer;
    if (writer.parked) return false;
    const room = writer.makeRoom(CLOSE_SLOT_RECORD_LEN);
    if (room === BLOCKED) return false;
    writer.closeSlot(slot, CLOSE_PEER_GONE);
    this.life.close(slot, 'abandoned');
    return this.stageUrgent(room === ALONE, 1);
  }

  private stageUrgent(alone: boolean, records: number): boolean {
    if (alone) return this.writer.submitAlone();
    this.gate.stageUrgent(records);
    this.metrics.stagedRecords += records;
    return true;
  }

  private withhold(slot: EgressSlot, src: Uint8Array, off: number, len: number): void {
    slot.withheld.push(src, off, len);
    this.metrics.withheldRecords += 1;
    if (slot.credit === 0 && !slot.starving) {
      slot.starving = true;
      this.metrics.creditExhausted += 1;
    }
    slot.paused = this.overBudget(slot);
  }

  private stand(slot: EgressSlot, src: Uint8Array, off: number, len: number): void {
    if (slot.inlet.length >= slot.inletLimit) {
      const text = `${this.label} slot ${slot.id}: more than ${slot.inletLimit} records stand in its inlet`;
      this.dropQueued(slot);
      throw new VeloError('ERR_INTERNAL', text);
    }
    slot.inlet.push(src, off, len);
    slot.direct = false;
    if (!slot.paused) this.ready.push(slot);
  }

  private overBudget(slot: EgressSlot): boolean {
    const { withheld } = slot;
    if (withheld.byteLength >= slot.byteBudget || withheld.length >= MAX_WITHHELD_RECORDS) return true;
    // What its own credit lets go is looked at again then, so the slot resumes whatever the others keep.
    return this.meter.over && withheld.length > 0;
  }

  private failOversized(slot: EgressSlot, len: number): never {
    const text = `${this.label} slot ${slot.id}: a record of ${len} bytes is above maxRecordBytes = ${this.maxRecordBytes}`;
    this.dropQueued(slot);
    throw new VeloError('ERR_FRAME_TOO_LARGE', text);
  }
}
