// Messages in a peer's name from where that peer should not be: counted, and said to whoever debugs. It must never refuse one:
// an address proves nothing either way.

import { performance } from 'node:perf_hooks';
import { DebugLog } from '../debug-log.js';
import type { FrameSource } from './frame-intake.js';
import type { LaneDrops } from './lane-metrics.js';
import { HostMatcher } from './socket-info.js';

/** A peer as far as it can be mistaken for another. `hosts` is a new array whenever they change. */
export interface ClaimedPeer {
  readonly label: string;
  readonly hosts: readonly string[];
}

export class Suspicion {
  private readonly matcher = new HostMatcher(() => performance.now());
  private readonly log = new DebugLog();

  constructor(private readonly counts: Pick<LaneDrops, 'spoofSuspected'>) {}

  /** A request or batch in the name of `peer`. Costs a comparison while its connection carries no other name. */
  note(peer: ClaimedPeer, source: FrameSource): void {
    if (source.claimedHosts !== peer.hosts) {
      source.claimedHosts = peer.hosts;
      source.suspect = !this.matcher.mayBe(peer.hosts, source.ends.remoteAddress);
    }
    if (!source.suspect) return;
    this.counts.spoofSuspected += 1;
    this.log.line(
      () => `a message in the name of ${peer.label} came from ${source.remote}; its hosts are ${peer.hosts.join(', ')}`,
    );
  }
}
