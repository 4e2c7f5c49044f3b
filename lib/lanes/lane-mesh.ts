// The ports between lane 0 and every other lane. Requests for staged payloads (`_rv_*`) and the answers to a lane's own calls come to
// lane 0 alone, so the others leave their staged batches with it, and ask it to pull those of peers. Owns what goes over a port and what
// is open on it; it must never hold a rule of staging or of pulling.
//
// What may wait in a port is bounded: staged batches by `stagedBytesMax`, pulls by `MAX_WAITING_BATCHES` per lane, their bytes by
// `pullBytesMax` until the other lane says that it took them.
//
// A lane that starts again gets a port anew (`join`); what was open on the old one ends with it.

import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { type ErrorCode, VeloError } from '../errors.js';
import type { RequestEnvelope } from '../wire/envelope.js';
import { HEADER_RENDEZVOUS } from '../wire/names.js';
import type { BatchShelf, BatchSource, Fetched, StagedAccount } from './batch-shelf.js';
import { LocalPort } from './local-port.js';

/** A real port between threads, or a local one. */
export type LanePort = MessagePort | LocalPort;

/** One end of a port, for the lane `to` which the other end belongs. */
export interface MeshPort {
  readonly lane: number;
  readonly port: LanePort;
}

/** From another lane to lane 0. */
type ToHub =
  | { readonly type: 'stage'; readonly id: number; readonly batch: Uint8Array }
  | { readonly type: 'drop'; readonly id: number }
  | { readonly type: 'pull'; readonly ticket: number; readonly handle: string }
  /** The bytes of a pull are the lane's own now. */
  | { readonly type: 'taken'; readonly ticket: number }
  /** The streams of the lane are over: it stages nothing more. */
  | { readonly type: 'ended' };

/** From lane 0 to another. */
type FromHub =
  | { readonly type: 'gone'; readonly id: number }
  | { readonly type: 'pulled'; readonly ticket: number; readonly bytes: Uint8Array }
  | { readonly type: 'failed'; readonly ticket: number; readonly code: ErrorCode; readonly message: string };

/** What both ends need of their lane. */
export interface MeshLane {
  /** Runs `turn` as a turn of the lane. */
  inTurn(turn: () => void): void;
  /** Ends a turn soon. */
  touch(): void;
  /** An invariant is broken: the lane cannot go on. */
  fail(error: unknown): void;
}

/** What lane 0 does for the others. */
export interface HubServices {
  keep(id: number, batch: Uint8Array, gone: () => void): void;
  drop(id: number): void;
  pull(handle: string): Promise<Fetched>;
}

/** What is open with one lane. */
interface Spoke {
  readonly port: LanePort;
  readonly staged: Set<number>;
  /** Pulls that are not over, with what ends those that are done. */
  readonly pulls: Map<number, (() => void) | undefined>;
  ended: boolean;
}

/** Lane 0's ends. */
export class MeshHub {
  private readonly spokes = new Map<number, Spoke>();

  constructor(
    private readonly lane: MeshLane,
    private readonly services: HubServices,
  ) {}

  join({ lane, port }: MeshPort): void {
    const old = this.spokes.get(lane);
    if (old !== undefined) {
      this.leave(lane, old);
      old.port.close();
    }
    const spoke: Spoke = { port, staged: new Set(), pulls: new Map(), ended: false };
    this.spokes.set(lane, spoke);
    listen(port, (message) => this.lane.inTurn(() => this.hear(spoke, message as ToHub)));
    port.on('close', () => this.lane.inTurn(() => this.leave(lane, spoke)));
    port.unref();
  }

  /**
   * Takes everything that the other lanes have said so far. Whoever asks for a payload that was announced to it finds it after this: it
   * was posted here before its handle left.
   */
  drain(): void {
    for (const spoke of this.spokes.values()) {
      for (let next = receive(spoke.port); next !== undefined; next = receive(spoke.port))
        this.hear(spoke, next.message as ToHub);
    }
  }

  /** No lane will stage anything more. */
  get ended(): boolean {
    for (const spoke of this.spokes.values()) if (!spoke.ended) return false;
    return true;
  }

  close(): void {
    for (const spoke of this.spokes.values()) spoke.port.close();
  }

  private hear(spoke: Spoke, message: ToHub): void {
    switch (message.type) {
      case 'stage': {
        const { id, batch } = message;
        spoke.staged.add(id);
        this.services.keep(id, batch, () => {
          spoke.staged.delete(id);
          this.say(spoke, { type: 'gone', id });
        });
        return;
      }
      case 'drop':
        this.services.drop(message.id);
        return;
      case 'pull':
        spoke.pulls.set(message.ticket, undefined);
        void this.pull(spoke, message.ticket, message.handle).catch((error: unknown) => this.lane.fail(error));
        return;
      case 'taken':
        spoke.pulls.get(message.ticket)?.();
        spoke.pulls.delete(message.ticket);
        return;
      case 'ended':
        spoke.ended = true;
        return;
      default:
        message satisfies never;
    }
  }

  private async pull(spoke: Spoke, ticket: number, handle: string): Promise<void> {
    let fetched: Fetched;
    try {
      fetched = await this.services.pull(handle);
    } catch (error) {
      spoke.pulls.delete(ticket);
      const code = VeloError.is(error) ? error.code : 'ERR_INTERNAL';
      this.say(spoke, { type: 'failed', ticket, code, message: (error as Error).message });
      return;
    } finally {
      this.lane.touch();
    }
    // The lane that asked is gone.
    if (!spoke.pulls.has(ticket)) {
      fetched.end();
      return;
    }
    spoke.pulls.set(ticket, fetched.end);
    const { bytes } = fetched;
    this.say(spoke, { type: 'pulled', ticket, bytes }, bytes.buffer as ArrayBuffer);
  }

  private say(spoke: Spoke, message: FromHub, memory?: ArrayBuffer): void {
    // To a port that is closed this does nothing.
    post(spoke.port, message, memory);
  }

  /** The other end is closed. What a lane that died had staged goes; after an orderly end receivers may still come for it. */
  private leave(lane: number, spoke: Spoke): void {
    if (this.spokes.get(lane) === spoke) this.spokes.delete(lane);
    for (const end of spoke.pulls.values()) end?.();
    spoke.pulls.clear();
    if (spoke.ended) return;
    for (const id of [...spoke.staged]) this.services.drop(id);
  }
}

function receive(port: LanePort): { message: unknown } | undefined {
  return port instanceof LocalPort ? port.take() : receiveMessageOnPort(port);
}

function listen(port: LanePort, hear: (message: unknown) => void): void {
  if (port instanceof LocalPort) port.on('message', hear);
  else port.on('message', hear);
}

function post(port: LanePort, message: ToHub | FromHub, memory: ArrayBuffer | undefined): void {
  if (port instanceof LocalPort) port.postMessage(message);
  else port.postMessage(message, memory === undefined ? [] : [memory]);
}

interface Waiting {
  readonly resolve: (fetched: Fetched) => void;
  readonly reject: (error: VeloError) => void;
}

/** The end of any other lane. Without a port (lane 0 is dead) nothing can be staged, and nothing pulled. */
export class MeshEnd implements BatchShelf, BatchSource {
  private port: LanePort | undefined;
  private readonly staged = new Map<number, () => void>();
  private readonly pulls = new Map<number, Waiting>();
  private nextTicket = 1;
  private over = false;
  /** Lane 0 stays dead. */
  isGone = false;

  constructor(
    private readonly lane: MeshLane,
    private readonly account: StagedAccount,
    /** Room for staged batches came back. */
    private readonly freed: () => void,
  ) {}

  join({ port }: MeshPort): void {
    this.port?.close();
    this.lost();
    this.port = port;
    listen(port, (message) => this.lane.inTurn(() => this.hear(message as FromHub)));
    port.on('close', () => this.lane.inTurn(() => this.leave(port)));
    port.unref();
    this.freed();
  }

  /** Lane 0 is dead, and no other one will take its place. */
  alone(): void {
    this.isGone = true;
    // Whoever waits for room looks again, and finds that there will be none.
    this.freed();
  }

  // ---- what this lane stages

  reserve(bytes: number): boolean {
    return this.port !== undefined && this.account.reserve(bytes);
  }

  release(bytes: number): void {
    this.account.release(bytes);
  }

  stage(batch: Uint8Array, gone: () => void): number {
    const id = this.account.nextId();
    const { length } = batch;
    this.staged.set(id, () => {
      this.account.release(length);
      gone();
    });
    this.say({ type: 'stage', id, batch }, batch.buffer as ArrayBuffer);
    return id;
  }

  drop(id: number): void {
    this.say({ type: 'drop', id });
  }

  /** Nothing more will be staged. */
  ended(): void {
    this.say({ type: 'ended' });
  }

  // ---- what it wants pulled

  take({ headers }: Pick<RequestEnvelope, 'headers'>, _head: Uint8Array): Promise<Fetched> {
    if (this.over) return Promise.reject(new VeloError('ERR_CLOSED', 'the node was closed'));
    if (this.port === undefined) return Promise.reject(new VeloError('ERR_LANE_DIED', 'lane 0, which pulls, is dead'));
    return new Promise((resolve, reject) => {
      const ticket = this.nextTicket++;
      this.pulls.set(ticket, { resolve, reject });
      this.say({ type: 'pull', ticket, handle: headers!.get(HEADER_RENDEZVOUS)! });
    });
  }

  track(work: Promise<void>): void {
    void work.catch((error: unknown) => this.lane.fail(error)).finally(() => this.lane.touch());
  }

  close(): void {
    this.over = true;
    const { port } = this;
    this.port = undefined;
    port?.close();
    this.failPulls(new VeloError('ERR_CLOSED', 'the node was closed'));
  }

  private hear(message: FromHub): void {
    switch (message.type) {
      case 'gone': {
        const gone = this.staged.get(message.id);
        this.staged.delete(message.id);
        gone?.();
        this.freed();
        return;
      }
      case 'pulled': {
        const { ticket, bytes } = message;
        const waiting = this.pulls.get(ticket);
        this.pulls.delete(ticket);
        waiting?.resolve({ bytes, end: () => this.say({ type: 'taken', ticket }) });
        return;
      }
      case 'failed':
        this.pulls.get(message.ticket)?.reject(new VeloError(message.code, message.message));
        this.pulls.delete(message.ticket);
        return;
      default:
        message satisfies never;
    }
  }

  private say(message: ToHub, memory?: ArrayBuffer): void {
    if (this.port !== undefined) post(this.port, message, memory);
  }

  private leave(port: LanePort): void {
    if (this.port !== port) return;
    this.port = undefined;
    this.lost();
  }

  /** Lane 0 is gone, and with it everything that lay or was asked for there. */
  private lost(): void {
    this.failPulls(new VeloError('ERR_LANE_DIED', 'lane 0, which pulls, is dead'));
    const staged = [...this.staged.values()];
    this.staged.clear();
    for (const gone of staged) gone();
    this.account.clear();
  }

  private failPulls(error: VeloError): void {
    const pulls = [...this.pulls.values()];
    this.pulls.clear();
    for (const { reject } of pulls) reject(error);
  }
}
