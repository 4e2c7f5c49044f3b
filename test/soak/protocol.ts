// What the processes of a soak tell each other over IPC, as plain JSON.

import type { PeerInfoJson, VeloOptions } from '../../lib/index.js';

export type Role = 'reader' | 'writer';

/** The command line of a child. */
export interface ChildSetup {
  readonly name: string;
  readonly role: Role;
  readonly options: VeloOptions;
  readonly seed: number;
  /** First stream id of a reader. */
  readonly firstStream: number;
  /** Streams that a reader keeps open. */
  readonly width: number;
  /** Time without progress after which a stream counts as hung; a process that stands still does not count it. */
  readonly hangMs: number;
  /** A thread that was late by so much may have cost somebody a heartbeat. */
  readonly lateMs: number;
}

export type ToChild =
  /** A writer that a reader may ask from now on, or no more. */
  | { readonly do: 'writer'; readonly name: string; readonly info: PeerInfoJson }
  | { readonly do: 'forget'; readonly name: string }
  /** Streams are opened from now on, at most so many; or no more. */
  | { readonly do: 'open'; readonly streams: number }
  | { readonly do: 'rest' }
  /** With `collect`, once rubbish is collected. */
  | { readonly do: 'sample'; readonly id: number; readonly collect: boolean }
  | { readonly do: 'end' };

/** How a stream ended at one of its ends. */
export interface StreamReport {
  readonly stream: number;
  readonly reader: string;
  readonly writer: string;
  /** `finalized`, `cancelled`, `dropped as planned`, a code, a code with what failed in front, or one of `hung`, `deserted`. */
  readonly outcome: string;
  /** Date.now() at the start and at the end. */
  readonly from: number;
  readonly to: number;
  readonly items: number;
  /** What must never be, whatever faults there were. */
  readonly wrong: string | undefined;
}

/** A stretch of time in which a process did not run. */
export interface Standstill {
  readonly from: number;
  readonly to: number;
}

/** A process at rest. */
export interface Sample {
  readonly heapBytes: number;
  readonly externalBytes: number;
  readonly arrayBufferBytes: number;
  readonly rssBytes: number;
  readonly descriptors: number;
  /** Streams that have ended here since it started. */
  readonly streams: number;
  /** Streams of the soak that are still open here. */
  readonly open: number;
  /** Must be 0 at rest. */
  readonly gauges: Readonly<Record<string, number>>;
  /** Must be 0 always. */
  readonly never: Readonly<Record<string, number>>;
}

export type FromChild =
  | { readonly kind: 'ready'; readonly info: PeerInfoJson }
  | { readonly kind: 'opened'; readonly streams: number }
  | { readonly kind: 'ended'; readonly streams: readonly StreamReport[]; readonly standstills: readonly Standstill[] }
  | { readonly kind: 'sample'; readonly id: number; readonly sample: Sample }
  | { readonly kind: 'broken'; readonly what: string };
