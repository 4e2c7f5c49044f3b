// One end of a conduit under stress: it writes records whose row, length and bytes follow from a seed, checks those of the other
// end against the same seed, kicks, and keeps to the windows that pulls and drains open. Both ends are this class; only the
// direction of pulls and drains differs. It never sleeps: its owner does.

import type { ClientConduit, ClientRows, WorkerConduit } from '../../lib/plane/conduit.js';
import type { Doorbell } from '../../lib/plane/doorbell.js';
import type { ParcelReceiver, ParcelSender } from '../../lib/plane/parcels.js';
import type { RingConsumer, RingProducer } from '../../lib/plane/ring.js';

export const ROWS = 40;
const WINDOW = 5;
const WRITES_PER_TURN = 400;
const MAX_LENGTH = 1 << 20;
const MARK_BYTES = 4;

const KIND_DATA = 1;
const KIND_PARCEL = 2;
const KIND_END = 3;

/** The bytes of every record are a slice of these. */
const PATTERN = Buffer.alloc(MAX_LENGTH + 256);
for (let i = 0, x = 1; i < PATTERN.length; i++) {
  x = (Math.imul(x, 1103515245) + 12345) | 0;
  PATTERN[i] = x >>> 16;
}

/** The records of one direction, the same for whoever knows the seed. */
class Records {
  row = 0;
  length = 0;
  /** Where in the pattern the bytes stand. */
  from = 0;
  /** A kick follows. */
  kick = false;

  constructor(
    private seed: number,
    private readonly maxInline: number,
  ) {
    this.next();
  }

  next(): void {
    this.row = this.random(ROWS);
    this.from = this.random(256);
    this.kick = this.random(12) === 0;
    const sort = this.random(400);
    if (sort === 0) this.length = this.random(MAX_LENGTH + 1);
    else if (sort < 6) this.length = this.random(16_384);
    else if (sort < 40) this.length = this.maxInline - 2 + this.random(5);
    else if (sort < 80) this.length = 0;
    else this.length = this.random(Math.min(this.maxInline, 200) + 1);
  }

  private random(below: number): number {
    let x = this.seed;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.seed = x;
    return (x >>> 0) % below;
  }
}

/** Who may send on a row, and what a received record gives back. */
export interface Flow {
  maySend(row: number, sent: number): boolean;
  /** Called when a row may not send; the caller looks again after it. */
  wish(row: number): void;
  received(row: number): void;
  /** Takes what the other end gave back. True when there was something. */
  take(): boolean;
  hasWork(): boolean;
  /** Everything sent was given back. */
  settled(sent: Int32Array): boolean;
}

/** The client is told of pulls, and counts drains. */
export function clientFlow(conduit: ClientConduit, rows: ClientRows): Flow {
  const taken = new Int32Array(rows.senders.count);
  return {
    maySend: (row, sent) => sent - rows.senders.pulled(row) < WINDOW,
    wish: (row) => rows.senders.setWaiting(row),
    received: (row) => {
      rows.receivers.addDrained(row, 1);
      if (conduit.drains.add(row)) conduit.workerBell.ring();
    },
    take: () => conduit.attention.take(taken) > 0,
    hasWork: () => !conduit.attention.isEmpty(),
    settled: (sent) => sent.every((count, row) => rows.senders.pulled(row) === count),
  };
}

/** The worker publishes pulls, and is told of drains. */
export function workerFlow(conduit: WorkerConduit, rows: ClientRows): Flow {
  const taken = new Int32Array(rows.receivers.count);
  const credit = new Int32Array(ROWS).fill(WINDOW);
  const pulled = new Int32Array(ROWS);
  const drained = new Int32Array(ROWS);
  return {
    maySend: (row, sent) => sent - drained[row]! < credit[row]!,
    wish: () => {},
    received: (row) => {
      pulled[row]! += 1;
      if (rows.senders.setPulled(row, pulled[row]!) && conduit.attention.add(row)) conduit.clientBell.ring();
    },
    take: () => {
      const count = conduit.drains.take(taken);
      for (let i = 0; i < count; i++) drained[taken[i]!]! += rows.receivers.takeDrained(taken[i]!);
      return count > 0;
    },
    hasWork: () => !conduit.drains.isEmpty(),
    settled: (sent) => sent.every((count, row) => drained[row] === count),
  };
}

export interface PeerOptions {
  bytes: Uint8Array;
  out: RingProducer;
  in: RingConsumer;
  otherBell: Doorbell;
  parcelsOut: ParcelSender;
  parcelsIn: ParcelReceiver;
  flow: Flow;
  seedOut: number;
  seedIn: number;
  /** `performance.now()` of this thread after which no new record is written. */
  until: number;
}

export class StressPeer {
  readonly counts = { sent: 0, received: 0, kicks: 0, flushes: 0, parcels: 0, bytes: 0 };
  private readonly records: Records;
  private readonly expected: Records;
  private readonly sent = new Int32Array(ROWS);
  private readonly mark = Buffer.alloc(MARK_BYTES);
  private endSent = false;
  private endSeen = false;
  private flushDue = false;

  constructor(private readonly o: PeerOptions) {
    this.records = new Records(o.seedOut, o.out.maxInline);
    this.expected = new Records(o.seedIn, o.out.maxInline);
  }

  get done(): boolean {
    return this.endSent && this.endSeen && this.o.flow.settled(this.sent);
  }

  /** Reads everything, writes up to a bound. True when it did something. */
  turn(): boolean {
    const read = this.readAll();
    const told = this.o.flow.take();
    const wrote = this.writeSome();
    if (this.o.out.publish()) this.o.otherBell.ring();
    return read || told || wrote;
  }

  /** The look between parking and waiting. */
  hasWork(): boolean {
    return this.o.in.hasWork() || this.o.flow.hasWork() || this.o.out.roomCame();
  }

  private writeSome(): boolean {
    let wrote = 0;
    while (wrote < WRITES_PER_TURN && !this.endSent && this.writeOne()) wrote++;
    return wrote > 0;
  }

  private writeOne(): boolean {
    const { flow, out, otherBell } = this.o;
    if (performance.now() >= this.o.until) {
      if (!this.put(KIND_END, 0)) return false;
      this.endSent = true;
      return true;
    }
    const { row, length } = this.records;
    if (!flow.maySend(row, this.sent[row]!)) {
      flow.wish(row);
      if (!flow.maySend(row, this.sent[row]!)) return false;
    }
    if (!this.put(length > out.maxInline ? KIND_PARCEL : KIND_DATA, length)) return false;
    this.sent[row]! += 1;
    this.counts.sent++;
    if (this.records.kick) {
      this.counts.kicks++;
      out.kick();
      otherBell.ring();
    }
    this.records.next();
    return true;
  }

  /** Writes one record, or says that it wants room. */
  private put(kind: number, length: number): boolean {
    const { out, bytes, otherBell, parcelsOut } = this.o;
    const inline = kind === KIND_PARCEL ? MARK_BYTES : length;
    let at = out.reserve(kind, this.counts.sent, inline);
    if (at < 0) {
      if (out.publish()) otherBell.ring();
      out.wantRoom();
      at = out.reserve(kind, this.counts.sent, inline);
      if (at < 0) return false;
    }
    if (kind === KIND_PARCEL) {
      parcelsOut.send(PATTERN, this.records.from, length);
      this.mark.writeUInt32LE(length);
      bytes.set(this.mark, at);
    } else bytes.set(PATTERN.subarray(this.records.from, this.records.from + length), at);
    out.commit();
    return true;
  }

  private readAll(): boolean {
    const ring = this.o.in;
    const any = ring.refresh();
    while (ring.next()) {
      if (ring.kicked) this.flush();
      this.readOne();
    }
    const kicked = ring.kickAtTail();
    if (kicked) this.flush();
    if (ring.release()) this.o.otherBell.ring();
    return any || kicked;
  }

  private flush(): void {
    if (!this.flushDue) throw new Error(`a flush after record ${this.counts.received}, where no kick was`);
    this.flushDue = false;
    this.counts.flushes++;
  }

  private readOne(): void {
    const ring = this.o.in;
    const { row, length, from, kick } = this.expected;
    if (ring.tag !== this.counts.received) throw new Error(`record ${ring.tag} in place of ${this.counts.received}`);
    if (this.flushDue) throw new Error(`no flush before record ${ring.tag}`);
    if (ring.kind === KIND_END) {
      this.endSeen = true;
      return;
    }
    let body = Buffer.from(this.o.bytes.buffer, ring.offset, ring.length);
    if (ring.kind === KIND_PARCEL) {
      const parcel = this.o.parcelsIn.take(body.readUInt32LE());
      body = Buffer.from(parcel.buffer, 0, parcel.length);
      this.counts.parcels++;
    }
    if (!body.equals(PATTERN.subarray(from, from + length)))
      throw new Error(`record ${ring.tag} of ${body.length} bytes is not the ${length} bytes that were sent`);
    this.counts.bytes += length;
    this.counts.received++;
    this.flushDue = kick;
    this.o.flow.received(row);
    this.expected.next();
  }
}
