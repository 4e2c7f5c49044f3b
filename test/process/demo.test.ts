// The built forward-pass example as a user runs it: real processes, real sockets, exact counts.

import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { Child } from '../../examples/forward-pass/child.js';

const DEMO = fileURLToPath(new URL('../../examples/forward-pass.js', import.meta.url));
/** Above the example's own deadline, so that its message is what a hung run ends with. */
const TEST_TIMEOUT_MS = 130_000;

interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

function demo(...args: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [DEMO, ...args], (_, stdout, stderr) => {
      resolve({ code: child.exitCode ?? -1, stdout, stderr });
    });
  });
}

interface Row {
  name: string;
  args: string[];
  counts: { tokens: number; passes: number; writes: number; tokensPerWrite: number };
}

const ROWS: Row[] = [
  {
    name: '24 requests in batches of 8',
    args: [],
    counts: { tokens: 476, passes: 93, writes: 217, tokensPerWrite: 2.19 },
  },
  {
    name: '96 requests in batches of 32',
    args: ['--requests', '96', '--max-batch', '32'],
    counts: { tokens: 1936, passes: 97, writes: 360, tokensPerWrite: 5.38 },
  },
];

describe('forward-pass example: the program', function () {
  this.timeout(TEST_TIMEOUT_MS);

  for (const host of ['inline', 'piscina']) {
    for (const { name, args, counts } of ROWS) {
      it(`${name} on the ${host} host make ${counts.writes} writes of ${counts.tokens} tokens`, async () => {
        const { code, stdout, stderr } = await demo('--json', '--host', host, ...args);
        expect(code, stderr).to.equal(0);
        const report = JSON.parse(stdout);
        expect(report).to.deep.include({ policy: 'manual', host, ...counts });
        expect(report.ttftMs.p50).to.be.a('number').greaterThan(0);
        expect(report.itlMs.p99).to.be.a('number').greaterThan(0);
      });
    }
  }

  it('the auto policy delivers the same tokens', async () => {
    const { code, stdout, stderr } = await demo('--json', '--policy', 'auto');
    expect(code, stderr).to.equal(0);
    expect(JSON.parse(stdout)).to.include({ policy: 'auto', tokens: 476, passes: 93 });
  });

  it('two lanes, and budgets beyond the credit window, deliver every token', async () => {
    const { code, stdout, stderr } = await demo(
      ...['--json', '--lanes', '2', '--requests', '60', '--max-batch', '32', '--tokens', '1200', '--busy-ms', '0'],
    );
    expect(code, stderr).to.equal(0);
    const report = JSON.parse(stdout);
    expect(report.tokens).to.equal(report.predicted.tokens);
    expect(report.lanes).to.equal(2);
  });

  it('without --json it shows progress, the text of a request and a table', async () => {
    const { code, stdout, stderr } = await demo('--requests', '3');
    expect(code, stderr).to.equal(0);
    expect(stderr).to.include('2 engines, 3 frontends').and.include('24 of 24 tokens');
    expect(stdout)
      .to.include('request 2')
      .and.match(/^policy +manual$/m);
  });

  it('a process that cannot start fails with its name and its standard error', async () => {
    const child = new Child('engine 9', new URL('./no-such-engine.js', import.meta.url));
    const error = await child.failure.catch((reason: unknown) => reason);
    expect(error).to.be.an('error');
    expect(String(error)).to.match(/engine 9 ended early \(exit code 1\)[\s\S]*Cannot find module/);
  });

  it('a bad option ends it with exit code 2 and is named', async () => {
    const { code, stdout, stderr } = await demo('--lanes', 'many');
    expect(code).to.equal(2);
    expect(stderr).to.include('--lanes');
    expect(stdout).to.equal('');
  });

  it('--help ends it with exit code 0', async () => {
    const { code, stdout } = await demo('--help');
    expect(code).to.equal(0);
    expect(stdout).to.include('--pass-delay-ms');
  });
});
