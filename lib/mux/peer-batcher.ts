// The egress of one (peer, lane): slots of ours in, batches out. Owns the order of things in a wake (opens, replies,
// control, slots, flush) and the life of the epoch; it must never read a clock, a socket or a ring: a lane drives it
// and carries out what it asks.
//
// A wake is whatever the lane does in one turn: `accept`, `terminal`, posts to `control`, … then `run` at a published
// tail. A parked batcher (its last batch waits for admission) takes nothing from any inlet and submits nothing; what
// arrives stands, bounded, until the answer. A singleton parks nobody: its slot is fenced, and others go on.

import { VeloError } from '../errors.js';
import { LIFECYCLE_CANCEL, RECORD_HEADER_LEN } from '../wire/batch.js';
import { MAX_U32 } from '../wire/bytes.js';
import type { BatchManifest, LifecycleReply } from './batch-manifest.js';
import { BatchWriter, BLOCKED, type WriterEvents } from './batch-writer.js';
import { ControlInbox, type ControlListener } from './batcher-control.js';
import type { BatcherPort, ControlSink, PeerBatcherOptions, Runnable, SlotOwner } from './batcher-types.js';
import { ByteMeter } from './byte-meter.js';
import { type EgressSlot, INLET_LIVE, SLOT_CLOSED, SLOT_QUEUED } from './egress-slot.js';
import { FlushGate } from './flush-gate.js';
import { DEFAULT_SLOT_BYTE_BUDGET } from './mux-config.js';
import type { MuxMetrics } from './mux-metrics.js';
import { OpenQueue } from './open-queue.js';
import { ReadyList } from './ready-list.js';
import { RecentCancels } from './recent-cancels.js';
import { ReplyStage } from './reply-stage.js';
import { behindShare, type SingletonListener, Singletons } from './singletons.js';
import { SlotEmitter } from './slot-emitter.js';
import { CONTROL_EPOCH_OVER, CONTROL_SERVE, SlotLife } from './slot-life.js';
import { isTerminal } from './terminal-test.js';
import {
  countWake,
  WAKE_CONTROL,
  WAKE_FRAME,
  WAKE_INLET_CLOSED,
  WAKE_LINGER,
  WAKE_NONE,
  WAKE_OPEN,
  type WakeSource,
} from './wake-source.js';

export class PeerBatcher implements Runnable, WriterEvents, ControlListener, SingletonListener {
  readonly lane: number;
  /** Names the peer to people. */
  readonly peer: string;
  /** Where ingress and the lane post control and replies. */
  readonly control: ControlSink;

  private readonly label: string;
  private readonly port: BatcherPort;
  private readonly metrics: MuxMetrics;
  private readonly sweepIntervalMs: number;
  private readonly gate: FlushGate;
  private readonly writer: BatchWriter;
  private readonly life: SlotLife;
  private readonly inbox: ControlInbox;
  private readonly replies: ReplyStage;
  private readonly ready = new ReadyList();
  private readonly singletons: Singletons;
  private readonly emitter: SlotEmitter;
  private readonly meter: ByteMeter;
  /** The gate's, kept at hand for the per-record path. */
  private readonly stamps: boolean;
  private readonly opens: OpenQueue;
  private readonly recentCancels = new RecentCancels<LifecycleReply>();

  /** `schedule` was called and `run` did not come yet. */
  private scheduled = false;
  private wake: WakeSource = WAKE_NONE;
  /** When to try again with replies that a refused batch left behind. */
  private retryAt = Number.POSITIVE_INFINITY;
  /** The last drain stopped on its way to the slots: the next one begins with them. */
  private slotsFirst = false;
  /** A kick came while records stood behind a singleton: they go when they may, without another. */
  private kickOwed = false;
  private over = false;
  private idleTicks = 0;

  constructor(options: PeerBatcherOptions) {
    const { peerLabel, lane, lanes = 1, config, port, metrics, meter = new ByteMeter() } = options;
    this.lane = lane;
    this.peer = peerLabel;
    this.label = `peer ${peerLabel} lane ${lane}`;
    this.port = port;
    this.metrics = metrics;
    this.sweepIntervalMs = config.creditSweepIntervalMs;
    this.gate = new FlushGate(config.flushPolicy, config.replyLingerMs, port);
    this.stamps = this.gate.stamps;
    this.life = new SlotLife(this.gate, metrics, port, this.label, options.firstGeneration ?? 0);
    this.writer = new BatchWriter(port, this.gate, metrics, this, config.maxBatchBytes, lane);
    this.inbox = new ControlInbox(this.life.table, metrics, this);
    this.control = this.inbox;
    this.replies = new ReplyStage(this.writer, this.gate, metrics);
    const { writer, gate, life, inbox, ready, sweepIntervalMs } = this;
    const share = behindShare(lanes);
    this.singletons = new Singletons(writer, port, metrics, life, inbox, ready, this, sweepIntervalMs, share);
    const { singletons, label } = this;
    this.opens = new OpenQueue(writer, life, ready, singletons, config.asyncOpenAck);
    this.emitter = new SlotEmitter(writer, gate, metrics, ready, life, singletons, config.maxRecordBytes, label, meter);
    this.meter = meter;
    this.writer.startEpoch();
  }

  /** Slots of ours that are not over. */
  get liveSlots(): number {
    return this.life.table.live;
  }

  /** A batch waits for admission. */
  get parked(): boolean {
    return this.writer.parked;
  }

  /** Every batch that was handed over was admitted or refused. */
  get settled(): boolean {
    return !this.writer.parked && !this.singletons.onTheirWay;
  }

  /** Records lie staged for the peer, which may not have fetched them yet; their slots may be over. */
  get hasUnfetched(): boolean {
    return this.singletons.unfetched;
  }

  /** `shutdown` was called. */
  get closed(): boolean {
    return this.over;
  }

  /** The epoch the next batch carries. */
  get epoch(): number {
    return this.writer.epoch;
  }

  /** Records in the open batch. */
  get staged(): number {
    return this.gate.staged;
  }

  /** Nothing is live, staged, owed or on its way: evicting the batcher now loses nothing. */
  get idle(): boolean {
    return (
      this.life.table.live === 0 && !this.scheduled && this.nothingToWrite && !this.singletons.holdBack && this.settled
    );
  }

  /**
   * Opens a slot: what is staged goes first, then OpenSlot alone in its own batch. While parked the open waits in line.
   * Records given to the slot before `owner.opened` stay in order behind it.
   *
   * @throws VeloError `ERR_CLOSED` after shutdown, `ERR_SLOTS_EXHAUSTED` when no index is free.
   */
  open(
    owner: SlotOwner,
    anchorHi: number,
    anchorLo: number,
    sessionHi: number,
    sessionLo: number,
    credit: number,
    byteBudget: number,
  ): EgressSlot {
    if (this.over) throw new VeloError('ERR_CLOSED', `${this.label}: the batcher is shut down`);
    const budget = byteBudget > 0 ? byteBudget : DEFAULT_SLOT_BYTE_BUDGET;
    const terms = { anchorHi, anchorLo, sessionHi, sessionLo, credit, byteBudget: budget, meter: this.meter };
    const slot = this.life.start(owner, terms);
    this.noteWake(WAKE_OPEN);
    this.opens.add(slot);
    this.opens.pump();
    return slot;
  }

  /**
   * One frame from the sender's ring. Bytes are copied. It joins the open batch, waits for credit in the withheld
   * queue, or stands in the inlet while the batcher is parked or the slot paused; `slot.pulledTotal` moves unless it
   * stands. A frame for a slot that is over is dropped.
   *
   * @throws VeloError `ERR_INTERNAL` when more than C+1 records would stand (the client does not count),
   *   `ERR_FRAME_TOO_LARGE` above `maxRecordBytes`. Both end the slot: the peer hears PeerGone.
   */
  accept(slot: EgressSlot, src: Uint8Array, off: number, len: number): void {
    const writer = this.writer;
    const need = RECORD_HEADER_LEN + len;
    // One open batch implies not parked: a parked batcher has none, and no room.
    if (slot.direct && need <= writer.room && slot.credit !== 0 && !isTerminal(src, off, len)) {
      slot.credit -= 1;
      const seq = slot.nextSeq;
      writer.data(slot.id, seq, src, off, len);
      if (seq < MAX_U32) slot.nextSeq = seq + 1;
      slot.pulledTotal = (slot.pulledTotal + 1) >>> 0;
      this.gate.stage();
      if (this.stamps) this.gate.stamp(slot);
      this.metrics.stagedRecords += 1;
      if (!this.scheduled || this.wake === WAKE_NONE) this.noteWake(WAKE_FRAME);
    } else {
      // The wake first: what follows may throw, and has then staged a close.
      this.noteWake(WAKE_FRAME);
      this.emitter.accept(slot, src, off, len);
    }
  }

  /**
   * The stream's last frame, after everything accepted. Keep the bytes unchanged until `closed`. Ignored (false) when the
   * inlet has ended.
   */
  terminal(slot: EgressSlot, bytes: Uint8Array): boolean {
    if (slot.state === SLOT_CLOSED || slot.inletState !== INLET_LIVE) return false;
    this.noteWake(WAKE_FRAME);
    this.emitter.endInlet(slot, bytes);
    return true;
  }

  /**
   * A heartbeat the lane makes for the slot: a data record like any other, but its batch goes within the reply linger
   * under every policy, or a manual producer that pauses would look dead. Dropped (false) when it could not go now: a
   * sender without credit is not suspected, and one with records in front of it will be heard through those.
   */
  heartbeat(slot: EgressSlot): boolean {
    if (!slot.clear || this.writer.parked || slot.credit === 0) {
      // The credit may have gone into records that nobody has flushed: then those are the sign of life, and must not wait longer.
      if (!this.writer.parked) this.gate.limitWait();
      return false;
    }
    this.noteWake(WAKE_LINGER);
    return this.emitter.emitHeartbeat(slot);
  }

  /** The sender is gone without a terminal: CloseSlot{PeerGone} after everything accepted. */
  inletClosed(slot: EgressSlot): void {
    if (slot.state === SLOT_CLOSED || slot.inletState !== INLET_LIVE) return;
    this.noteWake(WAKE_INLET_CLOSED);
    this.emitter.endInlet(slot, undefined);
  }

  /** Nothing more of this stream is wanted: what it still has is dropped, and CloseSlot{PeerGone} goes. */
  abandon(slot: EgressSlot): void {
    if (slot.state === SLOT_CLOSED) return;
    this.noteWake(WAKE_INLET_CLOSED);
    if (slot.state === SLOT_QUEUED) {
      this.opens.forget(slot);
      this.life.close(slot, 'abandoned');
    } else this.emitter.dropQueued(slot);
  }

  /**
   * Shows the peer that this epoch has begun, with a batch without a record if need be: what it keeps of an older one is over. For the
   * batcher of a lane that takes the place of a dead one. Nothing when a batch of this epoch has gone already.
   */
  showEpoch(): void {
    if (this.over || !this.writer.isUnshown) return;
    if (this.writer.isOpen || this.writer.makeRoom(0) !== BLOCKED) this.writer.flush();
  }

  /** A moment passed. Returns how many have since the batcher last had something to do; 0 when it has now. */
  idleTick(): number {
    this.idleTicks = this.idle ? this.idleTicks + 1 : 0;
    return this.idleTicks;
  }

  /**
   * The application's flush: everything staged and everything that stands goes now, as one batch but for clamps. While
   * parked it is remembered once.
   */
  kick(): void {
    if (this.over) return;
    if (this.singletons.holdBack) this.kickOwed = true;
    if (this.nothingToWrite) return;
    this.gate.kick();
    if (this.writer.parked) return;
    if (this.wake === WAKE_NONE) this.wake = WAKE_CONTROL;
    this.turn();
  }

  /**
   * The end of a wake: drains what stands and writes the batch if it is due. Also called when `deadline` has passed.
   * While parked it only applies what the peer says about our slots: a producer must hear a cancel from a congested
   * peer.
   */
  run(): void {
    const called = this.scheduled;
    this.scheduled = false;
    if (this.over) return;
    if (this.writer.parked) {
      this.inbox.applyOwn(this.applyControl);
      return;
    }
    if (!called && this.wake === WAKE_NONE && (this.gate.shouldFlush(this.writer.bytes) || this.retryIsDue))
      this.wake = WAKE_LINGER;
    if (this.singletons.retryAt !== Number.POSITIVE_INFINITY && this.retryIsDue) this.singletons.retry();
    this.turn();
  }

  private get retryIsDue(): boolean {
    return this.port.now() >= Math.min(this.retryAt, this.singletons.retryAt);
  }

  /**
   * When `run` must be called even if nothing happens before; Infinity: never. Read it after every call into the
   * batcher of a turn.
   */
  deadline(): number {
    if (this.over || this.writer.parked) return Number.POSITIVE_INFINITY;
    return Math.min(this.gate.deadline(), this.retryAt, this.singletons.retryAt);
  }

  /** Room for staged batches came back, on this lane or another. */
  stagingFreed(): void {
    if (!this.over && this.singletons.retryAt !== Number.POSITIVE_INFINITY) this.singletonsMoved();
  }

  /** The transport's answer to the batch that `submit` left PENDING. Refused: the epoch is over. */
  admission(ok: boolean): void {
    this.writer.admission(ok);
    // After a refusal only replies can be left, and those wait for `retryAt`; opens stand if the epoch had ended before
    // the answer.
    if (!this.over && (ok || !this.opens.isEmpty)) this.scheduleRun();
  }

  /**
   * The peer's view of this (peer, lane) is void: every live slot closes, the open batch is thrown away, batches start
   * again at 0 in a new epoch. Nothing is sent. Replies of the thrown-away batch wait for the next one. `reason` goes
   * nowhere but into the error of a bug.
   */
  epochDeath(reason: string): void {
    if (this.over) return;
    this.endEpoch(reason);
    if (this.inbox.owesReplies && !this.writer.parked) this.scheduleRun();
  }

  /** A cancel went so lately that `repeatCancels` would say it again: letting go of the batcher now could lose it. */
  get mayRepeatCancels(): boolean {
    return this.recentCancels.any(this.port.now());
  }

  /** The connection is gone, and with it whatever had not arrived: cancels are said again. Nothing else is sent twice. */
  repeatCancels(): void {
    for (const { slotId, sessionHi, sessionLo, action } of this.recentCancels.take(this.port.now()))
      this.inbox.replyLifecycle(slotId, sessionHi, sessionLo, action);
  }

  /**
   * Writes what it may, then closes everything for good. Replies posted before this call leave with the last batch
   * unless the peer is congested.
   */
  shutdown(): void {
    if (this.over) return;
    if (!this.writer.parked && this.drain() && this.gate.staged > 0) this.writer.flush();
    if (this.life.table.live > 0 || this.writer.isOpen) this.endEpoch('shutdown');
    this.over = true;
    this.scheduled = false;
    this.inbox.close();
    this.singletons.shutdown();
  }

  /** No batch is open or on its way, and nothing stands that could open one. */
  private get nothingToWrite(): boolean {
    return !this.writer.parked && !this.writer.isOpen && this.opens.isEmpty && this.ready.isEmpty && this.inbox.isEmpty;
  }

  // -- what the writer and the inbox report

  batchAdmitted(manifest: BatchManifest): void {
    for (const reply of manifest.lifecycleReplies)
      if (reply.action === LIFECYCLE_CANCEL) this.recentCancels.note(reply, this.port.now());
    if (manifest.opened !== undefined) this.life.opened(manifest.opened);
    for (const slot of manifest.terminals) this.life.retire(slot, 'sent');
  }

  batchRefused(manifest: BatchManifest): void {
    this.inbox.repost(manifest, false);
    for (const slot of manifest.terminals) this.life.retire(slot, 'discarded');
    if (!manifest.stale) this.endEpoch('a batch was refused');
    this.retryReplies();
  }

  closePosted(cancel: LifecycleReply): void {
    this.recentCancels.note(cancel, this.port.now());
  }

  controlPosted(): void {
    this.noteWake(WAKE_CONTROL);
  }

  singletonRefused(): void {
    this.endEpoch('a singleton was refused');
    this.retryReplies();
  }

  /** The drain stops here: what it left of the replies goes a little later, if nothing happens before. */
  private retryReplies(): void {
    if (this.inbox.owesReplies) this.retryAt = this.port.now() + this.sweepIntervalMs;
  }

  singletonsMoved(): void {
    if (this.over) return;
    this.singletons.retry();
    if (this.kickOwed) this.gate.kick();
    this.noteWake(WAKE_CONTROL);
  }

  // -- the wake

  private noteWake(source: WakeSource): void {
    this.idleTicks = 0;
    if (this.wake === WAKE_NONE) this.wake = source;
    if (!this.writer.parked || source === WAKE_CONTROL) this.scheduleRun();
  }

  private scheduleRun(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    this.port.schedule(this);
  }

  private turn(): void {
    if (this.wake !== WAKE_NONE) {
      countWake(this.metrics, this.wake);
      this.wake = WAKE_NONE;
    }
    this.retryAt = Number.POSITIVE_INFINITY;
    this.drain();
    if (this.writer.parked) return;
    const kicked = this.gate.takeKick();
    if (!this.singletons.holdBack) this.kickOwed = false;
    if (this.writer.isOpen && (kicked || this.gate.shouldFlush(this.writer.bytes))) this.writer.flush();
  }

  /**
   * Everything that stands: control about our slots, then opens, replies and slots. False when staging stopped before
   * the end; the next drain then begins at the other end, so that under a peer that parks every batch neither starves.
   */
  private drain(): boolean {
    // A staged singleton that the transport takes at once is answered in the drain that sent it: what it held back belongs to it.
    let done = this.drainOnce();
    while (done && this.inbox.hasOwn) done = this.drainOnce();
    return done;
  }

  private drainOnce(): boolean {
    this.inbox.applyOwn(this.applyControl);
    const done = this.slotsFirst
      ? this.emitter.serveReady() && this.inbox.drainReplies(this.replies) && this.opens.pump()
      : this.opens.pump() && this.inbox.drainReplies(this.replies) && this.emitter.serveReady();
    this.slotsFirst = !done && !this.slotsFirst;
    return done;
  }

  private readonly applyControl = (slot: EgressSlot): void => {
    const outcome = this.life.applyControl(slot);
    if (outcome === CONTROL_SERVE) this.ready.push(slot);
    else if (outcome === CONTROL_EPOCH_OVER) this.endEpoch('a singleton was refused');
    // A peer may close what it was never told of: the next id is easily guessed.
    if (slot.state === SLOT_CLOSED) this.opens.forget(slot);
  };

  private endEpoch(reason: string): void {
    this.metrics.epochDeaths += 1;
    this.port.epochEnded?.(reason, this.life.table.live);
    const inFlight = this.writer.abandonInFlight();
    if (inFlight !== undefined) for (const slot of inFlight.terminals) this.life.retire(slot, 'discarded');
    this.writer.discard((manifest) => {
      this.inbox.repost(manifest, true);
      for (const slot of manifest.terminals) this.life.retire(slot, 'discarded');
    });
    this.opens.clear();
    this.singletons.forgetWaiting();
    for (const slot of this.life.table.snapshot()) this.life.close(slot, 'epochDeath');
    if (this.life.table.live !== 0) throw new VeloError('ERR_INTERNAL', `${this.label}: slots outlived "${reason}"`);
    this.writer.startEpoch();
  }
}
