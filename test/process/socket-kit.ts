// What the socket tests share: frames with a body that can be checked, recorders of frame callbacks, a bare TCP peer.

import { createHash } from 'node:crypto';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { VeloError } from '../../lib/errors.js';
import { OutgoingConnection, type OutgoingConnectionOptions } from '../../lib/lanes/connection.js';
import { connectionMetrics } from '../../lib/lanes/connection-metrics.js';
import type { IntakeHooks } from '../../lib/lanes/frame-intake.js';
import { OutFrame } from '../../lib/lanes/out-frame.js';
import { encodeFrame, FRAME_MESSAGE, FrameReader } from '../../lib/wire/transport-frame.js';

export const HOST = '127.0.0.1';

/** Polls a condition; fails with `what` after ten seconds. */
export async function until(what: string, condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`gave up waiting until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** The end of this turn of the event loop, and of the next. */
export async function turns(count = 2): Promise<void> {
  for (let i = 0; i < count; i += 1) await new Promise<void>((resolve) => setImmediate(resolve));
}

/** A frame whose header is its number and whose payload depends on it. */
export function numberedFrame(index: number, payloadBytes = 4, type: number = FRAME_MESSAGE): Uint8Array {
  const header = new Uint8Array(4);
  new DataView(header.buffer).setUint32(0, index);
  const payload = new Uint8Array(payloadBytes);
  for (let i = 0; i < payloadBytes; i += 1) payload[i] = (index * 31 + i * 7) & 0xff;
  return encodeFrame(type, header, payload);
}

/** A submitted frame and everything that was said about it. */
export class RecordedFrame extends OutFrame {
  readonly events: string[] = [];
  error: VeloError | undefined;

  constructor(
    bytes: Uint8Array,
    readonly log: RecordedFrame[] = [],
    readonly then: (frame: RecordedFrame, event: string) => void = () => {},
  ) {
    super(bytes);
  }

  override onWritten(ok: boolean, error?: VeloError): void {
    this.#record(ok ? 'written' : 'failed', error);
  }

  override onAdmitted(ok: boolean, error?: VeloError): void {
    this.#record(ok ? 'admitted' : 'refused', error);
  }

  #record(event: string, error?: VeloError): void {
    this.events.push(event);
    this.error = error;
    this.log.push(this);
    this.then(this, event);
  }
}

export interface ReceivedFrame {
  readonly type: number;
  readonly index: number;
  readonly header: Uint8Array;
  readonly payload: Uint8Array;
}

/** Cuts a stream into frames and keeps copies. */
export function frameCollector(): { reader: FrameReader; frames: ReceivedFrame[] } {
  const frames: ReceivedFrame[] = [];
  const reader = new FrameReader((type, buffer, headerAt, headerLength, payloadAt, payloadLength) => {
    // not slice: that of a Buffer is a view, and these bytes are only lent
    const header = new Uint8Array(buffer.subarray(headerAt, headerAt + headerLength));
    const payload = new Uint8Array(buffer.subarray(payloadAt, payloadAt + payloadLength));
    const index = header.length === 4 ? new DataView(header.buffer).getUint32(0) : -1;
    frames.push({ type, index, header, payload });
  });
  return { reader, frames };
}

/** A bare TCP server that collects what each connection sends. */
export class Peer {
  readonly sockets: Socket[] = [];
  readonly frames: ReceivedFrame[] = [];
  readonly ended: Socket[] = [];
  /** What to do with a new connection before it is read; `pause` leaves it unread. */
  onSocket: (socket: Socket) => void = () => {};
  bytes = 0;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((socket) => {
      const { reader, frames } = frameCollector();
      let passed = 0;
      this.sockets.push(socket);
      socket.on('data', (chunk) => {
        this.bytes += chunk.length;
        reader.push(chunk);
        for (; passed < frames.length; passed += 1) this.frames.push(frames[passed]!);
      });
      socket.on('end', () => this.ended.push(socket));
      socket.on('error', () => {});
      this.onSocket(socket);
    });
  }

  static async listen(port = 0): Promise<Peer> {
    const peer = new Peer();
    await new Promise<void>((resolve, reject) => {
      peer.#server.once('error', reject);
      peer.#server.listen(port, HOST, resolve);
    });
    return peer;
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('not listening');
    return address.port;
  }

  get indices(): number[] {
    return this.frames.map((frame) => frame.index);
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
  }
}

/** A port that nobody listens on. */
export async function freePort(): Promise<number> {
  const peer = await Peer.listen();
  const { port } = peer;
  await peer.close();
  return port;
}

export const NO_HOOKS: IntakeHooks = { onFrame: () => {} };

/** A connection with its own counters. */
export function dial(port: number, options: Partial<OutgoingConnectionOptions> = {}) {
  const metrics = connectionMetrics();
  const connection = new OutgoingConnection({ to: { host: HOST, port }, metrics, hooks: NO_HOOKS, ...options });
  return { connection, metrics };
}

/** A raw client socket that collects frames and notes its end. */
export async function rawClient(port: number) {
  const { reader, frames } = frameCollector();
  const state = { closed: false, bytes: 0 };
  const socket = connect({ host: HOST, port, noDelay: true });
  socket.on('data', (chunk) => {
    state.bytes += chunk.length;
    reader.push(chunk);
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    state.closed = true;
  });
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('close', () => reject(new Error('closed before it stood')));
  });
  return { socket, frames, state };
}

export function digest(chunks: Iterable<Uint8Array>): string {
  const hash = createHash('sha256');
  for (const chunk of chunks) hash.update(chunk);
  return hash.digest('hex');
}
