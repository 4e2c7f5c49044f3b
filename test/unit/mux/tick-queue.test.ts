// The order of what is due again and again: against a list that is sorted, and what a late look comes to.

import { expect } from 'chai';
import fc from 'fast-check';
import { Tick, TickQueue } from '../../../lib/mux/tick-queue.js';

class Named extends Tick {
  constructor(
    readonly name: number,
    intervalMs: number,
  ) {
    super(intervalMs);
  }
}

function takeAll(queue: TickQueue<Named>, now: number): number[] {
  const names: number[] = [];
  for (let tick = queue.takeDue(now); tick !== undefined; tick = queue.takeDue(now)) names.push(tick.name);
  return names;
}

type Step = { readonly add: number } | { readonly stop: number } | { readonly pass: number };
const STEP: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ add: fc.integer({ min: 1, max: 40 }) }),
  fc.record({ stop: fc.nat() }),
  fc.record({ pass: fc.integer({ min: 0, max: 60 }) }),
);

describe('mux: tick queue', () => {
  it('hands out exactly what is due, whatever is added, stopped and late', () => {
    fc.assert(
      fc.property(fc.array(STEP, { maxLength: 200 }), (steps) => {
        const queue = new TickQueue<Named>();
        const model: { tick: Named; due: number }[] = [];
        let now = 0;
        let name = 0;
        for (const step of steps) {
          if ('add' in step) {
            const tick = new Named(name++, step.add);
            queue.add(tick, now);
            model.push({ tick, due: now + step.add });
          } else if ('stop' in step) {
            if (model.length === 0) continue;
            const [stopped] = model.splice(step.stop % model.length, 1);
            stopped!.tick.stop();
            stopped!.tick.stop();
          } else {
            now += step.pass;
            const due = model.filter((entry) => entry.due <= now);
            expect(takeAll(queue, now).sort((a, b) => a - b)).to.deep.equal(due.map(({ tick }) => tick.name));
            for (const entry of due) entry.due = now + entry.tick.intervalMs;
          }
          expect(queue.size).to.equal(model.length);
          expect(queue.deadline()).to.equal(Math.min(...model.map((entry) => entry.due)));
        }
      }),
      { numRuns: 300 },
    );
  });

  it('the earliest comes first, and a tick that is late by many intervals counts once', () => {
    const queue = new TickQueue<Named>();
    queue.add(new Named(1, 300), 0);
    queue.add(new Named(2, 200), 0);
    queue.add(new Named(3, 250), 0);
    expect(takeAll(queue, 199)).to.deep.equal([]);
    expect(takeAll(queue, 10_000)).to.deep.equal([2, 3, 1]);
    expect(takeAll(queue, 10_000)).to.deep.equal([]);
    expect(queue.deadline()).to.equal(10_200);
  });

  it('a tick that stops while the due are taken is not handed out', () => {
    const queue = new TickQueue<Named>();
    const ticks = [1, 2, 3].map((name) => new Named(name, 10));
    for (const tick of ticks) queue.add(tick, 0);
    const first = queue.takeDue(10)!;
    for (const tick of ticks) if (tick !== first) tick.stop();
    expect(takeAll(queue, 10)).to.deep.equal([]);
    expect(queue.size).to.equal(1);
  });
});
