// The parts of the soak that judge: that they find what they are there to find.

import { expect } from 'chai';
import type { SoakProcess } from '../../soak/fleet.js';
import { makeItem, PrefixCheck } from '../../soak/items.js';
import { faultsOf, planOf, sizeOf } from '../../soak/plan.js';
import type { Sample, StreamReport } from '../../soak/protocol.js';
import { Verdict } from '../../soak/verdict.js';

const STREAM = 7;

function process(name: string, role: 'reader' | 'writer'): SoakProcess {
  return { name, role, samples: [] as Sample[] } as unknown as SoakProcess;
}

function report(outcome: string, more: Partial<StreamReport> = {}): StreamReport {
  const base = { stream: STREAM, reader: 'r', writer: 'w', from: 1_000, to: 2_000, items: 3, wrong: undefined };
  return { ...base, outcome, ...more };
}

function sample(more: Partial<Sample> = {}): Sample {
  const memory = { heapBytes: 0, externalBytes: 0, arrayBufferBytes: 0, rssBytes: 0, descriptors: 20 };
  return { ...memory, streams: 0, open: 0, gauges: { anchors: 0, senders: 0 }, never: { creditLost: 0 }, ...more };
}

describe('items of a soak', () => {
  it('a stream as it was sent has no fault, and is complete with its last item', () => {
    const check = new PrefixCheck(STREAM);
    for (let i = 0; i < 5; i += 1) {
      expect(check.complete).to.equal(false);
      expect(check.fault(makeItem(STREAM, i, i === 4))).to.equal(undefined);
    }
    expect(check).to.include({ complete: true, count: 5 });
    expect(check.fault(makeItem(STREAM, 5, true))).to.match(/behind the last/);
  });

  for (const [what, item, fault] of [
    ['a gap', makeItem(STREAM, 1, false), /it is number 1/],
    ['another stream', makeItem(STREAM + 1, 0, false), /it is of stream 8/],
    ['a changed byte', makeItem(STREAM, 0, false).map((byte, i) => (i === 20 ? byte ^ 1 : byte)), /checksum/],
    ['a changed head', makeItem(STREAM, 0, false).map((byte, i) => (i === 11 ? byte ^ 1 : byte)), /checksum/],
    ['missing bytes', makeItem(STREAM, 0, false).subarray(0, 19), /19 bytes/],
  ] as const)
    it(`${what} is noticed`, () => {
      expect(new PrefixCheck(STREAM).fault(item)).to.match(fault);
    });

  it('a repetition is noticed', () => {
    const check = new PrefixCheck(STREAM);
    expect(check.fault(makeItem(STREAM, 0, false))).to.equal(undefined);
    expect(check.fault(makeItem(STREAM, 0, false))).to.match(/it is number 0/);
  });
});

describe('plans of a soak', () => {
  it('are those of their seed', () => {
    expect(planOf(3, 4)).to.deep.equal(planOf(3, 4));
    expect(planOf(3, 4)).to.not.deep.equal(planOf(4, 4));
    const [a, b] = [faultsOf(9, 4), faultsOf(9, 4)];
    for (let i = 0; i < 20; i += 1) expect(a.next().value).to.deep.equal(b.next().value);
  });

  it('have every kind of fault at every place, before one comes again', () => {
    const faults = faultsOf(2, 4);
    const first = Array.from({ length: 20 }, () => faults.next().value);
    expect(new Set(first.map(({ kind, place }) => `${kind} ${place}`)).size).to.equal(20);
  });

  it('have every kind of reader and ending, and sizes above a batch and above what travels inline', () => {
    const plans = Array.from({ length: 500 }, (_, stream) => planOf(1, stream));
    expect(new Set(plans.map(({ reader }) => reader)).size).to.equal(7);
    expect(new Set(plans.map(({ readsBy, ending }) => readsBy + ending)).size).to.equal(6);
    expect(plans.some(({ detachAt }) => detachAt.length > 1)).to.equal(true);
    const sizes = Array.from({ length: 20_000 }, (_, i) => sizeOf(STREAM, i));
    expect(sizes.some((size) => size > 61_411 && size < 262_144)).to.equal(true);
    expect(sizes.some((size) => size > 262_144)).to.equal(true);
    expect(sizes.filter((size) => size <= 200).length).to.be.greaterThan(18_000);
  });
});

describe('the verdict of a soak', () => {
  const AFTERMATH_MS = 500;
  let verdict: Verdict;
  beforeEach(() => {
    verdict = new Verdict(AFTERMATH_MS);
  });

  const excuse = (names: string[], from: number, to: number | undefined) =>
    verdict.excuses.push({ kind: 'kill', names, from, to });

  it('clean endings need no excuse; writers are not counted', () => {
    verdict.report(process('r', 'reader'), [report('finalized'), report('cancelled'), report('dropped as planned')]);
    verdict.report(process('w', 'writer'), [report('finalized'), report('attach ERR_ATTACH_REFUSED')]);
    verdict.judgeStreams();
    expect(verdict.failures).to.deep.equal([]);
    expect(verdict.ended).to.deep.equal({ finalized: 1, cancelled: 1, 'dropped as planned': 1 });
  });

  for (const [what, names, from, to, failures] of [
    ['no fault', [], 0, 0, 1],
    ['a fault elsewhere', ['x'], 1_000, 2_000, 1],
    ['a fault that was over long before', ['r'], 0, 499, 1],
    ['a fault that came afterwards', ['r'], 2_001, 3_000, 1],
    ['a fault shortly before', ['w'], 0, 500, 0],
    ['a fault at its end', ['r'], 2_000, undefined, 0],
  ] as const)
    it(`a dropped sender and ${what}: ${failures === 0 ? 'excused' : 'a failure'}`, () => {
      excuse([...names], from, to);
      verdict.report(process('r', 'reader'), [report('ERR_SENDER_DROPPED')]);
      verdict.judgeStreams();
      expect(verdict.failures).to.have.length(failures);
    });

  it('nothing excuses a wrong item, or a reader that hangs', () => {
    excuse(['r', 'w'], 0, undefined);
    verdict.report(process('r', 'reader'), [report('finalized', { wrong: 'item 3' }), report('hung')]);
    verdict.judgeStreams();
    expect(verdict.failures).to.have.length(2);
  });

  it('a process at rest that holds something, or counted what must not be, is a failure', () => {
    const reader = process('r', 'reader');
    verdict.judgeSample(reader, sample({ open: 1 }));
    verdict.judgeSample(reader, sample({ gauges: { anchors: 2 } }));
    verdict.judgeSample(reader, sample({ never: { creditLost: 1 } }));
    expect(verdict.failures).to.have.length(3);
  });

  it('nor may a writer hold a stream whose reader was killed', () => {
    excuse(['r'], 0, undefined);
    verdict.report(process('w', 'writer'), [report('finalized')]);
    verdict.judgeSample(process('w', 'writer'), sample({ gauges: { senders: 1, liveSlots: 0 } }));
    expect(verdict.failures).to.deep.equal(['w: senders is 1 at rest']);
  });

  it('growth above the bound is a failure, below it is not; descriptors may not grow with streams', () => {
    const reader = process('r', 'reader');
    const MIB = 1024 * 1024;
    const at = (streams: number, heapBytes: number, descriptors = 20) =>
      verdict.judgeSample(reader, sample({ streams, heapBytes, descriptors }));
    at(100, 10 * MIB);
    at(1_000, 12 * MIB);
    at(11_000, 16 * MIB);
    expect(verdict.failures).to.deep.equal([]);
    at(21_000, 30 * MIB);
    expect(verdict.failures).to.have.length(1);
    at(31_000, 12 * MIB, 60);
    expect(verdict.failures).to.have.length(2);
  });
});
