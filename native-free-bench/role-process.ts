// Owns one forked child: starts it, asks it one thing after another, notices when it dies, and ends it.
// Must never signal a process that it did not start.

import { type ChildProcess, fork } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Command, Request, Response, Role } from './child.js';
import { PROFILE_ENV } from './profile-env.js';
import { isOurs } from './rows/index.js';

const CHILD_FILE = fileURLToPath(new URL('./child.js', import.meta.url));
const OUTPUT_TAIL = 2000;
const EXIT_GRACE_MS = 5000;

/** The rivals' codec is faster without its native addon on small tokens; velomux has to see to that by itself. */
const RIVAL_ENV = { MSGPACKR_NATIVE_ACCELERATION_DISABLED: 'true' };

interface Pending {
  readonly command: Command['cmd'];
  resolve(value: unknown): void;
  reject(error: Error): void;
}

export class RoleProcess {
  private readonly child: ChildProcess;
  private readonly pending = new Map<number, Pending>();
  private readonly exited: Promise<void>;
  private nextId = 1;
  private output = '';
  private dead: Error | undefined;

  constructor(
    readonly role: Role,
    rowName: string,
    private readonly profiled: boolean,
  ) {
    this.child = fork(CHILD_FILE, [], {
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      serialization: 'advanced',
      execArgv: profiled ? ['--cpu-prof', '--cpu-prof-dir=.'] : [],
      env: {
        ...process.env,
        ...(isOurs(rowName) ? {} : RIVAL_ENV),
        ...(profiled ? { [PROFILE_ENV]: '1' } : {}),
      },
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        this.output = (this.output + chunk.toString()).slice(-OUTPUT_TAIL);
      });
    }
    this.child.on('message', (message: Response) => this.receive(message));
    this.child.on('error', (error) => this.die(error));
    this.exited = new Promise((resolve) => {
      this.child.on('exit', (code, signal) => {
        this.die(new Error(`${role} process ended (${signal ?? code}) ${this.output}`));
        resolve();
      });
    });
  }

  ask<T = unknown>(command: Command): Promise<T> {
    if (this.dead !== undefined) return Promise.reject(this.dead);
    return new Promise<T>((resolve, reject) => {
      const id = this.nextId++;
      this.pending.set(id, { command: command.cmd, resolve: (value) => resolve(value as T), reject });
      this.child.send({ ...command, id } satisfies Request);
    });
  }

  /** What it was asked and did not answer yet, and what it printed: for the report of a run that does not end. */
  status(): string {
    const asked = [...this.pending.values()].map((call) => call.command).join(', ');
    return `${this.role}: ${asked === '' ? 'idle' : `busy with ${asked}`}${this.output === '' ? '' : `, printed ${this.output}`}`;
  }

  /** Ends the child if it has not ended by itself; a profiled one gets time to write its profile. */
  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    if (this.profiled) await within(this.exited, EXIT_GRACE_MS);
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill('SIGKILL');
    await this.exited;
  }

  /** The profiles this child and its workers wrote; their names carry the process id. */
  profiles(): string[] {
    if (!this.profiled) return [];
    return readdirSync('.').filter((name) => name.endsWith('.cpuprofile') && name.includes(`.${this.child.pid}.`));
  }

  private receive(message: Response): void {
    if ('up' in message) return;
    if ('fatal' in message) {
      this.die(new Error(`${this.role}: ${message.fatal}`));
      return;
    }
    const call = this.pending.get(message.id);
    if (call === undefined) return;
    this.pending.delete(message.id);
    if (message.error === undefined) call.resolve(message.result);
    else call.reject(new Error(`${this.role}: ${message.error}`));
  }

  private die(error: Error): void {
    this.dead ??= error;
    for (const call of this.pending.values()) call.reject(this.dead);
    this.pending.clear();
  }
}

/** Resolves when `promise` does or the time is over, whichever comes first. */
async function within(promise: Promise<void>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([
    promise,
    new Promise<void>((resolve) => {
      timer = setTimeout(resolve, ms);
    }),
  ]);
  clearTimeout(timer);
}
