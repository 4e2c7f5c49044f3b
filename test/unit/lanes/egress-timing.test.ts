// Waits and writes of one connection, on a clock of the test's.

import { expect } from 'chai';
import { connectionMetrics } from '../../../lib/lanes/connection-metrics.js';
import { EgressTiming } from '../../../lib/lanes/egress-timing.js';
import { FRAME_QUEUED, FRAME_WRITING, OutFrame } from '../../../lib/lanes/out-frame.js';

class Frame extends OutFrame {
  override onWritten(): void {}
  override onAdmitted(): void {}
}

describe('egress timing', () => {
  let now: number;
  let readings: number;
  let timing: EgressTiming;
  let metrics: ReturnType<typeof connectionMetrics>;
  beforeEach(() => {
    now = 0;
    readings = 0;
    metrics = connectionMetrics();
    timing = new EgressTiming(metrics, () => {
      readings += 1;
      return now;
    });
  });

  function queued(): Frame {
    const frame = new Frame(new Uint8Array(20));
    frame.state = FRAME_QUEUED;
    timing.waits(frame);
    return frame;
  }

  function write(...frames: Frame[]): void {
    timing.begins();
    for (const frame of frames) frame.state = FRAME_WRITING;
    timing.took();
  }

  const waits = () => [metrics.queueWaitSeconds.count, metrics.queueWaitSeconds.sum];

  it('times one waiting frame at a time, and writes from start to end', () => {
    const frames = Array.from({ length: 100 }, () => queued());
    expect(readings).to.equal(1);
    now = 30;
    write(...frames.slice(0, 60));
    expect(waits()).to.deep.equal([1, 0.03]);
    now = 50;
    timing.written();
    expect([metrics.writeSeconds.count, metrics.writeSeconds.sum]).to.deep.equal([1, 0.02]);
    write(...frames.slice(60));
    expect(waits(), 'nobody was timed among them').to.deep.equal([1, 0.03]);
    expect(readings).to.equal(4);
  });

  it('a frame that waits through a write is timed to its own', () => {
    const first = queued();
    write(first);
    const second = queued();
    now = 10;
    timing.written();
    now = 25;
    write(second);
    expect(waits()).to.deep.equal([2, 0.025]);
  });

  it('a frame that finds the writer idle waits for nothing, and reads no clock', () => {
    timing.atOnce();
    expect(waits()).to.deep.equal([1, 0]);
    expect(readings).to.equal(0);
  });

  it('a frame that was withdrawn, or lost with its connection, is not waited for', () => {
    timing.withdrawn(queued());
    const second = queued();
    timing.withdrawn(new Frame(new Uint8Array(1)));
    now = 4;
    write(second);
    expect(waits()).to.deep.equal([1, 0.004]);
    queued();
    timing.lost();
    now = 10;
    const last = queued();
    now = 12;
    write(last);
    expect(waits()).to.deep.equal([2, 0.006]);
  });
});
