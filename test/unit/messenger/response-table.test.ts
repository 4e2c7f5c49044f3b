// The response table by hand, then against a naive model that is driven with random commands.

import { expect } from 'chai';
import fc from 'fast-check';
import { VeloError } from '../../../lib/errors.js';
import {
  generationProper,
  MAX_GENERATION,
  originOf,
  wireGeneration,
  workerOrigin,
} from '../../../lib/messenger/response-origin.js';
import { MAX_RESPONSE_SLOTS, type ResponseSlot, ResponseTable } from '../../../lib/messenger/response-table.js';
import { MAX_RESPONSE_GENERATION, MAX_RESPONSE_SLOT } from '../../../lib/wire/response-id.js';

function code(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (VeloError.is(error)) return error.code;
    throw error;
  }
  return 'nothing thrown';
}

async function rejection(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (VeloError.is(error)) return error.code;
    throw error;
  }
  return 'resolved';
}

describe('response origins', () => {
  it('puts the origin into the top 8 of 48 bits and takes it out again', () => {
    expect(wireGeneration(0, 0)).to.equal(0);
    expect(wireGeneration(0, MAX_GENERATION)).to.equal(2 ** 40 - 1);
    expect(wireGeneration(255, MAX_GENERATION)).to.equal(MAX_RESPONSE_GENERATION);
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 255 }),
        fc.integer({ min: 0, max: MAX_GENERATION }),
        (origin, generation) => {
          const wire = wireGeneration(origin, generation);
          expect(BigInt(wire)).to.equal((BigInt(origin) << 40n) | BigInt(generation));
          expect(originOf(wire)).to.equal(origin);
          expect(generationProper(wire)).to.equal(generation);
        },
      ),
    );
  });

  it('numbers workers from 16, behind the client threads', () => {
    expect([workerOrigin(0), workerOrigin(239)]).to.deep.equal([16, 255]);
    for (const bad of [-1, 240, 0.5, Number.NaN])
      expect(code(() => workerOrigin(bad))).to.equal('ERR_INVALID_ARGUMENT');
  });
});

describe('response table', () => {
  it('starts at slot 0, generation 0, and carries its origin', () => {
    const table = new ResponseTable<string>({ origin: workerOrigin(3) });
    const first = table.allocate('a');
    expect(first).to.deep.equal({ slot: 0, generation: 19 * 2 ** 40 });
    expect(table.allocate('b')).to.deep.equal({ slot: 1, generation: 19 * 2 ** 40 });
    expect(table.complete(first.slot, first.generation)).to.equal('a');
    expect(table.size).to.equal(1);
  });

  it('holds 65,535 calls, uses indices up to 65,534 and then reports exhaustion', () => {
    const table = new ResponseTable<number>();
    let last: ResponseSlot | undefined;
    for (let i = 0; i < MAX_RESPONSE_SLOTS; i += 1) last = table.allocate(i);
    expect(last?.slot).to.equal(MAX_RESPONSE_SLOT);
    expect(code(() => table.allocate(-1))).to.equal('ERR_RESPONSE_SLOTS_EXHAUSTED');
    expect(table.counts.exhausted).to.equal(1);
    expect(table.size).to.equal(65_535);
    expect(table.complete(0, 0)).to.equal(0);
    expect(table.allocate(7)).to.deep.equal({ slot: 0, generation: 1 });
  });

  it('reuses slots first in, first out, one generation up', () => {
    const table = new ResponseTable<string>({ capacity: 3 });
    const slots = ['a', 'b', 'c'].map((entry) => table.allocate(entry));
    for (const index of [1, 0, 2]) table.complete(slots[index]!.slot, slots[index]!.generation);
    const again = ['d', 'e', 'f'].map((entry) => table.allocate(entry));
    expect(again).to.deep.equal([
      { slot: 1, generation: 1 },
      { slot: 0, generation: 1 },
      { slot: 2, generation: 1 },
    ]);
  });

  it('gives late, duplicate and foreign answers to nobody, and counts each reason', () => {
    const table = new ResponseTable<string>({ capacity: 1 });
    const old = table.allocate('old');
    expect(table.complete(old.slot, old.generation)).to.equal('old');
    expect(table.complete(old.slot, old.generation)).to.equal(undefined);
    const now = table.allocate('now');
    expect(table.complete(old.slot, old.generation)).to.equal(undefined);
    expect(table.complete(now.slot, wireGeneration(1, now.generation))).to.equal(undefined);
    expect(table.complete(1, 0)).to.equal(undefined);
    expect(table.complete(65_535, 0)).to.equal(undefined);
    expect(table.counts).to.deep.equal({ foreign: 1, outOfRange: 2, notInUse: 1, stale: 1, exhausted: 0 });
    expect(table.complete(now.slot, now.generation)).to.equal('now');
  });

  it('issues ids that no answer can match', () => {
    const table = new ResponseTable<string>({ capacity: 2 });
    const ids = [table.issue('x'), table.issue('x'), table.issue('x')];
    expect(ids.map((id) => [id.slot, id.generation])).to.deep.equal([
      [0, 0],
      [1, 0],
      [0, 1],
    ]);
    for (const id of ids) expect(table.complete(id.slot, id.generation)).to.equal(undefined);
    expect(table.size).to.equal(0);
  });

  it('retires a slot at its highest generation and then rejects whoever waits', async () => {
    const table = new ResponseTable<string>({ capacity: 1, maxGeneration: 1 });
    table.issue('g0');
    const last = table.allocate('g1');
    expect(last).to.deep.equal({ slot: 0, generation: 1 });
    const waiting = rejection(table.awaitCapacity('never'));
    expect(table.complete(last.slot, last.generation)).to.equal('g1');
    expect(table.retired).to.equal(1);
    expect(await waiting).to.equal('ERR_RESPONSE_SLOTS_EXHAUSTED');
    expect(code(() => table.allocate('more'))).to.equal('ERR_RESPONSE_SLOTS_EXHAUSTED');
    expect(await rejection(table.awaitCapacity('more'))).to.equal('ERR_RESPONSE_SLOTS_EXHAUSTED');
  });

  it('takes no generation limit above 2^40 − 1, and starts at 0 under the highest origin', () => {
    const table = new ResponseTable<string>({ origin: 255 });
    expect(code(() => new ResponseTable({ maxGeneration: MAX_GENERATION + 1 }))).to.equal('ERR_INVALID_ARGUMENT');
    expect(table.allocate('a').generation).to.equal(255 * 2 ** 40);
  });

  it('serves waiters in order, before any later allocation', async () => {
    const table = new ResponseTable<string>({ capacity: 1 });
    const held = table.allocate('held');
    const order: string[] = [];
    const first = table.awaitCapacity('first').then((slot) => {
      order.push('first');
      return slot;
    });
    const second = table.awaitCapacity('second').then((slot) => {
      order.push('second');
      return slot;
    });
    expect(table.waiting).to.equal(2);
    table.complete(held.slot, held.generation);
    expect(code(() => table.allocate('pushy'))).to.equal('ERR_RESPONSE_SLOTS_EXHAUSTED');
    const one = await first;
    expect(one).to.deep.equal({ slot: 0, generation: 1 });
    expect(table.complete(one.slot, one.generation)).to.equal('first');
    expect(await second).to.deep.equal({ slot: 0, generation: 2 });
    expect(order).to.deep.equal(['first', 'second']);
    expect(table.waiting).to.equal(0);
  });

  it('lets a waiter go when its signal fires, and bounds how many wait', async () => {
    const table = new ResponseTable<string>({ capacity: 1, maxWaiters: 1 });
    const held = table.allocate('held');
    const abort = new AbortController();
    const waiting = rejection(table.awaitCapacity('a', abort.signal));
    expect(await rejection(table.awaitCapacity('b'))).to.equal('ERR_LIMIT');
    abort.abort();
    expect(await waiting).to.equal('ERR_ABORTED');
    expect(table.waiting).to.equal(0);
    expect(await rejection(table.awaitCapacity('c', abort.signal))).to.equal('ERR_ABORTED');
    table.complete(held.slot, held.generation);
    expect(table.size).to.equal(0);
  });

  it('fails all calls once, in slot order, and the waiters with them', async () => {
    const table = new ResponseTable<string>({ capacity: 2 });
    const a = table.allocate('a');
    table.allocate('b');
    const waiting = rejection(table.awaitCapacity('c'));
    const seen: string[] = [];
    const error = new VeloError('ERR_LANE_DIED', 'lane 0 died');
    const ended = table.failAll(error, (entry, why) => {
      expect(why).to.equal(error);
      seen.push(entry);
    });
    expect([ended, seen, table.size, table.waiting]).to.deep.equal([2, ['a', 'b'], 0, 0]);
    expect(await waiting).to.equal('ERR_LANE_DIED');
    expect(table.complete(a.slot, a.generation)).to.equal(undefined);
  });

  it('fails only what is selected and hands the freed slots to those who wait', async () => {
    const table = new ResponseTable<{ lane: number }>({ capacity: 2 });
    table.allocate({ lane: 0 });
    table.allocate({ lane: 1 });
    const waiting = table.awaitCapacity({ lane: 2 });
    const seen: number[] = [];
    const error = new VeloError('ERR_LANE_DIED', 'lane 0 died');
    const ended = table.failAll(
      error,
      (entry) => {
        seen.push(entry.lane);
        expect(code(() => table.allocate({ lane: 9 }))).to.equal('ERR_RESPONSE_SLOTS_EXHAUSTED');
      },
      (entry) => entry.lane === 0,
    );
    expect([ended, seen]).to.deep.equal([1, [0]]);
    expect(await waiting).to.deep.equal({ slot: 0, generation: 1 });
    expect(table.size).to.equal(2);
  });

  it('refuses options out of range by name', () => {
    for (const options of [
      { capacity: 0 },
      { capacity: 65_536 },
      { origin: 256 },
      { origin: -1 },
      { maxWaiters: -1 },
    ]) {
      expect(code(() => new ResponseTable(options))).to.equal('ERR_INVALID_ARGUMENT');
    }
  });
});

interface ModelSlot {
  generation: number;
  entry: number | undefined;
}

/** The table in its most obvious form: one queue of free slots, one array, one list of waiters. */
class Model {
  readonly free: number[];
  readonly slots: ModelSlot[];
  readonly waiters: number[] = [];
  readonly granted = new Map<number, ResponseSlot>();
  constructor(
    capacity: number,
    readonly maxGeneration: number,
    readonly origin: number,
  ) {
    this.free = Array.from({ length: capacity }, (_, index) => index);
    this.slots = this.free.map(() => ({ generation: -1, entry: undefined }));
  }
  take(entry: number): ResponseSlot | undefined {
    const slot = this.free.shift();
    if (slot === undefined) return undefined;
    const state = this.slots[slot]!;
    state.generation += 1;
    state.entry = entry;
    return { slot, generation: this.origin * 2 ** 40 + state.generation };
  }
  complete(slot: number, generation: number): number | undefined {
    const state = this.slots[slot];
    if (state?.entry === undefined || generation !== this.origin * 2 ** 40 + state.generation) return undefined;
    const { entry } = state;
    this.give(slot);
    this.serve();
    return entry;
  }
  give(slot: number): void {
    const state = this.slots[slot]!;
    state.entry = undefined;
    if (state.generation < this.maxGeneration) this.free.push(slot);
  }
  serve(): void {
    while (this.waiters.length > 0) {
      const slot = this.take(this.waiters[0]!);
      if (slot === undefined) return;
      this.granted.set(this.waiters.shift()!, slot);
    }
  }
  get used(): number[] {
    return this.slots.flatMap((state) => (state.entry === undefined ? [] : [state.entry]));
  }
  get retired(): boolean {
    return this.slots.every((state) => state.entry === undefined && state.generation === this.maxGeneration);
  }
}

type Command =
  | { op: 'allocate' }
  | { op: 'issue' }
  | { op: 'wait' }
  | { op: 'complete'; pick: number; skew: -1 | 0 | 1; foreign: boolean }
  | { op: 'failAll' };

const commands: fc.Arbitrary<Command[]> = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ op: fc.constant('allocate' as const) }) },
    { weight: 1, arbitrary: fc.record({ op: fc.constant('issue' as const) }) },
    { weight: 2, arbitrary: fc.record({ op: fc.constant('wait' as const) }) },
    {
      weight: 6,
      arbitrary: fc.record({
        op: fc.constant('complete' as const),
        pick: fc.nat(1_000),
        skew: fc.constantFrom(-1 as const, 0 as const, 0 as const, 0 as const, 1 as const),
        foreign: fc.boolean().map((value) => value),
      }),
    },
    { weight: 1, arbitrary: fc.record({ op: fc.constant('failAll' as const) }) },
  ),
  { maxLength: 80 },
);

describe('response table against a model', () => {
  it('hands out the same slots and the same entries, whatever the commands', async () => {
    await fc.assert(
      fc.asyncProperty(
        commands,
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 0, max: 5 }),
        fc.integer({ min: 0, max: 255 }),
        async (script, capacity, maxGeneration, origin) => {
          const table = new ResponseTable<number>({ capacity, maxGeneration, origin });
          const model = new Model(capacity, maxGeneration, origin);
          const granted = new Map<number, ResponseSlot>();
          const handedOut: ResponseSlot[] = [];
          let next = 0;
          for (const command of script) {
            const entry = next++;
            if (command.op === 'allocate' || command.op === 'issue') {
              const expected = model.take(entry);
              if (expected === undefined) {
                expect(code(() => table[command.op](entry))).to.equal('ERR_RESPONSE_SLOTS_EXHAUSTED');
              } else {
                const got = table[command.op](entry);
                expect(got).to.deep.equal(expected);
                handedOut.push(got);
                if (command.op === 'issue') {
                  model.give(got.slot);
                  model.serve();
                }
              }
            } else if (command.op === 'wait') {
              const expected = model.take(entry);
              if (expected !== undefined) model.granted.set(entry, expected);
              else if (!model.retired) model.waiters.push(entry);
              table.awaitCapacity(entry).then(
                (slot) => granted.set(entry, slot),
                () => {},
              );
            } else if (command.op === 'complete') {
              const known = handedOut[command.pick % Math.max(1, handedOut.length)] ?? { slot: 0, generation: 0 };
              const generation = known.generation + command.skew + (command.foreign ? 2 ** 40 : 0);
              if (generation < 0 || generation > MAX_RESPONSE_GENERATION) continue;
              expect(table.complete(known.slot, generation)).to.equal(model.complete(known.slot, generation));
            } else {
              const expected = model.used;
              model.waiters.length = 0;
              for (let slot = 0; slot < capacity; slot += 1) {
                if (model.slots[slot]!.entry !== undefined) model.give(slot);
              }
              const seen: number[] = [];
              table.failAll(new VeloError('ERR_CLOSED', 'closed'), (ended) => seen.push(ended));
              expect(seen).to.deep.equal(expected);
            }
            await Promise.resolve();
            await Promise.resolve();
            expect(granted).to.deep.equal(model.granted);
            for (const slot of model.granted.values()) if (!handedOut.includes(slot)) handedOut.push(slot);
            expect(table.size).to.equal(model.used.length);
            if (model.retired) model.waiters.length = 0;
            expect(table.waiting).to.equal(model.waiters.length);
          }
        },
      ),
      { numRuns: 300 },
    );
  });
});
