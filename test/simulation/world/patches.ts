// Puts the world's clock, timers, network and randomness in the place of Node's for the time of one run, for everything in this
// process, and puts Node's back. Builtin modules are changed in place and their ES exports renewed, so the code under test
// is loaded and run as it is.

import { createRequire, syncBuiltinESMExports } from 'node:module';

const require = createRequire(import.meta.url);

/** What stands in for Node. */
export interface Substitutes {
  readonly timers: {
    setTimeout: unknown;
    setInterval: unknown;
    setImmediate: unknown;
    clear: unknown;
    pause: unknown;
  };
  /** Milliseconds since the start of the world. */
  now(): number;
  randomBytes(length: number): Buffer;
  connect: unknown;
  createServer: unknown;
  MessageChannel: unknown;
}

/** Node's own, for whoever drives the world. */
export const realSetImmediate = setImmediate;
/** Where the virtual wall clock begins, in milliseconds since 1970. */
const EPOCH_MS = Date.UTC(2030, 0, 1);
/** `performance.now()` at the start of the world: code must not depend on its being small. */
const ORIGIN_MS = 5_000;

/** When memory is collected no seed decides: in a world it never is. */
class NothingIsCollected {
  register(): void {}

  unregister(): boolean {
    return false;
  }
}

type Target = Record<string, unknown>;

/** Installs the substitutes. Call what is returned to restore Node's. */
export function substitute(world: Substitutes): () => void {
  const undo: (() => void)[] = [];
  const replace = (target: object, name: string, value: unknown) => {
    const own = Object.getOwnPropertyDescriptor(target, name);
    Object.defineProperty(target, name, {
      value,
      configurable: true,
      writable: true,
      enumerable: own?.enumerable ?? true,
    });
    undo.push(() => {
      if (own === undefined) delete (target as Target)[name];
      else Object.defineProperty(target, name, own);
    });
  };
  const { timers } = world;
  for (const name of ['setTimeout', 'setInterval', 'setImmediate'] as const) {
    replace(globalThis, name, timers[name]);
    replace(require('node:timers') as object, name, timers[name]);
  }
  for (const name of ['clearTimeout', 'clearInterval', 'clearImmediate']) {
    replace(globalThis, name, timers.clear);
    replace(require('node:timers') as object, name, timers.clear);
  }
  replace(require('node:timers/promises') as object, 'setTimeout', timers.pause);
  replace(globalThis, 'FinalizationRegistry', NothingIsCollected);
  replace(performance, 'now', () => ORIGIN_MS + world.now());
  replace(Date, 'now', () => Math.floor(EPOCH_MS + world.now()));
  replace(require('node:crypto') as object, 'randomBytes', world.randomBytes);
  for (const name of ['connect', 'createConnection']) replace(require('node:net') as object, name, world.connect);
  replace(require('node:net') as object, 'createServer', world.createServer);
  replace(require('node:worker_threads') as object, 'MessageChannel', world.MessageChannel);
  syncBuiltinESMExports();
  return () => {
    for (const step of undo.reverse()) step();
    syncBuiltinESMExports();
  };
}

/** Takes over what would end the process. Call what is returned to give it back. */
export function watchUncaught(seen: (what: string, error: unknown) => void): () => void {
  const kinds = ['uncaughtException', 'unhandledRejection'] as const;
  const kept = kinds.map((kind) => process.listeners(kind as 'uncaughtException').slice());
  const mine = kinds.map((kind) => (error: unknown) => seen(kind, error));
  kinds.forEach((kind, i) => {
    process.removeAllListeners(kind);
    process.on(kind, mine[i]!);
  });
  return () => {
    kinds.forEach((kind, i) => {
      process.removeAllListeners(kind);
      for (const listener of kept[i]!) process.on(kind, listener);
    });
  };
}
