// A quantity that many want a share of, on behalf of several parties: places, bytes. Nobody's claims hold more than half of it, and
// those that wait are served party by party, so that one whose claims last long leaves the others their half. It knows no clock; it
// must never grant what it does not have, except a share that is larger than everything, alone.

import { VeloError } from '../errors.js';
import type { Claim } from './fifo-budget.js';

interface Waiting {
  readonly amount: number;
  readonly grant: () => void;
  readonly reject: (error: VeloError) => void;
}

/** What one party has and wants. Kept while it has or wants anything. */
interface Account {
  taken: number;
  /** In the order in which it asked. */
  readonly queue: Set<Waiting>;
}

const GRANTED = Promise.resolve();

export class FairBudget<Party> {
  /** What the claims of one party may hold together; one claim alone may be larger. */
  readonly share: number;
  /** Claims of one party that may wait. */
  private readonly maxWaitingEach: number;
  private taken = 0;
  private queued = 0;
  private readonly accounts = new Map<Party, Account>();
  /** Who waits; whoever was served last stands last. */
  private readonly turns = new Set<Party>();
  private closedBy: VeloError | undefined;

  constructor(
    readonly total: number,
    /** Name of the limit, for messages. */
    private readonly name: string,
    /** Claims of all parties that may wait, and half of them of one; one more is refused with `ERR_LIMIT`. */
    private readonly maxWaiting: number,
  ) {
    this.share = Math.ceil(total / 2);
    this.maxWaitingEach = Math.ceil(maxWaiting / 2);
  }

  get used(): number {
    return this.taken;
  }

  get waiting(): number {
    return this.queued;
  }

  /** Parties that hold or want something. */
  get parties(): number {
    return this.accounts.size;
  }

  /** The share as soon as its turn comes. Throws `ERR_LIMIT` when too many wait, and the error of `rejectAll` after that. */
  take(party: Party, amount: number): Claim {
    if (this.closedBy !== undefined) throw this.closedBy;
    const account = this.accountOf(party);
    let give: (() => void) | undefined;
    let resolve!: () => void;
    let reject!: (error: VeloError) => void;
    const later = new Promise<void>((yes, no) => {
      resolve = yes;
      reject = no;
    });
    const grant = (): void => {
      give = this.giver(party, account, amount);
      resolve();
    };
    const waiting: Waiting = { amount, grant, reject };
    this.line(party, account, waiting);
    this.serve();
    if (give === undefined && (this.queued > this.maxWaiting || account.queue.size > this.maxWaitingEach)) {
      const all = this.queued - 1;
      const own = account.queue.size - 1;
      this.leave(party, account, waiting);
      const wait = `${own} of this peer, and ${all} in all, already wait for a share of ${this.name} = ${this.total}`;
      throw new VeloError('ERR_LIMIT', wait);
    }
    const end = (): void => {
      if (give !== undefined) give();
      else if (this.leave(party, account, waiting)) this.serve();
    };
    return { amount, granted: give === undefined ? later : GRANTED, end };
  }

  /** Whoever waits, now or later, gives up with `error`. What was granted stays granted. */
  rejectAll(error: VeloError): void {
    this.closedBy = error;
    const waiting = [...this.accounts.values()].flatMap(({ queue }) => [...queue]);
    for (const [party, account] of this.accounts) {
      account.queue.clear();
      this.tidy(party, account);
    }
    this.turns.clear();
    this.queued = 0;
    for (const { reject } of waiting) reject(error);
  }

  private accountOf(party: Party): Account {
    let account = this.accounts.get(party);
    if (account === undefined) {
      account = { taken: 0, queue: new Set() };
      this.accounts.set(party, account);
    }
    return account;
  }

  private line(party: Party, account: Account, waiting: Waiting): void {
    account.queue.add(waiting);
    this.queued += 1;
    this.turns.add(party);
  }

  /** False: it did not wait any more. */
  private leave(party: Party, account: Account, waiting: Waiting): boolean {
    if (!account.queue.delete(waiting)) return false;
    this.queued -= 1;
    if (account.queue.size === 0) this.turns.delete(party);
    this.tidy(party, account);
    return true;
  }

  /**
   * Grants what is there, one to each party in turn. A party that holds its half is passed over; one whose turn it is and whose share
   * is not there yet is waited for, or it would never be large enough.
   */
  private serve(): void {
    for (const party of this.turns) {
      const account = this.accounts.get(party)!;
      const [next] = account.queue;
      const { amount, grant } = next!;
      if (account.taken > 0 && account.taken + amount > this.share) continue;
      if (this.taken > 0 && this.taken + amount > this.total) return;
      this.leave(party, account, next!);
      this.taken += amount;
      account.taken += amount;
      this.accounts.set(party, account);
      if (account.queue.size > 0) {
        this.turns.delete(party);
        this.turns.add(party);
      }
      grant();
    }
  }

  private giver(party: Party, account: Account, amount: number): () => void {
    let given = false;
    return () => {
      if (given) return;
      given = true;
      this.taken -= amount;
      account.taken -= amount;
      this.tidy(party, account);
      this.serve();
    };
  }

  private tidy(party: Party, account: Account): void {
    if (account.taken === 0 && account.queue.size === 0 && this.accounts.get(party) === account)
      this.accounts.delete(party);
  }
}
