// The client's end of one conduit: it writes records, publishes them by the node's policy, rings, and drains what the lane
// sends. Commands that find the ring full wait here in order; data never does (a send says "no room" instead).

import { VeloError } from '../errors.js';
import type { ClientConduit } from '../plane/conduit.js';
import type { ParcelReceiver, ParcelSender } from '../plane/parcels.js';
import { ItemFrameWriter } from '../wire/frame.js';
import {
  CMD_CANCEL_SLOT,
  CMD_MARK,
  CMD_PEER,
  CMD_REGISTER,
  CMD_SHOW_EPOCH,
  CMD_STAGE,
  CMD_UNSTAGE,
  KIND_MASK,
  PARCEL,
  PARCEL_MARK_BYTES,
  readU32,
  writeU32,
} from './commands.js';

/** What a lane's records and flags mean to the client thread. */
export interface PortEvents {
  /** One record of the ingress ring. The bytes are only valid during the call. */
  record(kind: number, tag: number, bytes: Uint8Array, offset: number, length: number): void;
  /** A sender row has new flags or room. */
  attention(row: number): void;
  /** A burst of records ended: wake whoever waits for them. */
  burstEnd(): void;
  /** The conduit cannot be trusted any more. */
  broken(error: VeloError): void;
}

/** A drain turn is bounded, so that a fast lane cannot keep the client's event loop from turning. */
const RECORDS_PER_TURN = 8192;
/** Commands that may wait for room in the ring: calls and attaches in flight, which have bounds of their own. */
const MAX_WAITING_COMMANDS = 65_536;
/**
 * Commands outside of that bound, because they have one of their own and a lane that misses one is wrong for ever: peers,
 * payloads that are let go of, what a new lane must tell peers, and the marks of a drain.
 */
const ALWAYS_TAKEN: readonly number[] = [CMD_PEER, CMD_SHOW_EPOCH, CMD_CANCEL_SLOT, CMD_UNSTAGE, CMD_MARK];

interface WaitingCommand {
  kind: number;
  tag: number;
  body: Uint8Array;
}

export class ClientPort {
  /** Writes item frames into the egress ring, for all senders of this port. */
  readonly frames: ItemFrameWriter;
  private readonly waiting: WaitingCommand[] = [];
  private roomWaiters: (() => void)[] = [];
  private publishArmed = false;
  /** Why no command is taken any more. */
  private closed: VeloError | undefined;
  private draining = false;
  private readonly attentionRows: Int32Array;
  private readonly mark = new Uint8Array(PARCEL_MARK_BYTES);
  private readonly publishLater = (): void => {
    this.publishArmed = false;
    this.publish();
  };

  constructor(
    readonly conduit: ClientConduit,
    private readonly parcelsOut: ParcelSender,
    private readonly parcelsIn: ParcelReceiver,
    private readonly events: PortEvents,
    rows: number,
    /** Manual flush policy: data stays unpublished until a flush, or until the loop turns. */
    readonly deferred: boolean,
  ) {
    this.attentionRows = new Int32Array(rows);
    this.frames = new ItemFrameWriter(conduit.memory.bytes);
  }

  get isOpen(): boolean {
    return this.closed === undefined;
  }

  // -- data: the per-record path. The caller reserves in `conduit.egress`, writes, commits, then calls this.

  /** One data record was committed. */
  committed(): void {
    if (!this.deferred) {
      this.conduit.egress.publish();
      this.conduit.workerBell.ring();
    } else if (!this.publishArmed) {
      this.publishArmed = true;
      setImmediate(this.publishLater);
    }
  }

  /** Sends a data record too large for the ring. False when there is no room for its marker. */
  sendParcel(kind: number, tag: number, body: Uint8Array): boolean {
    // A producer that never yields must not wait for the event loop to write them.
    if (this.waiting.length > 0) this.flushCommands();
    return this.waiting.length === 0 && this.writeParcel(kind, tag, body);
  }

  private writeParcel(kind: number, tag: number, body: Uint8Array): boolean {
    const egress = this.conduit.egress;
    const offset = egress.reserve(kind | PARCEL, tag, PARCEL_MARK_BYTES);
    if (offset < 0) return false;
    // Payloads come in memory made for the hand-over. Its length is gone with it.
    const { length } = body;
    if (kind === CMD_STAGE || kind === CMD_REGISTER) this.parcelsOut.give(body.buffer as ArrayBuffer);
    else this.parcelsOut.send(body, 0, length);
    writeU32(this.mark, 0, length);
    this.conduit.memory.copyIn(offset, this.mark, 0, PARCEL_MARK_BYTES);
    egress.commit();
    return true;
  }

  /** Shows what was committed to the lane and wakes it. */
  publish(): void {
    if (this.conduit.egress.publish()) this.conduit.workerBell.ring();
  }

  /** A flush: everything sent so far leaves in this pass. Needs no room and never waits. */
  kick(): void {
    if (this.closed !== undefined) return;
    this.conduit.egress.kick();
    this.conduit.workerBell.ring();
  }

  /** Resolves once the lane has freed room in the ring (or the conduit is gone). */
  roomAgain(): Promise<void> {
    if (this.closed !== undefined) return Promise.resolve();
    this.publish();
    return new Promise((resolve) => {
      this.roomWaiters.push(resolve);
      this.conduit.egress.wantRoom();
      // Look again: the lane may have freed everything before it could see the wish.
      if (!this.hasBacklogRoom()) return;
      this.wakeRoomWaiters();
    });
  }

  private hasBacklogRoom(): boolean {
    return this.waiting.length === 0 && this.conduit.egress.reserve(1, 0, this.conduit.egress.maxInline) >= 0;
  }

  private wakeRoomWaiters(): void {
    if (this.roomWaiters.length === 0) return;
    const waiters = this.roomWaiters;
    this.roomWaiters = [];
    for (const resolve of waiters) resolve();
  }

  // -- commands: published before the call returns, in order; they wait here when the ring is full.

  command(kind: number, tag: number, body: Uint8Array): void {
    if (this.closed !== undefined) throw this.closed;
    if (this.waiting.length >= MAX_WAITING_COMMANDS && !ALWAYS_TAKEN.includes(kind))
      throw new VeloError('ERR_LIMIT', `${MAX_WAITING_COMMANDS} commands already wait for a lane`);
    if (this.waiting.length > 0 || !this.writeCommand(kind, tag, body)) {
      this.waiting.push({ kind, tag, body });
      this.conduit.egress.wantRoom();
      this.flushCommands();
    }
    this.publish();
    this.conduit.workerBell.ring();
  }

  private writeCommand(kind: number, tag: number, body: Uint8Array): boolean {
    const egress = this.conduit.egress;
    if (body.length > egress.maxInline || kind === CMD_STAGE || kind === CMD_REGISTER)
      return this.writeParcel(kind, tag, body);
    const offset = egress.reserve(kind, tag, body.length);
    if (offset < 0) return false;
    this.conduit.memory.copyIn(offset, body, 0, body.length);
    egress.commit();
    return true;
  }

  private flushCommands(): void {
    let written = 0;
    while (written < this.waiting.length) {
      const next = this.waiting[written]!;
      if (!this.writeCommand(next.kind, next.tag, next.body)) break;
      written++;
    }
    if (written > 0) this.waiting.splice(0, written);
  }

  // -- the other direction

  /** Takes what the lane published, up to a bound. Returns true when more may stand there. */
  drain(): boolean {
    if (this.closed !== undefined || this.draining) return false;
    this.draining = true;
    try {
      return this.drainTurn();
    } catch (error) {
      const fatal = VeloError.is(error) ? error : new VeloError('ERR_INTERNAL', String(error), { cause: error });
      this.close(new VeloError('ERR_LANE_DIED', 'the lane of this conduit is gone', { cause: fatal }));
      this.events.broken(fatal);
      return false;
    } finally {
      this.draining = false;
    }
  }

  private drainTurn(): boolean {
    const { ingress, workerBell, attention } = this.conduit;
    if (this.waiting.length > 0 || this.roomWaiters.length > 0) {
      this.flushCommands();
      if (this.waiting.length > 0) {
        this.conduit.egress.wantRoom();
        this.flushCommands();
      }
      this.publish();
      this.wakeRoomWaiters();
    }
    let records = 0;
    if (ingress.refresh()) {
      records = this.takeRecords();
      if (ingress.release()) workerBell.ring();
    }
    const rows = attention.take(this.attentionRows);
    if (rows > 0) this.attend(rows);
    if (records > 0) this.events.burstEnd();
    return ingress.hasWork();
  }

  // The loops stand alone: V8 keeps what it compiled in the middle of a hot loop although the code behind that loop deoptimizes at each
  // end of it, and then never compiles the whole function again.

  private takeRecords(): number {
    const { ingress, memory } = this.conduit;
    const { bytes } = memory;
    let records = 0;
    while (records < RECORDS_PER_TURN && ingress.next()) {
      records++;
      if ((ingress.kind & PARCEL) === 0)
        this.events.record(ingress.kind, ingress.tag, bytes, ingress.offset, ingress.length);
      else this.takeParcel();
    }
    return records;
  }

  private takeParcel(): void {
    const { ingress, memory } = this.conduit;
    const parcel = this.parcelsIn.take(readU32(memory.bytes, ingress.offset));
    this.events.record(ingress.kind & KIND_MASK, ingress.tag, parcel, 0, parcel.length);
  }

  private attend(rows: number): void {
    for (let i = 0; i < rows; i++) this.events.attention(this.attentionRows[i]!);
  }

  /** True when the lane published something this end has not taken, or freed room: the look between parking and waiting. */
  hasWork(): boolean {
    const { ingress, attention, egress } = this.conduit;
    return ingress.hasWork() || !attention.isEmpty() || egress.roomCame();
  }

  /** No record moves any more. Whoever waits for room is woken and finds the sender over; commands throw `reason`. */
  close(reason = new VeloError('ERR_LANE_DIED', 'the lane of this conduit is gone')): void {
    if (this.closed !== undefined) return;
    this.closed = reason;
    this.waiting.length = 0;
    this.wakeRoomWaiters();
  }
}
