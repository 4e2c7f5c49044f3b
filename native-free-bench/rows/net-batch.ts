// Owns the row `net-batch`: one plain socket for all streams, one hand-made buffer and one write per pass, `[u32 stream][u32 length][body]`.
// The strongest plain rival: no protocol, no credit, no fairness, no lifecycle, and every token waits for the end of its pass.

import type net from 'node:net';
import type { Token } from '../workload.js';
import { openMuxConsumer } from './net-token.js';
import { encodeToken, MUX_HEADER_LEN, putToken, putU32 } from './rival-codec.js';
import type { ProducerSide, Row } from './row.js';
import { connect, DrainGate, end } from './sockets.js';

const BUFFER_LEN = 64 * 1024;
/** Written buffers come back for the next pass; more than this many in flight at once are left to the collector. */
const SPARE_MAX = 8;

class BatchWriter implements ProducerSide {
  private readonly gate = new DrainGate();
  private readonly spare: Buffer[] = [];
  private buffer: Buffer = Buffer.allocUnsafeSlow(BUFFER_LEN);
  private used = 0;

  constructor(private readonly socket: net.Socket) {}

  send(stream: number, token: Token): void {
    const length = encodeToken(token);
    if (this.used + MUX_HEADER_LEN + length > BUFFER_LEN) this.flush();
    const at = this.used;
    putU32(this.buffer, at, stream);
    putU32(this.buffer, at + 4, length);
    this.used = putToken(this.buffer, at + MUX_HEADER_LEN);
  }

  endPass(): Promise<void> | undefined {
    this.flush();
    return this.gate.room();
  }

  async attach(): Promise<void> {}

  finish(): Promise<void> {
    return end(this.socket);
  }

  async close(): Promise<void> {}

  private flush(): void {
    if (this.used === 0) return;
    const full = this.buffer;
    this.gate.write(this.socket, full.subarray(0, this.used), () => {
      if (this.spare.length < SPARE_MAX) this.spare.push(full);
    });
    this.buffer = this.spare.pop() ?? Buffer.allocUnsafeSlow(BUFFER_LEN);
    this.used = 0;
  }
}

export const netBatchRow: Row = {
  openConsumer: (_context, sink) => openMuxConsumer(sink),
  openProducer: async (_context, hello) => new BatchWriter(await connect(hello as number)),
};
