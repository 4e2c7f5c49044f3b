// A short soak in the ordinary suite: the same program that `npm run soak` runs for hours, small enough for every machine.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import type { SoakReport } from '../soak/soak.js';

const PROGRAM = fileURLToPath(new URL('../soak/run.js', import.meta.url));
const SECONDS = 10;
const SEED = 4;
/** Streams that hang are waited for, and nodes that do not close. */
const TIMEOUT_MS = 150_000;

/** Runs the soak; what it printed to either side. */
function soak(...args: string[]): Promise<{ code: number | null; out: string; progress: string }> {
  const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  const text = { out: '', progress: '' };
  child.stdout.on('data', (chunk) => {
    text.out += String(chunk);
  });
  child.stderr.on('data', (chunk) => {
    text.progress += String(chunk);
  });
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, ...text })));
}

describe('a short soak of real processes', () => {
  it('every stream ends once, in order and whole, or with a reason; nothing is left', async function () {
    this.timeout(TIMEOUT_MS);
    const { code, out, progress } = await soak('--quick', '--json', '--seconds', `${SECONDS}`, '--seed', `${SEED}`);
    expect(progress).to.include(`seed ${SEED}\n`);
    const report = JSON.parse(out) as SoakReport;
    expect(report.failures).to.deep.equal([]);
    expect(code).to.equal(0);
    expect(report.ended.finalized).to.be.greaterThan(20);
    const ended = Object.values(report.ended).reduce((sum, count) => sum + count, 0);
    expect(report.streams).to.be.at.least(ended);
  });

  it('what it is told wrongly it refuses, with its usage', async () => {
    const { code, out, progress } = await soak('--seconds', 'many');
    expect({ code, out }).to.deep.equal({ code: 2, out: '' });
    expect(progress).to.include('--seconds many').and.to.include('Usage:');
  });
});
