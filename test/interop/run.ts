// `npm run test:interop`: builds the Rust peer and runs the interop tests against it. Exit code 0 with one line that says so when
// this machine cannot build the peer; the exit code of the tests otherwise. With `--build` it only builds.

import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildPeer, Skipped } from './build.js';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

function runMocha(args: readonly string[]): Promise<number> {
  const mocha = createRequire(import.meta.url).resolve('mocha/bin/mocha.js');
  const config = join(ROOT, '.mocharc.interop.json');
  const child = spawn(process.execPath, [mocha, '--config', config, ...args], { cwd: ROOT, stdio: 'inherit' });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code) => resolve(code ?? 1));
  });
}

try {
  await buildPeer();
  const args = process.argv.slice(2);
  if (args[0] !== '--build') process.exitCode = await runMocha(args);
} catch (error) {
  if (error instanceof Skipped) {
    process.stdout.write(`interop tests skipped: ${error.message}\n`);
  } else {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  }
}
