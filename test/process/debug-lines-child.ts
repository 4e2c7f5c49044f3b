// A node with streams that open, end, starve their watchdog and are refused, on lane threads; then it says "done" and goes.

import { setTimeout as pause } from 'node:timers/promises';
import { Velo } from '../../lib/index.js';
import { ITEM_PREFIX } from '../../lib/wire/frame.js';
import { dataRecord, openRecord, WirePeer } from '../support/wire-peer.js';

const RECORDS = 500;

const [a, b] = await Promise.all([Velo.create({ host: 'piscina' }), Velo.create({ host: 'piscina' })]);
a.registerPeer(b.peerInfo);
b.registerPeer(a.peerInfo);
const anchor = a.createAnchor<number>();
const sender = await b.attachAnchor<number>(anchor.handle);
const reading = (async () => {
  let count = 0;
  for await (const _item of anchor) count += 1;
  return count;
})();
for (let i = 0; i < RECORDS; i += 1) await sender.send(i);
await sender.finalize();
if ((await reading) !== RECORDS) throw new Error('records are missing');

const peer = (await WirePeer.listen()).faces(a);
await peer.hello();
const silent = a.createAnchor<number>({ heartbeatIntervalMs: 20 });
await peer.open(silent.handle, 0x100, { epoch: 1n });
await peer.batch(0, (batch) => openRecord(batch, 0x900, 1n, 1n), { epoch: 1n });
await silent[Symbol.asyncIterator]()
  .next()
  .catch(() => {});
const cut = a.createAnchor<number>();
await peer.open(cut.handle, 0x200, { epoch: 1n });
await peer.batch(0, (batch) => dataRecord(batch, 0x200, 1, Uint8Array.of(...ITEM_PREFIX, 1)), { epoch: 2n });
await cut[Symbol.asyncIterator]()
  .next()
  .catch(() => {});
const gone = a.createAnchor();
gone.controller.cancel();
await peer.attach(gone.handle);
await peer.close();
await Promise.all([a.close(), b.close()]);
// Lines of threads come through this one.
await pause(100);
process.stdout.write('done\n');
process.exit(0);
