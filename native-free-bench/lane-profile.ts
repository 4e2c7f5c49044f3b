// Owns the worker file that a profiled run gives its node: the lane under the CPU profiler, since a lane does not inherit --cpu-prof.
// Must never be loaded in a run whose figures count.

import { writeFileSync } from 'node:fs';
import { Session } from 'node:inspector';
import { BroadcastChannel, isMainThread, threadId } from 'node:worker_threads';

import { CHANNEL, WRITE, WRITTEN } from './profile-env.js';

export { lane } from '../workers/lane.js';

function startProfile(): void {
  const session = new Session();
  const channel = new BroadcastChannel(CHANNEL);
  session.connect();
  session.post('Profiler.enable', () => session.post('Profiler.start'));
  channel.onmessage = (event: { data?: unknown }) => {
    if (event.data !== WRITE) return;
    session.post('Profiler.stop', (error, result) => {
      if (error === null)
        writeFileSync(`CPU.lane.${process.pid}.${threadId}.cpuprofile`, JSON.stringify(result.profile));
      channel.postMessage(WRITTEN);
    });
  };
}

if (!isMainThread) startProfile();
