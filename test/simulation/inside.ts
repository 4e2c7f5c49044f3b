// The one place that looks inside a node: what the checks read of its lanes, slots, rows and queues, as plain values. Whoever moves
// a private field of the library repairs it here and nowhere else. It must never change anything.

import type { Velo } from '../../lib/index.js';
import { IngressStream } from '../../lib/lanes/ingress-stream.js';
import { Lane } from '../../lib/lanes/lane.js';
import type { EgressSlot } from '../../lib/mux/egress-slot.js';
import type { IngressSlot } from '../../lib/mux/ingress-slot.js';
import type { IngressTable } from '../../lib/mux/ingress-table.js';
import type { MuxMetrics } from '../../lib/mux/mux-metrics.js';
import { PeerBatcher } from '../../lib/mux/peer-batcher.js';
import { observeMux } from './inside-mux.js';

interface ConnectionInside {
  readonly queuedFrames: number;
  readonly queuedBytes: number;
  readonly pendingFrames: number;
}

interface PeerInside {
  readonly workerHi: number;
  readonly workerLo: number;
  readonly batchers: readonly (PeerBatcher | undefined)[];
  readonly tables: readonly (IngressTable | undefined)[];
  readonly peerBudget: { readonly used: number };
  readonly connections: readonly (ConnectionInside | undefined)[];
}

interface LaneInside {
  readonly peers: { known(): readonly PeerInside[] };
}

/** The inline host: the seats in which its lanes run. */
interface HostInside {
  readonly seats: readonly { readonly running: Lane; readonly dead: boolean }[];
  terminate(lane: number, reason: string): void;
}

interface NodeInside {
  readonly parts: {
    readonly shutdown: { readonly host: HostInside };
    readonly plane: {
      liveRows(): { senders: number; receivers: number };
      readonly receiverEnds: readonly ({ readonly records?: { readonly length: number } } | undefined)[];
    };
    readonly calls: { readonly pending: number };
    readonly registry: { readonly active: number; readonly binds: { readonly size: number } };
  };
}

interface BatcherInside {
  readonly life: { readonly table: { snapshot(): EgressSlot[] } };
  readonly inbox: { readonly size: number };
}

interface TableInside {
  readonly epochHi: number;
  readonly epochLo: number;
  readonly directory: { readonly live: readonly IngressSlot[] };
}

function inside(node: Velo): NodeInside['parts'] {
  return (node as unknown as NodeInside).parts;
}

export function lanesOf(node: Velo): readonly Lane[] {
  return inside(node).shutdown.host.seats.map(({ running }) => running);
}

/** What a lane that the simulation ends dies of. */
const LANE_KILLED = 'ended by the simulation';

/** Ends a lane as its host does when its thread hangs. */
export function killLane(node: Velo, lane: number): void {
  inside(node).shutdown.host.terminate(lane, LANE_KILLED);
}

/** Lanes that have come to listen. */
const listening = new WeakSet<Lane>();

/** Every lane of the node runs. */
export function lanesStand(node: Velo): boolean {
  return inside(node).shutdown.host.seats.every(({ running, dead }) => !dead && listening.has(running));
}

/** The mux lane of a sender of this node to an anchor; undefined: it has no slot. */
export function muxLaneOf(node: Velo, anchor: bigint): number | undefined {
  for (const lane of lanesOf(node))
    for (const { egress } of slotsByPeer(lane))
      for (const [k, slots] of egress.entries()) if (slots.some((slot) => anchorOf(slot) === anchor)) return k;
  return undefined;
}

function anchorOf({ anchorHi, anchorLo }: EgressSlot): bigint {
  return (BigInt(anchorHi >>> 0) << 32n) | BigInt(anchorLo >>> 0);
}

export function metricsOf(lane: Lane): MuxMetrics {
  return lane.metrics;
}

function peersOf(lane: Lane): readonly PeerInside[] {
  return (lane as unknown as LaneInside).peers.known();
}

/** What a lane has with one peer, by mux lane. */
export interface PeerSlots {
  readonly workerId: bigint;
  readonly egress: readonly (readonly EgressSlot[])[];
  readonly ingress: readonly (readonly IngressSlot[])[];
}

export function slotsByPeer(lane: Lane): readonly PeerSlots[] {
  return peersOf(lane).map(({ workerHi, workerLo, batchers, tables }) => ({
    workerId: (BigInt(workerHi >>> 0) << 32n) | BigInt(workerLo >>> 0),
    egress: Array.from(batchers, (batcher) => (batcher === undefined ? [] : egressSlotsOf(batcher))),
    ingress: Array.from(tables, (table) => (table === undefined ? [] : ingressSlotsOf(table))),
  }));
}

export function budgetsOf(lane: Lane): readonly { used: number; limit: number }[] {
  const limit = lane.config.peerByteBudget;
  return peersOf(lane).map(({ peerBudget }) => ({ used: peerBudget.used, limit }));
}

export function connectionsOf(lane: Lane): readonly ConnectionInside[] {
  return peersOf(lane).flatMap(({ connections }) => connections.filter((connection) => connection !== undefined));
}

/** A frame waits for room in one of its connections. */
export function awaitsAdmission(node: Velo): boolean {
  return lanesOf(node).some((lane) => connectionsOf(lane).some(({ pendingFrames }) => pendingFrames > 0));
}

export function batchersOf(lane: Lane): readonly PeerBatcher[] {
  return lane.batchers;
}

/** Slots of ours that are not over. */
export function egressSlotsOf(batcher: PeerBatcher): readonly EgressSlot[] {
  return (batcher as unknown as BatcherInside).life.table.snapshot();
}

/** Control that waits in a batcher. */
export function controlOf(batcher: PeerBatcher): number {
  return (batcher as unknown as BatcherInside).inbox.size;
}

/** Slots of peers that are not over, those moved aside included. */
export function ingressSlotsOf(table: IngressTable): readonly IngressSlot[] {
  return (table as unknown as TableInside).directory.live;
}

/** The epoch that a table has seen last. */
export function epochOf(table: IngressTable): number {
  const { epochHi, epochLo } = table as unknown as TableInside;
  return epochHi * 2 ** 32 + epochLo;
}

/** Records that stand before each reader of a node. */
export function unreadOf(node: Velo): readonly number[] {
  return inside(node).plane.receiverEnds.map((end) => end?.records?.length ?? 0);
}

export function tablesOf(lane: Lane): readonly IngressTable[] {
  return [...lane.peers.tables()];
}

/** What a node still has in hand. All of it is 0 when it is closed. */
export function leftovers(node: Velo): Record<string, number> {
  const { plane, calls, registry } = inside(node);
  // As the node says them: what a lane that died had counted is void.
  const { liveSlots, heldRecords, withheldRecords, stagedRecords } = node.stats();
  const heldBytes = lanesOf(node)
    .flatMap(budgetsOf)
    .reduce((sum, { used }) => sum + used, 0);
  return {
    senders: plane.liveRows().senders,
    receivers: plane.liveRows().receivers,
    calls: calls.pending,
    anchors: registry.active,
    liveSlots,
    heldRecords,
    withheldRecords,
    stagedRecords,
    heldBytes,
  };
}

/** What a node's lanes say of the streams to one anchor, as text: for messages of failures. */
export function describeSlots(node: Velo, anchor: bigint): string {
  const found: string[] = [];
  const hi = Number(anchor >> 32n);
  const lo = Number(anchor & 0xffff_ffffn);
  for (const lane of lanesOf(node)) {
    for (const { egress } of slotsByPeer(lane))
      for (const slot of egress.flat()) {
        if (slot.anchorHi >>> 0 !== hi || slot.anchorLo >>> 0 !== lo) continue;
        const { id, state, credit, nextSeq, withheld, inlet, inletState } = slot;
        found.push(
          `sends as slot ${id >>> 8}.${id & 0xff}: state ${state}, credit ${credit}, next ${nextSeq}, ${withheld.length} withheld, ` +
            `${inlet.length} stand, inlet ${inletState}`,
        );
      }
  }
  return found.join('; ');
}

/** A node's slots of peers, as text. */
export function describeReceivers(node: Velo): string {
  const found: string[] = [];
  for (const lane of lanesOf(node))
    for (const { ingress } of slotsByPeer(lane))
      for (const { id, next, outstanding, ungranted, limit, heldRecords, closeSeq } of ingress.flat())
        found.push(
          `receives as slot ${id >>> 8}.${id & 0xff}: next ${next}, ${outstanding}+${ungranted} of ${limit}, held ${heldRecords}, ` +
            `close ${closeSeq}`,
        );
  return found.join('; ');
}

/** Sums of what a node counted, by name: for asking whether runs met what they are meant to meet. */
export function addCounters(node: Velo, into: Record<string, number>): void {
  const add = (name: string, value: unknown) => {
    if (typeof value === 'number') into[name] = (into[name] ?? 0) + value;
  };
  for (const lane of lanesOf(node)) for (const [name, value] of Object.entries(metricsOf(lane))) add(name, value);
  const { sendBackpressure, connectFailures, connectionsClosed, drainRejected } = node.stats();
  for (const [name, value] of Object.entries({ sendBackpressure, connectFailures, connectionsClosed, drainRejected }))
    add(name, value);
}

// ---- observers: methods that are wrapped for the time of a run, and do what they did

interface BatcherTurn {
  turn(): void;
  readonly gate: { readonly kicked: boolean; readonly staged: number };
  readonly ready: { readonly isEmpty: boolean };
  readonly parked: boolean;
}

/** Reports what no state shows afterwards. Call what is returned to end it. */
export function observe(report: (check: string, message: string) => void): () => void {
  const stream = IngressStream.prototype;
  const { deliver, slotClosed } = stream;
  const ended = new WeakSet<IngressStream>();
  const closed = new WeakSet<IngressStream>();
  stream.deliver = function (this: IngressStream, source, offset, length, terminal) {
    if (ended.has(this)) report('second terminal', `row ${this.row} was given a record behind its terminal`);
    if (closed.has(this)) report('after the end', `row ${this.row} was given a record behind its close`);
    if (terminal) ended.add(this);
    return deliver.call(this, source, offset, length, terminal);
  };
  stream.slotClosed = function (this: IngressStream) {
    if (closed.has(this)) report('closed twice', `row ${this.row}`);
    closed.add(this);
    slotClosed.call(this);
  };
  const batcher = PeerBatcher.prototype as unknown as BatcherTurn;
  const { turn } = batcher;
  batcher.turn = function (this: BatcherTurn) {
    const { kicked } = this.gate;
    turn.call(this);
    if (!kicked) return;
    if (this.parked ? !this.gate.kicked && !this.ready.isEmpty : this.gate.staged > 0)
      report('kick lost', `${this.gate.staged} records are staged behind a kick, parked: ${this.parked}`);
  };
  const { fail, start } = Lane.prototype;
  Lane.prototype.start = async function (this: Lane) {
    const started = await start.call(this);
    listening.add(this);
    return started;
  };
  Lane.prototype.fail = function (this: Lane, error: unknown) {
    if (!(error instanceof Error && error.message === LANE_KILLED))
      report('lane died', error instanceof Error ? (error.stack ?? error.message) : String(error));
    fail.call(this, error);
  };
  const unobserveMux = observeMux(report);
  return () => {
    unobserveMux();
    Lane.prototype.start = start;
    Lane.prototype.fail = fail;
    stream.deliver = deliver;
    stream.slotClosed = slotClosed;
    batcher.turn = turn;
  };
}
