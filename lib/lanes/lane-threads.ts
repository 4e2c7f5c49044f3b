// A thread for one lane, and for the lane that replaces it: in a piscina pool of its own, or a plain worker for applications where
// piscina's own files are missing (bundles). It starts and ends threads; what becomes of a lane is its host's business.
//
// A pool per lane, because a lane's task returns once the lane runs: a shared pool would take the thread of a living lane for idle, and
// give it the lane that replaces a dead one.

import { existsSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import { VeloError } from '../errors.js';
import { type LaneBoot, type PoolLane, transferList } from './lane-boot.js';

/**
 * A lane allocates so little that a large young generation is collected once in seconds. By then the chunks of its sockets, which are
 * counted outside the heap, have made V8 collect the whole heap, several times a second on a busy lane.
 */
const LANE_HEAP = { maxYoungGenerationSizeMb: 2 };

export interface LaneThread {
  /** Runs a lane on a thread that has none. Rejects when the thread could not start it. */
  run(boot: LaneBoot): Promise<void>;
  /** Ends the thread, whatever it does. Resolves when nothing runs on it any more. */
  stop(): Promise<void>;
  /** The same, but a thread whose lane has closed gets `graceMs` to end by itself. */
  end(graceMs: number): Promise<void>;
}

/** Hears what a thread died of, where that is known. */
export type NoteError = (error: Error) => void;

export type MakeThread = (note: NoteError) => LaneThread;

export function workerFile(worker: URL | string = '../../workers/lane.js'): URL {
  const file = URL.canParse(String(worker), import.meta.url) ? new URL(worker, import.meta.url) : undefined;
  // Also false for whatever is not a file.
  if (file === undefined || !existsSync(file))
    throw new VeloError(
      'ERR_WORKER_FILE',
      `there is no worker file at ${file?.href ?? worker}; set the option "worker"`,
    );
  return file;
}

export async function piscinaThreads(file: URL): Promise<MakeThread> {
  const { Piscina } = await import('piscina');
  const filename = workerFile('../../workers/pool-lane.cjs').href;
  const makePool = () =>
    new Piscina({
      filename,
      name: 'lane',
      minThreads: 1,
      maxThreads: 1,
      concurrentTasksPerWorker: 1,
      idleTimeout: Number.POSITIVE_INFINITY,
      // "sync" would freeze a thread whose task has returned, and the lane with it.
      atomics: 'disabled',
      execArgv: [],
      resourceLimits: LANE_HEAP,
    });
  return (note) => new PoolThread(makePool, file.href, note);
}

class PoolThread implements LaneThread {
  private pool: Piscina | undefined;
  private stopped: Promise<void> | undefined;

  constructor(
    private readonly makePool: () => Piscina,
    private readonly file: string,
    private readonly note: NoteError,
  ) {}

  async run(boot: LaneBoot): Promise<void> {
    const pool = this.makePool();
    pool.on('error', this.note);
    this.pool = pool;
    const task: PoolLane = { file: this.file, boot };
    await pool.run(task, { transferList: transferList(boot) });
  }

  async stop(): Promise<void> {
    const { pool } = this;
    this.pool = undefined;
    // Also ends the thread that the pool has put in the place of one that died.
    if (pool !== undefined) this.stopped = pool.destroy();
    // Whoever asks again waits for the same end: the port must be free.
    await this.stopped;
  }

  end(_graceMs: number): Promise<void> {
    return this.stop();
  }
}

export function plainThreads(file: URL): MakeThread {
  return (note) => new PlainThread(file, note);
}

class PlainThread implements LaneThread {
  private worker: Worker | undefined;

  constructor(
    private readonly file: URL,
    private readonly note: NoteError,
  ) {}

  run(boot: LaneBoot): Promise<void> {
    return new Promise((resolve, reject) => {
      const worker = new Worker(this.file, {
        workerData: { velomuxLane: boot },
        transferList: transferList(boot),
        execArgv: [],
        resourceLimits: LANE_HEAP,
      });
      this.worker = worker;
      worker.once('online', resolve);
      worker.once('error', (error) => {
        reject(error);
        this.note(error);
      });
    });
  }

  async stop(): Promise<void> {
    await this.worker?.terminate();
  }

  async end(graceMs: number): Promise<void> {
    const { worker } = this;
    // A thread that has ended says so no second time.
    if (worker === undefined || worker.threadId === -1) return;
    const ended = new Promise((resolve) => worker.once('exit', resolve));
    const timer = setTimeout(() => void worker.terminate(), graceMs);
    await ended;
    clearTimeout(timer);
  }
}
