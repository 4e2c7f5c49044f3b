// Buffers and frame objects of outgoing batches, used again and again. A buffer comes back only after its write completed
// without error: a failed socket may still hold it. The pool is bounded; what does not fit is left to the collector.

import type { VeloError } from '../errors.js';
import { BATCH_HEADROOM, COALESCE_THRESHOLD } from '../mux/mux-config.js';
import { OutFrame } from './out-frame.js';

/** Room for the largest packed batch and for what goes before it. */
export const POOLED_BUFFER_BYTES = BATCH_HEADROOM + COALESCE_THRESHOLD;
/** 64 buffers are 4 MiB per lane: more batches than a lane has in flight in ordinary traffic. */
const MAX_POOLED = 64;

/** Who hears how a pending admission ended. */
export interface AdmissionListener {
  admission(ok: boolean): void;
}

/** One batch on its way out. */
export class BatchFrame extends OutFrame {
  listener: AdmissionListener | undefined;

  constructor(private readonly pool: FramePool) {
    super(EMPTY);
  }

  override onWritten(ok: boolean): void {
    this.pool.recycle(this, ok);
  }

  override onAdmitted(ok: boolean, _error?: VeloError): void {
    const listener = this.listener;
    if (!ok) this.pool.recycle(this, false);
    listener?.admission(ok);
    this.pool.admissionResolved();
  }
}

const EMPTY = new Uint8Array(0);

export class FramePool {
  private readonly buffers: Uint8Array[] = [];
  private readonly frames: BatchFrame[] = [];

  constructor(
    /** Called after an admission was answered: the batcher may have work, and nobody else will run it. */
    readonly admissionResolved: () => void,
  ) {}

  buffer(): Uint8Array {
    return this.buffers.pop() ?? Buffer.allocUnsafeSlow(POOLED_BUFFER_BYTES);
  }

  release(buffer: Uint8Array): void {
    if (buffer.length === POOLED_BUFFER_BYTES && this.buffers.length < MAX_POOLED) this.buffers.push(buffer);
  }

  frame(buffer: Uint8Array, start: number, end: number, listener: AdmissionListener): BatchFrame {
    const frame = this.frames.pop() ?? new BatchFrame(this);
    frame.buffer = buffer;
    frame.start = start;
    frame.end = end;
    frame.listener = listener;
    return frame;
  }

  recycle(frame: BatchFrame, reusable: boolean): void {
    const buffer = frame.buffer;
    frame.buffer = EMPTY;
    frame.start = 0;
    frame.end = 0;
    frame.listener = undefined;
    if (this.frames.length < MAX_POOLED) this.frames.push(frame);
    if (reusable) this.release(buffer);
  }
}
