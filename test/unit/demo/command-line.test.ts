// The forward-pass example's command line: options, report and progress, without a process.

import { expect } from 'chai';
import { Mailbox } from '../../../examples/forward-pass/mailbox.js';
import { HELP, OptionError, parseOptions } from '../../../examples/forward-pass/options.js';
import { Progress } from '../../../examples/forward-pass/progress.js';
import { formatReport, makeReport, percentile, percentilesOf } from '../../../examples/forward-pass/report.js';

describe('forward-pass example: the options', () => {
  it('without arguments every option has its documented default', () => {
    expect(parseOptions([])).to.deep.equal({
      policy: 'manual',
      engines: 2,
      requests: 24,
      maxBatch: 8,
      tokens: 40,
      passDelayMs: 1,
      busyMs: 1,
      lanes: 1,
      host: 'piscina',
      json: false,
      help: false,
    });
  });

  it('every option is read, with a space or an equals sign', () => {
    const options = parseOptions(['--policy', 'auto', '--requests=96', '--max-batch', '32', '--host=inline', '--json']);
    expect(options).to.include({ policy: 'auto', requests: 96, maxBatch: 32, host: 'inline', json: true });
  });

  const mistakes: [string[], string][] = [
    [['--requests', '0'], '--requests'],
    [['--requests', '1e3'], '--requests'],
    [['--lanes', '17'], '--lanes'],
    [['--tokens', ''], '--tokens'],
    [['--max-batch'], '--max-batch'],
    [['--pass-delay-ms', '-1'], '--pass-delay-ms'],
    [['--busy-ms', 'slow'], '--busy-ms'],
    [['--engines', '2.5'], '--engines'],
    [['--policy', 'eager'], '--policy'],
    [['--host', 'cloud'], '--host'],
    [['--json=yes'], '--json'],
    [['--speed', '9'], '--speed'],
    [['stray'], 'stray'],
  ];
  for (const [args, named] of mistakes) {
    it(`"${args.join(' ')}" is refused with a message that names ${named}`, () => {
      expect(() => parseOptions(args)).to.throw(OptionError, named);
    });
  }

  it('the help names every option', () => {
    const names = ['policy', 'engines', 'requests', 'max-batch', 'tokens', 'pass-delay-ms', 'busy-ms', 'lanes', 'host'];
    for (const name of [...names, 'json', 'help']) expect(HELP).to.include(`--${name}`);
  });
});

describe('forward-pass example: the report', () => {
  const measured = { tokens: 476, passes: 93, writes: 217, wallMs: 123.456, firstTokenMs: [3, 1, 2], interTokenMs: [] };

  it('a percentile is the nearest rank', () => {
    const samples = Array.from({ length: 100 }, (_, index) => index + 1);
    expect(percentile(samples, 0.5)).to.equal(50);
    expect(percentile(samples, 0.99)).to.equal(99);
    expect(percentile([7], 0.99)).to.equal(7);
    expect(percentile([], 0.5)).to.equal(null);
    expect(percentilesOf([30, 10, 20])).to.deep.equal({ p50: 20, p99: 30 });
  });

  it('one object carries the counts, the ratio, the latencies and what was predicted', () => {
    const report = makeReport(parseOptions([]), measured);
    expect(report).to.deep.include({
      policy: 'manual',
      tokens: 476,
      passes: 93,
      writes: 217,
      tokensPerWrite: 2.19,
      wallMs: 123.5,
      ttftMs: { p50: 2, p99: 3 },
      itlMs: { p50: null, p99: null },
      lanes: 1,
      host: 'piscina',
      requests: 24,
      predicted: { tokens: 476, passes: 93, writes: 217 },
    });
    expect(JSON.parse(JSON.stringify(report))).to.deep.equal(report);
  });

  it('the writes are predicted under manual with one lane only', () => {
    const manual = formatReport(makeReport(parseOptions([]), measured));
    expect(manual).to.include('217 (predicted 217)').and.include('p50 2.00 ms, p99 3.00 ms').and.include('none');
    for (const option of ['--policy=auto', '--lanes=2']) {
      const report = makeReport(parseOptions([option]), measured);
      expect(report.predicted).to.deep.equal({ tokens: 476, passes: 93, writes: null });
      expect(formatReport(report)).not.to.include('predicted');
    }
  });
});

describe('forward-pass example: the progress', () => {
  function recorder(isTTY: boolean) {
    const written: string[] = [];
    return { written, output: { isTTY, write: (text: string) => written.push(text) } };
  }

  it('off a terminal it is one line per quarter', () => {
    const { written, output } = recorder(false);
    const progress = new Progress(output, 100);
    for (let received = 0; received <= 100; received += 10) progress.tokens(received);
    expect(written).to.deep.equal([30, 50, 80, 100].map((received) => `${received} of 100 tokens\n`));
  });

  it('on a terminal it is one line that is removed before the next text', () => {
    const { written, output } = recorder(true);
    const progress = new Progress(output, 10);
    progress.tokens(1);
    progress.tokens(2);
    progress.note('done');
    progress.clear();
    expect(written.join('')).to.equal('\r\x1b[K1 of 10 tokens\r\x1b[K2 of 10 tokens\r\x1b[Kdone\n');
  });
});

describe('forward-pass example: the mailbox', () => {
  type Note = { kind: 'a'; value: number } | { kind: 'b' };

  it('messages are received in order, before or after they arrive', async () => {
    const mailbox = new Mailbox<Note>();
    mailbox.deliver({ kind: 'a', value: 1 });
    expect(await mailbox.receive('a')).to.deep.equal({ kind: 'a', value: 1 });
    const later = mailbox.receive('b');
    mailbox.deliver({ kind: 'b' });
    mailbox.deliver({ kind: 'a', value: 2 });
    expect((await later).kind).to.equal('b');
    expect((await mailbox.receive('a')).value).to.equal(2);
  });

  it('a message out of its order is an error', async () => {
    const mailbox = new Mailbox<Note>();
    mailbox.deliver({ kind: 'b' });
    const error = await mailbox.receive('a').catch((reason: unknown) => reason);
    expect(error).to.be.an('error').with.property('message', 'expected the message "a", got "b"');
  });
});
