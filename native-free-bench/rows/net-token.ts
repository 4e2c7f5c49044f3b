// Owns the row `net-token`: one plain socket for all streams, one write per token, `[u32 stream][u32 length][body]`.
// What a producer does that wants each token to leave at once. No flow control per stream.

import type net from 'node:net';
import type { Sink, Token } from '../workload.js';
import { decodeToken, encodeToken, FrameReader, getU32, MUX_HEADER_LEN, putToken, putU32 } from './rival-codec.js';
import type { ConsumerSide, ProducerSide, Row } from './row.js';
import { connect, DrainGate, end, listen } from './sockets.js';

/** The consumer of every row that has one connection for all streams. */
export async function openMuxConsumer(sink: Sink): Promise<ConsumerSide> {
  const onSocket = (socket: net.Socket): void => {
    const reader = new FrameReader(MUX_HEADER_LEN, (buffer, header, start, stop) => {
      sink.token(getU32(buffer, header), decodeToken(buffer, start, stop));
    });
    socket.on('data', (chunk: Buffer) => reader.push(chunk));
  };
  const listener = await listen(onSocket, (error) => sink.fail(error));
  return {
    hello: listener.port,
    join: async () => undefined,
    ended: () => listener.ended(1),
    close: () => listener.close(),
  };
}

class TokenWriter implements ProducerSide {
  private readonly gate = new DrainGate();

  constructor(private readonly socket: net.Socket) {}

  send(stream: number, token: Token): void {
    const length = encodeToken(token);
    const frame = Buffer.allocUnsafe(MUX_HEADER_LEN + length);
    putU32(frame, 0, stream);
    putU32(frame, 4, length);
    putToken(frame, MUX_HEADER_LEN);
    this.gate.write(this.socket, frame);
  }

  endPass(): Promise<void> | undefined {
    return this.gate.room();
  }

  async attach(): Promise<void> {}

  finish(): Promise<void> {
    return end(this.socket);
  }

  async close(): Promise<void> {}
}

export const netTokenRow: Row = {
  openConsumer: (_context, sink) => openMuxConsumer(sink),
  openProducer: async (_context, hello) => new TokenWriter(await connect(hello as number)),
};
