// A lane's report on its streams: pieces of bounded size that together name every stream once, also where rows are far apart.

import { expect } from 'chai';
import type { EgressStream } from '../../../lib/lanes/egress-stream.js';
import type { IngressStream } from '../../../lib/lanes/ingress-stream.js';
import {
  MAX_REPORT_ROWS,
  REPORT_FIELDS,
  REPORT_START,
  type ReportPlace,
  reportStreams,
  STATE_ENDING,
  STATE_OPEN,
  STATE_OPENING,
} from '../../../lib/lanes/stream-report.js';
import { ByteMeter } from '../../../lib/mux/byte-meter.js';
import { EgressSlot, INLET_TERMINAL, SLOT_CLOSED, SLOT_OPEN } from '../../../lib/mux/egress-slot.js';
import { IngressSlot } from '../../../lib/mux/ingress-slot.js';
import type { Singleton } from '../../../lib/mux/singletons.js';
import { FakeOwner, FakeReceiver } from '../../support/mux-fakes.js';

const TERMS = {
  anchorHi: 1,
  anchorLo: 2,
  sessionHi: 3,
  sessionLo: 4,
  credit: 8,
  byteBudget: 100,
  meter: new ByteMeter(),
};

function sender(id: number, peer = 'a'): EgressStream {
  const slot = new EgressSlot(id, id >>> 8, new FakeOwner(), TERMS);
  slot.state = SLOT_OPEN;
  slot.openedReported = true;
  return { slot, batcher: { peer, lane: 2 }, openedAt: 100 } as unknown as EgressStream;
}

function receiver(id: number, peer = 'b'): IngressStream {
  const slot = new IngressSlot(id, id >>> 8, new FakeReceiver(), 0);
  return { slot, table: { peer, lane: 5 }, openedAt: 100, standing: 2, silentWindows: 1 } as unknown as IngressStream;
}

/** Slot ids of all pieces, and how many pieces there were. */
function walk(links: Parameters<typeof reportStreams>[0]): { slots: number[]; pieces: number } {
  const slots: number[] = [];
  let pieces = 0;
  for (let from: ReportPlace | undefined = REPORT_START; from !== undefined; pieces += 1) {
    const { rows, next }: ReturnType<typeof reportStreams> = reportStreams(links, from, 0);
    expect(rows.length / REPORT_FIELDS.length).to.be.at.most(MAX_REPORT_ROWS);
    for (let at = 0; at < rows.length; at += REPORT_FIELDS.length)
      slots.push(rows[at + REPORT_FIELDS.indexOf('slot')]!);
    from = next;
  }
  return { slots, pieces };
}

function row(links: Parameters<typeof reportStreams>[0], index = 0): Record<string, number> {
  const { rows } = reportStreams(links, REPORT_START, 130);
  const own = rows.slice(index * REPORT_FIELDS.length, (index + 1) * REPORT_FIELDS.length);
  return Object.fromEntries(REPORT_FIELDS.map((field, i) => [field, own[i]!]));
}

describe('a report on streams', () => {
  it('every stream of every client and both directions comes once, in pieces', () => {
    const one = { senders: [] as EgressStream[], receivers: [] as IngressStream[] };
    const two = { senders: [] as EgressStream[], receivers: [] as IngressStream[] };
    let id = 0;
    for (let i = 0; i < MAX_REPORT_ROWS + 1; i += 1) {
      one.senders[i] = sender(id++);
      one.receivers[i * 3] = receiver(id++);
      two.receivers[i] = receiver(id++);
    }
    const { slots, pieces } = walk([one, two]);
    expect(slots.sort((a, b) => a - b)).to.deep.equal(Array.from({ length: id }, (_, i) => i));
    expect(pieces).to.equal(4);
  });

  it('a lane without a stream, or without a client, has one empty piece', () => {
    expect(walk([])).to.deep.equal({ slots: [], pieces: 1 });
    expect(walk([{ senders: [], receivers: [] }])).to.deep.equal({ slots: [], pieces: 1 });
  });

  it('places without a stream cost turns, not one long one', () => {
    const senders: EgressStream[] = [];
    senders[16_383] = sender(7);
    const { slots, pieces } = walk([{ senders, receivers: [] }]);
    expect(slots).to.deep.equal([7]);
    expect(pieces).to.be.greaterThan(3);
  });

  it('a slot that is over is no stream', () => {
    const [over, gone, unopened] = [sender(1), receiver(2), sender(3)];
    over.slot.state = SLOT_CLOSED;
    gone.slot!.live = false;
    const senders = [over, { ...unopened, slot: undefined } as unknown as EgressStream];
    expect(walk([{ senders, receivers: [gone] }]).slots).to.deep.equal([]);
  });

  it('what a sender withholds and lacks, and what state it is in', () => {
    const stream = sender(0x100);
    const { slot } = stream;
    slot.withheld.push(new Uint8Array(10), 0, 10);
    slot.inlet.push(new Uint8Array(5), 0, 5);
    slot.credit = 0;
    slot.starving = true;
    slot.fence = {} as Singleton;
    slot.nextSeq = 9;
    const links = [{ senders: [stream], receivers: [] }];
    const expected = {
      incoming: 0,
      lane: 2,
      slot: 0x100,
      sessionHi: 3,
      sessionLo: 4,
      anchorHi: 1,
      anchorLo: 2,
      ageMs: 30,
    };
    const queues = { credit: 0, window: 8, withheld: 1, standing: 1, bytes: 15, records: 9, flags: 5 };
    expect(row(links)).to.include({ ...expected, ...queues, state: STATE_OPEN });
    slot.inletState = INLET_TERMINAL;
    expect(row(links).state).to.equal(STATE_ENDING);
    slot.inletState = 0;
    slot.openedReported = false;
    expect(row(links).state).to.equal(STATE_OPENING);
  });

  it('what a receiver was delivered, and what its sender may still send', () => {
    const stream = receiver(0x200);
    const slot = stream.slot!;
    const { limit } = slot;
    for (let i = 0; i < 3; i += 1) {
      slot.admitData();
      slot.delivered(7);
    }
    slot.release(1);
    expect(row([{ senders: [], receivers: [stream] }])).to.include({
      incoming: 1,
      lane: 5,
      slot: 0x200,
      window: limit,
      credit: limit - 3,
      buffered: 2,
      bytes: 14,
      standing: 2,
      silentWindows: 1,
      state: STATE_OPEN,
    });
  });
});
