// Owns the contract between a row and the harness: how a row opens its two halves. Rows differ in transport and in nothing else.
// Must never hold behaviour.

import type { Sink, TokenSender } from '../workload.js';

/** `throughput-items` is throughput whose reader takes one item at a time. */
export const MODES = ['throughput', 'throughput-items', 'lone', 'busy'] as const;
export type Mode = (typeof MODES)[number];

export interface RowContext {
  readonly name: string;
  readonly mode: Mode;
  readonly streams: number;
}

/** The half that receives. It is opened first. */
export interface ConsumerSide {
  /** What the producer needs to find it; crosses the control channel by structured clone. */
  readonly hello: unknown;
  /** Takes what the producer answered to `hello`. */
  join(reply: unknown): Promise<void>;
  /** Resolves when every stream ended by the row's own protocol. */
  ended(): Promise<void>;
  close(): Promise<void>;
}

/** The half that sends. */
export interface ProducerSide extends TokenSender {
  /** Answer to `hello`, for the consumer's `join`. */
  readonly reply?: unknown;
  /** Opens all streams. */
  attach(): Promise<void>;
  /** Ends every stream. */
  finish(): Promise<void>;
  close(): Promise<void>;
}

export interface Row {
  openConsumer(context: RowContext, sink: Sink): Promise<ConsumerSide>;
  openProducer(context: RowContext, hello: unknown): Promise<ProducerSide>;
}
