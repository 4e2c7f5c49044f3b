// The workload as arithmetic: who serves which request, how long it is, and what the run must therefore count. No I/O.

/** The number of frontend processes. Request `i` is answered to frontend `i mod 3`. */
export const FRONTENDS = 3;

/** The shape of a run; every count below follows from it. */
export interface Workload {
  readonly engines: number;
  readonly requests: number;
  /** How many requests an engine decodes at once. */
  readonly maxBatch: number;
  /** Token budgets cycle through 1 to this number. */
  readonly tokens: number;
}

/** What a run must count: exactly, under the manual policy. */
export interface Counts {
  readonly tokens: number;
  /** Forward passes, summed over the engines. */
  readonly passes: number;
  /** `_stream_batch` messages sent by the engines. */
  readonly writes: number;
}

export function frontendOf(request: number): number {
  return request % FRONTENDS;
}

export function engineOf(request: number, workload: Workload): number {
  return request % workload.engines;
}

export function budgetOf(request: number, workload: Workload): number {
  return 1 + ((7 * request) % workload.tokens);
}

/** The requests for which `owns` holds, in index order. */
export function requestsWhere(workload: Workload, owns: (request: number) => boolean): number[] {
  return Array.from({ length: workload.requests }, (_, request) => request).filter(owns);
}

/** The request with the most tokens, the first of them in index order. */
export function longestRequest(workload: Workload): number {
  let longest = 0;
  for (let request = 1; request < workload.requests; request += 1) {
    if (budgetOf(request, workload) > budgetOf(longest, workload)) longest = request;
  }
  return longest;
}

/**
 * Plays the schedule of one engine without sending anything. A write is one batch: a pass makes one for every frontend
 * that it touches, and every request makes one more, because a stream's opening travels alone.
 */
export function predictEngine(engine: number, workload: Workload): Counts {
  const waiting = requestsWhere(workload, (request) => engineOf(request, workload) === engine);
  const opens = waiting.length;
  let active: { frontend: number; left: number }[] = [];
  let tokens = 0;
  let passes = 0;
  let passWrites = 0;
  while (waiting.length > 0 || active.length > 0) {
    for (const request of waiting.splice(0, workload.maxBatch - active.length)) {
      active.push({ frontend: frontendOf(request), left: budgetOf(request, workload) });
    }
    passes += 1;
    tokens += active.length;
    passWrites += new Set(active.map((stream) => stream.frontend)).size;
    active = active.map(({ frontend, left }) => ({ frontend, left: left - 1 })).filter(({ left }) => left > 0);
  }
  return { tokens, passes, writes: passWrites + opens };
}

/** The counts of the whole run: those of its engines, summed. */
export function predict(workload: Workload): Counts {
  const engines = Array.from({ length: workload.engines }, (_, engine) => predictEngine(engine, workload));
  return {
    tokens: engines.reduce((sum, counts) => sum + counts.tokens, 0),
    passes: engines.reduce((sum, counts) => sum + counts.passes, 0),
    writes: engines.reduce((sum, counts) => sum + counts.writes, 0),
  };
}
