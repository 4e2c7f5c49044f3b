// Frame credit, both ends of it: what a sender may still send, and what a receiver has admitted, seen taken and not
// granted yet. Owns the arithmetic and nothing else; it must never know a slot, a buffer or the wire.

const MAX_U32 = 0xffff_ffff;

/** Records a slot's buffer must hold: every data record of the window and one terminal. */
export function slotBufferDepth(limit: number): number {
  return limit + 1;
}

/** The sender's side: data credit, and one more that only a terminal can spend. */
export class EgressLedger {
  /** Data records that may go now. */
  credit: number;
  /** The terminal's own credit is unspent. */
  reserve = true;

  constructor(credit: number) {
    this.credit = credit;
  }

  spendData(): boolean {
    if (this.credit === 0) return false;
    this.credit -= 1;
    return true;
  }

  spendTerminal(): boolean {
    const unspent = this.reserve;
    this.reserve = false;
    return unspent;
  }

  /** Adds a grant; saturates at 2^32−1. */
  grant(delta: number): void {
    this.credit = saturatingAdd(this.credit, delta);
  }
}

/** Sum of two u32, at most 2^32−1. */
export function saturatingAdd(a: number, b: number): number {
  return Math.min(a + b, MAX_U32);
}

const INITIAL_SIZES = 8;

/**
 * The receiver's side. `limit - outstanding - ungranted` is what the sender can still send; the buffer never holds more
 * than `limit` data records and one terminal.
 *
 * | event                  | outstanding | ungranted | buffered bytes |
 * |------------------------|-------------|-----------|----------------|
 * | data admitted          | +1          |           |                |
 * | delivered (in order)   |             |           | + size         |
 * | consumer took n        | −d          | +d        | − n sizes      |
 * | grant                  |             | → 0       |                |
 *
 * d is n without the terminal: taking that gives nothing back.
 */
export class IngressAccount {
  readonly limit: number;
  /** Data records admitted and not seen as taken: delivered or held. */
  outstanding = 0;
  /** Taken, not granted yet. */
  ungranted = 0;
  /** Delivered bytes the consumer has not taken. */
  bufferedBytes = 0;
  /** The terminal reserve is spent. */
  terminalAdmitted = false;

  /** Sizes of the delivered records, oldest first: a ring of a power of two that grows up to the window. */
  private sizes = new Uint32Array(INITIAL_SIZES);
  private head = 0;
  private count = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  /** Records delivered and not seen as taken, terminal included. */
  get buffered(): number {
    return this.count;
  }

  /** False: the sender overspent its window. */
  admitData(): boolean {
    if (this.outstanding >= this.limit) return false;
    this.outstanding += 1;
    return true;
  }

  /** False: this slot had its terminal. */
  admitTerminal(): boolean {
    if (this.terminalAdmitted) return false;
    this.terminalAdmitted = true;
    return true;
  }

  /** A record of `size` bytes went into the buffer. */
  delivered(size: number): void {
    if (this.count === this.sizes.length) this.growSizes();
    this.sizes[(this.head + this.count) & (this.sizes.length - 1)] = size;
    this.count += 1;
    this.bufferedBytes += size;
  }

  /** The consumer says it took `taken` records. A count above what was delivered cannot make credit. */
  release(taken: number): void {
    const n = Math.min(taken, this.count);
    const mask = this.sizes.length - 1;
    for (let i = 0; i < n; i++) this.bufferedBytes -= this.sizes[(this.head + i) & mask]!;
    this.head = (this.head + n) & mask;
    this.count -= n;
    const data = Math.min(n, this.outstanding);
    this.outstanding -= data;
    this.ungranted += data;
  }

  /** Takes all ungranted credit, or 0 while the buffer is at its byte watermark. */
  takeGrant(byteBudget: number): number {
    if (this.bufferedBytes >= byteBudget) return 0;
    const grant = this.ungranted;
    this.ungranted = 0;
    return grant;
  }

  private growSizes(): void {
    const old = this.sizes;
    const grown = new Uint32Array(old.length * 2);
    for (let i = 0; i < this.count; i++) grown[i] = old[(this.head + i) & (old.length - 1)]!;
    this.sizes = grown;
    this.head = 0;
  }
}
