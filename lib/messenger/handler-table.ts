// The handlers of one node by name, and the way of a request through them: look up, order, run, plan the answer. It must
// never send by itself: the answer goes to a function that the caller gives, and its lane waits for that function.

import { VeloError } from '../errors.js';
import { isSystemHandler, SYSTEM_PREFIX } from '../wire/names.js';
import type { ResponseId } from '../wire/response-id.js';
import { encodeUtf8 } from '../wire/utf8.js';
import { type DispatchOutcome, planReply, type ReplyPlan } from './dispatch-plan.js';
import { type HandlerContext, handlerContext, type MessageHandler, runHandler } from './handlers.js';
import { GLOBAL_LANE, OrderedDispatch } from './ordered-dispatch.js';

/** Longest handler name, in bytes of UTF-8: its length field has 16 bits. */
export const MAX_HANDLER_NAME_BYTES = 65_535;
/** Requests that one table has in handlers and ordered lanes at once. */
export const DEFAULT_MAX_IN_FLIGHT = 65_536;
/** What the caller of one request too many is told. */
export const OVERFLOW_TEXT = 'Handler failed: too many requests in flight';

/** The part of a request that dispatch needs; `RequestEnvelope` is one. */
export interface DispatchRequest {
  readonly responseType: number;
  readonly id: ResponseId;
  readonly handler: string;
  readonly headers: ReadonlyMap<string, string> | undefined;
}

/** Sends what the plan says; awaited before an ordered lane goes on. Plans that answer nothing are not handed over. */
export type ReplySink = (plan: ReplyPlan) => void | PromiseLike<void>;

/** Sees what each request came to, for metrics. What it throws is counted, and changes nothing. */
export type OutcomeObserver = (handler: string, responseType: number, outcome: DispatchOutcome) => void;

export interface HandlerTableOptions {
  readonly observe?: OutcomeObserver;
  /** Requests in handlers and in their ordered lanes at once; one more is refused. Default 65,536. */
  readonly maxInFlight?: number;
}

export class HandlerTable {
  readonly ordered = new OrderedDispatch();
  /** Replies whose sink threw or rejected. The caller of the request hears nothing then. */
  replyFailures = 0;
  observerFailures = 0;
  /** Requests refused because of `maxInFlight`. */
  overflows = 0;
  readonly #handlers = new Map<string, MessageHandler>();
  readonly #observe: OutcomeObserver | undefined;
  readonly #maxInFlight: number;
  #running = 0;
  #stopped = false;
  #whenIdle: (() => void)[] = [];

  constructor(options: HandlerTableOptions = {}) {
    const max = options.maxInFlight ?? DEFAULT_MAX_IN_FLIGHT;
    if (!Number.isInteger(max) || max < 1) {
      throw new VeloError('ERR_INVALID_ARGUMENT', `maxInFlight must be an integer of at least 1, not ${max}`);
    }
    this.#maxInFlight = max;
    this.#observe = options.observe;
  }

  /** Handlers that run now or wait in an ordered lane, their replies included. */
  get inFlight(): number {
    return this.#running + this.ordered.queued;
  }

  /**
   * Registers an application's handler; the same name again replaces it, for messages that arrive from then on.
   *
   * @throws VeloError `ERR_INVALID_ARGUMENT` for a name that is empty, too long, or the system's (starts with `_`).
   */
  register(name: string, handler: MessageHandler): void {
    checkName(name);
    if (isSystemHandler(name)) {
      throw new VeloError('ERR_INVALID_ARGUMENT', `handler name '${name}' starts with '${SYSTEM_PREFIX}'`);
    }
    this.#handlers.set(name, handler);
  }

  /** Registers a handler of the system: a name that starts with `_`, once. */
  registerSystem(name: string, handler: MessageHandler): void {
    checkName(name);
    if (!isSystemHandler(name)) {
      throw new VeloError('ERR_INVALID_ARGUMENT', `system handler name '${name}' lacks its '${SYSTEM_PREFIX}'`);
    }
    if (this.#handlers.has(name)) throw new VeloError('ERR_INVALID_STATE', `system handler '${name}' is registered`);
    this.#handlers.set(name, handler);
  }

  get(name: string): MessageHandler | undefined {
    return this.#handlers.get(name);
  }

  /** All names, the system's included, in order of registration. */
  names(): string[] {
    return [...this.#handlers.keys()];
  }

  /** Resolves when nothing is in flight; at once when nothing is. */
  idle(): Promise<void> {
    if (this.inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => this.#whenIdle.push(resolve));
  }

  /** Starts no handler any more: what waits, and what still comes, is dropped without an answer. Returns what was in flight. */
  stop(): number {
    this.#stopped = true;
    return this.inFlight;
  }

  /**
   * Takes a request to its handler. An unordered handler is started in this call; an ordered one in its turn. `payload`
   * becomes the application's: it must not alias anything of ours. Never throws for what handlers do.
   */
  dispatch(request: DispatchRequest, payload: Uint8Array, reply: ReplySink): void {
    if (this.#stopped) return;
    const { handler: name, id } = request;
    const handler = this.#handlers.get(name);
    if (handler === undefined) {
      void this.#answer(request, undefined, { kind: 'unknownHandler' }, reply);
      return;
    }
    if (this.inFlight >= this.#maxInFlight) {
      this.overflows += 1;
      void this.#answer(request, handler, { kind: 'refused', text: OVERFLOW_TEXT }, reply);
      return;
    }
    const context = handlerContext(name, id, request.headers);
    if (handler.order === 'none') {
      void this.#run(handler, request, payload, context, reply);
      return;
    }
    const key = handler.order === 'sender' ? context.senderWorkerId : GLOBAL_LANE;
    const job = () => this.#run(handler, request, payload, context, reply);
    if (this.ordered.enqueue(name, key, payload.length, job, handler.maxQueueDepth) === 'rejected') {
      void this.#answer(request, handler, { kind: 'laneFull' }, reply);
    }
  }

  async #run(
    handler: MessageHandler,
    request: DispatchRequest,
    payload: Uint8Array,
    context: HandlerContext,
    reply: ReplySink,
  ): Promise<void> {
    if (this.#stopped) return;
    this.#running += 1;
    const outcome = await runHandler(handler, request.responseType, payload, context);
    await this.#answer(request, handler, outcome, reply);
    this.#running -= 1;
    if (this.inFlight === 0) for (const resolve of this.#whenIdle.splice(0)) resolve();
  }

  async #answer(
    request: DispatchRequest,
    handler: MessageHandler | undefined,
    outcome: DispatchOutcome,
    reply: ReplySink,
  ): Promise<void> {
    try {
      this.#observe?.(request.handler, request.responseType, outcome);
    } catch {
      this.observerFailures += 1;
    }
    const plan = planReply(request.responseType, handler?.kind, request.handler, outcome);
    if (plan.reply === 'none') return;
    try {
      await reply(plan);
    } catch {
      this.replyFailures += 1;
    }
  }
}

function checkName(name: string): void {
  if (typeof name !== 'string' || name === '') {
    throw new VeloError('ERR_INVALID_ARGUMENT', 'handler name must be a string that is not empty');
  }
  const bytes = encodeUtf8(name).length;
  if (bytes > MAX_HANDLER_NAME_BYTES) {
    throw new VeloError(
      'ERR_INVALID_ARGUMENT',
      `handler name of ${bytes} bytes is longer than ${MAX_HANDLER_NAME_BYTES}`,
    );
  }
}
