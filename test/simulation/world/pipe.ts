// One direction of one connection: takes writes when the network has room, knows where frames end, loses, repeats and swaps whole
// batch frames, and hands the bytes over in pieces of any size. It must never change a byte, and never reorder or lose anything
// but whole `_stream_batch` frames, unless the connection is cut.

import { batchLaneOf } from '../../../lib/wire/envelope.js';
import { FRAME_MESSAGE, FRAME_VERSION, PREAMBLE_LEN } from '../../../lib/wire/transport-frame.js';
import { orderOf } from './frame-text.js';
import type { Link } from './link.js';
import { RANK_NET, type Schedule } from './schedule.js';
import type { SimSocket } from './socket.js';

/** What one read of a socket gives at most. */
const READ_BYTES = 65_536;
/** A frame that is to be swapped waits so long for one to come behind it. */
const SWAP_WAIT_MS = 15;
/** A frame that comes again may do so at once, or so much later at the most. */
const AGAIN_MS_MAX = 25;
/** Moments between two pieces of what arrived at once. */
const NEXT_PIECE_MS = 0.02;

/** Who is told what the pipe did. */
export interface PipeWatcher {
  fault(link: Link, what: string): void;
  /** A chunk was handed over: it must not be used any more once everything that came of it has run. */
  lent(chunk: Buffer): void;
  broken(what: string): void;
  /** Only while tracing: a whole frame was taken. */
  frame?: ((link: Link, bytes: Buffer, headerLength: number) => void) | undefined;
}

interface Arrival {
  readonly bytes: Buffer;
  readonly at: number;
}

type Done = (error?: Error | null) => void;

export class Pipe {
  /** Bytes that were written and not handed over. */
  private arrivals: Arrival[] = [];
  private taken = 0;
  private partial: Buffer[] = [];
  private partialBytes = 0;
  /** Waits for another to overtake it; whether it closes slots. */
  private held: Buffer | undefined;
  private heldCloses = false;
  private lastArrival = 0;
  private delivering = false;
  private pending: { chunk: Buffer; done: Done } | undefined;
  /** Nothing follows what is on its way. */
  private ended = false;
  private endGiven = false;
  /** The connection is gone: nothing written arrives, nothing more is handed over. */
  private cut = false;

  constructor(
    private readonly schedule: Schedule,
    private readonly link: Link,
    private readonly from: SimSocket,
    private readonly to: SimSocket,
    private readonly watcher: PipeWatcher,
  ) {}

  /** A write waits here, and bytes of earlier ones are on their way: the most is lost now. */
  get isBusy(): boolean {
    return this.pending !== undefined && this.arrivals.length > 0;
  }

  write(chunk: Buffer, done: Done): void {
    const { random, now } = this.schedule;
    const { weather } = this.link;
    let wait = Math.max(0, this.link.stalledUntil - now);
    if (random.chance(weather.slowWrite)) wait += random.within(0.01, weather.slowWriteMs);
    if (wait === 0) {
      this.accept(chunk);
      done();
      return;
    }
    this.pending = { chunk, done };
    this.retry(wait);
  }

  private retry(wait: number): void {
    this.schedule.after(wait, RANK_NET, this.from.owner, 'written', () => {
      const { pending } = this;
      if (pending === undefined || this.from.destroyed) return;
      // Stalled again meanwhile.
      const more = this.link.stalledUntil - this.schedule.now;
      if (more > 0) {
        this.retry(more);
        return;
      }
      this.pending = undefined;
      // Copied now and not before: whoever reuses the buffer of a write that is not over is found out.
      this.accept(pending.chunk);
      pending.done();
    });
  }

  /** The writer is gone; what it had written arrives, and perhaps the beginning of what it was still writing. */
  end(): void {
    if (this.ended) return;
    const { pending } = this;
    this.pending = undefined;
    if (pending !== undefined && this.schedule.random.chance(0.5))
      this.accept(pending.chunk.subarray(0, this.schedule.random.between(0, pending.chunk.length)));
    this.releaseHeld();
    if (this.partialBytes > 0) this.arrive(Buffer.concat(this.partial.splice(0)));
    this.partialBytes = 0;
    this.ended = true;
    this.deliverAt(Math.max(this.lastArrival, this.schedule.now + this.latency()));
  }

  /** The connection breaks: of what is on its way, the beginning still arrives, at the latest when the reader hears of it. */
  break(keep: number, heardMs: number): void {
    this.cut = true;
    this.pending = undefined;
    this.held = undefined;
    this.partial = [];
    this.partialBytes = 0;
    const bytes = Buffer.concat(this.arrivals.map((arrival) => arrival.bytes)).subarray(this.taken);
    this.arrivals = [];
    this.taken = 0;
    const kept = bytes.subarray(0, Math.floor(bytes.length * keep));
    if (kept.length === 0) return;
    const at = this.schedule.now + this.schedule.random.within(0.5, 1) * heardMs;
    this.arrivals.push({ bytes: Buffer.from(kept), at });
    this.deliverAt(at);
  }

  // -- frames

  private accept(chunk: Buffer): void {
    if (this.cut || this.ended || chunk.length === 0) return;
    this.partial.push(Buffer.from(chunk));
    this.partialBytes += chunk.length;
    if (this.partialBytes < PREAMBLE_LEN) return;
    let bytes = this.partial.length === 1 ? this.partial[0]! : Buffer.concat(this.partial);
    for (;;) {
      if (bytes.length < PREAMBLE_LEN) break;
      if (bytes.readUInt16BE(0) !== FRAME_VERSION) {
        this.watcher.broken(`a frame begins with ${bytes.subarray(0, PREAMBLE_LEN).toString('hex')}`);
        return;
      }
      const headerLength = bytes.readUInt32BE(3);
      const length = PREAMBLE_LEN + headerLength + bytes.readUInt32BE(7);
      if (bytes.length < length) break;
      this.frame(bytes.subarray(0, length), headerLength);
      bytes = bytes.subarray(length);
    }
    this.partial = bytes.length === 0 ? [] : [bytes];
    this.partialBytes = bytes.length;
  }

  private frame(bytes: Buffer, headerLength: number): void {
    const { random } = this.schedule;
    const { weather } = this.link;
    this.watcher.frame?.(this.link, bytes, headerLength);
    const isBatch = bytes[2] === FRAME_MESSAGE && batchLaneOf(bytes, PREAMBLE_LEN, headerLength) >= 0;
    if (isBatch && weather.lose > 0 && random.chance(weather.lose)) {
      this.watcher.fault(this.link, 'lost');
      return;
    }
    // The mux relies on the lane's order in two places: no record overtakes its OpenSlot, no OpenSlot the close of its index before.
    const ordered = weather.swap > 0 || this.held !== undefined;
    const order = isBatch && ordered ? orderOf(bytes, headerLength) : undefined;
    if (order?.opens && this.heldCloses) this.releaseHeld();
    if (order !== undefined && !order.opens && this.held === undefined && random.chance(weather.swap)) {
      this.heldCloses = order.closes;
      if (!weather.swapsAreFine) this.watcher.fault(this.link, 'swapped');
      this.held = bytes;
      this.schedule.after(SWAP_WAIT_MS, RANK_NET, undefined, 'unswapped', () => {
        if (this.held === bytes) this.releaseHeld();
      });
      return;
    }
    this.arrive(bytes);
    if (isBatch && weather.duplicate > 0 && random.chance(weather.duplicate)) {
      this.watcher.fault(this.link, 'duplicated');
      this.again(bytes);
    }
    if (isBatch) this.releaseHeld();
  }

  private again(bytes: Buffer): void {
    const { random } = this.schedule;
    if (random.chance(0.5)) this.arrive(bytes);
    else
      this.schedule.after(random.within(0.1, AGAIN_MS_MAX), RANK_NET, undefined, 'again', () => {
        if (!this.cut && !this.ended) this.arrive(bytes);
      });
  }

  private releaseHeld(): void {
    const { held } = this;
    this.held = undefined;
    if (held !== undefined && !this.cut) this.arrive(held);
  }

  // -- delivery

  private latency(): number {
    const { latencyMs, jitterMs } = this.link.weather;
    return latencyMs + this.schedule.random.real() * jitterMs;
  }

  private arrive(bytes: Buffer): void {
    this.lastArrival = Math.max(this.lastArrival, this.schedule.now + this.latency());
    this.arrivals.push({ bytes, at: this.lastArrival });
    this.deliverAt(this.arrivals[0]!.at);
  }

  private deliverAt(time: number): void {
    if (this.delivering) return;
    this.delivering = true;
    this.schedule.at(time, RANK_NET, this.to.owner, 'chunk', () => {
      this.delivering = false;
      this.deliver();
    });
  }

  private deliver(): void {
    const { now, random } = this.schedule;
    const ready: Buffer[] = [];
    let length = -this.taken;
    while (ready.length < this.arrivals.length && this.arrivals[ready.length]!.at <= now) {
      const { bytes } = this.arrivals[ready.length]!;
      ready.push(bytes);
      length += bytes.length;
      if (length >= READ_BYTES) break;
    }
    if (length > 0) this.hand(ready, this.pieceOf(Math.min(length, READ_BYTES)));
    const next = this.arrivals[0];
    if (next !== undefined) this.deliverAt(Math.max(next.at, now + random.real() * NEXT_PIECE_MS));
    else if (this.ended && !this.endGiven) {
      this.endGiven = true;
      if (!this.to.destroyed) this.to.push(null);
    }
  }

  private pieceOf(length: number): number {
    const { random } = this.schedule;
    if (length === 1 || !random.chance(this.link.weather.split)) return length;
    // Mostly somewhere; now and then next to an edge, where readers of frames go wrong.
    return random.chance(0.3) ? Math.min(length, random.between(1, PREAMBLE_LEN + 2)) : random.between(1, length - 1);
  }

  private hand(ready: readonly Buffer[], length: number): void {
    const chunk = Buffer.allocUnsafeSlow(length);
    let at = 0;
    for (const bytes of ready) {
      const part = bytes.subarray(this.taken, this.taken + length - at);
      chunk.set(part, at);
      at += part.length;
      if (this.taken + part.length < bytes.length) {
        this.taken += part.length;
        break;
      }
      this.taken = 0;
      this.arrivals.shift();
      if (at === length) break;
    }
    if (this.to.destroyed) return;
    this.to.push(chunk);
    this.watcher.lent(chunk);
  }
}
