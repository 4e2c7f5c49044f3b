// Histograms of our own and the bucket edges of the reference. An accumulator is a few numbers; whoever owns it observes, whoever
// is scraped reads. It must never read a clock, and never know a registry.

/** Edges `first`, `first * 2`, … , `count` of them. */
function doubling(first: number, count: number): readonly number[] {
  return Array.from({ length: count }, (_, i) => first * 2 ** i);
}

/** Run times and lane waits of handlers, in seconds. */
export const HANDLER_SECONDS = doubling(0.0005, 16);
/** Operations of the rendezvous, in seconds. */
export const RENDEZVOUS_SECONDS = doubling(0.0005, 20);
/** Waits and writes of connections, in seconds: finer where a queue that is deep enough to matter lies. */
export const EGRESS_SECONDS: readonly number[] = [
  0.0005, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5,
];
/** Records per batch; the edges of `BatchSizes`. */
export const BATCH_RECORDS = doubling(1, 12);

export class Histogram {
  /** Observations up to each edge and above the one before it; the last holds those above every edge. */
  readonly buckets: number[];
  sum = 0;
  count = 0;

  constructor(readonly edges: readonly number[]) {
    this.buckets = new Array<number>(edges.length + 1).fill(0);
  }

  observe(value: number): void {
    const { edges } = this;
    let bucket = 0;
    while (bucket < edges.length && value > edges[bucket]!) bucket += 1;
    this.buckets[bucket]! += 1;
    this.sum += value;
    this.count += 1;
  }
}
