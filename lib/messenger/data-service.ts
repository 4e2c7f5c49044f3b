// What the owner of staged payloads answers to `_rv_*` requests, as one function from name and payload to an outcome. The texts are
// those of the wire. It must never send.

import { VeloError } from '../errors.js';
import type { RendezvousMetrics } from '../metrics/rendezvous-metrics.js';
import type { DataHandle } from '../wire/handle.js';
import {
  HANDLER_RV_ACQUIRE,
  HANDLER_RV_DETACH,
  HANDLER_RV_LEASE_RENEW,
  HANDLER_RV_METADATA,
  HANDLER_RV_PULL,
  HANDLER_RV_REF,
  HANDLER_RV_RELEASE,
} from '../wire/names.js';
import {
  type DataReference,
  dataLease,
  dataMetadata,
  dataReference,
  encodeDataReady,
  pullRequest,
} from '../wire/rendezvous-messages.js';
import type { DataStore, LeaseOutcome } from './data-store.js';
import type { HandlerKind, HandlerOutcome } from './dispatch-plan.js';

/** How the texts begin that a reader takes for "no such payload". */
export const DATA_NOT_FOUND_TEXT = 'rendezvous handle not found: ';
export const REF_NOT_FOUND_TEXT = '_rv_ref: handle not found: ';

type Service = (payload: Uint8Array, now: number) => Uint8Array | undefined;

type Store = Pick<DataStore<unknown>, 'facts' | 'acquire' | 'chunk' | 'ref' | 'detach' | 'release' | 'renew'>;

interface Entry {
  readonly kind: HandlerKind;
  readonly serve: Service;
}

export class DataService {
  private readonly services: ReadonlyMap<string, Entry>;

  constructor(
    /** WorkerId of this node: a handle of another node names nothing here. */
    private readonly worker: bigint,
    private readonly store: Store,
    private readonly metrics: RendezvousMetrics,
  ) {
    this.services = new Map<string, Entry>([
      [HANDLER_RV_METADATA, { kind: 'typedUnary', serve: (payload) => this.metadata(payload) }],
      [HANDLER_RV_ACQUIRE, { kind: 'typedUnary', serve: (payload, now) => this.acquire(payload, now) }],
      [HANDLER_RV_PULL, { kind: 'unary', serve: (payload, now) => this.pull(payload, now) }],
      [HANDLER_RV_REF, { kind: 'unary', serve: (payload) => this.ref(payload) }],
      [HANDLER_RV_DETACH, { kind: 'am', serve: (payload, now) => this.lease(payload, now, 'detach') }],
      [HANDLER_RV_RELEASE, { kind: 'am', serve: (payload, now) => this.lease(payload, now, 'release') }],
      [HANDLER_RV_LEASE_RENEW, { kind: 'am', serve: (payload, now) => this.lease(payload, now, 'renew') }],
    ]);
  }

  /** What kind of handler serves the name, for the reply; `undefined` for a name that is not served here. */
  kindOf(handler: string): HandlerKind | undefined {
    return this.services.get(handler)?.kind;
  }

  /** Serves a request. What it answers may be a view of a staged payload: encode it in the same turn. Never throws. */
  serve(handler: string, payload: Uint8Array, now: number): HandlerOutcome {
    const { kind, serve } = this.services.get(handler)!;
    try {
      return { kind: 'ok', bytes: serve(payload, now) };
    } catch (error) {
      if (!VeloError.is(error)) throw error;
      const badInput = error.code === 'ERR_BAD_JSON' || error.code === 'ERR_BAD_CONTROL_MESSAGE';
      return { kind: badInput && kind === 'typedUnary' ? 'badInput' : 'failed', text: error.message };
    }
  }

  private metadata(payload: Uint8Array): Uint8Array {
    const { handle } = dataReference.decodeJson(payload);
    const facts = this.store.facts(this.localOf(handle));
    if (facts === undefined) throw notFound(DATA_NOT_FOUND_TEXT, handle);
    return dataMetadata.encodeJson({
      totalLength: BigInt(facts.totalLength),
      refcount: facts.refcount,
      pinned: false,
    });
  }

  private acquire(payload: Uint8Array, now: number): Uint8Array {
    const { handle } = dataReference.decodeJson(payload);
    const ready = this.store.acquire(this.localOf(handle), now);
    if (ready === undefined) throw notFound(DATA_NOT_FOUND_TEXT, handle);
    return encodeDataReady(ready);
  }

  private pull(payload: Uint8Array, now: number): Uint8Array {
    const { transferId, chunkIndex } = pullRequest.decodeJson(payload);
    const chunk = this.store.chunk(Number(transferId), chunkIndex, now);
    if (chunk === undefined)
      throw new VeloError('ERR_UNKNOWN_DATA', `chunk not found: transfer_id=${transferId}, chunk_index=${chunkIndex}`);
    return chunk;
  }

  private ref(payload: Uint8Array): undefined {
    const { handle } = dataReference.decodeJson(payload);
    if (!this.store.ref(this.localOf(handle))) throw notFound(REF_NOT_FOUND_TEXT, handle);
  }

  /** A lease that is unknown, used, or another payload's changes nothing, and nobody is told: so do the peers. */
  private lease(payload: Uint8Array, now: number, action: 'detach' | 'release' | 'renew'): undefined {
    const { handle, leaseId } = dataLease.decodeJson(payload);
    const outcome: LeaseOutcome = this.store[action](this.localOf(handle), Number(leaseId), now);
    if (outcome !== 'ended') this.metrics.badLeases += 1;
  }

  /** The number in the store; 0, which is never given out, for a handle of another node. */
  private localOf({ worker, local }: DataHandle): number {
    return worker === this.worker ? Number(local) : 0;
  }
}

/** The payload of a request that names a handle. */
export function encodeReference(handle: DataHandle): Uint8Array {
  const reference: DataReference = { handle };
  return dataReference.encodeJson(reference);
}

function notFound(text: string, handle: DataHandle): VeloError {
  return new VeloError('ERR_UNKNOWN_DATA', `${text}${handle}`);
}
