// What a node shows to whoever scrapes it: cells, the accumulators of its main thread, and a few sizes. It must stay readable after
// the node was closed.

import type { MessengerMetrics } from './messenger-metrics.js';
import type { RendezvousMetrics } from './rendezvous-metrics.js';
import type { TransportKey } from './series-cells.js';

/** Key of the property under which a node keeps its source. A registered symbol: two copies of this package understand each other. */
export const METRICS_SOURCE: unique symbol = Symbol.for('velomux.metricsSource');

/** Something that can be scraped: a `Velo`. */
export interface Measured {
  readonly [METRICS_SOURCE]: MetricsSource;
}

export interface MetricsSource {
  /** The value of a cell, summed over the lanes. */
  cell(cell: number): number;
  /** Transports that the node uses. */
  readonly transports: readonly TransportKey[];
  readonly messenger: MessengerMetrics;
  /** What the main thread asked; the lane's part is in cells. */
  readonly rendezvous: RendezvousMetrics;
  /** Peers that are reached by a transport. */
  peers(transport: TransportKey): number;
  /** Ordered lanes of a handler. */
  orderedLanes(handler: string): { readonly lanes: number; readonly created: number };
  pendingResponses(): number;
  /** Calls that found every response slot taken. */
  responseSlotsExhausted(): number;
  activeAnchors(): number;
  /** Streams whose sender was let in and never came; part of what watchdogs ended. */
  bindsNeverOpened(): number;
  /** Binds that nobody claimed within the accept window. */
  bindsReaped(): number;
}
