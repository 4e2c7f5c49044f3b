// Owns the sampling of what the code on one thread allocates, garbage included, and the sums that are read from it. Must never be loaded in
// a run whose times count.

import { Session } from 'node:inspector';

/** One sample stands for so many bytes on the average. */
const SAMPLING_INTERVAL_BYTES = 256;

interface ProfileNode {
  readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  readonly selfSize: number;
  readonly children: readonly ProfileNode[];
}

/** Bytes by place: `file:line function`. */
export type Allocations = Readonly<Record<string, number>>;

export class AllocationSampler {
  private readonly session = new Session();

  constructor() {
    this.session.connect();
  }

  start(): void {
    this.session.post('HeapProfiler.startSampling', {
      samplingInterval: SAMPLING_INTERVAL_BYTES,
      includeObjectsCollectedByMajorGC: true,
      includeObjectsCollectedByMinorGC: true,
    } as object);
  }

  /** Everything since `start`, by the function that allocated it. */
  stop(): Allocations {
    const found: Record<string, number> = {};
    this.session.post('HeapProfiler.stopSampling', (error, result) => {
      if (error !== null) throw error;
      add(result.profile.head as unknown as ProfileNode, found);
    });
    return found;
  }
}

function add(node: ProfileNode, found: Record<string, number>): void {
  if (node.selfSize > 0) {
    const place = placeOf(node);
    found[place] = (found[place] ?? 0) + node.selfSize;
  }
  for (const child of node.children) add(child, found);
}

function placeOf({ callFrame: { functionName, url, lineNumber } }: ProfileNode): string {
  const file = url.replace(/^.*\/dist\//, '').replace(/\?.*$/, '');
  const name = functionName === '' ? '(anonymous)' : functionName;
  return file === '' ? name : `${file}:${lineNumber + 1} ${name}`;
}
