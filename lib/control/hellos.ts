// The hellos this node says: so that a peer can answer it, and to learn what the peer serves. One at a time per peer. It must
// never send anything but hellos.

import { setTimeout as pause } from 'node:timers/promises';
import { VeloError } from '../errors.js';
import type { ClientResolutions } from '../metrics/messenger-metrics.js';
import { RESPONSE_UNARY } from '../wire/envelope.js';
import { decodeHandlerList, encodeHello } from '../wire/hello.js';
import { HANDLER_HELLO } from '../wire/names.js';
import type { PeerInfo } from '../wire/peer-info.js';
import type { Calls } from './calls.js';
import type { Peer } from './peer-book.js';

/** How long a hello may take. */
const HELLO_TIMEOUT_MS = 30_000;
/** A peer's list of its handlers is kept for as long as it is known: a longer one is not. */
export const MAX_HANDLER_LIST_BYTES = 1024 * 1024;
/** Looks of `waitFor`, and the time between two. */
const WAIT_TRIES = 10;
const WAIT_EVERY_MS = 100;

/** Bounds of a question to a peer. */
export interface AskOptions {
  signal?: AbortSignal | undefined;
  /** Milliseconds until it fails with `ERR_TIMEOUT`. Default: the node's `callTimeoutMs`. */
  timeoutMs?: number | undefined;
}

export class Hellos {
  constructor(
    private readonly calls: Calls,
    private readonly self: PeerInfo,
    private readonly resolutions: ClientResolutions,
  ) {}

  /** Makes sure that the peer can answer us. */
  async introduce(peer: Peer): Promise<void> {
    if (!peer.knowsUs) await this.counted(this.say(peer));
  }

  /** Says hello, and keeps the list of handlers from the answer. */
  say(peer: Peer): Promise<void> {
    if (peer.hello !== undefined) return peer.hello;
    this.resolutions['handshake attempt'] += 1;
    peer.hello = this.calls
      .call(peer, HANDLER_HELLO, RESPONSE_UNARY, encodeHello(this.self), { timeoutMs: HELLO_TIMEOUT_MS })
      .then((answer) => {
        peer.knowsUs = true;
        if (answer.length > MAX_HANDLER_LIST_BYTES)
          throw new VeloError('ERR_LIMIT', `${peer.info.instanceId} lists its handlers in ${answer.length} bytes`);
        peer.handlers = new Set(decodeHandlerList(answer));
        this.resolutions['handshake success'] += 1;
      })
      .finally(() => {
        peer.hello = undefined;
      });
    return peer.hello;
  }

  /** The peer serves the handler, as far as its list says; a missing name is asked for once more. */
  async require(peer: Peer, handler: string): Promise<void> {
    if (!serves(peer, handler)) await this.counted(this.ask(peer, handler));
  }

  private async ask(peer: Peer, handler: string): Promise<void> {
    await this.say(peer);
    if (serves(peer, handler)) return;
    throw new VeloError('ERR_UNKNOWN_HANDLER', `Handler '${handler}' not found on instance ${peer.info.instanceId}`);
  }

  /** Counts a send or an attach that comes to nothing because the peer could not be asked, or does not serve what is asked for. */
  private async counted(asking: Promise<void>): Promise<void> {
    try {
      await asking;
    } catch (error) {
      this.resolutions['handshake error'] += 1;
      throw error;
    }
  }

  /** The names that the peer serves: those it said last, or with `fresh` those it says now. */
  async list(peer: Peer, fresh: boolean, options: AskOptions): Promise<string[]> {
    if (fresh || peer.handlers === undefined)
      await this.calls.prepare(peer.info.instanceId, HANDLER_HELLO, options, () => this.say(peer));
    return [...(peer.handlers ?? [])];
  }

  /** Resolves when the peer serves `handler`; looks ten times, or until `timeoutMs` is over when that is given. */
  async waitFor(peer: Peer, handler: string, options: AskOptions): Promise<void> {
    if (serves(peer, handler)) return;
    const tries = options.timeoutMs === undefined ? WAIT_TRIES : Number.POSITIVE_INFINITY;
    await this.calls.prepare(peer.info.instanceId, handler, options, async (givenUp) => {
      for (let i = 0; i < tries; i += 1) {
        await this.say(peer);
        if (serves(peer, handler)) return;
        await pause(WAIT_EVERY_MS, undefined, { signal: givenUp });
      }
      throw new VeloError('ERR_TIMEOUT', `${peer.info.instanceId} does not serve '${handler}', asked ${tries} times`);
    });
  }
}

/** The peer can answer us, and has said that it serves the handler. */
export function serves(peer: Peer, handler: string): boolean {
  return peer.knowsUs && peer.handlers?.has(handler) === true;
}
