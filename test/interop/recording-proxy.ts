// Two TCP listeners between two nodes, one in front of each. Everything passes through frame by frame and is kept as it was sent.
// A hello carries the address of the node that says it, so its address is exchanged on the way: nothing else is ever changed.

import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { PeerInfo } from '../../lib/index.js';
import { encodeTcpEndpoints, encodeWorkerAddress } from '../../lib/wire/address.js';
import { decodeRequestHeader } from '../../lib/wire/envelope.js';
import { encodeHello } from '../../lib/wire/hello.js';
import { ADDRESS_KEY_TCP, HANDLER_HELLO } from '../../lib/wire/names.js';
import { encodeFrame, FRAME_MESSAGE, FrameReader } from '../../lib/wire/transport-frame.js';
import { tcpPort } from './kit.js';

const LOOPBACK = '127.0.0.1';

export interface RecordedFrame {
  /** Name of the node that sent it. */
  readonly from: string;
  /** Counts the connections in the order they were made. */
  readonly connection: number;
  /** Sent by the node that had accepted the connection. */
  readonly back: boolean;
  readonly type: number;
  readonly header: Uint8Array;
  readonly payload: Uint8Array;
  /** The whole frame. */
  readonly bytes: Uint8Array;
}

interface Front {
  readonly name: string;
  readonly server: Server;
  /** The node behind it, at the address of the front. */
  readonly info: PeerInfo;
  readonly realPort: number;
}

export class RecordingProxy {
  readonly frames: RecordedFrame[] = [];
  connections = 0;
  private readonly sockets = new Set<Socket>();

  private constructor(private readonly fronts: readonly [Front, Front]) {
    fronts.forEach((front, i) => {
      front.server.on('connection', (socket: Socket) => this.accept(socket, front, fronts[1 - i]!));
    });
  }

  /** A proxy between two nodes; their names are what frames are recorded under. */
  static async between(a: readonly [string, PeerInfo], b: readonly [string, PeerInfo]): Promise<RecordingProxy> {
    return new RecordingProxy([await frontOf(...a), await frontOf(...b)]);
  }

  /** The address that stands for a node: register this one with the other node. */
  infoOf(name: string): PeerInfo {
    return this.fronts.find((front) => front.name === name)!.info;
  }

  /** Frames that a node sent. */
  sentBy(name: string): RecordedFrame[] {
    return this.frames.filter(({ from }) => from === name);
  }

  /** Names of the requests a node sent, in order. */
  requestsOf(name: string): string[] {
    return this.sentBy(name)
      .filter(({ type }) => type === FRAME_MESSAGE)
      .map(({ header }) => decodeRequestHeader(header, 0, header.length).handler);
  }

  /** Cuts every connection; new ones are accepted. */
  hangUp(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.hangUp();
    await Promise.all(this.fronts.map(({ server }) => new Promise((resolve) => server.close(resolve))));
  }

  private accept(dialer: Socket, target: Front, origin: Front): void {
    const connection = this.connections++;
    const upstream = connect({ host: LOOPBACK, port: target.realPort, noDelay: true });
    this.relay(dialer, upstream, (frame) => this.record(frame, origin, connection, false));
    this.relay(upstream, dialer, (frame) => this.record(frame, target, connection, true));
  }

  /** Passes frames on as they are complete; an end or an error of one socket ends the other. */
  private relay(from: Socket, to: Socket, seen: (frame: RawFrame) => Uint8Array): void {
    this.sockets.add(from);
    const reader = new FrameReader((type, buffer, headerAt, headerLength, payloadAt, payloadLength) => {
      const header = buffer.slice(headerAt, headerAt + headerLength);
      const payload = buffer.slice(payloadAt, payloadAt + payloadLength);
      if (!to.write(seen({ type, header, payload }))) from.pause();
    });
    from.setNoDelay(true);
    from.on('data', (chunk) => reader.push(chunk));
    from.on('error', () => {});
    from.on('end', () => to.end());
    from.on('close', () => {
      this.sockets.delete(from);
      to.destroySoon();
    });
    to.on('drain', () => from.resume());
  }

  /** Keeps the frame; returns the bytes to pass on. */
  private record({ type, header, payload }: RawFrame, sender: Front, connection: number, back: boolean): Uint8Array {
    const bytes = encodeFrame(type, header, payload);
    this.frames.push({ from: sender.name, connection, back, type, header, payload, bytes });
    if (type !== FRAME_MESSAGE || decodeRequestHeader(header, 0, header.length).handler !== HANDLER_HELLO) return bytes;
    return encodeFrame(type, header, encodeHello(sender.info));
  }
}

interface RawFrame {
  readonly type: number;
  readonly header: Uint8Array;
  readonly payload: Uint8Array;
}

async function frontOf(name: string, node: PeerInfo): Promise<Front> {
  const server = createServer({ noDelay: true });
  server.listen(0, LOOPBACK);
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('a TCP listener has a port');
  const endpoint = { name: '', host: LOOPBACK, port: address.port, prefixLength: 32, numaNode: null };
  const info = new PeerInfo(node.instanceId, encodeWorkerAddress([[ADDRESS_KEY_TCP, encodeTcpEndpoints([endpoint])]]));
  return { name, server, info, realPort: tcpPort(node) };
}
