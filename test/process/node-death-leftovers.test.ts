// What the death of a lane may leave behind: nothing. In a process of its own, where the collector comes when it is called, and which
// must end by itself once its nodes are closed.

import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import type { LaneDeathReport } from './lane-death-child.js';

const run = promisify(execFile);
const CHILD = fileURLToPath(new URL('./lane-death-child.js', import.meta.url));
const PATIENCE_MS = 60_000;
const STREAMS = 8;

for (const host of ['piscina', 'worker'])
  for (const when of ['settled', 'restarting'])
    it(`four deaths leave no sender, no event, no gauge, and nothing that keeps the process (${host}, closed ${when})`, async function () {
      this.timeout(PATIENCE_MS);
      // Ends by its own, or the run fails.
      const { stdout } = await run(process.execPath, ['--expose-gc', CHILD, host, when], { timeout: PATIENCE_MS });
      const report = JSON.parse(stdout) as LaneDeathReport;
      expect(report.deaths.slice(0, 4)).to.deep.equal([0, 1, 1, 0]);
      for (const codes of report.readers) {
        expect(codes.filter((code) => code === 'ended')).to.have.length(STREAMS / 2);
        expect(codes.filter((code) => code === 'ERR_SENDER_DROPPED')).to.have.length(STREAMS / 2);
      }
      expect(report.outcomes).to.deep.equal(Array(4 * (STREAMS / 2) + STREAMS).fill('discarded'));
      // They were over before they were dropped.
      expect([report.abandoned, report.warnings]).to.deep.equal([0, 0]);
      expect(report.listed).to.deep.equal([1, 1, 1, 1, 0]);
      expect(report.events).to.deep.equal(Array(4).fill([STREAMS, STREAMS, STREAMS]));
      expect(report.left).to.deep.equal([0, 0, 0, 0, 0]);
    });
