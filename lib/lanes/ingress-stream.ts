// A claimed receiver row as its lane sees it: the slot's buffer of C+1 records. Records go straight into the client's ring;
// what finds no room there stands here, in order, bounded by the credit that was granted. A full ring never stops the lane.

import { performance } from 'node:perf_hooks';
import type { ByteMeter } from '../mux/byte-meter.js';
import { ByteQueue } from '../mux/byte-queue.js';
import type { IngressSlot } from '../mux/ingress-slot.js';
import type { IngressTable } from '../mux/ingress-table.js';
import { DELIVERED, type DeliverOutcome, FULL, GONE, type Receiver } from '../mux/ingress-types.js';
import type { SlotWatch } from '../mux/watchdog.js';
import { type ClaimedBind, RECEIVER_CANCEL, RECEIVER_STOP } from '../plane/rows.js';
import type { ClientLink } from './client-link.js';
import { EV_DATA, EV_RETIRED, receiverTag } from './commands.js';

const NO_BYTES = new Uint8Array(0);
/** Body of a row's last record whose client throws away what it has not read. */
const WITHDRAWN = Uint8Array.of(1);

export class IngressStream implements Receiver {
  readonly limit: number;
  readonly byteBudget: number;
  readonly row: number;
  readonly tag: number;
  /** How often its sender beats at the least. */
  readonly heartbeatMs: number;
  slot: IngressSlot | undefined;
  readonly openedAt = performance.now();
  /** Its sender was asked to stop. */
  stopAsked = false;
  private watch: SlotWatch | undefined;
  private readonly waiting: ByteQueue;
  private closing = false;
  private withdrawn = false;
  private gone = false;
  /** The row's last record is in the ring. */
  private retired = false;
  /** Stands in the link's backlog. */
  listed = false;

  constructor(
    private readonly link: ClientLink,
    readonly table: IngressTable,
    bind: ClaimedBind,
    readonly sessionHi: number,
    readonly sessionLo: number,
    /** Number of the peer and mux lane of the slot, as `routeNumber` makes it. */
    private readonly route: number,
    /** Counts the windows of the slot from now on. */
    private readonly watchSlot: (stream: IngressStream, slot: IngressSlot) => SlotWatch,
    meter?: ByteMeter,
  ) {
    this.waiting = new ByteQueue(meter);
    this.row = bind.row;
    this.tag = receiverTag(bind.row, bind.generation);
    this.limit = bind.credit;
    this.byteBudget = bind.byteBudget;
    this.heartbeatMs = bind.heartbeatMs;
  }

  get earlyCancel(): boolean {
    return (this.link.rows.receivers.requests(this.row) & RECEIVER_CANCEL) !== 0;
  }

  /** Whoever reads it passes the stop on. */
  get earlyStop(): boolean {
    this.stopAsked = (this.link.rows.receivers.requests(this.row) & RECEIVER_STOP) !== 0;
    return this.stopAsked;
  }

  /** Records that found no room in the ring of their client. */
  get standing(): number {
    return this.waiting.length;
  }

  /** Windows in a row without a sign of the sender. */
  get silentWindows(): number {
    return this.watch?.misses ?? 0;
  }

  opened(slot: IngressSlot): void {
    this.slot = slot;
    this.link.rows.receivers.setSlot(this.row, slot.id, this.route);
    this.watch = this.watchSlot(this, slot);
    this.link.observer?.ingressOpened(this.table, slot);
  }

  deliver(source: Uint8Array, offset: number, length: number, _terminal: boolean): DeliverOutcome {
    if (this.gone) return GONE;
    if (this.waiting.length === 0 && this.link.writeRecord(EV_DATA, this.tag, source, offset, length)) return DELIVERED;
    if (this.waiting.length > this.limit) return FULL;
    this.waiting.push(source, offset, length);
    this.link.backlog(this);
    return DELIVERED;
  }

  takeDrained(): number {
    return this.link.rows.receivers.takeDrained(this.row);
  }

  /** Its sender was silent for too long; the end follows, and what was not read goes with the slot, here and at the client. */
  silent(): void {
    this.withdrawn = true;
    this.waiting.clear();
    if (this.slot !== undefined) this.link.observer?.silent(this.table, this.slot);
  }

  slotClosed(): void {
    this.watch?.stop();
    if (this.slot !== undefined) this.link.observer?.ingressClosed(this.table, this.slot, this.openedAt);
    this.closing = true;
    if (!this.flush()) this.link.backlog(this);
  }

  /** The consumer left: what still waits for the ring is not wanted, only the row's last record is. */
  discard(): void {
    this.gone = true;
    this.waiting.clear();
  }

  /** Moves what waits into the ring. True when nothing is left here. */
  flush(): boolean {
    const waiting = this.waiting;
    while (waiting.length > 0) {
      if (!this.link.writeRecord(EV_DATA, this.tag, waiting.buffer, waiting.frontOffset, waiting.frontLength))
        return false;
      waiting.pop();
    }
    if (!this.closing || this.retired) return true;
    const body = this.withdrawn ? WITHDRAWN : NO_BYTES;
    if (!this.link.writeRecord(EV_RETIRED, this.tag, body, 0, body.length)) return false;
    this.retired = true;
    this.link.dropReceiver(this);
    return true;
  }
}
