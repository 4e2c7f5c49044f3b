// Stand-ins for what drives the mux machines: a virtual clock, a transport that admits, parks or refuses, an owner and
// a receiver that write down what they hear, and a decoder that turns a batch into plain objects.

import {
  ADMITTED,
  type BatcherPort,
  type ClosedReason,
  PENDING,
  REFUSED,
  type Retirement,
  type Runnable,
  type SlotOwner,
  type SubmitOutcome,
} from '../../lib/mux/batcher-types.js';
import type { EgressSlot } from '../../lib/mux/egress-slot.js';
import type { IngressSlot } from '../../lib/mux/ingress-slot.js';
import { DELIVERED, type DeliverOutcome, FULL, GONE, type Receiver } from '../../lib/mux/ingress-types.js';
import { BATCH_HEADROOM, COALESCE_THRESHOLD } from '../../lib/mux/mux-config.js';
import type { Singleton } from '../../lib/mux/singletons.js';
import { BatchDecoder } from '../../lib/wire/batch.js';
import { slotGeneration, slotIndex } from '../../lib/wire/slot-id.js';

const TYPE_NAMES = ['data', 'open', 'close', 'credit', 'heartbeat', 'lifecycle'] as const;

/** One record of a batch, as a test wants to compare it. */
export interface PlainRecord {
  readonly type: (typeof TYPE_NAMES)[number];
  readonly slot: number;
  readonly index: number;
  readonly generation: number;
  readonly seq: number;
  readonly body: Uint8Array;
  readonly reason?: number;
  readonly delta?: number;
  readonly action?: number;
  readonly session?: bigint;
  readonly anchor?: bigint;
}

export interface PlainBatch {
  readonly bytes: Uint8Array;
  readonly epoch: bigint;
  readonly seq: number;
  readonly flags: number;
  readonly records: PlainRecord[];
}

/** Decodes a whole batch; throws when it is malformed. */
export function decodeBatch(bytes: Uint8Array): PlainBatch {
  const decoder = new BatchDecoder();
  decoder.reset(bytes, 0, bytes.length);
  const records: PlainRecord[] = [];
  while (decoder.next()) records.push(plainRecord(decoder, bytes));
  if (decoder.error !== undefined) throw new Error(`malformed batch: ${JSON.stringify(decoder.error)}`);
  const epoch = join(decoder.epochHi, decoder.epochLo);
  return { bytes, epoch, seq: decoder.batchSeq, flags: decoder.flags, records };
}

function plainRecord(decoder: BatchDecoder, bytes: Uint8Array): PlainRecord {
  const base = {
    type: TYPE_NAMES[decoder.type]!,
    slot: decoder.slot,
    index: slotIndex(decoder.slot),
    generation: slotGeneration(decoder.slot),
    seq: decoder.frameSeq,
    body: bytes.slice(decoder.bodyOffset, decoder.bodyOffset + decoder.bodyLength),
  };
  switch (base.type) {
    case 'open':
      return {
        ...base,
        anchor: join(decoder.anchorHi, decoder.anchorLo),
        session: join(decoder.sessionHi, decoder.sessionLo),
      };
    case 'close':
      return { ...base, reason: decoder.closeReason };
    case 'credit':
      return { ...base, delta: decoder.delta };
    case 'lifecycle':
      return { ...base, action: decoder.action, session: join(decoder.sessionHi, decoder.sessionLo) };
    default:
      return base;
  }
}

function join(hi: number, lo: number): bigint {
  return (BigInt(hi) << 32n) | BigInt(lo);
}

/** Time that only moves when told to. */
export class VirtualClock {
  now = 0;
}

/** What the transport answers to the next batches. */
export type SubmitMode = 'admit' | 'pend' | 'refuse';

/** A batch that waits for admission, and the singleton it is, if it is one. */
interface PendingBatch {
  readonly batch: Uint8Array;
  readonly singleton: Singleton | undefined;
}

/** A batcher's port: keeps the batches as bytes, counts buffers, remembers who wants to run. */
export class FakePort implements BatcherPort {
  mode: SubmitMode = 'admit';
  /** The next singleton that this holds for is refused, whatever the mode. */
  refusesNext: ((singleton: Singleton) => boolean) | undefined;
  eager = 262_144 - 64;
  /** Batches that were admitted or are pending, in order. */
  readonly sent: Uint8Array[] = [];
  /** Sees every batch at its admission. */
  onAdmitted: ((batch: Uint8Array) => void) | undefined;
  /** Sees a staged one instead, if it is set. */
  onStaged: ((batch: Uint8Array, singleton: Singleton) => void) | undefined;
  refused = 0;
  buffersOut = 0;
  largeAcquired = 0;
  /** `now` calls: the fast path must not make one per record. */
  clockReads = 0;
  readonly scheduled = new Set<Runnable>();
  scheduleCalls = 0;
  /** Bytes that may still be staged; there is no memory for singletons while `memoryless`. */
  stagingRoom = Number.POSITIVE_INFINITY;
  memoryless = false;
  /** Every singleton that was taken, in order. */
  readonly singletons: Singleton[] = [];
  private readonly pending: PendingBatch[] = [];

  constructor(
    readonly clock: VirtualClock,
    private readonly epochs: () => number,
  ) {}

  now(): number {
    this.clockReads += 1;
    return this.clock.now;
  }

  nextEpoch(): number {
    return this.epochs();
  }

  eagerBudget(): number {
    return this.eager;
  }

  acquireBuffer(): Uint8Array {
    this.buffersOut += 1;
    return new Uint8Array(BATCH_HEADROOM + COALESCE_THRESHOLD);
  }

  acquireLarge(size: number): Uint8Array | undefined {
    if (this.memoryless) return undefined;
    this.buffersOut += 1;
    this.largeAcquired += 1;
    return new Uint8Array(size);
  }

  releaseBuffer(_buffer: Uint8Array): void {
    this.buffersOut -= 1;
  }

  submit(buffer: Uint8Array, start: number, end: number): SubmitOutcome {
    if (this.pending.some(({ singleton }) => singleton === undefined))
      throw new Error('a batch was submitted behind one that parks its batcher');
    return this.hand(buffer, start, end, undefined);
  }

  submitSingleton(buffer: Uint8Array, start: number, end: number, singleton: Singleton): SubmitOutcome {
    if (singleton.bytes !== end - start && singleton.kind !== 'open')
      throw new Error(`a singleton of ${singleton.bytes} bytes has ${end - start}`);
    if (this.pending.some((other) => other.singleton === undefined))
      throw new Error('a singleton was submitted behind a batch that parks its batcher');
    const outcome = this.hand(buffer, start, end, singleton);
    if (outcome !== REFUSED) this.singletons.push(singleton);
    return outcome;
  }

  reserveStaging(bytes: number): boolean {
    if (bytes > this.stagingRoom) return false;
    this.stagingRoom -= bytes;
    return true;
  }

  releaseStaging(bytes: number): void {
    this.stagingRoom += bytes;
  }

  /** The bytes of a staged singleton were let go of. */
  fetch(singleton: Singleton): void {
    if (!singleton.staged) throw new Error('it was not staged');
    this.stagingRoom += singleton.bytes;
    singleton.fetched();
  }

  private hand(buffer: Uint8Array, start: number, end: number, singleton: Singleton | undefined): SubmitOutcome {
    if (start !== BATCH_HEADROOM) throw new Error(`a batch starts at ${start}`);
    const refused = singleton !== undefined && this.refusesNext?.(singleton) === true;
    if (refused) this.refusesNext = undefined;
    if (refused || this.mode === 'refuse') {
      this.refused += 1;
      return REFUSED;
    }
    this.buffersOut -= 1;
    const batch = buffer.slice(start, end);
    this.sent.push(batch);
    if (this.mode === 'pend') {
      this.pending.push({ batch, singleton });
      return PENDING;
    }
    this.admitted(batch, singleton);
    return ADMITTED;
  }

  private admitted(batch: Uint8Array, singleton: Singleton | undefined): void {
    if (singleton?.staged && this.onStaged !== undefined) this.onStaged(batch, singleton);
    else this.onAdmitted?.(batch);
  }

  schedule(batcher: Runnable): void {
    this.scheduleCalls += 1;
    this.scheduled.add(batcher);
  }

  /**
   * The oldest batch on its way was admitted (seen by `onAdmitted`) or lost; tell the batcher afterwards, or the singleton that it
   * is.
   */
  resolve(ok: boolean): Singleton | undefined {
    const first = this.pending.shift();
    if (first === undefined) throw new Error('nothing is pending');
    if (ok) this.admitted(first.batch, first.singleton);
    else {
      const at = this.sent.indexOf(first.batch);
      if (at >= 0) this.sent.splice(at, 1);
    }
    return first.singleton;
  }

  get hasPending(): boolean {
    return this.pending.length > 0;
  }

  /** Everything sent so far, decoded; and forgets it. */
  take(): PlainBatch[] {
    return this.sent.splice(0).map(decodeBatch);
  }
}

/** Writes down what the batcher says about one slot. */
export class FakeOwner implements SlotOwner {
  readonly events: string[] = [];
  slot: EgressSlot | undefined;

  opened(slot: EgressSlot, ok: boolean): void {
    this.slot = slot;
    this.events.push(`opened ${ok}`);
  }

  closed(_slot: EgressSlot, reason: ClosedReason): void {
    this.events.push(`closed ${reason}`);
  }

  cancelled(_slot: EgressSlot): void {
    this.events.push('cancelled');
  }

  stopped(_slot: EgressSlot): void {
    this.events.push('stopped');
  }

  retired(_slot: EgressSlot, outcome: Retirement): void {
    this.events.push(`retired ${outcome}`);
  }

  pulledChanged(slot: EgressSlot): void {
    this.events.push(`pulled ${slot.pulledTotal}`);
  }

  count(event: string): number {
    return this.events.filter((e) => e === event).length;
  }
}

export interface FakeReceiverOptions {
  readonly limit?: number;
  readonly byteBudget?: number;
  readonly session?: bigint;
  readonly earlyCancel?: boolean;
  readonly earlyStop?: boolean;
}

/** A consumer with a buffer of C+1 records that takes them when told to. */
export class FakeReceiver implements Receiver {
  readonly limit: number;
  readonly byteBudget: number;
  readonly sessionHi: number;
  readonly sessionLo: number;
  readonly earlyCancel: boolean;
  readonly earlyStop: boolean;
  slot: IngressSlot | undefined;
  /** Frames in the buffer. */
  readonly buffered: Uint8Array[] = [];
  /** Frames the consumer took. */
  readonly taken: Uint8Array[] = [];
  terminals = 0;
  closedCalls = 0;
  maxBuffered = 0;
  /** Answers GONE from here on. */
  gone = false;
  /** Answers FULL earlier than credit says. */
  depthOverride: number | undefined;
  private drained = 0;

  constructor(options: FakeReceiverOptions = {}) {
    const session = options.session ?? 77n;
    this.limit = options.limit ?? 32;
    this.byteBudget = options.byteBudget ?? 1_048_576;
    this.sessionHi = Number(session >> 32n);
    this.sessionLo = Number(session & 0xffff_ffffn);
    this.earlyCancel = options.earlyCancel ?? false;
    this.earlyStop = options.earlyStop ?? false;
  }

  opened(slot: IngressSlot): void {
    if (this.slot !== undefined) throw new Error('a receiver was opened twice');
    this.slot = slot;
  }

  deliver(src: Uint8Array, off: number, len: number, terminal: boolean): DeliverOutcome {
    if (this.closedCalls > 0) throw new Error('a delivery after slotClosed');
    if (this.terminals > 0) throw new Error('a delivery after the terminal');
    if (this.gone) return GONE;
    if (this.buffered.length >= (this.depthOverride ?? this.limit + 1)) return FULL;
    this.buffered.push(src.slice(off, off + len));
    this.maxBuffered = Math.max(this.maxBuffered, this.buffered.length);
    if (terminal) this.terminals += 1;
    return DELIVERED;
  }

  takeDrained(): number {
    const n = this.drained;
    this.drained = 0;
    return n;
  }

  slotClosed(): void {
    this.closedCalls += 1;
    if (this.closedCalls > 1) throw new Error('slotClosed twice');
  }

  /** The consumer takes up to `n` frames. Returns how many it got. */
  take(n: number): number {
    const got = this.buffered.splice(0, n);
    this.taken.push(...got);
    this.drained += got.length;
    return got.length;
  }

  /** A consumer that lies about what it took. */
  claimDrained(n: number): void {
    this.drained += n;
  }

  /** Everything that arrived, taken or not. */
  get frames(): Uint8Array[] {
    return [...this.taken, ...this.buffered];
  }
}
