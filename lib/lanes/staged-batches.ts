// Batches whose one record was too large to travel with them: pulled from their sender, one after another per peer, and handed to
// the mux as if they had come so. It must never let a batch overtake another of the same peer, which would have to be held.

import type { RequestEnvelope } from '../wire/envelope.js';
import type { PeerLink } from './peer-link.js';
import type { StagedIntake } from './staged-intake.js';

/** Staged batches that may wait for their pull, over all peers; one more is dropped and counted. */
export const MAX_WAITING_BATCHES = 1_024;
const NO_HEAD = new Uint8Array(0);

/** Takes a batch that came. */
export type BatchDelivery = (bytes: Uint8Array) => void;
/** Hears why a batch does not come. */
export type BatchRefusal = (text: string) => void;

export class StagedBatches {
  /** By peer: the last of its batches that is being pulled or waits. */
  private readonly last = new Map<PeerLink, Promise<void>>();
  private waiting = 0;

  constructor(private readonly intake: StagedIntake) {}

  /**
   * Pulls the batch that the envelope names, and delivers it; or says why not: it states more bytes than this node takes, nobody can
   * be asked for it, its owner refuses, or it does not come in time. False: too many wait, and nobody hears of this one again.
   */
  accept(envelope: RequestEnvelope, peer: PeerLink, deliver: BatchDelivery, refuse: BatchRefusal): boolean {
    if (this.waiting >= MAX_WAITING_BATCHES) return false;
    this.waiting += 1;
    const done: Promise<void> = (this.last.get(peer) ?? Promise.resolve())
      .then(() => this.intake.take(envelope, NO_HEAD))
      .then(
        ({ bytes, end }) => {
          deliver(bytes);
          end();
        },
        (error: unknown) => refuse(error instanceof Error ? error.message : String(error)),
      )
      .finally(() => {
        this.waiting -= 1;
        if (this.last.get(peer) === done) this.last.delete(peer);
      });
    this.last.set(peer, done);
    this.intake.track(done);
    return true;
  }
}
