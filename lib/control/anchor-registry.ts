// The anchors of a node and the attach control plane: who may attach, on which terms, on which lane. Everything a sender asks of
// an anchor by message is answered here.

import { randomBytes } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { VeloError } from '../errors.js';
import type { ClientPlane } from '../lanes/client-plane.js';
import { SCHEME_LOCAL, SCHEME_UNKNOWN, StreamingMetrics } from '../metrics/streaming-metrics.js';
import { chooseLane } from '../mux/lane-choice.js';
import { u64High, u64Low } from '../wire/bytes.js';
import {
  type AnchorAttachResponse,
  type AttachRequest,
  abortAttach,
  anchorAttachRequest,
  anchorAttachResponse,
  anchorReference,
  streamSignal,
} from '../wire/control.js';
import { StreamAnchorHandle, type StreamCancelHandle } from '../wire/handle.js';
import { JSON_NULL } from '../wire/hello.js';
import {
  HANDLER_ANCHOR_ABORT_ATTACH,
  HANDLER_ANCHOR_ATTACH,
  HANDLER_ANCHOR_CANCEL,
  HANDLER_ANCHOR_DETACH,
  HANDLER_ANCHOR_FINALIZE,
  HANDLER_STREAM_CANCEL,
  HANDLER_STREAM_STOP,
  MAX_LANES,
  MESSENGER_MUX_KEY,
} from '../wire/names.js';
import { Alarms } from './alarms.js';
import { AnchorEntry, type LocalAttachment } from './anchor-entry.js';
import { BindWatch } from './bind-watch.js';
import type { Calls } from './calls.js';
import { Feed } from './feed.js';
import type { Messenger } from './messenger.js';
import type { PeerBook } from './peer-book.js';
import { UnattachedTimer } from './unattached-timer.js';

/** The window and pace this node offers to senders. */
export interface AnchorTerms {
  /** Data records a sender may have outstanding (C). */
  initialCredit: number;
  /** Watermark in bytes per slot (B). */
  slotByteBudget: number;
  heartbeatIntervalMs: number;
  /** How long a bind may wait to be claimed. */
  acceptWindowMs: number;
  /** How long an anchor is kept that nobody is attached to; undefined: for ever. */
  unattachedTimeoutMs: number | undefined;
  /** Lanes of this node. */
  lanes: number;
}

const LOCAL_ID_BYTES = 8;
/** Transport keys of a sender that a refusal names, and letters of each. */
const MAX_NAMED_KEYS = 8;
const MAX_NAMED_LETTERS = 64;

export class AnchorRegistry {
  private readonly anchors = new Map<bigint, AnchorEntry>();
  /** Attaches that were accepted, by transport key. Only this node's own keys: a peer cannot add one. */
  readonly attaches: Record<string, number> = { [MESSENGER_MUX_KEY]: 0 };
  /** Streams that ended because the sender that was let in never opened its slot. */
  neverOpened = 0;
  /** Binds that nobody claimed within the accept window. */
  bindsReaped = 0;
  readonly metrics = new StreamingMetrics();
  /** An attach of another node was refused; `peer` is its instance id, or its worker id if it is not registered. */
  onRefused: (peer: string, reason: string) => void = () => {};
  /** A sender is about to attach, or to be let in. */
  onStreamBegins: () => void = () => {};
  /** A sender that was let in never opened its slot. */
  onNeverOpened: (feed: Feed, sender: bigint) => void = () => {};
  /** Senders that could not be told, because the lane of messages was dead: one entry per sender that was attached when it died. */
  private readonly untold = new Map<string, { readonly to: StreamCancelHandle; readonly what: 'cancel' | 'stop' }>();
  private readonly alarms = new Alarms(() => performance.now());
  /** Live slots and unclaimed binds by (peer, chosen lane). */
  private readonly loads = new Map<bigint, Uint32Array>();

  constructor(
    private readonly workerId: bigint,
    private readonly plane: ClientPlane,
    private readonly peers: PeerBook,
    private readonly calls: Calls,
    private readonly terms: AnchorTerms,
    private readonly maxStreams: number,
  ) {}

  /** Anchors that are not over, for whoever lists streams. */
  entries(): Iterable<AnchorEntry> {
    return this.anchors.values();
  }

  /** Anchors that a sender could attach to, or that are being read. */
  get active(): number {
    return this.anchors.size;
  }

  /** @throws VeloError `ERR_LIMIT` above `maxStreams`. */
  create(
    heartbeatIntervalMs = this.terms.heartbeatIntervalMs,
    unattachedTimeoutMs = this.terms.unattachedTimeoutMs,
  ): AnchorEntry {
    if (this.anchors.size >= this.maxStreams)
      throw new VeloError('ERR_LIMIT', `maxStreams: this node already has ${this.maxStreams} anchors`);
    const handle = StreamAnchorHandle.pack(this.workerId, this.freeLocalId(), 'spsc');
    const entry = new AnchorEntry(
      handle,
      heartbeatIntervalMs,
      (to, what) => this.notify(to, what),
      (removed) => this.anchors.delete(removed.handle.local),
    );
    this.anchors.set(handle.local, entry);
    entry.waitForSender(new UnattachedTimer(this.alarms, () => entry.leave(), unattachedTimeoutMs));
    return entry;
  }

  /** 63 random bits: a peer cannot guess an anchor it was not told of. */
  private freeLocalId(): bigint {
    for (;;) {
      const id = randomBytes(LOCAL_ID_BYTES).readBigUInt64BE() >> 1n;
      if (id !== 0n && !this.anchors.has(id)) return id;
    }
  }

  /** Registers the handlers of the attach control plane. */
  registerHandlers(messenger: Messenger): void {
    messenger.system(HANDLER_ANCHOR_ATTACH, (payload) => this.onAttach(payload));
    messenger.system(HANDLER_ANCHOR_DETACH, (payload) => this.onReference('detach', payload));
    messenger.system(HANDLER_ANCHOR_FINALIZE, (payload) => this.onReference('finalize', payload));
    messenger.system(HANDLER_ANCHOR_CANCEL, (payload) => this.onReference('cancel', payload));
    messenger.system(HANDLER_ANCHOR_ABORT_ATTACH, (payload) => this.onAbort(payload));
  }

  private onAbort(payload: Uint8Array): Uint8Array {
    const { handle, streamCancelHandle } = abortAttach.decodeJson(payload);
    if (handle.worker !== this.workerId || handle.kind === 'mpsc')
      throw new VeloError('ERR_WRONG_HANDLE_KIND', 'abort attach requires a local SPSC anchor');
    this.anchors.get(handle.local)?.abortAttach(streamCancelHandle);
    return JSON_NULL;
  }

  private onReference(operation: 'detach' | 'finalize' | 'cancel', payload: Uint8Array): Uint8Array {
    const startedAt = this.metrics.now();
    const { handle } = anchorReference.decodeJson(payload);
    const entry = handle.worker === this.workerId ? this.anchors.get(handle.local) : undefined;
    entry?.[operation]();
    this.metrics.operation(operation, entry === undefined ? 'error' : 'success', SCHEME_LOCAL, startedAt);
    return JSON_NULL;
  }

  private onAttach(payload: Uint8Array): Uint8Array {
    const startedAt = this.metrics.now();
    const request = anchorAttachRequest.decodeJson(payload);
    this.onStreamBegins();
    const answer = this.attachRemote(request);
    const outcome = answer.ok ? 'success' : 'error';
    this.metrics.operation('attach', outcome, answer.ok ? MESSENGER_MUX_KEY : SCHEME_UNKNOWN, startedAt);
    if (!answer.ok) {
      this.metrics.attachesRefused += 1;
      const sender = request.streamCancelHandle.worker;
      this.onRefused(this.peers.worker(sender)?.info.instanceId ?? String(sender), answer.reason);
    }
    return anchorAttachResponse.encodeJson(answer);
  }

  private attachRemote(request: AttachRequest): AnchorAttachResponse {
    const { handle } = request;
    const refuse = (reason: string): AnchorAttachResponse => ({ ok: false, reason });
    if (handle.kind === 'mpsc') return refuse(`anchor ${handle} is mpsc; use _mpsc_anchor_attach`);
    const entry = handle.worker === this.workerId ? this.anchors.get(handle.local) : undefined;
    if (entry === undefined) return refuse(`anchor ${handle} not found`);
    if (entry.attached) return refuse(`anchor ${handle} already attached`);
    if (!request.supportedTransportKeys.includes(MESSENGER_MUX_KEY))
      return refuse(
        `this node serves ${MESSENGER_MUX_KEY}, the sender offers ${named(request.supportedTransportKeys) || 'nothing'}`,
      );
    const sender = request.streamCancelHandle.worker;
    if (this.peers.worker(sender) === undefined) return refuse(`worker ${sender} is not registered here`);
    try {
      const lane = chooseLane(request.laneKey, this.loadsOf(sender), this.terms.lanes);
      const feed = this.bind(entry, request.streamCancelHandle, lane);
      entry.attachRemote(feed, request.streamCancelHandle);
      this.attaches[MESSENGER_MUX_KEY]! += 1;
      return {
        ok: true,
        value: {
          streamingTransportKey: MESSENGER_MUX_KEY,
          heartbeatIntervalMs: entry.heartbeatIntervalMs,
          routingSessionId: BigInt(feed.row.identity),
          initialCredit: this.terms.initialCredit,
          slotByteBudget: this.terms.slotByteBudget,
          lane,
        },
      };
    } catch (error) {
      if (!VeloError.is(error)) throw error;
      return refuse(`transport error: ${error.message}`);
    }
  }

  /** Makes a slot claimable and counts it on its lane until it is over. */
  private bind(entry: AnchorEntry, cancelHandle: StreamCancelHandle, lane: number): Feed {
    const loads = this.loadsOf(cancelHandle.worker);
    const feed = new Feed(
      this.plane,
      lane,
      () => entry.wakeReader(),
      (closed) => {
        loads[lane]! -= 1;
        watch.stop();
        // Also when its consumer had cancelled it: that may have died in the same lane.
        if (closed.failure?.code === 'ERR_LANE_DIED') this.notify(cancelHandle, 'cancel');
        // Nobody may attach any more, though its reader has not come yet. Another feed may have taken the place of this one.
        if (closed.silenced && entry.feed === closed) entry.leave();
      },
    );
    loads[lane]! += 1;
    const session = BigInt(feed.row.identity);
    const anchor = entry.handle.local;
    const { initialCredit, slotByteBudget } = this.terms;
    const receivers = this.plane.rows.receivers;
    receivers.bind(
      feed.row.row,
      u64High(anchor),
      u64Low(anchor),
      u64High(session),
      u64Low(session),
      initialCredit,
      slotByteBudget,
      entry.heartbeatIntervalMs,
    );
    const takeBack = () => {
      const sender = entry.cancelHandle?.worker ?? 0n;
      if (!entry.neverOpened(feed)) return false;
      this.onNeverOpened(feed, sender);
      return true;
    };
    const watch = new BindWatch(
      this.alarms,
      {
        isClaimed: () => feed.claimed,
        silent: () => {
          if (takeBack()) this.neverOpened += 1;
        },
        unclaimed: () => {
          if (takeBack()) this.bindsReaped += 1;
        },
      },
      { heartbeatMs: entry.heartbeatIntervalMs, acceptWindowMs: this.terms.acceptWindowMs },
      performance.now(),
    );
    return feed;
  }

  private loadsOf(sender: bigint): Uint32Array {
    let loads = this.loads.get(sender);
    if (loads === undefined) {
      loads = new Uint32Array(MAX_LANES);
      this.loads.set(sender, loads);
    }
    return loads;
  }

  /**
   * Attaches a sender of this very thread.
   *
   * @throws VeloError `ERR_ANCHOR_NOT_FOUND`, `ERR_ALREADY_ATTACHED`, `ERR_WRONG_HANDLE_KIND`.
   */
  attachLocal(handle: StreamAnchorHandle, sender: (entry: AnchorEntry) => LocalAttachment): void {
    const startedAt = this.metrics.now();
    try {
      const entry = this.attachable(handle);
      entry.attachLocal(sender(entry));
    } catch (error) {
      this.metrics.operation('attach', 'error', SCHEME_LOCAL, startedAt);
      throw error;
    }
    this.metrics.operation('attach', 'success', SCHEME_LOCAL, startedAt);
  }

  private attachable(handle: StreamAnchorHandle): AnchorEntry {
    if (handle.kind === 'mpsc') throw new VeloError('ERR_WRONG_HANDLE_KIND', `${handle} is an MPSC anchor`);
    const entry = this.anchors.get(handle.local);
    if (entry === undefined) throw new VeloError('ERR_ANCHOR_NOT_FOUND', `anchor ${handle} not found`);
    if (entry.attached) throw new VeloError('ERR_ALREADY_ATTACHED', `anchor ${handle} already attached`);
    return entry;
  }

  private notify(to: StreamCancelHandle, what: 'cancel' | 'stop'): void {
    const peer = this.peers.worker(to.worker);
    if (peer === undefined) return;
    const handler = what === 'cancel' ? HANDLER_STREAM_CANCEL : HANDLER_STREAM_STOP;
    try {
      this.calls.signal(peer, handler, streamSignal.encodeJson({ senderStreamId: to.senderStreamId }));
    } catch (error) {
      if (!VeloError.is(error)) throw error;
      // The lane that carries messages is dead: said as soon as there is another one.
      if (error.code !== 'ERR_LANE_DIED') return;
      const key = `${to.worker}:${to.senderStreamId}`;
      if (this.untold.get(key)?.what !== 'cancel') this.untold.set(key, { to, what });
    }
  }

  /** Messages go again: senders that could not be told of the end of their streams are told now. */
  messengerBack(): void {
    const untold = [...this.untold.values()];
    this.untold.clear();
    for (const { to, what } of untold) this.notify(to, what);
  }

  /** The node goes down: every stream ends, but those that ride a lane, which ends them. Returns how many ended here. */
  nodeCloses(): number {
    let ended = 0;
    for (const entry of [...this.anchors.values()]) if (entry.nodeCloses()) ended += 1;
    return ended;
  }

  /** The lanes are gone: no anchor is left to attach to. */
  leaveAll(): void {
    this.alarms.stop();
    for (const entry of [...this.anchors.values()]) entry.leave();
  }
}

/** The first few, in a few letters each: nothing a peer sends is sent back at any length. */
function named(keys: readonly string[]): string {
  const some = keys.slice(0, MAX_NAMED_KEYS).map((key) => key.slice(0, MAX_NAMED_LETTERS));
  return (keys.length > some.length ? [...some, '…'] : some).join(', ');
}
