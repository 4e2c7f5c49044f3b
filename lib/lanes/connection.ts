// One dialed connection to a peer, over TCP or a Unix socket: its queue of outgoing frames, its admission in order, its socket. It must never
// keep anything about a peer beyond the socket, never retry by itself, and never reorder frames.
//
//   idle ──submit──► connecting ──connect──► open
//     ▲                  │                     │        a failure fails, in order: the write under way, the queue, the
//     └──────failure─────┴───────failure───────┘        pending frames; the next submit dials anew
//   close({drain}) from connecting or open ──► closing (writes what it holds, takes nothing) ──► closed
//   close() from idle, close({drain: false}) and destroy() from anywhere ──► closed

import { connect, type Socket } from 'node:net';
import { DebugLog } from '../debug-log.js';
import { VeloError } from '../errors.js';
import { MAX_FRAME_BODY, PREAMBLE_LEN } from '../wire/transport-frame.js';
import { CoalescingWriter, StagingPool } from './coalescing-writer.js';
import type { ConnectionMetrics } from './connection-metrics.js';
import { EgressTiming } from './egress-timing.js';
import { checkEndpoint, type Endpoint, endpointEnds, endpointName } from './endpoint.js';
import { FrameIntake, type FrameSource, type IntakeHooks } from './frame-intake.js';
import { FRAME_IDLE, FRAME_PENDING, FRAME_QUEUED, FrameList, type OutFrame } from './out-frame.js';
import type { SocketEnds } from './socket-info.js';

/** The frame is in the queue; `onWritten` follows. */
export const ADMITTED = 0;
/** The frame waits for room; `onAdmitted` follows, and after a successful one `onWritten`. */
export const PENDING = 1;
export type Admission = typeof ADMITTED | typeof PENDING;

export const DEFAULT_CONNECT_TIMEOUT_MS = 5_000;
/** Frames in the queue of one connection; the write under way is not part of it. */
export const DEFAULT_QUEUE_FRAMES = 256;
/** Bytes in the queue of one connection. */
export const DEFAULT_CONNECTION_QUEUE_BYTES = 8 * 1024 * 1024;
/** Frames that may wait for room: as many as there are calls in a full response table. */
export const DEFAULT_PENDING_FRAMES = 65_535;
/** Bytes that may wait for room. */
export const DEFAULT_PENDING_BYTES = 64 * 1024 * 1024;
/** Idle time before the first keepalive probe. */
export const KEEPALIVE_IDLE_MS = 60_000;
/** How long a drained connection waits for the peer to close its side too. */
const CLOSE_LINGER_MS = 1_000;
const MESSAGE_TYPE_OFFSET = 2;

export interface OutgoingConnectionOptions {
  readonly to: Endpoint;
  readonly metrics: ConnectionMetrics;
  /** What becomes of frames that the peer sends on this socket. */
  readonly hooks: IntakeHooks;
  /** A connection that stood is lost, or a dial failed, and frames may be lost with it. The next submit dials anew. */
  readonly onLost?: () => void;
  readonly connectTimeoutMs?: number;
  readonly queueFrames?: number;
  readonly connectionQueueBytes?: number;
  readonly pendingFrames?: number;
  readonly pendingBytes?: number;
  /** Staging buffers shared with the lane's other connections. */
  readonly staging?: StagingPool;
}

export type OutgoingState = 'idle' | 'connecting' | 'open' | 'closing' | 'closed';

interface Dial {
  readonly socket: Socket;
  readonly writer: CoalescingWriter;
  readonly intake: FrameIntake;
  timer: NodeJS.Timeout | undefined;
  opened: boolean;
  // The frames of a completed write are being told so: a failure now must leave them to that loop.
  reporting: boolean;
  ending: boolean;
}

const connectLog = new DebugLog();
const lossLog = new DebugLog();

export class OutgoingConnection implements FrameSource {
  readonly dialed = true;
  readonly remote: string;
  readonly ends: SocketEnds;
  claimedHosts: readonly string[] | undefined;
  suspect = false;
  readonly #options: OutgoingConnectionOptions;
  readonly #metrics: ConnectionMetrics;
  readonly #timing: EgressTiming;
  readonly #staging: StagingPool;
  readonly #queueFrames: number;
  readonly #queueBytes: number;
  readonly #pendingFrames: number;
  readonly #pendingBytes: number;
  #queue = new FrameList();
  #pending = new FrameList();
  // Frames that were refused on arrival and wait for the end of the turn to be told so.
  readonly #refused = new FrameList();
  #dial: Dial | undefined;
  #closing = false;
  #closed = false;
  #referenced = true;
  #whenClosed: PromiseWithResolvers | undefined;

  constructor(options: OutgoingConnectionOptions) {
    const { to } = options;
    checkEndpoint(to);
    this.remote = endpointName(to);
    this.ends = endpointEnds(to);
    this.#options = options;
    this.#metrics = options.metrics;
    this.#timing = new EgressTiming(options.metrics);
    this.#staging = options.staging ?? new StagingPool();
    this.#queueFrames = atLeastOne('queueFrames', options.queueFrames ?? DEFAULT_QUEUE_FRAMES);
    this.#queueBytes = atLeastOne(
      'connectionQueueBytes',
      options.connectionQueueBytes ?? DEFAULT_CONNECTION_QUEUE_BYTES,
    );
    this.#pendingFrames = atLeastOne('pendingFrames', options.pendingFrames ?? DEFAULT_PENDING_FRAMES);
    this.#pendingBytes = atLeastOne('pendingBytes', options.pendingBytes ?? DEFAULT_PENDING_BYTES);
  }

  get metrics(): ConnectionMetrics {
    return this.#metrics;
  }

  get state(): OutgoingState {
    if (this.#closed) return 'closed';
    if (this.#closing) return 'closing';
    if (this.#dial === undefined) return 'idle';
    return this.#dial.opened ? 'open' : 'connecting';
  }

  /** Frames in the queue; those of the write under way are not counted. */
  get queuedFrames(): number {
    return this.#queue.count;
  }

  get queuedBytes(): number {
    return this.#queue.bytes;
  }

  /** Frames that wait for room. */
  get pendingFrames(): number {
    return this.#pending.count;
  }

  /**
   * Hands a frame over, dialing if need be. An idle connection writes it in this call. PENDING when the queue is full or
   * others wait already: the frame keeps its place, whether anybody watches or not. A frame that cannot even wait (the
   * connection is closing: `ERR_CONNECTION_CLOSED`; `pendingFrames` or `pendingBytes` is reached: `ERR_LIMIT`) is
   * PENDING too, and its `onAdmitted(false, error)` comes after this turn.
   */
  submit(frame: OutFrame): Admission {
    const length = checkFrame(frame);
    if (this.#closing) return this.#refuse(frame, this.#closedError('is closing'));
    if (this.#pending.count === 0 && this.#hasRoom(length)) {
      if (this.#dial?.opened && !this.#dial.writer.busy) this.#timing.atOnce();
      else this.#timing.waits(frame);
      this.#admit(frame);
      if (this.#dial === undefined) this.#open();
      else this.#pump();
      return ADMITTED;
    }
    this.#metrics.sendBackpressure += 1;
    this.#metrics.changed();
    const pending = this.#pending;
    if (pending.count >= this.#pendingFrames || (pending.count > 0 && pending.bytes + length > this.#pendingBytes)) {
      const full = `${pending.count} frames of ${pending.bytes} bytes already wait for the connection to ${this.remote}`;
      return this.#refuse(frame, new VeloError('ERR_LIMIT', full));
    }
    this.#timing.waits(frame);
    pending.push(frame, FRAME_PENDING);
    return PENDING;
  }

  /** Withdraws a frame that still waits for room: none of its callbacks comes any more. False: it is too late for that. */
  cancelAdmission(frame: OutFrame): boolean {
    if (frame.state !== FRAME_PENDING || frame.list === undefined) return false;
    const wasHead = this.#pending.head === frame;
    frame.list.remove(frame);
    this.#timing.withdrawn(frame);
    if (wasHead) this.#admitPending();
    return true;
  }

  /**
   * Takes no more frames. With `drain` what was submitted is written first, for as long as that takes: the caller sets
   * the deadline and calls `destroy` then. Resolves when the socket is gone; never rejects.
   */
  close(options: { readonly drain: boolean }): Promise<void> {
    this.#whenClosed ??= withResolvers();
    this.#closing = true;
    if (!options.drain) this.destroy();
    else if (this.#dial === undefined) this.#finish();
    else this.#pump();
    return this.#whenClosed.promise;
  }

  /** Closes at once. Everything submitted fails with `error`. */
  destroy(error: VeloError = this.#closedError('was closed by this node')): void {
    this.#closing = true;
    if (this.#dial !== undefined) this.#lose(this.#dial, error);
    else this.#finish();
  }

  /** Lets the socket keep the process alive (the default). */
  ref(): this {
    this.#referenced = true;
    this.#dial?.socket.ref();
    this.#dial?.timer?.ref();
    return this;
  }

  unref(): this {
    this.#referenced = false;
    this.#dial?.socket.unref();
    this.#dial?.timer?.unref();
    return this;
  }

  /** Nothing is ever written back on a dialed connection: whoever is at its other end has a listener. */
  writeBack(): boolean {
    return false;
  }

  #hasRoom(length: number): boolean {
    const { count, bytes } = this.#queue;
    return count === 0 || (count < this.#queueFrames && bytes + length <= this.#queueBytes);
  }

  #admit(frame: OutFrame): void {
    const type = frame.buffer[frame.start + MESSAGE_TYPE_OFFSET] as number;
    const { framesSent, bytesSent } = this.#metrics;
    framesSent[type] = (framesSent[type] ?? 0) + 1;
    bytesSent[type] = (bytesSent[type] ?? 0) + (frame.end - frame.start - PREAMBLE_LEN);
    this.#queue.push(frame, FRAME_QUEUED);
  }

  // Callbacks may submit, cancel or close: the list is read anew each time round.
  #admitPending(): void {
    for (let frame = this.#pending.head; frame !== undefined; frame = this.#pending.head) {
      if (!this.#hasRoom(frame.end - frame.start)) return;
      this.#pending.remove(frame);
      this.#admit(frame);
      this.#tellAdmitted(frame, true);
    }
  }

  #refuse(frame: OutFrame, error: VeloError): Admission {
    const refused = this.#refused;
    refused.push(frame, FRAME_PENDING);
    process.nextTick(() => {
      if (frame.list !== refused) return;
      refused.remove(frame);
      this.#metrics.sendErrors += 1;
      this.#metrics.changed();
      this.#tellAdmitted(frame, false, error);
    });
    return PENDING;
  }

  #open(): void {
    const { to, hooks, connectTimeoutMs = DEFAULT_CONNECT_TIMEOUT_MS } = this.#options;
    const socket = connect({ ...to, noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_IDLE_MS });
    const dial: Dial = {
      socket,
      writer: new CoalescingWriter(socket, this.#staging, (error) => this.#written(dial, error)),
      intake: new FrameIntake(this, hooks, this.#metrics),
      timer: setTimeout(
        () => this.#lose(dial, this.#connectError(`no answer in ${connectTimeoutMs} ms`)),
        connectTimeoutMs,
      ),
      opened: false,
      reporting: false,
      ending: false,
    };
    this.#dial = dial;
    if (!this.#referenced) this.unref();
    socket.on('connect', () => this.#connected(dial));
    socket.on('data', (chunk) => this.#read(dial, chunk));
    socket.on('end', () => this.#ended(dial));
    socket.on('error', (cause) => this.#lose(dial, this.#socketError(dial, cause)));
    socket.on('close', () => this.#lose(dial, this.#closedError('closed')));
  }

  #connected(dial: Dial): void {
    if (this.#dial !== dial) return;
    clearTimeout(dial.timer);
    dial.timer = undefined;
    dial.opened = true;
    connectLog.line(() => `connected to ${this.remote}`);
    this.#metrics.connectionsOpened += 1;
    this.#metrics.dialed += 1;
    this.#metrics.changed();
    this.#pump();
  }

  #pump(): void {
    const dial = this.#dial;
    if (dial === undefined || !dial.opened || dial.writer.busy) return;
    if (this.#queue.count > 0) {
      this.#metrics.writes += 1;
      this.#timing.begins();
      dial.writer.write(this.#queue);
      this.#timing.took();
      this.#admitPending();
    } else if (this.#closing && !dial.ending) {
      dial.ending = true;
      dial.socket.end();
      dial.timer = setTimeout(() => this.#lose(dial, this.#closedError('was closed by this node')), CLOSE_LINGER_MS);
      if (!this.#referenced) dial.timer.unref();
    }
  }

  #written(dial: Dial, error?: Error | null): void {
    if (this.#dial !== dial) return;
    if (error) {
      this.#lose(dial, this.#socketError(dial, error));
      return;
    }
    const { framesWritten } = this.#metrics;
    this.#timing.written();
    dial.reporting = true;
    for (let frame = dial.writer.frames.shift(); frame !== undefined; frame = dial.writer.frames.shift()) {
      const type = frame.buffer[frame.start + MESSAGE_TYPE_OFFSET] as number;
      framesWritten[type] = (framesWritten[type] ?? 0) + 1;
      this.#tellWritten(frame, true);
    }
    dial.reporting = false;
    dial.writer.release();
    this.#metrics.changed();
    if (this.#dial === dial) this.#pump();
  }

  #read(dial: Dial, chunk: Uint8Array): void {
    if (this.#dial !== dial) return;
    const failure = dial.intake.read(chunk);
    if (failure !== undefined) this.#lose(dial, this.#closedError(failure.message, failure));
  }

  #ended(dial: Dial): void {
    if (this.#dial !== dial) return;
    const failure = dial.intake.end();
    this.#lose(dial, this.#closedError(failure?.message ?? 'was closed by the peer', failure));
  }

  #lose(dial: Dial, error: VeloError): void {
    if (this.#dial !== dial) return;
    lossLog.line(() => error.message);
    this.#dial = undefined;
    clearTimeout(dial.timer);
    dial.intake.stop();
    dial.socket.removeAllListeners();
    // Errors that the dying socket still reports have nobody left to tell.
    dial.socket.on('error', () => {});
    dial.socket.destroy();
    this.#timing.lost();
    if (dial.opened) {
      this.#metrics.connectionsClosed += 1;
      this.#metrics.dialed -= 1;
    } else if (error.code === 'ERR_CONNECT_FAILED') this.#metrics.connectFailures += 1;
    const queue = this.#queue;
    const pending = this.#pending;
    this.#queue = new FrameList();
    this.#pending = new FrameList();
    this.#metrics.changed();
    if (!dial.reporting) this.#failList(dial.writer.frames, error);
    this.#failList(queue, error);
    this.#failList(pending, error);
    if (this.#closing) this.#finish();
    else this.#options.onLost?.();
  }

  #failList(list: FrameList, error: VeloError): void {
    for (let frame = list.head; frame !== undefined; frame = list.head) {
      const wasPending = frame.state === FRAME_PENDING;
      list.remove(frame);
      this.#metrics.sendErrors += 1;
      if (wasPending) this.#tellAdmitted(frame, false, error);
      else this.#tellWritten(frame, false, error);
    }
  }

  #finish(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#whenClosed ??= withResolvers();
    this.#whenClosed.resolve();
  }

  #tellWritten(frame: OutFrame, ok: boolean, error?: VeloError): void {
    try {
      frame.onWritten(ok, error);
    } catch {
      this.#metrics.handlerErrors += 1;
    }
  }

  #tellAdmitted(frame: OutFrame, ok: boolean, error?: VeloError): void {
    try {
      frame.onAdmitted(ok, error);
    } catch {
      this.#metrics.handlerErrors += 1;
    }
  }

  #socketError(dial: Dial, cause: Error): VeloError {
    const what = cause.message || cause.name;
    return dial.opened ? this.#closedError(what, cause) : this.#connectError(what, cause);
  }

  #connectError(what: string, cause?: Error): VeloError {
    return new VeloError('ERR_CONNECT_FAILED', `connecting to ${this.remote} failed: ${what}`, cause && { cause });
  }

  #closedError(what: string, cause?: Error): VeloError {
    return new VeloError('ERR_CONNECTION_CLOSED', `connection to ${this.remote}: ${what}`, cause && { cause });
  }
}

interface PromiseWithResolvers {
  readonly promise: Promise<void>;
  readonly resolve: () => void;
}

function withResolvers(): PromiseWithResolvers {
  let resolve: () => void = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

function atLeastOne(name: string, value: number): number {
  if (Number.isInteger(value) && value >= 1) return value;
  throw new VeloError('ERR_INVALID_ARGUMENT', `${name} must be an integer of at least 1, not ${value}`);
}

function checkFrame(frame: OutFrame): number {
  if (frame.state !== FRAME_IDLE) {
    throw new VeloError('ERR_INVALID_STATE', 'the frame is already on its way');
  }
  const length = frame.end - frame.start;
  if (frame.start < 0 || frame.end > frame.buffer.length || !(length >= PREAMBLE_LEN)) {
    throw new VeloError('ERR_INVALID_ARGUMENT', `frame range ${frame.start}..${frame.end} is not one of its buffer`);
  }
  if (length > PREAMBLE_LEN + MAX_FRAME_BODY) {
    throw new VeloError(
      'ERR_FRAME_TOO_LARGE',
      `frame of ${length} bytes is larger than ${MAX_FRAME_BODY} bytes of header and payload`,
    );
  }
  return length;
}
