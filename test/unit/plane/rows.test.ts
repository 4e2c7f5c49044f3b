// The life cycle of sender and receiver rows on one thread, against plain objects.

import { expect } from 'chai';
import fc from 'fast-check';
import { SharedMemory } from '../../../lib/plane/memory.js';
import {
  type ClaimedBind,
  ENDING_DETACHED,
  ENDING_NONE,
  RECEIVER_CANCEL,
  RECEIVER_STOP,
  ReceiverRows,
  ROW_WORDS,
  SENDER_CANCELLED,
  SENDER_CLOSED,
  SENDER_OPEN_FAILED,
  SENDER_OPENED,
  SENDER_RETIRED,
  SENDER_SENT,
  SENDER_STOPPED,
  SenderRows,
} from '../../../lib/plane/rows.js';

const COUNT = 4;
const BASE = 16;
const GENERATION_WORD = { sender: 0, receiver: 9 };

function memoryOf(): SharedMemory {
  return new SharedMemory(new SharedArrayBuffer((BASE + (COUNT + 1) * ROW_WORDS) * 4));
}

describe('sender rows', () => {
  it('a new life starts clean, with the next generation', () => {
    const memory = memoryOf();
    const rows = new SenderRows(memory, BASE, COUNT);
    expect(rows.allocate(2)).to.equal(1);
    rows.setFlags(2, 1, SENDER_OPENED | SENDER_RETIRED);
    rows.setPulled(2, 7);
    rows.end(2, ENDING_DETACHED, 9);
    rows.setWaiting(2);
    expect(rows.allocate(2)).to.equal(2);
    expect([rows.generation(2), rows.flags(2), rows.pulled(2), rows.ending(2)]).to.deep.equal([2, 0, 0, ENDING_NONE]);
    expect(rows.setPulled(2, 1), 'the wish of the last life is gone').to.equal(false);
  });

  it('generations wrap past zero', () => {
    const memory = memoryOf();
    const rows = new SenderRows(memory, BASE, COUNT);
    memory.store(BASE + GENERATION_WORD.sender, -2);
    expect(rows.allocate(0)).to.equal(0xffffffff);
    expect(rows.setFlags(0, 0xffffffff, SENDER_OPENED)).to.equal(true);
    expect(rows.allocate(0)).to.equal(1);
    expect(rows.setFlags(0, 0xffffffff, SENDER_CLOSED)).to.equal(false);
    expect(rows.flags(0)).to.equal(0);
  });

  it('flags gather, are reported once, and belong to one life', () => {
    const all = [
      SENDER_OPENED,
      SENDER_CANCELLED,
      SENDER_STOPPED,
      SENDER_CLOSED,
      SENDER_RETIRED,
      SENDER_SENT,
      SENDER_OPEN_FAILED,
    ];
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 0xfffffff0 }),
        fc.array(fc.record({ flags: fc.subarray(all), late: fc.boolean() }), { maxLength: 20 }),
        (before, steps) => {
          const memory = memoryOf();
          memory.store(BASE + ROW_WORDS + GENERATION_WORD.sender, before | 0);
          const rows = new SenderRows(memory, BASE, COUNT);
          const generation = rows.allocate(1);
          let model = 0;
          for (const { flags, late } of steps) {
            const bits = flags.reduce((sum, flag) => sum | flag, 0);
            const news = !late && (model & bits) !== bits;
            expect(rows.setFlags(1, late ? generation - 1 : generation, bits)).to.equal(news);
            if (!late) model |= bits;
            expect(rows.flags(1)).to.equal(model);
          }
          expect(rows.generation(1)).to.equal(generation);
        },
      ),
    );
  });

  it('an ending names the record that it follows, over the end of the counter', () => {
    const rows = new SenderRows(memoryOf(), BASE, COUNT);
    rows.allocate(0);
    expect(rows.ending(0)).to.equal(ENDING_NONE);
    rows.end(0, ENDING_DETACHED, 0x80000003);
    expect(rows.ending(0)).to.equal(ENDING_DETACHED);
    expect(rows.endingCount(0)).to.equal(0x80000003 | 0);
  });

  it('tells a sender that waits without blocking once', () => {
    const rows = new SenderRows(memoryOf(), BASE, COUNT);
    rows.allocate(0);
    expect(rows.setPulled(0, 1)).to.equal(false);
    rows.setWaiting(0);
    expect(rows.setPulled(0, 2)).to.equal(true);
    expect(rows.setPulled(0, 3)).to.equal(false);
  });

  it('blocks only while the inlet is full and the stream is not over', () => {
    const rows = new SenderRows(memoryOf(), BASE, COUNT);
    const generation = rows.allocate(0);
    expect(rows.block(0, 1, 2, 1), 'room').to.equal(true);
    expect(rows.block(0, 2, 2, 0), 'full, and no slice to wait').to.equal(false);
    rows.setPulled(0, 1);
    expect(rows.block(0, 2, 2, 1), 'pulled').to.equal(true);
    rows.setFlags(0, generation, SENDER_STOPPED);
    expect(rows.block(0, 3, 2, 0), 'stop does not end a sender').to.equal(false);
    rows.setFlags(0, generation, SENDER_CANCELLED);
    expect(rows.block(0, 3, 2, 1), 'cancelled').to.equal(true);
  });

  it('counts room over the end of the counter', () => {
    const rows = new SenderRows(memoryOf(), BASE, COUNT);
    rows.allocate(0);
    rows.setPulled(0, 0x7fffffff);
    expect(rows.block(0, 0x80000000 | 0, 2, 1)).to.equal(true);
    expect(rows.block(0, 0x80000001 | 0, 2, 0)).to.equal(false);
  });

  it('rows do not touch each other', () => {
    const memory = memoryOf();
    const rows = new SenderRows(memory, BASE, COUNT);
    for (let row = 0; row < COUNT; row++) rows.allocate(row);
    rows.setFlags(1, 1, SENDER_CLOSED);
    rows.setPulled(1, 5);
    rows.end(1, ENDING_DETACHED, 5);
    for (const row of [0, 2, 3])
      expect([rows.flags(row), rows.pulled(row), rows.ending(row), rows.endingCount(row)]).to.deep.equal([0, 0, 0, 0]);
    expect(memory.words.subarray(BASE + COUNT * ROW_WORDS).every((word) => word === 0)).to.equal(true);
  });
});

interface ReceiverModel {
  generation: number;
  state: 'free' | 'bound' | 'claimed';
  session: number;
  worker: number;
  drained: number;
  requests: number;
}

type ReceiverOp =
  | 'bind'
  | 'claim'
  | 'claimOld'
  | 'claimOther'
  | 'release'
  | 'free'
  | 'drain'
  | 'take'
  | 'stop'
  | 'cancel';
const RECEIVER_OPS: ReceiverOp[] = [
  'bind',
  'claim',
  'claimOld',
  'claimOther',
  'release',
  'free',
  'drain',
  'take',
  'stop',
  'cancel',
];
/** Sessions and anchors beyond 2^53 in both halves. */
const [ANCHOR_HI, ANCHOR_LO, SESSION_HI] = [0xfedcba98, 0x80000001, 0x9abcdef0];
const CREDIT = 0xffffffff;
const BUDGET = 0x80000000;
const HEARTBEAT_MS = 0x7fffffff;
const ROW = 3;
const WORKER = 31;

function stepReceiver(rows: ReceiverRows, model: ReceiverModel, op: ReceiverOp): void {
  const into: ClaimedBind = { row: -1, generation: 0, credit: 0, byteBudget: 0, heartbeatMs: 0 };
  const claim = (session: number, anchorLo = ANCHOR_LO): boolean =>
    rows.claim(ROW, WORKER, ANCHOR_HI, anchorLo, SESSION_HI, session, into);
  switch (op) {
    case 'bind':
      if (model.state !== 'free') return;
      model.generation = rows.allocate(ROW);
      Object.assign(model, { state: 'bound', session: model.session + 1, drained: 0, requests: 0 });
      rows.bind(ROW, ANCHOR_HI, ANCHOR_LO, SESSION_HI, model.session, CREDIT, BUDGET, HEARTBEAT_MS);
      return;
    case 'claim':
      expect(claim(model.session)).to.equal(model.state === 'bound');
      if (model.state !== 'bound') return;
      expect(into).to.deep.equal({
        ...{ row: ROW, generation: model.generation, credit: CREDIT, byteBudget: BUDGET },
        heartbeatMs: HEARTBEAT_MS,
      });
      model.state = 'claimed';
      return;
    case 'claimOld':
      expect(claim(model.session - 1)).to.equal(false);
      return;
    case 'claimOther':
      expect(claim(model.session, ANCHOR_LO + 1)).to.equal(false);
      return;
    case 'release':
      expect(rows.release(ROW)).to.equal(model.state === 'bound');
      if (model.state === 'bound') model.state = 'free';
      return;
    case 'free':
      if (model.state !== 'claimed') return;
      rows.free(ROW);
      model.state = 'free';
      return;
    case 'drain':
      rows.addDrained(ROW, 3);
      model.drained += 3;
      return;
    case 'take':
      expect(rows.takeDrained(ROW)).to.equal(model.drained);
      model.drained = 0;
      return;
    default: {
      const bit = op === 'stop' ? RECEIVER_STOP : RECEIVER_CANCEL;
      rows.request(ROW, bit);
      model.requests |= bit;
    }
  }
}

describe('receiver rows', () => {
  it('a look finds a bind by its session while nobody has claimed it or taken it back', () => {
    const rows = new ReceiverRows(memoryOf(), BASE, COUNT);
    const claimed: ClaimedBind = { row: -1, generation: 0, credit: 0, byteBudget: 0, heartbeatMs: 0 };
    const look = (sessionHi: number, sessionLo: number, row = 1) => rows.isBound(row, sessionHi, sessionLo);
    expect(look(0, 0), 'a row that never was bound').to.equal(false);
    rows.allocate(1);
    rows.bind(1, 1, 2, 0xffff_fffe, 0xffff_fffd, 8, 1000, 5000);
    expect([look(0xffff_fffe, 0xffff_fffd), look(0xffff_fffe, 3), look(3, 0xffff_fffd)]).to.deep.equal([
      true,
      false,
      false,
    ]);
    expect([look(0xffff_fffe, 0xffff_fffd, 2), look(0, 0, COUNT), look(0, 0, -1)]).to.deep.equal([false, false, false]);
    expect(rows.claim(1, 3, 1, 2, 0xffff_fffe, 0xffff_fffd, claimed)).to.equal(true);
    expect(look(0xffff_fffe, 0xffff_fffd), 'claimed').to.equal(false);
    rows.free(1);
    rows.allocate(1);
    rows.bind(1, 1, 2, 3, 4, 8, 1000, 5000);
    expect([look(0xffff_fffe, 0xffff_fffd), look(3, 4)]).to.deep.equal([false, true]);
    expect([rows.release(1), look(3, 4)]).to.deep.equal([true, false]);
  });

  it('follow their life cycle, whatever is tried in between', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 0xfffffff0 }),
        fc.array(fc.constantFrom(...RECEIVER_OPS), { maxLength: 60 }),
        (before, ops) => {
          const memory = memoryOf();
          memory.store(BASE + ROW * ROW_WORDS + GENERATION_WORD.receiver, before | 0);
          const rows = new ReceiverRows(memory, BASE, COUNT);
          const model: ReceiverModel = {
            generation: before,
            state: 'free',
            session: 0xfffffff0,
            worker: -1,
            drained: 0,
            requests: 0,
          };
          for (const op of ops) {
            stepReceiver(rows, model, op);
            expect(rows.claimedBy(ROW)).to.equal(model.state === 'claimed' ? WORKER : -1);
            expect(rows.requests(ROW)).to.equal(model.requests);
            expect(rows.generation(ROW)).to.equal(model.generation);
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  it('a claim of a row that does not exist is lost', () => {
    const rows = new ReceiverRows(memoryOf(), BASE, COUNT);
    const into: ClaimedBind = { row: -1, generation: 0, credit: 0, byteBudget: 0, heartbeatMs: 0 };
    for (const row of [-1, COUNT, 0x7fffffff]) expect(rows.claim(row, 0, 0, 0, 0, 0, into)).to.equal(false);
    expect(rows.claim(0, 0, 0, 0, 0, 0, into), 'a row that nobody bound').to.equal(false);
    expect(into.row).to.equal(-1);
  });

  it('a bind is claimed once', () => {
    const rows = new ReceiverRows(memoryOf(), BASE, COUNT);
    const into: ClaimedBind = { row: -1, generation: 0, credit: 0, byteBudget: 0, heartbeatMs: 0 };
    rows.allocate(0);
    rows.bind(0, 1, 2, 3, 4, 32, 1 << 20, 5_000);
    expect(rows.claim(0, 3, 1, 2, 3, 4, into)).to.equal(true);
    expect(rows.claim(0, 5, 1, 2, 3, 4, into)).to.equal(false);
    expect(rows.claimedBy(0)).to.equal(3);
    expect(rows.release(0), 'a claimed bind must be asked to let go').to.equal(false);
  });
});
