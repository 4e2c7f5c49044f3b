// Requests whose payload is staged at its sender: the lane pulls it and then hands the request on as an ordinary one. It bounds how
// many are pulled at a time, how many wait, and the bytes of all; it must never allocate by a peer's word alone, and never let
// a request end without its sender being told.

import { VeloError } from '../errors.js';
import { planReply, type ReplyPlan } from '../messenger/dispatch-plan.js';
import { type Claim, FifoBudget } from '../messenger/fifo-budget.js';
import { endLease, type Pulled, type PullRpc, pull } from '../messenger/pull.js';
import type { RendezvousMetrics } from '../messenger/rendezvous-metrics.js';
import { u64High, u64Low } from '../wire/bytes.js';
import type { RequestEnvelope } from '../wire/envelope.js';
import { DataHandle } from '../wire/handle.js';
import { HANDLER_RV_RELEASE, HEADER_RENDEZVOUS } from '../wire/names.js';
import { FRAME_MESSAGE } from '../wire/transport-frame.js';
import { type ClientLink, FRAME_HEAD_BYTES } from './client-link.js';
import { writeU32 } from './commands.js';
import type { LaneCalls } from './lane-calls.js';
import type { PeerLink } from './peer-link.js';

/** Staged requests that may wait for their pull. */
export const MAX_WAITING_PULLS = 1_024;
/** Bytes of their headers. */
export const MAX_WAITING_PULL_BYTES = 16 * 1024 * 1024;
/** A pull that makes its way by small steps still ends: after so many call timeouts. */
const PULL_TIMEOUTS = 4;

export interface StagedIntakeOptions {
  /** A larger payload is refused before memory is taken for it. */
  readonly stagedPayloadMax: number;
  readonly maxPulls: number;
  readonly pullBytesMax: number;
  readonly callTimeoutMs: number;
  readonly metrics: RendezvousMetrics;
  readonly now: () => number;
  /** The lane must end a turn so that the client, or the peer, hears. */
  readonly touched: () => void;
  readonly peerOf: (hi: number, lo: number) => PeerLink | undefined;
  readonly reply: (envelope: RequestEnvelope, plan: ReplyPlan) => void;
  /** An invariant is broken: the lane cannot go on. */
  readonly fail: (error: unknown) => void;
}

interface StagedRequest {
  readonly envelope: RequestEnvelope;
  readonly header: Uint8Array;
  readonly handle: DataHandle;
  readonly owner: PeerLink;
  readonly link: ClientLink;
  readonly place: Claim;
}

export class StagedIntake {
  private readonly places: FifoBudget;
  private readonly bytes: FifoBudget;
  private headerBytes = 0;
  private readonly pulling = new Set<Promise<void>>();

  constructor(
    private readonly options: StagedIntakeOptions,
    private readonly calls: LaneCalls,
  ) {
    const { maxPulls, pullBytesMax } = options;
    this.places = new FifoBudget(maxPulls, 'maxPulls', MAX_WAITING_PULLS);
    this.bytes = new FifoBudget(pullBytesMax, 'pullBytesMax', maxPulls);
  }

  /** Staged requests between their arrival and their hand-over: work in flight, for a drain. */
  get pending(): number {
    return this.places.used + this.places.waiting;
  }

  /** A request with an `_rv` header came for `link`. The buffer is lent. */
  accept(
    envelope: RequestEnvelope,
    buffer: Uint8Array,
    headerAt: number,
    headerLength: number,
    link: ClientLink,
  ): void {
    let request: StagedRequest;
    try {
      const handle = parseHandle(envelope.headers!.get(HEADER_RENDEZVOUS)!);
      const owner = this.options.peerOf(u64High(handle.worker), u64Low(handle.worker));
      if (owner === undefined)
        throw new VeloError('ERR_UNKNOWN_PEER', `worker ${handle.worker}, which owns the payload, is not registered`);
      if (this.headerBytes + headerLength > MAX_WAITING_PULL_BYTES)
        throw new VeloError('ERR_LIMIT', `${this.headerBytes} bytes of staged requests already wait`);
      const place = this.places.take(1);
      const header = new Uint8Array(buffer.subarray(headerAt, headerAt + headerLength));
      request = { envelope, header, handle, owner, link, place };
    } catch (error) {
      this.refuse(envelope, error, 0);
      return;
    }
    this.headerBytes += headerLength;
    const done: Promise<void> = this.resolve(request)
      .catch(this.options.fail)
      .finally(() => {
        this.headerBytes -= headerLength;
        this.pulling.delete(done);
        this.options.touched();
      });
    this.pulling.add(done);
  }

  private async resolve({ envelope, header, handle, owner, link, place }: StagedRequest): Promise<void> {
    const { now, metrics, stagedPayloadMax } = this.options;
    let share: Claim | undefined;
    let body = header;
    let timer: NodeJS.Timeout | undefined;
    const end = (): void => {
      share?.end();
      place.end();
    };
    let started = now();
    try {
      await place.granted;
      started = now();
      const rpc = this.rpc(owner);
      const giveUp = new Promise<never>((_, reject) => {
        const ms = PULL_TIMEOUTS * this.options.callTimeoutMs;
        timer = setTimeout(() => reject(new VeloError('ERR_TIMEOUT', `payload did not come in ${ms} ms`)), ms);
      });
      giveUp.catch(() => {});
      const pulled: Pulled = await pull(rpc, {
        handle,
        maxBytes: stagedPayloadMax,
        limitName: 'stagedPayloadMax',
        refuse: 'release',
        giveUp,
        room: async (length) => {
          share = this.bytes.take(length);
          await share.granted;
          body = frameBody(header, length);
          return body.subarray(FRAME_HEAD_BYTES + header.length);
        },
      });
      endLease(rpc, HANDLER_RV_RELEASE, handle, pulled.leaseId);
      metrics.record('get', true, (now() - started) / 1000);
      metrics.bytes.get += pulled.bytes.length;
      // Its share is kept until the client has room: until then no further payload takes its memory.
      link.giveFrame(FRAME_MESSAGE, body, end);
    } catch (error) {
      end();
      this.refuse(envelope, error, now() - started);
    } finally {
      clearTimeout(timer);
    }
  }

  private refuse(envelope: RequestEnvelope, error: unknown, ms: number): void {
    this.options.metrics.record('get', false, ms / 1000);
    const text = error instanceof Error ? error.message : String(error);
    this.options.reply(envelope, planReply(envelope.responseType, undefined, envelope.handler, unresolved(text)));
  }

  private rpc(owner: PeerLink): PullRpc {
    const { callTimeoutMs, metrics } = this.options;
    const { calls } = this;
    return {
      call: (handler, payload) => calls.call(owner, handler, payload, callTimeoutMs),
      callInto: async (handler, payload, target) => {
        await calls.call(owner, handler, payload, callTimeoutMs, target);
      },
      fire: (handler, payload) => {
        metrics.record(handler === HANDLER_RV_RELEASE ? 'release' : 'detach', true, 0);
        calls.fire(owner, handler, payload);
      },
    };
  }

  /** Nothing is pulled any more: leases are given back, senders are told. Resolves when all of that is on its way. */
  async close(error: VeloError): Promise<void> {
    this.places.rejectAll(error);
    this.bytes.rejectAll(error);
    this.calls.close(error);
    await Promise.all(this.pulling);
  }
}

function unresolved(text: string) {
  return { kind: 'unresolved', text } as const;
}

function parseHandle(text: string): DataHandle {
  try {
    return DataHandle.fromText(text);
  } catch (error) {
    throw new VeloError('ERR_BAD_HANDLE', `invalid rendezvous handle: ${(error as Error).message}`);
  }
}

/** An `EV_FRAME` body with room for `length` bytes of payload. */
function frameBody(header: Uint8Array, length: number): Uint8Array {
  let body: Uint8Array;
  try {
    body = new Uint8Array(FRAME_HEAD_BYTES + header.length + length);
  } catch {
    throw new VeloError('ERR_LIMIT', `no memory for a payload of ${length} bytes`);
  }
  writeU32(body, 0, header.length);
  body.set(header, FRAME_HEAD_BYTES);
  return body;
}
