// The heartbeats of a lane's senders: a record per slot and interval, made by the lane, so that an idle producer or one that computes
// is not taken for dead. Owns when a beat is due and how often it may be; it must never write a record.

import { Tick, TickQueue } from './tick-queue.js';

/** A peer may advertise any interval; no slot beats more often than this. In milliseconds. */
export const MIN_HEARTBEAT_MS = 10;
/** What timers take. */
export const MAX_HEARTBEAT_MS = 2 ** 31 - 1;

/** The pace of a stream whose consumer advertised `intervalMs`; 0 asks for as many beats as there may be. */
export function heartbeatPace(intervalMs: number): number {
  return Math.min(Math.max(intervalMs, MIN_HEARTBEAT_MS), MAX_HEARTBEAT_MS);
}

/** The sender that beats. */
export interface BeatSource {
  heartbeat(): void;
}

/** The heartbeats of one sender, until `stop`. */
export class Beat extends Tick {
  constructor(
    intervalMs: number,
    readonly source: BeatSource,
  ) {
    super(intervalMs);
  }
}

/** One entry per sender that is not over. */
export class Heartbeats {
  private readonly beats = new TickQueue<Beat>();

  get size(): number {
    return this.beats.size;
  }

  /** The first beat is due one interval after `now`. */
  start(source: BeatSource, intervalMs: number, now: number): Beat {
    const beat = new Beat(heartbeatPace(intervalMs), source);
    this.beats.add(beat, now);
    return beat;
  }

  deadline(): number {
    return this.beats.deadline();
  }

  /** One beat of each sender that is due, whatever else it sent meanwhile. */
  run(now: number): void {
    for (let beat = this.beats.takeDue(now); beat !== undefined; beat = this.beats.takeDue(now))
      beat.source.heartbeat();
  }
}
