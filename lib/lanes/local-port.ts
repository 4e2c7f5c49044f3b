// A pair of message ports for lanes that share a thread: what one posts the other hears in a microtask, in the turn of the event loop
// that posted it. It must never copy: memory that is posted belongs to whoever gets it, as with real ports.

type Listener = (message?: unknown) => void;

export class LocalPort {
  private other!: LocalPort;
  private readonly queue: unknown[] = [];
  private readonly listeners: { message?: Listener; close?: Listener } = {};
  private closed = false;

  static pair(): { port1: LocalPort; port2: LocalPort } {
    const port1 = new LocalPort();
    const port2 = new LocalPort();
    port1.other = port2;
    port2.other = port1;
    return { port1, port2 };
  }

  postMessage(message: unknown): void {
    if (this.closed) return;
    const { other } = this;
    other.queue.push(message);
    queueMicrotask(() => other.deliver());
  }

  on(event: 'message' | 'close', listener: Listener): void {
    this.listeners[event] = listener;
    if (event === 'message' && this.queue.length > 0) queueMicrotask(() => this.deliver());
  }

  /** The oldest message that was not heard yet. */
  take(): { message: unknown } | undefined {
    return this.queue.length === 0 ? undefined : { message: this.queue.shift() };
  }

  /** Both ends close; what was posted before is still heard. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    queueMicrotask(() => {
      this.listeners.close?.();
      this.other.close();
    });
  }

  unref(): void {}

  private deliver(): void {
    const { message } = this.listeners;
    if (message === undefined) return;
    for (let next = this.take(); next !== undefined; next = this.take()) message(next.message);
  }
}
