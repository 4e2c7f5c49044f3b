// The rows of a client thread that nobody uses. It knows numbers only.

/** Free row numbers, first in first out: a row rests before it is used again. */
export class FreeRows {
  private readonly ring: Int32Array;
  private next = 0;
  private count: number;

  constructor(rows: number) {
    this.ring = Int32Array.from({ length: rows }, (_, i) => i);
    this.count = rows;
  }

  take(): number {
    if (this.count === 0) return -1;
    const row = this.ring[this.next]!;
    this.next = (this.next + 1) % this.ring.length;
    this.count--;
    return row;
  }

  put(row: number): void {
    this.ring[(this.next + this.count) % this.ring.length] = row;
    this.count++;
  }
}
