// The counters and gauges of the protocol machines: plain numeric fields, incremented in place. Owns the set of series
// and nothing else; it must never know a registry, a label string or shared memory. Whoever drives the machines
// publishes them.

/** Upper bounds of the batch size histogram: 1, 2, 4 … 2,048, and one bucket for everything above. */
const SIZE_BUCKETS = 12;

/** Records per batch. One `observe` per batch, never per record. */
export class BatchSizes {
  /** Bucket i counts batches of at most 2^i records that fit no smaller bucket; the last one has no upper bound. */
  readonly buckets: number[] = new Array<number>(SIZE_BUCKETS + 1).fill(0);
  /** Records in all batches. */
  sum = 0;
  /** Batches. */
  count = 0;

  observe(records: number): void {
    const bucket = records <= 1 ? 0 : Math.min(SIZE_BUCKETS, 32 - Math.clz32(records - 1));
    this.buckets[bucket]! += 1;
    this.sum += records;
    this.count += 1;
  }
}

/** What one lane's machines count. Counters only grow; gauges (marked) are moved by differences and end at 0. */
export class MuxMetrics {
  /** Gauge: live slots of both directions. */
  liveSlots = 0;
  /** Gauge: records held behind a gap at ingress. */
  heldRecords = 0;
  /** Gauge: records withheld at egress for want of credit. */
  withheldRecords = 0;
  /** Gauge: records in open batches. */
  stagedRecords = 0;

  /** Gauge: refusals of staged records that wait for their OpenSlot. No series of its own. */
  waitingRefusals = 0;

  /** `batches_total{sent}` is `sent.count`, `records_per_batch{sent}` the whole. */
  readonly sent = new BatchSizes();
  readonly received = new BatchSizes();

  recordsSentData = 0;
  recordsSentOpenSlot = 0;
  recordsSentCloseSlot = 0;
  recordsSentCreditUpdate = 0;
  recordsSentLifecycle = 0;
  /** Batches that carry one record too large for a packed batch. */
  singletons = 0;

  /** A slot began to starve (once per episode). */
  creditExhausted = 0;
  /** The buffer was full although credit was granted. Must stay 0. */
  readerStalls = 0;
  generationMismatch = 0;
  droppedStaleEpoch = 0;
  droppedGeneration = 0;
  droppedUnknownSlot = 0;
  droppedClosedSlot = 0;
  droppedSlotCollision = 0;
  droppedStaleSingleton = 0;
  droppedDuplicate = 0;
  droppedLaneMismatch = 0;
  /** Batches whose header or a record could not be decoded. */
  malformedBatches = 0;

  /** Control for an index never allocated, and refusals beyond the reject lane. */
  controlRefused = 0;
  /** Holds refused for want of bytes, and windows overspent. */
  holdOverflow = 0;
  epochDeaths = 0;
  /** Credit staged again after an epoch death threw its batch away. */
  creditReposted = 0;
  /** Credit in a batch the transport refused. Must stay 0. */
  creditLost = 0;
  batchSeqGaps = 0;
  drainVisits = 0;
  /** Slots that ended because their sender was silent. */
  watchdogFirings = 0;

  wakesOpen = 0;
  wakesControl = 0;
  wakesFrame = 0;
  wakesInletClosed = 0;
  wakesLinger = 0;
}
