// A process that changes a discovery file, as its first argument says: `churn` enters fifty nodes and takes every second one out
// again, `die` ends in the middle of a change, `watch` watches and has nothing else to do. It prints the instances it left there.

import { randomBytes } from 'node:crypto';
import { FileLock } from '../../lib/control/file-lock.js';
import { FileDiscovery, PeerInfo } from '../../lib/index.js';
import { generateInstanceId } from '../../lib/wire/worker-id.js';

const NODES = 50;
const [, , mode = '', path = ''] = process.argv;

function anyPeer(): PeerInfo {
  return new PeerInfo(
    generateInstanceId((length) => randomBytes(length)),
    Uint8Array.of(0x80),
  );
}

async function churn(discovery: FileDiscovery): Promise<string[]> {
  const left: string[] = [];
  for (let i = 0; i < NODES; i += 1) {
    const info = anyPeer();
    const registration = await discovery.register(info);
    if (i % 2 === 0) left.push(info.instanceId);
    else await registration.unregister();
  }
  return left;
}

if (mode === 'churn') process.stdout.write(JSON.stringify(await churn(new FileDiscovery(path))));
else if (mode === 'die') {
  await FileLock.take(`${path}.lock`);
  process.kill(process.pid, 'SIGKILL');
} else if (mode === 'watch') new FileDiscovery(path).watch(() => {});
