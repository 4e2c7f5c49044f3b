// What a lane says of its live streams when it is asked: one row of numbers each, in pieces that are bounded by rows and by places
// looked at. The asker holds the place where the next piece begins, so a lane that was asked remembers nothing. It must never
// change a stream, and never be asked by anybody but the client.

import { INLET_LIVE, SLOT_CLOSED, SLOT_QUEUED } from '../mux/egress-slot.js';
import type { EgressStream } from './egress-stream.js';
import type { IngressStream } from './ingress-stream.js';

/** Rows of one piece. */
export const MAX_REPORT_ROWS = 128;
/** Places of one piece that are looked at, occupied or not. */
const MAX_PLACES = 4_096;

/** Where a piece begins. */
export interface ReportPlace {
  readonly link: number;
  readonly incoming: boolean;
  readonly row: number;
}

export const REPORT_START: ReportPlace = { link: 0, incoming: false, row: 0 };

/** The numbers of a row, in this order. */
export const REPORT_FIELDS = [
  'incoming',
  'peer',
  'lane',
  'slot',
  'sessionHi',
  'sessionLo',
  'anchorHi',
  'anchorLo',
  'state',
  'flags',
  'credit',
  'window',
  'withheld',
  'standing',
  'held',
  'buffered',
  'bytes',
  'records',
  'silentWindows',
  'ageMs',
] as const;

export type ReportField = (typeof REPORT_FIELDS)[number];

export const STATE_OPENING = 0;
export const STATE_OPEN = 1;
export const STATE_ENDING = 2;

export const FLAG_STARVING = 1;
export const FLAG_PAUSED = 2;
export const FLAG_FENCED = 4;

/** One piece: plain JSON. */
export interface StreamReport {
  /** Where the next piece begins; undefined: this was the last. */
  readonly next: ReportPlace | undefined;
  /** Instance ids that rows name by their place here. */
  readonly peers: readonly string[];
  /** `REPORT_FIELDS` of each row, one row behind the other. */
  readonly rows: readonly number[];
}

/** The streams of one client thread, by row. */
export interface ReportedLink {
  readonly senders: readonly (EgressStream | undefined)[];
  readonly receivers: readonly (IngressStream | undefined)[];
}

export function reportStreams(links: readonly ReportedLink[], from: ReportPlace, now: number): StreamReport {
  const report = new Report(now);
  let { link, incoming, row } = from;
  let places = 0;
  for (; link < links.length; link++, incoming = false, row = 0) {
    for (;;) {
      const streams = incoming ? links[link]!.receivers : links[link]!.senders;
      for (; row < streams.length; row++) {
        if (report.count >= MAX_REPORT_ROWS || places >= MAX_PLACES) return report.piece({ link, incoming, row });
        places += 1;
        if (incoming) report.incoming(links[link]!.receivers[row]);
        else report.outgoing(links[link]!.senders[row]);
      }
      if (incoming) break;
      incoming = true;
      row = 0;
    }
  }
  return report.piece(undefined);
}

class Report {
  count = 0;
  private readonly rows: number[] = [];
  private readonly peers: string[] = [];
  private readonly numbers = new Map<string, number>();

  constructor(private readonly now: number) {}

  outgoing(stream: EgressStream | undefined): void {
    const slot = stream?.slot;
    if (stream === undefined || slot === undefined || slot.state === SLOT_CLOSED) return;
    const { batcher } = stream;
    let state = slot.openedReported ? STATE_OPEN : STATE_OPENING;
    if (slot.state === SLOT_QUEUED) state = STATE_OPENING;
    else if (slot.inletState !== INLET_LIVE) state = STATE_ENDING;
    this.add({
      incoming: 0,
      peer: this.peer(batcher.peer),
      lane: batcher.lane,
      slot: slot.id,
      sessionHi: slot.sessionHi,
      sessionLo: slot.sessionLo,
      anchorHi: slot.anchorHi,
      anchorLo: slot.anchorLo,
      state,
      flags:
        flag(slot.starving, FLAG_STARVING) |
        flag(slot.paused, FLAG_PAUSED) |
        flag(slot.fence !== undefined, FLAG_FENCED),
      credit: slot.credit,
      window: slot.inletLimit - 1,
      withheld: slot.withheld.length,
      standing: slot.inlet.length,
      held: 0,
      buffered: 0,
      bytes: slot.withheld.byteLength + slot.inlet.byteLength,
      records: slot.nextSeq,
      silentWindows: 0,
      ageMs: this.now - stream.openedAt,
    });
  }

  incoming(stream: IngressStream | undefined): void {
    const slot = stream?.slot;
    if (stream === undefined || slot === undefined || !slot.live) return;
    const { table } = stream;
    this.add({
      incoming: 1,
      peer: this.peer(table.peer),
      lane: table.lane,
      slot: slot.id,
      sessionHi: slot.sessionHi,
      sessionLo: slot.sessionLo,
      anchorHi: 0,
      anchorLo: 0,
      state: slot.terminalDelivered ? STATE_ENDING : STATE_OPEN,
      flags: 0,
      credit: Math.max(0, slot.limit - slot.outstanding - slot.ungranted),
      window: slot.limit,
      withheld: 0,
      standing: stream.standing,
      held: slot.heldRecords,
      buffered: slot.buffered,
      bytes: slot.bufferedBytes + (slot.hold?.bytes ?? 0),
      records: slot.next,
      silentWindows: stream.silentWindows,
      ageMs: this.now - stream.openedAt,
    });
  }

  piece(next: ReportPlace | undefined): StreamReport {
    return { next, peers: this.peers, rows: this.rows };
  }

  private add(row: Record<ReportField, number>): void {
    for (const field of REPORT_FIELDS) this.rows.push(row[field]);
    this.count += 1;
  }

  private peer(label: string): number {
    let number = this.numbers.get(label);
    if (number === undefined) {
      number = this.peers.push(label) - 1;
      this.numbers.set(label, number);
    }
    return number;
  }
}

function flag(set: boolean, bit: number): number {
  return set ? bit : 0;
}
