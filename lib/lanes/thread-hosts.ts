// Hosts that run each lane on a worker thread. They speak to their lanes over the control ports only: start them together, hear of
// their deaths, put a new lane in the place of a dead one, on the same port, and take all of them down.

import { performance } from 'node:perf_hooks';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { VeloError } from '../errors.js';
import { MESSENGER_LANE } from './commands.js';
import { Deadline } from './deadline.js';
import { allOrFirstError, type LaneHost, type LaneLink, type LaneOptions } from './host.js';
import {
  type LaneOrder,
  type LaneReport,
  type ListeningLane,
  meshPorts,
  type PreparedLane,
  prepareLane,
  rejoinMesh,
} from './lane-boot.js';
import type { MeshPort } from './lane-mesh.js';
import { type LaneThread, type MakeThread, piscinaThreads, plainThreads, workerFile } from './lane-threads.js';
import { NO_RESTART, RestartLimit } from './restart-limit.js';
import { removeSocketFile, type SocketFile } from './socket-file.js';
import { type StreamEnds, sumOfEnds } from './streams-end.js';

/** Workers that do not end by themselves at a close are terminated this long after their deadline. */
const TERMINATE_GRACE_MS = 500;
/** A worker file that is no lane's must not keep its node from failing. */
const START_TIMEOUT_MS = 30_000;

/** Starts `options.length` lanes on worker threads. Rejects with the first lane's error; then no thread is left. */
export async function startThreadHost(
  kind: 'piscina' | 'worker',
  options: readonly LaneOptions[],
  node: SharedArrayBuffer,
  rows: SharedArrayBuffer,
  worker: URL | string | undefined,
  maxRestarts: number,
): Promise<LaneHost> {
  const file = workerFile(worker);
  const makeThread = kind === 'piscina' ? await piscinaThreads(file) : plainThreads(file);
  const host = new ThreadHost();
  await host.start(options, (lane, mesh) => prepareLane(lane, node, rows, mesh), makeThread, maxRestarts);
  return host;
}

const ALONE: LaneOrder = { type: 'alone' };
const makeChannel = () => new MessageChannel();

/** The place of one lane: its thread, and the lane that lives there now, or did last. */
interface Seat {
  readonly lane: number;
  readonly thread: LaneThread;
  readonly limit: RestartLimit;
  options: LaneOptions;
  life: PreparedLane;
  socketFile: SocketFile | undefined;
  lastError: string;
  /** No lane runs here: it closed, or it died and no other one runs yet. */
  ended: boolean;
  /** What the next life waits for. */
  timer: NodeJS.Timeout | undefined;
}

type Prepare = (options: LaneOptions, mesh: readonly MeshPort[]) => PreparedLane;

class ThreadHost implements LaneHost {
  readonly links: LaneLink[] = [];
  onLaneDeath: (lane: number, reason: string) => void = () => {};
  onLaneRestart: (lane: number, link: LaneLink) => void = () => {};
  onLaneRunning: (lane: number) => void = () => {};
  private readonly seats: Seat[] = [];
  private prepare!: Prepare;
  private closing = false;
  /** Lane 0 stays dead. */
  private hubGone = false;
  private whenEnded: () => void = () => {};
  private readonly ends: StreamEnds[] = [];
  private readonly deadline = new Deadline();
  private closed: Promise<StreamEnds> | undefined;

  async start(
    options: readonly LaneOptions[],
    prepare: Prepare,
    makeThread: MakeThread,
    maxRestarts: number,
  ): Promise<void> {
    this.prepare = prepare;
    const mesh = meshPorts(options.length, makeChannel);
    for (const [lane, given] of options.entries()) {
      const thread = makeThread((error) => {
        seat.lastError = error.message;
      });
      const life = prepare(given, mesh[lane]!);
      const rest = { socketFile: undefined, lastError: '', ended: false, timer: undefined };
      const seat: Seat = { lane, thread, limit: new RestartLimit(maxRestarts), options: given, life, ...rest };
      this.seats.push(seat);
    }
    try {
      const started = await allOrFirstError(this.seats.map((seat) => this.startLane(seat, seat.life)));
      for (const [lane, seat] of this.seats.entries()) {
        const { port } = started[lane]!;
        seat.options = { ...seat.options, port };
        this.links.push(seat.life.link(port));
      }
    } catch (error) {
      this.closing = true;
      await Promise.all(this.seats.map(({ thread }) => thread.end(0)));
      this.dispose();
      throw error;
    }
    for (const seat of this.seats) {
      // Not before somebody listens for the death.
      if (seat.ended) setImmediate(() => this.laneEnded(seat));
      else this.letGo(seat, seat.life);
    }
  }

  /** Resolves once the lane listens. At the start of a node no lane is released from its own before all of them listen. */
  private startLane(seat: Seat, life: PreparedLane): Promise<ListeningLane> {
    return new Promise<ListeningLane>((resolve, reject) => {
      const fail = (cause: unknown) => {
        clearTimeout(timer);
        const why = cause instanceof Error ? cause.message : String(cause);
        reject(new VeloError('ERR_WORKER_FILE', `the lane's worker did not start: ${why}`, { cause }));
      };
      const timer = setTimeout(() => fail(`it said nothing in ${START_TIMEOUT_MS} ms`), START_TIMEOUT_MS);
      life.control.once('message', (report: LaneReport) => {
        clearTimeout(timer);
        if (report.type === 'listening') {
          seat.socketFile = report.socketFile;
          resolve(report);
        } else if (report.type === 'failed') reject(new VeloError(report.code, report.message));
        else reject(new VeloError('ERR_LANE_DIED', `the lane reported "${report.type}" at its start`));
      });
      life.control.once('close', () => {
        if (seat.life === life) seat.ended = true;
        fail(seat.lastError === '' ? 'its thread ended' : seat.lastError);
      });
      seat.thread.run(life.boot).catch(fail);
    });
  }

  /** The lane runs: from here on its end is a close or a death. */
  private letGo(seat: Seat, life: PreparedLane): void {
    life.control.on('message', (report: LaneReport) => this.hear(seat, report));
    life.control.on('close', () => {
      if (seat.life === life) this.laneEnded(seat);
    });
    const go: LaneOrder = { type: 'go' };
    life.control.postMessage(go);
  }

  private hear(seat: Seat, report: LaneReport): void {
    if (report.type === 'fatal') seat.lastError = report.message;
    else if (report.type === 'closed') {
      this.ends.push(report.ends);
      this.finished(seat);
    }
  }

  private finished(seat: Seat): void {
    seat.ended = true;
    if (this.seats.every(({ ended }) => ended)) this.whenEnded();
  }

  // ---- death, and the next life

  private readonly dead = new WeakSet<PreparedLane>();

  private laneEnded(seat: Seat): void {
    // A lane that closed in order has said so before.
    const closed = this.closing || this.dead.has(seat.life);
    this.finished(seat);
    if (closed) return;
    this.dead.add(seat.life);
    const reason = seat.lastError === '' ? 'its thread ended' : seat.lastError;
    seat.lastError = '';
    this.onLaneDeath(seat.lane, reason);
    const delay = seat.limit.died(performance.now());
    if (delay === NO_RESTART) {
      void seat.thread.stop();
      if (seat.lane === MESSENGER_LANE) this.leaveOthersAlone();
    } else seat.timer = setTimeout(() => void this.restart(seat), delay);
  }

  private leaveOthersAlone(): void {
    this.hubGone = true;
    for (const { ended, life } of this.seats) if (!ended) life.control.postMessage(ALONE);
  }

  /**
   * A new lane for the same seat. Its conduit is the client's from now on: what is published into it before the lane runs is read
   * before the first frame of a peer.
   */
  private async restart(seat: Seat): Promise<void> {
    seat.timer = undefined;
    seat.life.dispose();
    await seat.thread.stop();
    if (this.closing) return;
    // What the old thread said while it ended.
    seat.lastError = '';
    if (seat.socketFile !== undefined) removeSocketFile(seat.socketFile);
    seat.options = { ...seat.options, life: seat.options.life + 1 };
    const life = this.prepare(seat.options, this.meshFor(seat.lane));
    seat.life = life;
    if (this.hubGone) life.control.postMessage(ALONE);
    const link = life.link(seat.options.port);
    this.links[seat.lane] = link;
    this.onLaneRestart(seat.lane, link);
    seat.ended = false;
    try {
      await this.startLane(seat, life);
    } catch (error) {
      if (seat.lastError === '') seat.lastError = (error as Error).message;
      this.laneEnded(seat);
      return;
    }
    if (this.closing) this.orderClose(seat);
    else this.onLaneRunning(seat.lane);
    this.letGo(seat, life);
  }

  /** Ports for the lane that starts again; the lanes that run get the other ends. */
  private meshFor(lane: number): MeshPort[] {
    return rejoinMesh(lane, this.seats.length, makeChannel, (to, mesh) => {
      const { ended, life } = this.seats[to]!;
      if (ended) return false;
      const order: LaneOrder = { type: 'mesh', mesh };
      life.control.postMessage(order, [mesh.port as MessagePort]);
      return true;
    });
  }

  terminate(lane: number, reason: string): void {
    const seat = this.seats[lane]!;
    if (seat.ended || this.closing) return;
    seat.lastError = reason;
    void seat.thread.stop();
  }

  // ---- the end

  close(timeoutMs: number): Promise<StreamEnds> {
    this.closing = true;
    this.deadline.limit(timeoutMs + TERMINATE_GRACE_MS);
    for (const seat of this.seats) {
      clearTimeout(seat.timer);
      this.orderClose(seat);
    }
    this.closed ??= this.end();
    return this.closed;
  }

  private orderClose(seat: Seat): void {
    const order: LaneOrder = { type: 'close', timeoutMs: Math.max(0, this.deadline.left - TERMINATE_GRACE_MS) };
    seat.life.control.postMessage(order);
  }

  private async end(): Promise<StreamEnds> {
    if (this.seats.some(({ ended }) => !ended)) {
      const ended = new Promise<void>((resolve) => {
        this.whenEnded = resolve;
      });
      await Promise.race([ended, this.deadline.passed]);
    }
    this.deadline.clear();
    await Promise.all(this.seats.map(({ thread, ended }) => (ended ? thread.end(TERMINATE_GRACE_MS) : thread.stop())));
    this.dispose();
    return sumOfEnds(this.ends);
  }

  private dispose(): void {
    for (const { socketFile, life } of this.seats) {
      // Lanes remove their own, unless their thread was ended.
      if (socketFile !== undefined) removeSocketFile(socketFile);
      life.dispose();
    }
  }
}
