// One listening TCP port or Unix socket, and the connections it accepted. It must never crash on what the network or a peer
// does, and never hold more connections than it was told.
//
// When accepting fails (no file descriptors left, say) the place is given up for a moment and taken again, waiting longer
// each time: an event loop that is told of the same failure again and again would do nothing else.

import { createServer, type Server, type Socket } from 'node:net';
import { DebugLog } from '../debug-log.js';
import { VeloError } from '../errors.js';
import { KEEPALIVE_IDLE_MS } from './connection.js';
import type { ConnectionMetrics } from './connection-metrics.js';
import { type Endpoint, endpointName } from './endpoint.js';
import type { IntakeHooks } from './frame-intake.js';
import { InboundConnection } from './inbound.js';
import { boundName, clearStale, publishSocket, removeSocketFile, type SocketFile } from './socket-file.js';

export const DEFAULT_MAX_INBOUND_CONNECTIONS = 1_024;
/** Connections the kernel holds for us before we accept them. */
export const LISTEN_BACKLOG = 1_024;
const ACCEPT_RETRY_MS_MIN = 50;
const ACCEPT_RETRY_MS_MAX = 1_000;

export interface ListenerOptions {
  readonly metrics: ConnectionMetrics;
  readonly hooks: IntakeHooks;
  /** Connections held at once; the newest above it is closed at once and counted. Default 1,024. */
  readonly maxInboundConnections?: number;
  /** How a server is made; for tests that need one which fails. */
  readonly createServer?: typeof createServer;
}

const refusalLog = new DebugLog();

export class Listener {
  readonly #options: ListenerOptions;
  readonly #maxConnections: number;
  readonly #connections = new Set<InboundConnection>();
  #server: Server | undefined;
  /** Where it listens, or tries to. */
  #at: Endpoint | undefined;
  #file: SocketFile | undefined;
  #port = 0;
  #closed = false;
  #referenced = true;
  #retryMs = ACCEPT_RETRY_MS_MIN;
  #retry: NodeJS.Timeout | undefined;

  constructor(options: ListenerOptions) {
    const max = options.maxInboundConnections ?? DEFAULT_MAX_INBOUND_CONNECTIONS;
    if (!Number.isInteger(max) || max < 1) {
      throw new VeloError('ERR_INVALID_ARGUMENT', `maxInboundConnections must be an integer of at least 1, not ${max}`);
    }
    this.#options = options;
    this.#maxConnections = max;
  }

  /** The bound port; 0 before `listen` has resolved, and on a Unix socket. */
  get port(): number {
    return this.#port;
  }

  /** Connections that stand now. */
  get connections(): ReadonlySet<InboundConnection> {
    return this.#connections;
  }

  /**
   * Binds and resolves to the port (the one chosen, for port 0). Rejects with `ERR_LISTEN_FAILED`, naming host and port,
   * and may be called again then; `ERR_INVALID_STATE` when it already listens, `ERR_CLOSED` after `close`.
   */
  async listen(host: string, port: number): Promise<number> {
    await this.#listen({ host, port });
    this.#at = { host, port: this.#port };
    return this.#port;
  }

  /**
   * Takes the path and listens there. A socket file that nobody answers at any more is replaced. Resolves to the file, which is
   * removed again at the close. Rejects as `listen` does, also when something else stands at the path, or somebody who answers.
   */
  async listenAt(path: string): Promise<SocketFile> {
    await this.#listen({ path });
    return this.#file!;
  }

  async #listen(at: Endpoint): Promise<void> {
    if (this.#closed) throw new VeloError('ERR_CLOSED', 'the listener is closed');
    if (this.#at !== undefined) {
      throw new VeloError('ERR_INVALID_STATE', `already listening on ${endpointName(this.#at)}`);
    }
    this.#at = at;
    try {
      await this.#take(at);
    } catch (error) {
      clearTimeout(this.#retry);
      this.#at = undefined;
      throw error;
    }
  }

  /** Stops accepting and closes every accepted connection. Idempotent; resolves when the port or path is free. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#retry);
    const server = this.#server;
    this.#server = undefined;
    this.#removeFile();
    for (const connection of [...this.#connections]) connection.destroy();
    if (server === undefined) return;
    await new Promise<void>((resolve) => {
      server.close(() => resolve());
    });
  }

  /** Lets the port and its connections keep the process alive (the default). */
  ref(): this {
    this.#referenced = true;
    this.#server?.ref();
    this.#retry?.ref();
    for (const connection of this.#connections) connection.ref();
    return this;
  }

  unref(): this {
    this.#referenced = false;
    this.#server?.unref();
    this.#retry?.unref();
    for (const connection of this.#connections) connection.unref();
    return this;
  }

  async #take(at: Endpoint): Promise<void> {
    if (!('path' in at)) {
      this.#port = await this.#bind(at, at);
      return;
    }
    await clearStale(at.path);
    if (this.#closed) throw closed();
    const bound = boundName(at.path);
    await this.#bind(at, { path: bound });
    if (this.#closed) throw closed();
    try {
      this.#file = publishSocket(bound, at.path);
    } catch (error) {
      this.#server?.close();
      this.#server = undefined;
      throw error;
    }
  }

  /** Resolves to the port, 0 for a path. `at` is what messages name. */
  #bind(at: Endpoint, to: Endpoint): Promise<number> {
    const create = this.#options.createServer ?? createServer;
    const server = create({ noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_IDLE_MS });
    this.#server = server;
    return new Promise((resolve, reject) => {
      const refused = (cause: unknown) => {
        if (this.#server === server) this.#server = undefined;
        const why = cause instanceof Error ? cause.message : String(cause);
        reject(new VeloError('ERR_LISTEN_FAILED', `cannot listen on ${endpointName(at)}: ${why}`, { cause }));
      };
      server.once('error', refused);
      // Closed before it listened: neither of the other two events comes then.
      server.once('close', () => reject(closed()));
      server.once('listening', () => {
        server.off('error', refused);
        server.on('error', () => this.#acceptFailed(server));
        if (this.#server !== server) {
          // Closed while the address was being looked up: `close` found nothing to close then.
          server.close();
          return;
        }
        const address = server.address();
        resolve(typeof address === 'object' && address !== null ? address.port : 0);
      });
      server.on('connection', (socket) => this.#accept(socket));
      if (!this.#referenced) server.unref();
      try {
        server.listen({ ...to, backlog: LISTEN_BACKLOG, exclusive: true });
      } catch (cause) {
        refused(cause);
      }
    });
  }

  #accept(socket: Socket): void {
    const { metrics, hooks } = this.#options;
    this.#retryMs = ACCEPT_RETRY_MS_MIN;
    if (this.#closed || this.#connections.size >= this.#maxConnections) {
      if (!this.#closed) {
        metrics.inboundRefused += 1;
        refusalLog.line(() => `refused a connection: ${this.#maxConnections} stand (maxInboundConnections)`);
      }
      socket.on('error', () => {});
      socket.destroy();
      return;
    }
    const connection = new InboundConnection(socket, {
      metrics,
      hooks,
      transport: this.#file === undefined ? 'tcp' : 'uds',
      remote: this.#file === undefined ? undefined : `a client of uds://${this.#file.path}`,
      onClosed: (gone) => this.#connections.delete(gone),
    });
    this.#connections.add(connection);
    if (!this.#referenced) connection.unref();
  }

  #acceptFailed(server: Server): void {
    this.#options.metrics.acceptErrors += 1;
    if (this.#server !== server) return;
    this.#server = undefined;
    this.#removeFile();
    server.close();
    this.#bindLater();
  }

  #removeFile(): void {
    if (this.#file !== undefined) removeSocketFile(this.#file);
    this.#file = undefined;
  }

  #bindLater(): void {
    if (this.#closed) return;
    const delay = this.#retryMs;
    this.#retryMs = Math.min(delay * 2, ACCEPT_RETRY_MS_MAX);
    this.#retry = setTimeout(() => {
      this.#take(this.#at!).catch(() => {
        this.#options.metrics.acceptErrors += 1;
        this.#bindLater();
      });
    }, delay);
    if (!this.#referenced) this.#retry.unref();
  }
}

function closed(): VeloError {
  return new VeloError('ERR_CLOSED', 'the listener was closed');
}
