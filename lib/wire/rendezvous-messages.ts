// The messages that move a staged payload (messenger specification §6.3). Owns their JSON and the size from which a payload is
// staged; it must never keep a payload or a lease.

import { VeloError } from '../errors.js';
import type { DataHandle } from './handle.js';
import { encodeJson } from './json.js';
import { JsonFields } from './json-fields.js';
import { MessageCodec, parseControlJson } from './message-codec.js';

/** The largest payload of a request that travels in its frame; a larger one is staged, and its receiver pulls it. */
export const STAGING_THRESHOLD = 262_144;

/** Payload of `_rv_acquire`, `_rv_metadata` and `_rv_ref`. */
export interface DataReference {
  handle: DataHandle;
}

/** Payload of `_rv_release`, `_rv_detach` and `_rv_lease_renew`. */
export interface DataLease extends DataReference {
  leaseId: bigint;
}

/** Payload of `_rv_pull`. */
export interface PullRequest {
  transferId: bigint;
  chunkIndex: number;
}

/** The answer of `_rv_acquire`. */
export interface DataReady {
  leaseId: bigint;
  transferId: bigint;
  totalLength: bigint;
  chunkSize: number;
  chunkCount: number;
}

/** The answer of `_rv_metadata`. */
export interface DataMetadata {
  totalLength: bigint;
  refcount: number;
  pinned: boolean;
}

export const dataReference: MessageCodec<DataReference> = new MessageCodec<DataReference>('DataReference', [
  { wire: 'handle', name: 'handle', kind: 'dataHandle' },
]);

export const dataLease: MessageCodec<DataLease> = new MessageCodec<DataLease>('DataLease', [
  { wire: 'handle', name: 'handle', kind: 'dataHandle' },
  { wire: 'lease_id', name: 'leaseId', kind: 'u64' },
]);

export const pullRequest: MessageCodec<PullRequest> = new MessageCodec<PullRequest>('PullRequest', [
  { wire: 'transfer_id', name: 'transferId', kind: 'u64' },
  { wire: 'chunk_index', name: 'chunkIndex', kind: 'u32' },
]);

const READY = 'Ready';
const ready = new MessageCodec<DataReady>('AcquireResponse.Ready', [
  { wire: 'lease_id', name: 'leaseId', kind: 'u64' },
  { wire: 'transfer_id', name: 'transferId', kind: 'u64' },
  { wire: 'total_len', name: 'totalLength', kind: 'u64' },
  { wire: 'chunk_size', name: 'chunkSize', kind: 'u32' },
  { wire: 'chunk_count', name: 'chunkCount', kind: 'u32' },
]);

export const dataMetadata: MessageCodec<DataMetadata> = new MessageCodec<DataMetadata>('DataMetadata', [
  { wire: 'total_len', name: 'totalLength', kind: 'u64' },
  { wire: 'refcount', name: 'refcount', kind: 'u32' },
  { wire: 'pinned', name: 'pinned', kind: 'boolean' },
]);

export function encodeDataReady(value: DataReady): Uint8Array {
  return encodeJson({ [READY]: ready.toJSON(value) });
}

/**
 * Reads the answer of `_rv_acquire` and checks that its chunks cover its length exactly, so that a puller can size its
 * buffer by it.
 *
 * @throws VeloError `ERR_BAD_JSON` or `ERR_BAD_CONTROL_MESSAGE`.
 */
export function decodeDataReady(bytes: Uint8Array): DataReady {
  const members = new JsonFields(parseControlJson(bytes, 'AcquireResponse'), 'AcquireResponse');
  if (!members.has(READY)) throw new VeloError('ERR_BAD_CONTROL_MESSAGE', 'AcquireResponse: not Ready');
  const value = ready.fromJSON(members.get(READY));
  if (!isCovered(value))
    throw new VeloError('ERR_BAD_CONTROL_MESSAGE', 'AcquireResponse.Ready: chunks and length differ');
  return value;
}

function isCovered(value: DataReady): boolean {
  const size = BigInt(value.chunkSize);
  const count = BigInt(value.chunkCount);
  if (value.totalLength === 0n) return count === 0n;
  return size > 0n && count > 0n && count * size >= value.totalLength && (count - 1n) * size < value.totalLength;
}
