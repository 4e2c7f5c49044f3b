// Peers by whatever names them: those that are registered, and those that the node's directory knows. Owns the lookups under way;
// it must never ask twice at once for one peer, nor ask at all for an answer.

import { VeloError } from '../errors.js';
import { PeerInfo } from '../wire/peer-info.js';
import type { Discovery } from './discovery.js';
import type { Peer, PeerBook, PeerTarget } from './peer-book.js';

/** Lookups under way. */
const MAX_LOOKUPS = 1_024;

interface Lookup {
  readonly found: Promise<Peer>;
  readonly giveUp: (error: VeloError) => void;
}

export class PeerFinder {
  private readonly lookups = new Map<bigint | string, Lookup>();
  private ended: VeloError | undefined;

  constructor(
    private readonly peers: PeerBook,
    private readonly discovery: Discovery | undefined,
  ) {}

  /** A peer that is registered; a PeerInfo registers itself. @throws VeloError as registering does. */
  known(target: PeerTarget): Peer | undefined {
    return this.peers.find(target);
  }

  /**
   * A peer that is registered, or that the directory knows: then it is registered. Rejects with `ERR_UNKNOWN_PEER`, with the
   * directory's own coded error, or as registering does. As slow as the directory: who waits has a deadline of its own.
   */
  async find(target: PeerTarget): Promise<Peer> {
    const { discovery } = this;
    if (discovery === undefined || target instanceof PeerInfo) return this.peers.resolve(target);
    const known = this.peers.find(target);
    if (known !== undefined) return known;
    if (this.ended !== undefined) throw this.ended;
    const under = this.lookups.get(target);
    if (under !== undefined) return await under.found;
    if (this.lookups.size >= MAX_LOOKUPS)
      throw new VeloError('ERR_LIMIT', `${MAX_LOOKUPS} peers are being looked up already`);
    return await this.start(target, discovery);
  }

  /** Ends every lookup; what the directory says later is not heard. */
  close(error: VeloError): void {
    this.ended = error;
    for (const { giveUp } of this.lookups.values()) giveUp(error);
  }

  private start(target: bigint | string, discovery: Discovery): Promise<Peer> {
    let giveUp: (error: VeloError) => void = () => {};
    const found = new Promise<Peer>((resolve, reject) => {
      giveUp = reject;
      this.ask(target, discovery).then(resolve, reject);
    }).finally(() => this.lookups.delete(target));
    this.lookups.set(target, { found, giveUp });
    return found;
  }

  private async ask(target: bigint | string, discovery: Discovery): Promise<Peer> {
    let info: PeerInfo | undefined;
    try {
      info = await (typeof target === 'bigint' ? discovery.resolve(target) : discovery.resolveInstance?.(target));
    } catch (cause) {
      if (VeloError.is(cause)) throw cause;
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new VeloError('ERR_UNKNOWN_PEER', `peer ${target} is not registered, and discovery failed: ${why}`, {
        cause,
      });
    }
    if (this.ended !== undefined) throw this.ended;
    // Registered meanwhile, by its own hello perhaps: that is newer than what a directory holds.
    const known = this.peers.find(target);
    if (known !== undefined) return known;
    if (!(info instanceof PeerInfo) || (info.workerId !== target && info.instanceId !== target))
      throw new VeloError('ERR_UNKNOWN_PEER', `peer ${target} is not registered, and discovery does not know it`);
    return this.peers.register(info);
  }
}
