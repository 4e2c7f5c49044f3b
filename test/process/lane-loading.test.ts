// Threads that are ended before they have loaded their lane. Node 20 and 22 abort the process when a thread is ended while it links modules for
// `require`, which is how piscina loads files.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';

const PROGRAM = fileURLToPath(new URL('./ending-lanes.js', import.meta.url));
/** Linking them takes long enough to be met. */
const NAMES = Array.from({ length: 60_000 }, (_, index) => `name${index}`);

describe('a lane thread of a pool that ends while it loads', () => {
  let folder: string;
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'velomux-loading-'));
  });
  after(() => rmSync(folder, { recursive: true }));

  it('the process goes on, at whatever moment that is', function () {
    this.timeout(60_000);
    const laneFile = join(folder, 'lane.mjs');
    writeFileSync(join(folder, 'names.mjs'), NAMES.map((name) => `export const ${name} = 0;\n`).join(''));
    writeFileSync(laneFile, `import { ${NAMES} } from './names.mjs';\nexport async function lane() {}\n`);
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, laneFile], {
      encoding: 'utf8',
      timeout: 50_000,
    });
    expect({ status, signal, stdout }, stderr).to.deep.equal({
      status: 0,
      signal: null,
      stdout: 'ended some that were loading\n',
    });
  });
});
