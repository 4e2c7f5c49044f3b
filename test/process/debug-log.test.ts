// What the debug log writes, and that it writes nothing unless it is asked to.

import { spawn } from 'node:child_process';
import { expect } from 'chai';

const MODULE = new URL('../../lib/debug-log.js', import.meta.url).href;
const SCRIPT = `
  const { DebugLog } = await import(${JSON.stringify(MODULE)});
  const [log, other] = [new DebugLog(), new DebugLog()];
  let made = 0;
  for (let i = 0; i < 100; i += 1) log.line(() => 'line ' + i + ' %s ' + ++made);
  other.line(() => 'another kind');
  await new Promise((resolve) => setTimeout(resolve, 1_100));
  log.line(() => 'later');
  console.log(made);
`;

async function run(debug: string): Promise<{ out: string; lines: string[] }> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', SCRIPT], {
    env: { ...process.env, NODE_DEBUG: debug },
  });
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk) => {
    out += chunk;
  });
  child.stderr.on('data', (chunk) => {
    err += chunk;
  });
  await new Promise((resolve) => child.once('close', resolve));
  return { out: out.trim(), lines: err.split('\n').filter((line) => line.includes('VELOMUX')) };
}

describe('the debug log', () => {
  it('writes one line a second of each kind, and how many it left out', async () => {
    const { out, lines } = await run('velomux');
    expect(lines).to.have.length(3);
    expect(lines[0]).to.match(/line 0 %s 1$/);
    expect(lines[1]).to.match(/another kind$/);
    expect(lines[2]).to.match(/later \(and 99 more since the last line\)$/);
    expect(out, 'texts that nobody reads are not made').to.equal('1');
  });

  it('is silent unless NODE_DEBUG names it', async () => {
    const { out, lines } = await run('');
    expect(lines).to.deep.equal([]);
    expect(out).to.equal('0');
  });
});
