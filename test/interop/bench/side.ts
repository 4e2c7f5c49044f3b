// One process of a benchmark run, seen from outside: started, asked by JSON lines, noticed when it dies, ended.
// Must never signal a process that it did not start.

import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { PeerInfoJson } from '../../../lib/index.js';
import { PROFILE_ENV } from '../../../native-free-bench/profile-env.js';

const NODE_SIDE = fileURLToPath(new URL('./node-side.js', import.meta.url));
const OUTPUT_TAIL = 2_000;
const EXIT_GRACE_MS = 3_000;

/** `velo` is the real one; the others are this project's, by the host of its lane. */
export type SideKind = 'velo' | 'velomux' | 'inline';

/** A handle's halves as decimal text: JSON numbers do not hold them. */
export interface HandleText {
  readonly hi: string;
  readonly lo: string;
}

/** What a sink saw of one phase. Times are CLOCK_MONOTONIC. */
export interface Receipt {
  readonly total: number;
  readonly wrong: number;
  readonly firstNs: number;
  readonly lastNs: number;
  readonly p50Us: number | null;
  readonly p99Us: number | null;
}

interface Pending {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

export class Side {
  private readonly child: ChildProcess;
  private readonly pending = new Map<number, Pending>();
  private readonly exited: Promise<void>;
  private nextId = 1;
  private output = '';
  private dead: Error | undefined;

  constructor(
    readonly kind: SideKind,
    /** The velo side's program. */
    rustProgram: string,
    profiled: boolean,
  ) {
    const env = { ...process.env, ...(profiled ? { [PROFILE_ENV]: '1' } : {}) };
    const profiling = profiled ? ['--cpu-prof', '--cpu-prof-dir=.'] : [];
    this.child =
      kind === 'velo'
        ? spawn(rustProgram, ['bench'], { stdio: ['pipe', 'pipe', 'pipe'] })
        : spawn(process.execPath, [...profiling, NODE_SIDE], { stdio: ['pipe', 'pipe', 'pipe'], env });
    this.child.stderr!.on('data', (chunk: Buffer) => {
      this.output = (this.output + chunk.toString()).slice(-OUTPUT_TAIL);
    });
    createInterface({ input: this.child.stdout! }).on('line', (line) => this.receive(line));
    this.child.stdin!.on('error', () => {});
    this.child.on('error', (error) => this.die(error));
    this.exited = new Promise((resolve) => {
      this.child.on('exit', (code, signal) => {
        this.die(new Error(`${kind} ended (${signal ?? code}) ${this.output}`));
        resolve();
      });
    });
  }

  start(credit: number): Promise<PeerInfoJson> {
    return this.ask<PeerInfoJson>('start', { credit, host: this.kind === 'inline' ? 'inline' : 'piscina' });
  }

  ask<T = unknown>(op: string, args: unknown = {}): Promise<T> {
    if (this.dead !== undefined) return Promise.reject(this.dead);
    return new Promise<T>((resolve, reject) => {
      const id = this.nextId++;
      this.pending.set(id, { resolve: (value) => resolve(value as T), reject });
      this.child.stdin!.write(`${JSON.stringify({ id, op, args })}\n`);
    });
  }

  /** Ends the process, if it has not ended by itself. */
  async end(): Promise<void> {
    this.child.stdin!.end();
    const timer = setTimeout(() => this.child.kill('SIGKILL'), EXIT_GRACE_MS);
    await this.exited;
    clearTimeout(timer);
  }

  private receive(line: string): void {
    const { id, ok, error } = JSON.parse(line) as { id: number; ok?: unknown; error?: string };
    const call = this.pending.get(id);
    this.pending.delete(id);
    if (error === undefined) call?.resolve(ok);
    else call?.reject(new Error(`${this.kind}: ${error}`));
  }

  private die(error: Error): void {
    this.dead ??= error;
    for (const call of this.pending.values()) call.reject(this.dead);
    this.pending.clear();
  }
}
