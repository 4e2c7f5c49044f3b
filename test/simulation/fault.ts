// What a deliberate fault is, and how one is put in: it changes one method of one shipped class for the time of one run.

import type { Scenario } from './scenario.js';

export interface Fault {
  readonly name: string;
  /** Names of the checks of which one must find it, in one of the seeds. */
  readonly caughtBy: readonly string[];
  readonly seeds: readonly number[];
  /** Makes the fault matter sooner than the seeds alone would. */
  readonly adjust?: (scenario: Scenario) => Scenario;
  /** Call what is returned to take the fault out again. */
  readonly install: () => () => void;
}

type Methods = Record<string, (...args: never[]) => unknown>;

/** Puts a method in the place of another; it is given the original. */
export function replace(
  owner: object,
  name: string,
  make: (original: (...args: never[]) => unknown) => unknown,
): () => void {
  const methods = owner as Methods;
  const original = methods[name];
  if (typeof original !== 'function') throw new Error(`there is no method ${name} to put a fault into`);
  methods[name] = make(original) as Methods[string];
  return () => {
    methods[name] = original;
  };
}

/** Counts calls over a run, so that a fault strikes now and then only. */
export function everyNth(n: number): () => boolean {
  let calls = 0;
  return () => {
    calls += 1;
    return calls % n === 0;
  };
}

export const SEEDS = [2, 12, 5, 3, 1, 6];
/** For what takes luck; the first that finds it is enough. */
export const MANY_SEEDS = [...SEEDS, ...Array.from({ length: 20 }, (_, i) => 20 + i)];
