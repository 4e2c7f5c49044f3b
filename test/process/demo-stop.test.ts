// The example's processes under SIGTERM: an engine in the middle of its passes refuses what is new, finishes what it can, ends the
// rest honestly and exits with 0. This process plays parent and frontend.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { Child } from '../../examples/forward-pass/child.js';
import { parseOptions } from '../../examples/forward-pass/options.js';
import { faultOf, type Token, tokenise } from '../../examples/forward-pass/tokens.js';
import { PeerInfo, Velo, VeloError } from '../../lib/index.js';
import { until, within } from '../support/nodes.js';

const DEMO = fileURLToPath(new URL('../../examples/forward-pass.js', import.meta.url));
const ENGINE = new URL('../../examples/forward-pass/engine.js', import.meta.url);
/** An engine has 2 s to finish and 5 s to close. */
const DEADLINE_MS = 15_000;
const REQUESTS = 12;

interface Read {
  readonly tokens: Token[];
  end: 'finalized' | string | undefined;
}

describe('forward-pass example: SIGTERM', function () {
  this.timeout(40_000);
  let frontend: Velo;
  let engine: Child;
  let peer: PeerInfo;
  const pieces = tokenise();
  beforeEach(async () => {
    const options = parseOptions(['--engines', '1', '--requests', '99', '--busy-ms', '0', '--pass-delay-ms', '2']);
    frontend = await Velo.create({ host: 'inline' });
    engine = new Child('engine', ENGINE);
    engine.send({ kind: 'start', index: 0, options, pieces, showcase: 0 });
    peer = PeerInfo.fromJSON((await engine.receive('ready')).peer);
    frontend.registerPeer(peer);
    engine.send({ kind: 'peers', peers: [frontend.peerInfo.toJSON()] });
    await engine.receive('joined');
    engine.send({ kind: 'go' });
  });
  afterEach(async () => {
    engine.kill();
    await frontend.close({ timeoutMs: 500 });
  });

  /** Asks for a stream and reads it to whatever end it has. */
  async function ask(request: number, budget: number): Promise<Read> {
    const anchor = frontend.createAnchor<Token>();
    const read: Read = { tokens: [], end: undefined };
    void (async () => {
      try {
        for await (const frame of anchor.frames()) {
          if (frame.kind === 'item') read.tokens.push(frame.value);
          else read.end = frame.kind;
        }
      } catch (error) {
        read.end = VeloError.is(error) ? error.code : String(error);
      }
    })();
    await frontend.typedUnary(peer, 'generate', { request, budget, handle: anchor.handle.toJSON() });
    return read;
  }

  async function midRun(budget: number): Promise<Read[]> {
    const reads = await Promise.all(Array.from({ length: REQUESTS }, (_, request) => ask(request, budget)));
    await until('tokens flow', () => reads[0]!.tokens.length > 3);
    return reads;
  }

  function hasNoFault({ tokens }: Read, request: number): void {
    tokens.forEach((token, position) => {
      expect(faultOf(token, request, position, pieces)).to.equal(undefined);
    });
  }

  it('an engine finishes the streams it has, refuses another, and exits with 0', async () => {
    const reads = await midRun(60);
    const exit = engine.terminate();
    const refused = ask(REQUESTS, 1).then(
      () => 'accepted',
      (error: VeloError) => error.code,
    );
    expect(await within(DEADLINE_MS, exit)).to.equal(0);
    await until('every stream has ended', () => reads.every(({ end }) => end !== undefined));
    reads.forEach(hasNoFault);
    expect(reads.map(({ tokens, end }) => `${tokens.length} ${end}`)).to.deep.equal(reads.map(() => '60 finalized'));
    // Sent at the same moment as the signal, it may have come first; then it was served like the others.
    expect(await refused).to.be.oneOf(['ERR_PEER_SHUTTING_DOWN', 'accepted']);
  });

  it('a caller that comes after the signal is refused while the streams go on', async () => {
    const reads = await midRun(400);
    const exit = engine.terminate();
    let code = '';
    await until('the gate is closed', () => {
      void frontend.unary(peer, 'nothing', undefined, { timeoutMs: 1_000 }).catch((error: VeloError) => {
        code = error.code;
      });
      return code === 'ERR_PEER_SHUTTING_DOWN';
    });
    const late = await ask(REQUESTS, 1).catch((error: VeloError) => error.code);
    expect(late).to.equal('ERR_PEER_SHUTTING_DOWN');
    expect(reads.some(({ end }) => end === undefined)).to.equal(true);
    expect(await within(DEADLINE_MS, exit)).to.equal(0);
    await until('every stream has ended', () => reads.every(({ end }) => end !== undefined));
  });

  it('streams that it cannot finish in time end as dropped, behind what they carried', async () => {
    const reads = await midRun(100_000);
    expect(await within(DEADLINE_MS, engine.terminate())).to.equal(0);
    await until('every stream has ended', () => reads.every(({ end }) => end !== undefined));
    reads.forEach(hasNoFault);
    expect(reads.map(({ end }) => end)).to.deep.equal(reads.map(() => 'ERR_SENDER_DROPPED'));
    expect(reads.slice(0, 8).every(({ tokens }) => tokens.length > 0)).to.equal(true);
  });

  it('the whole program ends with 0, its processes first', async () => {
    const program = spawn(process.execPath, [DEMO, '--tokens', '9000', '--json'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stderr = '';
    let stdout = '';
    program.stderr.on('data', (chunk) => {
      stderr += chunk;
    });
    program.stdout.on('data', (chunk) => {
      stdout += chunk;
    });
    const closed = once(program, 'close');
    await until('it runs', () => stderr.includes('engines'));
    await new Promise((resolve) => setTimeout(resolve, 800));
    program.kill('SIGTERM');
    const [code] = await within(DEADLINE_MS, closed);
    expect(code, stderr).to.equal(0);
    expect(stderr).to.match(/stopped\n$/);
    expect(stdout).to.equal('');
  });
});
