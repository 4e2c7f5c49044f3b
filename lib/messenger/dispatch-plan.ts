// Who answers what (messenger specification §3.7), as one pure function from the kind of the request, the kind of the
// handler and what came of it to what goes back. The texts are those of the wire. It must never encode and never send.

import { RESPONSE_NONE, RESPONSE_UNARY } from '../wire/envelope.js';

/** `am`: no result. `unary`: bytes in, bytes or nothing out. `typedUnary`: JSON both ways. */
export type HandlerKind = 'am' | 'unary' | 'typedUnary';

/** What a handler run came to. */
export type HandlerOutcome =
  /** `bytes` is the result of a unary handler, JSON of a typed one; `undefined` for no value. */
  | { readonly kind: 'ok'; readonly bytes: Uint8Array | undefined }
  /** The handler threw an error; `text` is its message. */
  | { readonly kind: 'failed'; readonly text: string }
  /** The input of a typed handler is not JSON; the handler did not run. */
  | { readonly kind: 'badInput'; readonly text: string }
  /** The result of a typed handler cannot be written as JSON. */
  | { readonly kind: 'badOutput'; readonly text: string }
  /** The handler ended without a result and without an error that could be put in words. */
  | { readonly kind: 'panicked' };

/** Why a request reached no handler. */
export type DispatchRefusal =
  | { readonly kind: 'unknownHandler' }
  /** The ordered lane of (handler, sender) is full. */
  | { readonly kind: 'laneFull' }
  /** The payload is staged, and this node pulls none. */
  | { readonly kind: 'noResolver' }
  /** The payload is staged and could not be had. */
  | { readonly kind: 'unresolved'; readonly text: string }
  /** Any other reason before the handler, in words. */
  | { readonly kind: 'refused'; readonly text: string }
  /** The node drains and does not serve this handler any more. */
  | { readonly kind: 'draining' };

export type DispatchOutcome = HandlerOutcome | DispatchRefusal;

/** What goes back. `nack` is an ack frame with the error flag; it ends unary calls as well. */
export type ReplyPlan =
  | { readonly reply: 'none' }
  | { readonly reply: 'ack' }
  | { readonly reply: 'nack'; readonly text: string }
  | { readonly reply: 'response'; readonly bytes: Uint8Array | undefined }
  | { readonly reply: 'responseError'; readonly text: string }
  /** The request's header comes back on the socket it came in on. */
  | { readonly reply: 'shuttingDown' };

const NO_REPLY: ReplyPlan = { reply: 'none' };
const ACK: ReplyPlan = { reply: 'ack' };
const SHUTTING_DOWN: ReplyPlan = { reply: 'shuttingDown' };

export function unknownHandlerText(handler: string): string {
  return `Handler '${handler}' not found`;
}

export const LANE_FULL_TEXT = 'Handler failed: ordered lane queue full';
export const PANICKED_TEXT = 'Handler failed: handler panicked';
export const NO_RESOLVER_TEXT = 'Rendezvous resolver not configured on receiver';
/** What the caller of a refused request is told. Local to the caller; the echo carries no text. */
export const SHUTTING_DOWN_TEXT = 'request rejected: peer is shutting down';
const UNRESOLVED_TEXT = 'Failed to resolve large payload: ';
const BAD_INPUT_TEXT = 'Failed to deserialize input: ';
const BAD_OUTPUT_TEXT = 'Failed to serialize output: ';

function misroutedText(handler: string): string {
  return `Unary message incorrectly routed to AM handler '${handler}'`;
}

/** The text of a request that no handler answers for, or `undefined` when one does. */
function refusalText(handler: string, outcome: DispatchOutcome): string | undefined {
  switch (outcome.kind) {
    case 'unknownHandler':
      return unknownHandlerText(handler);
    case 'laneFull':
      return LANE_FULL_TEXT;
    case 'panicked':
      return PANICKED_TEXT;
    case 'noResolver':
      return NO_RESOLVER_TEXT;
    case 'unresolved':
      return UNRESOLVED_TEXT + outcome.text;
    case 'refused':
      return outcome.text;
    default:
      return undefined;
  }
}

/** The text of a handler's failure, or `undefined` when it succeeded. */
function failureText(outcome: HandlerOutcome): string | undefined {
  switch (outcome.kind) {
    case 'failed':
      return outcome.text;
    case 'badInput':
      return BAD_INPUT_TEXT + outcome.text;
    case 'badOutput':
      return BAD_OUTPUT_TEXT + outcome.text;
    default:
      return undefined;
  }
}

/**
 * The table. `responseType` is that of the request's envelope; `handlerKind` is ignored for outcomes in which no handler
 * was found.
 */
export function planReply(
  responseType: number,
  handlerKind: HandlerKind | undefined,
  handler: string,
  outcome: DispatchOutcome,
): ReplyPlan {
  if (outcome.kind === 'draining') return SHUTTING_DOWN;
  if (responseType === RESPONSE_NONE) return NO_REPLY;
  const refusal = refusalText(handler, outcome);
  if (refusal !== undefined) return { reply: 'nack', text: refusal };
  const handled = outcome as HandlerOutcome;
  const failure = failureText(handled);
  if (responseType === RESPONSE_UNARY) {
    if (handlerKind === 'am') {
      const misrouted = misroutedText(handler);
      return { reply: 'responseError', text: failure === undefined ? misrouted : `${misrouted}: ${failure}` };
    }
    if (failure !== undefined) return { reply: 'responseError', text: failure };
    return { reply: 'response', bytes: handled.kind === 'ok' ? handled.bytes : undefined };
  }
  // An ack carries no result, so a result that could not have been written is no failure.
  if (failure === undefined || handled.kind === 'badOutput') return ACK;
  return { reply: 'nack', text: failure };
}
