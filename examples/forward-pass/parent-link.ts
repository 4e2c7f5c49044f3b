// A child's side of the fork: messages from and to the parent, and a life that ends with the parent's. Knows nothing of streams.

import { Mailbox } from './mailbox.js';
import type { ToChild, ToParent } from './messages.js';

export class ParentLink {
  readonly #inbox = new Mailbox<ToChild>();

  constructor() {
    process.on('message', (message) => this.#inbox.deliver(message as ToChild));
    // The channel closes when the parent ends, however it ends.
    process.on('disconnect', () => process.exit());
  }

  receive<K extends ToChild['kind']>(kind: K): Promise<Extract<ToChild, { kind: K }>> {
    return this.#inbox.receive(kind);
  }

  send(message: ToParent): void {
    process.send?.(message);
  }

  /** Runs a child's whole life. An error is told to the parent by name, then ends the process. */
  async run(life: (parent: ParentLink) => Promise<void>): Promise<void> {
    try {
      await life(this);
      process.disconnect();
    } catch (error) {
      const message = error instanceof Error ? (error.stack ?? error.message) : String(error);
      process.send?.({ kind: 'failed', message } satisfies ToParent, () => process.exit(1));
    }
  }
}
