// How a process of the example is told to end: SIGTERM or SIGINT. What it has begun it may finish, for a while.

/** How long streams that have begun may go on after the signal. */
export const FINISH_MS = 2_000;

/** Why work ended that was told to stop. No failure. */
export class Stopped extends Error {
  override readonly name = 'Stopped';

  constructor() {
    super('stopped by a signal');
  }
}

/** Aborts on the first SIGTERM or SIGINT. A second one ends the process at once, as signals do. */
export function stopSignal(): AbortSignal {
  const stop = new AbortController();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => stop.abort(new Stopped()));
  return stop.signal;
}

/** Rejects when `stop` aborts, `afterMs` later. */
export function stopped(stop: AbortSignal, afterMs = 0): Promise<never> {
  const promise = new Promise<never>((_, reject) => {
    const end = () => setTimeout(() => reject(stop.reason), afterMs).unref();
    if (stop.aborted) end();
    else stop.addEventListener('abort', end, { once: true });
  });
  promise.catch(() => {});
  return promise;
}
