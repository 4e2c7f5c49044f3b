// Owns what the rivals share around node:net: listening, connecting, waiting for drain, ending. Loopback only.
// Must never know how a row frames its tokens.

import type { AddressInfo } from 'node:net';
import net from 'node:net';

const LOOPBACK = '127.0.0.1';
const BACKLOG = 4096;

/** Counts the sockets that asked the writer to wait, and resolves one promise when the last of them drained. */
export class DrainGate {
  private blocked = 0;
  private waiting: Promise<void> | undefined;
  private wake: (() => void) | undefined;

  /** Writes and, when the socket asks to wait, remembers it. */
  write(socket: net.Socket, data: Uint8Array, written?: () => void): void {
    if (socket.write(data, written)) return;
    if (socket.listenerCount('drain') > 0) return; // blocked already by an earlier write of this pass
    this.blocked++;
    socket.once('drain', this.onDrain);
  }

  /** Undefined when no socket is blocked. */
  room(): Promise<void> | undefined {
    if (this.blocked === 0) return undefined;
    this.waiting ??= new Promise((resolve) => {
      this.wake = resolve;
    });
    return this.waiting;
  }

  private readonly onDrain = (): void => {
    if (--this.blocked > 0) return;
    const wake = this.wake;
    this.waiting = undefined;
    this.wake = undefined;
    wake?.();
  };
}

export interface Listener {
  readonly port: number;
  /** Resolves when `count` connections have ended. */
  ended(count: number): Promise<void>;
  close(): Promise<void>;
}

/** Listens on an ephemeral loopback port. `onSocket` installs its own data listener; errors go to `onError`. */
export async function listen(
  onSocket: (socket: net.Socket) => void,
  onError: (error: Error) => void,
): Promise<Listener> {
  let over = 0;
  let check = (): void => undefined;
  const server = net.createServer({ noDelay: true }, (socket) => {
    socket.on('error', onError);
    socket.on('end', () => {
      over++;
      check();
    });
    onSocket(socket);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port: 0, host: LOOPBACK, backlog: BACKLOG }, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    ended: (count) =>
      new Promise((resolve) => {
        check = () => {
          if (over >= count) resolve();
        };
        check();
      }),
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

export function connect(port: number): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ port, host: LOOPBACK, noDelay: true });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      resolve(socket);
    });
  });
}

/** Ends the writing side; resolves when the socket is closed. */
export function end(socket: net.Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('close', () => resolve());
    socket.resume();
    socket.end();
  });
}
