// The frames of peers that go to one client: how many bytes of them a busy client may leave waiting, and which answers it still expects.
// It owns the bound and the pulled messages that wait for it; it must never refuse an answer, and writes no ring.

import type { RingProducer } from '../plane/ring.js';
import { EV_FRAME, EV_HELLO, encodeHelloEvent, FRAME_HEAD_BYTES, type HelloEvent, writeU32 } from './commands.js';

/** What is needed of the client's link. */
export interface MessageLink {
  /** Bytes of the events that wait for room in the ring. */
  readonly eventBytes: number;
  event(kind: number, tag: number, body: Uint8Array, owned?: boolean): void;
}

interface HeldFrame {
  type: number;
  body: Uint8Array;
  taken: () => void;
}

export class ClientMessages {
  /** Pulled messages that wait for a busy client; whoever pulls bounds them, and pulls no further. */
  private readonly pulled: HeldFrame[] = [];
  /** Messages in the parcel port that the client has not taken: where the mark of each ends in the ring, and its bytes. */
  private readonly parcels: { position: number; length: number }[] = [];
  private parcelBytes = 0;
  /** Response slots of calls that are out, and the generation of each. */
  private readonly expected = new Map<number, number>();

  constructor(
    private readonly link: MessageLink,
    private readonly ring: Pick<RingProducer, 'isFreed'>,
    private readonly queueBytes: number,
  ) {}

  /**
   * A frame that this lane pulled for the client: `body` is a whole `EV_FRAME` body in memory of its own, which goes without a copy.
   * It waits while the client is busy, where `frame` would refuse; `taken` is called when it waits no longer.
   */
  give(type: number, body: Uint8Array, taken: () => void): void {
    this.pulled.push({ type, body, taken });
    this.flush();
  }

  /** Pulled messages wait here. */
  get held(): boolean {
    return this.pulled.length > 0;
  }

  /** Passes on the pulled messages that find their room now. */
  flush(): void {
    for (let next = this.pulled[0]; next !== undefined; next = this.pulled[0]) {
      if (this.isFull(next.body.length)) return;
      this.pulled.shift();
      this.link.event(EV_FRAME, next.type, next.body, true);
      next.taken();
    }
  }

  /**
   * A frame of a peer. False when it must be refused: the client is busy and `messageQueueBytes` wait already. Answers (`bounded` by
   * the client's own calls) are never refused.
   */
  frame(type: number, frame: Uint8Array, headerLength: number, bounded: boolean): boolean {
    if (!bounded && this.isFull(frame.length)) return false;
    const body = new Uint8Array(FRAME_HEAD_BYTES + frame.length);
    writeU32(body, 0, headerLength);
    body.set(frame, FRAME_HEAD_BYTES);
    this.link.event(EV_FRAME, type, body);
    return true;
  }

  /** A hello of a peer. False when it must be refused, as above. */
  hello(token: number, event: HelloEvent): boolean {
    if (this.isFull(event.frame.length)) return false;
    this.link.event(EV_HELLO, token, encodeHelloEvent(event));
    return true;
  }

  /** A call of this client went out: its answer may come in. A slot has one call at a time, so this is bounded by the slots. */
  expectAnswer(slot: number, generation: number): void {
    this.expected.set(slot, generation);
  }

  /** True once for each call that is out. */
  takeExpected(slot: number, generation: number): boolean {
    return this.expected.get(slot) === generation && this.expected.delete(slot);
  }

  /** A message went through the parcel port; its mark ends at `position` of the ring. */
  parcelGiven(position: number, length: number): void {
    this.parcels.push({ position, length });
    this.parcelBytes += length;
  }

  /** Counts no longer what the client has taken. Due each turn: a position is good for so many bytes only. */
  forgetTaken(): void {
    const { parcels } = this;
    let taken = 0;
    while (taken < parcels.length && this.ring.isFreed(parcels[taken]!.position))
      this.parcelBytes -= parcels[taken++]!.length;
    if (taken > 0) parcels.splice(0, taken);
  }

  /** What a busy client has not taken: messages that wait here, and parcels whose marks stand in the ring. One always fits. */
  private isFull(length: number): boolean {
    this.forgetTaken();
    const waiting = this.link.eventBytes + this.parcelBytes;
    return waiting > 0 && waiting + length > this.queueBytes;
  }
}
