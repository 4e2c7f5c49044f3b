// The sender's half of a slot and the table that hands out slot indices. Owns identity (index, generation, session) and
// the queues of one slot; it must never write a record or decide when one goes.

import { VeloError } from '../errors.js';
import { MAX_SLOT_GENERATION, nextGeneration, slotId } from '../wire/slot-id.js';
import type { SlotOwner } from './batcher-types.js';
import type { ByteMeter } from './byte-meter.js';
import { ByteQueue } from './byte-queue.js';
import { EgressLedger, slotBufferDepth } from './credit.js';
import type { Singleton } from './singletons.js';

/** The OpenSlot waits behind a batch that is not admitted yet. */
export const SLOT_QUEUED = 0;
/** The OpenSlot was handed over. */
export const SLOT_OPEN = 1;
/** Over. The object stays readable; nothing it is given goes anywhere. */
export const SLOT_CLOSED = 2;

export type SlotState = typeof SLOT_QUEUED | typeof SLOT_OPEN | typeof SLOT_CLOSED;

/** How the inlet of a slot ends. */
export const INLET_LIVE = 0;
/** `terminal` goes after everything accepted. */
export const INLET_TERMINAL = 1;
/** A PeerGone close goes after everything accepted. */
export const INLET_ENDED = 2;

export type InletState = typeof INLET_LIVE | typeof INLET_TERMINAL | typeof INLET_ENDED;

/** No close and no lifecycle action is posted. */
export const NO_ACTION = -1;

/** What is posted about the singletons of a slot. */
export const NO_ANSWER = 0;
/** The one that fences the slot was admitted. */
export const ANSWER_ADMITTED = 1;
/** One was not: wins over every other answer. */
export const ANSWER_FAILED = 2;

export type SingletonAnswer = typeof NO_ANSWER | typeof ANSWER_ADMITTED | typeof ANSWER_FAILED;

/**
 * One slot of ours.
 *
 * | from   | event                                        | to     |
 * |--------|----------------------------------------------|--------|
 * | (open) | batcher parked                               | queued |
 * | (open) | OpenSlot handed over                         | open   |
 * | queued | admission, OpenSlot handed over              | open   |
 * | queued | abandon, epoch death                         | closed |
 * | open   | terminal or close written, peer's close, epoch death | closed |
 */
export class EgressSlot extends EgressLedger {
  // What the fast path touches stands first and together: with hundreds of slots in a pass, cache lines are what a
  // record costs.
  /** Records go straight from `accept` into the open batch: open, live, nothing queued in front, no fence, nothing staged. */
  direct = false;
  readonly id: number;
  /** frame_seq of the next record; 0 is the OpenSlot's. Saturates at 2^32−1. */
  nextSeq = 0;
  /** Records taken from the inlet or discarded, modulo 2^32. The owner publishes it to the sender. */
  pulledTotal = 0;
  /** The owner wants `pulledChanged` when records leave the inlet outside `accept`. */
  notifyPull = false;

  state: SlotState = SLOT_QUEUED;
  inletState: InletState = INLET_LIVE;
  /** Number of the batch that a data record of this slot is in; kept only for the flush condition that asks. */
  stamp = 0;
  /** The singleton whose admission this slot waits for. Nothing else lifts it. */
  fence: Singleton | undefined;
  /** Staged records of this slot that its receiver may not have yet, and the bytes of what was handed over behind the first. */
  stagedOut = 0;
  behindBytes = 0;
  /** In a starving episode: withheld for want of credit. */
  starving = false;
  /** The withheld queue is at its budget: the inlet is not pulled. */
  paused = false;

  readonly index: number;
  readonly owner: SlotOwner;
  readonly anchorHi: number;
  readonly anchorLo: number;
  readonly sessionHi: number;
  readonly sessionLo: number;
  /** Bytes of the withheld queue at which the inlet is paused. */
  readonly byteBudget: number;
  /** Records that may stand in the inlet; the sender's own accounting keeps to it. */
  readonly inletLimit: number;
  /** Accepted, not pulled: the batcher is parked or the slot paused. */
  readonly inlet: ByteQueue;
  /** Pulled, waiting for credit or a fence. */
  readonly withheld: ByteQueue;
  /** Last record, after everything accepted. */
  terminal: Uint8Array | undefined;

  /** Control posted and not applied: credit, close reason, lifecycle action. Applied in the batcher's next drain. */
  pendingCredit = 0;
  pendingClose = NO_ACTION;
  pendingAction = NO_ACTION;
  pendingAnswer: SingletonAnswer = NO_ANSWER;
  /** Stands in the control inbox's list. */
  controlListed = false;
  /** Stands in the batcher's ready list, and the slot behind it there. */
  readyListed = false;
  nextReady: EgressSlot | undefined;

  /** What the owner has heard. */
  openedReported = false;
  retiredReported = false;

  constructor(id: number, index: number, owner: SlotOwner, terms: SlotTerms) {
    super(terms.credit);
    this.id = id;
    this.index = index;
    this.owner = owner;
    this.anchorHi = terms.anchorHi;
    this.anchorLo = terms.anchorLo;
    this.sessionHi = terms.sessionHi;
    this.sessionLo = terms.sessionLo;
    this.byteBudget = terms.byteBudget;
    this.inletLimit = slotBufferDepth(terms.credit);
    this.inlet = new ByteQueue(terms.meter);
    this.withheld = new ByteQueue(terms.meter);
  }

  /** Nothing stands in front of the next record but credit and the batcher's own state. */
  get clear(): boolean {
    return (
      this.state === SLOT_OPEN &&
      this.inletState === INLET_LIVE &&
      this.fence === undefined &&
      this.withheld.length === 0 &&
      this.inlet.length === 0
    );
  }

  /** Keeps `direct` true exactly when that holds, and no record of the slot need be counted. */
  updateDirect(): void {
    this.direct = this.stagedOut === 0 && this.clear;
  }
}

/** What a slot is opened for and on which terms. */
export interface SlotTerms {
  readonly anchorHi: number;
  readonly anchorLo: number;
  readonly sessionHi: number;
  readonly sessionLo: number;
  /** Window negotiated with the receiver. */
  readonly credit: number;
  readonly byteBudget: number;
  /** Counts what stands and is withheld. */
  readonly meter: ByteMeter;
}

/**
 * Live slots by index. Freed indices are used again last in, first out; each reuse has the next generation, so a record
 * of an earlier occupant names an id that is not live.
 */
export class EgressSlotTable {
  /** Live slots. */
  live = 0;
  private readonly slots: (EgressSlot | undefined)[] = [];
  private readonly freed: number[] = [];
  /** Generation the next occupant of an index gets. */
  private readonly generations: number[] = [];
  private readonly limit: number;
  private readonly firstGeneration: number;

  /** `firstGeneration`: that of the first occupant of every index. */
  constructor(limit: number, firstGeneration = 0) {
    this.limit = limit;
    this.firstGeneration = firstGeneration & MAX_SLOT_GENERATION;
  }

  /** Indices ever handed out. Control for any index from here on is bogus. */
  get allocated(): number {
    return this.generations.length;
  }

  /** @throws VeloError `ERR_SLOTS_EXHAUSTED` when every index is live. */
  open(owner: SlotOwner, terms: SlotTerms, where: string): EgressSlot {
    let index = this.freed.pop();
    if (index === undefined) {
      index = this.generations.length;
      if (index >= this.limit) throw new VeloError('ERR_SLOTS_EXHAUSTED', `${where}: all ${this.limit} slots are live`);
      this.generations.push(this.firstGeneration);
      this.slots.push(undefined);
    }
    const slot = new EgressSlot(slotId(index, this.generations[index]! & MAX_SLOT_GENERATION), index, owner, terms);
    this.slots[index] = slot;
    this.live += 1;
    return slot;
  }

  /** Gives the index back, unless it is to be kept until `free`; its next occupant has the next generation. */
  remove(slot: EgressSlot, keepIndex: boolean): void {
    const index = slot.index;
    if (this.slots[index] !== slot) throw new VeloError('ERR_INTERNAL', `slot ${slot.id} is not in its table`);
    this.slots[index] = undefined;
    this.generations[index] = nextGeneration(this.generations[index]!);
    if (!keepIndex) this.freed.push(index);
    this.live -= 1;
  }

  /** An index that was kept may have an occupant again. */
  free(index: number): void {
    this.freed.push(index);
  }

  /** The slot at an index, whatever its generation. */
  at(index: number): EgressSlot | undefined {
    return this.slots[index];
  }

  /** Live slots in the order of their indices, safe against removal. */
  snapshot(): EgressSlot[] {
    return this.slots.filter((slot): slot is EgressSlot => slot !== undefined);
  }
}
