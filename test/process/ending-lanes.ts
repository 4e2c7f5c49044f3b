// Ends the thread of a lane in a pool at every moment of its loading, from its start until it has loaded the file named as argument; says
// so at the end. In a process of its own, because what must not happen is that the whole process aborts.

import { setTimeout as pause } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import type { LaneBoot } from '../../lib/lanes/lane-boot.js';
import { piscinaThreads } from '../../lib/lanes/lane-threads.js';

const FIRST_MS = 10;
const STEP_MS = 4;
/** So many threads in a row that had loaded their file: no later moment is one of its loading. */
const LOADED_THREADS = 5;
/** No thread takes this long. */
const LAST_MS = 2_000;

/** Enough for a thread to be given it. */
function emptyBoot(): LaneBoot {
  const port = () => new MessageChannel().port1;
  return { control: port(), parcelsIn: port(), parcelsOut: port(), mesh: [] } as unknown as LaneBoot;
}

const makeThread = await piscinaThreads(pathToFileURL(process.argv[2]!));
let early = 0;
let inARow = 0;
for (let moment = FIRST_MS; inARow < LOADED_THREADS && moment < LAST_MS; moment += STEP_MS) {
  const thread = makeThread(() => {});
  let loaded = false;
  const run = thread.run(emptyBoot()).then(
    () => {
      loaded = true;
    },
    () => {},
  );
  await pause(moment);
  inARow = loaded ? inARow + 1 : 0;
  if (!loaded) early += 1;
  await thread.stop();
  await run;
}
console.log(early > 0 && inARow === LOADED_THREADS ? 'ended some that were loading' : `${early} ended too early`);
