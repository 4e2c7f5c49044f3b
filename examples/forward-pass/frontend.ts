// A frontend: creates an anchor per request, hands it to an engine, reads the tokens and checks every one of them.

import { PeerInfo, type StreamAnchor, Velo } from '../../lib/index.js';
import type { GenerateRequest } from './messages.js';
import { nodeOptions } from './node-options.js';
import type { Options } from './options.js';
import { ParentLink } from './parent-link.js';
import { faultOf, type Token } from './tokens.js';
import { budgetOf, engineOf, frontendOf, requestsWhere } from './workload.js';

const PROGRESS_INTERVAL_MS = 50;

class Frontend {
  readonly #velo: Velo;
  readonly #engines: readonly PeerInfo[];
  readonly #options: Options;
  readonly #pieces: readonly string[];
  readonly firstTokenMs: number[] = [];
  readonly interTokenMs: number[] = [];
  tokens = 0;

  constructor(velo: Velo, engines: readonly PeerInfo[], options: Options, pieces: readonly string[]) {
    this.#velo = velo;
    this.#engines = engines;
    this.#options = options;
    this.#pieces = pieces;
  }

  /** Runs one request to its end and returns its text. Rejects when a token is missing, misplaced, foreign or altered. */
  async run(request: number): Promise<string> {
    const anchor = this.#velo.createAnchor<Token>();
    const engine = this.#engines[engineOf(request, this.#options)]!;
    const budget = budgetOf(request, this.#options);
    const message: GenerateRequest = { request, budget, handle: anchor.handle.toJSON() };
    const sentAt = performance.now();
    const accepted = this.#velo.typedUnary(engine, 'generate', message);
    const [text] = await Promise.all([this.#read(anchor, request, sentAt), accepted]);
    return text;
  }

  async #read(anchor: StreamAnchor<Token>, request: number, sentAt: number): Promise<string> {
    const budget = budgetOf(request, this.#options);
    let text = '';
    let position = 0;
    let finalized = false;
    let last = sentAt;
    for await (const frame of anchor.frames()) {
      if (frame.kind === 'finalized') {
        finalized = true;
        continue;
      }
      if (frame.kind !== 'item') throw new Error(`request ${request} received "${frame.kind}" at position ${position}`);
      const now = performance.now();
      (position === 0 ? this.firstTokenMs : this.interTokenMs).push(now - last);
      last = now;
      const fault = faultOf(frame.value, request, position, this.#pieces);
      if (fault !== undefined) throw new Error(fault);
      text += frame.value.text;
      position += 1;
      this.tokens += 1;
    }
    if (!finalized) throw new Error(`request ${request} ended without being finalized, at position ${position}`);
    if (position !== budget) throw new Error(`request ${request} received ${position} of ${budget} tokens`);
    return text;
  }
}

async function live(parent: ParentLink): Promise<void> {
  const { index, options, pieces, showcase } = await parent.receive('start');
  const velo = await Velo.create(nodeOptions(options));
  try {
    parent.send({ kind: 'ready', peer: velo.peerInfo.toJSON() });

    const { peers } = await parent.receive('peers');
    const engines = peers.map((peer) => PeerInfo.fromJSON(peer));
    for (const engine of engines) velo.registerPeer(engine);
    parent.send({ kind: 'joined' });

    await parent.receive('go');
    const frontend = new Frontend(velo, engines, options, pieces);
    const requests = requestsWhere(options, (request) => frontendOf(request) === index);
    const texts = await parent.finish(runAll(frontend, requests, parent));
    const { tokens, firstTokenMs, interTokenMs } = frontend;
    const showcaseText = texts[requests.indexOf(showcase)] ?? '';
    parent.send({ kind: 'received', tokens, firstTokenMs, interTokenMs, showcaseText });

    await parent.receive('stop');
  } finally {
    await velo.close();
  }
}

async function runAll(frontend: Frontend, requests: readonly number[], parent: ParentLink): Promise<string[]> {
  const report = () => parent.send({ kind: 'progress', tokens: frontend.tokens });
  const timer = setInterval(report, PROGRESS_INTERVAL_MS);
  try {
    return await Promise.all(requests.map((request) => frontend.run(request)));
  } finally {
    clearInterval(timer);
    report();
  }
}

await new ParentLink().run(live);
