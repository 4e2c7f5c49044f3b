// Messages of this thread to peers, and the calls among them that wait for an answer. It hands them over, and ends every call: by
// its answer, by its own timeout, by an abort, or by an error with a code.

import { performance } from 'node:perf_hooks';
import { VeloError } from '../errors.js';
import { SHUTTING_DOWN_TEXT, unknownHandlerText } from '../messenger/dispatch-plan.js';
import type { Claim } from '../messenger/fifo-budget.js';
import type { InboundAnswer, InboundRefusal } from '../messenger/inbound-message.js';
import { decodeErrorText } from '../messenger/replies.js';
import { type ResponseSlot, ResponseTable } from '../messenger/response-table.js';
import { RESPONSE_NONE } from '../wire/envelope.js';
import { STAGING_THRESHOLD } from '../wire/rendezvous-messages.js';
import { type ResponseId, readResponseId } from '../wire/response-id.js';
import type { Outbox } from './outbox.js';
import type { Peer } from './peer-book.js';

/** A timer takes no more. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

export interface SendOptions {
  /** Header map of the message, strings only. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** Gives up waiting; what was sent is not withdrawn. */
  signal?: AbortSignal | undefined;
  /**
   * Waits, in order, where the message would fail: with `ERR_RESPONSE_SLOTS_EXHAUSTED` because all 65,535 response slots are
   * taken, or with `ERR_LIMIT` because a payload above 262,144 bytes finds no room under `stagedBytesMax`. Default false. At
   * most 4,096 may wait for either (`ERR_LIMIT`), within the timeout of the call (of a `send`: the node's `callTimeoutMs`).
   * The payload is read when there is room.
   */
  awaitCapacity?: boolean | undefined;
}

export interface CallOptions extends SendOptions {
  /** Milliseconds until the call fails with `ERR_TIMEOUT`. Default: the node's `callTimeoutMs`. */
  timeoutMs?: number | undefined;
}

interface PendingCall {
  readonly peer: Peer;
  readonly handler: string;
  readonly resolve: (payload: Uint8Array) => void;
  readonly reject: (error: VeloError) => void;
  timer: NodeJS.Timeout | undefined;
  unlisten: () => void;
  /** It has resolved or rejected. */
  ended: boolean;
  /** Id of the staged payload; 0: it travels in the frame. */
  staged: number;
}

interface PendingAdmission {
  readonly resolve: () => void;
  readonly reject: (error: VeloError) => void;
}

export class Calls {
  private readonly table = new ResponseTable<PendingCall>();
  private readonly admissions = new Map<number, PendingAdmission>();
  private nextToken = 1;

  constructor(
    private readonly outbox: Outbox,
    private readonly timeoutMs: number,
  ) {}

  /** Calls that wait for an answer. */
  get pending(): number {
    return this.table.size;
  }

  /** Sends that found every response slot taken. */
  get slotsExhausted(): number {
    return this.table.counts.exhausted;
  }

  /** Answers that found no caller here: late ones, second ones, made-up ones. */
  get lateAnswers(): number {
    const { foreign, outOfRange, notInUse, stale } = this.table.counts;
    return foreign + outOfRange + notInUse + stale;
  }

  /**
   * Sends a request and resolves with its answer's payload. Rejects with `ERR_TIMEOUT`, `ERR_ABORTED`, `ERR_UNKNOWN_HANDLER`,
   * `ERR_HANDLER_FAILED` (the peer's text), `ERR_PEER_SHUTTING_DOWN`, `ERR_CONNECT_FAILED`, `ERR_CONNECTION_CLOSED`,
   * `ERR_PAYLOAD_TOO_LARGE`, `ERR_LIMIT`, `ERR_RESPONSE_SLOTS_EXHAUSTED` or `ERR_LANE_DIED`.
   */
  call(
    peer: Peer,
    handler: string,
    responseType: number,
    payload: Uint8Array,
    options: CallOptions = {},
  ): Promise<Uint8Array> {
    if (options.awaitCapacity && this.needsShare(payload.length))
      return this.whenRoom(peer, handler, payload, options, (left, share) =>
        this.callNow(peer, handler, responseType, payload, left, share),
      );
    return this.callNow(peer, handler, responseType, payload, options, undefined);
  }

  private callNow(
    peer: Peer,
    handler: string,
    responseType: number,
    payload: Uint8Array,
    options: CallOptions,
    share: Claim | undefined,
  ): Promise<Uint8Array> {
    const { signal, timeoutMs = this.timeoutMs, headers } = options;
    if (signal?.aborted) return Promise.reject(aborted(handler, signal));
    if (!(timeoutMs >= 0 && timeoutMs <= MAX_TIMEOUT_MS)) return Promise.reject(badTimeout(timeoutMs));
    return new Promise((resolve, reject) => {
      const call: PendingCall = { ...nobody(peer, handler), resolve, reject };
      let slot: ResponseSlot | undefined;
      let waiting: AbortController | undefined;
      const end = (error: unknown) => {
        if (call.ended) return;
        if (slot === undefined) waiting?.abort();
        else this.table.complete(slot.slot, slot.generation);
        this.settled(call);
        this.outbox.staging.drop(call.staged);
        reject(error);
      };
      const post = (given: ResponseSlot) => {
        slot = given;
        try {
          call.staged = this.outbox.submit(0, { peer, slot, handler, responseType, payload, headers }, share);
        } catch (error) {
          end(error);
        }
      };
      if (signal !== undefined) {
        const onAbort = () => end(aborted(handler, signal));
        signal.addEventListener('abort', onAbort, { once: true });
        call.unlisten = () => signal.removeEventListener('abort', onAbort);
      }
      call.timer = setTimeout(() => end(timedOut(peer.info.instanceId, handler, timeoutMs)), timeoutMs);
      if (!options.awaitCapacity || !this.table.isFull) {
        try {
          post(this.table.allocate(call));
        } catch (error) {
          end(error);
        }
        return;
      }
      waiting = new AbortController();
      this.table.awaitCapacity(call, waiting.signal).then((given) => {
        // It may have been given up between the grant and this turn.
        if (call.ended) this.table.complete(given.slot, given.generation);
        else post(given);
      }, end);
    });
  }

  /**
   * Waits for what a call needs before it can be made, no longer than the call would wait itself; what is waited for goes on.
   * Resolves with the options that are left for the call.
   */
  async prepare<O extends CallOptions>(
    peer: string,
    handler: string,
    options: O,
    needed: (givenUp: AbortSignal) => Promise<void>,
  ): Promise<O> {
    const { signal, timeoutMs = this.timeoutMs } = options;
    const givenUp = new AbortController();
    if (signal?.aborted) throw aborted(handler, signal);
    if (!(timeoutMs >= 0 && timeoutMs <= MAX_TIMEOUT_MS)) throw badTimeout(timeoutMs);
    const started = performance.now();
    let giveUp = (): void => {};
    let timer: NodeJS.Timeout | undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        giveUp = () => reject(aborted(handler, signal!));
        signal?.addEventListener('abort', giveUp, { once: true });
        timer = setTimeout(() => reject(timedOut(peer, handler, timeoutMs)), timeoutMs);
        needed(givenUp.signal).then(resolve, reject);
      });
    } catch (error) {
      givenUp.abort();
      throw error;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', giveUp);
    }
    return { ...options, timeoutMs: Math.max(0, timeoutMs - (performance.now() - started)) };
  }

  /** Whether a payload needs a share of the room before its message can wait: there is none now, or may be none after the wait. */
  private needsShare(length: number): boolean {
    return this.table.isFull ? length > STAGING_THRESHOLD : this.outbox.staging.isFullFor(length);
  }

  /** Waits for a share of the bytes that may be staged, and then sends with what is left of the options. */
  private async whenRoom<R>(
    peer: Peer,
    handler: string,
    payload: Uint8Array,
    options: CallOptions,
    send: (left: CallOptions, share: Claim) => Promise<R>,
  ): Promise<R> {
    const share = this.outbox.staging.claim(payload.length);
    try {
      const left = await this.prepare(peer.info.instanceId, handler, options, () => share.granted);
      return await send(left, share);
    } catch (error) {
      // Without effect once a payload is staged under it: then it ends when that payload goes.
      this.outbox.staging.giveUp(share);
      throw error;
    }
  }

  /** Sends a message that nobody answers. Resolves when the connection admitted it, which says nothing about the peer. */
  fire(peer: Peer, handler: string, payload: Uint8Array, options: SendOptions = {}): Promise<void> {
    if (options.awaitCapacity && this.needsShare(payload.length))
      return this.whenRoom(peer, handler, payload, options, (left, share) =>
        this.fireWithSlot(peer, handler, payload, left, share),
      );
    return this.fireWithSlot(peer, handler, payload, options, undefined);
  }

  private async fireWithSlot(
    peer: Peer,
    handler: string,
    payload: Uint8Array,
    options: SendOptions,
    share: Claim | undefined,
  ): Promise<void> {
    let slot: ResponseSlot | undefined;
    if (options.awaitCapacity && this.table.isFull) {
      await this.prepare(peer.info.instanceId, handler, options, async (givenUp) => {
        slot = await this.table.awaitCapacity(nobody(peer, handler), givenUp);
        // An id is all that is needed: nobody answers.
        this.table.complete(slot.slot, slot.generation);
      });
    }
    await this.admission(peer, handler, payload, options, slot, share);
  }

  private admission(
    peer: Peer,
    handler: string,
    payload: Uint8Array,
    options: SendOptions,
    given: ResponseSlot | undefined,
    share: Claim | undefined,
  ): Promise<void> {
    const { signal } = options;
    if (signal?.aborted) return Promise.reject(aborted(handler, signal));
    return new Promise((resolve, reject) => {
      const token = this.nextToken;
      this.nextToken = (this.nextToken + 1) >>> 0 || 1;
      let staged = 0;
      const onAbort = () => {
        if (!this.admissions.delete(token)) return;
        this.outbox.staging.drop(staged);
        reject(aborted(handler, signal!));
      };
      const unlisten = () => signal?.removeEventListener('abort', onAbort);
      this.admissions.set(token, {
        resolve: () => {
          unlisten();
          resolve();
        },
        reject: (error) => {
          unlisten();
          reject(error);
        },
      });
      try {
        const slot = given ?? this.table.issue(nobody(peer, handler));
        const { headers } = options;
        const request = { peer, slot, handler, responseType: RESPONSE_NONE, payload, headers };
        staged = this.outbox.submit(token, request, share);
      } catch (error) {
        this.admissions.delete(token);
        reject(error);
        return;
      }
      signal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** Sends a message and looks no further: for signals whose loss somebody else notices. */
  signal(peer: Peer, handler: string, payload: Uint8Array): void {
    const slot = this.table.issue(nobody(peer, handler));
    this.outbox.submit(0, { peer, slot, handler, responseType: RESPONSE_NONE, payload, headers: undefined }, undefined);
  }

  // -- what comes back

  /** An answer to one of our calls. `frame` is private memory; the offsets are into it. */
  answered(answer: InboundAnswer, frame: Uint8Array): void {
    const call = this.table.complete(answer.slot, answer.generation);
    if (call === undefined) return;
    this.settled(call);
    const { payloadOffset, payloadLength } = answer;
    if (answer.ok) call.resolve(frame.subarray(payloadOffset, payloadOffset + payloadLength));
    else call.reject(refusal(call, decodeErrorText(frame, payloadOffset, payloadLength)));
  }

  refused(refused: InboundRefusal): void {
    this.failSlot(refused.slot, refused.generation, new VeloError('ERR_PEER_SHUTTING_DOWN', SHUTTING_DOWN_TEXT));
  }

  admitted(token: number, error: VeloError | undefined): void {
    const pending = this.admissions.get(token);
    if (pending === undefined) return;
    this.admissions.delete(token);
    if (error === undefined) pending.resolve();
    else pending.reject(error);
  }

  /** A frame of ours was not written: its caller hears at once. */
  frameFailed(responseId: Uint8Array, error: VeloError): void {
    const id: ResponseId = readResponseId(responseId, 0);
    this.failSlot(id.slot, id.generation, error);
  }

  private failSlot(slot: number, generation: number, error: VeloError): void {
    const call = this.table.complete(slot, generation);
    if (call === undefined) return;
    this.settled(call);
    call.reject(error);
  }

  private settled(call: PendingCall): void {
    call.ended = true;
    clearTimeout(call.timer);
    call.unlisten();
  }

  /** Ends everything that waits. */
  failAll(error: VeloError): void {
    this.table.failAll(error, (call) => {
      this.settled(call);
      call.reject(error);
    });
    const admissions = [...this.admissions.values()];
    this.admissions.clear();
    for (const pending of admissions) pending.reject(error);
  }
}

/** The entry of a message that nobody answers. */
function nobody(peer: Peer, handler: string): PendingCall {
  const nothing = () => {};
  const ends = { resolve: nothing, reject: nothing, unlisten: nothing };
  return { peer, handler, ...ends, timer: undefined, ended: false, staged: 0 };
}

function aborted(handler: string, signal: AbortSignal): VeloError {
  return new VeloError('ERR_ABORTED', `'${handler}' was aborted`, { cause: signal.reason });
}

function timedOut(peer: string, handler: string, timeoutMs: number): VeloError {
  return new VeloError('ERR_TIMEOUT', `no answer from ${peer} to '${handler}' in ${Math.round(timeoutMs)} ms`);
}

function badTimeout(timeoutMs: number): VeloError {
  return new VeloError(
    'ERR_INVALID_ARGUMENT',
    `timeoutMs = ${timeoutMs}: expected milliseconds from 0 to ${MAX_TIMEOUT_MS}`,
  );
}

function refusal(call: PendingCall, text: string): VeloError {
  if (text === unknownHandlerText(call.handler))
    return new VeloError('ERR_UNKNOWN_HANDLER', `${call.peer.info.instanceId}: ${text}`);
  return new VeloError('ERR_HANDLER_FAILED', text);
}
