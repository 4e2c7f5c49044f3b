// What a socket's bytes become: frames, handed to the lane one by one. Shared by accepted and dialed connections. It must
// never write, never keep a frame, and never let a frame's handler bring more than its own connection down.

import { VeloError } from '../errors.js';
import { FrameReader } from '../wire/transport-frame.js';
import type { ConnectionMetrics } from './connection-metrics.js';
import type { SocketEnds } from './socket-info.js';

/** The connection that a frame came from, whichever side dialed it. */
export interface FrameSource {
  /** True for a connection this node dialed. */
  readonly dialed: boolean;
  /** `host:port` of the other side, for messages to people. */
  readonly remote: string;
  /** Counters of the transport it belongs to. */
  readonly metrics: ConnectionMetrics;
  readonly ends: SocketEnds;
  /** For `Suspicion` alone: the hosts of the peer that was named here last, and whether this socket is none of them. */
  claimedHosts: readonly string[] | undefined;
  suspect: boolean;
  /** Sends a whole frame back on this very connection. False: dropped, because this node dialed it, or too much waits there. */
  writeBack(bytes: Uint8Array): boolean;
}

/**
 * Receives one frame. The bytes are only lent for the call unless `owned`; copy what is kept. What it throws closes the
 * connection and is counted.
 */
export type SourcedFrameHandler = (
  type: number,
  buffer: Uint8Array,
  headerOffset: number,
  headerLength: number,
  payloadOffset: number,
  payloadLength: number,
  source: FrameSource,
  owned: boolean,
) => void;

/** What a lane does with the frames of its sockets. */
export interface IntakeHooks {
  readonly onFrame: SourcedFrameHandler;
  /**
   * After a socket read, before the first frame in it is handled (and not for a read that completes no frame). Here a
   * lane empties its clients' rings.
   */
  readonly onReadable?: () => void;
  /** After the last frame of a socket read; comes once for each `onReadable`, also when a frame's handler threw. */
  readonly onChunkEnd?: () => void;
}

/** Bytes into frames for one connection. After a failure, `end` or `stop` it is silent. */
export class FrameIntake {
  readonly #hooks: IntakeHooks;
  readonly #metrics: ConnectionMetrics;
  readonly #reader: FrameReader;
  #announced = false;
  #handlerError: unknown;

  constructor(source: FrameSource, hooks: IntakeHooks, metrics: ConnectionMetrics) {
    this.#hooks = hooks;
    this.#metrics = metrics;
    this.#reader = new FrameReader((type, buffer, headerAt, headerLength, payloadAt, payloadLength, owned) => {
      const { framesReceived, bytesReceived } = metrics;
      framesReceived[type] = (framesReceived[type] ?? 0) + 1;
      bytesReceived[type] = (bytesReceived[type] ?? 0) + headerLength + payloadLength;
      try {
        if (!this.#announced) this.#announce();
        hooks.onFrame(type, buffer, headerAt, headerLength, payloadAt, payloadLength, source, owned);
      } catch (error) {
        metrics.handlerErrors += 1;
        this.#handlerError = error ?? 'nothing was thrown';
        this.#reader.close();
      }
    });
  }

  /** Handles a chunk. An error means that the connection must be closed; it has been counted. */
  read(chunk: Uint8Array): VeloError | undefined {
    this.#reader.push(chunk);
    if (this.#announced) this.#chunkEnd();
    if (this.#handlerError !== undefined) {
      const cause = this.#handlerError;
      this.#handlerError = undefined;
      return new VeloError('ERR_INTERNAL', 'a frame handler failed', { cause });
    }
    return this.#takeError();
  }

  /** The stream has ended. An error when that was inside a frame; it has been counted. */
  end(): VeloError | undefined {
    this.#reader.finish();
    return this.#takeError();
  }

  /** Delivers nothing more, also when called from a frame handler. */
  stop(): void {
    this.#reader.close();
  }

  #announce(): void {
    this.#announced = true;
    this.#hooks.onReadable?.();
  }

  #chunkEnd(): void {
    this.#announced = false;
    this.#metrics.changed();
    try {
      this.#hooks.onChunkEnd?.();
    } catch (error) {
      this.#metrics.handlerErrors += 1;
      this.#handlerError ??= error ?? 'nothing was thrown';
      this.#reader.close();
    }
  }

  #takeError(): VeloError | undefined {
    const { error } = this.#reader;
    if (error === undefined) return undefined;
    this.#reader.error = undefined;
    this.#metrics.decodeErrors += 1;
    return error;
  }
}
