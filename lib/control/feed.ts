// The client's end of one bound slot: the records that its lane delivered and the application has not taken. At most C+1 stand
// here, because credit comes back only for what was taken. It knows nothing of frames.

import type { VeloError } from '../errors.js';
import type { ClientPlane, ReceiverEnd, Row } from '../lanes/client-plane.js';
import { ByteQueue } from '../mux/byte-queue.js';

/** Takes a record as it arrives. False: not taken, it must be queued. The bytes are only valid during the call. */
export type FeedTap = (bytes: Uint8Array, offset: number, length: number) => boolean;

export class Feed implements ReceiverEnd {
  /** Set while a reader waits that takes records as they come. */
  tap: FeedTap | undefined;
  readonly row: Row;
  readonly records = new ByteQueue();
  /** The slot is gone: nothing follows what stands here. */
  closed = false;
  /** Why it is gone, when its lane died. */
  failure: VeloError | undefined;
  /** It is gone because its sender was silent; what was not read is gone too. */
  silenced = false;
  /** Nobody reads it any more: what still comes is dropped. */
  private withdrawn = false;
  private wakeListed = false;

  constructor(
    private readonly plane: ClientPlane,
    /** Lane the stream was placed on, for the load count. */
    readonly lane: number,
    private readonly onWake: (feed: Feed) => void,
    private readonly onClosed: (feed: Feed) => void,
  ) {
    this.row = plane.allocateReceiver(this);
  }

  record(bytes: Uint8Array, offset: number, length: number): boolean {
    if (this.withdrawn) return false;
    if (this.tap === undefined || this.records.length > 0 || !this.tap(bytes, offset, length))
      this.records.push(bytes, offset, length);
    if (this.wakeListed) return false;
    this.wakeListed = true;
    return true;
  }

  wake(): void {
    this.wakeListed = false;
    if (!this.withdrawn) this.onWake(this);
  }

  retired(discard: boolean): void {
    if (this.closed) return;
    this.closed = true;
    this.silenced = discard;
    if (discard) this.records.clear();
    this.onClosed(this);
    if (!this.withdrawn) this.onWake(this);
  }

  laneDied(error: VeloError): void {
    this.failure = error;
    this.retired(false);
  }

  /** The application took `n` records: their credit goes back. */
  taken(n: number): void {
    if (!this.closed) this.plane.drained(this.row.row, n);
  }

  /** Asks the producer to stop; output still flows. */
  requestStop(): void {
    if (!this.closed) this.plane.requestStop(this.row.row);
  }

  /** A lane has the slot, or had it. */
  get claimed(): boolean {
    return this.closed || this.plane.rows.receivers.claimedBy(this.row.row) >= 0;
  }

  /** Nobody may claim the slot any more. True when nobody had, and with that the stream is over. */
  unbind(): boolean {
    if (this.withdrawn || this.closed || !this.plane.releaseUnclaimed(this.row.row)) return false;
    this.retired(false);
    return true;
  }

  /** Drops what is unread and lets go of the slot; its producer is told unless the stream is over already. */
  withdraw(): void {
    if (this.withdrawn) return;
    this.withdrawn = true;
    this.records.clear();
    if (this.closed) return;
    if (!this.plane.releaseReceiver(this.row.row)) return;
    // Nobody had claimed it: no lane will retire it.
    this.closed = true;
    this.onClosed(this);
  }
}
