// The flush gate alone: when is a batch due, and when must somebody look again.

import { expect } from 'chai';
import { FlushGate } from '../../../lib/mux/flush-gate.js';
import { type FlushPolicyOption, resolveFlushPolicy } from '../../../lib/mux/mux-config.js';

const NEVER = Number.POSITIVE_INFINITY;

class CountingClock {
  time = 1_000;
  reads = 0;

  now(): number {
    this.reads += 1;
    return this.time;
  }
}

function gateOf(policy: FlushPolicyOption, replyLingerMs = 1): { gate: FlushGate; clock: CountingClock } {
  const clock = new CountingClock();
  return { clock, gate: new FlushGate(resolveFlushPolicy(policy), replyLingerMs, clock) };
}

const WINDOW = { onAdmission: false, maxLingerMs: 50 };
const NOTHING = { onAdmission: false };

describe('mux flush gate', () => {
  it('AU-01 auto on admission writes whatever it has, runs no timer and reads no clock', () => {
    const { gate, clock } = gateOf('auto');
    expect(gate.shouldFlush(0)).to.equal(false);
    for (let i = 0; i < 100; i++) gate.stage();
    expect(gate.shouldFlush(0)).to.equal(true);
    expect(gate.deadline()).to.equal(NEVER);
    expect(clock.reads).to.equal(0);
  });

  it('AU-02 a window runs from the oldest record and starts again after a write', () => {
    const { gate, clock } = gateOf(WINDOW);
    expect(gate.shouldFlush(0)).to.equal(false);
    expect(gate.deadline()).to.equal(NEVER);
    gate.stage();
    clock.time += 30;
    gate.stage();
    expect(gate.deadline()).to.equal(1_050);
    expect(gate.shouldFlush(0)).to.equal(false);
    clock.time = 1_050;
    expect(gate.shouldFlush(0)).to.equal(true);
    gate.cleared();
    expect(gate.shouldFlush(0)).to.equal(false);
    expect(gate.deadline()).to.equal(NEVER);
    clock.time = 2_000;
    gate.stage();
    expect(gate.deadline()).to.equal(2_050);
  });

  it('AU-02 a reply counts as the oldest record of a window', () => {
    const { gate, clock } = gateOf(WINDOW, 500);
    gate.stageReply();
    clock.time += 20;
    gate.stage();
    expect(gate.deadline()).to.equal(1_050);
  });

  it('AU-03 manual and auto without a condition hold data for ever and run no timer', () => {
    for (const policy of ['manual', NOTHING] as const) {
      const { gate, clock } = gateOf(policy);
      gate.stage();
      clock.time += 1_000_000;
      expect(gate.shouldFlush(0)).to.equal(false);
      expect(gate.deadline()).to.equal(NEVER);
    }
  });

  it('AU-07 a close, a terminal and a lifecycle record are due under every policy', () => {
    for (const policy of ['auto', 'manual', WINDOW, NOTHING] as const) {
      const { gate } = gateOf(policy);
      gate.stageUrgent(2);
      expect(gate.staged).to.equal(2);
      expect(gate.shouldFlush(0)).to.equal(true);
    }
  });

  it('AU-07 a credit reply is due at the end of its window under every policy', () => {
    for (const policy of ['auto', 'manual', WINDOW, NOTHING] as const) {
      const { gate, clock } = gateOf(policy);
      gate.stageReply();
      expect(gate.shouldFlush(0)).to.equal(false);
      expect(gate.deadline()).to.equal(1_001);
      clock.time = 1_001;
      expect(gate.shouldFlush(0)).to.equal(true);
    }
  });

  it('AU-08 a kick survives an inline clamp flush and is taken once', () => {
    const { gate } = gateOf('manual');
    gate.stage();
    gate.kick();
    gate.kick();
    gate.cleared();
    gate.stage();
    expect(gate.takeKick()).to.equal(true);
    expect(gate.takeKick()).to.equal(false);
  });

  it('AU-20 a discarded batch leaves nothing staged', () => {
    const { gate } = gateOf('auto');
    gate.stage();
    gate.stageReply();
    gate.stageUrgent(2);
    expect(gate.staged).to.equal(4);
    gate.cleared();
    expect(gate.staged).to.equal(0);
    expect(gate.shouldFlush(0)).to.equal(false);
  });

  it('AG-03 a zero window makes a reply due at once', () => {
    const { gate } = gateOf('manual', 0);
    gate.stageReply();
    expect(gate.shouldFlush(0)).to.equal(true);
  });

  it('AG-04 the window belongs to the first reply: later records do not move it', () => {
    const { gate, clock } = gateOf('manual', 10);
    gate.stageReply();
    clock.time += 4;
    gate.stage();
    gate.stageReply();
    expect(gate.deadline()).to.equal(1_010);
    clock.time = 1_010;
    expect(gate.shouldFlush(0)).to.equal(true);
  });

  it('AG-05 under auto on admission any other record ends the wait, under the others it does not', () => {
    for (const policy of ['auto', 'manual', WINDOW, NOTHING] as const) {
      const { gate } = gateOf(policy, 10);
      gate.stageReply();
      gate.stage();
      expect(gate.shouldFlush(0)).to.equal(policy === 'auto');
    }
  });

  it('AG-06 a window longer than the reply linger does not hold a reply', () => {
    const { gate, clock } = gateOf({ onAdmission: false, maxLingerMs: 30_000 }, 1);
    gate.stage();
    gate.stageReply();
    expect(gate.deadline()).to.equal(1_001);
    clock.time = 1_001;
    expect(gate.shouldFlush(0)).to.equal(true);
  });
});
