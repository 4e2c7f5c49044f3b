// One anchor as the registry knows it: who is attached, where its frames come from, and how it ends. It hands out whole frames
// as bytes, in order, and counts what was taken; decoding and iteration belong to the anchor object of the application.
//
// Attachment: none → remote | local → none (detach) → … ; removed is final.

import { performance } from 'node:perf_hooks';
import type { VeloError } from '../errors.js';
import { ByteQueue } from '../mux/byte-queue.js';
import { DETACHED_BYTES, DROPPED_BYTES, FINALIZED_BYTES } from '../wire/frame.js';
import type { StreamAnchorHandle, StreamCancelHandle } from '../wire/handle.js';
import type { Feed, FeedTap } from './feed.js';
import type { UnattachedTimer } from './unattached-timer.js';

/** A sender on this very thread, which writes straight into the anchor's channel. */
export interface LocalAttachment {
  /** The consumer is gone: every further send fails. */
  cancelledByAnchor(): void;
  /** The consumer asks to stop. */
  stoppedByAnchor(): void;
  /** The channel has room again. */
  roomInChannel(): void;
}

/** Frames a same-thread sender may be ahead of its reader. */
export const CHANNEL_DEPTH = 256;

/** Tells a remote sender that its consumer stops or cancels. */
export type NotifySender = (to: StreamCancelHandle, what: 'cancel' | 'stop') => void;

export class AnchorEntry {
  feed: Feed | undefined;
  /** Frames of a same-thread sender and sentinels that the runtime injects. */
  readonly channel = new ByteQueue();
  local: LocalAttachment | undefined;
  cancelHandle: StreamCancelHandle | undefined;
  /** When its sender attached, if that is of this thread. */
  localSince = 0;
  /** Out of the registry: no attach finds it, nothing more is delivered after what stands here. */
  removed = false;
  stopRequested = false;
  /** An error that ends the stream after what was delivered. */
  failure: VeloError | undefined;
  /**
   * Whoever waits for a frame or an end: called when there may be one. Only a reader that waits stands here: the registry must not
   * keep an anchor that its application has dropped.
   */
  reader: (() => void) | undefined;
  private unattached: UnattachedTimer | undefined;

  /** The frame found by `next`: valid until `take`. */
  frame: Uint8Array = EMPTY;
  frameOffset = 0;
  frameLength = 0;
  private fromFeed = false;
  /** A new feed must not overtake what stood in the channel before it. */
  private channelFirst = false;
  private takenFromFeed = 0;
  private tap: FeedTap | undefined;

  constructor(
    readonly handle: StreamAnchorHandle,
    /** What the attach answer tells a sender, in milliseconds. */
    readonly heartbeatIntervalMs: number,
    private readonly notify: NotifySender,
    private readonly onRemoved: (entry: AnchorEntry) => void,
  ) {}

  get attached(): boolean {
    return this.local !== undefined || this.cancelHandle !== undefined;
  }

  // -- frames

  /** Looks for the next frame. True: `frame`, `frameOffset` and `frameLength` describe it, and `take` must follow. */
  next(): boolean {
    const feed = this.feed;
    if (feed !== undefined && !this.channelFirst) {
      if (feed.records.length > 0) return this.found(feed.records, true);
      if (feed.closed) this.dropFeed(feed);
    }
    if (this.channel.length > 0) return this.found(this.channel, false);
    if (!this.channelFirst) return false;
    this.channelFirst = false;
    return this.next();
  }

  private found(queue: ByteQueue, fromFeed: boolean): boolean {
    this.frame = queue.buffer;
    this.frameOffset = queue.frontOffset;
    this.frameLength = queue.frontLength;
    this.fromFeed = fromFeed;
    return true;
  }

  /** Removes the frame found by `next`. Its credit goes back with `settle`. */
  take(): void {
    if (this.fromFeed) {
      this.feed?.records.pop();
      this.takenFromFeed++;
    } else {
      this.channel.pop();
      if (this.channel.length < CHANNEL_DEPTH) this.local?.roomInChannel();
    }
  }

  /** Counts everything taken since the last call as drained: one count and at most one wake for many records. */
  settle(): void {
    if (this.takenFromFeed === 0) return;
    const taken = this.takenFromFeed;
    this.takenFromFeed = 0;
    this.feed?.taken(taken);
  }

  /** A reader waits and takes records of the feed as they come; undefined: it does not wait any more. */
  tapFeed(tap: FeedTap | undefined): void {
    this.tap = tap;
    if (this.feed !== undefined) this.feed.tap = this.channelFirst ? undefined : tap;
  }

  /** The tap took a record; its credit goes back with `settle`. */
  takenByTap(): void {
    this.takenFromFeed++;
  }

  /** Whether the frame found last came over the wire (and not from this thread). */
  get frameFromFeed(): boolean {
    return this.fromFeed;
  }

  /** Puts a sentinel or a same-thread frame behind everything else. */
  inject(bytes: Uint8Array): void {
    this.channel.push(bytes, 0, bytes.length);
    this.wakeReader();
  }

  wakeReader(): void {
    this.reader?.();
  }

  /** The slot is gone and everything in it was read, yet nothing said how the stream ends. */
  private dropFeed(feed: Feed): void {
    this.feed = undefined;
    this.takenFromFeed = 0;
    if (feed.failure === undefined) {
      this.channel.push(DROPPED_BYTES, 0, DROPPED_BYTES.length);
      return;
    }
    this.failure = feed.failure;
    this.remove();
  }

  // -- life

  /** Counts from now on how long nobody is attached. Once in a life. */
  waitForSender(timer: UnattachedTimer): void {
    this.unattached = timer;
    timer.start();
  }

  /** How long the anchor is kept while nobody is attached; undefined: for ever. */
  setTimeout(timeoutMs: number | undefined): void {
    this.unattached?.change(timeoutMs);
  }

  /** A remote sender is attached and `feed` is its slot. */
  attachRemote(feed: Feed, cancelHandle: StreamCancelHandle): void {
    this.feed = feed;
    this.channelFirst = this.channel.length > 0;
    this.tapFeed(this.tap);
    this.cancelHandle = cancelHandle;
    this.unattached?.pause();
    if (this.stopRequested) this.tellStop();
  }

  attachLocal(sender: LocalAttachment): void {
    this.local = sender;
    this.localSince = performance.now();
    this.unattached?.pause();
    if (this.stopRequested) sender.stoppedByAnchor();
  }

  /** The same-thread sender ended: its sentinel goes behind what it sent. After a detach another may attach from now on. */
  endLocal(sentinel: Uint8Array): void {
    this.channel.push(sentinel, 0, sentinel.length);
    this.local = undefined;
    if (sentinel === DETACHED_BYTES) this.unattached?.start();
    else this.remove();
    this.wakeReader();
  }

  /** The sender left in order: another may attach. `feed` undefined: the sentinel came through the channel. */
  detached(fromFeed: boolean): void {
    if (!fromFeed) return; // its writer cleared the attachment when it queued the sentinel
    this.settle();
    this.cancelHandle = undefined;
    this.withdrawFeed();
    this.unattached?.start();
  }

  /** Somebody detaches the sender by message: unread records of its slot go with it. Idempotent. */
  detach(): void {
    if (!this.attached) return;
    this.clearAttachment();
    this.unattached?.start();
    this.inject(DETACHED_BYTES);
  }

  /** The sender that was let in could not come: as if it had never attached. Its reader hears nothing. */
  abortAttach(sender: StreamCancelHandle): void {
    if (!this.cancelHandle?.equals(sender)) return;
    this.clearAttachment();
    this.unattached?.start();
  }

  /** Somebody finalizes the stream by message. */
  finalize(): void {
    this.clearAttachment();
    this.remove();
    this.inject(FINALIZED_BYTES);
  }

  private clearAttachment(): void {
    const { local } = this;
    this.cancelHandle = undefined;
    this.local = undefined;
    local?.cancelledByAnchor();
    this.withdrawFeed();
  }

  private withdrawFeed(): void {
    const feed = this.feed;
    this.feed = undefined;
    this.takenFromFeed = 0;
    feed?.withdraw();
  }

  /** The stream ended by itself, or its last frame was read: out of the registry, nothing is told to anybody. */
  finish(): void {
    this.settle();
    const { local } = this;
    this.remove();
    local?.cancelledByAnchor();
    this.withdrawFeed();
  }

  /** The consumer ends the stream: the slot is closed and its producer told. Idempotent. */
  cancel(): void {
    if (this.removed) return;
    const { local, cancelHandle } = this;
    this.remove();
    this.withdrawFeed();
    this.channel.clear();
    if (local !== undefined) local.cancelledByAnchor();
    else if (cancelHandle !== undefined) this.notify(cancelHandle, 'cancel');
    this.wakeReader();
  }

  /**
   * The node goes down. A stream that rides a lane is left to that lane; any other one ends here as dropped, behind what was not
   * read. True when one did.
   */
  nodeCloses(): boolean {
    const { local, cancelHandle } = this;
    if (local !== undefined) {
      this.remove();
      local.cancelledByAnchor();
      this.inject(DROPPED_BYTES);
      return true;
    }
    if (cancelHandle === undefined) this.leave();
    else if (this.feed?.unbind()) {
      this.notify(cancelHandle, 'cancel');
      return true;
    }
    return false;
  }

  /** The bind is taken back because nobody opened its slot: the stream ends as dropped. False: somebody has, or it is gone. */
  neverOpened(feed: Feed): boolean {
    const { cancelHandle } = this;
    if (this.feed !== feed || !feed.unbind()) return false;
    this.remove();
    if (cancelHandle !== undefined) this.notify(cancelHandle, 'cancel');
    return true;
  }

  /** Leaves the registry; what was not read can still be read. */
  leave(): void {
    this.remove();
    this.wakeReader();
  }

  /** Asks the producer to stop, now or when it attaches. Idempotent. */
  requestStop(): void {
    if (this.stopRequested || this.removed) return;
    this.stopRequested = true;
    this.tellStop();
  }

  private tellStop(): void {
    if (this.local !== undefined) this.local.stoppedByAnchor();
    else if (this.cancelHandle !== undefined) this.notify(this.cancelHandle, 'stop');
  }

  private remove(): void {
    if (this.removed) return;
    this.removed = true;
    this.unattached?.pause();
    this.unattached = undefined;
    this.local = undefined;
    this.cancelHandle = undefined;
    this.onRemoved(this);
  }
}

const EMPTY = new Uint8Array(0);
