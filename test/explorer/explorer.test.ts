// The explorer itself, on programs whose bugs and whose number of schedules are known.

import { expect } from 'chai';
import type { Memory } from '../../lib/plane/memory.js';
import { explore, replay, type Scenario } from './explorer.js';

const X = 0;
const Y = 1;

/** Two threads that add one to a word, in two steps or in one. */
function adders(atomic: boolean): Scenario<void> {
  const thread = (memory: Memory): void => {
    if (atomic) memory.add(X, 1);
    else memory.store(X, memory.load(X) + 1);
  };
  return {
    words: 1,
    threads: [thread, thread],
    check: (_results, memory) => {
      if (memory.load(X) !== 2) throw new Error(`an update was lost: ${memory.load(X)}`);
    },
  };
}

/** Message passing: a plain word, then a flag that says it is there. */
function message(flagFirst: boolean): Scenario<number> {
  return {
    words: 2,
    threads: [
      (memory) => {
        if (flagFirst) memory.store(Y, 1);
        memory.write(X, 7);
        if (!flagFirst) memory.store(Y, 1);
        return 7;
      },
      (memory) => (memory.load(Y) === 1 ? memory.read(X) : 7),
    ],
    check: (results) => {
      if (results[1] !== 7) throw new Error(`read ${results[1]}`);
    },
  };
}

describe('interleaving explorer', () => {
  it('runs every order of two threads of two accesses', () => {
    const orders = new Set<string>();
    const thread = (name: string) => (memory: Memory) => {
      const first = memory.add(X, 1);
      const second = memory.add(X, 1);
      return `${name}${first}${second}`;
    };
    const scenario: Scenario<string> = {
      words: 1,
      threads: [thread('a'), thread('b')],
      check: (results) => orders.add(results.join(' ')),
    };
    const report = explore(scenario, { preemptions: 3 });
    expect(report).to.deep.equal({ schedules: 6, complete: true, violation: undefined });
    expect([...orders].sort()).to.deep.equal(['a01 b23', 'a02 b13', 'a03 b12', 'a12 b03', 'a13 b02', 'a23 b01']);
  });

  it('runs every order of three threads of one access', () => {
    const thread = (memory: Memory): number => memory.add(X, 1);
    const orders = new Set<string>();
    const scenario: Scenario<number> = {
      words: 1,
      threads: [thread, thread, thread],
      check: (results) => orders.add(results.join('')),
    };
    expect(explore(scenario, { preemptions: 2 }).complete).to.equal(true);
    expect(orders.size).to.equal(6);
  });

  it('finds an update that is lost with one preemption, and not with none', () => {
    expect(explore(adders(false), { preemptions: 0 }).violation).to.equal(undefined);
    const report = explore(adders(false), { preemptions: 1 });
    expect(report.violation).to.deep.equal({
      kind: 'failure',
      message: 'an update was lost: 1',
      schedule: 'A1 B2 A1',
    });
    expect(explore(adders(true), { preemptions: 3 }).violation).to.equal(undefined);
  });

  it('gives the same report each time', () => {
    expect(explore(adders(false))).to.deep.equal(explore(adders(false)));
  });

  it('replays a printed schedule, with a line per access', () => {
    const lines: string[] = [];
    const violation = replay(adders(false), 'A1 B2 A1', {}, (line) => lines.push(line));
    expect(violation?.message).to.equal('an update was lost: 1');
    expect(lines).to.deep.equal(['A load 0: 0', 'B load 0: 0', 'B store 0: 1', 'A store 0: 1']);
    expect(replay(adders(false), 'A2 B2')).to.equal(undefined);
  });

  it('finds a race between plain accesses that no schedule shows in the values', () => {
    const scenario: Scenario<void> = {
      words: 1,
      threads: [(memory) => memory.write(X, 1), (memory) => memory.write(X, 1)],
    };
    expect(explore(scenario).violation?.kind).to.equal('race');
    expect(explore(scenario, { points: 'atomic' }).violation?.kind).to.equal('race');
  });

  it('lets an atomic store publish the plain writes before it, and none after it', () => {
    expect(explore(message(false)).violation).to.equal(undefined);
    expect(explore(message(true)).violation?.kind).to.equal('race');
  });

  it('does not take a load for a release', () => {
    const scenario: Scenario<number> = {
      words: 2,
      threads: [
        (memory) => {
          const value = memory.read(X);
          memory.load(Y);
          return value;
        },
        (memory) => {
          memory.load(Y);
          memory.write(X, 1);
          return 0;
        },
      ],
    };
    expect(explore(scenario).violation?.kind).to.equal('race');
  });

  it('does not let a store keep what an earlier store of another thread released', () => {
    const scenario: Scenario<number> = {
      words: 2,
      threads: [
        (memory) => {
          memory.write(X, 1);
          memory.store(Y, 1);
          return 0;
        },
        (memory) => {
          memory.store(Y, 2);
          return 0;
        },
        (memory) => (memory.load(Y) === 2 ? memory.read(X) : 0),
      ],
    };
    expect(explore(scenario, { preemptions: 2 }).violation?.kind).to.equal('race');
  });

  it('sees half of a copy', () => {
    const scenario: Scenario<number> = {
      words: 2,
      threads: [
        (memory) => {
          memory.copyIn(0, Uint8Array.of(1, 1, 1, 1, 1, 1, 1, 1), 0, 8);
          return 0;
        },
        (memory) => {
          const out = new Uint8Array(8);
          memory.copyOut(0, out, 0, 8);
          if (out[0] !== out[7]) throw new Error('torn');
          return 0;
        },
      ],
    };
    expect(explore(scenario).violation?.kind).to.equal('race');
  });

  it('takes a thread that waits for ever for a lost wake-up, whatever its timeout', () => {
    const scenario = (look: boolean): Scenario<void> => ({
      words: 2,
      threads: [
        (memory) => {
          while (memory.load(X) === 0) memory.wait(Y, look ? 0 : memory.load(Y), 100);
        },
        (memory) => {
          memory.store(X, 1);
          memory.store(Y, 1);
          memory.notify(Y);
        },
      ],
    });
    expect(explore(scenario(true)).violation).to.equal(undefined);
    const { violation } = explore(scenario(false));
    expect(violation?.kind).to.equal('deadlock');
    expect(violation?.message).to.equal('thread A waits on word 1 for ever');
  });

  it('takes a thread that never ends for a failure', () => {
    const scenario: Scenario<void> = {
      words: 1,
      threads: [
        (memory) => {
          while (memory.load(X) === 0);
        },
      ],
    };
    expect(explore(scenario).violation?.kind).to.equal('endless');
  });

  it('refuses a thread that does something else when it is run again', () => {
    let runs = 0;
    const scenario: Scenario<number> = {
      words: 2,
      threads: [(memory) => memory.load(runs++ & 1) + memory.load(X), (memory) => memory.add(X, 1)],
    };
    expect(explore(scenario).violation?.message).to.match(/made another access/);
  });

  it('refuses an access outside the memory', () => {
    const scenario: Scenario<number> = { words: 1, threads: [(memory) => memory.load(1)] };
    expect(explore(scenario).violation?.message).to.equal('load of word 1 is outside the memory');
  });

  it('says so when it did not run every schedule', () => {
    expect(explore(adders(true), { maxSchedules: 1 })).to.deep.equal({
      schedules: 1,
      complete: false,
      violation: undefined,
    });
  });
});
