// A world: clock, network and processes, in place of Node's while it is entered. It runs one event at a time, lets everything that
// comes of it run to its end, and then asks for a check. It knows nothing of streams.

import { MessageChannel } from 'node:worker_threads';
import { frameText } from './frame-text.js';
import type { Link, Weather } from './link.js';
import { Network } from './network.js';
import { realSetImmediate, substitute, watchUncaught } from './patches.js';
import { Random } from './random.js';
import { type Holding, Process, RANK_APP, Schedule } from './schedule.js';
import { SimTimers } from './timers.js';

/** Kept by value: the import itself follows the world's substitute. */
const RealMessageChannel = MessageChannel;
/** What a lent chunk is overwritten with. */
const POISON = 0xdd;
const HASH_PRIME = 0x0100_0193;
const HASH_START = 0x811c_9dc5;

export interface WorldHooks {
  /** Everything that came of an event has run. */
  afterEvent(owner: Process | undefined): void;
  /** Something happened that never may. */
  failed(check: string, message: string): void;
  /** Every event, as a line; only while tracing. */
  trace?: ((line: string) => void) | undefined;
}

class PortHolding implements Holding {
  readonly what = 'port';

  constructor(
    private readonly owner: Process,
    private readonly channel: MessageChannel,
  ) {
    owner.holdings.add(this);
    const { port1, port2 } = channel;
    for (const port of [port1, port2]) {
      const close = port.close.bind(port);
      port.close = () => {
        owner.holdings.delete(this);
        close();
      };
    }
  }

  die(): void {
    this.owner.holdings.delete(this);
    this.channel.port1.close();
  }
}

export class World {
  readonly random: Random;
  readonly schedule: Schedule;
  readonly network: Network;
  readonly processes: Process[] = [];
  steps = 0;
  private hashed = HASH_START;
  private lent: Buffer[] = [];
  private readonly orphan = new Process(-1, '127.9.9.9', 0.5);

  constructor(
    seed: number,
    weather: () => Weather,
    private readonly hooks: WorldHooks,
  ) {
    this.random = new Random(seed);
    this.schedule = new Schedule(this.random);
    const watcher = {
      lent: (chunk: Buffer) => void this.lent.push(chunk),
      broken: (what: string) => hooks.failed('frames', what),
      frame:
        hooks.trace && ((link: Link, bytes: Buffer, headerLength: number) => this.showFrame(link, bytes, headerLength)),
    };
    this.network = new Network(this.schedule, weather, watcher, (what) => this.owner(what));
  }

  get now(): number {
    return this.schedule.now;
  }

  /** What happened, in order, as a number: equal for equal runs. */
  get hash(): string {
    return (this.hashed >>> 0).toString(16).padStart(8, '0');
  }

  private owner(what: string): Process {
    const { current } = this.schedule;
    if (current !== undefined) return current;
    this.hooks.failed('ownership', `${what} outside of any process`);
    return this.orphan;
  }

  /** The process whose event runs. */
  running(what: string): Process {
    return this.owner(what);
  }

  process(): Process {
    const number = this.processes.length;
    const made = new Process(number, `127.0.1.${number + 1}`, this.random.within(0.01, 0.99));
    this.processes.push(made);
    return made;
  }

  /** Does something in a process, a little later. */
  post(owner: Process, ms: number, label: string, run: () => void): void {
    this.schedule.after(ms, RANK_APP, owner, label, run);
  }

  /** For programs in a process: resolves in an event of its own. Never resolves when the process dies. */
  sleep(owner: Process, ms: number): Promise<void> {
    return new Promise((resolve) => this.post(owner, ms, 'wake', resolve));
  }

  /** Takes Node's place for the time of `run`. */
  async enter(run: () => Promise<void>): Promise<void> {
    const timers = new SimTimers(this.schedule, (what) => this.owner(what));
    const channel = (owner: () => Process) =>
      function SimMessageChannel() {
        const made = new RealMessageChannel();
        new PortHolding(owner(), made);
        return made;
      };
    const restoreErrors = watchUncaught((what, error) => this.hooks.failed(what, describe(error)));
    const restore = substitute({
      timers,
      now: () => this.now,
      randomBytes: (length) => this.random.fill(Buffer.alloc(length)) as Buffer,
      connect: this.network.connect,
      createServer: this.network.createServer,
      MessageChannel: channel(() => this.owner('MessageChannel')),
    });
    try {
      await run();
      // What is still on its way of real things (ports that close) must not outlive the run.
      await drained();
    } finally {
      restore();
      restoreErrors();
      for (const { holdings } of this.processes) for (const holding of [...holdings]) holding.die();
    }
  }

  /** Runs events up to a time, or until `stop` says so. */
  async run(until: number, stop: () => boolean): Promise<void> {
    while (!stop()) {
      const event = this.schedule.next(until);
      if (event === undefined) {
        this.schedule.now = Math.max(this.schedule.now, until);
        return;
      }
      this.steps += 1;
      this.mix(event.label, event.owner, this.now);
      this.schedule.current = event.owner;
      try {
        event.run();
      } catch (error) {
        this.hooks.failed('exception', describe(error));
      }
      await drained();
      for (const chunk of this.lent) chunk.fill(POISON);
      this.lent.length = 0;
      this.hooks.afterEvent(event.owner);
      this.schedule.current = undefined;
    }
  }

  private mix(label: string, owner: Process | undefined, at: number): void {
    let hash = this.hashed;
    for (let i = 0; i < label.length; i++) hash = Math.imul(hash ^ label.charCodeAt(i), HASH_PRIME);
    hash = Math.imul(hash ^ ((owner?.number ?? -1) + 1), HASH_PRIME);
    hash = Math.imul(hash ^ Math.floor(at * 1e6), HASH_PRIME);
    this.hashed = hash;
    this.hooks.trace?.(`${at.toFixed(4)} ${owner === undefined ? 'net' : `n${owner.number}`} ${label}`);
  }

  private showFrame({ from, to }: Link, bytes: Buffer, headerLength: number): void {
    const text = frameText(bytes, headerLength);
    this.hooks.trace?.(`${this.now.toFixed(4)} n${from.number} > n${to.number} ${text}`);
  }

  /** A line for the trace and a part of its hash. */
  note(what: string): void {
    this.mix(what, this.schedule.current, this.now);
  }
}

/** Resolves when no microtask and no tick is left. */
function drained(): Promise<void> {
  return new Promise((resolve) => realSetImmediate(resolve));
}

export function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
