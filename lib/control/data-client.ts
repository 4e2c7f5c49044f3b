// Data handles for applications: data that this node offers, and the data of others, or its own, by handle. What it does goes over
// the wire's own requests, also to this node itself. It must never hold a payload beyond the lease that it hands out.

import { performance } from 'node:perf_hooks';
import { VeloError } from '../errors.js';
import { SELF_PEER } from '../lanes/commands.js';
import { DATA_NOT_FOUND_TEXT, encodeReference, REF_NOT_FOUND_TEXT } from '../messenger/data-service.js';
import { type PullRpc, pull, wrongChunk } from '../messenger/pull.js';
import { RendezvousMetrics, type RendezvousOperation } from '../metrics/rendezvous-metrics.js';
import { RESPONSE_UNARY } from '../wire/envelope.js';
import type { DataHandle } from '../wire/handle.js';
import {
  HANDLER_RV_ACQUIRE,
  HANDLER_RV_DETACH,
  HANDLER_RV_METADATA,
  HANDLER_RV_REF,
  HANDLER_RV_RELEASE,
} from '../wire/names.js';
import type { PeerInfo } from '../wire/peer-info.js';
import { dataLease, dataMetadata, decodeDataReady } from '../wire/rendezvous-messages.js';
import type { CallOptions, Calls } from './calls.js';
import type { Messenger } from './messenger.js';
import type { Peer } from './peer-book.js';
import type { Staging } from './staging.js';

const MAX_TIMEOUT_MS = 2 ** 31 - 1;

export interface GetOptions {
  /** Gives up waiting; what was granted is given back. */
  signal?: AbortSignal | undefined;
  /** Milliseconds for all of it. Default: none, but each step has the node's `callTimeoutMs`. */
  timeoutMs?: number | undefined;
  /** A larger payload rejects with `ERR_PAYLOAD_TOO_LARGE`, before memory is taken for it. Default: `stagedPayloadMax`. */
  maxBytes?: number | undefined;
}

/** What the owner says of a payload. */
export interface DataInfo {
  totalLength: number;
  refcount: number;
  /** In memory that a peer may read by itself; never of a velomux node. */
  pinned: boolean;
}

/** Data that was fetched, and the lease on it that its owner keeps until `detach` or `release`. One of them, once. */
export class DataLease implements AsyncDisposable, Disposable {
  private used = false;

  constructor(
    readonly handle: DataHandle,
    /** A copy of its own: it stays valid after the lease. */
    readonly bytes: Uint8Array,
    private readonly finish: (handler: string) => Promise<void>,
  ) {}

  /** Ends the lease; the data keeps its references. Rejects with `ERR_LEASE_USED` the second time, or as a send does. */
  async detach(): Promise<void> {
    await this.end(HANDLER_RV_DETACH);
  }

  /** Ends the lease and gives up one reference; the owner frees data without any. Rejects as `detach` does. */
  async release(): Promise<void> {
    await this.end(HANDLER_RV_RELEASE);
  }

  /** `release`, unless the lease was ended already. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.used) await this.release();
  }

  /** The same, without waiting; nobody hears of a failure. */
  [Symbol.dispose](): void {
    if (!this.used) this.release().catch(() => {});
  }

  private async end(handler: string): Promise<void> {
    if (this.used) throw new VeloError('ERR_LEASE_USED', `the lease on ${this.handle} was ended already`);
    this.used = true;
    await this.finish(handler);
  }
}

export class DataClient {
  /** Operations of the application. What lanes do by themselves, they count. */
  readonly metrics = new RendezvousMetrics();
  private readonly self: Peer;

  constructor(
    info: PeerInfo,
    private readonly staging: Staging,
    private readonly messenger: Messenger,
    private readonly calls: Calls,
    private readonly stagedPayloadMax: number,
  ) {
    // No lane has a route to it: what is sent there is answered by the lane itself.
    this.self = { number: SELF_PEER, info, knowsUs: true } as Peer;
  }

  /** Offers a copy of `bytes`. */
  register(bytes: Uint8Array): DataHandle {
    const handle = this.staging.mint();
    this.staging.register(Number(handle.local), bytes);
    return handle;
  }

  get(handle: DataHandle, options: GetOptions = {}): Promise<DataLease> {
    const { maxBytes = this.stagedPayloadMax } = options;
    if (!Number.isSafeInteger(maxBytes) || maxBytes < 0)
      return Promise.reject(
        new VeloError('ERR_INVALID_ARGUMENT', `maxBytes = ${maxBytes}: expected a number of bytes`),
      );
    return this.observed('get', async () => {
      const limit = new GiveUp(handle, options);
      try {
        const { peer } = await limit.race(this.ownerOf(handle, HANDLER_RV_ACQUIRE, {}));
        await limit.race(this.messenger.introduce(peer));
        const { bytes, leaseId } = await pull(this.rpc(peer), {
          handle,
          maxBytes,
          limitName: options.maxBytes === undefined ? 'stagedPayloadMax' : 'maxBytes',
          refuse: 'detach',
          giveUp: limit.promise,
          room: memoryFor,
        });
        this.metrics.bytes.get += bytes.length;
        return new DataLease(handle, bytes, (handler) => this.endLease(peer, handler, handle, leaseId));
      } finally {
        limit.clear();
      }
    });
  }

  metadata(handle: DataHandle, options: CallOptions = {}): Promise<DataInfo> {
    return this.observed('metadata', async () => {
      const { answer } = await this.ask(HANDLER_RV_METADATA, handle, options);
      const { totalLength, refcount, pinned } = dataMetadata.decodeJson(answer);
      return { totalLength: Number(totalLength), refcount, pinned };
    });
  }

  ref(handle: DataHandle, options: CallOptions = {}): Promise<void> {
    return this.observed('ref', async () => {
      await this.ask(HANDLER_RV_REF, handle, options);
    });
  }

  /** Gives up one reference without fetching the data. */
  async release(handle: DataHandle, options: CallOptions = {}): Promise<void> {
    const { peer, answer } = await this.ask(HANDLER_RV_ACQUIRE, handle, options).catch((error: unknown) => {
      throw unknownData(error);
    });
    const { leaseId } = decodeDataReady(answer);
    await this.endLease(peer, HANDLER_RV_RELEASE, handle, leaseId);
  }

  private endLease(peer: Peer, handler: string, handle: DataHandle, leaseId: bigint): Promise<void> {
    const operation = handler === HANDLER_RV_RELEASE ? 'release' : 'detach';
    return this.observed(operation, () => this.calls.fire(peer, handler, dataLease.encodeJson({ handle, leaseId })));
  }

  private async ask(
    handler: string,
    handle: DataHandle,
    options: CallOptions,
  ): Promise<{ peer: Peer; answer: Uint8Array }> {
    const { peer, left } = await this.ownerOf(handle, handler, options);
    const rest = peer.knowsUs
      ? left
      : await this.calls.prepare(peer.info.instanceId, handler, left, () => this.messenger.introduce(peer));
    const answer = await this.calls.call(peer, handler, RESPONSE_UNARY, encodeReference(handle), rest);
    return { peer, answer };
  }

  /** This node, a peer that is registered, or one that the directory knows; and what is left of the call's time. */
  private async ownerOf(
    handle: DataHandle,
    handler: string,
    options: CallOptions,
  ): Promise<{ peer: Peer; left: CallOptions }> {
    const { self } = this;
    if (handle.worker === self.info.workerId) return { peer: self, left: options };
    return await this.messenger.locate(handle.worker, handler, options);
  }

  private rpc(peer: Peer): PullRpc {
    const { calls } = this;
    return {
      call: (handler, payload) => calls.call(peer, handler, RESPONSE_UNARY, payload),
      callInto: async (handler, payload, target) => {
        const chunk = await calls.call(peer, handler, RESPONSE_UNARY, payload);
        if (chunk.length !== target.length) throw wrongChunk(chunk.length, target.length);
        target.set(chunk);
      },
      // The lease lapses at its owner if this is lost.
      fire: (handler, payload) => void calls.fire(peer, handler, payload).catch(() => {}),
    };
  }

  private async observed<R>(operation: RendezvousOperation, run: () => Promise<R>): Promise<R> {
    const started = performance.now();
    const record = (ok: boolean) => this.metrics.record(operation, ok, (performance.now() - started) / 1000);
    try {
      const result = await run();
      record(true);
      return result;
    } catch (error) {
      record(false);
      throw unknownData(error);
    }
  }
}

/** The end of a caller's patience with a whole `get`. */
class GiveUp {
  readonly promise: Promise<never>;
  private readonly timer: NodeJS.Timeout | undefined;
  readonly clear: () => void;

  constructor(handle: DataHandle, { signal, timeoutMs }: GetOptions) {
    if (signal?.aborted) throw aborted(handle, signal);
    if (timeoutMs !== undefined && !(timeoutMs >= 0 && timeoutMs <= MAX_TIMEOUT_MS))
      throw new VeloError('ERR_INVALID_ARGUMENT', `timeoutMs = ${timeoutMs}: expected 0 to ${MAX_TIMEOUT_MS}`);
    let reject!: (error: VeloError) => void;
    this.promise = new Promise((_, no) => {
      reject = no;
    });
    this.promise.catch(() => {});
    const onAbort = () => reject(aborted(handle, signal!));
    signal?.addEventListener('abort', onAbort, { once: true });
    if (timeoutMs !== undefined) {
      const late = new VeloError('ERR_TIMEOUT', `${handle} did not come in ${timeoutMs} ms`);
      this.timer = setTimeout(() => reject(late), timeoutMs);
    }
    this.clear = () => {
      clearTimeout(this.timer);
      signal?.removeEventListener('abort', onAbort);
    };
  }

  race<T>(step: Promise<T>): Promise<T> {
    return Promise.race([step, this.promise]);
  }
}

function aborted(handle: DataHandle, signal: AbortSignal): VeloError {
  return new VeloError('ERR_ABORTED', `get of ${handle} was aborted`, { cause: signal.reason });
}

function memoryFor(length: number): Uint8Array {
  try {
    return new Uint8Array(length);
  } catch (cause) {
    throw new VeloError('ERR_LIMIT', `no memory for a payload of ${length} bytes`, { cause });
  }
}

/** The owner's text becomes a code: it has none of its own on the wire. */
function unknownData(error: unknown): unknown {
  if (!VeloError.is(error, 'ERR_HANDLER_FAILED')) return error;
  const { message } = error;
  const unknown = message.startsWith(DATA_NOT_FOUND_TEXT) || message.startsWith(REF_NOT_FOUND_TEXT);
  return unknown || message.startsWith('chunk not found: ')
    ? new VeloError('ERR_UNKNOWN_DATA', message, { cause: error })
    : error;
}
