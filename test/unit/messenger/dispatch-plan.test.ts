// Every cell of the table of who answers what.

import { expect } from 'chai';
import {
  type DispatchOutcome,
  type HandlerKind,
  LANE_FULL_TEXT,
  NO_RESOLVER_TEXT,
  PANICKED_TEXT,
  planReply,
  type ReplyPlan,
} from '../../../lib/messenger/dispatch-plan.js';
import { RESPONSE_ACK, RESPONSE_NONE, RESPONSE_UNARY } from '../../../lib/wire/envelope.js';

const bytes = new Uint8Array([1, 2, 3]);
const json = new TextEncoder().encode('{"a":1}');
const none: ReplyPlan = { reply: 'none' };
const ack: ReplyPlan = { reply: 'ack' };
const nack = (text: string): ReplyPlan => ({ reply: 'nack', text });
const ok = (value: Uint8Array | undefined): ReplyPlan => ({ reply: 'response', bytes: value });
const error = (text: string): ReplyPlan => ({ reply: 'responseError', text });

interface Row {
  readonly title: string;
  readonly kind: HandlerKind | undefined;
  readonly outcome: DispatchOutcome;
  readonly onAck: ReplyPlan;
  readonly onUnary: ReplyPlan;
}

const MISROUTED = "Unary message incorrectly routed to AM handler 'do'";

const rows: readonly Row[] = [
  { title: 'AM ok', kind: 'am', outcome: { kind: 'ok', bytes: undefined }, onAck: ack, onUnary: error(MISROUTED) },
  {
    title: 'AM error',
    kind: 'am',
    outcome: { kind: 'failed', text: 'boom' },
    onAck: nack('boom'),
    onUnary: error(`${MISROUTED}: boom`),
  },
  { title: 'unary ok, bytes', kind: 'unary', outcome: { kind: 'ok', bytes }, onAck: ack, onUnary: ok(bytes) },
  {
    title: 'unary ok, no value',
    kind: 'unary',
    outcome: { kind: 'ok', bytes: undefined },
    onAck: ack,
    onUnary: ok(undefined),
  },
  {
    title: 'unary error',
    kind: 'unary',
    outcome: { kind: 'failed', text: 'boom' },
    onAck: nack('boom'),
    onUnary: error('boom'),
  },
  { title: 'typed ok', kind: 'typedUnary', outcome: { kind: 'ok', bytes: json }, onAck: ack, onUnary: ok(json) },
  {
    title: 'typed, input does not parse',
    kind: 'typedUnary',
    outcome: { kind: 'badInput', text: 'at 3' },
    onAck: nack('Failed to deserialize input: at 3'),
    onUnary: error('Failed to deserialize input: at 3'),
  },
  {
    title: 'typed, output does not serialize',
    kind: 'typedUnary',
    outcome: { kind: 'badOutput', text: 'a loop' },
    onAck: ack,
    onUnary: error('Failed to serialize output: a loop'),
  },
  {
    title: 'unknown handler',
    kind: undefined,
    outcome: { kind: 'unknownHandler' },
    onAck: nack("Handler 'do' not found"),
    onUnary: nack("Handler 'do' not found"),
  },
  {
    title: 'staged payload, no resolver',
    kind: 'unary',
    outcome: { kind: 'noResolver' },
    onAck: nack('Rendezvous resolver not configured on receiver'),
    onUnary: nack(NO_RESOLVER_TEXT),
  },
  {
    title: 'staged payload cannot be resolved',
    kind: 'unary',
    outcome: { kind: 'unresolved', text: 'handle gone' },
    onAck: nack('Failed to resolve large payload: handle gone'),
    onUnary: nack('Failed to resolve large payload: handle gone'),
  },
  {
    title: 'handler panicked',
    kind: 'unary',
    outcome: { kind: 'panicked' },
    onAck: nack('Handler failed: handler panicked'),
    onUnary: nack(PANICKED_TEXT),
  },
  {
    title: 'ordered lane full',
    kind: 'am',
    outcome: { kind: 'laneFull' },
    onAck: nack('Handler failed: ordered lane queue full'),
    onUnary: nack(LANE_FULL_TEXT),
  },
  {
    title: 'refused in words',
    kind: 'am',
    outcome: { kind: 'refused', text: 'busy' },
    onAck: nack('busy'),
    onUnary: nack('busy'),
  },
];

describe('who answers what', () => {
  for (const row of rows) {
    it(`${row.title}: fire hears nothing, ack and unary what the table says`, () => {
      expect(planReply(RESPONSE_NONE, row.kind, 'do', row.outcome)).to.deep.equal(none);
      expect(planReply(RESPONSE_ACK, row.kind, 'do', row.outcome)).to.deep.equal(row.onAck);
      expect(planReply(RESPONSE_UNARY, row.kind, 'do', row.outcome)).to.deep.equal(row.onUnary);
    });
  }

  it('a draining node echoes requests of all three kinds', () => {
    for (const type of [RESPONSE_NONE, RESPONSE_ACK, RESPONSE_UNARY]) {
      expect(planReply(type, 'am', 'do', { kind: 'draining' })).to.deep.equal({ reply: 'shuttingDown' });
    }
  });
});
