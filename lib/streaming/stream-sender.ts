// The producer's end of a stream. What is the same for both kinds of sender stands here: signals, waiting, the end. Where records
// go is the outlet's business: a lane's ring, or the channel of an anchor on this very thread.

import type { RetiredOutcome } from '../control/sender-core.js';
import { VeloError } from '../errors.js';
import type { WaitCount } from '../metrics/streaming-metrics.js';
import { ENDING_DETACHED, ENDING_DROPPED, ENDING_FINALIZED } from '../plane/rows.js';
import type { StreamAnchorHandle } from '../wire/handle.js';
import { checkSignal, checkText } from './checks.js';

/** Where a sender's records go. */
export interface Outlet<T> {
  /** Undefined for a sender on the anchor's own thread. */
  readonly transport: string | undefined;
  readonly cancelled: boolean;
  readonly stopped: boolean;
  readonly over: boolean;
  overError(): VeloError;
  /** False: no room now. The item must have been encoded and copied, or nothing of it kept. */
  trySend(item: T): boolean;
  /** A frame that is not an item. */
  trySendFrame(frame: Uint8Array): boolean;
  /** Resolves when there may be room, or the stream is over. */
  roomAgain(): Promise<void>;
  /** Blocks the thread for the same, at most `timeoutMs`. */
  block(timeoutMs: number): void;
  end(ending: number): boolean;
  /** Never rejects. */
  retired(): Promise<RetiredOutcome>;
  onSignals(cancelled: () => void, stopped: () => void): void;
}

/** For calls that wait. */
export interface WaitOptions {
  /** Gives up waiting: the call rejects with `ERR_ABORTED`, the stream goes on. */
  signal?: AbortSignal | undefined;
}

/** A default bound for blocking sends: longer than any credit takes, short enough to notice a hang. */
const DEFAULT_BLOCK_MS = 30_000;

/**
 * A stream's producer. Made by `Velo.attachAnchor`.
 *
 * Every stream ends in exactly one way: `finalize`, `detach`, `close` (the consumer sees `ERR_SENDER_DROPPED`), or the consumer's
 * cancel. The three act at once and never wait for room; the consumer sees everything sent before.
 *
 * A sender keeps its place on the node (`maxStreams`) until it is ended, also when its consumer has cancelled. One that is
 * garbage-collected unended is closed, counted and warned about; a listener of `cancelSignal` or `stopSignal` that refers to the
 * sender keeps it alive.
 */
export class StreamSender<T> implements AsyncDisposable {
  private readonly cancelController = new AbortController();
  private readonly stopController = new AbortController();
  /** A `trySend` found no room, and nobody has waited for it yet. */
  private foundFull = false;

  constructor(
    private readonly outlet: Outlet<T>,
    private readonly anchor: StreamAnchorHandle,
    /** Bytes of a SenderError frame. */
    private readonly errorFrame: (message: string) => Uint8Array,
    /** Counts the sends that had to wait. */
    private readonly waits: WaitCount = { count: 0 },
  ) {
    // Not through `this`: the outlet lives as long as the stream, and must not keep a sender that the application has dropped.
    const { cancelController, stopController } = this;
    outlet.onSignals(
      () => {
        if (!cancelController.signal.aborted) cancelController.abort();
      },
      () => {
        if (!stopController.signal.aborted) stopController.abort();
      },
    );
  }

  /** The transport the attach settled on; undefined on the anchor's own thread. */
  get negotiatedTransport(): string | undefined {
    return this.outlet.transport;
  }

  /** The consumer cancelled, or the stream is gone. Current without yielding to the event loop. */
  get cancelled(): boolean {
    return this.outlet.cancelled;
  }

  /** The consumer asked to stop (or cancelled). Current without yielding to the event loop. */
  get stopped(): boolean {
    return this.outlet.stopped;
  }

  /** Aborts when the consumer cancels, also while nothing is sent. */
  get cancelSignal(): AbortSignal {
    return this.cancelController.signal;
  }

  /** Aborts when the consumer asks to stop, and on a cancel. */
  get stopSignal(): AbortSignal {
    return this.stopController.signal;
  }

  /**
   * Sends an item if there is room now. False: no room (the consumer is behind by its window, or the lane by its ring); await
   * `ready()` and try again. The item is encoded in this call and not kept.
   *
   * @throws VeloError `ERR_CHANNEL_CLOSED` when the stream is over (`ERR_LANE_DIED`, `ERR_CLOSED` when its lane or its node is),
   * `ERR_SERIALIZATION` when the item cannot be encoded, `ERR_FRAME_TOO_LARGE`.
   */
  trySend(item: T): boolean {
    if (this.outlet.trySend(item)) return true;
    this.foundFull = true;
    return false;
  }

  /**
   * Sends an item, waiting for room. Resolved means accepted for sending, not received. Rejects as `trySend` throws, and with
   * `ERR_ABORTED` by the signal: then the item was not sent.
   */
  async send(item: T, options?: WaitOptions): Promise<void> {
    if (this.outlet.trySend(item)) return;
    this.waits.count += 1;
    do await this.room(options?.signal);
    while (!this.outlet.trySend(item));
  }

  /**
   * Sends an item, blocking the thread until there is room: for producers whose loop never yields. At most `timeoutMs`
   * (default 30,000), then `ERR_TIMEOUT`. On the thread of an inline lane it would wait for itself: `ERR_INVALID_STATE`.
   */
  sendBlocking(item: T, timeoutMs = DEFAULT_BLOCK_MS): void {
    if (this.outlet.trySend(item)) return;
    this.waits.count += 1;
    const until = Date.now() + timeoutMs;
    while (!this.outlet.trySend(item)) {
      const left = until - Date.now();
      if (!(left > 0)) throw new VeloError('ERR_TIMEOUT', `no room to send in ${timeoutMs} ms`);
      this.outlet.block(left);
    }
  }

  /** Resolves when `trySend` may succeed. Rejects with `ERR_CHANNEL_CLOSED` when the stream is over, `ERR_ABORTED` by the signal. */
  async ready(options?: WaitOptions): Promise<void> {
    if (this.outlet.over) throw this.outlet.overError();
    if (this.foundFull) this.waits.count += 1;
    this.foundFull = false;
    await this.room(options?.signal);
    if (this.outlet.over) throw this.outlet.overError();
  }

  private room(signal: AbortSignal | undefined): Promise<void> {
    if (signal === undefined) return this.outlet.roomAgain();
    checkSignal(signal);
    if (signal.aborted) return Promise.reject(aborted(signal));
    return raceAbort(this.outlet.roomAgain(), signal);
  }

  /**
   * Reports a soft error: the consumer's loop rejects with `ERR_SENDER_ERROR`, the stream goes on. Waits for room like `send`, and
   * rejects as it does; with `ERR_INVALID_ARGUMENT` unless `message` is a string.
   */
  async sendErr(message: string, options?: WaitOptions): Promise<void> {
    checkText('message', message);
    const frame = this.errorFrame(message);
    if (this.outlet.trySendFrame(frame)) return;
    this.waits.count += 1;
    do await this.room(options?.signal);
    while (!this.outlet.trySendFrame(frame));
  }

  /** Ends the stream cleanly. Rejects with `ERR_CHANNEL_CLOSED` only when this sender had ended its stream already. */
  async finalize(): Promise<void> {
    this.end(ENDING_FINALIZED);
  }

  /** Leaves the anchor to another sender. Resolves with the anchor's handle; rejects as `finalize` does. */
  async detach(): Promise<StreamAnchorHandle> {
    this.end(ENDING_DETACHED);
    return this.anchor;
  }

  /**
   * What became of the stream's output, once that is known. Callable at any time, any number of times; never rejects.
   *
   * - `sent`: all of it, the end included, was handed to the connection (on the anchor's own thread: to the anchor). No word from the
   *   consumer is waited for. What a connection loses after that is still `sent`, and so is an item so large that the consumer has
   *   yet to fetch it.
   * - `discarded`: some of it was thrown away: the consumer cancelled, the connection or the lane failed, the slot never opened, the
   *   node closed before the stream had ended.
   */
  retired(): Promise<RetiredOutcome> {
    return this.outlet.retired();
  }

  /** Gives the stream up: the consumer sees `ERR_SENDER_DROPPED`. Does nothing after `finalize` or `detach`. */
  close(): Promise<void> {
    this.outlet.end(ENDING_DROPPED);
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private end(ending: number): void {
    if (!this.outlet.end(ending)) throw new VeloError('ERR_CHANNEL_CLOSED', 'this sender has ended its stream already');
  }
}

function aborted(signal: AbortSignal): VeloError {
  return new VeloError('ERR_ABORTED', 'the wait was aborted', { cause: signal.reason });
}

function raceAbort(wait: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(aborted(signal));
    signal.addEventListener('abort', onAbort, { once: true });
    wait.then(
      () => {
        signal.removeEventListener('abort', onAbort);
        resolve();
      },
      (error: unknown) => {
        signal.removeEventListener('abort', onAbort);
        reject(error);
      },
    );
  });
}
