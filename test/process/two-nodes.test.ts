// The README's program: that it is the example, word for word, and that it does what it says.

import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';

const ROOT = new URL('../../../', import.meta.url);
const PROGRAM = fileURLToPath(new URL('../../examples/two-nodes.js', import.meta.url));
const PROGRAM_TIMEOUT_MS = 20_000;

describe('two-nodes example', () => {
  it('the README shows the file, below its first comment and with the import of a user', async () => {
    const readme = await readFile(new URL('README.md', ROOT), 'utf8');
    const source = await readFile(new URL('examples/two-nodes.ts', ROOT), 'utf8');
    const program = source.slice(source.indexOf('import ')).replace("'../lib/index.js'", "'velomux'");
    expect(readme).to.include(`\`\`\`ts\n${program}\`\`\``);
  });

  it('prints what the producer sent, and ends by itself', async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM], { timeout: PROGRAM_TIMEOUT_MS });
    expect(stdout).to.equal('many streams, one write');
  });
});
