// A node in a process of its own that closes its gate and then computes, without a turn of its event loop, until it is killed.

import { unaryHandler, Velo } from '../../lib/index.js';

export type DrainingChildReport = { kind: 'ready'; peer: unknown } | { kind: 'blocked' } | { kind: 'awake' };

/** Far beyond the test that kills this process. */
const BLOCK_MS = 20_000;

const report = (message: DrainingChildReport, then = () => {}) => process.send?.(message, then);

const velo = await Velo.create();
velo.registerHandler(
  'ping',
  unaryHandler((payload) => payload),
);
process.on('message', () => {
  velo.beginDrain();
  report({ kind: 'blocked' }, () => {
    const until = performance.now() + BLOCK_MS;
    while (performance.now() < until);
    report({ kind: 'awake' });
  });
});
report({ kind: 'ready', peer: JSON.parse(JSON.stringify(velo.peerInfo)) });
