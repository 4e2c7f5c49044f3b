// Owns the row `net-per-stream`: a TCP connection per stream, `[u32 length][body]` on it after a u32 that names the stream, one write per token.
// What a team gets without a multiplexer: flow control per stream, and a socket, a handshake and a system call for each.

import type net from 'node:net';
import type { Sink, Token } from '../workload.js';
import { decodeToken, encodeToken, FrameReader, getU32, putToken, putU32, STREAM_HEADER_LEN } from './rival-codec.js';
import type { ConsumerSide, ProducerSide, Row, RowContext } from './row.js';
import { connect, DrainGate, end, listen } from './sockets.js';

const NAME_LEN = 4;

/** The connection's first bytes name its stream; what follows are frames. */
function readStream(socket: net.Socket, sink: Sink): void {
  let name = Buffer.alloc(0);
  let stream = -1;
  const reader = new FrameReader(STREAM_HEADER_LEN, (buffer, _header, start, stop) => {
    sink.token(stream, decodeToken(buffer, start, stop));
  });
  socket.on('data', (chunk: Buffer) => {
    if (stream >= 0) {
      reader.push(chunk);
      return;
    }
    name = Buffer.concat([name, chunk]);
    if (name.length < NAME_LEN) return;
    stream = getU32(name, 0);
    reader.push(name.subarray(NAME_LEN));
  });
}

async function openConsumer(context: RowContext, sink: Sink): Promise<ConsumerSide> {
  const listener = await listen(
    (socket) => readStream(socket, sink),
    (error) => sink.fail(error),
  );
  return {
    hello: listener.port,
    join: async () => undefined,
    ended: () => listener.ended(context.streams),
    close: () => listener.close(),
  };
}

class StreamWriters implements ProducerSide {
  private readonly gate = new DrainGate();

  constructor(private readonly sockets: readonly net.Socket[]) {}

  send(stream: number, token: Token): void {
    const length = encodeToken(token);
    const frame = Buffer.allocUnsafe(STREAM_HEADER_LEN + length);
    putU32(frame, 0, length);
    putToken(frame, STREAM_HEADER_LEN);
    this.gate.write(this.sockets[stream]!, frame);
  }

  endPass(): Promise<void> | undefined {
    return this.gate.room();
  }

  async attach(): Promise<void> {
    this.sockets.forEach((socket, stream) => {
      const name = Buffer.allocUnsafe(NAME_LEN);
      putU32(name, 0, stream);
      socket.write(name);
    });
  }

  async finish(): Promise<void> {
    await Promise.all(this.sockets.map(end));
  }

  async close(): Promise<void> {}
}

export const netPerStreamRow: Row = {
  openConsumer,
  openProducer: async ({ streams }, hello) =>
    new StreamWriters(await Promise.all(Array.from({ length: streams }, () => connect(hello as number)))),
};
