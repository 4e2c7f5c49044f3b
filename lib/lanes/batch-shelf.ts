// Where a lane leaves a batch of one large record until its receiver has pulled it, and where it gets such batches of peers from. Owns
// the contracts and the account of staged bytes; it must never keep a batch.

import type { NodeBlock } from '../plane/node-block.js';
import type { RequestEnvelope } from '../wire/envelope.js';

/**
 * Ids of staged batches stand above those of the payloads that a client thread stages, which are u32. Both come from one counter of
 * the node, so no lane needs to ask another for an id, and a lane that starts again uses none twice.
 */
const FIRST_BATCH_ID = 2 ** 32;

/** Bytes of batches that a lane has staged, wherever they lie. Summed over the lanes they stay below `stagedBytesMax`. */
export class StagedAccount {
  constructor(
    private readonly node: NodeBlock,
    private readonly lane: number,
    private readonly limit: number,
  ) {
    // A lane that starts has nothing staged.
    node.clearStaged(lane);
  }

  reserve(bytes: number): boolean {
    return this.node.reserveStaged(this.lane, bytes, this.limit);
  }

  release(bytes: number): void {
    this.node.releaseStaged(this.lane, bytes);
  }

  /** Nothing of this lane is staged any more. */
  clear(): void {
    this.node.clearStaged(this.lane);
  }

  nextId(): number {
    return FIRST_BATCH_ID + this.node.nextDataId();
  }
}

/** What a lane needs to send staged batches. */
export interface BatchShelf {
  /** Sets room aside. False: the node has staged too much, or what is staged has no place to lie now. */
  reserve(bytes: number): boolean;
  /** What is staged will never have a place to lie again. */
  readonly isGone: boolean;
  /** Gives back room that no batch took. */
  release(bytes: number): void;
  /**
   * Keeps a batch under room that was reserved, and returns its data id. Its memory, the whole of it, is the shelf's from here on.
   * `gone` is called once, later, when the batch was let go of: pulled, expired, or dropped. Then the room is free again.
   */
  stage(batch: Uint8Array, gone: () => void): number;
  /** Nobody will come for it. */
  drop(id: number): void;
}

/** A payload that came, behind what was to stand before it. */
export interface Fetched {
  readonly bytes: Uint8Array;
  /** Gives back its place and its share of the bytes. */
  readonly end: () => void;
}

/** Where a lane gets staged batches of peers from. */
export interface BatchSource {
  /** Pulls the payload that an envelope names, behind a copy of `head`. Rejects with what keeps it from coming. */
  take(envelope: Pick<RequestEnvelope, 'headers'>, head: Uint8Array): Promise<Fetched>;
  /** Whoever closes the source waits for `work`, and the lane ends a turn after it. What it throws ends the lane. */
  track(work: Promise<void>): void;
}
