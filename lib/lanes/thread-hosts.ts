// Hosts that run lanes on worker threads: a piscina pool with one thread per lane, and plain workers for applications where
// piscina's own files are missing (bundles). Both speak to their lanes over the control ports only.

import { existsSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { VeloError } from '../errors.js';
import { Deadline } from './deadline.js';
import { allOrFirstError, type LaneHost, type LaneLink, type LaneOptions } from './host.js';
import {
  type LaneOrder,
  type LaneReport,
  type ListeningLane,
  type PreparedLane,
  prepareLanes,
  transferList,
} from './lane-boot.js';
import { removeSocketFile, type SocketFile } from './socket-file.js';
import { type StreamEnds, sumOfEnds } from './streams-end.js';

/** Workers that do not end by themselves at a close are terminated this long after their deadline. */
const TERMINATE_GRACE_MS = 500;
/** A worker file that is no lane's must not keep its node from failing. */
const START_TIMEOUT_MS = 30_000;

/** How a host gets threads: the only difference between the two. */
interface Threads {
  /** Runs the lane on a thread of its own. Rejects when the thread could not start it. */
  run(prepared: PreparedLane): Promise<void>;
  /** Waits up to `graceMs` for the threads to end, then ends them. */
  end(graceMs: number): Promise<void>;
}

function workerFile(worker: URL | string = '../../workers/lane.js'): URL {
  const file = URL.canParse(String(worker), import.meta.url) ? new URL(worker, import.meta.url) : undefined;
  // Also false for whatever is not a file.
  if (file === undefined || !existsSync(file))
    throw new VeloError(
      'ERR_WORKER_FILE',
      `there is no worker file at ${file?.href ?? worker}; set the option "worker"`,
    );
  return file;
}

async function piscinaThreads(file: URL, lanes: number, onError: (error: Error) => void): Promise<Threads> {
  const { Piscina } = await import('piscina');
  const pool = new Piscina({
    filename: file.href,
    name: 'lane',
    minThreads: lanes,
    maxThreads: lanes,
    concurrentTasksPerWorker: 1,
    idleTimeout: Number.POSITIVE_INFINITY,
    // "sync" would freeze a thread whose task has returned, and the lane with it.
    atomics: 'disabled',
    execArgv: [],
  });
  pool.on('error', onError);
  return {
    run: (prepared) => pool.run(prepared.boot, { transferList: transferList(prepared.boot) }),
    end: async () => {
      await pool.destroy();
    },
  };
}

function plainThreads(file: URL, onError: (error: Error) => void): Threads {
  const workers: Worker[] = [];
  return {
    run: (prepared) =>
      new Promise((resolve, reject) => {
        const worker = new Worker(file, {
          workerData: { velomuxLane: prepared.boot },
          transferList: transferList(prepared.boot),
          execArgv: [],
        });
        workers.push(worker);
        worker.once('online', resolve);
        worker.once('error', (error) => {
          reject(error);
          onError(error);
        });
      }),
    end: async (graceMs) => {
      // A thread that has ended says so no second time.
      const living = workers.filter((worker) => worker.threadId !== -1);
      const ended = Promise.all(living.map((worker) => new Promise((resolve) => worker.once('exit', resolve))));
      const timer = setTimeout(() => {
        for (const worker of living) void worker.terminate();
      }, graceMs);
      await ended;
      clearTimeout(timer);
    },
  };
}

/** Starts `options.length` lanes on worker threads. Rejects with the first lane's error; then no thread is left. */
export async function startThreadHost(
  kind: 'piscina' | 'worker',
  options: readonly LaneOptions[],
  node: SharedArrayBuffer,
  rows: SharedArrayBuffer,
  worker: URL | string | undefined,
): Promise<LaneHost> {
  const host = new ThreadHost();
  const file = workerFile(worker);
  const note = (error: Error) => host.noteError(error);
  const threads = kind === 'piscina' ? await piscinaThreads(file, options.length, note) : plainThreads(file, note);
  await host.start(threads, options, node, rows);
  return host;
}

class ThreadHost implements LaneHost {
  links: LaneLink[] = [];
  onLaneDeath: (lane: number, reason: string) => void = () => {};
  private lanes: PreparedLane[] = [];
  private threads: Threads | undefined;
  private closing = false;
  private lastError = '';
  private readonly ended = new Set<number>();
  /** Lanes whose control port has closed, also before anybody listened for their death. */
  private readonly lost = new Set<PreparedLane>();
  private readonly socketFiles: SocketFile[] = [];
  private whenEnded: () => void = () => {};
  private readonly ends: StreamEnds[] = [];
  private readonly deadline = new Deadline();
  private closed: Promise<StreamEnds> | undefined;

  noteError(error: Error): void {
    this.lastError = error.message;
  }

  async start(
    threads: Threads,
    options: readonly LaneOptions[],
    node: SharedArrayBuffer,
    rows: SharedArrayBuffer,
  ): Promise<void> {
    this.threads = threads;
    this.lanes = prepareLanes(options, node, rows);
    try {
      const started = await allOrFirstError(this.lanes.map((lane) => this.startLane(threads, lane)));
      this.links = this.lanes.map((lane, i) => lane.link(started[i]!.port));
    } catch (error) {
      this.closing = true;
      await threads.end(0);
      this.removeSocketFiles();
      for (const lane of this.lanes) lane.dispose();
      throw error;
    }
    for (const [i, lane] of this.lanes.entries()) {
      lane.control.on('message', (report: LaneReport) => this.hear(i, report));
      if (this.lost.has(lane)) setImmediate(() => this.laneEnded(i));
      else lane.control.on('close', () => this.laneEnded(i));
      const go: LaneOrder = { type: 'go' };
      lane.control.postMessage(go);
    }
  }

  /** Resolves once the lane listens. No lane is released from its start before all of them listen. */
  private startLane(threads: Threads, lane: PreparedLane): Promise<ListeningLane> {
    return new Promise<ListeningLane>((resolve, reject) => {
      const fail = (cause: unknown) => {
        const why = cause instanceof Error ? cause.message : String(cause);
        reject(new VeloError('ERR_WORKER_FILE', `the lane's worker did not start: ${why}`, { cause }));
      };
      const timer = setTimeout(() => fail(`it said nothing in ${START_TIMEOUT_MS} ms`), START_TIMEOUT_MS);
      lane.control.once('message', (report: LaneReport) => {
        clearTimeout(timer);
        if (report.type === 'listening') {
          if (report.socketFile !== undefined) this.socketFiles.push(report.socketFile);
          resolve(report);
        } else if (report.type === 'failed') reject(new VeloError(report.code, report.message));
        else reject(new VeloError('ERR_LANE_DIED', `the lane reported "${report.type}" at its start`));
      });
      lane.control.once('close', () => {
        this.lost.add(lane);
        clearTimeout(timer);
        fail(this.lastError === '' ? 'its thread ended' : this.lastError);
      });
      threads.run(lane).catch(fail);
    });
  }

  private hear(lane: number, report: LaneReport): void {
    if (report.type === 'fatal') this.lastError = report.message;
    else if (report.type === 'closed') {
      this.ends.push(report.ends);
      this.finished(lane);
    }
  }

  private laneEnded(lane: number): void {
    const known = this.ended.has(lane);
    this.finished(lane);
    if (this.closing || known) return;
    this.onLaneDeath(lane, this.lastError === '' ? 'its thread ended' : this.lastError);
  }

  private finished(lane: number): void {
    this.ended.add(lane);
    if (this.ended.size === this.lanes.length) this.whenEnded();
  }

  /** Lanes remove their own, unless their thread was ended. */
  private removeSocketFiles(): void {
    for (const file of this.socketFiles) removeSocketFile(file);
  }

  close(timeoutMs: number): Promise<StreamEnds> {
    this.closing = true;
    const order: LaneOrder = { type: 'close', timeoutMs };
    for (const lane of this.lanes) lane.control.postMessage(order);
    this.deadline.limit(timeoutMs + TERMINATE_GRACE_MS);
    this.closed ??= this.end();
    return this.closed;
  }

  private async end(): Promise<StreamEnds> {
    if (this.ended.size < this.lanes.length) {
      const ended = new Promise<void>((resolve) => {
        this.whenEnded = resolve;
      });
      await Promise.race([ended, this.deadline.passed]);
    }
    this.deadline.clear();
    await this.threads?.end(TERMINATE_GRACE_MS);
    this.removeSocketFiles();
    for (const lane of this.lanes) lane.dispose();
    return sumOfEnds(this.ends);
  }
}
