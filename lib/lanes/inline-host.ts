// Runs lanes on the calling thread: no hop, no worker. For tests, for single-core machines, and for producers whose loop turns
// often. Everything else is the same: the same lane, the same rings, the same order.

import { allOrFirstError, type LaneHost, type LaneLink, type LaneOptions } from './host.js';
import { Lane } from './lane.js';
import { type PreparedLane, prepareLanes } from './lane-boot.js';
import { type StreamEnds, sumOfEnds } from './streams-end.js';

export async function startInlineHost(
  options: readonly LaneOptions[],
  node: SharedArrayBuffer,
  rows: SharedArrayBuffer,
): Promise<LaneHost> {
  const host = new InlineHost();
  await host.start(options, node, rows);
  return host;
}

class InlineHost implements LaneHost {
  links: LaneLink[] = [];
  onLaneDeath: (lane: number, reason: string) => void = () => {};
  private prepared: PreparedLane[] = [];
  private lanes: Lane[] = [];

  async start(options: readonly LaneOptions[], node: SharedArrayBuffer, rows: SharedArrayBuffer): Promise<void> {
    this.prepared = prepareLanes(options, node, rows);
    this.lanes = this.prepared.map(
      ({ boot }, i) =>
        new Lane(boot, true, (error) => {
          void this.lanes[i]!.close(0);
          this.onLaneDeath(i, error.message);
        }),
    );
    try {
      // All of them are heard out: a lane that listens after the close would listen for ever.
      const started = await allOrFirstError(this.lanes.map((lane) => lane.start()));
      this.links = this.prepared.map((lane, i) => {
        const link = lane.link(started[i]!.port, (wake) => this.lanes[i]!.hookClient(wake));
        this.lanes[i]!.joinThread(link.conduit);
        return link;
      });
    } catch (error) {
      await this.close(0);
      throw error;
    }
  }

  async close(timeoutMs: number): Promise<StreamEnds> {
    const ends = await Promise.all(this.lanes.map((lane) => lane.close(timeoutMs)));
    for (const lane of this.prepared) lane.dispose();
    return sumOfEnds(ends);
  }
}
