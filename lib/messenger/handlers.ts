// What an application serves: the three kinds of handler, their options, and running one to an outcome. It must never
// send, never queue, and never let what a handler throws escape.

import { VeloError } from '../errors.js';
import { u64From } from '../wire/bytes.js';
import { RESPONSE_UNARY } from '../wire/envelope.js';
import { encodeJson, parseJson } from '../wire/json.js';
import { type ResponseId, responseIdToU128 } from '../wire/response-id.js';
import type { HandlerKind, HandlerOutcome } from './dispatch-plan.js';
import { DEFAULT_MAX_QUEUE_DEPTH } from './ordered-dispatch.js';

/** What a handler is told beside its payload. */
export interface HandlerContext {
  /** The name it was called by. */
  readonly handler: string;
  /** The sender as it names itself; nothing proves it. */
  readonly senderWorkerId: bigint;
  /** The instance id of the peer that is registered here under that worker id; undefined when there is none. */
  readonly senderInstanceId: string | undefined;
  /** The request's headers, empty when it has none. */
  readonly headers: ReadonlyMap<string, string>;
  /** The request's 128-bit id: unique per sender for as long as the sender lives. */
  readonly messageId: bigint;
}

export interface HandlerOptions {
  /** Messages of one sender strictly one at a time, in arrival order; senders run side by side. Default false. */
  readonly ordered?: boolean;
  /** All messages of the handler strictly one at a time. Default false. */
  readonly orderedGlobal?: boolean;
  /**
   * Runs of this handler that may be under way at once, replies included, from 1. What comes meanwhile waits in order of
   * arrival. With `ordered`: how many senders' lanes may be in the middle of a run. Default: no limit of its own.
   */
  readonly maxConcurrent?: number;
  /**
   * Messages that one ordered lane may hold, the running one included, from 1 to 8,192; `overflow` says what becomes of
   * one more. Default: none. Only with `ordered` or `orderedGlobal`. Whatever it says, every queue of a handler has a
   * bound of its own: 8,192 messages or 64 MiB that wait, above which a message is refused and its caller told so.
   */
  readonly maxQueueDepth?: number;
  /**
   * At `maxQueueDepth`: `reject` refuses the message and tells its caller; `warn` (default) takes it, and says so to
   * `NODE_DEBUG=velomux` each time a lane comes to its limit.
   */
  readonly overflow?: OverflowPolicy;
}

export type OverflowPolicy = 'warn' | 'reject';

/** No result. A caller that asked for an ack hears whether it threw; one that asked for a result hears an error. */
export type AmFunction = (payload: Uint8Array, context: HandlerContext) => unknown;
/** Bytes, or nothing, as the result. The bytes are copied once the handler is done. */
export type UnaryFunction = (
  payload: Uint8Array,
  context: HandlerContext,
  // biome-ignore lint/suspicious/noConfusingVoidType: a function that returns nothing is a unary handler too
) => Uint8Array | undefined | void | PromiseLike<Uint8Array | undefined | void>;
/** JSON in and out. Integers beyond 2^53 are bigint both ways; an empty payload is `null`. */
export type TypedUnaryFunction<Input, Output> = (input: Input, context: HandlerContext) => Output | PromiseLike<Output>;

/** `none`: runs at once, may overlap. `sender`, `global`: see {@link HandlerOptions}. */
export type HandlerOrder = 'none' | 'sender' | 'global';

/** A handler ready to be registered. Made by {@link amHandler}, {@link unaryHandler} and {@link typedUnary}. */
export interface MessageHandler {
  readonly kind: HandlerKind;
  readonly order: HandlerOrder;
  readonly maxConcurrent: number | undefined;
  readonly maxQueueDepth: number | undefined;
  readonly overflow: OverflowPolicy;
  /** The raw result of the application's function; may throw. Call {@link runHandler} instead. */
  readonly call: (input: unknown, context: HandlerContext) => unknown;
}

const NO_HEADERS: ReadonlyMap<string, string> = new Map();
const OVERFLOW_POLICIES: readonly OverflowPolicy[] = ['warn', 'reject'];
/** As many as a node has requests in hand at once. */
const MAX_CONCURRENT = 65_536;

function makeHandler(kind: HandlerKind, call: unknown, options: HandlerOptions): MessageHandler {
  if (typeof call !== 'function') throw invalid('a handler must be a function');
  const { ordered = false, orderedGlobal = false, maxConcurrent, maxQueueDepth, overflow } = options;
  if (ordered && orderedGlobal) throw invalid('ordered and orderedGlobal exclude each other');
  const order: HandlerOrder = ordered ? 'sender' : orderedGlobal ? 'global' : 'none';
  if (maxConcurrent !== undefined) checkCount('maxConcurrent', maxConcurrent, MAX_CONCURRENT);
  if (maxQueueDepth !== undefined) {
    if (order === 'none') throw invalid('maxQueueDepth needs an ordered handler');
    checkCount('maxQueueDepth', maxQueueDepth, DEFAULT_MAX_QUEUE_DEPTH);
  }
  if (overflow !== undefined) {
    if (!OVERFLOW_POLICIES.includes(overflow)) throw invalid(`overflow = ${overflow}: expected 'warn' or 'reject'`);
    if (maxQueueDepth === undefined) throw invalid('overflow needs a maxQueueDepth');
  }
  return {
    kind,
    order,
    maxConcurrent,
    maxQueueDepth,
    overflow: overflow ?? 'warn',
    call: call as MessageHandler['call'],
  };
}

function checkCount(name: string, value: number, most: number): void {
  if (Number.isInteger(value) && value >= 1 && value <= most) return;
  throw invalid(`${name} = ${value}: expected an integer from 1 to ${most}`);
}

function invalid(message: string): VeloError {
  return new VeloError('ERR_INVALID_ARGUMENT', message);
}

/**
 * A handler without a result, for `send` and `sync`.
 *
 * @throws VeloError `ERR_INVALID_ARGUMENT` for options that contradict each other; so do the two below.
 */
export function amHandler(fn: AmFunction, options: HandlerOptions = {}): MessageHandler {
  return makeHandler('am', fn, options);
}

/** A handler that answers with bytes, or with nothing (an empty result). What it throws goes back as text. */
export function unaryHandler(fn: UnaryFunction, options: HandlerOptions = {}): MessageHandler {
  return makeHandler('unary', fn, options);
}

/** A handler of JSON values. `Input` is what the caller is trusted to send: only that it is JSON is checked. */
export function typedUnary<Input = unknown, Output = unknown>(
  fn: TypedUnaryFunction<Input, Output>,
  options: HandlerOptions = {},
): MessageHandler {
  return makeHandler('typedUnary', fn, options);
}

export function handlerContext(
  handler: string,
  id: ResponseId,
  headers: ReadonlyMap<string, string> | undefined,
  instanceOf?: (workerId: bigint) => string | undefined,
): HandlerContext {
  const senderWorkerId = u64From(id.workerHi, id.workerLo);
  return {
    handler,
    senderWorkerId,
    senderInstanceId: instanceOf?.(senderWorkerId),
    headers: headers ?? NO_HEADERS,
    messageId: responseIdToU128(id),
  };
}

/** What can be said about a thrown value: its text, or that there was none. */
function thrown(error: unknown): HandlerOutcome {
  const text = error instanceof Error || typeof error === 'string' ? textOf(error) : '';
  return text === '' ? { kind: 'panicked' } : { kind: 'failed', text };
}

/** The text of a thrown value, which is the application's: reading it may throw again. Empty when there is none. */
function textOf(error: unknown): string {
  try {
    return error instanceof Error ? String(error.message || error.name) : String(error);
  } catch {
    return '';
  }
}

/**
 * Runs a handler; starts it in this call and never rejects. `responseType` is that of the request: a result is written
 * as JSON only for a caller that gets it. `payload` becomes the application's: it must not alias anything of ours.
 */
export async function runHandler(
  handler: MessageHandler,
  responseType: number,
  payload: Uint8Array,
  context: HandlerContext,
): Promise<HandlerOutcome> {
  let input: unknown = payload;
  if (handler.kind === 'typedUnary') {
    try {
      input = parseJson(payload);
    } catch (error) {
      return { kind: 'badInput', text: textOf(error) };
    }
  }
  let result: unknown;
  try {
    result = await handler.call(input, context);
  } catch (error) {
    return thrown(error);
  }
  if (handler.kind === 'am' || responseType !== RESPONSE_UNARY) return { kind: 'ok', bytes: undefined };
  if (handler.kind === 'typedUnary') {
    try {
      return { kind: 'ok', bytes: encodeJson(result) };
    } catch (error) {
      return { kind: 'badOutput', text: textOf(error) };
    }
  }
  if (result === undefined || result === null) return { kind: 'ok', bytes: undefined };
  if (result instanceof Uint8Array) return { kind: 'ok', bytes: result };
  return { kind: 'failed', text: `unary handler '${context.handler}' returned neither bytes nor nothing` };
}
