// Batches whose one record was too large to travel with them: pulled from their sender, one after another per peer, and handed to
// the mux as if they had come so. It must never let a batch overtake another of the same peer, which would have to be held, nor let
// one peer take the places of the others.

import type { RequestEnvelope } from '../wire/envelope.js';
import { HEADER_RENDEZVOUS } from '../wire/names.js';
import type { BatchSource } from './batch-shelf.js';
import type { PeerLink } from './peer-link.js';

/** Staged batches of one peer that may wait for their pull; one more does not come. */
export const MAX_WAITING_PER_PEER = 4_096;
/** And of all peers. */
export const MAX_WAITING_BATCHES = 16_384;
/** A handle is a number of 39 digits at most; nothing longer is kept waiting to be found bad. Nor a part of it: that would keep the whole. */
const MAX_HANDLE_TEXT = 64;
const NO_HEAD = new Uint8Array(0);

/** Takes a batch that came. */
export type BatchDelivery = (bytes: Uint8Array) => void;
/** Hears why a batch does not come. */
export type BatchRefusal = (text: string) => void;

/** What one peer waits for. */
interface Line {
  waiting: number;
  /** The last of its batches that is being pulled or waits. */
  last: Promise<void>;
}

export class StagedBatches {
  private readonly lines = new Map<PeerLink, Line>();
  private waiting = 0;

  constructor(private readonly source: BatchSource) {}

  /**
   * Pulls the batch that the envelope names, and delivers it; or says why not: it states more bytes than this node takes, nobody can
   * be asked for it, its owner refuses, it does not come in time, or too many wait. Keeps nothing of the envelope but the handle.
   */
  accept({ headers }: RequestEnvelope, peer: PeerLink, deliver: BatchDelivery, refuse: BatchRefusal): void {
    const text = headers?.get(HEADER_RENDEZVOUS) ?? '';
    const handle = text.length > MAX_HANDLE_TEXT ? '' : text;
    const line = this.lines.get(peer) ?? { waiting: 0, last: Promise.resolve() };
    if (line.waiting >= MAX_WAITING_PER_PEER || this.waiting >= MAX_WAITING_BATCHES) {
      refuse(`${line.waiting} staged batches of its sender, and ${this.waiting} in all, already wait to be fetched`);
      return;
    }
    this.lines.set(peer, line);
    line.waiting += 1;
    this.waiting += 1;
    const named = { headers: new Map([[HEADER_RENDEZVOUS, handle]]) };
    line.last = line.last
      .then(() => this.source.take(named, NO_HEAD))
      .then(
        ({ bytes, end }) => {
          deliver(bytes);
          end();
        },
        (error: unknown) => refuse(error instanceof Error ? error.message : String(error)),
      )
      .finally(() => {
        line.waiting -= 1;
        this.waiting -= 1;
        if (line.waiting === 0) this.lines.delete(peer);
      });
    this.source.track(line.last);
  }
}
