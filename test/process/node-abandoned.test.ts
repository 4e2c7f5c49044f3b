// Senders and anchors that an application drops: in a process of its own, where the collector comes when it is called.

import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import type { AbandonedReport } from './abandoned-child.js';

const run = promisify(execFile);
const CHILD = fileURLToPath(new URL('./abandoned-child.js', import.meta.url));
const STREAMS = 8;

for (const host of ['inline', 'piscina']) {
  describe(`streams that nobody ended (${host} lanes)`, () => {
    let report: AbandonedReport;
    before(async function () {
      this.timeout(60_000);
      const { stdout } = await run(process.execPath, ['--expose-gc', CHILD, host], { timeout: 60_000 });
      report = JSON.parse(stdout) as AbandonedReport;
    });

    it('a sender that is collected ends as dropped, behind what it sent', () => {
      expect(report.readers).to.deep.equal(Array.from({ length: 2 * STREAMS }, () => 'ERR_SENDER_DROPPED'));
      const sent = [...Array(STREAMS).keys()];
      expect(report.items).to.deep.equal([...sent, 42, 7, ...sent, 42, 7]);
    });

    it('an anchor that is collected is cancelled, and its sender hears', () => {
      expect(report.cancelled).to.equal(2 * STREAMS);
    });

    it('each is counted once, those that had ended are not, and a waiting reader is left alone', () => {
      expect(report.counts, 'between nodes, and on one').to.deep.equal([
        [STREAMS, STREAMS],
        [STREAMS, STREAMS],
      ]);
      expect(report.left).to.deep.equal([
        [0, 0],
        [0, 0],
      ]);
    });

    it('each node warns once, with a code', () => {
      expect(report.warnings.map(({ code }) => code)).to.deep.equal(Array(2).fill('VELOMUX_ABANDONED_STREAM'));
      for (const { text } of report.warnings) expect(text).to.include('garbage-collected');
    });

    it('AD-07 a stop that a finalizer asks for reaches its sender, between nodes and on one', () => {
      expect(report.stopped).to.equal(2);
    });
  });
}
