// Puts replies to the peer into the open batch and tells the gate what kind they are: credit may linger, closes and
// lifecycle records may not. Owns that mapping; it must never decide which replies are owed.

import type { LifecycleReply } from './batch-manifest.js';
import { ALONE, type BatchWriter, BLOCKED } from './batch-writer.js';
import type { ReplyWriter } from './batcher-control.js';
import type { FlushGate } from './flush-gate.js';
import type { MuxMetrics } from './mux-metrics.js';

export class ReplyStage implements ReplyWriter {
  private readonly writer: BatchWriter;
  private readonly gate: FlushGate;
  private readonly metrics: MuxMetrics;
  /** The reply about to be written goes in a batch of its own: the cap is too small for it. */
  private alone = false;

  constructor(writer: BatchWriter, gate: FlushGate, metrics: MuxMetrics) {
    this.writer = writer;
    this.gate = gate;
    this.metrics = metrics;
  }

  makeReplyRoom(bytes: number): boolean {
    const room = this.writer.makeRoom(bytes);
    this.alone = room === ALONE;
    return room !== BLOCKED;
  }

  writeLifecycle(reply: LifecycleReply): boolean {
    this.writer.replyLifecycle(reply);
    if (this.alone) return this.writer.submitAlone();
    this.gate.stageUrgent(1);
    this.metrics.stagedRecords += 1;
    return true;
  }

  writeCredit(slotId: number, delta: number): boolean {
    this.writer.replyCredit(slotId, delta);
    if (this.alone) return this.writer.submitAlone();
    this.gate.stageReply();
    this.metrics.stagedRecords += 1;
    return true;
  }

  writeClose(slotId: number, reason: number): boolean {
    this.writer.replyClose(slotId, reason);
    if (this.alone) return this.writer.submitAlone();
    this.gate.stageUrgent(1);
    this.metrics.stagedRecords += 1;
    return true;
  }
}
