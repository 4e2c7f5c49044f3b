// One client thread's side of the plane: its rows, its ports to every lane, and who is behind each row. It allocates rows,
// hands records and flags to their owners, and frees a row only when both sides are done with it. It knows no protocol.

import { VeloError } from '../errors.js';
import { buryReceiver, burySender } from '../plane/burial.js';
import type { ClientRows } from '../plane/conduit.js';
import { BLOCK_SLICE_MS, RECEIVER_CANCEL, RECEIVER_STOP } from '../plane/rows.js';
import { ClientPort, type PortEvents } from './client-port.js';
import { EV_DATA, EV_RETIRED, routeNumber, rowIdentity, tagGeneration, tagRow } from './commands.js';
import { FreeRows } from './free-rows.js';
import type { LaneLink } from './host.js';
import { LaneEstate, type OrphanSlot } from './lane-estate.js';
import { type MessageEvents, tellMessages } from './message-events.js';
import { Sleeper } from './sleeper.js';

/** Who is behind a sender row. */
export interface SenderEnd {
  /** Flags or room changed. */
  attention(flags: number): void;
  /** The lane died: nothing of this row comes any more. */
  laneDied(error: VeloError): void;
  /** Gives its row back if both sides are done with it. */
  reap(): void;
}

/** Who is behind a receiver row. */
export interface ReceiverEnd {
  /** The lane that its sender was told to ride. */
  readonly lane: number;
  /** One stream frame; the bytes are only valid during the call. True asks for `wake` at the end of the burst. */
  record(bytes: Uint8Array, offset: number, length: number): boolean;
  /** The slot is gone; everything it delivered came before. `discard`: what was not read of that is void. */
  retired(discard: boolean): void;
  /** A burst ended. */
  wake(): void;
  /** The lane died: the stream ends with this error after what was delivered. */
  laneDied(error: VeloError): void;
}

export interface Row {
  row: number;
  generation: number;
  /** The u64 that names this life to peers. */
  identity: number;
}

export class ClientPlane {
  readonly ports: ClientPort[] = [];
  private readonly sleepers: Sleeper[] = [];
  private readonly senderEnds: (SenderEnd | undefined)[] = [];
  private readonly senderPorts: number[] = [];
  /** By lane: who must hear of it when it dies. */
  private readonly estates: LaneEstate[] = [];
  private readonly receiverEnds: (ReceiverEnd | undefined)[] = [];
  private readonly receiverGenerations: number[] = [];
  private readonly freeSenders: FreeRows;
  private readonly freeReceivers: FreeRows;
  private woken: ReceiverEnd[] = [];
  private spare: ReceiverEnd[] = [];
  private inBurst = false;
  private readonly ringAfterBurst: boolean[] = [];
  private liveSenders = 0;
  private liveReceivers = 0;

  constructor(
    readonly rows: ClientRows,
    links: readonly LaneLink[],
    private readonly messages: MessageEvents,
    private readonly maxStreams: number,
    private readonly deferred: boolean,
    /** Number of this client thread on its node. */
    private readonly thread = 0,
  ) {
    this.freeSenders = new FreeRows(rows.senders.count);
    this.freeReceivers = new FreeRows(rows.receivers.count);
    for (const [lane, link] of links.entries()) this.join(lane, link);
  }

  /** From now on the conduit is the way to that lane. */
  private join(lane: number, { conduit, parcelsOut, parcelsIn, hookClient }: LaneLink): void {
    const { senders } = this.rows;
    const port = new ClientPort(conduit, parcelsOut, parcelsIn, this.eventsOf(lane), senders.count, this.deferred);
    const source = { work: () => port.drain(), hasWork: () => port.hasWork() };
    const sleeper = new Sleeper(conduit.memory, conduit.clientBell, source, hookClient !== undefined);
    hookClient?.(sleeper.hook);
    this.ports[lane] = port;
    this.sleepers[lane] = sleeper;
    this.estates[lane] ??= new LaneEstate();
  }

  /**
   * A new lane takes the place of one that died. Returns what that one left, and others before it whose successors died before they
   * ran.
   */
  laneBack(lane: number, link: LaneLink): LaneEstate {
    this.join(lane, link);
    this.sleepers[lane]!.run();
    return this.estates[lane]!;
  }

  /** The new lane runs: it has read what it was told of the dead. */
  laneRuns(lane: number): void {
    this.estates[lane]!.taken(performance.now());
  }

  /** Live senders and receivers of this thread. */
  liveRows(): { senders: number; receivers: number } {
    this.reapSenders();
    return { senders: this.liveSenders, receivers: this.liveReceivers };
  }

  start(): void {
    for (const sleeper of this.sleepers) sleeper.run();
  }

  /** The node is closed: whatever still tries to send fails with `error`. */
  stop(error: VeloError): void {
    for (const port of this.ports) port.close(error);
    for (const sleeper of this.sleepers) sleeper.stop();
  }

  /** Everything sent so far, on every lane, leaves now. */
  flush(): void {
    for (const port of this.ports) port.kick();
  }

  port(lane: number): ClientPort {
    return this.ports[lane]!;
  }

  // -- sender rows

  allocateSender(end: SenderEnd): Row {
    if (this.liveSenders >= this.maxStreams) this.reapSenders();
    const row = this.liveSenders >= this.maxStreams ? -1 : this.freeSenders.take();
    if (row < 0) throw new VeloError('ERR_LIMIT', `maxStreams: ${this.maxStreams} senders are open on this node`);
    this.liveSenders++;
    this.senderEnds[row] = end;
    this.senderPorts[row] = -1;
    const generation = this.rows.senders.allocate(row);
    return { row, generation, identity: rowIdentity(generation, this.thread, row) };
  }

  /** A lane does not wake this thread for a row that nobody waits for: those that it is done with are found here. */
  private reapSenders(): void {
    for (const end of this.senderEnds) end?.reap();
  }

  /** Names the lane that serves the row, and the peer and mux lane that its slot is opened to. */
  assignSender(row: number, lane: number, peer: number, muxLane: number): void {
    this.senderPorts[row] = lane;
    this.estates[lane]!.opens(routeNumber(peer, muxLane));
  }

  /** Tells the lane that the row ends after `count` records. */
  endSender(row: number, ending: number, count: number): void {
    const port = this.ports[this.senderPorts[row]!]!;
    this.rows.senders.end(row, ending, count);
    if (!port.conduit.endings.add(row)) return;
    // Behind unpublished data of a pass, the ending goes with them: the publish rings.
    if (port.conduit.egress.hasUnpublished) port.committed();
    else port.conduit.workerBell.ring();
  }

  /** The lane that serves the row looks at its flags: somebody else has set one. */
  nameSender(row: number): void {
    const { conduit } = this.ports[this.senderPorts[row]!]!;
    if (conduit.endings.add(row)) conduit.workerBell.ring();
  }

  /** Wakes this thread when the row retires. Look at its flags again after it. */
  watchSender(row: number): void {
    this.rows.senders.watch(row);
  }

  /** The lane is done with the row, or never had it. */
  freeSender(row: number): void {
    this.senderEnds[row] = undefined;
    this.liveSenders--;
    this.freeSenders.put(row);
  }

  // -- receiver rows

  allocateReceiver(end: ReceiverEnd): Row {
    const row = this.liveReceivers >= this.maxStreams ? -1 : this.freeReceivers.take();
    if (row < 0) throw new VeloError('ERR_LIMIT', `maxStreams: ${this.maxStreams} streams are bound on this node`);
    this.liveReceivers++;
    const generation = this.rows.receivers.allocate(row);
    this.receiverEnds[row] = end;
    this.receiverGenerations[row] = generation & 0xffff;
    return { row, generation, identity: rowIdentity(generation, this.thread, row) };
  }

  /** The sender of the row waits for room: the lane looks at it now, and again when it pulls. */
  awaitSender(row: number): void {
    const conduit = this.ports[this.senderPorts[row]!]!.conduit;
    this.rows.senders.setWaiting(row);
    if (conduit.endings.add(row)) conduit.workerBell.ring();
  }

  /** Blocks until the sender may have room, its stream is over, or about `timeoutMs` have passed. */
  blockSender(row: number, sent: number, depth: number, timeoutMs: number): void {
    const port = this.ports[this.senderPorts[row]!]!;
    port.publish();
    port.conduit.endings.add(row);
    port.conduit.workerBell.ring();
    this.rows.senders.block(row, sent, depth, Math.max(1, Math.ceil(timeoutMs / BLOCK_SLICE_MS)));
  }

  /** Counts `n` records as taken by the application. */
  drained(row: number, n: number): void {
    const lane = this.rows.receivers.claimedBy(row);
    if (lane < 0) return;
    this.rows.receivers.addDrained(row, n);
    const { drains, drainMute, workerBell } = this.ports[lane]!.conduit;
    if (!drains.add(row) || drainMute.isSet) return;
    if (this.inBurst) this.ringAfterBurst[lane] = true;
    else workerBell.ring();
  }

  /**
   * The consumer lets go of the stream: a claimed slot is closed and its producer told. The row is free at once when nobody had
   * claimed it (returns true), else when its lane retires it.
   */
  releaseReceiver(row: number): boolean {
    if (this.releaseUnclaimed(row)) return true;
    this.requestReceiver(row, RECEIVER_CANCEL);
    return false;
  }

  /** Takes back a bind that nobody has claimed. False: somebody has. */
  releaseUnclaimed(row: number): boolean {
    if (!this.rows.receivers.release(row)) return false;
    this.freeReceiver(row);
    return true;
  }

  /** Asks the producer of a claimed stream to stop. An unclaimed bind keeps the wish until it is claimed. */
  requestStop(row: number): void {
    this.requestReceiver(row, RECEIVER_STOP);
  }

  private requestReceiver(row: number, request: number): void {
    this.rows.receivers.request(row, request);
    const lane = this.rows.receivers.claimedBy(row);
    if (lane < 0) return;
    const conduit = this.ports[lane]!.conduit;
    // Always: the bit may stand already, put there by a drain that nobody needed to ring for.
    conduit.drains.add(row);
    conduit.workerBell.ring();
  }

  private freeReceiver(row: number): void {
    this.receiverEnds[row] = undefined;
    this.liveReceivers--;
    this.freeReceivers.put(row);
  }

  // -- what the lanes say

  private eventsOf(lane: number): PortEvents {
    return {
      record: (kind, tag, bytes, offset, length) => this.onRecord(lane, kind, tag, bytes, offset, length),
      attention: (row) => this.onAttention(row),
      burstEnd: () => this.onBurstEnd(),
      broken: (error) => this.messages.laneBroken(lane, error),
    };
  }

  private onRecord(lane: number, kind: number, tag: number, bytes: Uint8Array, offset: number, length: number): void {
    if (kind === EV_DATA) {
      const row = tagRow(tag);
      const end = this.receiverEnds[row];
      if (end === undefined || this.receiverGenerations[row] !== tagGeneration(tag)) return;
      if (end.record(bytes, offset, length)) this.woken.push(end);
      return;
    }
    if (kind === EV_RETIRED) this.onRetired(lane, tag, length > 0);
    else tellMessages(this.messages, lane, kind, tag, bytes, offset, length);
  }

  private onRetired(lane: number, tag: number, discard: boolean): void {
    const row = tagRow(tag);
    const end = this.receiverEnds[row];
    if (end === undefined || this.receiverGenerations[row] !== tagGeneration(tag)) return;
    const { receivers } = this.rows;
    if (discard || (receivers.requests(row) & RECEIVER_CANCEL) !== 0) {
      const slot = receivers.slotOf(row);
      if (slot !== undefined) this.estates[lane]!.cancelled(slot, performance.now());
    }
    receivers.free(row);
    this.freeReceiver(row);
    end.retired(discard);
  }

  private onAttention(row: number): void {
    this.senderEnds[row]?.attention(this.rows.senders.flags(row));
  }

  /** Wakes whoever the burst was for. What they take at once is announced with one ring, so that one visit finds all of it. */
  private onBurstEnd(): void {
    const woken = this.woken;
    this.woken = this.spare;
    this.inBurst = true;
    for (const end of woken) end.wake();
    this.inBurst = false;
    woken.length = 0;
    this.spare = woken;
    for (let lane = 0; lane < this.ports.length; lane++) {
      if (this.ringAfterBurst[lane] !== true) continue;
      this.ringAfterBurst[lane] = false;
      this.ports[lane]!.conduit.workerBell.ring();
    }
  }

  /** The lanes are gone: what they had published is whole, and whatever is still open then ends with `error`. */
  endAll(error: VeloError): void {
    for (const port of this.ports) while (port.drain());
    for (let row = 0; row < this.senderEnds.length; row++) this.endSenderRow(row, error);
    for (const end of this.receiverEnds) end?.laneDied(error);
  }

  private endSenderRow(row: number, error: VeloError): void {
    const end = this.senderEnds[row];
    if (end === undefined) return;
    burySender(this.rows.senders, row);
    end.laneDied(error);
  }

  /** Ends every row that the lane served, and everything that waits for it. */
  laneDied(lane: number, error: VeloError): void {
    const port = this.ports[lane]!;
    // What the lane had published is whole, and came before its death.
    while (port.drain());
    port.close(error);
    this.sleepers[lane]!.stop();
    for (let row = 0; row < this.senderEnds.length; row++) {
      if (this.senderPorts[row] === lane) this.endSenderRow(row, error);
    }
    this.estates[lane]!.died(this.buryReceivers(lane, error), performance.now());
    this.messages.laneDied(lane, error);
  }

  /** Returns the slots that were open. */
  private buryReceivers(lane: number, error: VeloError): OrphanSlot[] {
    const { receivers } = this.rows;
    const orphans: OrphanSlot[] = [];
    for (let row = 0; row < this.receiverEnds.length; row++) {
      const end = this.receiverEnds[row];
      if (end === undefined) continue;
      const orphan = receivers.slotOf(row);
      // A sender with fewer lanes than it was told of comes to lane 0.
      if (!buryReceiver(receivers, row, lane, lane === 0 || end.lane === lane)) continue;
      if (orphan !== undefined) orphans.push(orphan);
      this.freeReceiver(row);
      end.laneDied(error);
    }
    return orphans;
  }
}
