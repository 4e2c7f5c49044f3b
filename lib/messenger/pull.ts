// Fetches a staged payload from its owner: acquire, every chunk in turn, in order. What the owner says of sizes is checked before
// memory is taken and again with every chunk. It must never keep a lease when it fails, and never release one that succeeded.

import { VeloError } from '../errors.js';
import type { DataHandle } from '../wire/handle.js';
import { HANDLER_RV_ACQUIRE, HANDLER_RV_DETACH, HANDLER_RV_PULL, HANDLER_RV_RELEASE } from '../wire/names.js';
import { type DataReady, dataLease, decodeDataReady, pullRequest } from '../wire/rendezvous-messages.js';
import { encodeReference } from './data-service.js';

/** Chunks of one payload. An owner that cuts finer makes its reader wait for ever. */
export const MAX_CHUNKS = 65_536;

/** Calls to the owner of one payload. */
export interface PullRpc {
  /** Resolves with the answer, in memory of its own. Rejects when it does not come. */
  call(handler: string, payload: Uint8Array): Promise<Uint8Array>;
  /** As `call`, but the answer is written to `target`, and rejects unless it is exactly as long. */
  callInto(handler: string, payload: Uint8Array, target: Uint8Array): Promise<void>;
  /** Sends and looks no further. Never throws. */
  fire(handler: string, payload: Uint8Array): void;
}

export interface PullOrder {
  readonly handle: DataHandle;
  /** A payload of more bytes is refused before anything is allocated for it. */
  readonly maxBytes: number;
  /** Name of that limit, for the refusal. */
  readonly limitName: string;
  /** What becomes of the lease of a payload that is refused: `release` when nobody else reads it, else `detach`. */
  readonly refuse: 'release' | 'detach';
  /** The memory for it, `length` bytes. May wait. */
  readonly room: (length: number) => Uint8Array | Promise<Uint8Array>;
  /** Rejects when the pull is to be given up. */
  readonly giveUp?: Promise<never>;
}

export interface Pulled {
  readonly bytes: Uint8Array;
  /** Held until the caller detaches or releases it. */
  readonly leaseId: bigint;
}

/**
 * Rejects with what a call rejects with, with what `giveUp` rejects with, with `ERR_PAYLOAD_TOO_LARGE` (names both sizes), or with
 * `ERR_BAD_CONTROL_MESSAGE` or `ERR_BAD_JSON` when the owner's answer makes no sense.
 */
export async function pull(rpc: PullRpc, order: PullOrder): Promise<Pulled> {
  const { handle, giveUp } = order;
  const orGiveUp = <T>(step: Promise<T>): Promise<T> => (giveUp === undefined ? step : Promise.race([step, giveUp]));
  const granted = rpc.call(HANDLER_RV_ACQUIRE, encodeReference(handle)).then(decodeDataReady);
  let ready: DataReady;
  try {
    ready = await orGiveUp(granted);
  } catch (error) {
    // The grant may come yet: then it is given back.
    granted.then(
      ({ leaseId }) => endLease(rpc, HANDLER_RV_DETACH, handle, leaseId),
      () => {},
    );
    throw error;
  }
  const { leaseId } = ready;
  if (ready.totalLength > BigInt(order.maxBytes)) {
    endLease(rpc, order.refuse === 'release' ? HANDLER_RV_RELEASE : HANDLER_RV_DETACH, handle, leaseId);
    const sizes = `payload of ${ready.totalLength} bytes is larger than ${order.limitName} = ${order.maxBytes}`;
    throw new VeloError('ERR_PAYLOAD_TOO_LARGE', sizes);
  }
  try {
    const bytes = await pullChunks(rpc, ready, order, orGiveUp);
    return { bytes, leaseId };
  } catch (error) {
    endLease(rpc, HANDLER_RV_DETACH, handle, leaseId);
    throw error;
  }
}

async function pullChunks(
  rpc: PullRpc,
  { transferId, totalLength, chunkSize, chunkCount }: DataReady,
  order: PullOrder,
  orGiveUp: <T>(step: Promise<T>) => Promise<T>,
): Promise<Uint8Array> {
  if (chunkCount > MAX_CHUNKS)
    throw new VeloError('ERR_BAD_CONTROL_MESSAGE', `payload comes in ${chunkCount} chunks, at most ${MAX_CHUNKS}`);
  const length = Number(totalLength);
  const bytes = await orGiveUp(Promise.resolve(order.room(length)));
  for (let chunkIndex = 0; chunkIndex < chunkCount; chunkIndex++) {
    const start = chunkIndex * chunkSize;
    const target = bytes.subarray(start, Math.min(start + chunkSize, length));
    await orGiveUp(rpc.callInto(HANDLER_RV_PULL, pullRequest.encodeJson({ transferId, chunkIndex }), target));
  }
  return bytes;
}

/** Detaches or releases a lease, without waiting. */
export function endLease(rpc: Pick<PullRpc, 'fire'>, handler: string, handle: DataHandle, leaseId: bigint): void {
  rpc.fire(handler, dataLease.encodeJson({ handle, leaseId }));
}

/** A chunk came with another length than its place has. */
export function wrongChunk(got: number, expected: number): VeloError {
  return new VeloError('ERR_BAD_CONTROL_MESSAGE', `chunk of ${got} bytes where ${expected} belong`);
}
