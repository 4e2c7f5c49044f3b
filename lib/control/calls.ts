// Messages of this thread to peers, and the calls among them that wait for an answer. It builds frames, hands them to lane 0,
// and ends every call: by its answer, by its own timeout, by an abort, or by an error with a code.

import { performance } from 'node:perf_hooks';
import { VeloError } from '../errors.js';
import type { ClientPlane } from '../lanes/client-plane.js';
import { CMD_FRAME, CMD_HELLO_ANSWER, writeU32 } from '../lanes/commands.js';
import { SHUTTING_DOWN_TEXT, unknownHandlerText } from '../messenger/dispatch-plan.js';
import type { InboundAnswer, InboundRefusal } from '../messenger/inbound-message.js';
import { decodeErrorText } from '../messenger/replies.js';
import { type ResponseSlot, ResponseTable } from '../messenger/response-table.js';
import { RESPONSE_NONE, requestHeaderLength, writeRequestHeader } from '../wire/envelope.js';
import { encodeHeaderMap } from '../wire/header-map.js';
import { type ResponseId, readResponseId } from '../wire/response-id.js';
import { FRAME_MESSAGE, MAX_FRAME_BODY, PREAMBLE_LEN, writePreamble } from '../wire/transport-frame.js';
import { encodeUtf8 } from '../wire/utf8.js';
import type { Peer } from './peer-book.js';

/** Frames of the messenger ride lane 0. */
const MESSENGER_LANE = 0;
const PEER_BYTES = 4;
const NO_BYTES = new Uint8Array(0);
/** A timer takes no more. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

export interface SendOptions {
  /** Header map of the message, strings only. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** Gives up waiting; what was sent is not withdrawn. */
  signal?: AbortSignal | undefined;
  /**
   * With all 65,535 response slots taken: wait for one, in order, instead of failing with `ERR_RESPONSE_SLOTS_EXHAUSTED`.
   * Default false. At most 4,096 may wait (`ERR_LIMIT`), within the timeout of the call (of a `send`: the node's
   * `callTimeoutMs`). The payload is read when the slot is there.
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
    private readonly plane: ClientPlane,
    private readonly workerHi: number,
    private readonly workerLo: number,
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
   * `ERR_FRAME_TOO_LARGE`, `ERR_RESPONSE_SLOTS_EXHAUSTED` or `ERR_LANE_DIED`.
   */
  call(
    peer: Peer,
    handler: string,
    responseType: number,
    payload: Uint8Array,
    options: CallOptions = {},
  ): Promise<Uint8Array> {
    const { signal, timeoutMs = this.timeoutMs } = options;
    if (signal?.aborted) return Promise.reject(aborted(handler, signal));
    if (!(timeoutMs >= 0 && timeoutMs <= MAX_TIMEOUT_MS)) return Promise.reject(badTimeout(timeoutMs));
    return new Promise((resolve, reject) => {
      const call: PendingCall = {
        peer,
        handler,
        resolve,
        reject,
        timer: undefined,
        unlisten: () => {},
        ended: false,
      };
      let slot: ResponseSlot | undefined;
      let waiting: AbortController | undefined;
      const end = (error: unknown) => {
        if (call.ended) return;
        if (slot === undefined) waiting?.abort();
        else this.table.complete(slot.slot, slot.generation);
        this.settled(call);
        reject(error);
      };
      const post = (given: ResponseSlot) => {
        slot = given;
        try {
          this.post(peer, 0, this.frame(given, handler, responseType, payload, options.headers));
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

  /** Sends a message that nobody answers. Resolves when the connection admitted it, which says nothing about the peer. */
  async fire(peer: Peer, handler: string, payload: Uint8Array, options: SendOptions = {}): Promise<void> {
    let slot: ResponseSlot | undefined;
    if (options.awaitCapacity && this.table.isFull) {
      await this.prepare(peer.info.instanceId, handler, options, async (givenUp) => {
        slot = await this.table.awaitCapacity(nobody(peer, handler), givenUp);
        // An id is all that is needed: nobody answers.
        this.table.complete(slot.slot, slot.generation);
      });
    }
    await this.admission(peer, handler, payload, options, slot);
  }

  private admission(
    peer: Peer,
    handler: string,
    payload: Uint8Array,
    options: SendOptions,
    given: ResponseSlot | undefined,
  ): Promise<void> {
    const { signal } = options;
    if (signal?.aborted) return Promise.reject(aborted(handler, signal));
    return new Promise((resolve, reject) => {
      const token = this.nextToken;
      this.nextToken = (this.nextToken + 1) >>> 0 || 1;
      const onAbort = () => {
        if (this.admissions.delete(token)) reject(aborted(handler, signal!));
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
        this.post(peer, token, this.frame(slot, handler, RESPONSE_NONE, payload, options.headers));
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
    this.post(peer, 0, this.frame(slot, handler, RESPONSE_NONE, payload, undefined));
  }

  /** Answers a hello on the socket it came in on; without a frame, lets its lane forget that socket. */
  answerHello(lane: number, token: number, frame: Uint8Array | undefined): void {
    try {
      this.plane.port(lane).command(CMD_HELLO_ANSWER, token, frame ?? NO_BYTES);
    } catch (error) {
      // The lane is gone, and the socket with it; or it is so far behind that whoever asked has given up.
      if (!VeloError.is(error)) throw error;
    }
  }

  /** Sends a finished frame (an answer) to a peer. */
  sendFrame(peer: Peer, frame: Uint8Array): void {
    const body = new Uint8Array(PEER_BYTES + frame.length);
    body.set(frame, PEER_BYTES);
    this.post(peer, 0, body);
  }

  /** A `CMD_FRAME` body with room for the peer number. */
  private frame(
    slot: ResponseSlot,
    handler: string,
    responseType: number,
    payload: Uint8Array,
    headers: Readonly<Record<string, string>> | undefined,
  ): Uint8Array {
    const name = encodeUtf8(handler);
    const map = headers === undefined ? NO_BYTES : encodeHeaderMap(Object.entries(headers));
    const headerLength = requestHeaderLength(name.length, map.length);
    if (headerLength + payload.length > MAX_FRAME_BODY)
      throw new VeloError(
        'ERR_FRAME_TOO_LARGE',
        `message of ${payload.length} bytes to '${handler}' does not fit one frame of ${MAX_FRAME_BODY}`,
      );
    const body = new Uint8Array(PEER_BYTES + PREAMBLE_LEN + headerLength + payload.length);
    writePreamble(body, PEER_BYTES, FRAME_MESSAGE, headerLength, payload.length);
    const at = PEER_BYTES + PREAMBLE_LEN;
    writeRequestHeader(body, at, responseType, this.workerHi, this.workerLo, slot.slot, slot.generation, name, map);
    body.set(payload, at + headerLength);
    return body;
  }

  private post(peer: Peer, token: number, body: Uint8Array): void {
    writeU32(body, 0, peer.number);
    this.plane.port(MESSENGER_LANE).command(CMD_FRAME, token, body);
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
  return { peer, handler, resolve: nothing, reject: nothing, timer: undefined, unlisten: nothing, ended: false };
}

function aborted(handler: string, signal: AbortSignal): VeloError {
  return new VeloError('ERR_ABORTED', `'${handler}' was aborted`, { cause: signal.reason });
}

function timedOut(peer: string, handler: string, timeoutMs: number): VeloError {
  return new VeloError('ERR_TIMEOUT', `no answer from ${peer} to '${handler}' in ${timeoutMs} ms`);
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
