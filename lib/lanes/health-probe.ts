// Asks whether anybody listens at an endpoint: connects and closes at once, without a byte. It must never read or write.

import { connect } from 'node:net';
import type { Endpoint } from './endpoint.js';

/** How long an answer may take. */
export const HEALTH_TIMEOUT_MS = 5_000;

/** Resolves with whether somebody accepted within `timeoutMs`; never rejects. Does not keep the process alive. */
export function probeEndpoint(to: Endpoint, timeoutMs = HEALTH_TIMEOUT_MS): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ ...to });
    const done = (alive: boolean) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(alive);
    };
    const timer = setTimeout(() => done(false), timeoutMs);
    timer.unref();
    socket.unref();
    socket.once('connect', () => done(true));
    // Not once: a socket that is being destroyed may report again.
    socket.on('error', () => done(false));
  });
}
