// The numbers that connections and listeners of one lane count into. A plain object of fields, so that counting is an
// increment; it must never be read to decide anything.

import { EGRESS_SECONDS, Histogram } from '../metrics/histogram.js';
import { FRAME_TYPES } from '../metrics/series-cells.js';

/** Counters of one lane's sockets. Arrays are indexed by transport frame type. All values but `dialed` only rise. */
export interface ConnectionMetrics {
  /** Frames admitted to a connection's queue. */
  readonly framesSent: number[];
  /** Frames whose write completed without error. */
  readonly framesWritten: number[];
  /** Header and payload bytes of the frames in `framesSent`; preambles are not counted. */
  readonly bytesSent: number[];
  /** Frames read, those that are refused because this node drains among them. */
  readonly framesReceived: number[];
  /** Header and payload bytes of the frames in `framesReceived`. */
  readonly bytesReceived: number[];
  /** Socket writes, each of one frame or of several coalesced ones. */
  writes: number;
  /** Submitted frames that found the queue full. */
  sendBackpressure: number;
  /** Frames that were admitted or pending when their connection failed, could not be made, or was closed. */
  sendErrors: number;
  /** Connections closed for bad framing, a stream that ended inside a frame included. */
  decodeErrors: number;
  /** Frame handlers and frame callbacks that threw. */
  handlerErrors: number;
  connectFailures: number;
  /** Connections that came to stand, dialed and accepted. */
  connectionsOpened: number;
  connectionsClosed: number;
  /** Gauge: dialed connections that stand. */
  dialed: number;
  /** Accepted sockets closed at once because the listener held its maximum. */
  inboundRefused: number;
  acceptErrors: number;
  /** Frames for an accepted socket that were dropped because the peer does not read them. */
  writeBackDropped: number;
  /** Requests refused because this node drains, echoed or not. */
  drainRejected: number;
  /** Header and payload bytes of those. */
  drainRejectedBytes: number;
  /** From the start of each socket write to its completion without error. */
  readonly writeSeconds: Histogram;
  /** From a frame's submission to the start of its write, for at most one frame per write: see `EgressTiming`. */
  readonly queueWaitSeconds: Histogram;
  /** Called when numbers have moved: after a write, a socket read with frames in it, the coming or going of a connection. */
  readonly changed: () => void;
}

function perType(): number[] {
  return new Array<number>(FRAME_TYPES).fill(0);
}

/** Fresh counters, all zero. */
export function connectionMetrics(changed: () => void = () => {}): ConnectionMetrics {
  return {
    framesSent: perType(),
    framesWritten: perType(),
    bytesSent: perType(),
    framesReceived: perType(),
    bytesReceived: perType(),
    writes: 0,
    sendBackpressure: 0,
    sendErrors: 0,
    decodeErrors: 0,
    handlerErrors: 0,
    connectFailures: 0,
    connectionsOpened: 0,
    connectionsClosed: 0,
    dialed: 0,
    inboundRefused: 0,
    acceptErrors: 0,
    writeBackDropped: 0,
    drainRejected: 0,
    drainRejectedBytes: 0,
    writeSeconds: new Histogram(EGRESS_SECONDS),
    queueWaitSeconds: new Histogram(EGRESS_SECONDS),
    changed,
  };
}
