// Lanes for user handlers: per (handler, sender), or per handler, one job at a time (or `width` at a time) in arrival order,
// with a bound on what may wait. Promise logic only; it must never hold a timer, and never let a failing job stop its lane.
//
// A lane exists while it has a job: it is made by the job that finds none, starts that job in the same call, and is
// forgotten when its last job has ended. Jobs of different lanes overlap freely.
//
// The reference keeps an idle lane for 30 s. A lane holds nothing between jobs, so nobody can tell: order, overlap and
// bounds of what comes later are those of a fresh lane. Only its gauges differ. `lanes` counts lanes that have a job, and
// `lanesCreated` one lane per busy spell.

import { VeloError } from '../errors.js';

/** Jobs that may wait in one lane behind the running one, unless the handler says otherwise. */
export const DEFAULT_MAX_QUEUE_DEPTH = 8_192;
/** Payload bytes that may wait in one lane. A single larger job still waits when the queue is empty. */
export const DEFAULT_MAX_QUEUE_BYTES = 64 * 1024 * 1024;

/** A handler run, its reply included. The lane waits for it; what it throws is counted, not passed on. */
export type OrderedJob = () => void | PromiseLike<void>;

/** `started` in this very call, `queued` behind others, or `rejected` because the lane is full: the job never runs. */
export type Enqueued = 'started' | 'queued' | 'rejected';

export interface OrderedDispatchCounts {
  lanesCreated: number;
  /** Jobs refused because their lane was full. */
  rejected: number;
  /** Jobs that threw. Handlers are wrapped so that they do not; this counts the exceptions to that. */
  failed: number;
}

interface QueuedJob {
  readonly job: OrderedJob;
  readonly bytes: number;
}

interface OrderedLane {
  readonly key: bigint;
  readonly queue: QueuedJob[];
  // Index of the next job in `queue`; the array is cut when it runs empty or half of it is behind us.
  next: number;
  bytes: number;
  running: number;
}

/** The lane key of handlers that are ordered over all senders. No sender has it: zero is not a worker id. */
export const GLOBAL_LANE = 0n;
const COMPACT_AT = 64;

export class OrderedDispatch {
  readonly counts: OrderedDispatchCounts = { lanesCreated: 0, rejected: 0, failed: 0 };
  readonly #handlers = new Map<string, Map<bigint, OrderedLane>>();
  /** Lanes ever made, by handler: as many entries as handlers that were called. */
  readonly #created = new Map<string, number>();
  #lanes = 0;
  #queued = 0;

  /** Lanes that have a job now. */
  get lanes(): number {
    return this.#lanes;
  }

  /** Jobs that wait, over all lanes; running ones do not count. */
  get queued(): number {
    return this.#queued;
  }

  /** Jobs of one lane, those that run included. */
  depth(handler: string, key: bigint): number {
    const lane = this.#handlers.get(handler)?.get(key);
    return lane === undefined ? 0 : lane.running + lane.queue.length - lane.next;
  }

  /** Jobs of one handler that wait, its lanes, and how many it ever had. For metrics, not for the message path. */
  describe(handler: string): { lanes: number; queued: number; created: number } {
    const lanes = this.#handlers.get(handler);
    let queued = 0;
    for (const lane of lanes?.values() ?? []) queued += lane.queue.length - lane.next;
    return { lanes: lanes?.size ?? 0, queued, created: this.#created.get(handler) ?? 0 };
  }

  /**
   * Runs `job` after all earlier jobs of (handler, key), or as soon as fewer than `width` of them run. `bytes` is what the
   * job keeps in memory while it waits, `maxDepth` how many may wait. A rejected job leaves the lane as it was.
   */
  enqueue(
    handler: string,
    key: bigint,
    bytes: number,
    job: OrderedJob,
    maxDepth = DEFAULT_MAX_QUEUE_DEPTH,
    maxBytes = DEFAULT_MAX_QUEUE_BYTES,
    width = 1,
  ): Enqueued {
    if (maxDepth < 0 || Number.isNaN(maxDepth)) {
      throw new VeloError('ERR_INVALID_ARGUMENT', `maxQueueDepth of handler '${handler}' must not be ${maxDepth}`);
    }
    let lanes = this.#handlers.get(handler);
    if (lanes === undefined) {
      lanes = new Map();
      this.#handlers.set(handler, lanes);
    }
    let lane = lanes.get(key);
    if (lane === undefined) {
      lane = { key, queue: [], next: 0, bytes: 0, running: 0 };
      lanes.set(key, lane);
      this.#lanes += 1;
      this.counts.lanesCreated += 1;
      this.#created.set(handler, (this.#created.get(handler) ?? 0) + 1);
    }
    // Nothing waits here while fewer run: whoever ends a job takes the next one before it goes.
    if (lane.running < width && lane.next === lane.queue.length) {
      void this.#run(handler, lanes, lane, job);
      return 'started';
    }
    const depth = lane.queue.length - lane.next;
    if (depth >= maxDepth || (depth > 0 && lane.bytes + bytes > maxBytes)) {
      this.counts.rejected += 1;
      return 'rejected';
    }
    lane.queue.push({ job, bytes });
    lane.bytes += bytes;
    this.#queued += 1;
    return 'queued';
  }

  async #run(handler: string, lanes: Map<bigint, OrderedLane>, lane: OrderedLane, first: OrderedJob): Promise<void> {
    let job: OrderedJob | undefined = first;
    lane.running += 1;
    while (job !== undefined) {
      try {
        await job();
      } catch {
        this.counts.failed += 1;
      }
      job = this.#shift(lane);
    }
    lane.running -= 1;
    if (lane.running > 0) return;
    lanes.delete(lane.key);
    if (lanes.size === 0) this.#handlers.delete(handler);
    this.#lanes -= 1;
  }

  #shift(lane: OrderedLane): OrderedJob | undefined {
    const queued = lane.queue[lane.next];
    if (queued === undefined) return undefined;
    lane.next += 1;
    lane.bytes -= queued.bytes;
    this.#queued -= 1;
    if (lane.next === lane.queue.length) {
      lane.queue.length = 0;
      lane.next = 0;
    } else if (lane.next >= COMPACT_AT && lane.next * 2 >= lane.queue.length) {
      lane.queue.splice(0, lane.next);
      lane.next = 0;
    }
    return queued.job;
  }
}
