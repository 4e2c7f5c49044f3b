// One listening TCP port and the connections it accepted. It must never crash on what the network or a peer does, and
// never hold more connections than it was told.
//
// When accepting fails (no file descriptors left, say) the port is given up for a moment and taken again, waiting longer
// each time: an event loop that is told of the same failure again and again would do nothing else.

import { createServer, type Server, type Socket } from 'node:net';
import { VeloError } from '../errors.js';
import { KEEPALIVE_IDLE_MS } from './connection.js';
import type { ConnectionMetrics } from './connection-metrics.js';
import type { IntakeHooks } from './frame-intake.js';
import { InboundConnection } from './inbound.js';

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

export class Listener {
  readonly #options: ListenerOptions;
  readonly #maxConnections: number;
  readonly #connections = new Set<InboundConnection>();
  #server: Server | undefined;
  #host = '';
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

  /** The bound port; 0 before `listen` has resolved. */
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
    if (this.#closed) throw new VeloError('ERR_CLOSED', 'the listener is closed');
    if (this.#server !== undefined || this.#port !== 0) {
      throw new VeloError('ERR_INVALID_STATE', `already listening on ${this.#host}:${this.#port}`);
    }
    this.#host = host;
    this.#port = await this.#bind(port);
    return this.#port;
  }

  /** Stops accepting and closes every accepted connection. Idempotent; resolves when the port is free. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#retry);
    const server = this.#server;
    this.#server = undefined;
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

  #bind(port: number): Promise<number> {
    const create = this.#options.createServer ?? createServer;
    const server = create({ noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_IDLE_MS });
    this.#server = server;
    return new Promise((resolve, reject) => {
      const refused = (cause: unknown) => {
        if (this.#server === server) this.#server = undefined;
        const why = cause instanceof Error ? cause.message : String(cause);
        reject(new VeloError('ERR_LISTEN_FAILED', `cannot listen on ${this.#host}:${port}: ${why}`, { cause }));
      };
      server.once('error', refused);
      // Closed before it listened: neither of the other two events comes then.
      server.once('close', () => reject(new VeloError('ERR_CLOSED', 'the listener was closed')));
      server.once('listening', () => {
        server.off('error', refused);
        server.on('error', () => this.#acceptFailed(server));
        if (this.#server !== server) {
          // Closed while the address was being looked up: `close` found nothing to close then.
          server.close();
          return;
        }
        const address = server.address();
        resolve(typeof address === 'object' && address !== null ? address.port : port);
      });
      server.on('connection', (socket) => this.#accept(socket));
      if (!this.#referenced) server.unref();
      try {
        server.listen({ host: this.#host, port, backlog: LISTEN_BACKLOG, exclusive: true });
      } catch (cause) {
        refused(cause);
      }
    });
  }

  #accept(socket: Socket): void {
    const { metrics, hooks } = this.#options;
    this.#retryMs = ACCEPT_RETRY_MS_MIN;
    if (this.#closed || this.#connections.size >= this.#maxConnections) {
      if (!this.#closed) metrics.inboundRefused += 1;
      socket.on('error', () => {});
      socket.destroy();
      return;
    }
    const connection = new InboundConnection(socket, {
      metrics,
      hooks,
      onClosed: (closed) => this.#connections.delete(closed),
    });
    this.#connections.add(connection);
    if (!this.#referenced) connection.unref();
  }

  #acceptFailed(server: Server): void {
    this.#options.metrics.acceptErrors += 1;
    if (this.#server !== server) return;
    this.#server = undefined;
    server.close();
    this.#bindLater();
  }

  #bindLater(): void {
    if (this.#closed) return;
    const delay = this.#retryMs;
    this.#retryMs = Math.min(delay * 2, ACCEPT_RETRY_MS_MAX);
    this.#retry = setTimeout(() => {
      this.#bind(this.#port).catch(() => {
        this.#options.metrics.acceptErrors += 1;
        this.#bindLater();
      });
    }, delay);
    if (!this.#referenced) this.#retry.unref();
  }
}
