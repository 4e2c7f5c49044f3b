// A decode engine: takes requests, runs forward passes, sends one token per active request and flushes once per pass.
// This is the file to read for how a producer uses velomux.

import { setImmediate, setTimeout } from 'node:timers/promises';
import { PeerInfo, StreamAnchorHandle, type StreamSender, typedUnary, Velo, VeloError } from '../../lib/index.js';
import type { GenerateRequest } from './messages.js';
import { nodeOptions } from './node-options.js';
import type { Options } from './options.js';
import { ParentLink } from './parent-link.js';
import { FINISH_MS } from './stop.js';
import { pieceAt, type Token } from './tokens.js';
import { engineOf, requestsWhere } from './workload.js';

/** A request that the engine has accepted and attached to. */
interface Stream {
  readonly request: number;
  readonly budget: number;
  readonly sender: StreamSender<Token>;
  position: number;
}

/** Accepted requests by index, for a reader who wants a certain one and may have to wait for it. */
class Accepted {
  readonly #streams = new Map<number, Stream>();
  #wanted: { request: number; resolve: (stream: Stream | undefined) => void } | undefined;
  #closed = false;

  add(stream: Stream): void {
    if (this.#wanted?.request === stream.request) {
      this.#wanted.resolve(stream);
      this.#wanted = undefined;
    } else {
      this.#streams.set(stream.request, stream);
    }
  }

  /** undefined: it has not come, and none will. */
  take(request: number): Promise<Stream | undefined> {
    const stream = this.#streams.get(request);
    this.#streams.delete(request);
    if (stream !== undefined || this.#closed) return Promise.resolve(stream);
    return new Promise((resolve) => {
      this.#wanted = { request, resolve };
    });
  }

  /** Nothing more is waited for. */
  close(): void {
    this.#closed = true;
    this.#wanted?.resolve(undefined);
    this.#wanted = undefined;
  }
}

class Engine {
  readonly #velo: Velo;
  readonly #options: Options;
  readonly #pieces: readonly string[];
  readonly #accepted = new Accepted();
  /** When whatever is not finished is given up. */
  #until = Number.POSITIVE_INFINITY;
  tokens = 0;
  passes = 0;

  constructor(velo: Velo, options: Options, pieces: readonly string[]) {
    this.#velo = velo;
    this.#options = options;
    this.#pieces = pieces;
    velo.registerHandler(
      'generate',
      typedUnary((message) => this.#accept(message as GenerateRequest)),
    );
  }

  /** Attaches to the caller's anchor. The stream's opening leaves now, alone; tokens follow when the request is active. */
  async #accept({ request, budget, handle }: GenerateRequest): Promise<{ accepted: number }> {
    const sender = await this.#velo.attachAnchor<Token>(StreamAnchorHandle.fromJSON(handle));
    this.#accepted.add({ request, budget, sender, position: 0 });
    return { accepted: request };
  }

  /** Serves `requests` in that order, as many at once as the batch holds. A free place waits for the next in order. */
  async serve(requests: readonly number[]): Promise<void> {
    const waiting = [...requests];
    let active: Stream[] = [];
    while ((waiting.length > 0 || active.length > 0) && performance.now() < this.#until) {
      for (const request of waiting.splice(0, this.#options.maxBatch - active.length)) {
        const stream = await this.#accepted.take(request);
        if (stream !== undefined) active.push(stream);
      }
      active = await this.#forwardPass(active);
      await this.#pause();
    }
  }

  /** Takes no further request: callers are refused at once. Those it has are finished, as far as `FINISH_MS` suffice. */
  windDown(): void {
    this.#velo.beginDrain();
    this.#accepted.close();
    this.#until = performance.now() + FINISH_MS;
  }

  /** One token for every active request, then one flush: one write per frontend. Returns what is still active. */
  async #forwardPass(active: readonly Stream[]): Promise<Stream[]> {
    for (const stream of active) {
      burn(this.#options.busyMs / active.length);
      const token = this.#nextToken(stream);
      try {
        // Nothing is awaited between sends, unless a reader has fallen a whole credit window behind.
        while (!stream.sender.trySend(token)) await stream.sender.ready();
      } catch (error) {
        if (!VeloError.is(error, 'ERR_CHANNEL_CLOSED')) throw error;
        stream.position = stream.budget; // its reader has left: nothing more is due
      }
    }
    const [spent, rest] = partition(active, (stream) => stream.position === stream.budget);
    for (const stream of spent) void stream.sender.finalize();
    if (this.#options.policy === 'manual') this.#velo.flushBatch();
    this.passes += 1;
    return rest;
  }

  #nextToken(stream: Stream): Token {
    const { request, position } = stream;
    stream.position += 1;
    this.tokens += 1;
    return { request, position, text: pieceAt(this.#pieces, request, position) };
  }

  /** Gives the event loop a turn, also when no pause is asked for: requests arrive on it. */
  async #pause(): Promise<void> {
    if (this.#options.passDelayMs > 0) await setTimeout(this.#options.passDelayMs);
    else await setImmediate();
  }
}

/** Stands in for the arithmetic of a decode step: the thread does nothing else meanwhile. */
function burn(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

function partition<T>(items: readonly T[], matches: (item: T) => boolean): [T[], T[]] {
  return [items.filter(matches), items.filter((item) => !matches(item))];
}

async function live(parent: ParentLink): Promise<void> {
  const { index, options, pieces } = await parent.receive('start');
  const velo = await Velo.create(nodeOptions(options));
  try {
    const engine = new Engine(velo, options, pieces);
    parent.send({ kind: 'ready', peer: velo.peerInfo.toJSON() });

    const { peers } = await parent.receive('peers');
    for (const peer of peers) velo.registerPeer(PeerInfo.fromJSON(peer));
    parent.send({ kind: 'joined' });

    await parent.receive('go');
    parent.stop.addEventListener('abort', () => engine.windDown());
    await engine.serve(requestsWhere(options, (request) => engineOf(request, options) === index));

    // Asked to stop only after every frontend has its last token, so every write is counted by now.
    await parent.receive('stop');
    parent.send({ kind: 'sent', tokens: engine.tokens, passes: engine.passes, writes: velo.stats().batchesSent });
  } finally {
    // Streams that are finished are written out; any other one ends as dropped, and its reader is told.
    await velo.close();
  }
}

await new ParentLink().run(live);
