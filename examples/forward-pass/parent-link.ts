// A child's side of the fork: messages from and to the parent, and a life that ends with the parent's. Knows nothing of streams.

import { Mailbox } from './mailbox.js';
import type { ToChild, ToParent } from './messages.js';
import { FINISH_MS, Stopped, stopped, stopSignal } from './stop.js';

export class ParentLink {
  /** This process was told to end: it takes nothing new, finishes what it has, closes its node, and exits with 0. */
  readonly stop = stopSignal();
  readonly #inbox = new Mailbox<ToChild>();

  constructor() {
    process.on('message', (message) => this.#inbox.deliver(message as ToChild));
    // The channel closes when the parent ends, however it ends.
    process.on('disconnect', () => process.exit());
  }

  /** Rejects with `Stopped` after a signal. */
  receive<K extends ToChild['kind']>(kind: K): Promise<Extract<ToChild, { kind: K }>> {
    return Promise.race([this.#inbox.receive(kind), stopped(this.stop)]);
  }

  /** What work comes to. After a signal it has `FINISH_MS` more, and then, or when it fails, this rejects with `Stopped`. */
  async finish<T>(work: Promise<T>): Promise<T> {
    try {
      return await Promise.race([work, stopped(this.stop, FINISH_MS)]);
    } catch (error) {
      throw this.stop.aborted ? this.stop.reason : error;
    }
  }

  send(message: ToParent): void {
    process.send?.(message);
  }

  /** Runs a child's whole life. An error is told to the parent by name, then ends the process. */
  async run(life: (parent: ParentLink) => Promise<void>): Promise<void> {
    try {
      await life(this).catch((error: unknown) => {
        if (!(error instanceof Stopped)) throw error;
      });
      process.disconnect();
    } catch (error) {
      const message = error instanceof Error ? (error.stack ?? error.message) : String(error);
      process.send?.({ kind: 'failed', message } satisfies ToParent, () => process.exit(1));
    }
  }
}
