// Builds batches record by record, so that a test can say what a peer sends, also what no well-behaved peer would.

import { BatchEncoder } from '../../lib/wire/batch.js';

const ROOM = 1_200_000;

export interface BatchHead {
  readonly epoch?: bigint;
  readonly seq?: number;
  readonly flags?: number;
}

/** Chainable; `bytes` is the finished batch. */
export class BatchBuilder {
  private readonly buffer = new Uint8Array(ROOM);
  private readonly encoder = new BatchEncoder();

  constructor(head: BatchHead = {}) {
    const epoch = head.epoch ?? 1n;
    this.encoder.begin(
      this.buffer,
      0,
      head.flags ?? 0,
      Number(epoch >> 32n),
      Number(epoch & 0xffff_ffffn),
      head.seq ?? 0,
    );
  }

  open(slot: number, anchor: bigint, session: bigint, seq = 0): this {
    this.encoder.openSlot(slot, seq, hi(anchor), lo(anchor), hi(session), lo(session));
    return this;
  }

  data(slot: number, seq: number, body: Uint8Array): this {
    this.encoder.data(slot, seq, body, 0, body.length);
    return this;
  }

  close(slot: number, seq: number, reason: number): this {
    this.encoder.closeSlot(slot, seq, reason);
    return this;
  }

  credit(slot: number, delta: number): this {
    this.encoder.creditUpdate(slot, delta);
    return this;
  }

  lifecycle(slot: number, session: bigint, action: number): this {
    this.encoder.lifecycle(slot, hi(session), lo(session), action);
    return this;
  }

  heartbeat(slot: number, seq: number): this {
    this.encoder.slotHeartbeat(slot, seq);
    return this;
  }

  get bytes(): Uint8Array {
    return this.buffer.slice(0, this.encoder.finish());
  }
}

function hi(value: bigint): number {
  return Number(value >> 32n);
}

function lo(value: bigint): number {
  return Number(value & 0xffff_ffffn);
}
