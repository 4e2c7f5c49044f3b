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

/**
 * Sends what the plan says; awaited before an ordered lane goes on. Plans that answer nothing are not handed over. False: the
 * requester is nobody that could be told.
 */
export type ReplySink = (plan: ReplyPlan) => unknown;

/** Watches one request, for metrics. What it throws is counted, and changes nothing. */
export interface RequestWatch {
  /** Its turn has come: its handler starts. Not called for a request that reaches no handler. */
  started(): void;
  /** It is over: what it came to, what was to be answered, and whether the answer could be handed over. */
  ended(outcome: DispatchOutcome, plan: ReplyPlan, replied: boolean): void;
}

/** Sees each request as it comes; `handler` is undefined when nobody serves it. */
export type RequestObserver = (
  request: DispatchRequest,
  handler: MessageHandler | undefined,
  payloadBytes: number,
) => RequestWatch;

export interface HandlerTableOptions {
  readonly observe?: RequestObserver;
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
  readonly #observe: RequestObserver | undefined;
  readonly #maxInFlight: number;
  #running = 0;

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

  /**
   * Takes a request to its handler. An unordered handler is started in this call; an ordered one in its turn. `payload`
   * becomes the application's: it must not alias anything of ours. Never throws for what handlers do.
   */
  dispatch(request: DispatchRequest, payload: Uint8Array, reply: ReplySink): void {
    const { handler: name, id } = request;
    const handler = this.#handlers.get(name);
    const watch = this.#watch(request, handler, payload.length);
    const answer = (outcome: DispatchOutcome) => this.#answer(request, handler, outcome, reply, watch);
    if (handler === undefined) {
      void answer({ kind: 'unknownHandler' });
      return;
    }
    if (this.inFlight >= this.#maxInFlight) {
      this.overflows += 1;
      void answer({ kind: 'refused', text: OVERFLOW_TEXT });
      return;
    }
    const context = handlerContext(name, id, request.headers);
    const job = () => this.#run(handler, request, payload, context, watch, answer);
    if (handler.order === 'none') {
      void job();
      return;
    }
    const key = handler.order === 'sender' ? context.senderWorkerId : GLOBAL_LANE;
    if (this.ordered.enqueue(name, key, payload.length, job, handler.maxQueueDepth) === 'rejected') {
      void answer({ kind: 'laneFull' });
    }
  }

  async #run(
    handler: MessageHandler,
    request: DispatchRequest,
    payload: Uint8Array,
    context: HandlerContext,
    watch: RequestWatch | undefined,
    answer: (outcome: DispatchOutcome) => Promise<void>,
  ): Promise<void> {
    this.#running += 1;
    this.#tell(() => watch?.started());
    await answer(await runHandler(handler, request.responseType, payload, context));
    this.#running -= 1;
  }

  async #answer(
    request: DispatchRequest,
    handler: MessageHandler | undefined,
    outcome: DispatchOutcome,
    reply: ReplySink,
    watch: RequestWatch | undefined,
  ): Promise<void> {
    const plan = planReply(request.responseType, handler?.kind, request.handler, outcome);
    let replied = true;
    if (plan.reply !== 'none') {
      try {
        replied = (await reply(plan)) !== false;
      } catch {
        replied = false;
        this.replyFailures += 1;
      }
    }
    this.#tell(() => watch?.ended(outcome, plan, replied));
  }

  #watch(
    request: DispatchRequest,
    handler: MessageHandler | undefined,
    payloadBytes: number,
  ): RequestWatch | undefined {
    try {
      return this.#observe?.(request, handler, payloadBytes);
    } catch {
      this.observerFailures += 1;
      return undefined;
    }
  }

  #tell(what: () => void): void {
    try {
      what();
    } catch {
      this.observerFailures += 1;
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
