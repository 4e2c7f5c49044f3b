// The ring against a plain queue: random records, turns, releases and kicks on rings of the smallest size, from any position of
// the counters. One thread plays both ends; orders between two threads are the explorer's.

import { expect } from 'chai';
import fc from 'fast-check';
import { SharedMemory } from '../../../lib/plane/memory.js';
import { checkRingCapacity, maxInlineBody, RingConsumer, RingProducer, ringWords } from '../../../lib/plane/ring.js';
import { bodyOf, checkTrace, type Step } from '../../explorer/models.js';
import { errorCode } from './errors.js';

const CAPACITY = 1024;
const BASE = 16;
const HEAD = BASE;
const TAIL = BASE + 16;
const MAX_INLINE = CAPACITY / 8 - 8;

function ends(
  start = 0,
  capacity = CAPACITY,
): { memory: SharedMemory; producer: RingProducer; consumer: RingConsumer } {
  const memory = new SharedMemory(new SharedArrayBuffer((BASE + ringWords(capacity)) * 4));
  memory.store(HEAD, start);
  memory.store(TAIL, start);
  const producer = new RingProducer(memory, BASE, capacity);
  return { memory, producer, consumer: new RingConsumer(memory, BASE, capacity) };
}

/** Positions of the counters: multiples of 8, the ends of both ranges among them. */
const starts = fc.oneof(
  fc.constantFrom(0, CAPACITY - 8, -8, -CAPACITY, 0x7fffffff - 7, -0x80000000),
  fc.integer({ min: -0x10000000, max: 0xfffffff }).map((n) => n * 8),
);
const lengths = fc.oneof(fc.integer({ min: 0, max: MAX_INLINE }), fc.constantFrom(0, 1, 7, 8, 9, MAX_INLINE));

type Op =
  | { op: 'write'; kind: number; tag: number; length: number }
  | { op: 'abandon'; length: number }
  | { op: 'publish' }
  | { op: 'refresh' }
  | { op: 'next' }
  | { op: 'release' };

const ops: fc.Arbitrary<Op[]> = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        op: fc.constant('write' as const),
        kind: fc.integer({ min: 1, max: 63 }),
        tag: fc.integer({ min: -0x80000000, max: 0x7fffffff }),
        length: lengths,
      }),
    },
    { weight: 1, arbitrary: fc.record({ op: fc.constant('abandon' as const), length: lengths }) },
    { weight: 2, arbitrary: fc.constant<Op>({ op: 'publish' }) },
    { weight: 2, arbitrary: fc.constant<Op>({ op: 'refresh' }) },
    { weight: 6, arbitrary: fc.constant<Op>({ op: 'next' }) },
    { weight: 3, arbitrary: fc.constant<Op>({ op: 'release' }) },
  ),
  { maxLength: 300 },
);

interface Written {
  kind: number;
  tag: number;
  body: Uint8Array;
}

class Model {
  readonly written: Written[] = [];
  published = 0;
  seen = 0;
  read = 0;
  private n = 0;

  constructor(private readonly end: ReturnType<typeof ends>) {}

  run(step: Op): void {
    const { memory, producer, consumer } = this.end;
    switch (step.op) {
      case 'write': {
        const at = producer.reserve(step.kind, step.tag, step.length);
        if (at < 0) return;
        const body = bodyOf(this.n++, step.length);
        memory.copyIn(at, body, 0, step.length);
        producer.commit();
        this.written.push({ kind: step.kind, tag: step.tag, body });
        return;
      }
      case 'abandon':
        producer.reserve(9, 9, step.length);
        return;
      case 'publish':
        expect(producer.hasUnpublished).to.equal(this.published < this.written.length);
        expect(producer.publish()).to.equal(this.published < this.written.length);
        this.published = this.written.length;
        return;
      case 'refresh':
        expect(consumer.hasWork()).to.equal(this.read < this.published);
        expect(consumer.refresh()).to.equal(this.read < this.published);
        this.seen = this.published;
        return;
      case 'next':
        this.next();
        return;
      case 'release':
        expect(consumer.release()).to.equal(false);
        return;
      default:
        step satisfies never;
    }
  }

  next(): void {
    const { memory, consumer } = this.end;
    expect(consumer.next()).to.equal(this.read < this.seen);
    if (this.read === this.seen) return;
    const expected = this.written[this.read++]!;
    const body = new Uint8Array(consumer.length);
    memory.copyOut(consumer.offset, body, 0, consumer.length);
    expect({ kind: consumer.kind, tag: consumer.tag, body }).to.deep.equal(expected);
    expect(consumer.kicked).to.equal(false);
    expect(consumer.offset % 8).to.equal(0);
  }
}

describe('ring', () => {
  it('is a queue, whatever is written, abandoned, published, read and released', () => {
    fc.assert(
      fc.property(starts, ops, (start, steps) => {
        const model = new Model(ends(start));
        for (const step of steps) model.run(step);
        model.run({ op: 'publish' });
        model.run({ op: 'refresh' });
        while (model.read < model.written.length) model.next();
        model.next();
      }),
      { numRuns: 300 },
    );
  });

  it('takes any record once it is empty, wherever head and tail stand', () => {
    fc.assert(
      fc.property(starts, fc.array(lengths, { maxLength: 40 }), (start, script) => {
        const { producer, consumer } = ends(start);
        for (const length of script) {
          expect(producer.reserve(1, 0, length)).to.be.at.least(0);
          producer.commit();
          producer.publish();
          expect(consumer.refresh() && consumer.next()).to.equal(true);
          consumer.release();
        }
        expect(producer.reserve(1, 0, MAX_INLINE)).to.be.at.least(0);
      }),
    );
  });

  it('holds exactly its capacity and says so', () => {
    const { producer, consumer } = ends();
    for (let n = 0; n < 8; n++) {
      expect(producer.reserve(1, n, MAX_INLINE)).to.be.at.least(0);
      producer.commit();
    }
    expect(producer.reserve(1, 8, 0)).to.equal(-1);
    producer.commit();
    producer.publish();
    consumer.refresh();
    for (let n = 0; n < 8; n++) expect(consumer.next() && consumer.tag).to.equal(n);
    expect(consumer.next()).to.equal(false);
    expect(producer.reserve(1, 8, 0), 'read but not released').to.equal(-1);
    consumer.release();
    expect(producer.reserve(1, 8, 0)).to.be.at.least(0);
  });

  it('tells a producer that wants room once, when room came', () => {
    const { producer, consumer } = ends();
    while (producer.reserve(1, 0, MAX_INLINE) >= 0) producer.commit();
    producer.publish();
    expect(producer.roomCame()).to.equal(false);
    producer.wantRoom();
    expect(producer.roomCame()).to.equal(false);
    expect(consumer.release(), 'nothing was read').to.equal(false);
    consumer.refresh();
    consumer.next();
    expect(consumer.release()).to.equal(true);
    expect(producer.roomCame()).to.equal(true);
    expect(producer.roomCame(), 'once for each wish').to.equal(false);
    consumer.next();
    expect(consumer.release(), 'nobody waits any more').to.equal(false);
  });

  it('does not commit what was not reserved', () => {
    const { producer, consumer } = ends();
    producer.commit();
    expect(producer.hasUnpublished).to.equal(false);
    producer.reserve(1, 1, 4);
    producer.commit();
    producer.commit();
    producer.publish();
    consumer.refresh();
    expect(consumer.next()).to.equal(true);
    expect(consumer.next()).to.equal(false);
  });

  it('refuses kinds and lengths that do not fit a record', () => {
    const { producer } = ends();
    expect(maxInlineBody(CAPACITY)).to.equal(MAX_INLINE);
    for (const [kind, length] of [
      [0, 1],
      [64, 1],
      [-1, 1],
      [1, MAX_INLINE + 1],
      [1, -1],
    ] as const)
      expect(errorCode(() => producer.reserve(kind, 0, length))).to.equal('ERR_INTERNAL');
  });

  it('refuses capacities that are not a power of two in its range', () => {
    for (const bytes of [0, 512, 1000, 1536, 1024.5, Number.NaN, 1 << 27, -1024])
      expect(
        errorCode(() => checkRingCapacity(bytes)),
        `${bytes}`,
      ).to.equal('ERR_INVALID_ARGUMENT');
    for (const bytes of [1024, 262_144, 1 << 26]) checkRingCapacity(bytes);
    expect(maxInlineBody(1 << 26)).to.be.below(1 << 24);
  });

  it('does not believe a header that runs past the tail', () => {
    for (const header of [(1 << 24) | 500, 1 << 24, 0]) {
      const { memory, producer, consumer } = ends();
      producer.reserve(1, 1, 4);
      producer.commit();
      producer.publish();
      memory.write(BASE + 64, header === 1 << 24 ? (1 << 24) | 9 : header);
      consumer.refresh();
      expect(errorCode(() => consumer.next())).to.equal('ERR_CONDUIT_BROKEN');
    }
  });
});

describe('ring kicks', () => {
  const script: fc.Arbitrary<(Step | 'turn')[]> = fc.array(
    fc.oneof(
      { weight: 3, arbitrary: fc.integer({ min: 0, max: 40 }) },
      { weight: 2, arbitrary: fc.constantFrom<Step | 'turn'>('kick', 'publish') },
      { weight: 2, arbitrary: fc.constant<Step | 'turn'>('turn') },
    ),
    { maxLength: 120 },
  );

  it('every kick with records before it is one flush right behind them, at any turn limit', () => {
    fc.assert(
      fc.property(starts, script, fc.integer({ min: 1, max: 5 }), (start, steps, limit) => {
        const { producer, consumer } = ends(start);
        const trace: string[] = [];
        const done: Step[] = [];
        let written = 0;
        const turn = (most: number): void => {
          consumer.refresh();
          let left = most;
          while (left > 0 && consumer.next()) {
            left--;
            if (consumer.kicked) trace.push('flush');
            trace.push(`${consumer.tag}`);
          }
          if (left > 0 && consumer.kickAtTail()) trace.push('flush');
          consumer.release();
        };
        for (const step of steps) {
          if (step === 'turn') turn(limit);
          else if (step === 'kick') producer.kick();
          else if (step === 'publish') producer.publish();
          else if (producer.reserve(1, written, step) < 0) continue;
          else {
            producer.commit();
            written++;
          }
          if (step !== 'turn') done.push(step);
        }
        producer.publish();
        turn(Number.POSITIVE_INFINITY);
        expect(consumer.hasWork()).to.equal(false);
        checkTrace(done, trace);
      }),
      { numRuns: 400 },
    );
  });

  it('a kick between reserve and commit stands before that record', () => {
    const { producer, consumer } = ends();
    producer.reserve(1, 1, 0);
    producer.kick();
    producer.commit();
    producer.publish();
    consumer.refresh();
    expect(consumer.next() && consumer.kicked).to.equal(true);
  });

  it('a kick needs no room', () => {
    const { producer, consumer } = ends();
    let records = 0;
    while (producer.reserve(1, records, MAX_INLINE) >= 0) {
      producer.commit();
      records++;
    }
    producer.kick();
    producer.kick();
    consumer.refresh();
    for (let n = 0; n < records; n++) expect(consumer.next() && consumer.kicked).to.equal(false);
    expect(consumer.next()).to.equal(false);
    expect(consumer.kickAtTail()).to.equal(true);
    expect(consumer.kickAtTail()).to.equal(false);
  });

  it('a kick made before the consumer exists is taken', () => {
    const { memory, producer } = ends();
    producer.reserve(1, 0, 0);
    producer.commit();
    producer.kick();
    const consumer = new RingConsumer(memory, BASE, CAPACITY);
    expect(consumer.hasWork()).to.equal(true);
    consumer.refresh();
    consumer.next();
    expect(consumer.kickAtTail()).to.equal(true);
  });
});
