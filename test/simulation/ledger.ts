// What every stream sent and what its reader got. Each record says which stream, which of its senders and which place it has, and
// carries a checksum; a reader that gets anything but the next record of its stream, or an end that its sender did not write, is
// reported here. Owns the truth about streams; it must never touch a node.

import type { RetiredOutcome, VeloError } from '../../lib/index.js';
import type { SimNode } from './sim-node.js';

const HEADER_BYTES = 20;
const WHOLE_SUM_BYTES = 4_096;
const SAMPLES = 256;

/** How a sender ended its stream. */
export type SenderEnd = 'open' | 'finalized' | 'detached' | 'closed' | 'failed';

/** One sender of a stream, from its attach to its end. */
export class Session {
  /** Records that the sender's node accepted. */
  accepted = 0;
  received = 0;
  attached = false;
  end: SenderEnd = 'open';
  /** What its sender was told of its output, once it was. */
  retired: RetiredOutcome | undefined;
  /** The mux lane it rides; undefined: not known. */
  muxLane: number | undefined;
  /** It sent a record that its consumer refuses to fetch. */
  refusable = false;

  constructor(
    readonly number: number,
    readonly producer: SimNode,
  ) {}
}

export type ReaderEnd = 'open' | 'finalized' | 'cancelled' | string;

export class Stream {
  readonly sessions: Session[] = [];
  /** The session whose records the reader is getting. */
  at = 0;
  /** How the reader's loop came to its end: `open`, `finalized`, `cancelled` or the code of an error. */
  readerEnd: ReaderEnd = 'open';
  /** The application cancelled it, left its loop, or asked to. */
  cancelled = false;
  stopAsked = false;
  /** The reader takes what comes. */
  reading = false;
  /** Its anchor does not wait for senders for ever. */
  expires = false;
  /** Its records are fetched by its consumer. */
  large = false;
  /** A lane that it may have ridden died. */
  laneDied = false;

  constructor(
    readonly id: number,
    readonly consumer: SimNode,
    private readonly failed: (check: string, message: string) => void,
  ) {}

  /** A new sender is about to attach. */
  session(producer: SimNode): Session {
    const session = new Session(this.sessions.length, producer);
    this.sessions.push(session);
    return session;
  }

  get label(): string {
    return `stream ${this.id} at n${this.consumer.number}`;
  }

  /** A record came out of the reader. */
  item(bytes: Uint8Array): void {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (bytes.length < HEADER_BYTES) {
      this.failed('foreign record', `${this.label} got ${bytes.length} bytes`);
      return;
    }
    if (view.getUint32(16) !== checksum(bytes)) {
      this.failed('checksum', `${this.label} got a record whose bytes were changed`);
      return;
    }
    const stream = view.getUint32(0);
    if (stream !== this.id) {
      this.failed('foreign record', `${this.label} got a record of stream ${stream}`);
      return;
    }
    this.place(view.getUint32(4), view.getUint32(8), 'record');
    if (view.getUint32(12) !== bytes.length)
      this.failed('length', `${this.label} got ${bytes.length} bytes of another`);
  }

  /** A soft error came out of the reader; it has a place like a record. */
  softError(message: string): void {
    const [stream, session, seq] = message.split(':').map(Number);
    if (stream !== this.id) this.failed('foreign record', `${this.label} got the error "${message}"`);
    else this.place(session!, seq!, 'error');
  }

  private place(number: number, seq: number, what: string): void {
    if (this.readerEnd !== 'open') this.failed('after the end', `${this.label} got a ${what} after ${this.readerEnd}`);
    if (number < this.at || number >= this.sessions.length) {
      this.failed('foreign record', `${this.label} got a ${what} of sender ${number} while sender ${this.at} is read`);
      return;
    }
    while (this.at < number) this.senderOver();
    const session = this.sessions[number]!;
    if (seq < session.received) this.failed('repeated', `${this.label} got ${what} ${number}:${seq} again`);
    else if (seq > session.received)
      this.failed('lost', `${this.label} got ${what} ${number}:${seq} instead of ${session.received}`);
    session.received = Math.max(session.received, seq + 1);
    if (session.received > session.accepted)
      this.failed('invented', `${this.label} got ${what} ${number}:${seq} of ${session.accepted} sent`);
  }

  /** The reader goes on to the next sender: it must have had all of this one. */
  private senderOver(): void {
    const { number, accepted, received, end } = this.sessions[this.at]!;
    if (received !== accepted)
      this.failed(
        'lost',
        `${this.label} got ${received} of ${accepted} records of sender ${number} (${end}), no error`,
      );
    this.at += 1;
  }

  /** The reader saw that its sender left in order. */
  detached(): void {
    const session = this.sessions[this.at];
    // Senders that never came to open their slot are not seen by the reader.
    for (let i = this.at; i < this.sessions.length; i++) {
      if (this.sessions[i]!.end !== 'detached') continue;
      while (this.at < i) this.senderOver();
      this.senderOver();
      return;
    }
    this.failed('terminal', `${this.label} saw a detach that sender ${session?.number ?? '-'} did not write`);
  }

  /** The reader's loop ended cleanly. */
  finalized(): void {
    if (!this.ends('finalized')) return;
    const last = this.sessions.findIndex((session) => session.end === 'finalized');
    if (last < 0) {
      this.failed('terminal', `${this.label} ended as finalized, and nobody finalized it`);
      return;
    }
    while (this.at <= last) this.senderOver();
  }

  /** Nobody attached in time: the anchor went. What was sent before was read. */
  expired(): void {
    if (!this.ends('expired')) return;
    for (let i = this.at; i < this.sessions.length; i++) {
      const { attached, end, number, accepted, received } = this.sessions[i]!;
      if (attached && end === 'detached' && received !== accepted)
        this.failed('lost', `${this.label} expired with ${received} of ${accepted} records of sender ${number}`);
    }
  }

  /** The reader's loop ended with an error. */
  ended(error: VeloError): void {
    this.ends(error.code);
  }

  private ends(how: string): boolean {
    if (this.readerEnd !== 'open') {
      this.failed('second terminal', `${this.label} ended as ${this.readerEnd}, then as ${how}`);
      return false;
    }
    this.readerEnd = how;
    return true;
  }

  get producers(): readonly SimNode[] {
    return this.sessions.map((session) => session.producer);
  }
}

/** The bytes of a record. `length` includes what names it. */
export function makeItem(stream: number, session: number, seq: number, length: number): Uint8Array {
  const bytes = new Uint8Array(Math.max(length, HEADER_BYTES));
  const view = new DataView(bytes.buffer);
  view.setUint32(0, stream);
  view.setUint32(4, session);
  view.setUint32(8, seq);
  view.setUint32(12, bytes.length);
  bytes.fill((stream * 31 + session * 7 + seq) & 0xff, HEADER_BYTES);
  view.setUint32(16, checksum(bytes));
  return bytes;
}

/** Of everything but itself; of long records a part. */
function checksum(bytes: Uint8Array): number {
  const step = bytes.length <= WHOLE_SUM_BYTES ? 1 : Math.floor(bytes.length / SAMPLES);
  let sum = 0x811c_9dc5;
  for (let i = 0; i < bytes.length; i += i < 16 ? 1 : step) {
    if (i >= 16 && i < HEADER_BYTES) continue;
    sum = Math.imul(sum ^ bytes[i]!, 0x0100_0193);
  }
  return sum >>> 0;
}
