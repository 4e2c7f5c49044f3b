// `npm run interop:record`: plays every session against a real velo node and writes what was said to test/vectors/captures. The files
// are replayed by test/unit/wire/captures.test.ts, without Rust.

import { mkdir, writeFile } from 'node:fs/promises';
import { Velo } from '../../lib/index.js';
import { CAPTURES, captureFile, formatCapture } from '../support/captures.js';
import { buildPeer, veloVersion } from './build.js';
import { bothIdle, OURS, RUST } from './kit.js';
import { RecordingProxy } from './recording-proxy.js';
import { RustPeer } from './rust-peer.js';
import { SESSIONS, type Session } from './sessions.js';

const TOTAL_BYTES = 200 * 1024;

async function record(session: Session): Promise<string> {
  const node = await Velo.create(session.node);
  const rust = await RustPeer.start(session.rust);
  const proxy = await RecordingProxy.between([RUST, rust.info], [OURS, node.peerInfo]);
  try {
    node.registerPeer(proxy.infoOf(RUST));
    await rust.register(proxy.infoOf(OURS));
    const { calls = [], streams = [], frames, generated } = await session.play({ node, rust, proxy });
    await bothIdle({ node, rust });
    const header = {
      velo: await veloVersion(),
      about: session.about,
      sides: { [RUST]: 'a node of the crate velo', [OURS]: 'a node of this package' },
      calls,
      streams,
    };
    return formatCapture({ name: session.name, header, frames: frames ?? proxy.frames }, generated);
  } finally {
    await proxy.close();
    await rust.kill();
    await node.close();
  }
}

await buildPeer();
await mkdir(CAPTURES, { recursive: true });
let total = 0;
for (const session of SESSIONS) {
  const text = await record(session);
  total += text.length;
  await writeFile(captureFile(session.name), text);
  process.stdout.write(`${session.name}: ${text.length} bytes\n`);
}
if (total > TOTAL_BYTES) throw new Error(`${total} bytes of captures, more than ${TOTAL_BYTES}`);
