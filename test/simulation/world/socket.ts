// Simulated sockets and servers: real streams with what the code under test uses of `net.Socket` and `net.Server`. Where bytes go
// is the network's business.

import { EventEmitter } from 'node:events';
import { Duplex } from 'node:stream';
import type { Pipe } from './pipe.js';
import { type Holding, type Process, RANK_NET, type Schedule } from './schedule.js';

type Done = (error?: Error | null) => void;

export function netError(code: string, what: string): Error {
  return Object.assign(new Error(`${what} ${code}`), { code, syscall: what });
}

export class SimSocket extends Duplex implements Holding {
  readonly what = 'socket';
  connecting: boolean;
  outgoing: Pipe | undefined;
  incoming: Pipe | undefined;
  remoteAddress: string | undefined;
  remotePort: number | undefined;
  localAddress: string | undefined;
  localPort: number | undefined;
  private waiting: (() => void) | undefined;

  constructor(
    readonly owner: Process,
    connecting: boolean,
  ) {
    super({ allowHalfOpen: false });
    this.connecting = connecting;
    owner.holdings.add(this);
  }

  /** The connection stands. */
  established(): void {
    this.connecting = false;
    const { waiting } = this;
    this.waiting = undefined;
    this.emit('connect');
    this.emit('ready');
    waiting?.();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    if (this.connecting) this.waiting = () => this.outgoing!.write(chunk, done);
    else this.outgoing!.write(chunk, done);
  }

  override _read(): void {}

  override _final(done: Done): void {
    this.outgoing?.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.owner.holdings.delete(this);
    this.outgoing?.end();
    done(error);
  }

  /** Its process died: nobody hears anything of it any more. */
  die(): void {
    this.removeAllListeners();
    this.on('error', () => {});
    this.outgoing?.end();
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}

/** Where servers listen. */
export interface Ports {
  take(host: string, port: number, server: SimServer): number;
  free(host: string, port: number): void;
}

export class SimServer extends EventEmitter implements Holding {
  readonly what = 'server';
  private at: { host: string; port: number } | undefined;
  private closing = false;

  constructor(
    readonly owner: Process,
    private readonly schedule: Schedule,
    private readonly ports: Ports,
  ) {
    super();
  }

  listen(options: { host: string; port: number }): this {
    this.owner.holdings.add(this);
    this.schedule.after(0.05, RANK_NET, this.owner, 'listening', () => {
      if (this.closing) return;
      const port = this.ports.take(options.host, options.port, this);
      if (port === 0) {
        this.emit('error', netError('EADDRINUSE', 'listen'));
        return;
      }
      this.at = { host: options.host, port };
      this.emit('listening');
    });
    return this;
  }

  address(): { address: string; port: number; family: string } | null {
    return this.at === undefined ? null : { address: this.at.host, port: this.at.port, family: 'IPv4' };
  }

  close(done?: (error?: Error) => void): this {
    if (done !== undefined) this.once('close', done);
    if (this.closing) return this;
    this.die();
    process.nextTick(() => this.emit('close'));
    return this;
  }

  die(): void {
    this.closing = true;
    this.owner.holdings.delete(this);
    if (this.at !== undefined) this.ports.free(this.at.host, this.at.port);
    this.at = undefined;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}
