// One accepted connection: frames in, and the rare frame back. It must never identify the peer (a connection has no
// identity), never answer bad bytes, and never let one connection's trouble reach another.

import type { Socket } from 'node:net';
import { DebugLog } from '../debug-log.js';
import type { ConnectionMetrics } from './connection-metrics.js';
import { FrameIntake, type FrameSource, type IntakeHooks } from './frame-intake.js';
import type { TransportKey } from './lane-metrics.js';
import { type SocketEnds, socketEnds } from './socket-info.js';

/** Bytes that may wait for a peer that does not read what it is told on its own connection. */
export const WRITE_BACK_BYTES = 1024 * 1024;

export interface InboundConnectionOptions {
  readonly metrics: ConnectionMetrics;
  readonly hooks: IntakeHooks;
  readonly transport: TransportKey;
  /** How messages name the other end, where its socket has no address. */
  readonly remote?: string | undefined;
  /** Called once, when the socket is gone. */
  readonly onClosed?: (connection: InboundConnection) => void;
}

const connectLog = new DebugLog();
const lossLog = new DebugLog();

export class InboundConnection implements FrameSource {
  readonly dialed = false;
  readonly remote: string;
  readonly ends: SocketEnds;
  claimedHosts: readonly string[] | undefined;
  suspect = false;
  readonly #socket: Socket;
  readonly #metrics: ConnectionMetrics;
  readonly #intake: FrameIntake;
  readonly #onClosed: ((connection: InboundConnection) => void) | undefined;
  #closed = false;

  constructor(socket: Socket, options: InboundConnectionOptions) {
    this.remote = options.remote ?? `${socket.remoteAddress}:${socket.remotePort}`;
    this.ends = socketEnds(socket, options.transport);
    this.#socket = socket;
    this.#metrics = options.metrics;
    this.#intake = new FrameIntake(this, options.hooks, options.metrics);
    this.#onClosed = options.onClosed;
    options.metrics.connectionsOpened += 1;
    connectLog.line(() => `${this.remote} connected`);
    options.metrics.changed();
    socket.on('data', (chunk) => {
      if (this.#intake.read(chunk) !== undefined) this.destroy();
    });
    socket.on('end', () => {
      this.#intake.end();
      this.destroy();
    });
    // A reset needs no more than the close that follows it; a peer that comes and goes without a byte is nothing at all.
    socket.on('error', () => {});
    socket.on('close', () => this.destroy());
  }

  get metrics(): ConnectionMetrics {
    return this.#metrics;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Sends a complete frame on this very socket: the echo of a draining node, or the answer to a requester that has no
   * listener. `bytes` must not change afterwards. False: dropped (counted), because the connection is closed or
   * `WRITE_BACK_BYTES` wait for a peer that does not read.
   */
  writeBack(bytes: Uint8Array): boolean {
    if (this.#closed || this.#socket.writableLength + bytes.length > WRITE_BACK_BYTES) {
      this.#metrics.writeBackDropped += 1;
      return false;
    }
    this.#socket.write(bytes);
    return true;
  }

  /** Closes at once; safe to call from a frame handler, and more than once. */
  destroy(): void {
    if (this.#closed) return;
    this.#closed = true;
    lossLog.line(() => `the connection of ${this.remote} closed`);
    this.#intake.stop();
    this.#socket.destroy();
    this.#metrics.connectionsClosed += 1;
    this.#metrics.changed();
    this.#onClosed?.(this);
  }

  /** Lets the socket keep the process alive (the default). */
  ref(): this {
    this.#socket.ref();
    return this;
  }

  unref(): this {
    this.#socket.unref();
    return this;
  }
}
