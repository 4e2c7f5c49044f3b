// The processes of a soak: a place for each, filled again when its process was killed. Owns starting, stopping and killing them, and
// who knows whom. It must never judge what they report.

import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PeerInfo, type VeloOptions } from '../../lib/index.js';
import { CuttingProxy } from './cutting-proxy.js';
import type { ChildSetup, FromChild, Role, Sample, Standstill, StreamReport, ToChild } from './protocol.js';

const CHILD = fileURLToPath(new URL('./child.js', import.meta.url));
/** Ids of a reader's streams; the next reader has the next ones. */
const STREAMS_PER_READER = 1 << 20;
const READY_MS = 30_000;
const END_MS = 30_000;
const SAMPLE_MS = 30_000;

interface Place {
  readonly label: string;
  readonly role: Role;
  readonly options: VeloOptions;
}

/** Readers and writers by turns in their options: lanes, flushing, TCP or a Unix socket where both ends have one. */
const PLACES: readonly Place[] = [
  { label: 'reader A', role: 'reader', options: { lanes: 4 } },
  { label: 'reader B', role: 'reader', options: { lanes: 1, udsPath: 'b' } },
  { label: 'writer C', role: 'writer', options: { lanes: 2, flushPolicy: 'manual' } },
  { label: 'writer D', role: 'writer', options: { lanes: 1, udsPath: 'd' } },
];

export interface FleetEvents {
  opened(streams: number): void;
  ended(of: SoakProcess, streams: readonly StreamReport[], standstills: readonly Standstill[]): void;
  broken(of: SoakProcess, what: string): void;
}

export interface FleetOptions {
  readonly seed: number;
  readonly heartbeatMs: number;
  readonly width: number;
  readonly hangMs: number;
  readonly callTimeoutMs: number;
}

export class SoakProcess {
  readonly exited: Promise<void>;
  readonly samples: Sample[] = [];
  /** As it says, and as others are told. */
  real!: PeerInfo;
  info!: PeerInfo;
  /** Ended by the soak itself. */
  expected = false;
  private readonly waiting = new Map<number, (sample: Sample) => void>();
  private nextSample = 1;

  constructor(
    readonly name: string,
    readonly place: number,
    readonly role: Role,
    readonly child: ChildProcess,
  ) {
    this.exited = new Promise((resolve) => child.once('exit', () => resolve()));
    child.on('message', (message) => {
      const from = message as FromChild;
      if (from.kind !== 'sample') return;
      this.waiting.get(from.id)?.(from.sample);
      this.waiting.delete(from.id);
    });
  }

  tell(message: ToChild): void {
    if (this.child.connected) this.child.send(message);
  }

  /** With `collect` once rubbish is collected. */
  async sample(collect: boolean): Promise<Sample> {
    const id = this.nextSample++;
    const sampled = new Promise<Sample>((resolve) => this.waiting.set(id, resolve));
    this.tell({ do: 'sample', id, collect });
    return await within(SAMPLE_MS, sampled, `${this.name} does not answer`);
  }
}

export class Fleet {
  readonly members: SoakProcess[] = [];
  readonly proxy = new CuttingProxy();
  private readonly folder = mkdtempSync(join(tmpdir(), 'velomux-soak-'));
  private started = 0;
  private budget: (() => number) | undefined;

  constructor(
    private readonly options: FleetOptions,
    private readonly events: FleetEvents,
  ) {}

  get places(): number {
    return PLACES.length;
  }

  get readers(): SoakProcess[] {
    return this.members.filter(({ role }) => role === 'reader');
  }

  async start(): Promise<void> {
    await Promise.all(PLACES.map((_, place) => this.fill(place)));
  }

  /** Readers open streams from now on, as many as `budget` says each; undefined: no more. */
  load(budget: (() => number) | undefined): void {
    this.budget = budget;
    for (const reader of this.readers) this.loadOne(reader);
  }

  private loadOne(reader: SoakProcess): void {
    const { budget } = this;
    if (budget === undefined) reader.tell({ do: 'rest' });
    else reader.tell({ do: 'open', streams: Math.min(budget(), STREAMS_PER_READER) });
  }

  /** Starts a process at a place, and makes it known. */
  async fill(place: number): Promise<void> {
    const { label, role, options } = PLACES[place]!;
    const { seed, heartbeatMs, width, hangMs, callTimeoutMs } = this.options;
    const number = this.started++;
    const name = `${label} (${number})`;
    const uds = options.udsPath === undefined ? {} : { udsPath: join(this.folder, `${options.udsPath}${number}`) };
    const setup: ChildSetup = {
      name,
      role,
      // What is staged for a reader that never hears of it is gone before the rest is over.
      options: { ...options, ...uds, heartbeatIntervalMs: heartbeatMs, callTimeoutMs, stagedTtlMs: hangMs },
      seed,
      firstStream: number * STREAMS_PER_READER,
      width,
      hangMs,
      lateMs: heartbeatMs,
    };
    const child = fork(CHILD, [JSON.stringify(setup)], { execArgv: ['--expose-gc'] });
    const member = new SoakProcess(name, place, role, child);
    const ready = new Promise<void>((resolve, reject) => {
      void member.exited.then(() => reject(new Error(`${name} did not start`)));
      child.on('message', (message) => {
        const from = message as FromChild;
        if (from.kind === 'ready') member.real = PeerInfo.fromJSON(from.info);
        if (from.kind === 'ready') resolve();
        this.onMessage(member, from);
      });
    });
    await within(READY_MS, ready, `${name} does not start`);
    void member.exited.then(() => {
      if (!member.expected) this.events.broken(member, 'it ended by itself');
    });
    member.info = await this.proxy.add(member.real);
    this.members[place] = member;
    for (const { role: theirs, name: writer, info } of this.members.filter((m) => m !== undefined))
      if (role === 'reader' && theirs === 'writer') member.tell({ do: 'writer', name: writer, info: info.toJSON() });
    if (role === 'reader') this.loadOne(member);
    else
      for (const reader of this.members.filter((m) => m?.role === 'reader'))
        reader.tell({ do: 'writer', name, info: member.info.toJSON() });
  }

  async kill(place: number): Promise<void> {
    const member = this.members[place]!;
    member.expected = true;
    member.child.kill('SIGKILL');
    await member.exited;
    this.proxy.remove(member.real.instanceId);
    for (const reader of this.readers) reader.tell({ do: 'forget', name: member.name });
  }

  /** Closes every node; what does not end by itself is killed, and named. */
  async end(): Promise<string[]> {
    const late: string[] = [];
    await Promise.all(
      this.members.map(async (member) => {
        member.expected = true;
        member.tell({ do: 'end' });
        try {
          await within(END_MS, member.exited, '');
        } catch {
          late.push(member.name);
          member.child.kill('SIGKILL');
        }
      }),
    );
    this.discard();
    return late;
  }

  /** Whatever happened: nothing stays behind. */
  discard(): void {
    for (const member of this.members) {
      if (member === undefined) continue;
      member.expected = true;
      member.child.kill('SIGKILL');
    }
    this.proxy.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  private onMessage(member: SoakProcess, from: FromChild): void {
    if (from.kind === 'opened') this.events.opened(from.streams);
    else if (from.kind === 'ended') this.events.ended(member, from.streams, from.standstills);
    else if (from.kind === 'broken') this.events.broken(member, from.what);
  }
}

export async function within<T>(ms: number, promise: Promise<T>, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} (${ms} ms)`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
