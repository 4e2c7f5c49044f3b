// The nodes of a simulation and what befalls them: they are made, know each other, freeze, die, come back, leave; connections between
// them stall and break. Owns who there is and what happened between whom; it must never look at a stream.

import { Velo } from '../../lib/index.js';
import { awaitsAdmission, killLane, lanesStand } from './inside.js';
import type { Incident, Scenario } from './scenario.js';
import { SimNode } from './sim-node.js';
import { RANK_APP } from './world/schedule.js';
import { describe, type World } from './world/world.js';

/** How often, and how far apart, a cut looks for a connection in the middle of its work. */
const CUT_TRIES = 300;
const CUT_LOOK_MS = 0.3;
/** Until the peers of a node know that a lane of it died, also where the network stands still for a while. */
const DEATH_HEARD_MS = 1_200;
/** A freeze or stall that is longer, in heartbeats, may end streams. */
const HARMLESS_HEARTBEATS = 0.6;

export interface ClusterHooks {
  failed(check: string, message: string): void;
  /** A node stands. */
  made(node: SimNode): void;
  /** A lane is about to die. */
  laneDies(node: SimNode, lane: number): void;
}

export class Cluster {
  readonly nodes: SimNode[] = [];
  /** Lanes that died. */
  laneDeaths = 0;
  private readonly lastDeath = new Map<SimNode, number>();

  constructor(
    private readonly world: World,
    private readonly scenario: Scenario,
    private readonly hooks: ClusterHooks,
  ) {}

  make(options: Scenario['nodes'][number]): SimNode {
    const process = this.world.process();
    const node = new SimNode(process, { ...options, host: 'inline', bindAddress: process.host });
    this.nodes.push(node);
    this.world.post(process, 0.1, 'create', () => {
      Velo.create(node.options).then(
        (velo) => {
          node.velo = velo;
          this.hooks.made(node);
        },
        (error: unknown) => this.hooks.failed('create', describe(error)),
      );
    });
    return node;
  }

  /** Everybody who is there learns of everybody else. */
  introduceAll(): void {
    const alive = this.nodes.filter((node) => node.alive && node.velo !== undefined);
    for (const node of alive) this.world.post(node.process, 0.1, 'introduce', () => this.introduce(node));
    this.world.schedule.after(1, RANK_APP, undefined, 'known', () => {
      for (const node of alive) node.known = node.process.frozenUntil <= this.world.now;
    });
  }

  private introduce(node: SimNode): void {
    if (node.leaving) return;
    for (const other of this.nodes)
      if (other !== node && other.alive && other.velo !== undefined) node.velo.registerPeer(other.velo.peerInfo);
  }

  /** Nodes that take part. */
  ready(): SimNode[] {
    return this.nodes.filter((node) => node.alive && node.known && !node.leaving);
  }

  happen({ what, ms }: Incident): void {
    const { random, network, schedule } = this.world;
    const ready = this.ready();
    if (ready.length === 0) return;
    const victim = random.pick(ready);
    switch (what) {
      case 'freeze':
        victim.process.frozenUntil = Math.max(victim.process.frozenUntil, schedule.now + ms);
        if (ms > this.scenario.heartbeatMs * HARMLESS_HEARTBEATS) this.everybody(victim, 'frozen');
        return;
      case 'stall': {
        const other = random.pick(ready);
        if (other === victim) return;
        network.link(victim.process, other.process).stalledUntil = schedule.now + ms;
        if (ms > this.scenario.heartbeatMs * HARMLESS_HEARTBEATS)
          network.incidents.note(victim.process, other.process, 'stalled');
        return;
      }
      case 'cut':
        this.cut(random.chance(0.4) ? 0 : CUT_TRIES);
        return;
      case 'flush':
        this.world.post(victim.process, 0.01, 'flush', () => victim.velo.flushBatch());
        return;
      case 'drain':
        this.everybody(victim, 'drained');
        victim.leaving = true;
        this.world.post(victim.process, 0.01, 'drain', () => victim.velo.beginDrain());
        return;
      case 'close':
        this.everybody(victim, 'closed');
        victim.leaving = true;
        this.close(victim, 0.01);
        return;
      case 'lane':
        this.world.post(victim.process, 0.01, 'lane', () => this.killLane(victim));
        return;
      case 'kill':
      case 'restart':
        if (ready.length < 2 && what === 'kill') return;
        network.kill(victim.process, this.world.processes);
        if (what === 'restart') this.restart(victim);
        return;
      default:
        what satisfies never;
    }
  }

  private killLane(node: SimNode): void {
    if (!node.alive || node.leaving || !lanesStand(node.velo)) return;
    const lane = this.world.random.between(0, node.options.lanes! - 1);
    this.world.note(`lane ${lane} of n${node.number} dies`);
    this.laneDeaths += 1;
    this.lastDeath.set(node, this.world.now);
    this.hooks.laneDies(node, lane);
    killLane(node.velo, lane);
  }

  /** Every lane of the node runs, and its peers know that by now: what is written to a lane that died is lost. */
  stands(node: SimNode): boolean {
    return (
      lanesStand(node.velo) && this.world.now - (this.lastDeath.get(node) ?? Number.NEGATIVE_INFINITY) > DEATH_HEARD_MS
    );
  }

  /**
   * Cuts a connection: at once, or (`tries` looks) when one has bytes on their way and frames of its node wait for admission. Those are
   * refused, which ends an epoch, and what is on its way may come behind the new one.
   */
  private cut(tries: number): void {
    const { network, random, schedule } = this.world;
    const standing = network.standing();
    if (standing.length === 0) return;
    const waiting = tries === 0 ? [] : this.ready().filter(({ velo }) => awaitsAdmission(velo));
    const busy = standing.filter(
      ({ client }) => client.outgoing!.isBusy && waiting.some(({ process }) => process === client.owner),
    );
    if (tries > 0 && busy.length === 0)
      schedule.after(CUT_LOOK_MS, RANK_APP, undefined, 'look', () => this.cut(tries - 1));
    else network.cut(random.pick(tries === 0 ? standing : busy), 'cut');
  }

  /** Something befell a node, and so everything between it and others. */
  everybody(node: SimNode, what: string): void {
    for (const other of this.nodes)
      if (other !== node) this.world.network.incidents.note(node.process, other.process, what);
  }

  private restart(dead: SimNode): void {
    const node = this.make(this.scenario.nodes[this.nodes.indexOf(dead) % this.scenario.nodes.length]!);
    this.world.schedule.after(5, RANK_APP, undefined, 'restarted', () => {
      if (node.velo !== undefined) this.introduceAll();
    });
  }

  incidents(a: SimNode, b: SimNode): readonly string[] {
    return a === b ? [] : this.world.network.incidents.between(a.process, b.process);
  }

  /** Nothing befell what is between the node and any other. */
  isUntouched(node: SimNode): boolean {
    return this.nodes.every((other) => this.incidents(node, other).length === 0);
  }

  close(node: SimNode, inMs: number): void {
    this.world.post(node.process, inMs, 'close', () => {
      if (node.leaving && node.closed) return;
      node.leaving = true;
      const timeoutMs = this.world.random.pick([0, 300, 2_000]);
      void node.wait('node close', node.velo.close({ timeoutMs })).then(() => {
        node.closed = true;
      });
    });
  }
}
