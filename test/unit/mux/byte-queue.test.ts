// The byte queue: order, wrapping, growth, shrinking, against a plain array.

import { expect } from 'chai';
import fc from 'fast-check';
import { VeloError } from '../../../lib/errors.js';
import { ByteQueue } from '../../../lib/mux/byte-queue.js';

function record(length: number, fill: number): Uint8Array {
  return new Uint8Array(length).fill(fill & 0xff);
}

function front(queue: ByteQueue): Uint8Array {
  return queue.buffer.slice(queue.frontOffset, queue.frontOffset + queue.frontLength);
}

describe('mux byte queue', () => {
  it('returns records in the order they came, empty ones too', () => {
    const queue = new ByteQueue();
    for (const length of [3, 0, 1, 4, 200]) queue.push(record(length, length), 0, length);
    expect(queue.length).to.equal(5);
    expect(queue.byteLength).to.equal(208);
    for (const length of [3, 0, 1, 4, 200]) {
      expect(front(queue)).to.deep.equal(record(length, length));
      queue.pop();
    }
    expect(queue.length).to.equal(0);
    expect(queue.byteLength).to.equal(0);
  });

  it('copies what it is given', () => {
    const queue = new ByteQueue();
    const source = new Uint8Array([9, 1, 2, 3, 9]);
    queue.push(source, 1, 3);
    source.fill(0);
    expect(front(queue)).to.deep.equal(new Uint8Array([1, 2, 3]));
  });

  it('does not allocate while records come and go in a buffer that is large enough', () => {
    const queue = new ByteQueue();
    for (let i = 0; i < 10; i++) queue.push(record(30, i), 0, 30);
    const buffer = queue.buffer;
    for (let i = 10; i < 2000; i++) {
      expect(front(queue)[0]).to.equal((i - 10) & 0xff);
      queue.pop();
      queue.push(record(30, i), 0, 30);
    }
    expect(queue.buffer === buffer).to.equal(true);
  });

  it('gives memory back once a large backlog is drained, and keeps a small buffer', () => {
    const queue = new ByteQueue();
    for (let i = 0; i < 100; i++) queue.push(record(1000, i), 0, 1000);
    expect(queue.capacity).to.be.at.least(100_000);
    while (queue.length > 0) queue.pop();
    expect(queue.capacity).to.equal(0);
    queue.push(record(10, 1), 0, 10);
    const small = queue.capacity;
    queue.pop();
    expect(queue.capacity).to.equal(small);
    queue.clear();
    expect(queue.capacity).to.equal(0);
  });

  it('refuses to pop what is not there', () => {
    try {
      new ByteQueue().pop();
      expect.fail('popped');
    } catch (error) {
      expect(VeloError.is(error, 'ERR_INTERNAL')).to.equal(true);
    }
  });

  it('behaves like an array of byte arrays for any schedule of pushes, pops and clears', () => {
    const step = fc.oneof(
      { weight: 6, arbitrary: fc.record({ kind: fc.constant('push'), length: fc.integer({ min: 0, max: 90 }) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('push'), length: fc.integer({ min: 0, max: 3000 }) }) },
      { weight: 6, arbitrary: fc.record({ kind: fc.constant('pop'), length: fc.integer({ min: 1, max: 4 }) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('clear'), length: fc.constant(0) }) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300, size: 'max' }), (steps) => {
        const queue = new ByteQueue();
        const model: Uint8Array[] = [];
        let stamp = 0;
        for (const { kind, length } of steps) {
          if (kind === 'push') {
            const bytes = Uint8Array.from({ length }, (_, i) => (stamp + i) & 0xff);
            stamp += 1;
            queue.push(bytes, 0, length);
            model.push(bytes);
          } else if (kind === 'clear') {
            queue.clear();
            model.length = 0;
          } else {
            for (let i = 0; i < length && model.length > 0; i++) {
              expect(front(queue)).to.deep.equal(model.shift());
              queue.pop();
            }
          }
          expect(queue.length).to.equal(model.length);
          expect(queue.byteLength).to.equal(model.reduce((sum, bytes) => sum + bytes.length, 0));
          if (model.length > 0) expect(front(queue)).to.deep.equal(model[0]);
        }
      }),
      { numRuns: 150 },
    );
  });
});
