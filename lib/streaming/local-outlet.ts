// Records of a stream whose anchor lives on this very thread: no transport, no credit, no heartbeat. Items still pass through the
// codec, so that producer and consumer never share an object, and a stream behaves the same wherever its ends are.

import { type AnchorEntry, CHANNEL_DEPTH, type LocalAttachment } from '../control/anchor-entry.js';
import type { RetiredOutcome } from '../control/sender-core.js';
import { VeloError } from '../errors.js';
import { ENDING_DETACHED, ENDING_FINALIZED } from '../plane/rows.js';
import type { ItemCodec } from '../wire/codec.js';
import { DETACHED_BYTES, DROPPED_BYTES, FINALIZED_BYTES, itemFrameLength, writeItemFrame } from '../wire/frame.js';
import type { Outlet } from './stream-sender.js';

export class LocalOutlet<T> implements Outlet<T>, LocalAttachment {
  readonly transport = undefined;
  private isCancelled = false;
  private isStopped = false;
  private hasEnded = false;
  private outcome: RetiredOutcome | undefined;
  private waiters: (() => void)[] = [];
  private watchers: ((outcome: RetiredOutcome) => void)[] = [];
  private tellCancelled: () => void = () => {};
  private tellStopped: () => void = () => {};

  constructor(
    private readonly entry: AnchorEntry,
    private readonly codec: ItemCodec<T>,
  ) {}

  // -- what the anchor says

  /** The anchor ended, by its consumer or by itself. */
  cancelledByAnchor(): void {
    this.isCancelled = true;
    this.isStopped = true;
    this.settle('discarded');
    this.tellCancelled();
    this.tellStopped();
    this.wakeAll();
  }

  stoppedByAnchor(): void {
    this.isStopped = true;
    this.tellStopped();
  }

  roomInChannel(): void {
    this.wakeAll();
  }

  // -- outlet

  get cancelled(): boolean {
    return this.isCancelled;
  }

  get stopped(): boolean {
    return this.isStopped;
  }

  get over(): boolean {
    return this.isCancelled || this.hasEnded;
  }

  overError(): VeloError {
    const text = this.hasEnded ? 'this sender has ended its stream' : 'the consumer cancelled the stream';
    return new VeloError('ERR_CHANNEL_CLOSED', text);
  }

  trySend(item: T): boolean {
    if (this.over) throw this.overError();
    if (this.entry.channel.length >= CHANNEL_DEPTH) return false;
    this.codec.encode(item);
    const frame = new Uint8Array(itemFrameLength(this.codec));
    writeItemFrame(frame, 0, this.codec);
    this.entry.inject(frame);
    return true;
  }

  trySendFrame(frame: Uint8Array): boolean {
    if (this.over) throw this.overError();
    if (this.entry.channel.length >= CHANNEL_DEPTH) return false;
    this.entry.inject(frame);
    return true;
  }

  roomAgain(): Promise<void> {
    if (this.over || this.entry.channel.length < CHANNEL_DEPTH) return Promise.resolve();
    return new Promise((resolve) => this.waiters.push(resolve));
  }

  block(): void {
    throw new VeloError('ERR_INVALID_STATE', 'blocking on the thread that reads the anchor would never end');
  }

  /** The sentinel goes behind everything sent, also into a full channel: an end never waits. */
  end(ending: number): boolean {
    if (this.hasEnded) return false;
    this.hasEnded = true;
    this.wakeAll();
    if (this.isCancelled) return true;
    const sentinel =
      ending === ENDING_FINALIZED ? FINALIZED_BYTES : ending === ENDING_DETACHED ? DETACHED_BYTES : DROPPED_BYTES;
    this.entry.endLocal(sentinel);
    this.settle('sent');
    return true;
  }

  retired(): Promise<RetiredOutcome> {
    if (this.outcome !== undefined) return Promise.resolve(this.outcome);
    return new Promise((resolve) => this.watchers.push(resolve));
  }

  /** The first outcome stands. */
  private settle(outcome: RetiredOutcome): void {
    if (this.outcome !== undefined) return;
    this.outcome = outcome;
    for (const resolve of this.watchers) resolve(outcome);
    this.watchers = [];
  }

  onSignals(cancelled: () => void, stopped: () => void): void {
    this.tellCancelled = cancelled;
    this.tellStopped = stopped;
    if (this.isCancelled) cancelled();
    if (this.isStopped) stopped();
  }

  private wakeAll(): void {
    const waiters = this.waiters;
    this.waiters = [];
    for (const resolve of waiters) resolve();
  }
}
