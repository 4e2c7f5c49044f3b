// Messages of this thread to peers, and the calls among them that wait for an answer. It builds frames, hands them to lane 0,
// and ends every call: by its answer, by its own timeout, by an abort, or by an error with a code.

import { performance } from 'node:perf_hooks';
import { VeloError } from '../errors.js';
import type { ClientPlane } from '../lanes/client-plane.js';
import { CMD_FRAME, CMD_STAGED_FRAME, writeU32 } from '../lanes/commands.js';
import { SHUTTING_DOWN_TEXT, unknownHandlerText } from '../messenger/dispatch-plan.js';
import type { Claim } from '../messenger/fifo-budget.js';
import type { InboundAnswer, InboundRefusal } from '../messenger/inbound-message.js';
import { decodeErrorText } from '../messenger/replies.js';
import { type ResponseSlot, ResponseTable } from '../messenger/response-table.js';
import { RESPONSE_NONE, requestHeaderLength, writeRequestHeader } from '../wire/envelope.js';
import { encodeHeaderMap } from '../wire/header-map.js';
import { HEADER_RENDEZVOUS } from '../wire/names.js';
import { STAGING_THRESHOLD } from '../wire/rendezvous-messages.js';
import { type ResponseId, readResponseId } from '../wire/response-id.js';
import { FRAME_MESSAGE, PREAMBLE_LEN, writePreamble } from '../wire/transport-frame.js';
import { encodeUtf8 } from '../wire/utf8.js';
import type { Peer } from './peer-book.js';
import type { Staging } from './staging.js';

/** Frames of the messenger ride lane 0. */
const MESSENGER_LANE = 0;
const PEER_BYTES = 4;
/** Before a frame whose payload is staged: peer number, data id. */
const STAGED_HEAD_BYTES = 8;
const NO_BYTES = new Uint8Array(0);
const NO_MAP = new Uint8Array(0);
/** A timer takes no more. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

export interface SendOptions {
  /** Header map of the message, strings only. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** Gives up waiting; what was sent is not withdrawn. */
  signal?: AbortSignal | undefined;
  /** Waits, in order, for room under `stagedBytesMax`, where a payload above 262,144 bytes would fail with `ERR_LIMIT`. */
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
  /** Id of the staged payload; 0: it travels in the frame. */
  staged: number;
}

/** One request on its way out. */
interface Outgoing {
  readonly peer: Peer;
  readonly slot: ResponseSlot;
  readonly handler: string;
  readonly responseType: number;
  readonly payload: Uint8Array;
  readonly headers: Readonly<Record<string, string>> | undefined;
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
    private readonly staging: Staging,
  ) {}

  /** Calls that wait for an answer. */
  get pending(): number {
    return this.table.size;
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
    if (options.awaitCapacity && this.staging.isFullFor(payload.length))
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
      const call: PendingCall = { peer, handler, resolve, reject, timer: undefined, unlisten: () => {}, staged: 0 };
      const slot = this.table.allocate(call);
      const give = (error: VeloError) => {
        if (this.table.complete(slot.slot, slot.generation) === undefined) return;
        this.settled(call);
        this.staging.drop(call.staged);
        reject(error);
      };
      try {
        call.staged = this.submit(0, { peer, slot, handler, responseType, payload, headers }, share);
      } catch (error) {
        this.table.complete(slot.slot, slot.generation);
        reject(error);
        return;
      }
      call.timer = setTimeout(() => give(timedOut(peer, handler, timeoutMs)), timeoutMs);
      if (signal !== undefined) {
        const onAbort = () => give(aborted(handler, signal));
        signal.addEventListener('abort', onAbort, { once: true });
        call.unlisten = () => signal.removeEventListener('abort', onAbort);
      }
    });
  }

  /**
   * Waits for what a call needs before it can be made, no longer than the call would wait itself; what is waited for goes on.
   * Resolves with the options that are left for the call.
   */
  async prepare(peer: Peer, handler: string, options: CallOptions, needed: () => Promise<void>): Promise<CallOptions> {
    const { signal, timeoutMs = this.timeoutMs } = options;
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
        needed().then(resolve, reject);
      });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', giveUp);
    }
    return { ...options, timeoutMs: Math.max(0, timeoutMs - (performance.now() - started)) };
  }

  /** Waits for a share of the bytes that may be staged, and then sends with what is left of the options. */
  private async whenRoom<R>(
    peer: Peer,
    handler: string,
    payload: Uint8Array,
    options: CallOptions,
    send: (left: CallOptions, share: Claim) => Promise<R>,
  ): Promise<R> {
    const share = this.staging.claim(payload.length);
    try {
      const left = await this.prepare(peer, handler, options, () => share.granted);
      return await send(left, share);
    } catch (error) {
      // Without effect once a payload is staged under it: then it ends when that payload goes.
      this.staging.giveUp(share);
      throw error;
    }
  }

  /** Sends a message that nobody answers. Resolves when the connection admitted it, which says nothing about the peer. */
  fire(peer: Peer, handler: string, payload: Uint8Array, options: SendOptions = {}): Promise<void> {
    if (options.awaitCapacity && this.staging.isFullFor(payload.length))
      return this.whenRoom(peer, handler, payload, options, (left, share) =>
        this.fireNow(peer, handler, payload, left, share),
      );
    return this.fireNow(peer, handler, payload, options, undefined);
  }

  private fireNow(
    peer: Peer,
    handler: string,
    payload: Uint8Array,
    options: SendOptions,
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
        this.staging.drop(staged);
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
        staged = this.submit(token, this.unanswered(peer, handler, payload, options.headers), share);
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
    this.submit(0, this.unanswered(peer, handler, payload, undefined), undefined);
  }

  /** Sends a finished frame (an answer) to a peer. */
  sendFrame(peer: Peer, frame: Uint8Array): void {
    const body = new Uint8Array(PEER_BYTES + frame.length);
    body.set(frame, PEER_BYTES);
    writeU32(body, 0, peer.number);
    this.plane.port(MESSENGER_LANE).command(CMD_FRAME, 0, body);
  }

  private unanswered(
    peer: Peer,
    handler: string,
    payload: Uint8Array,
    headers: Readonly<Record<string, string>> | undefined,
  ): Outgoing {
    const nobody: PendingCall = {
      peer,
      handler,
      resolve: () => {},
      reject: () => {},
      timer: undefined,
      unlisten: () => {},
      staged: 0,
    };
    const slot = this.table.issue(nobody);
    return { peer, slot, handler, responseType: RESPONSE_NONE, payload, headers };
  }

  /** Hands a request to the lane: its payload in the frame, or staged beside it. Returns the id of what was staged, or 0. */
  private submit(token: number, request: Outgoing, share: Claim | undefined): number {
    const { peer, payload } = request;
    const port = this.plane.port(MESSENGER_LANE);
    if (payload.length <= STAGING_THRESHOLD) {
      const body = this.encode(request, PEER_BYTES, payload, request.headers);
      writeU32(body, 0, peer.number);
      port.command(CMD_FRAME, token, body);
      return 0;
    }
    const handle = this.staging.mint();
    const headers = { ...request.headers, [HEADER_RENDEZVOUS]: handle.toText() };
    const body = this.encode(request, STAGED_HEAD_BYTES, NO_BYTES, headers);
    const id = Number(handle.local);
    writeU32(body, 0, peer.number);
    writeU32(body, PEER_BYTES, id);
    this.staging.stage(id, payload, share);
    try {
      port.command(CMD_STAGED_FRAME, token, body);
    } catch (error) {
      this.staging.drop(id);
      throw error;
    }
    return id;
  }

  /** A whole frame, with `room` bytes before it. */
  private encode(
    { slot, handler, responseType }: Outgoing,
    room: number,
    payload: Uint8Array,
    headers: Readonly<Record<string, string>> | undefined,
  ): Uint8Array {
    const name = encodeUtf8(handler);
    const map = headers === undefined ? NO_MAP : encodeHeaderMap(Object.entries(headers));
    const headerLength = requestHeaderLength(name.length, map.length);
    const at = room + PREAMBLE_LEN;
    const body = new Uint8Array(at + headerLength + payload.length);
    writePreamble(body, room, FRAME_MESSAGE, headerLength, payload.length);
    writeRequestHeader(body, at, responseType, this.workerHi, this.workerLo, slot.slot, slot.generation, name, map);
    body.set(payload, at + headerLength);
    return body;
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

function aborted(handler: string, signal: AbortSignal): VeloError {
  return new VeloError('ERR_ABORTED', `'${handler}' was aborted`, { cause: signal.reason });
}

function timedOut(peer: Peer, handler: string, timeoutMs: number): VeloError {
  return new VeloError('ERR_TIMEOUT', `no answer from ${peer.info.instanceId} to '${handler}' in ${timeoutMs} ms`);
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
