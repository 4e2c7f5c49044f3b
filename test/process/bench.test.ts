// Owns the smoke test of the engine benchmark: its output's shape and its refusals, with the rival row that needs nothing of the library.
// Must never assert on speed.

import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import {
  decodeToken,
  encodeToken,
  FrameReader,
  getU32,
  MUX_HEADER_LEN,
  putToken,
  putU32,
} from '../../native-free-bench/rows/rival-codec.js';
import { median, quantile, ratio, spread } from '../../native-free-bench/stats.js';
import { plainToken, Sink } from '../../native-free-bench/workload.js';

const ENGINE = fileURLToPath(new URL('../../native-free-bench/engine.js', import.meta.url));
const TIMEOUT_MS = 20_000;

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function runEngine(...args: string[]): Promise<Outcome> {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [ENGINE, ...args], { timeout: TIMEOUT_MS }, (_error, stdout, stderr) => {
      resolve({ code: child.exitCode ?? -1, stdout, stderr });
    });
  });
}

describe('engine benchmark', () => {
  it('prints one JSON object with rows, machine and ratios', async () => {
    const { code, stdout, stderr } = await runEngine(
      ...['--rows', 'net-batch', '--rounds', '2', '--seconds', '0.1', '--streams', '8', '--json'],
    );
    expect(code, stderr).to.equal(0);
    const report = JSON.parse(stdout);
    expect(report).to.have.keys('rows', 'machine', 'ratios', 'rounds', 'seconds');
    expect(report.rows.map((row: { name: string; mode: string }) => `${row.name} ${row.mode}`)).to.deep.equal([
      'net-batch throughput',
      'net-batch lone',
      'net-batch busy',
    ]);
    const [throughput, lone, busy] = report.rows;
    for (const row of report.rows) {
      expect(row).to.include.keys(
        'tokensPerSec',
        'cpuUsPerToken',
        'producerCpuNsPerToken',
        'p50Us',
        'p99Us',
        'nsPerSend',
      );
      expect(row.rounds).to.equal(2);
      expect(row.tokens % row.streams).to.equal(0);
    }
    expect([throughput.streams, lone.streams, busy.streams]).to.deep.equal([8, 1, 64]);
    expect(throughput.tokensPerSec).to.be.greaterThan(0);
    expect(throughput.cpuUsPerToken).to.be.greaterThan(0);
    expect(throughput.p50Us).to.equal(null);
    expect(throughput.nsPerSend).to.equal(null);
    expect(lone.tokensPerSec).to.equal(null);
    expect(lone.p99Us).to.be.at.least(lone.p50Us);
    expect(busy.tokensPerSec).to.equal(null);
    expect(busy.cpuUsPerToken).to.equal(null);
    expect(busy.nsPerSend).to.be.greaterThan(0);
    expect(busy.medianNsPerSend).to.be.greaterThan(0);
    expect(busy.spread.nsPerSend.min).to.be.at.most(busy.nsPerSend);
    expect(busy.spread.nsPerSend.max).to.be.at.least(busy.nsPerSend);
    if (process.platform === 'linux') expect(throughput.producerCpuNsPerToken).to.be.greaterThan(0);
    else expect(throughput.producerCpuNsPerToken).to.equal(null);
    expect(report.machine).to.include({ node: process.version });
    expect(report.machine.cores).to.be.greaterThan(0);
    expect(report.ratios).to.deep.equal({ throughput: null, producerCpu: null, busyP99: null, busyNsPerSend: null });
  }).timeout(TIMEOUT_MS + 5000);

  it('refuses a row it does not know, on stderr alone', async () => {
    const { code, stdout, stderr } = await runEngine('--rows', 'net-bath');
    expect(code).to.equal(2);
    expect(stdout).to.equal('');
    expect(stderr).to.contain('net-bath').and.to.contain('Usage:');
  });

  it('refuses a number out of range and an option it does not know', async () => {
    const outcomes = await Promise.all([runEngine('--rounds', '0'), runEngine('--sekonds', '1')]);
    expect(outcomes.map(({ code }) => code)).to.deep.equal([2, 2]);
    expect(outcomes[0]!.stderr).to.contain('--rounds');
    expect(outcomes[1]!.stderr).to.contain('sekonds');
  });

  it('explains every option', async () => {
    const { code, stdout } = await runEngine('--help');
    expect(code).to.equal(0);
    for (const option of ['rows', 'modes', 'rounds', 'seconds', 'streams', 'json', 'profile']) {
      expect(stdout).to.contain(`--${option}`);
    }
  });
});

describe('benchmark sink', () => {
  const filled = (streams: number, perStream: number): Sink => {
    const sink = new Sink(streams);
    sink.arm('plain', streams * perStream);
    for (let n = 0; n < perStream; n++) for (let s = 0; s < streams; s++) sink.token(s, plainToken());
    return sink;
  };

  it('accepts exactly the tokens that were sent', async () => {
    const sink = filled(3, 4);
    await sink.whenFull();
    sink.verify(4);
    expect(sink.report().tokens).to.equal(12);
  });

  it('names the stream that got one token too many or too few', () => {
    const many = filled(3, 4);
    many.token(1, plainToken());
    expect(() => many.verify(4)).to.throw('stream 1 got 5 tokens of 4');
    expect(() => filled(3, 4).verify(5)).to.throw('stream 0 got 4 tokens of 5');
  });

  it('rejects a token whose content is wrong', () => {
    for (const wrong of [{ t: 'tokem' }, { i: 12346 }, { lp: 0.5 }]) {
      const sink = new Sink(1);
      sink.arm('plain', 1);
      sink.token(0, { ...plainToken(), ...wrong });
      expect(() => sink.verify(1)).to.throw('1 wrong tokens');
    }
  });

  it('rejects numbered and stamped tokens out of order', () => {
    const numbered = new Sink(1);
    numbered.arm('numbered');
    for (const i of [256, 258, 257]) numbered.token(0, { ...plainToken(), i });
    expect(() => numbered.verify(3)).to.throw('2 wrong tokens');
    const stamped = new Sink(1);
    stamped.arm('stamped');
    for (const ts of [10n, 12n, 12n]) stamped.token(0, { ...plainToken(), ts });
    expect(() => stamped.verify(3)).to.throw('1 wrong tokens');
  });

  it('passes on the fault of a row to whoever waits', async () => {
    const sink = new Sink(1);
    sink.arm('plain', 1);
    const full = sink.whenFull();
    sink.fail(new Error('connection reset'));
    let message = '';
    await full.catch((error: Error) => {
      message = error.message;
    });
    expect(message).to.equal('connection reset');
    expect(() => sink.verify(0)).to.throw('connection reset');
  });
});

describe('benchmark rivals', () => {
  /** The frame of one token as every row carries it: item prefix, then a map of three entries. */
  const TOKEN_HEX = '81a44974656d83a174a5746f6b656ea169cd3039a26c70cbbfe0000000000000';

  function framesOf(streams: number): Uint8Array {
    const length = encodeToken(plainToken());
    const bytes = new Uint8Array((MUX_HEADER_LEN + length) * streams);
    for (let stream = 0, at = 0; stream < streams; stream++) {
      putU32(bytes, at, stream + 70_000);
      putU32(bytes, at + 4, encodeToken(plainToken()));
      at = putToken(bytes, at + MUX_HEADER_LEN);
    }
    return bytes;
  }

  it('carry the very bytes of an item frame', () => {
    const frame = new Uint8Array(encodeToken(plainToken()));
    putToken(frame, 0);
    expect(Buffer.from(frame).toString('hex')).to.equal(TOKEN_HEX);
    expect(decodeToken(frame, 0, frame.length)).to.deep.equal(plainToken());
  });

  it('read frames whole wherever the chunks are split', () => {
    const bytes = framesOf(3);
    for (let first = 0; first <= bytes.length; first++) {
      for (let second = first; second <= bytes.length; second++) {
        const seen: number[] = [];
        const reader = new FrameReader(MUX_HEADER_LEN, (buffer, header, start, end) => {
          expect(decodeToken(buffer, start, end)).to.deep.equal(plainToken());
          seen.push(getU32(buffer, header));
        });
        for (const chunk of [bytes.slice(0, first), bytes.slice(first, second), bytes.slice(second)])
          reader.push(chunk);
        expect(seen, `split at ${first} and ${second}`).to.deep.equal([70_000, 70_001, 70_002]);
      }
    }
  });
});

describe('benchmark statistics', () => {
  it('takes the middle of the rounds and keeps the least and greatest', () => {
    expect(median([5, 1, 3])).to.equal(3);
    expect(median([4, 1, 3, 2])).to.equal(2.5);
    expect(spread([5, null, 1, 3])).to.deep.equal({ median: 3, min: 1, max: 5 });
    expect(spread([null])).to.equal(null);
  });

  it('has a quantile at both ends and no ratio of what is missing', () => {
    expect([0, 0.5, 0.99, 1].map((q) => quantile([1, 2, 3, 4], q))).to.deep.equal([1, 3, 4, 4]);
    expect(ratio(3, 2)).to.equal(1.5);
    expect(ratio(3, null)).to.equal(null);
    expect(ratio(3, 0)).to.equal(null);
  });
});
