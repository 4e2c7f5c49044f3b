// The lane's side of payloads that this node keeps for others: it stages what a client hands over, answers `_rv_*` requests of peers
// and of the client itself, and tells the client what is gone. It must never wait for a client.

import { DataService } from '../messenger/data-service.js';
import { type DataKind, DataStore } from '../messenger/data-store.js';
import { planReply, type ReplyPlan } from '../messenger/dispatch-plan.js';
import { encodeReply } from '../messenger/replies.js';
import type { RendezvousMetrics } from '../metrics/rendezvous-metrics.js';
import { readU32BE, u64From } from '../wire/bytes.js';
import { decodeRequestHeader, type RequestEnvelope } from '../wire/envelope.js';
import { PREAMBLE_LEN } from '../wire/transport-frame.js';
import type { ClientLink } from './client-link.js';
import { EV_ADMITTED, EV_UNSTAGED, encodeOutcome } from './commands.js';

const TYPE_OFFSET = 2;
const HEADER_LENGTH_OFFSET = 3;
const NO_BYTES = new Uint8Array(0);

export interface DataOwnerOptions {
  readonly workerHi: number;
  readonly workerLo: number;
  readonly leaseTtlMs: number;
  readonly stagedTtlMs: number;
  readonly metrics: RendezvousMetrics;
  readonly now: () => number;
  /** The lane must end a turn so that the client hears. */
  readonly touched: () => void;
}

/** Who hears that a payload went, and the request that announced it to its reader (`slot` −1: none). */
interface Owned {
  readonly gone: () => void;
  slot: number;
  generation: number;
}

export class DataOwner {
  private readonly store: DataStore<Owned>;
  private readonly service: DataService;
  /** Data id by response slot of the request that announced it: the end of the request is the end of its payload. */
  private readonly announced = new Map<number, number>();
  /** Batches of streams that are kept. */
  private batches = 0;

  constructor(private readonly options: DataOwnerOptions) {
    const { leaseTtlMs, stagedTtlMs, metrics } = options;
    this.store = new DataStore({ leaseTtlMs, stagedTtlMs, metrics, gone: (id, owned) => this.gone(id, owned) });
    this.service = new DataService(u64From(options.workerHi, options.workerLo), this.store, metrics);
  }

  stage(link: ClientLink, id: number, bytes: Uint8Array, kind: DataKind): void {
    this.put(id, bytes, kind, () => {
      link.event(EV_UNSTAGED, id, NO_BYTES);
      this.options.touched();
    });
  }

  /** A batch of a stream; one receiver pulls it. */
  stageBatch(id: number, bytes: Uint8Array, gone: () => void): void {
    this.batches += 1;
    this.put(id, bytes, 'message', () => {
      this.batches -= 1;
      gone();
      this.options.touched();
    });
  }

  /** Some receiver may still come for a batch. */
  get keepsBatches(): boolean {
    return this.batches > 0;
  }

  private put(id: number, bytes: Uint8Array, kind: DataKind, gone: () => void): void {
    const { metrics, now } = this.options;
    this.store.put(id, bytes, kind, { gone, slot: -1, generation: 0 }, now());
    metrics.record('register', true, 0);
    metrics.bytes.register += bytes.length;
  }

  /** The request that announces a staged payload is on its way. */
  announce(id: number, slot: number, generation: number): void {
    const owned = this.store.owner(id);
    if (owned === undefined) return;
    owned.slot = slot;
    owned.generation = generation;
    this.announced.set(slot, id);
  }

  /** The message of a staged payload is over. */
  over(id: number): void {
    this.store.over(id);
  }

  /** A request of this node was answered or refused: if its payload was staged, nobody needs it any longer. */
  requestEnded(slot: number, generation: number): void {
    if (this.announced.size === 0) return;
    const id = this.announced.get(slot);
    if (id !== undefined && this.store.owner(id)?.generation === generation) this.store.over(id);
  }

  private gone(id: number, { gone, slot }: Owned): void {
    if (slot >= 0 && this.announced.get(slot) === id) this.announced.delete(slot);
    gone();
  }

  serves(handler: string): boolean {
    return this.service.kindOf(handler) !== undefined;
  }

  /** Serves a request. The plan may name bytes of a staged payload: encode it in the same turn. */
  answer({ handler, responseType }: RequestEnvelope, payload: Uint8Array): ReplyPlan {
    const outcome = this.service.serve(handler, payload, this.options.now());
    return planReply(responseType, this.service.kindOf(handler), handler, outcome);
  }

  /** A request of the client to this node's own data, as a whole frame. Its answer comes like that of a peer. */
  answerClient(link: ClientLink, token: number, frame: Uint8Array): void {
    const headerLength = readU32BE(frame, HEADER_LENGTH_OFFSET);
    const envelope = decodeRequestHeader(frame, PREAMBLE_LEN, headerLength);
    const plan = this.answer(envelope, frame.subarray(PREAMBLE_LEN + headerLength));
    if (token !== 0) link.event(EV_ADMITTED, token, encodeOutcome(undefined));
    const reply = encodeReply(plan, envelope.id);
    if (reply === undefined) return;
    link.messages.frame(
      reply[TYPE_OFFSET]!,
      reply.subarray(PREAMBLE_LEN),
      readU32BE(reply, HEADER_LENGTH_OFFSET),
      true,
    );
  }

  deadline(): number {
    return this.store.deadline();
  }

  sweep(now: number): void {
    if (this.store.deadline() <= now) this.store.sweep(now);
  }
}
