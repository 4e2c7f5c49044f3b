// One forked process, seen from the parent: messages, its standard error, its failure. Ends it when told to.

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { Mailbox } from './mailbox.js';
import type { ToChild, ToParent } from './messages.js';

/** How much of a child's standard error is kept: the end of it. */
const STDERR_KEPT = 16_384;

export class Child {
  readonly name: string;
  /** Rejects when the child fails or ends early. Never resolves. */
  readonly failure: Promise<never>;
  stderr = '';
  readonly #process: ChildProcess;
  readonly #inbox = new Mailbox<ToParent>();
  #stopping = false;
  #terminated = false;

  constructor(name: string, file: URL, onProgress: (tokens: number) => void = () => {}) {
    this.name = name;
    this.#process = fork(file, { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
    this.#process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr = (this.stderr + text).slice(-STDERR_KEPT);
    });
    this.failure = new Promise((_, reject) => {
      const fail = (what: string) => {
        if (!this.#terminated) reject(new Error(`${name} ${what}`));
      };
      this.#process.on('error', (error) => fail(`could not be run: ${error.message}`));
      this.#process.on('message', (received) => {
        const message = received as ToParent;
        if (message.kind === 'failed') fail(`failed: ${message.message}`);
        else if (message.kind === 'progress') onProgress(message.tokens);
        else this.#inbox.deliver(message);
      });
      // 'close' comes after the last of the standard error, 'exit' may not.
      this.#process.on('close', (code, signal) => {
        if (this.#stopping && code === 0) return;
        fail(`ended early (${signal ?? `exit code ${code}`})\n${this.stderr}`);
      });
    });
    this.failure.catch(() => {});
  }

  send(message: ToChild): void {
    // A child that is gone is reported by its 'close', with its standard error; not by the message that found out.
    this.#process.send(message, () => {});
  }

  receive<K extends ToParent['kind']>(kind: K): Promise<Extract<ToParent, { kind: K }>> {
    return this.#inbox.receive(kind);
  }

  /** Asks the child to end; resolves when it has. */
  async stop(): Promise<void> {
    this.#stopping = true;
    const closed = once(this.#process, 'close');
    this.send({ kind: 'stop' });
    await closed;
  }

  /** Sends SIGTERM: what the child has begun it finishes. Resolves with its exit code when it has ended. */
  async terminate(): Promise<number | null> {
    this.#terminated = true;
    const child = this.#process;
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGTERM');
      await once(child, 'close');
    }
    return child.exitCode;
  }

  kill(): void {
    this.#process.kill('SIGKILL');
  }
}
