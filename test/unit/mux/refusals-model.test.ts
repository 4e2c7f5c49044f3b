// Refusals of staged records between everything else that a peer may send, in any order: a consumer gets at most one terminal and nothing
// behind it, other streams are untouched, and nothing is held, counted or kept once all is over. The fake receiver throws at the first
// delivery that must not be.

import { expect } from 'chai';
import fc from 'fast-check';
import type { ByteBudget } from '../../../lib/mux/byte-budget.js';
import { FINALIZED_BYTES } from '../../../lib/wire/frame.js';
import { parseMuxSlot } from '../../../lib/wire/mux-slot.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, frameText, itemFrame } from '../../support/core-pair.js';
import type { FakeReceiver } from '../../support/mux-fakes.js';

const ANCHOR = 9n;
const SESSIONS = 6;

const ids = fc
  .record({ index: fc.nat(2), generation: fc.nat(1) })
  .map(({ index, generation }) => slotId(index, generation));
const sessions = fc.integer({ min: 1, max: SESSIONS }).map(BigInt);
const epochs = fc.constantFrom(1n, 2n, 3n);

type Step =
  | { readonly kind: 'open'; readonly id: number; readonly session: bigint }
  | { readonly kind: 'data'; readonly id: number; readonly seq: number; readonly terminal: boolean }
  | { readonly kind: 'close'; readonly id: number; readonly seq: number; readonly reason: number }
  | { readonly kind: 'refuse'; readonly id: number; readonly session: bigint; readonly epoch?: bigint | undefined }
  | { readonly kind: 'take'; readonly session: bigint; readonly count: number }
  | { readonly kind: 'unbind' | 'leave'; readonly session: bigint }
  | { readonly kind: 'epoch' | 'sweep' };

const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('open' as const), id: ids, session: sessions }) },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('data' as const),
      id: ids,
      seq: fc.integer({ min: 1, max: 6 }),
      terminal: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('close' as const),
      id: ids,
      seq: fc.integer({ min: 1, max: 7 }),
      reason: fc.nat(1),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('refuse' as const),
      id: ids,
      session: sessions,
      epoch: fc.option(epochs, { nil: undefined }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('take' as const), session: sessions, count: fc.nat(3) }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constantFrom('unbind' as const, 'leave' as const), session: sessions }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('epoch' as const, 'sweep' as const) }) },
);

class Run {
  readonly node = new CoreNode();
  readonly receivers = new Map<bigint, FakeReceiver>();
  /** Sessions that a refusal named, with the sender's own words. */
  private readonly refused = new Set<bigint>();
  private epoch = 1n;
  private seq = 0;

  constructor() {
    for (let session = 1n; session <= SESSIONS; session++)
      this.receivers.set(session, this.node.bind(ANCHOR, session, { limit: 3 }));
  }

  apply(step: Step): void {
    const { node } = this;
    const batch = new BatchBuilder({ epoch: this.epoch, seq: this.seq++ });
    switch (step.kind) {
      case 'open':
        node.receive(batch.open(step.id, ANCHOR, step.session).bytes);
        return;
      case 'data':
        node.receive(batch.data(step.id, step.seq, step.terminal ? FINALIZED_BYTES : itemFrame(step.seq)).bytes);
        return;
      case 'close':
        node.receive(batch.close(step.id, step.seq, step.reason).bytes);
        return;
      case 'refuse': {
        const before = this.others(step.session);
        this.refused.add(step.session);
        // Without an epoch it is an honest one: the slot that the session has, if it has one.
        const { slot } = this.receivers.get(step.session)!;
        const id = step.epoch === undefined && slot !== undefined ? slot.id : step.id;
        node.table.refuseStaged(parseMuxSlot(`${step.epoch ?? this.epoch}:${id}:${step.session}`)!, 'refused');
        expect(this.others(step.session), 'other streams').to.deep.equal(before);
        return;
      }
      case 'take': {
        const receiver = this.receivers.get(step.session)!;
        if (receiver.take(step.count) > 0 && receiver.slot !== undefined) node.table.noteDrained(receiver.slot);
        node.table.visitDrained();
        return;
      }
      case 'unbind':
        node.binds.delete(`${ANCHOR}:${step.session}`);
        return;
      case 'leave': {
        const { slot } = this.receivers.get(step.session)!;
        if (slot !== undefined) node.table.closeSlot(slot);
        return;
      }
      case 'epoch':
        this.epoch += 1n;
        node.receive(new BatchBuilder({ epoch: this.epoch }).bytes);
        return;
      case 'sweep':
        node.table.sweep();
        expect(node.metrics.waitingRefusals).to.be.at.most(node.binds.size);
        return;
      default: {
        const never: never = step;
        throw new Error(String(never));
      }
    }
  }

  /** Frames and ends of all streams but one. */
  private others(session: bigint): unknown[] {
    return [...this.receivers]
      .filter(([other]) => other !== session)
      .map(([, receiver]) => [receiver.frames.length, receiver.closedCalls]);
  }

  /** Returns how many streams ended with a refusal. */
  finish(): number {
    const { node } = this;
    let ended = 0;
    for (const [session, { frames, slot }] of this.receivers) {
      const failed = frames.map(frameText).some((text) => text.includes('refused'));
      if (failed) expect([...this.refused], 'only what was refused fails so').to.include(session);
      if (failed) expect(slot?.live).to.equal(false);
      ended += Number(failed);
    }
    node.table.retireAll();
    node.binds.clear();
    node.table.sweep();
    const { liveSlots, heldRecords, waitingRefusals } = node.metrics;
    expect([
      liveSlots,
      heldRecords,
      waitingRefusals,
      node.meter.bytes,
      (node.peerBudget as ByteBudget).used,
    ]).to.deep.equal([0, 0, 0, 0, 0]);
    for (const { slot, closedCalls } of this.receivers.values())
      expect(closedCalls).to.equal(slot === undefined ? 0 : 1);
    return ended;
  }
}

describe('refused staged records, between everything else', () => {
  it('AX-03 AX-06 at most one terminal, nobody else’s stream, and nothing left behind', () => {
    let ended = 0;
    fc.assert(
      fc.property(fc.array(steps, { minLength: 10, maxLength: 60 }), (plan) => {
        const run = new Run();
        for (const step of plan) run.apply(step);
        ended += run.finish();
      }),
      { numRuns: 200 },
    );
    expect(ended, 'streams that were refused, over all runs').to.be.above(0);
  });
});
