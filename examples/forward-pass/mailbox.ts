// Messages as a sequence to await, so that both ends of a fork read top to bottom. Never drops or reorders one.

interface Message {
  kind: string;
}

/** Holds what arrived until someone asks for it. One reader at a time. */
export class Mailbox<M extends Message> {
  readonly #held: M[] = [];
  #waiting: ((message: M) => void) | undefined;

  deliver(message: M): void {
    const waiting = this.#waiting;
    if (waiting === undefined) {
      this.#held.push(message);
      return;
    }
    this.#waiting = undefined;
    waiting(message);
  }

  /** The next message, which must be of `kind`; anything else is an error, because the order is fixed. */
  async receive<K extends M['kind']>(kind: K): Promise<Extract<M, { kind: K }>> {
    const message = this.#held.shift() ?? (await new Promise<M>((resolve) => (this.#waiting = resolve)));
    if (message.kind !== kind) throw new Error(`expected the message "${kind}", got "${message.kind}"`);
    return message as Extract<M, { kind: K }>;
  }
}
