// The consumer's end of a stream: an anchor that one sender at a time may attach to. It decodes frames, iterates, and ends.
// Three ways to read, one at a time: items, batches of items, frames.

import type { AnchorEntry } from '../control/anchor-entry.js';
import type { FeedTap } from '../control/feed.js';
import { unattachedTimeout } from '../control/unattached-timer.js';
import { VeloError } from '../errors.js';
import type { ItemCodec } from '../wire/codec.js';
import {
  FRAME_DETACHED,
  FRAME_DROPPED,
  FRAME_FINALIZED,
  FRAME_HEARTBEAT,
  FRAME_ITEM,
  FRAME_SENDER_ERROR,
  FRAME_TRANSPORT_ERROR,
  frameKind,
  frameText,
  ITEM_PREFIX_LEN,
  isItem,
} from '../wire/frame.js';
import type { StreamAnchorHandle } from '../wire/handle.js';
import { checkSignal } from './checks.js';

/** What `frames()` yields. */
export type AnchorFrame<T> =
  | { readonly kind: 'item'; readonly value: T }
  /** The sender reported a soft error; the stream goes on. */
  | { readonly kind: 'senderError'; readonly message: string }
  /** The sender left in order; another one may attach. */
  | { readonly kind: 'detached' }
  /** The sender finished; nothing follows. */
  | { readonly kind: 'finalized' };

/** For every way to read. */
export interface ReadOptions {
  /** Ends the wait for the next value: it rejects with `ERR_ABORTED`. The stream goes on, and a new loop reads on where this stood. */
  signal?: AbortSignal | undefined;
}

/** Ends a stream from outside its reading loop. Both methods are idempotent, return at once and never throw. */
export interface StreamController {
  /** Closes the stream; the sender's sends fail from now on. What was not read is discarded. */
  cancel(): void;
  /** Asks the sender to stop. Output still flows; the sender decides when to finish. */
  requestStop(): void;
}

const DONE = { done: true, value: undefined } as const;

// What `step` found.
const NOTHING = 0;
const ITEM = 1;
const FRAME = 2;
const ENDED = 3;
const TAPPED = 4;

/**
 * A stream's consumer.
 *
 * - `for await (const item of anchor)`: items. Ends on Finalized; waits on over a Detached; rejects with `ERR_SENDER_ERROR` on a
 *   soft error (a new loop goes on where this one stood), and with `ERR_SENDER_DROPPED`, `ERR_TRANSPORT`, `ERR_DESERIALIZATION` or
 *   `ERR_LANE_DIED` at an end that was not clean; then the stream is over. A node that closes ends its anchors like a dropped
 *   sender, and so does a sender that is silent for three to four times `heartbeatIntervalMs` although it might send: then what
 *   was not read is gone too.
 * - `anchor.batches()`: the same as arrays of everything that is there (at least one item), for readers that write on.
 * - `anchor.frames()`: every frame as a tagged value; only an unclean end rejects.
 *
 * Leaving a loop early (`break`, an exception) cancels the stream. Two reads at once reject with `ERR_INVALID_STATE`.
 */
export class StreamAnchor<T> implements AsyncIterable<T>, AsyncDisposable {
  private over = false;
  private currentFrame: AnchorFrame<T> | undefined;
  private currentItem: T | undefined;
  /** Items that a waiting batch reader decoded as they came. */
  private tapped: T[] = [];
  /**
   * Decodes a record where it arrived, for a batch reader that waits: it is taken at once, so it need not be queued first. What
   * is no item, or does not decode, takes the ordinary way, and everything behind it too.
   */
  private readonly tap: FeedTap = (bytes, offset, length) => {
    if (!isItem(bytes, offset, length)) return false;
    try {
      this.tapped.push(this.codec.decode(bytes, offset + ITEM_PREFIX_LEN, offset + length));
      this.entry.takenByTap();
      return true;
    } catch {
      return false;
    }
  };

  /** Made by `Velo.createAnchor`. */
  constructor(
    private readonly entry: AnchorEntry,
    private readonly codec: ItemCodec<T>,
  ) {}

  /** What a sender needs to attach. JSON: `{hi, lo}`, full-range integers. */
  get handle(): StreamAnchorHandle {
    return this.entry.handle;
  }

  readonly controller: StreamController = {
    cancel: () => this.cancel(),
    requestStop: () => this.entry.requestStop(),
  };

  /**
   * How long the anchor is kept while no sender is attached, in milliseconds; undefined: for ever. Counts from now on, or from the
   * next detach if a sender is attached. Then the anchor is removed: a reader ends, and an attach finds nothing. Does nothing once
   * the stream is over.
   *
   * @throws VeloError `ERR_INVALID_ARGUMENT` unless it is an integer from 1 to 2^31−1.
   */
  setTimeout(timeoutMs: number | undefined): void {
    this.entry.setTimeout(unattachedTimeout(timeoutMs));
  }

  /** True once nothing more will be read: finished, failed or cancelled. */
  get ended(): boolean {
    return this.over;
  }

  // -- reading

  [Symbol.asyncIterator](): AsyncIterator<T, undefined> {
    return this.items();
  }

  /** What `for await` over the anchor itself reads; here with a signal. */
  items(options?: ReadOptions): AsyncIterableIterator<T, undefined> {
    return this.iterator<T>((found) => {
      if (found === ITEM) {
        const value = this.currentItem as T;
        this.currentItem = undefined;
        return { done: false, value };
      }
      return this.currentFrame!.kind === 'finalized' ? DONE : undefined;
    }, options);
  }

  /** Arrays of everything that can be read without waiting, never empty. */
  batches(options?: ReadOptions): AsyncIterableIterator<T[], undefined> {
    return this.iterator<T[]>(
      (found) => {
        if (found !== ITEM && found !== TAPPED) return this.currentFrame!.kind === 'finalized' ? DONE : undefined;
        const items = found === TAPPED ? this.tapped : [this.currentItem as T];
        this.tapped = [];
        this.currentItem = undefined;
        return { done: false, value: this.collect(items) };
      },
      options,
      { tap: this.tap },
    );
  }

  /** Every frame; heartbeats are not among them. Ends after `finalized`. */
  frames(options?: ReadOptions): AsyncIterableIterator<AnchorFrame<T>, undefined> {
    return this.iterator<AnchorFrame<T>>(
      (found) => {
        const frame: AnchorFrame<T> =
          found === ITEM ? { kind: 'item', value: this.currentItem as T } : this.currentFrame!;
        return { done: false, value: frame };
      },
      options,
      { softErrorsAsFrames: true },
    );
  }

  /** Ends the stream as its consumer: unread items are discarded, the sender is told. Idempotent. */
  cancel(): void {
    this.over = true;
    this.tapped = [];
    this.entry.cancel();
    this.entry.wakeReader();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cancel();
  }

  /**
   * A hand-written iterator: an async generator would cost twice as much per item. `accept` turns what was found into a result,
   * or undefined to read on.
   */
  private iterator<R>(
    accept: (found: number) => IteratorResult<R, undefined> | undefined,
    { signal }: ReadOptions = {},
    { softErrorsAsFrames = false, tap }: { softErrorsAsFrames?: boolean; tap?: FeedTap } = {},
  ): AsyncIterableIterator<R, undefined> {
    checkSignal(signal);
    /** What can be had without waiting: a result, or undefined when nothing is there. */
    const readNow = (): IteratorResult<R, undefined> | undefined => {
      for (;;) {
        const found = this.step(softErrorsAsFrames, tap !== undefined);
        if (found === ENDED) return DONE;
        if (found === NOTHING) return undefined;
        const result = accept(found);
        this.entry.settle();
        if (result !== undefined) return result;
      }
    };
    /** Waits in the wake of the burst itself: what is there is read before anything else runs, and one promise is made. */
    const readLater = (): Promise<IteratorResult<R, undefined>> =>
      new Promise((resolve, reject) => {
        const settled = () => {
          this.entry.reader = undefined;
          this.entry.tapFeed(undefined);
          signal?.removeEventListener('abort', onAbort);
        };
        const onAbort = () => {
          settled();
          reject(aborted(this.handle, signal!));
        };
        const onReadable = () => {
          // Reading may end the stream, which wakes its reader: not this one again.
          this.entry.reader = undefined;
          try {
            const result = readNow();
            if (result === undefined) {
              this.entry.reader = onReadable;
              return;
            }
            settled();
            resolve(result);
          } catch (error) {
            settled();
            reject(error);
          }
        };
        this.entry.reader = onReadable;
        this.entry.tapFeed(tap);
        signal?.addEventListener('abort', onAbort, { once: true });
      });
    const next = (): Promise<IteratorResult<R, undefined>> => {
      if (this.entry.reader !== undefined)
        return Promise.reject(new VeloError('ERR_INVALID_STATE', `${this.handle} is already being read`));
      if (signal?.aborted) return Promise.reject(aborted(this.handle, signal));
      try {
        const result = readNow();
        return result === undefined ? readLater() : Promise.resolve(result);
      } catch (error) {
        return Promise.reject(error);
      }
    };
    const self: AsyncIterableIterator<R, undefined> = {
      next,
      return: async () => {
        if (!this.over) this.cancel();
        return DONE;
      },
      [Symbol.asyncIterator]: () => self,
    };
    return self;
  }

  /** Takes more items for a batch, as long as they are there. */
  private collect(items: T[]): T[] {
    const { entry, codec } = this;
    while (entry.next() && frameKind(entry.frame, entry.frameOffset, entry.frameLength) === FRAME_ITEM) {
      try {
        items.push(
          codec.decode(entry.frame, entry.frameOffset + ITEM_PREFIX_LEN, entry.frameOffset + entry.frameLength),
        );
      } catch {
        break; // the next step meets it again, with nothing in front of it
      }
      entry.take();
    }
    return items;
  }

  /** Reads one frame, if there is one. Throws what the reader must hear. */
  private step(softErrorsAsFrames: boolean, inBatches: boolean): number {
    if (this.over) return ENDED;
    const entry = this.entry;
    if (this.tapped.length > 0) {
      if (inBatches) return TAPPED;
      // A batch reader that was aborted left them.
      this.currentItem = this.tapped.shift();
      return ITEM;
    }
    for (;;) {
      if (!entry.next()) {
        if (entry.failure !== undefined) throw this.end(entry.failure);
        if (entry.removed) {
          this.over = true;
          return ENDED;
        }
        return NOTHING;
      }
      const kind = frameKind(entry.frame, entry.frameOffset, entry.frameLength);
      if (kind === FRAME_ITEM) return this.readItem();
      const text =
        kind === FRAME_SENDER_ERROR || kind === FRAME_TRANSPORT_ERROR
          ? frameText(entry.frame, entry.frameOffset, entry.frameLength)
          : '';
      entry.take();
      const found = this.onFrame(kind, text, entry.frameFromFeed, softErrorsAsFrames);
      if (found !== NOTHING) return found;
    }
  }

  private readItem(): number {
    const entry = this.entry;
    try {
      this.currentItem = this.codec.decode(
        entry.frame,
        entry.frameOffset + ITEM_PREFIX_LEN,
        entry.frameOffset + entry.frameLength,
      );
    } catch (error) {
      entry.take();
      throw this.fail(error);
    }
    entry.take();
    return ITEM;
  }

  private onFrame(kind: number, text: string, fromFeed: boolean, softErrorsAsFrames: boolean): number {
    switch (kind) {
      case FRAME_HEARTBEAT:
        this.entry.settle();
        return NOTHING;
      case FRAME_SENDER_ERROR: {
        if (softErrorsAsFrames) {
          this.currentFrame = { kind: 'senderError', message: text };
          return FRAME;
        }
        this.entry.settle();
        throw new VeloError('ERR_SENDER_ERROR', text);
      }
      case FRAME_DETACHED:
        this.entry.detached(fromFeed);
        this.currentFrame = { kind: 'detached' };
        return FRAME;
      case FRAME_FINALIZED:
        this.over = true;
        this.entry.finish();
        this.currentFrame = { kind: 'finalized' };
        return FRAME;
      case FRAME_DROPPED:
        throw this.end(new VeloError('ERR_SENDER_DROPPED', `the sender of ${this.entry.handle} is gone`));
      case FRAME_TRANSPORT_ERROR:
        throw this.end(new VeloError('ERR_TRANSPORT', text));
      default:
        throw this.fail(new VeloError('ERR_DESERIALIZATION', `${this.entry.handle} received bytes that are no frame`));
    }
  }

  /** The stream ended by itself, uncleanly. */
  private end(error: VeloError): VeloError {
    this.over = true;
    this.entry.finish();
    return error;
  }

  /** What arrived cannot be read: over, and the sender is told. */
  private fail(error: unknown): VeloError {
    this.over = true;
    this.entry.cancel();
    return VeloError.is(error) ? error : new VeloError('ERR_DESERIALIZATION', String(error), { cause: error });
  }
}

function aborted(handle: StreamAnchorHandle, signal: AbortSignal): VeloError {
  return new VeloError('ERR_ABORTED', `reading ${handle} was aborted`, { cause: signal.reason });
}
