// What one write joins, and what it leaves as it is; with a sink that remembers.

import { expect } from 'chai';
import fc from 'fast-check';
import {
  COALESCE_BYTES,
  COALESCE_FRAMES,
  CoalescingWriter,
  StagingPool,
  type WriteSink,
} from '../../../lib/lanes/coalescing-writer.js';
import { FRAME_IDLE, FRAME_QUEUED, FRAME_WRITING, FrameList, OutFrame } from '../../../lib/lanes/out-frame.js';

class PlainFrame extends OutFrame {
  override onWritten(): void {}
  override onAdmitted(): void {}
}

function frame(bytes: number, fill = 1): PlainFrame {
  return new PlainFrame(new Uint8Array(bytes).fill(fill));
}

function queueOf(...frames: OutFrame[]): FrameList {
  const queue = new FrameList();
  for (const each of frames) queue.push(each, FRAME_QUEUED);
  return queue;
}

class Sink implements WriteSink {
  readonly chunks: Uint8Array[] = [];
  done: ((error?: Error | null) => void) | undefined;
  write(chunk: Uint8Array, done: (error?: Error | null) => void): boolean {
    this.chunks.push(chunk);
    this.done = done;
    return true;
  }
}

describe('coalescing writer', () => {
  let sink: Sink;
  let pool: StagingPool;
  let results: (Error | null | undefined)[];
  let writer: CoalescingWriter;

  beforeEach(() => {
    sink = new Sink();
    pool = new StagingPool();
    results = [];
    writer = new CoalescingWriter(sink, pool, (error) => results.push(error));
  });

  function finish(error?: Error): OutFrame[] {
    sink.done?.(error);
    const frames: OutFrame[] = [];
    for (let each = writer.frames.shift(); each !== undefined; each = writer.frames.shift()) frames.push(each);
    writer.release();
    return frames;
  }

  it('writes a single frame as it is, without copying it', () => {
    const only = frame(100);
    const queue = queueOf(only);
    writer.write(queue);
    expect(sink.chunks[0]).to.equal(only.buffer);
    expect([writer.busy, queue.count, only.state]).to.deep.equal([true, 0, FRAME_WRITING]);
    const inside = new PlainFrame(new Uint8Array(100), 10, 60);
    expect(finish()).to.deep.equal([only]);
    writer.write(queueOf(inside));
    expect(sink.chunks[1]?.buffer).to.equal(inside.buffer.buffer);
    expect([sink.chunks[1]?.byteOffset, sink.chunks[1]?.length]).to.deep.equal([10, 50]);
    expect(pool.size).to.equal(0);
  });

  it('joins small frames into one chunk, in order, and gives the staging buffer back', () => {
    const frames = [frame(10, 1), frame(200, 2), frame(0, 3), frame(5, 4)];
    writer.write(queueOf(...frames));
    expect(sink.chunks.length).to.equal(1);
    expect([...sink.chunks[0]!]).to.deep.equal([...Array(10).fill(1), ...Array(200).fill(2), ...Array(5).fill(4)]);
    expect(finish()).to.deep.equal(frames);
    expect([pool.size, writer.busy, results]).to.deep.equal([1, false, [undefined]]);
    expect(frames.map((each) => each.state)).to.deep.equal(Array(4).fill(FRAME_IDLE));
  });

  it('joins up to 65,536 bytes and not one more', () => {
    const queue = queueOf(frame(COALESCE_BYTES - 1), frame(1), frame(1));
    writer.write(queue);
    expect([sink.chunks[0]?.length, queue.count]).to.deep.equal([COALESCE_BYTES, 1]);
  });

  it('joins up to 1,024 frames and not one more', () => {
    const queue = queueOf(...Array.from({ length: COALESCE_FRAMES + 1 }, () => frame(1)));
    writer.write(queue);
    expect([sink.chunks[0]?.length, queue.count]).to.deep.equal([COALESCE_FRAMES, 1]);
  });

  it('a frame over 64 KiB goes by itself, wherever it stands', () => {
    const [small, large, after] = [frame(10), frame(COALESCE_BYTES + 1), frame(10)];
    const queue = queueOf(small, large, after);
    for (const expected of [small, large, after]) {
      writer.write(queue);
      expect(sink.chunks.at(-1)).to.equal(expected.buffer);
      expect(finish()).to.deep.equal([expected]);
    }
    expect(queue.count).to.equal(0);
  });

  it('does not reuse the staging buffer of a write that failed', () => {
    writer.write(queueOf(frame(1), frame(2)));
    finish(new Error('reset'));
    expect(pool.size).to.equal(0);
    expect(results.length).to.equal(1);
  });

  it('the bytes that are written are those of the frames, whatever their sizes', () => {
    const sizes = fc.array(fc.oneof(fc.nat(200), fc.nat(3_000), fc.integer({ min: 60_000, max: 70_000 })), {
      minLength: 1,
      maxLength: 40,
    });
    fc.assert(
      fc.property(sizes, (lengths) => {
        sink = new Sink();
        writer = new CoalescingWriter(sink, pool, () => {});
        const frames = lengths.map((length, index) => frame(length, index + 1));
        const queue = queueOf(...frames);
        const written: number[] = [];
        const done: OutFrame[] = [];
        while (queue.count > 0) {
          writer.write(queue);
          const chunk = sink.chunks.at(-1)!;
          if (writer.frames.count > 1) expect(chunk.length).to.be.at.most(COALESCE_BYTES);
          // the staging buffer is reused: look at the bytes now
          let last = 0;
          for (const byte of chunk) {
            if (byte !== last) written.push(byte);
            last = byte;
          }
          done.push(...finish());
        }
        expect(done).to.deep.equal(frames);
        const expected = lengths.flatMap((length, index) => (length === 0 ? [] : [index + 1]));
        expect(written).to.deep.equal(expected);
        expect(sink.chunks.reduce((sum, chunk) => sum + chunk.length, 0)).to.equal(lengths.reduce((a, b) => a + b, 0));
      }),
      { numRuns: 100 },
    );
  });
});

describe('frame list', () => {
  it('keeps order, counts and bytes over removals anywhere', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(1_000), { maxLength: 60 }), (script) => {
        const list = new FrameList();
        const model: OutFrame[] = [];
        for (const step of script) {
          if (step % 3 === 0 && model.length > 0) {
            const [gone] = model.splice(step % model.length, 1);
            list.remove(gone!);
            expect(gone).to.include({ state: FRAME_IDLE, list: undefined, next: undefined, previous: undefined });
          } else {
            const added = frame(step);
            list.push(added, FRAME_QUEUED);
            model.push(added);
          }
          const held: OutFrame[] = [];
          for (let each = list.head; each !== undefined; each = each.next) held.push(each);
          expect(held).to.have.ordered.members(model);
          expect(list.count).to.equal(model.length);
          expect(list.bytes).to.equal(model.reduce((sum, each) => sum + each.buffer.length, 0));
        }
        for (const each of model) expect(list.shift()).to.equal(each);
        expect(list.shift()).to.equal(undefined);
      }),
    );
  });
});
