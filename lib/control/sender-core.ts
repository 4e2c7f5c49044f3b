// A sender row as its client thread sees it: flags, room and the end. It hands out the ring to write into and says when there is
// room; encoding belongs to the sender object of the application.

import { VeloError } from '../errors.js';
import type { ClientPlane, Row, SenderEnd } from '../lanes/client-plane.js';
import type { ClientPort } from '../lanes/client-port.js';
import { CMD_OPEN, encodeOpen, type OpenCommand } from '../lanes/commands.js';
import {
  ENDING_NONE,
  SENDER_CANCELLED,
  SENDER_CLOSED,
  SENDER_LANE_DIED,
  SENDER_OPENED,
  SENDER_OVER,
  SENDER_RETIRED,
  SENDER_SENT,
  SENDER_STOPPED,
  type SenderRows,
} from '../plane/rows.js';

/** What the sender object wants to hear. */
export interface SenderSignals {
  cancelled(): void;
  stopped(): void;
}

/** What became of a stream's output: all of it was handed on, its end included, or some of it was thrown away. */
export type RetiredOutcome = 'sent' | 'discarded';

/**
 * Bytes of records too large for the ring that may stand between a sender and its batcher; a lone one may be larger. What waits there is
 * counted in records only, and there may be a window of them.
 */
export const LARGE_BYTES_AHEAD = 4_194_304;

/** A record that was too large for the ring, and how many had been sent when it had. */
interface LargeRecord {
  readonly sent: number;
  readonly bytes: number;
}

export class SenderCore implements SenderEnd {
  // What every record touches stands first and together: with hundreds of senders in a pass, cache lines are what a record costs.
  /** Records put into the ring, modulo 2^32. */
  sent = 0;
  private pulledSeen = 0;
  /** Records that may stand between this sender and its batcher: C+1. */
  private depth = 0;
  private ending = ENDING_NONE;
  private rowFree = false;
  /** The row's flags; after its end, those that were last seen. */
  private lastFlags = 0;
  readonly row: Row;
  private readonly rows: SenderRows;
  port!: ClientPort;

  signals: SenderSignals | undefined;
  /** The lane was told that room is wanted, and has not given any since. */
  private roomAsked = false;
  /** The same as `depth` for whoever waits: fewer for a large record, which has room once enough of the large ones before it were pulled. */
  private waitDepth = 0;
  private readonly large: LargeRecord[] = [];
  private largeBytes = 0;
  private failure: VeloError | undefined;
  private waiters: (() => void)[] = [];
  /** The first outcome stands. */
  private outcome: RetiredOutcome | undefined;
  private retirement: { promise: Promise<RetiredOutcome>; settle: (outcome: RetiredOutcome) => void } | undefined;
  private assigned = false;
  private cancelPassedOn = false;

  constructor(private readonly plane: ClientPlane) {
    this.row = plane.allocateSender(this);
    this.rows = plane.rows.senders;
  }

  // -- life

  /** Opens the slot on a lane. Resolves once its OpenSlot was admitted; rejects with what prevented it. */
  async open(lane: number, command: Omit<OpenCommand, 'generation'>): Promise<void> {
    this.port = this.plane.port(lane);
    this.plane.assignSender(this.row.row, lane, command.peer, command.lane);
    this.depth = command.credit + 1;
    this.waitDepth = this.depth;
    this.port.command(CMD_OPEN, this.row.row, encodeOpen({ ...command, generation: this.row.generation }));
    this.assigned = true;
    for (;;) {
      const flags = this.flags();
      if ((flags & SENDER_OPENED) !== 0) return;
      if ((flags & SENDER_OVER) !== 0) throw this.failure ?? openFailed();
      await this.change();
    }
  }

  /** The row was never handed to a lane: gives it back. */
  abandon(): void {
    if (this.assigned || this.rowFree) return;
    this.rowFree = true;
    this.plane.freeSender(this.row.row);
  }

  /** Ends the stream after everything sent. Returns at once; false when it had ended already. */
  end(ending: number): boolean {
    if (this.ending !== ENDING_NONE) return false;
    const flags = this.flags();
    this.judge(flags);
    this.ending = ending;
    if (this.rowFree) return true;
    if ((flags & SENDER_RETIRED) !== 0) this.release();
    else this.plane.endSender(this.row.row, ending, this.sent);
    this.wakeAll();
    return true;
  }

  get ended(): boolean {
    return this.ending !== ENDING_NONE;
  }

  /** Resolves once it is known what became of the stream's output, also when it has been for long. Never rejects. */
  retired(): Promise<RetiredOutcome> {
    if (this.outcome === undefined && !this.rowFree) {
      this.plane.watchSender(this.row.row);
      // Look again: the lane may have been done before it could see that somebody waits.
      this.judge(this.flags());
    }
    if (this.outcome !== undefined) return Promise.resolve(this.outcome);
    if (this.retirement === undefined) {
      let settle!: (outcome: RetiredOutcome) => void;
      const promise = new Promise<RetiredOutcome>((resolve) => {
        settle = resolve;
      });
      this.retirement = { promise, settle };
    }
    return this.retirement.promise;
  }

  /**
   * What the flags say of the outcome. A sender that is over before it ended its stream has not said all it had to say, whatever
   * still leaves; one that ended it has to wait for its lane.
   */
  private judge(flags: number): void {
    if (this.outcome !== undefined) return;
    if ((flags & SENDER_RETIRED) !== 0) this.outcome = (flags & SENDER_SENT) !== 0 ? 'sent' : 'discarded';
    else if (!this.ended && (flags & SENDER_OVER) !== 0) this.outcome = 'discarded';
    else return;
    this.retirement?.settle(this.outcome);
  }

  /** The lane is done and so is the application: the row may live again. */
  private release(): void {
    if (this.rowFree) return;
    this.rowFree = true;
    this.plane.freeSender(this.row.row);
  }

  reap(): void {
    if (!this.ended) return;
    const flags = this.flags();
    if ((flags & SENDER_RETIRED) === 0) return;
    this.judge(flags);
    this.release();
  }

  attention(flags: number): void {
    this.lastFlags = flags;
    this.judge(flags);
    if ((flags & SENDER_CANCELLED) !== 0) {
      this.signals?.cancelled();
      this.passCancelOn(flags);
    }
    if ((flags & (SENDER_STOPPED | SENDER_CANCELLED)) !== 0) this.signals?.stopped();
    if ((flags & SENDER_CLOSED) !== 0) {
      this.signals?.cancelled();
      this.signals?.stopped();
    }
    if ((flags & SENDER_RETIRED) !== 0 && this.ended) this.release();
    this.wakeAll();
  }

  /** A cancel may have come by message, to another lane than the one that has the slot. */
  private passCancelOn(flags: number): void {
    if (this.cancelPassedOn || !this.assigned || (flags & (SENDER_CLOSED | SENDER_RETIRED)) !== 0) return;
    this.cancelPassedOn = true;
    this.plane.nameSender(this.row.row);
  }

  laneDied(error: VeloError): void {
    this.failure = error;
    // What the lane had said before stands: a stream whose output was sent was sent.
    this.attention(this.flags() | SENDER_CLOSED | SENDER_RETIRED);
  }

  // -- state, readable without yielding

  /** The row's flags; after its end, those that were last seen. */
  flags(): number {
    if (this.rowFree) return this.lastFlags;
    this.lastFlags = this.rows.flags(this.row.row);
    return this.lastFlags;
  }

  /** True when a further send would fail. */
  get over(): boolean {
    return this.ending !== ENDING_NONE || (this.flags() & SENDER_OVER) !== 0;
  }

  /** Why sends fail. */
  overError(): VeloError {
    if (this.failure !== undefined) return this.failure;
    if (this.ending !== ENDING_NONE) return new VeloError('ERR_CHANNEL_CLOSED', 'this sender has ended its stream');
    if ((this.flags() & SENDER_LANE_DIED) !== 0) return new VeloError('ERR_LANE_DIED', 'the lane of this stream died');
    const cancelled = (this.flags() & SENDER_CANCELLED) !== 0;
    return new VeloError(
      'ERR_CHANNEL_CLOSED',
      cancelled ? 'the consumer cancelled the stream' : 'the stream was closed',
    );
  }

  /** Room for one more record in the inlet. */
  hasRoom(): boolean {
    return ((this.sent - this.pulledSeen) | 0) < this.depth || this.lookForRoom(this.depth);
  }

  /** Room while no more than `depth` records stand ahead; asks for it if there is none. */
  private lookForRoom(depth: number): boolean {
    const pulled = this.rows.pulled(this.row.row);
    // What the lane told since then may be less than a large record needs: it has to be asked again.
    if (pulled !== this.pulledSeen) this.roomAsked = false;
    this.pulledSeen = pulled;
    if (((this.sent - pulled) | 0) < depth) {
      this.roomAsked = false;
      this.waitDepth = this.depth;
      return true;
    }
    this.waitDepth = depth;
    // A lane says what it pulled when it is asked, or has pulled much. A loop that tries again and again, and never waits, must ask
    // too, or it would never see the room it has.
    if (!this.roomAsked) {
      this.roomAsked = true;
      this.plane.awaitSender(this.row.row);
    }
    return false;
  }

  /** Room for a record of so many bytes that does not fit the ring. */
  hasRoomFor(bytes: number): boolean {
    this.forgetPulled();
    if (this.largeBytes === 0 || this.largeBytes + bytes <= LARGE_BYTES_AHEAD) return true;
    // The record after whose pull there is room: nothing is sent before.
    let left = this.largeBytes;
    let enough = 0;
    for (; left > 0 && left + bytes > LARGE_BYTES_AHEAD; enough++) left -= this.large[enough]!.bytes;
    const pulled = this.large[enough - 1]!.sent;
    return this.lookForRoom(Math.min(this.depth, ((this.sent - pulled) | 0) + 1));
  }

  /** Such a record was sent, as the next one. */
  sentLarge(bytes: number): void {
    this.large.push({ sent: (this.sent + 1) | 0, bytes });
    this.largeBytes += bytes;
  }

  private forgetPulled(): void {
    if (this.largeBytes === 0) return;
    const pulled = this.rows.pulled(this.row.row);
    let gone = 0;
    while (gone < this.large.length && ((pulled - this.large[gone]!.sent) | 0) >= 0)
      this.largeBytes -= this.large[gone++]!.bytes;
    this.large.splice(0, gone);
  }

  /** Blocks the thread until there may be room or the stream is over, for at most `timeoutMs`. */
  block(timeoutMs: number): void {
    this.plane.blockSender(this.row.row, this.sent, this.waitDepth, timeoutMs);
  }

  /** Resolves when there may be room, or the stream is over. */
  async roomAgain(): Promise<void> {
    this.port.publish();
    if (this.over) return;
    if (this.lookForRoom(this.waitDepth)) {
      await this.port.roomAgain();
      return;
    }
    const changed = this.change();
    this.plane.awaitSender(this.row.row);
    // Look again: the lane may have pulled before it could see that somebody waits.
    if (this.lookForRoom(this.waitDepth) || this.over) this.wakeAll();
    await changed;
  }

  private change(): Promise<void> {
    return new Promise((resolve) => this.waiters.push(resolve));
  }

  wakeAll(): void {
    if (this.waiters.length === 0) return;
    const waiters = this.waiters;
    this.waiters = [];
    for (const resolve of waiters) resolve();
  }
}

function openFailed(): VeloError {
  return new VeloError('ERR_CHANNEL_CLOSED', 'the slot could not be opened');
}
