// Runs one lane on a worker thread: the whole life of a thread entry, so that the entry file itself is a few lines.

import { VeloError } from '../errors.js';
import { Lane } from './lane.js';
import type { LaneBoot, LaneOrder, LaneReport } from './lane-boot.js';

/** Exit code of a thread whose lane failed. */
const EXIT_FATAL = 70;

/**
 * Starts a lane. Resolves when the lane runs and its node has said "go" (so that no pool gives this thread a second lane), or
 * when it could not start. The lane lives on after that, on its sockets, its timers and its control port.
 */
export function runLane(boot: LaneBoot): Promise<void> {
  const { control } = boot;
  const report = (message: LaneReport) => control.postMessage(message);
  const lane = new Lane(boot, false, (error) => {
    report({ type: 'fatal', message: error.stack ?? error.message });
    // The report must leave before the thread does.
    setImmediate(() => process.exit(EXIT_FATAL));
  });
  let closing = false;
  process.once('exit', () => lane.abandon());
  return new Promise<void>((resolve) => {
    control.on('message', (order: LaneOrder) => {
      if (order.type === 'go') resolve();
      else if (order.type === 'mesh') lane.joinMesh(order.mesh);
      else if (order.type === 'alone') lane.leftAlone();
      else {
        const closed = lane.close(order.timeoutMs);
        if (closing) return;
        closing = true;
        void closed.then((ends) => {
          report({ type: 'closed', ends });
          control.close();
        });
      }
    });
    lane.start().then(
      (listening) => report({ type: 'listening', ...listening }),
      (error: unknown) => {
        const code = VeloError.is(error) ? error.code : 'ERR_INTERNAL';
        report({ type: 'failed', code, message: error instanceof Error ? error.message : String(error) });
        resolve();
      },
    );
  });
}
