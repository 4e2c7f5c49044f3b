// Requests whose payload is staged at its sender: the lane pulls it and then hands the request on as an ordinary one. It bounds how
// many are pulled at a time, how many wait, and the bytes of all, half of each for one owner; it must never allocate by a peer's word
// alone, never let one peer keep the others from being served, and never let a request end without its sender being told.

import { VeloError } from '../errors.js';
import { planReply, type ReplyPlan } from '../messenger/dispatch-plan.js';
import { FairBudget } from '../messenger/fair-budget.js';
import type { Claim } from '../messenger/fifo-budget.js';
import { endLease, type PullRpc, pull } from '../messenger/pull.js';
import type { RendezvousMetrics } from '../metrics/rendezvous-metrics.js';
import { u64High, u64Low } from '../wire/bytes.js';
import type { RequestEnvelope } from '../wire/envelope.js';
import { DataHandle } from '../wire/handle.js';
import { HANDLER_RV_RELEASE, HEADER_RENDEZVOUS } from '../wire/names.js';
import { FRAME_MESSAGE } from '../wire/transport-frame.js';
import type { BatchSource, Fetched } from './batch-shelf.js';
import type { ClientLink } from './client-link.js';
import { FRAME_HEAD_BYTES, writeU32 } from './commands.js';
import type { DrainGate } from './drain-gate.js';
import type { LaneCalls } from './lane-calls.js';
import type { LaneMetrics } from './lane-metrics.js';
import type { PeerLink } from './peer-link.js';

/** Staged requests that may wait for their pull. */
export const MAX_WAITING_PULLS = 1_024;
/** Bytes of their headers. */
export const MAX_WAITING_PULL_BYTES = 16 * 1024 * 1024;
/** A pull that makes its way by small steps still ends: after so many call timeouts. */
const PULL_TIMEOUTS = 4;
/** A timer takes no more. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

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
  /** An invariant is broken: the lane cannot go on. */
  readonly fail: (error: unknown) => void;
  readonly counts: Pick<LaneMetrics, 'messagesToClients'>;
  /** A drain waits for what is being pulled. */
  readonly gate: Pick<DrainGate, 'hold' | 'release'>;
}

/** Who knows the peers. */
export interface RendezvousRouter {
  peerOf(hi: number, lo: number): PeerLink | undefined;
  reply(envelope: RequestEnvelope, plan: ReplyPlan): void;
}

/** What is pulled, from whom, and the place it has among the pulls. */
interface Fetch {
  readonly handle: DataHandle;
  readonly owner: PeerLink;
  readonly place: Claim;
}

export class StagedIntake implements BatchSource {
  // By owner of the payload: what it does not answer holds its own places only.
  private readonly places: FairBudget<PeerLink>;
  private readonly bytes: FairBudget<PeerLink>;
  private readonly headers: FairBudget<PeerLink>;
  private readonly pulling = new Set<Promise<void>>();

  constructor(
    private readonly options: StagedIntakeOptions,
    private readonly router: RendezvousRouter,
    private readonly calls: LaneCalls,
  ) {
    const { maxPulls, pullBytesMax } = options;
    this.places = new FairBudget(maxPulls, 'maxPulls', MAX_WAITING_PULLS);
    // Each has a place.
    this.bytes = new FairBudget(pullBytesMax, 'pullBytesMax', 2 * maxPulls);
    this.headers = new FairBudget(MAX_WAITING_PULL_BYTES, 'bytes of waiting headers', 0);
  }

  /** A request with an `_rv` header came for `link`. The buffer is lent. */
  accept(
    envelope: RequestEnvelope,
    buffer: Uint8Array,
    headerAt: number,
    headerLength: number,
    link: ClientLink,
  ): void {
    let fetch: Fetch | undefined;
    let kept: Claim;
    try {
      fetch = this.place(envelope);
      kept = this.headers.take(fetch.owner, headerLength);
    } catch (error) {
      fetch?.place.end();
      this.options.metrics.record('get', false, 0);
      this.refuse(envelope, error);
      return;
    }
    const { gate } = this.options;
    gate.hold();
    // Until it is refused it is on its way to the client.
    this.options.counts.messagesToClients += 1;
    const head = new Uint8Array(FRAME_HEAD_BYTES + headerLength);
    writeU32(head, 0, headerLength);
    head.set(buffer.subarray(headerAt, headerAt + headerLength), FRAME_HEAD_BYTES);
    const work = this.fetch(fetch, head)
      // Its share is kept until the client has room: until then no further payload takes its memory.
      .then(
        ({ bytes, end }) =>
          link.messages.give(FRAME_MESSAGE, bytes, () => {
            end();
            gate.release();
          }),
        (error: unknown) => {
          this.options.counts.messagesToClients -= 1;
          this.refuse(envelope, error);
          gate.release();
        },
      )
      .finally(kept.end);
    this.track(work);
  }

  /** Pulls the payload that an envelope names, behind a copy of `head`. Rejects with what keeps it from coming. */
  async take(envelope: Pick<RequestEnvelope, 'headers'>, head: Uint8Array): Promise<Fetched> {
    return await this.fetch(this.place(envelope), head);
  }

  /** Whoever closes the intake waits for `work`, and the lane ends a turn after it. What it throws ends the lane. */
  track(work: Promise<void>): void {
    const done: Promise<void> = work.catch(this.options.fail).finally(() => {
      this.pulling.delete(done);
      this.options.touched();
    });
    this.pulling.add(done);
  }

  /** Throws when the handle is none, nobody knows its owner, or too many wait already. */
  private place({ headers }: Pick<RequestEnvelope, 'headers'>): Fetch {
    const handle = parseHandle(headers!.get(HEADER_RENDEZVOUS)!);
    const owner = this.router.peerOf(u64High(handle.worker), u64Low(handle.worker));
    if (owner === undefined)
      throw new VeloError('ERR_UNKNOWN_PEER', `worker ${handle.worker}, which owns the payload, is not registered`);
    return { handle, owner, place: this.places.take(owner, 1) };
  }

  /** Pulls a payload and releases it at its owner. It comes behind a copy of `head`, in memory of its own. */
  private async fetch({ handle, owner, place }: Fetch, head: Uint8Array): Promise<Fetched> {
    const { now, metrics, stagedPayloadMax, callTimeoutMs } = this.options;
    const rpc = this.rpc(owner);
    let bytes = head;
    let share: Claim | undefined;
    let timer: NodeJS.Timeout | undefined;
    let started = now();
    const end = (): void => {
      share?.end();
      place.end();
    };
    try {
      await place.granted;
      started = now();
      const giveUp = new Promise<never>((_, reject) => {
        const ms = Math.min(PULL_TIMEOUTS * callTimeoutMs, MAX_TIMEOUT_MS);
        timer = setTimeout(() => reject(new VeloError('ERR_TIMEOUT', `the payload did not come in ${ms} ms`)), ms);
      });
      giveUp.catch(() => {});
      const room = async (length: number): Promise<Uint8Array> => {
        share = this.bytes.take(owner, length);
        await share.granted;
        bytes = behind(head, length);
        return bytes.subarray(head.length);
      };
      const limits = { maxBytes: stagedPayloadMax, limitName: 'stagedPayloadMax', refuse: 'release' } as const;
      const { leaseId } = await pull(rpc, { handle, ...limits, room, giveUp });
      endLease(rpc, HANDLER_RV_RELEASE, handle, leaseId);
      metrics.record('get', true, (now() - started) / 1000);
      metrics.bytes.get += bytes.length - head.length;
      return { bytes, end };
    } catch (error) {
      end();
      metrics.record('get', false, (now() - started) / 1000);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  private refuse(envelope: RequestEnvelope, error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    const outcome = { kind: 'unresolved', text } as const;
    this.router.reply(envelope, planReply(envelope.responseType, undefined, envelope.handler, outcome));
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

function parseHandle(text: string): DataHandle {
  try {
    return DataHandle.fromText(text);
  } catch (error) {
    throw new VeloError('ERR_BAD_HANDLE', `invalid rendezvous handle: ${(error as Error).message}`);
  }
}

/** `head`, and room for `length` bytes behind it. */
function behind(head: Uint8Array, length: number): Uint8Array {
  try {
    const bytes = new Uint8Array(head.length + length);
    bytes.set(head);
    return bytes;
  } catch {
    throw new VeloError('ERR_LIMIT', `no memory for a payload of ${length} bytes`);
  }
}
