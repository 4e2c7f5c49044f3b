// Lanes that do nothing are found, and nothing else is taken for one.

import { expect } from 'chai';
import { SilenceWatch } from '../../../lib/lanes/silence-watch.js';

const BOUND_MS = 800;

class Watched {
  now = 0;
  readonly beats = [0, 0];
  readonly silent: [lane: number, at: number][] = [];
  readonly watch = new SilenceWatch(BOUND_MS, 2, 0);

  /** Time passes, in looks that come on time; `alive` lanes beat before each. */
  pass(ms: number, alive: readonly number[]): void {
    for (const until = this.now + ms; this.now < until; ) {
      this.now += this.watch.intervalMs;
      for (const lane of alive) this.beats[lane]! += 1;
      this.look();
    }
  }

  look(): void {
    this.watch.look(
      this.now,
      (lane) => this.beats[lane]!,
      (lane) => this.silent.push([lane, this.now]),
    );
  }
}

describe('the watch over silent lanes', () => {
  let watched: Watched;
  beforeEach(() => {
    watched = new Watched();
  });

  it('names a lane that has not moved its word for the bound, and no other one', () => {
    watched.pass(400, [0, 1]);
    watched.pass(700, [0]);
    expect(watched.silent).to.deep.equal([]);
    watched.pass(100, [0]);
    expect(watched.silent).to.deep.equal([[1, 1_200]]);
    watched.pass(700, [0]);
    expect(watched.silent, 'said again only after another bound').to.have.length(1);
  });

  it('a word that moves once within the bound is enough', () => {
    for (let i = 0; i < 10; i += 1) {
      watched.pass(700, [0]);
      watched.beats[1]! += 1;
      watched.pass(100, [0]);
    }
    expect(watched.silent).to.deep.equal([]);
  });

  it('a process that was stopped, or a main thread that computed, accuses nobody', () => {
    for (let i = 0; i < 10; i += 1) {
      watched.pass(700, [0]);
      watched.now += 3_600_000;
      watched.look();
    }
    expect(watched.silent).to.deep.equal([]);
    watched.pass(800, [0]);
    expect(watched.silent.map(([lane]) => lane)).to.deep.equal([1]);
  });

  it('a lane that does not run is not looked for, and its successor starts anew', () => {
    watched.pass(700, [0]);
    watched.watch.ended(1);
    watched.pass(5_000, [0]);
    expect(watched.silent).to.deep.equal([]);
    watched.watch.started(1);
    watched.pass(700, [0]);
    expect(watched.silent).to.deep.equal([]);
    watched.pass(200, [0]);
    expect(watched.silent.map(([lane]) => lane)).to.deep.equal([1]);
  });
});
