// Owns what a profiled child and its lanes agree on, and the call that has the lanes' profiles written. Must never profile anything itself.

import { BroadcastChannel } from 'node:worker_threads';

/** Set in the environment of a profiled child. */
export const PROFILE_ENV = 'VELOMUX_BENCH_PROFILE';
export const isProfiled = (): boolean => process.env[PROFILE_ENV] !== undefined;

export const CHANNEL = 'velomux-bench-profile';
export const WRITE = 'write';
export const WRITTEN = 'written';
const WRITE_LIMIT_MS = 3000;

/** Resolves when `lanes` lanes have written their profiles, or after a few seconds. */
export function writeLaneProfiles(lanes: number): Promise<void> {
  const channel = new BroadcastChannel(CHANNEL);
  return new Promise<void>((resolve) => {
    let left = lanes;
    const timer = setTimeout(resolve, WRITE_LIMIT_MS);
    channel.onmessage = (event: { data?: unknown }) => {
      if (event.data !== WRITTEN || --left > 0) return;
      clearTimeout(timer);
      resolve();
    };
    channel.postMessage(WRITE);
  }).finally(() => channel.close());
}
