// Two cores under random schedules: whatever the order of sends, drains, visits, congestion and time, a stream keeps
// its promises.

import { expect } from 'chai';
import fc from 'fast-check';
import { VeloError } from '../../../lib/errors.js';
import type { FlushPolicyOption } from '../../../lib/mux/mux-config.js';
import { CorePair, frameText, type PairStream } from '../../support/core-pair.js';
import { decodeBatch } from '../../support/mux-fakes.js';

const STREAMS = 3;

type Step =
  | { readonly kind: 'send'; readonly stream: number; readonly count: number; readonly size: number }
  | { readonly kind: 'take'; readonly stream: number; readonly count: number }
  | { readonly kind: 'finalize' | 'leave' | 'abandon' | 'cancel'; readonly stream: number }
  | { readonly kind: 'turn' | 'wire' | 'doorbell' | 'sweep' | 'kick' | 'congest' | 'clear' | 'clearConsumer' }
  | { readonly kind: 'pull'; readonly index: number }
  | { readonly kind: 'time'; readonly ms: number }
  | { readonly kind: 'pressure'; readonly producer: boolean; readonly consumer: boolean }
  | { readonly kind: 'refuse'; readonly what: 'everything' | 'a singleton' | 'a terminal' }
  | { readonly kind: 'death'; readonly how: 'health' | 'refused' };

const streamIndex = fc.integer({ min: 0, max: STREAMS - 1 });

/** Steps after which every stream can still end well. */
const peaceful: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('send' as const),
      stream: streamIndex,
      count: fc.integer({ min: 1, max: 6 }),
      size: fc.constantFrom(4, 4, 4, 30, 150, 900),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('take' as const),
      stream: streamIndex,
      count: fc.integer({ min: 1, max: 5 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('finalize' as const), stream: streamIndex }) },
  {
    weight: 10,
    arbitrary: fc.record({
      kind: fc.constantFrom('turn', 'wire', 'doorbell', 'sweep', 'kick', 'congest', 'clear', 'clearConsumer'),
    }) as fc.Arbitrary<Step>,
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('pull' as const), index: fc.integer({ min: 0, max: 2 }) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('time' as const), ms: fc.integer({ min: 1, max: 5 }) }) },
);

/** And those that end some badly. */
const rough: fc.Arbitrary<Step> = fc.oneof(
  { weight: 14, arbitrary: peaceful },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constantFrom('leave' as const, 'abandon' as const, 'cancel' as const),
      stream: streamIndex,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('death' as const), how: fc.constantFrom('health', 'refused') }),
  } as fc.MaybeWeightedArbitrary<Step>,
);

/** And a transport that refuses at once, and nodes that keep too much. */
const harsh: fc.Arbitrary<Step> = fc.oneof(
  { weight: 20, arbitrary: rough },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('pressure' as const),
      producer: fc.boolean(),
      consumer: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('refuse' as const),
      what: fc.constantFrom('everything' as const, 'a singleton' as const, 'a terminal' as const),
    }),
  },
);

const policies: readonly FlushPolicyOption[] = [
  'auto',
  'manual',
  { onAdmission: false, maxLingerMs: 3 },
  { onAdmission: false, maxLingerMs: 3, onComplete: true, atBytes: 200 },
];

const setup = fc.record({
  limit: fc.integer({ min: 1, max: 6 }),
  byteBudget: fc.constantFrom(120, 2_000, 1_048_576),
  maxBatchBytes: fc.constantFrom(0, 90, 300, 61_440),
  policy: fc.constantFrom(...policies),
  asyncOpenAck: fc.boolean(),
  /** Largest batch that goes inline; a larger one is staged. */
  eager: fc.constantFrom(60, 200, Number.POSITIVE_INFINITY),
  stagingRoom: fc.constantFrom(1_000, Number.POSITIVE_INFINITY),
});

class World {
  readonly pair: CorePair;
  /** Streams by number, opened when a step first names them: also while the producer is congested. */
  readonly opened: (PairStream | undefined)[] = new Array<undefined>(STREAMS).fill(undefined);
  private readonly terms: { limit: number; byteBudget: number };
  readonly accepted: number[] = [];
  readonly ended: boolean[] = [];
  private granted: number[] = [];

  constructor(options: {
    limit: number;
    byteBudget: number;
    maxBatchBytes: number;
    policy: FlushPolicyOption;
    asyncOpenAck?: boolean;
    eager?: number;
    stagingRoom?: number;
  }) {
    const { maxBatchBytes, policy: flushPolicy, asyncOpenAck } = options;
    const mux = { maxBatchBytes, flushPolicy, asyncOpenAck };
    this.pair = new CorePair({ producer: mux, consumer: mux });
    const { producer, consumer } = this.pair;
    producer.port.eager = options.eager ?? Number.POSITIVE_INFINITY;
    producer.port.stagingRoom = options.stagingRoom ?? Number.POSITIVE_INFINITY;
    const push = consumer.port.onAdmitted!;
    consumer.port.onAdmitted = (batch) => {
      this.noteGrants(batch);
      push(batch);
    };
    this.terms = { limit: options.limit, byteBudget: options.byteBudget };
    for (let i = 0; i < STREAMS; i++) {
      this.accepted.push(0);
      this.ended.push(false);
      this.granted.push(0);
    }
  }

  get streams(): PairStream[] {
    return this.opened.filter((stream): stream is PairStream => stream !== undefined);
  }

  /** Opens the stream if no step has named it yet. */
  stream(i: number): PairStream {
    const known = this.opened[i] ?? this.pair.stream(this.terms);
    this.opened[i] = known;
    return known;
  }

  /** Sum of the credit the consumer has put on the wire for a stream's slot. */
  grantedTo(stream: number): number {
    return this.granted[stream]!;
  }

  step(step: Step): void {
    const { producer, consumer, clock } = this.pair;
    switch (step.kind) {
      case 'send':
        for (let i = 0; i < step.count; i++) this.send(step.stream, step.size);
        break;
      case 'take':
        this.pair.take(this.stream(step.stream), step.count);
        break;
      case 'finalize':
        this.end(step.stream, () => producer.finalize(this.stream(step.stream).slot));
        break;
      case 'leave':
        this.end(step.stream, () => producer.batcher.inletClosed(this.stream(step.stream).slot));
        break;
      case 'abandon':
        this.end(step.stream, () => producer.batcher.abandon(this.stream(step.stream).slot));
        break;
      case 'cancel': {
        const slot = this.stream(step.stream).receiver.slot;
        if (slot !== undefined) consumer.table.closeSlot(slot);
        break;
      }
      case 'turn':
        producer.turn();
        consumer.turn();
        break;
      case 'wire':
        for (const batch of this.pair.toConsumer.splice(0)) consumer.receive(batch);
        for (const batch of this.pair.toProducer.splice(0)) producer.receive(batch);
        break;
      case 'pull':
        this.pair.pull(step.index);
        break;
      case 'doorbell':
        consumer.table.visitDrained();
        break;
      case 'sweep':
        consumer.table.sweep();
        break;
      case 'kick':
        producer.batcher.kick();
        break;
      case 'congest':
        producer.port.mode = 'pend';
        consumer.port.mode = 'pend';
        break;
      case 'clear':
        this.clear();
        break;
      case 'clearConsumer':
        consumer.admitAll();
        break;
      case 'time':
        clock.now += step.ms;
        producer.advance(0);
        consumer.advance(0);
        break;
      case 'death':
        this.death(step.how);
        break;
      case 'pressure':
        producer.meter.over = step.producer;
        consumer.meter.over = step.consumer;
        break;
      case 'refuse':
        if (step.what === 'everything') producer.port.mode = 'refuse';
        else producer.port.refusesNext = ({ kind }) => step.what === 'a singleton' || kind === 'terminal';
        break;
      default:
        step satisfies never;
    }
    this.check();
  }

  /** Ends every stream, lets everything flow and be taken. */
  finish(): void {
    this.clear();
    for (let i = 0; i < STREAMS; i++) this.end(i, () => this.pair.producer.finalize(this.stream(i).slot));
    const { producer, consumer } = this.pair;
    this.pair.settle();
    for (let quiet = 0; quiet < 10; ) {
      const before = producer.port.sent.length + consumer.port.sent.length;
      // Under manual nothing but a kick moves data.
      producer.batcher.kick();
      this.pair.settle();
      let taken = 0;
      for (const stream of this.streams) taken += this.pair.take(stream, 3);
      consumer.table.visitDrained();
      this.pair.advance(1);
      this.check();
      quiet = taken > 0 || producer.port.sent.length + consumer.port.sent.length > before ? 0 : quiet + 1;
    }
    for (const stream of this.streams) this.pair.take(stream, 100);
    this.pair.producer.batcher.kick();
    this.pair.consumer.batcher.kick();
    this.pair.settle();
  }

  /** The same, but nobody asks either node to do anything: only what it asked for itself, and what arrives, makes it run. */
  finishByItself(): void {
    this.clear();
    for (let i = 0; i < STREAMS; i++) this.end(i, () => this.pair.producer.finalize(this.stream(i).slot));
    const { producer, consumer } = this.pair;
    for (let quiet = 0; quiet < 20; ) {
      const before = producer.port.sent.length + consumer.port.sent.length;
      this.pair.settle();
      let taken = 0;
      for (const stream of this.streams) taken += this.pair.take(stream, 3);
      if (taken > 0) consumer.table.visitDrained();
      this.pair.clock.now += 50;
      this.pair.advance(1);
      consumer.table.sweep();
      this.check();
      quiet = taken > 0 || producer.port.sent.length + consumer.port.sent.length > before ? 0 : quiet + 1;
    }
  }

  private clear(): void {
    const { producer, consumer } = this.pair;
    producer.port.mode = 'admit';
    consumer.port.mode = 'admit';
    producer.port.refusesNext = undefined;
    producer.admitAll();
    consumer.admitAll();
  }

  private send(stream: number, size: number): void {
    const { slot } = this.stream(stream);
    // The sender's own accounting: at most C+1 records between what it handed over and what was pulled.
    if (this.ended[stream] || this.accepted[stream]! - slot.pulledTotal >= slot.inletLimit) return;
    if (slot.state === 2) return;
    this.pair.producer.sendItem(slot, this.accepted[stream]!, size);
    this.accepted[stream]! += 1;
  }

  private end(stream: number, action: () => void): void {
    if (this.ended[stream]) return;
    this.ended[stream] = true;
    action();
  }

  private death(how: 'health' | 'refused'): void {
    const { producer } = this.pair;
    if (how === 'health') producer.batcher.epochDeath('health');
    else if (producer.port.hasPending) {
      // A connection that is lost fails everything that waited for it. A terminal that is lost alone ends no epoch: its receiver's watchdog
      // would end that stream, here the next epoch does.
      producer.admitAll(false);
      producer.batcher.epochDeath('lost');
    }
  }

  private noteGrants(batch: Uint8Array): void {
    for (const record of decodeBatch(batch).records) {
      if (record.type !== 'credit') continue;
      const stream = this.opened.findIndex((other) => other?.receiver.slot?.id === record.slot);
      if (stream >= 0) this.granted[stream]! += record.delta!;
    }
  }

  /** What holds after every step. */
  private check(): void {
    this.opened.forEach((stream, i) => {
      if (stream === undefined) return;
      const { receiver, slot } = stream;
      expect(receiver.buffered.length).to.be.at.most(receiver.limit + 1);
      expect(receiver.terminals).to.be.at.most(1);
      const items = receiver.frames.map(frameText).filter((text) => /^\d+$/.test(text));
      expect(items).to.deep.equal(Array.from({ length: items.length }, (_, k) => String(k)));
      const data = receiver.taken.filter((frame) => frame[1] === 0xa4).length;
      expect(this.grantedTo(i)).to.be.at.most(data);
      expect(slot.credit).to.be.at.most(receiver.limit);
    });
    expect(this.pair.consumer.metrics.readerStalls).to.equal(0);
    expect(this.pair.consumer.metrics.holdOverflow).to.equal(0);
    expect(this.pair.producer.metrics.stagedRecords).to.be.at.least(0);
  }

  /** Gauges and tables that must be empty at the end. */
  expectNothingLeft(): void {
    for (const node of [this.pair.producer, this.pair.consumer]) {
      const { liveSlots, heldRecords, withheldRecords, stagedRecords } = node.metrics;
      expect([liveSlots, heldRecords, withheldRecords, stagedRecords]).to.deep.equal([0, 0, 0, 0]);
      expect(node.port.buffersOut).to.equal(0);
      expect(node.batcher.idle || node.batcher.deadline() < Number.POSITIVE_INFINITY).to.equal(true);
    }
  }
}

describe('mux cores under random schedules', () => {
  it('AC-14 AC-09 AR-01 every item arrives once and in order, one terminal, grants equal drains, gauges end at 0', () => {
    fc.assert(
      fc.property(setup, fc.array(peaceful, { maxLength: 120, size: 'max' }), (options, steps) => {
        const world = new World(options);
        for (const step of steps) world.step(step);
        world.finish();
        world.streams.forEach(({ receiver, owner }, i) => {
          const expected = [...Array.from({ length: world.accepted[i]! }, (_, k) => String(k)), 'Finalized'];
          expect(receiver.taken.map(frameText)).to.deep.equal(expected);
          expect(owner.events).to.deep.equal(['opened true', 'closed terminal', 'retired sent']);
          expect(receiver.closedCalls).to.equal(1);
          // A slot that ended needs no more credit: what its last drains earned may stay ungranted.
          expect(world.grantedTo(i)).to.be.at.most(world.accepted[i]!);
        });
        world.expectNothingLeft();
      }),
      { numRuns: 120 },
    );
  });

  it('AC-20 while a stream lives, its grants add up to exactly what its consumer took', () => {
    fc.assert(
      fc.property(setup, fc.array(peaceful, { maxLength: 80, size: 'max' }), (options, steps) => {
        const world = new World({ ...options, byteBudget: 1_048_576 });
        for (const step of steps) if (step.kind !== 'finalize') world.step(step);
        world.step({ kind: 'clear' });
        // A window of one lets one record through per round.
        const rounds = 60 + Math.max(0, ...world.accepted);
        for (let i = 0; i < rounds; i++) {
          world.pair.producer.batcher.kick();
          world.pair.settle();
          for (const stream of world.streams) world.pair.take(stream, 5);
          world.pair.consumer.table.sweep();
          world.pair.advance(2);
        }
        world.opened.forEach((stream, i) => {
          if (stream === undefined) return;
          const { receiver, slot } = stream;
          expect(receiver.taken.length).to.equal(world.accepted[i]);
          expect(world.grantedTo(i)).to.equal(world.accepted[i]);
          expect(slot.credit).to.equal(receiver.limit);
        });
      }),
      { numRuns: 80 },
    );
  });

  it('AT-08 AK-08 with departures, cancels and epoch deaths every stream still ends exactly once on both sides', () => {
    fc.assert(
      fc.property(setup, fc.array(rough, { maxLength: 120, size: 'max' }), (options, steps) => {
        const world = new World(options);
        for (const step of steps) world.step(step);
        world.finish();
        // The next epoch's first batch retires what an epoch death left behind at the consumer.
        const last = world.pair.stream();
        world.pair.settle();
        world.pair.producer.finalize(last.slot);
        world.pair.settle();
        world.streams.forEach(({ receiver, owner }) => {
          expect(owner.events.filter((event) => event.startsWith('closed'))).to.have.length(1);
          expect(owner.events.filter((event) => event.startsWith('retired'))).to.have.length(1);
          expect(owner.events.filter((event) => event.startsWith('opened'))).to.have.length(1);
          if (receiver.slot !== undefined) expect(receiver.closedCalls).to.equal(1);
        });
        expect(last.receiver.frames.map(frameText)).to.deep.equal(['Finalized']);
        world.pair.consumer.batcher.kick();
        world.pair.settle();
        world.expectNothingLeft();
      }),
      { numRuns: 120 },
    );
  });

  it('whatever is refused and whoever keeps too much, no stream waits for a wake that nobody owes it', () => {
    fc.assert(
      fc.property(setup, fc.array(harsh, { maxLength: 120, size: 'max' }), (options, steps) => {
        const world = new World(options);
        for (const step of steps) world.step(step);
        world.finishByItself();
        const { producer, consumer } = world.pair;
        world.streams.forEach(({ receiver, owner }, i) => {
          const ends = owner.events.filter((event) => event.startsWith('closed'));
          expect(ends, owner.events.join()).to.have.length(1);
          expect(owner.events.filter((event) => event.startsWith('opened'))).to.have.length(1);
          const [retired] = owner.events.filter((event) => event.startsWith('retired'));
          expect(owner.events.at(-1)).to.equal(retired);
          if (retired !== 'retired sent') return;
          const whole = Array.from({ length: world.accepted[i]! }, (_, k) => String(k));
          // What was sent in an epoch arrives before the next one; a consumer that cancelled, or a slot in the way, takes less.
          const got = receiver.taken.map(frameText);
          if (got.at(-1) === 'Finalized') expect(got).to.deep.equal([...whole, 'Finalized']);
        });
        producer.batcher.epochDeath('end');
        const last = world.pair.stream();
        world.pair.settle();
        producer.finalize(last.slot);
        world.pair.settle();
        world.pair.clock.now += 1_000;
        world.pair.advance(2);
        expect(last.receiver.frames.map(frameText)).to.deep.equal(['Finalized']);
        for (const node of [producer, consumer]) {
          const { liveSlots, heldRecords, withheldRecords, stagedRecords } = node.metrics;
          expect([liveSlots, heldRecords, withheldRecords, stagedRecords]).to.deep.equal([0, 0, 0, 0]);
          expect([node.port.buffersOut, node.meter.bytes, node.batcher.idle]).to.deep.equal([0, 0, true]);
        }
        expect(producer.port.stagingRoom).to.equal(options.stagingRoom);
      }),
      { numRuns: 120 },
    );
  });

  it('AP-30 no sequence of bytes makes an ingress table throw', () => {
    const chunk = fc.oneof(
      fc.uint8Array({ maxLength: 80, size: 'max' }),
      fc
        .tuple(fc.integer({ min: 0, max: 3 }), fc.uint8Array({ maxLength: 60 }))
        .map(([count, body]) => Uint8Array.from([2, 0, 0, count, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, ...body])),
    );
    fc.assert(
      fc.property(fc.array(chunk, { maxLength: 20, size: 'max' }), (batches) => {
        const pair = new CorePair();
        const stream = pair.stream({ limit: 3 });
        pair.settle();
        for (const batch of batches) pair.consumer.receive(batch);
        pair.settle();
        expect(stream.receiver.terminals).to.be.at.most(1);
      }),
      { numRuns: 120 },
    );
  });
});

describe('mux model assumptions', () => {
  it('a sender that ignores its accounting is caught', () => {
    const world = new World({ limit: 1, byteBudget: 1_048_576, maxBatchBytes: 61_440, policy: 'auto' });
    const { slot } = world.stream(0);
    world.pair.producer.port.mode = 'pend';
    world.pair.producer.sendItem(slot, 0);
    world.pair.producer.turn();
    for (let i = 0; i < 2; i++) world.pair.producer.sendItem(slot, i);
    expect(() => world.pair.producer.sendItem(slot, 3)).to.throw(VeloError);
  });
});
