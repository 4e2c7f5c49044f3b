// Main's account of the payloads that its lane keeps: what is staged or registered, how many bytes that may be, and who waits for
// room. A payload is copied once, into memory that the lane gets. It must never count a payload as gone before the lane says so.

import { VeloError } from '../errors.js';
import type { ClientPlane } from '../lanes/client-plane.js';
import { CMD_REGISTER, CMD_STAGE, CMD_UNSTAGE, MESSENGER_LANE } from '../lanes/commands.js';
import { type Claim, FifoBudget } from '../messenger/fifo-budget.js';
import type { NodeBlock } from '../plane/node-block.js';
import { DataHandle } from '../wire/handle.js';
import { STAGING_THRESHOLD } from '../wire/rendezvous-messages.js';

/** Payloads that a node keeps at once, whatever their size. */
export const MAX_STAGED_PAYLOADS = 65_536;
/** Messages that may wait for room. */
export const MAX_STAGING_WAITERS = 4_096;
const NO_BYTES = new Uint8Array(0);

export class Staging {
  private readonly budget: FifoBudget;
  private readonly shares = new Map<number, Claim>();
  private readonly spent = new WeakSet<Claim>();

  constructor(
    private readonly plane: ClientPlane,
    private readonly node: NodeBlock,
    private readonly worker: bigint,
    private readonly stagedBytesMax: number,
  ) {
    this.budget = new FifoBudget(stagedBytesMax, 'stagedBytesMax', MAX_STAGING_WAITERS);
  }

  /** Payloads that the lane keeps. */
  get count(): number {
    return this.shares.size;
  }

  /** Their bytes, and those of messages that are about to be staged. */
  get bytes(): number {
    return this.budget.used;
  }

  /** True when a message with so long a payload could not be sent now. */
  isFullFor(length: number): boolean {
    if (length <= STAGING_THRESHOLD) return false;
    return this.budget.waiting > 0 || this.budget.used + length > this.stagedBytesMax;
  }

  /** A share of the room, in its turn. Throws `ERR_PAYLOAD_TOO_LARGE`, `ERR_LIMIT` when too many wait. */
  claim(length: number): Claim {
    this.checkSize(length);
    return this.budget.take(length);
  }

  /** Whoever holds the share sends nothing after all. Without effect once a payload is staged under it. */
  giveUp(share: Claim): void {
    if (!this.spent.has(share)) share.end();
  }

  /** A name for the next payload. */
  mint(): DataHandle {
    let id = this.node.nextDataId();
    // Ids start over after 2^32.
    while (id === 0 || this.shares.has(id)) id = this.node.nextDataId();
    return new DataHandle(this.worker, BigInt(id));
  }

  /**
   * Gives a copy of a message's payload to the lane, under a share that was granted, or else one that is there now.
   * Throws `ERR_PAYLOAD_TOO_LARGE`, `ERR_LIMIT`, `ERR_LANE_DIED`.
   */
  stage(id: number, payload: Uint8Array, share: Claim | undefined): void {
    this.keep(CMD_STAGE, id, payload, share);
  }

  /** The same for data of the application, which stays until its references are gone. */
  register(id: number, payload: Uint8Array): void {
    this.keep(CMD_REGISTER, id, payload, undefined);
  }

  private keep(command: number, id: number, payload: Uint8Array, given: Claim | undefined): void {
    if (this.shares.size >= MAX_STAGED_PAYLOADS)
      throw new VeloError('ERR_LIMIT', `this node already keeps ${MAX_STAGED_PAYLOADS} payloads`);
    const share = given ?? this.takeNow(payload.length);
    try {
      this.plane.port(MESSENGER_LANE).command(command, id, copyOf(payload));
    } catch (error) {
      if (given === undefined) share.end();
      throw error;
    }
    this.spent.add(share);
    this.shares.set(id, share);
  }

  private takeNow(length: number): Claim {
    this.checkSize(length);
    const share = this.budget.tryTake(length);
    if (share !== undefined) return share;
    const { used, total, waiting } = this.budget;
    const why = `${used} of ${total} bytes (stagedBytesMax) are staged and ${waiting} messages wait: no room for ${length}`;
    throw new VeloError('ERR_LIMIT', why);
  }

  private checkSize(length: number): void {
    if (length <= this.stagedBytesMax) return;
    const sizes = `payload of ${length} bytes is larger than stagedBytesMax = ${this.stagedBytesMax}`;
    throw new VeloError('ERR_PAYLOAD_TOO_LARGE', sizes);
  }

  /** The message of a staged payload is over. The lane keeps it on while somebody reads it. 0 names none. */
  drop(id: number): void {
    const port = this.plane.port(MESSENGER_LANE);
    if (this.shares.has(id) && port.isOpen) port.command(CMD_UNSTAGE, id, NO_BYTES);
  }

  /** The lane let go of a payload. */
  gone(id: number): void {
    const share = this.shares.get(id);
    this.shares.delete(id);
    share?.end();
  }

  /** There is a lane again, which keeps nothing yet. */
  reopen(): void {
    this.budget.reopen();
  }

  /** The lane, and with it everything staged, is gone: whoever waits for room hears `error`. */
  failAll(error: VeloError): void {
    this.budget.rejectAll(error);
    for (const share of this.shares.values()) share.end();
    this.shares.clear();
  }
}

/** In memory that can be handed over: views of anything else may share theirs. */
function copyOf(payload: Uint8Array): Uint8Array {
  try {
    return new Uint8Array(payload);
  } catch (cause) {
    throw new VeloError('ERR_LIMIT', `no memory for a payload of ${payload.length} bytes`, { cause });
  }
}
