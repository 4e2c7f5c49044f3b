// A node's own entry in its directory, and what it hears from there while it is in. It must never keep a node from closing.

import type { PeerInfo } from '../wire/peer-info.js';
import type { Discovery, DiscoveryRegistration } from './discovery.js';

export class Membership {
  private readonly watching = new AbortController();

  private constructor(private readonly registration: DiscoveryRegistration) {}

  /** Enters the node; `onPeer` hears of every peer that is there or comes, if it is given. Rejects as the directory does. */
  static async join(discovery: Discovery, info: PeerInfo, onPeer?: (info: PeerInfo) => void): Promise<Membership> {
    const membership = new Membership(await discovery.register(info));
    if (onPeer === undefined) return membership;
    try {
      discovery.watch?.(({ added, changed }) => {
        for (const peer of [...added, ...changed]) onPeer(peer);
      }, membership.watching.signal);
    } catch (error) {
      await membership.unregister();
      throw error;
    }
    return membership;
  }

  /**
   * Takes the node out, and waits for that until `tooLate` resolves. Never rejects: an entry that cannot be removed stays, as that
   * of a process that was killed.
   */
  async leave(tooLate: Promise<unknown>): Promise<void> {
    // Not before the close has begun for everybody: the directory may want to close the node itself.
    await undefined;
    this.watching.abort();
    await Promise.race([this.unregister(), tooLate]);
  }

  private async unregister(): Promise<void> {
    try {
      await this.registration.unregister();
    } catch {
      // Said above.
    }
  }
}
