// What is due again and again, each thing at an interval of its own, in the order of their next times: a binary heap. Owns that order;
// it must never read a clock, keep a timer or act. Whoever drives it brings the time and asks until nothing is due.

const NOT_QUEUED = -1;

/** One thing that is due every `intervalMs` while it stands in a queue. */
export class Tick {
  /** Next time, and place in the heap: the queue's own. */
  due = 0;
  place = NOT_QUEUED;
  queue: TickQueue<Tick> | undefined;

  constructor(readonly intervalMs: number) {}

  /** Leaves its queue, if it stands in one. */
  stop(): void {
    this.queue?.remove(this);
  }
}

export class TickQueue<T extends Tick> {
  private readonly heap: T[] = [];

  get size(): number {
    return this.heap.length;
  }

  /** When the next one is due; Infinity: none is. */
  deadline(): number {
    return this.heap.length === 0 ? Number.POSITIVE_INFINITY : this.heap[0]!.due;
  }

  /** Due from one interval after `now` on. */
  add(tick: T, now: number): void {
    tick.due = now + tick.intervalMs;
    tick.queue = this;
    this.heap.push(tick);
    this.rise(tick, this.heap.length - 1);
  }

  remove(tick: T): void {
    const { place } = tick;
    if (this.heap[place] !== tick) return;
    const last = this.heap.pop()!;
    tick.place = NOT_QUEUED;
    if (last === tick) return;
    this.sink(last, place);
    this.rise(last, last.place);
  }

  /**
   * One that is due; it is due again an interval after `now`, so one that comes late counts once, however late. Call until it
   * returns undefined.
   */
  takeDue(now: number): T | undefined {
    const tick = this.heap[0];
    if (tick === undefined || tick.due > now) return undefined;
    tick.due = now + tick.intervalMs;
    this.sink(tick, 0);
    return tick;
  }

  /** Puts `tick` at `from` or above it. */
  private rise(tick: T, from: number): void {
    const { heap } = this;
    let place = from;
    while (place > 0) {
      const above = (place - 1) >>> 1;
      const parent = heap[above]!;
      if (parent.due <= tick.due) break;
      heap[place] = parent;
      parent.place = place;
      place = above;
    }
    heap[place] = tick;
    tick.place = place;
  }

  /** Puts `tick` at `from` or below it. */
  private sink(tick: T, from: number): void {
    const { heap } = this;
    let place = from;
    for (;;) {
      let below = 2 * place + 1;
      if (below >= heap.length) break;
      if (below + 1 < heap.length && heap[below + 1]!.due < heap[below]!.due) below += 1;
      const child = heap[below]!;
      if (child.due >= tick.due) break;
      heap[place] = child;
      child.place = place;
      place = below;
    }
    heap[place] = tick;
    tick.place = place;
  }
}
