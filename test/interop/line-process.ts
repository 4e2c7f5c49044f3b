// A process that is asked by JSON lines on stdin and answers on stdout, each answer under the number of its question. Owns the
// process and its questions; it must never signal a process that it did not start, and never leave a question of a dead one open.

import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { parseJson, stringifyJson } from '../../lib/index.js';

const OUTPUT_TAIL = 10_000;

/** The operation failed over there; the message is the process's own. */
export class OperationError extends Error {}

interface Pending {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

export class LineProcess {
  readonly exited: Promise<void>;
  readonly child: ChildProcess;
  private readonly pending = new Map<number, Pending>();
  private nextId = 1;
  private stderr = '';
  private dead: Error | undefined;

  constructor(
    private readonly label: string,
    program: string,
    args: readonly string[],
    options: {
      readonly env?: NodeJS.ProcessEnv;
      /** Hears of what the process says unasked. */
      readonly onEvent?: (name: string) => void;
    } = {},
  ) {
    const { env = process.env, onEvent } = options;
    this.child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'], env });
    createInterface({ input: this.child.stdout! }).on('line', (line) => this.onLine(line, onEvent));
    this.child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.stderr = (this.stderr + text).slice(-OUTPUT_TAIL);
    });
    // A process that died says so where its operations are awaited.
    this.child.stdin!.on('error', () => {});
    this.exited = new Promise((resolve) => {
      this.child.on('error', (error) => {
        this.die(error.message);
        resolve();
      });
      this.child.on('close', (code, signal) => {
        this.die(`it ended with ${signal ?? code}\n${this.stderr}`);
        resolve();
      });
    });
  }

  /** Sends an operation and resolves with its answer. */
  async ask<T = unknown>(op: string, args: unknown): Promise<T> {
    if (this.dead !== undefined) throw this.dead;
    const id = this.nextId++;
    const answer = new Promise<unknown>((resolve, reject) => this.pending.set(id, { resolve, reject }));
    this.child.stdin!.write(`${stringifyJson({ id, op, args })}\n`);
    return (await answer) as T;
  }

  private onLine(line: string, onEvent: ((name: string) => void) | undefined): void {
    const message = parseJson(line) as { id?: number; ok?: unknown; error?: string; event?: string };
    if (message.event !== undefined) {
      onEvent?.(message.event);
      return;
    }
    const pending = this.pending.get(message.id!);
    this.pending.delete(message.id!);
    if (message.error === undefined) pending?.resolve(message.ok);
    else pending?.reject(new OperationError(message.error));
  }

  private die(reason: string): void {
    this.dead ??= new Error(`${this.label} is gone: ${reason}`);
    for (const { reject } of this.pending.values()) reject(this.dead);
    this.pending.clear();
  }
}
