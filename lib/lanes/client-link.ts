// The lane's end of one conduit. It drains the client's ring in order, keeps the kick positions, and writes what the client
// must hear: records, events, flags. It empties what it reads and never waits; what finds no room stands in bounded queues.

import { VeloError } from '../errors.js';
import type { ClientRows, WorkerConduit } from '../plane/conduit.js';
import type { ParcelReceiver, ParcelSender } from '../plane/parcels.js';
import { ENDING_NONE, RECEIVER_CANCEL, RECEIVER_STOP, SENDER_CANCELLED } from '../plane/rows.js';
import { type CommandedLane, carryOut } from './client-commands.js';
import { ClientMessages } from './client-messages.js';
import { CMD_DATA, EV_FRAME, EV_HELLO, KIND_MASK, PARCEL, PARCEL_MARK_BYTES, readU32, writeU32 } from './commands.js';
import type { EgressStream } from './egress-stream.js';
import type { IngressStream } from './ingress-stream.js';
import type { LaneEvents } from './lane-events.js';

/** What the link asks of its lane. */
export interface LinkLane extends CommandedLane {
  /** A kick position was reached: every batcher with staged records writes now. */
  kickAll(): void;
  /** The stream's sender ended it: `ending` after everything it sent. */
  end(stream: EgressStream, ending: number): void;
  /** Drains of a slot's records were counted. */
  drained(stream: IngressStream): void;
  /** All drains that stood there were told: now a visit finds every one of them. */
  drainsTaken(): void;
  cancelReceiver(stream: IngressStream): void;
  stopReceiver(stream: IngressStream): void;
  /** Who hears of streams that open and close. */
  readonly events?: LaneEvents;
}

interface WaitingEvent {
  kind: number;
  tag: number;
  body: Uint8Array;
  /** The memory was made for the hand-over: it goes without a copy. */
  owned: boolean;
}

export class ClientLink {
  readonly senders: (EgressStream | undefined)[] = [];
  readonly receivers: (IngressStream | undefined)[] = [];
  /** Frames of peers for this client. */
  readonly messages: ClientMessages;
  private readonly rowsTaken: Int32Array;
  private readonly backlogged: IngressStream[] = [];
  private readonly events: WaitingEvent[] = [];
  private waitingBytes = 0;
  private mustRing = false;
  private muted = false;
  private readonly mark = new Uint8Array(PARCEL_MARK_BYTES);

  constructor(
    private readonly lane: LinkLane,
    readonly thread: number,
    readonly conduit: WorkerConduit,
    readonly rows: ClientRows,
    private readonly parcelsOut: ParcelSender,
    private readonly parcelsIn: ParcelReceiver,
    messageQueueBytes: number,
  ) {
    this.rowsTaken = new Int32Array(rows.senders.count);
    this.messages = new ClientMessages(this, conduit.ingress, messageQueueBytes);
  }

  // ---- client → lane

  /** Takes everything published so far, up to the tail read now. Returns true when there was a record. */
  drain(): boolean {
    const egress = this.conduit.egress;
    const any = egress.refresh();
    this.takeEndings();
    if (any) this.drainRing();
    if (egress.kickAtTail()) {
      // A kick is behind every ending that was made before it, also one that was made after the look above.
      this.takeEndings();
      this.lane.kickAll();
    }
    if (egress.release()) this.conduit.clientBell.ring();
    this.takeDrains();
    return any;
  }

  private drainRing(): void {
    const egress = this.conduit.egress;
    const bytes = this.conduit.memory.bytes;
    const senders = this.senders;
    while (egress.next()) {
      if (egress.kicked) this.lane.kickAll();
      if (egress.kind !== CMD_DATA) {
        this.command(egress.kind, egress.tag, bytes, egress.offset, egress.length);
        continue;
      }
      const stream = senders[egress.tag];
      // A slot that the peer closed: what its sender had already written is discarded.
      if (stream === undefined) continue;
      this.accept(stream, bytes, egress.offset, egress.length);
    }
  }

  private accept(stream: EgressStream, bytes: Uint8Array, offset: number, length: number): void {
    try {
      stream.batcher.accept(stream.slot, bytes, offset, length);
    } catch (error) {
      // The batcher has closed that slot, and its sender will hear; the lane and every other stream go on.
      if (!VeloError.is(error)) throw error;
    }
    this.accepted(stream);
  }

  private accepted(stream: EgressStream): void {
    stream.accepted = (stream.accepted + 1) | 0;
    if (((stream.slot.pulledTotal - stream.pulledPublished) | 0) >= stream.publishStep) this.publishPulled(stream);
    if (stream.ending !== ENDING_NONE && stream.accepted === stream.endsAt) this.endStream(stream);
  }

  private endStream(stream: EgressStream): void {
    const ending = stream.ending;
    stream.ending = ENDING_NONE;
    this.lane.end(stream, ending);
  }

  /** Sender rows whose client ended them, or waits for room. */
  private takeEndings(): void {
    const count = this.conduit.endings.take(this.rowsTaken);
    for (let i = 0; i < count; i++) {
      const stream = this.senders[this.rowsTaken[i]!];
      if (stream === undefined) continue;
      if ((this.rows.senders.flags(stream.row) & SENDER_CANCELLED) !== 0) {
        // By message, which names no slot: what the stream still has is not wanted, and might wait for credit for ever.
        stream.batcher.abandon(stream.slot);
        continue;
      }
      // The client waits for room: tell it now if there is some, else with the next record pulled.
      if (!this.lookForEnding(stream) && !this.publishPulled(stream)) stream.roomWanted();
    }
  }

  /** Reads the row's ending, and ends the stream if it stands here. Also right after an open: its ending may have come first. */
  lookForEnding(stream: EgressStream): boolean {
    const ending = this.rows.senders.ending(stream.row);
    if (ending === ENDING_NONE) return false;
    stream.ending = ending;
    stream.endsAt = this.rows.senders.endingCount(stream.row);
    if (stream.accepted === stream.endsAt) this.endStream(stream);
    return true;
  }

  /** Writes the row's `pulled` word. True when it moved. Not for a retired stream: the row may have its next life already. */
  publishPulled(stream: EgressStream): boolean {
    if (this.senders[stream.row] !== stream) return false;
    const pulled = stream.slot.pulledTotal | 0;
    if (pulled === (stream.pulledPublished | 0)) return false;
    stream.pulledPublished = pulled;
    if (!this.rows.senders.isBlocked(stream.row)) stream.pulledTold();
    if (this.rows.senders.setPulled(stream.row, pulled)) this.attend(stream.row);
    return true;
  }

  /** Drains wait for a visit that is queued: the client need not ring for more of them. */
  muteDrains(muted: boolean): void {
    if (muted === this.muted) return;
    this.muted = muted;
    if (muted) this.conduit.drainMute.set();
    else this.conduit.drainMute.clear();
  }

  /** Receiver rows whose consumer took records or wants something. */
  private takeDrains(): void {
    const count = this.conduit.drains.take(this.rowsTaken);
    for (let i = 0; i < count; i++) {
      const stream = this.receivers[this.rowsTaken[i]!];
      if (stream === undefined) continue;
      const requests = this.rows.receivers.requests(stream.row);
      if (requests === 0) this.lane.drained(stream);
      else if ((requests & RECEIVER_CANCEL) !== 0) this.lane.cancelReceiver(stream);
      else if ((requests & RECEIVER_STOP) !== 0) {
        // The request stands in the row for good: every drain finds it there.
        if (!stream.stopAsked) {
          stream.stopAsked = true;
          this.lane.stopReceiver(stream);
        }
        this.lane.drained(stream);
      }
    }
    if (count > 0) this.lane.drainsTaken();
  }

  private command(kind: number, tag: number, ringBytes: Uint8Array, ringOffset: number, ringLength: number): void {
    let bytes = ringBytes;
    let offset = ringOffset;
    let length = ringLength;
    if ((kind & PARCEL) !== 0) {
      bytes = this.parcelsIn.take(readU32(ringBytes, ringOffset));
      offset = 0;
      length = bytes.length;
    }
    if ((kind & KIND_MASK) !== CMD_DATA) {
      carryOut(this.lane, this, kind & KIND_MASK, tag, bytes, offset, length);
      return;
    }
    const stream = this.senders[tag];
    if (stream !== undefined) this.accept(stream, bytes, offset, length);
  }

  /** True when the client published, kicked, ended or drained something this end has not taken. */
  hasWork(): boolean {
    const { egress, endings, drains } = this.conduit;
    if (egress.hasWork() || !endings.isEmpty()) return true;
    return !this.muted && !drains.isEmpty();
  }

  /** Something waits here for room in the ring. */
  private get hasBacklog(): boolean {
    return this.backlogged.length > 0 || this.events.length > 0 || this.messages.held;
  }

  /** The client freed room since this end asked for it: the look between parking and waiting. */
  roomCame(): boolean {
    return this.hasBacklog && this.conduit.ingress.roomCame();
  }

  // ---- lane → client

  /** Writes one record. False when the ring has no room; then nothing was written. */
  writeRecord(kind: number, tag: number, source: Uint8Array, offset: number, length: number, owned = false): boolean {
    const ring = this.conduit.ingress;
    if (length > ring.maxInline) {
      const at = ring.reserve(kind | PARCEL, tag, PARCEL_MARK_BYTES);
      if (at < 0) return false;
      if (owned) this.parcelsOut.give(source.buffer as ArrayBuffer);
      else this.parcelsOut.send(source, offset, length);
      writeU32(this.mark, 0, length);
      this.conduit.memory.copyIn(at, this.mark, 0, PARCEL_MARK_BYTES);
    } else {
      const at = ring.reserve(kind, tag, length);
      if (at < 0) return false;
      this.conduit.memory.copyIn(at, source, offset, length);
    }
    ring.commit();
    if ((kind === EV_FRAME || kind === EV_HELLO) && length > ring.maxInline)
      this.messages.parcelGiven(ring.position, length);
    return true;
  }

  /** A stream with records that found no room. */
  backlog(stream: IngressStream): void {
    if (stream.listed) return;
    stream.listed = true;
    this.backlogged.push(stream);
  }

  /** An event that must reach the client: its number is bounded by what the client itself has in flight. */
  event(kind: number, tag: number, body: Uint8Array, owned = false): void {
    const { length } = body;
    if (this.events.length === 0 && this.writeRecord(kind, tag, body, 0, length, owned)) return;
    this.events.push({ kind, tag, body, owned });
    this.waitingBytes += length;
  }

  /** Of the events that wait for room. */
  get eventBytes(): number {
    return this.waitingBytes;
  }

  /** An event that nobody relies on: written if there is room for it now, else not at all. */
  offer(kind: number, tag: number, body: Uint8Array): boolean {
    return this.events.length === 0 && this.writeRecord(kind, tag, body, 0, body.length);
  }

  /** Who hears of streams that open and close. */
  get observer(): LaneEvents | undefined {
    return this.lane.events;
  }

  /** Moves what waited into the ring. True when nothing waits any more. */
  private flushBacklog(): boolean {
    let moved = 0;
    while (moved < this.events.length) {
      const next = this.events[moved]!;
      const { length } = next.body;
      if (!this.writeRecord(next.kind, next.tag, next.body, 0, length, next.owned)) break;
      this.waitingBytes -= length;
      moved++;
    }
    if (moved > 0) this.events.splice(0, moved);
    this.messages.flush();
    this.flushStreams();
    return !this.hasBacklog;
  }

  /** In the order in which they ran out of room. The first that still finds none ends it: thousands may stand here while a client computes. */
  private flushStreams(): void {
    const { backlogged } = this;
    let done = 0;
    for (let stream = backlogged[0]; stream?.flush() === true; stream = backlogged[++done]) stream.listed = false;
    if (done > 0) backlogged.splice(0, done);
  }

  /** Sets flags of a sender row and names it to the client. */
  flagSender(row: number, generation: number, flags: number): boolean {
    if (!this.rows.senders.setFlags(row, generation, flags)) return false;
    this.attend(row);
    return true;
  }

  /**
   * The row's last flags. A client that nobody has asked about this stream is not woken for them: it finds the row when it is awake
   * anyway, or short of rows.
   */
  retireSender(row: number, generation: number, flags: number): void {
    const { senders } = this.rows;
    if (!senders.setFlags(row, generation, flags)) return;
    this.conduit.attention.add(row);
    if (senders.watched(row)) this.mustRing = true;
  }

  private attend(row: number): void {
    // Always: the bit may stand already, put there by a retirement that nobody needed to ring for.
    this.conduit.attention.add(row);
    this.mustRing = true;
  }

  dropSender(stream: EgressStream): void {
    if (this.senders[stream.row] === stream) this.senders[stream.row] = undefined;
  }

  dropReceiver(stream: IngressStream): void {
    if (this.receivers[stream.row] === stream) this.receivers[stream.row] = undefined;
  }

  /** Ends a turn: one publish and at most one ring, however many records it wrote. What waits asks for room, and looks again. */
  publish(): void {
    // Each turn, though nobody asks: a position is good for so many bytes only.
    this.messages.forgetTaken();
    if (this.hasBacklog && !this.flushBacklog()) {
      this.conduit.ingress.wantRoom();
      this.flushBacklog();
    }
    if (!this.conduit.ingress.publish() && !this.mustRing) return;
    this.mustRing = false;
    this.conduit.clientBell.ring();
  }
}
