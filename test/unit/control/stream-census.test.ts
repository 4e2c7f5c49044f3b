// The list of live streams, asked of lanes that answer late, in part, or never.

import { expect } from 'chai';
import type { AnchorRegistry } from '../../../lib/control/anchor-registry.js';
import { StreamCensus } from '../../../lib/control/stream-census.js';
import { VeloError } from '../../../lib/errors.js';
import type { ClientPlane } from '../../../lib/lanes/client-plane.js';
import { CMD_STREAMS, decodeText } from '../../../lib/lanes/commands.js';
import { REPORT_FIELDS, type ReportPlace, type StreamReport } from '../../../lib/lanes/stream-report.js';
import { failure } from '../../support/nodes.js';

const TIME_MS = 60;

interface Asked {
  readonly lane: number;
  readonly token: number;
  readonly from: ReportPlace;
}

/** Lanes by hand: what they were asked, and whether they take a command. */
class Lanes {
  readonly asked: Asked[] = [];
  readonly open: boolean[];
  refuses = false;
  readonly census: StreamCensus;

  constructor(count: number, timeMs = TIME_MS) {
    this.open = new Array<boolean>(count).fill(true);
    const ports = this.open.map((_, lane) => this.port(lane));
    const plane = { ports, port: (lane: number) => ports[lane] } as unknown as ClientPlane;
    const registry = { entries: () => [] } as unknown as AnchorRegistry;
    this.census = new StreamCensus(plane, registry, 'self', timeMs);
  }

  private port(lane: number): object {
    const { open, asked } = this;
    return {
      get isOpen() {
        return open[lane];
      },
      command: (kind: number, token: number, body: Uint8Array) => {
        expect(kind).to.equal(CMD_STREAMS);
        if (this.refuses) throw new VeloError('ERR_LIMIT', 'full');
        asked.push({ lane, token, from: JSON.parse(decodeText(body, 0, body.length)) as ReportPlace });
      },
    };
  }

  /** The lane answers what it was asked last: slots by their ids, and where to go on. */
  answer(lane: number, slots: readonly number[], next?: ReportPlace): void {
    const { token } = this.asked.findLast((question) => question.lane === lane)!;
    this.census.answered(lane, token, report(slots, next));
  }
}

function report(slots: readonly number[], next?: ReportPlace): string {
  const rows = slots.flatMap((slot) => REPORT_FIELDS.map((field) => (field === 'slot' ? slot : 0)));
  return JSON.stringify({ next, peers: ['a peer'], rows } satisfies StreamReport);
}

const slotsOf = async (census: Promise<readonly { readonly slot: number }[]>) =>
  (await census).map(({ slot }) => slot).sort();

/** All promises that can go on have gone on. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('a census of streams', () => {
  it('asks every lane for piece after piece, from where the last one ended', async () => {
    const lanes = new Lanes(2, 10_000);
    const taking = slotsOf(lanes.census.take());
    const next = { link: 0, incoming: true, row: 4 };
    lanes.answer(0, [1, 2], next);
    lanes.answer(1, [7]);
    await settle();
    expect(lanes.asked.map(({ lane, from }) => [lane, from])).to.deep.equal([
      [0, { link: 0, incoming: false, row: 0 }],
      [1, { link: 0, incoming: false, row: 0 }],
      [0, next],
    ]);
    lanes.answer(0, [3]);
    expect(await taking).to.deep.equal([1, 2, 3, 7]);
  });

  it('does without a lane that is dead, dies meanwhile, or takes no command', async () => {
    const lanes = new Lanes(3, 10_000);
    lanes.open[0] = false;
    const taking = slotsOf(lanes.census.take());
    lanes.answer(1, [1], { link: 0, incoming: false, row: 1 });
    await settle();
    lanes.census.laneDied(1);
    lanes.answer(2, [2]);
    expect(await taking, 'what it had said stays').to.deep.equal([1, 2]);
    lanes.refuses = true;
    expect(await slotsOf(lanes.census.take())).to.deep.equal([]);
  });

  it('a lane that does not answer in time is left out, asked no more until it has, and its late answer is nobody else’s', async () => {
    const lanes = new Lanes(2);
    const taking = slotsOf(lanes.census.take());
    lanes.answer(0, [1]);
    expect(await taking).to.deep.equal([1]);
    const again = slotsOf(lanes.census.take());
    expect(lanes.asked.filter(({ lane }) => lane === 1)).to.have.length(1);
    lanes.answer(1, [9]);
    lanes.answer(0, [1]);
    expect(await again).to.deep.equal([1]);
    const third = slotsOf(lanes.census.take());
    lanes.answer(0, [1]);
    lanes.answer(1, [5]);
    expect(await third).to.deep.equal([1, 5]);
    lanes.census.answered(1, 12_345, report([99]));
  });

  it('one runs at a time; who asks meanwhile shares the next, and lists are nobody else’s', async () => {
    const lanes = new Lanes(1, 10_000);
    const first = lanes.census.take();
    const shared = [lanes.census.take(), lanes.census.take()];
    expect(lanes.asked).to.have.length(1);
    lanes.answer(0, [1]);
    expect(await slotsOf(first)).to.deep.equal([1]);
    await settle();
    expect(lanes.asked).to.have.length(2);
    lanes.answer(0, [2]);
    const [second, third] = await Promise.all(shared);
    expect(second).to.deep.equal(third);
    expect(second).not.to.equal(third);
    const fourth = slotsOf(lanes.census.take());
    lanes.answer(0, [3]);
    expect(await fourth).to.deep.equal([3]);
  });

  it('the end of the node ends whoever waits', async () => {
    const lanes = new Lanes(2, 10_000);
    const waiting = [lanes.census.take(), lanes.census.take()];
    lanes.census.end(new VeloError('ERR_CLOSED', 'over'));
    for (const taking of waiting) await failure('ERR_CLOSED', taking);
  });
});
