// The handlers of one node by name, and the way of a request through them: look up, order, run, plan the answer. It must
// never send by itself: the answer goes to a function that the caller gives, and its lane waits for that function.

import { VeloError } from '../errors.js';
import { isSystemHandler, SYSTEM_PREFIX } from '../wire/names.js';
import type { ResponseId } from '../wire/response-id.js';
import { encodeUtf8 } from '../wire/utf8.js';
import { type DispatchOutcome, planReply, type ReplyPlan } from './dispatch-plan.js';
import { type HandlerContext, handlerContext, type MessageHandler, runHandler } from './handlers.js';
import { DEFAULT_MAX_QUEUE_BYTES, DEFAULT_MAX_QUEUE_DEPTH, GLOBAL_LANE, OrderedDispatch } from './ordered-dispatch.js';
import { RunLimiter } from './run-limiter.js';

/** Longest handler name, in bytes of UTF-8: its length field has 16 bits. */
export const MAX_HANDLER_NAME_BYTES = 65_535;
/** Requests that one table has in handlers and ordered lanes at once. */
export const DEFAULT_MAX_IN_FLIGHT = 65_536;
/** Payload bytes of those. A single larger request is taken when there is no other. */
export const DEFAULT_MAX_IN_FLIGHT_BYTES = 512 * 1024 * 1024;
/** What the caller of one request too many is told. */
export const OVERFLOW_TEXT = 'Handler failed: too many requests in flight';
/** What the caller is told when too many wait for a handler with `maxConcurrent`. */
export const QUEUE_FULL_TEXT = 'Handler failed: handler queue full';

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
  /** Its turn on its lane has come; it may still wait for `maxConcurrent`. Not called for a request that reaches no handler. */
  turn(): void;
  /** Its handler starts. */
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
  /** Payload bytes of those; a request that goes above is refused, unless it is the only one. Default 512 MiB. */
  readonly maxInFlightBytes?: number;
  /** The instance id of a registered peer, for contexts. */
  readonly instanceOf?: (workerId: bigint) => string | undefined;
  /** Hears of a lane that came to its handler's `maxQueueDepth` under the policy `warn`. */
  readonly warn?: (message: string) => void;
}

interface Registration {
  readonly handler: MessageHandler;
  /** Names its queue, of an unordered one with `maxConcurrent`: what replaces a handler does not wait for its runs. */
  readonly serial: bigint;
  /** Of ordered handlers; an unordered one has a queue of that width instead. */
  readonly limiter: RunLimiter | undefined;
}

let lastSerial = 0n;

function registration(handler: MessageHandler): Registration {
  const { maxConcurrent, order } = handler;
  const limited = order !== 'none' && maxConcurrent !== undefined;
  lastSerial += 1n;
  return { handler, serial: lastSerial, limiter: limited ? new RunLimiter(maxConcurrent) : undefined };
}

export class HandlerTable {
  readonly ordered = new OrderedDispatch();
  /** Queues of unordered handlers with `maxConcurrent`. */
  readonly limited = new OrderedDispatch();
  /** Replies whose sink threw or rejected. The caller of the request hears nothing then. */
  replyFailures = 0;
  observerFailures = 0;
  /** Requests refused because of `maxInFlight` or `maxInFlightBytes`. */
  overflows = 0;
  /** Requests that came after the stop. */
  dropped = 0;
  readonly #handlers = new Map<string, Registration>();
  readonly #options: HandlerTableOptions;
  readonly #maxInFlight: number;
  readonly #maxBytes: number;
  #running = 0;
  #bytes = 0;
  #stopped = false;
  #whenIdle: (() => void)[] = [];

  constructor(options: HandlerTableOptions = {}) {
    this.#options = options;
    this.#maxInFlight = atLeastOne('maxInFlight', options.maxInFlight ?? DEFAULT_MAX_IN_FLIGHT);
    this.#maxBytes = atLeastOne('maxInFlightBytes', options.maxInFlightBytes ?? DEFAULT_MAX_IN_FLIGHT_BYTES);
  }

  /** Handlers that run now or wait for their turn, their replies included. */
  get inFlight(): number {
    return this.#running + this.ordered.queued + this.limited.queued;
  }

  /** Payload bytes of the requests in flight. */
  get inFlightBytes(): number {
    return this.#bytes;
  }

  /**
   * Registers an application's handler; the same name again replaces it, for messages that arrive from then on.
   *
   * @throws VeloError `ERR_INVALID_ARGUMENT` for a name that is empty, too long, or the system's (starts with `_`), and for
   * what is no handler.
   */
  register(name: string, handler: MessageHandler): void {
    checkName(name);
    checkHandler(name, handler);
    if (isSystemHandler(name)) {
      throw new VeloError('ERR_INVALID_ARGUMENT', `handler name '${name}' starts with '${SYSTEM_PREFIX}'`);
    }
    this.#handlers.set(name, registration(handler));
  }

  /** Registers a handler of the system: a name that starts with `_`, once. */
  registerSystem(name: string, handler: MessageHandler): void {
    checkName(name);
    if (!isSystemHandler(name)) {
      throw new VeloError('ERR_INVALID_ARGUMENT', `system handler name '${name}' lacks its '${SYSTEM_PREFIX}'`);
    }
    if (this.#handlers.has(name)) throw new VeloError('ERR_INVALID_STATE', `system handler '${name}' is registered`);
    this.#handlers.set(name, registration(handler));
  }

  get(name: string): MessageHandler | undefined {
    return this.#handlers.get(name)?.handler;
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
   * Takes a request to its handler. An unordered handler is started in this call, while fewer than its `maxConcurrent`
   * run; any other in its turn. `payload` becomes the application's: it must not alias anything of ours. `instead` runs in
   * place of the handler that is registered. Never throws for what handlers do.
   */
  dispatch(request: DispatchRequest, payload: Uint8Array, reply: ReplySink, instead?: MessageHandler): void {
    if (this.#stopped) {
      this.dropped += 1;
      return;
    }
    const { handler: name, id } = request;
    const registered = instead === undefined ? this.#handlers.get(name) : registration(instead);
    const watch = this.#watch(request, registered?.handler, payload.length);
    const answer = (outcome: DispatchOutcome) => this.#answer(request, registered?.handler, outcome, reply, watch);
    if (registered === undefined) {
      void answer({ kind: 'unknownHandler' });
      return;
    }
    const { handler } = registered;
    if (this.inFlight >= this.#maxInFlight || (this.#bytes > 0 && this.#bytes + payload.length > this.#maxBytes)) {
      this.overflows += 1;
      void answer({ kind: 'refused', text: OVERFLOW_TEXT });
      return;
    }
    const context = handlerContext(name, id, request.headers, this.#options.instanceOf);
    const job = () => this.#run(registered, request, payload, context, watch, answer);
    this.#bytes += payload.length;
    if (this.#enqueue(registered, context, payload.length, job)) return;
    this.#bytes -= payload.length;
    const full: DispatchOutcome =
      handler.order === 'none' ? { kind: 'refused', text: QUEUE_FULL_TEXT } : { kind: 'laneFull' };
    void answer(full);
  }

  /** False: the queue is full, and `job` never runs. */
  #enqueue(
    { handler, serial }: Registration,
    context: HandlerContext,
    bytes: number,
    job: () => Promise<void>,
  ): boolean {
    const { order, maxConcurrent, maxQueueDepth, overflow } = handler;
    const name = context.handler;
    if (order === 'none') {
      if (maxConcurrent === undefined) {
        void job();
        return true;
      }
      const { limited } = this;
      const [depth, most] = [DEFAULT_MAX_QUEUE_DEPTH, DEFAULT_MAX_QUEUE_BYTES];
      return limited.enqueue(name, serial, bytes, job, depth, most, maxConcurrent) !== 'rejected';
    }
    const key = order === 'sender' ? context.senderWorkerId : GLOBAL_LANE;
    const rejects = maxQueueDepth !== undefined && overflow === 'reject';
    const reached = !rejects && maxQueueDepth !== undefined && this.ordered.depth(name, key) === maxQueueDepth;
    // The one that runs is part of the handler's limit, and does not wait.
    const waiting = rejects ? maxQueueDepth - 1 : DEFAULT_MAX_QUEUE_DEPTH;
    if (this.ordered.enqueue(name, key, bytes, job, waiting) === 'rejected') return false;
    if (reached) this.#options.warn?.(`a lane of handler '${name}' holds more than its ${maxQueueDepth} messages`);
    return true;
  }

  async #run(
    { handler, limiter }: Registration,
    request: DispatchRequest,
    payload: Uint8Array,
    context: HandlerContext,
    watch: RequestWatch | undefined,
    answer: (outcome: DispatchOutcome) => Promise<void>,
  ): Promise<void> {
    if (this.#stopped) return;
    this.#running += 1;
    this.#tell(() => watch?.turn());
    const turn = limiter?.enter();
    if (turn !== undefined) await turn;
    // It may have been stopped while it waited.
    if (!this.#stopped) {
      this.#tell(() => watch?.started());
      await answer(await runHandler(handler, request.responseType, payload, context));
    }
    limiter?.leave();
    this.#running -= 1;
    this.#bytes -= payload.length;
    if (this.inFlight === 0) for (const resolve of this.#whenIdle.splice(0)) resolve();
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
      return this.#options.observe?.(request, handler, payloadBytes);
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

function atLeastOne(name: string, value: number): number {
  if (Number.isInteger(value) && value >= 1) return value;
  throw new VeloError('ERR_INVALID_ARGUMENT', `${name} must be an integer of at least 1, not ${value}`);
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

/** A function has a `call` too, but it is no handler. */
function checkHandler(name: string, handler: unknown): void {
  if (typeof handler === 'object' && handler !== null && 'kind' in handler && 'order' in handler) return;
  throw new VeloError(
    'ERR_INVALID_ARGUMENT',
    `what is registered as '${name}' must be made by amHandler, unaryHandler or typedUnary`,
  );
}
