// Runs lanes on the calling thread: no hop, no worker. For tests, for single-core machines, and for producers whose loop turns
// often. Everything else is the same: the same lane, the same rings, the same order.

import { performance } from 'node:perf_hooks';
import { MESSENGER_LANE } from './commands.js';
import { allOrFirstError, type LaneHost, type LaneLink, type LaneOptions } from './host.js';
import { Lane } from './lane.js';
import { meshPorts, type PreparedLane, prepareLane, rejoinMesh } from './lane-boot.js';
import type { MeshPort } from './lane-mesh.js';
import { LocalPort } from './local-port.js';
import { NO_RESTART, RestartLimit } from './restart-limit.js';
import { type StreamEnds, sumOfEnds } from './streams-end.js';

export async function startInlineHost(
  options: readonly LaneOptions[],
  node: SharedArrayBuffer,
  rows: SharedArrayBuffer,
  maxRestarts: number,
): Promise<LaneHost> {
  const host = new InlineHost((lane, mesh) => prepareLane(lane, node, rows, mesh));
  await host.start(options, maxRestarts);
  return host;
}

/** The place of one lane, and the lane that runs there now, or did last. */
interface Seat {
  readonly lane: number;
  readonly limit: RestartLimit;
  options: LaneOptions;
  life: PreparedLane;
  running: Lane;
  /** No lane runs here: it died, and no other one runs yet. */
  dead: boolean;
  timer: NodeJS.Timeout | undefined;
}

class InlineHost implements LaneHost {
  readonly links: LaneLink[] = [];
  onLaneDeath: (lane: number, reason: string) => void = () => {};
  onLaneRestart: (lane: number, link: LaneLink) => void = () => {};
  onLaneRunning: (lane: number) => void = () => {};
  private readonly seats: Seat[] = [];
  private closing = false;
  /** Lane 0 stays dead. */
  private hubGone = false;

  constructor(private readonly prepare: (options: LaneOptions, mesh: readonly MeshPort[]) => PreparedLane) {}

  async start(options: readonly LaneOptions[], maxRestarts: number): Promise<void> {
    const mesh = meshPorts(options.length, LocalPort.pair);
    for (const [lane, given] of options.entries()) {
      const life = this.prepare(given, mesh[lane]!);
      const limit = new RestartLimit(maxRestarts);
      const running = this.newLane(lane, life);
      this.seats.push({ lane, limit, options: given, life, running, dead: false, timer: undefined });
    }
    try {
      // All of them are heard out: a lane that listens after the close would listen for ever.
      const started = await allOrFirstError(this.seats.map(({ running }) => running.start()));
      for (const [lane, seat] of this.seats.entries()) {
        const { port } = started[lane]!;
        seat.options = { ...seat.options, port };
        this.links.push(linkOf(seat));
      }
    } catch (error) {
      await this.close(0);
      throw error;
    }
  }

  private newLane(lane: number, { boot }: PreparedLane): Lane {
    const running: Lane = new Lane(boot, true, (error) => void this.died(lane, running, error.message));
    return running;
  }

  /** A lane that failed does nothing any more, but its sockets stand: they go first, and then whoever must hear does. */
  private async died(lane: number, dead: Lane, reason: string): Promise<void> {
    const seat = this.seats[lane]!;
    // A lane that fails while it starts says so twice.
    if (seat.running !== dead || seat.dead) return;
    seat.dead = true;
    await dead.close(0);
    if (this.closing || seat.running !== dead) return;
    this.onLaneDeath(lane, reason);
    const delay = seat.limit.died(performance.now());
    if (delay !== NO_RESTART) seat.timer = setTimeout(() => this.restart(seat), delay);
    else if (lane === MESSENGER_LANE) this.leaveOthersAlone();
  }

  private leaveOthersAlone(): void {
    this.hubGone = true;
    for (const { dead, running } of this.seats) if (!dead) running.leftAlone();
  }

  private restart(seat: Seat): void {
    seat.life.dispose();
    seat.options = { ...seat.options, life: seat.options.life + 1 };
    seat.life = this.prepare(seat.options, this.meshFor(seat.lane));
    seat.dead = false;
    const running = this.newLane(seat.lane, seat.life);
    seat.running = running;
    if (this.hubGone) running.leftAlone();
    const link = linkOf(seat);
    this.links[seat.lane] = link;
    this.onLaneRestart(seat.lane, link);
    running.start().then(
      () => this.onLaneRunning(seat.lane),
      (error: unknown) => this.died(seat.lane, running, String(error)),
    );
  }

  /** Ports for the lane that starts again; the lanes that run get the other ends. */
  private meshFor(lane: number): MeshPort[] {
    return rejoinMesh(lane, this.seats.length, LocalPort.pair, (to, mesh) => {
      const { dead, running } = this.seats[to]!;
      if (!dead) running.joinMesh(mesh);
      return !dead;
    });
  }

  terminate(lane: number, reason: string): void {
    this.seats[lane]!.running.fail(new Error(reason));
  }

  async close(timeoutMs: number): Promise<StreamEnds> {
    this.closing = true;
    for (const { timer } of this.seats) clearTimeout(timer);
    const ends = await Promise.all(this.seats.map(({ running }) => running.close(timeoutMs)));
    for (const { life } of this.seats) life.dispose();
    return sumOfEnds(ends);
  }
}

function linkOf({ life, running, options }: Seat): LaneLink {
  const link = life.link(options.port, (wake) => running.hookClient(wake));
  running.joinThread(link.conduit);
  return link;
}
