// The payloads that a node keeps for others to pull: reference counts, leases, and the two ways they end without anybody's word.
// Time is an argument. It must never copy a payload and never free one that a live lease reads.
//
// A payload goes when its count is zero and no lease holds it. A message's payload has one reader, so it also goes once the message
// is over, or when nobody was heard of for `stagedTtlMs`. A lease that is not used for `leaseTtlMs` lapses: it holds nothing any
// more, but while the payload is there it may be used again, and its release still counts. Otherwise a reader that takes its
// time before it releases would leave the count too high for ever.

import { VeloError } from '../errors.js';
import type { RendezvousMetrics } from '../metrics/rendezvous-metrics.js';
import type { DataReady } from '../wire/rendezvous-messages.js';

/** Bytes of every chunk but the last. */
export const CHUNK_BYTES = 524_288;
/** Leases that may be out at once, lapsed ones included. */
export const MAX_LEASES = 65_536;
const MAX_REFCOUNT = 0xffff_ffff;
const SWEEPS_PER_TTL = 4;
const MIN_SWEEP_MS = 10;
const MAX_SWEEP_MS = 5_000;

/** `message`: the payload of a request, staged by the node. `registered`: by the application, which also lets go of it. */
export type DataKind = 'message' | 'registered';

export type LeaseOutcome = 'ended' | 'mismatch' | 'unknown';

interface Entry<O> {
  readonly id: number;
  readonly bytes: Uint8Array;
  readonly kind: DataKind;
  readonly owner: O;
  readonly leases: Set<number>;
  refcount: number;
  locks: number;
  /** The message needs its payload no longer. */
  over: boolean;
  /** The first reference is still counted: no release has given it up, nor the end of the message. */
  own: boolean;
  usedAt: number;
}

interface Lease<O> {
  readonly entry: Entry<O>;
  locked: boolean;
  usedAt: number;
}

export interface DataStoreOptions<O> {
  readonly leaseTtlMs: number;
  readonly stagedTtlMs: number;
  readonly metrics: RendezvousMetrics;
  /** A payload was let go of. */
  readonly gone: (id: number, owner: O) => void;
  readonly maxLeases?: number;
}

export interface DataFacts {
  readonly totalLength: number;
  readonly refcount: number;
}

/** `O` is whatever the store's user wants to know of an entry when it goes. */
export class DataStore<O> {
  private readonly entries = new Map<number, Entry<O>>();
  /** A lease and its transfer are one thing here, under one number. */
  private readonly leases = new Map<number, Lease<O>>();
  private nextLease = 1;
  private lapsed = 0;
  private nextSweep = 0;
  private readonly sweepMs: number;
  private readonly maxLeases: number;

  constructor(private readonly options: DataStoreOptions<O>) {
    const shortest = Math.min(options.leaseTtlMs, options.stagedTtlMs);
    this.sweepMs = Math.min(MAX_SWEEP_MS, Math.max(MIN_SWEEP_MS, shortest / SWEEPS_PER_TTL));
    this.maxLeases = options.maxLeases ?? MAX_LEASES;
  }

  get size(): number {
    return this.entries.size;
  }

  get leaseCount(): number {
    return this.leases.size;
  }

  /** Keeps `bytes` under `id`, with a count of one. The memory belongs to the store from here on. */
  put(id: number, bytes: Uint8Array, kind: DataKind, owner: O, now: number): void {
    if (this.entries.has(id)) throw new VeloError('ERR_INTERNAL', `data id ${id} is in use`);
    if (this.entries.size === 0) this.nextSweep = now + this.sweepMs;
    const leases = new Set<number>();
    this.entries.set(id, {
      id,
      bytes,
      kind,
      owner,
      leases,
      refcount: 1,
      locks: 0,
      over: false,
      own: true,
      usedAt: now,
    });
    this.options.metrics.activeSlots = this.entries.size;
    this.options.metrics.activeBytes += bytes.length;
  }

  facts(id: number): DataFacts | undefined {
    const entry = this.entries.get(id);
    return entry && { totalLength: entry.bytes.length, refcount: entry.refcount };
  }

  owner(id: number): O | undefined {
    return this.entries.get(id)?.owner;
  }

  /** One more reference. False when there is no such payload. Throws `ERR_LIMIT` above 2^32 − 1 references. */
  ref(id: number): boolean {
    const entry = this.entries.get(id);
    if (entry === undefined) return false;
    if (entry.refcount === MAX_REFCOUNT) throw new VeloError('ERR_LIMIT', `data ${id} has ${MAX_REFCOUNT} references`);
    entry.refcount += 1;
    return true;
  }

  /** A lease to read `id`; `undefined` when there is no such payload. Throws `ERR_LIMIT` when `MAX_LEASES` are out. */
  acquire(id: number, now: number): DataReady | undefined {
    const entry = this.entries.get(id);
    if (entry === undefined) return undefined;
    if (this.leases.size >= this.maxLeases && this.lapsed > 0) this.forgetLapsed();
    if (this.leases.size >= this.maxLeases) throw new VeloError('ERR_LIMIT', `${this.leases.size} leases are out`);
    const number = this.nextLease++;
    this.leases.set(number, { entry, locked: true, usedAt: now });
    entry.leases.add(number);
    entry.locks += 1;
    entry.usedAt = now;
    return {
      leaseId: BigInt(number),
      transferId: BigInt(number),
      totalLength: BigInt(entry.bytes.length),
      chunkSize: CHUNK_BYTES,
      chunkCount: Math.ceil(entry.bytes.length / CHUNK_BYTES),
    };
  }

  /** One chunk, as a view of the payload: copy it in the same turn. `undefined` for a transfer or index that is not there. */
  chunk(transfer: number, index: number, now: number): Uint8Array | undefined {
    const lease = this.leases.get(transfer);
    if (lease === undefined) return undefined;
    const { bytes } = lease.entry;
    const start = index * CHUNK_BYTES;
    if (start >= bytes.length) return undefined;
    this.use(lease, now);
    return bytes.subarray(start, Math.min(start + CHUNK_BYTES, bytes.length));
  }

  /** The reader is still there. */
  renew(id: number, leaseId: number, now: number): LeaseOutcome {
    const lease = this.leaseOf(id, leaseId);
    if (typeof lease === 'string') return lease;
    this.use(lease, now);
    return 'ended';
  }

  /** The reader needs the payload no longer; its reference stays. */
  detach(id: number, leaseId: number, now: number): LeaseOutcome {
    return this.endLease(id, leaseId, now, 0);
  }

  /** The reader needs neither the payload nor its reference any longer. */
  release(id: number, leaseId: number, now: number): LeaseOutcome {
    return this.endLease(id, leaseId, now, 1);
  }

  /** The message of a staged payload is over (answered, refused, not sent): nobody will come for it any more. */
  over(id: number): void {
    const entry = this.entries.get(id);
    if (entry === undefined || entry.kind !== 'message') return;
    entry.over = true;
    this.freeIfDone(entry);
  }

  /** When `sweep` wants to be called. */
  deadline(): number {
    return this.entries.size === 0 ? Number.POSITIVE_INFINITY : this.nextSweep;
  }

  /** Lets idle leases lapse, and staged messages that nobody fetches expire. */
  sweep(now: number): void {
    this.nextSweep = now + this.sweepMs;
    const { leaseTtlMs, stagedTtlMs, metrics } = this.options;
    for (const lease of this.leases.values()) {
      if (!lease.locked || now - lease.usedAt < leaseTtlMs) continue;
      lease.locked = false;
      lease.entry.locks -= 1;
      this.lapsed += 1;
      metrics.reapedLeases += 1;
      this.freeIfDone(lease.entry);
    }
    for (const entry of this.entries.values()) {
      if (entry.kind !== 'message' || entry.locks > 0 || now - entry.usedAt < stagedTtlMs) continue;
      metrics.expiredSlots += 1;
      this.free(entry);
    }
  }

  private leaseOf(id: number, leaseId: number): Lease<O> | 'mismatch' | 'unknown' {
    const lease = this.leases.get(leaseId);
    if (lease === undefined) return 'unknown';
    return lease.entry.id === id ? lease : 'mismatch';
  }

  private use(lease: Lease<O>, now: number): void {
    lease.usedAt = now;
    lease.entry.usedAt = now;
    if (lease.locked) return;
    lease.locked = true;
    lease.entry.locks += 1;
    this.lapsed -= 1;
  }

  private endLease(id: number, leaseId: number, now: number, references: number): LeaseOutcome {
    const lease = this.leaseOf(id, leaseId);
    if (typeof lease === 'string') return lease;
    const { entry } = lease;
    this.dropLease(leaseId, lease);
    entry.leases.delete(leaseId);
    entry.usedAt = now;
    if (references > 0) entry.own = false;
    entry.refcount = Math.max(0, entry.refcount - references);
    this.freeIfDone(entry);
    return 'ended';
  }

  private dropLease(leaseId: number, lease: Lease<O>): void {
    this.leases.delete(leaseId);
    if (lease.locked) lease.entry.locks -= 1;
    else this.lapsed -= 1;
  }

  private freeIfDone(entry: Entry<O>): void {
    if (entry.locks > 0) return;
    // A message that is over gives up its own reference, once. One beyond that was taken on purpose: it outlives the message.
    if (entry.over && entry.own) {
      entry.own = false;
      entry.refcount -= 1;
    }
    if (entry.refcount === 0) this.free(entry);
  }

  private free(entry: Entry<O>): void {
    if (!this.entries.delete(entry.id)) return;
    for (const leaseId of entry.leases) this.dropLease(leaseId, this.leases.get(leaseId)!);
    this.options.metrics.activeSlots = this.entries.size;
    this.options.metrics.activeBytes -= entry.bytes.length;
    this.options.gone(entry.id, entry.owner);
  }

  private forgetLapsed(): void {
    for (const [leaseId, lease] of this.leases) {
      if (lease.locked) continue;
      this.dropLease(leaseId, lease);
      lease.entry.leases.delete(leaseId);
    }
  }
}
