// Why a batcher woke: one source per wake, the first one. Owns the list and its counters and nothing else.

import type { MuxMetrics } from './mux-metrics.js';

export const WAKE_NONE = 0;
export const WAKE_OPEN = 1;
export const WAKE_CONTROL = 2;
export const WAKE_FRAME = 3;
export const WAKE_INLET_CLOSED = 4;
export const WAKE_LINGER = 5;

export type WakeSource =
  | typeof WAKE_NONE
  | typeof WAKE_OPEN
  | typeof WAKE_CONTROL
  | typeof WAKE_FRAME
  | typeof WAKE_INLET_CLOSED
  | typeof WAKE_LINGER;

export function countWake(metrics: MuxMetrics, source: WakeSource): void {
  switch (source) {
    case WAKE_NONE:
      return;
    case WAKE_OPEN:
      metrics.wakesOpen += 1;
      return;
    case WAKE_CONTROL:
      metrics.wakesControl += 1;
      return;
    case WAKE_FRAME:
      metrics.wakesFrame += 1;
      return;
    case WAKE_INLET_CLOSED:
      metrics.wakesInletClosed += 1;
      return;
    case WAKE_LINGER:
      metrics.wakesLinger += 1;
      return;
    default:
      source satisfies never;
  }
}
