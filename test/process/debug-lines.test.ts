// The lines of whole nodes under NODE_DEBUG=velomux: what happens to connections, streams, epochs and refusals, from the lanes' threads
// too; never one per record; and not a byte without the variable.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';

const CHILD = fileURLToPath(new URL('./debug-lines-child.js', import.meta.url));

async function run(debug: string): Promise<{ out: string; lines: string[] }> {
  const child = spawn(process.execPath, [CHILD], { env: { ...process.env, NODE_DEBUG: debug } });
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk) => {
    out += chunk;
  });
  child.stderr.on('data', (chunk) => {
    err += chunk;
  });
  await new Promise((resolve) => child.once('close', resolve));
  expect(out.trim(), err).to.equal('done');
  return { out, lines: err.split('\n').filter((line) => line.includes('VELOMUX')) };
}

describe('debug lines of nodes', () => {
  it('tell of connections, streams, silence, epochs and refusals, once for many of a kind', async () => {
    const { lines } = await run('velomux');
    for (const told of [
      /connected to 127\.0\.0\.1:\d+/,
      /127\.0\.0\.1:\d+ connected/,
      /opened slot \d+ to [-0-9a-f]{36} lane 0/,
      /slot \d+ of [-0-9a-f]{36} lane 0 opened/,
      /slot \d+ (to|of) [-0-9a-f]{36} lane 0 closed: /,
      /the sender of slot 256 of [-0-9a-f]{36} lane 0 is silent/,
      /refused slot 2304 of [-0-9a-f]{36} lane 0: unknownSlot/,
      /an epoch of [-0-9a-f]{36} lane 0 ended with \d+ streams/,
      /refused an attach of [-0-9a-f]{36}: .*not found/,
    ])
      expect(
        lines.some((line) => told.test(line)),
        `${told} in\n${lines.join('\n')}`,
      ).to.equal(true);
    // Five hundred records went by.
    expect(lines.length).to.be.lessThan(60);
  });

  it('are not there without the variable', async () => {
    expect((await run('')).lines).to.deep.equal([]);
  });
});
