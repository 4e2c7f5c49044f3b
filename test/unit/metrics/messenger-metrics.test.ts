// What becomes of a request, as numbers; the clock is the test's.

import { expect } from 'chai';
import type { DispatchOutcome, HandlerKind } from '../../../lib/messenger/dispatch-plan.js';
import { planReply } from '../../../lib/messenger/dispatch-plan.js';
import { amHandler, type HandlerOrder } from '../../../lib/messenger/handlers.js';
import { MessengerMetrics } from '../../../lib/metrics/messenger-metrics.js';
import { RESPONSE_ACK, RESPONSE_NONE, RESPONSE_UNARY } from '../../../lib/wire/envelope.js';

const ID = { workerHi: 0, workerLo: 0, slot: 0, generation: 0 };
const OK: DispatchOutcome = { kind: 'ok', bytes: new Uint8Array(12) };
const FAILED: DispatchOutcome = { kind: 'failed', text: 'schön' };

describe('metrics: messages', () => {
  let now: number;
  let metrics: MessengerMetrics;
  beforeEach(() => {
    now = 0;
    metrics = new MessengerMetrics(() => now);
  });

  function arrive(kind: HandlerKind, responseType: number, order: HandlerOrder = 'none', handler = 'h') {
    return metrics.watch(
      { handler, responseType, id: ID, headers: undefined },
      { ...amHandler(() => {}), kind, order },
      10,
    );
  }

  /** Runs a request through; `replied` is whether its answer found somebody. */
  function run(kind: HandlerKind, responseType: number, outcome: DispatchOutcome, replied = true): void {
    const watch = arrive(kind, responseType);
    watch.turn();
    watch.started();
    now += 3;
    watch.ended(outcome, planReply(responseType, kind, 'h', outcome), replied);
  }

  const failures = () => Object.fromEntries(Object.entries(metrics.failures).filter(([, count]) => count > 0));

  it('a run counts once, with its time, its bytes and its outcome', () => {
    run('unary', RESPONSE_UNARY, OK);
    run('unary', RESPONSE_UNARY, FAILED);
    run('am', RESPONSE_ACK, OK);
    const series = metrics.handlers.get('h')!;
    const { seconds } = series.succeeded[RESPONSE_UNARY]!;
    expect([seconds.count, seconds.sum, seconds.buckets[3]]).to.deep.equal([1, 0.003, 1]);
    expect(series.succeeded[RESPONSE_UNARY]!.responseBytes).to.equal(12);
    expect(series.failed[RESPONSE_UNARY]!.responseBytes, 'the text in UTF-8').to.equal(6);
    expect(series.succeeded[RESPONSE_ACK]!.responseBytes, 'an ack carries nothing').to.equal(0);
    expect(series.requestBytes).to.deep.equal([0, 10, 20]);
    expect([series.inFlight, series.laneDepth, series.laneWait]).to.deep.equal([0, 0, undefined]);
    expect(failures()).to.deep.equal({});
  });

  it('a handler that was asked for what it cannot give has failed', () => {
    run('am', RESPONSE_UNARY, OK);
    run('unary', RESPONSE_NONE, OK);
    run('typedUnary', RESPONSE_NONE, OK);
    run('typedUnary', RESPONSE_ACK, OK);
    const { failed, succeeded } = metrics.handlers.get('h')!;
    expect(failed.map(({ seconds }) => seconds.count)).to.deep.equal([2, 0, 1]);
    expect(succeeded.map(({ seconds }) => seconds.count)).to.deep.equal([0, 1, 0]);
  });

  it('an ordered request waits on its lane (not counting maxConcurrent), then runs; one that is shed does neither', () => {
    const [first, second, third] = [0, 1, 2].map(() => arrive('am', RESPONSE_ACK, 'sender'));
    const series = metrics.handlers.get('h')!;
    first!.turn();
    first!.started();
    expect([series.laneDepth, series.inFlight]).to.deep.equal([3, 1]);
    const shed: DispatchOutcome = { kind: 'laneFull' };
    third!.ended(shed, planReply(RESPONSE_ACK, 'am', 'h', shed), true);
    expect([series.laneDepth, series.inFlight]).to.deep.equal([2, 1]);
    now = 40;
    first!.ended(OK, { reply: 'ack' }, true);
    second!.turn();
    now = 90;
    second!.started();
    second!.ended({ kind: 'panicked' }, { reply: 'nack', text: '' }, true);
    expect([series.laneDepth, series.inFlight]).to.deep.equal([0, 0]);
    expect([series.laneWait!.count, series.laneWait!.sum]).to.deep.equal([2, 0.04]);
    expect(series.succeeded[RESPONSE_ACK]!.seconds.count + series.failed[RESPONSE_ACK]!.seconds.count).to.equal(2);
    expect(failures()).to.deep.equal({ 'dispatch ordered_lane_shed': 1, 'dispatch ordered_handler_panic': 1 });
  });

  it('failures carry the stage and reason of the reference', () => {
    run('typedUnary', RESPONSE_UNARY, { kind: 'badInput', text: 'x' }, false);
    run('typedUnary', RESPONSE_UNARY, { kind: 'badOutput', text: 'x' }, false);
    run('unary', RESPONSE_UNARY, OK, false);
    run('unary', RESPONSE_ACK, OK, false);
    run('am', RESPONSE_UNARY, OK, false);
    run('am', RESPONSE_ACK, OK, false);
    run('am', RESPONSE_NONE, { kind: 'panicked' });
    const unknown: DispatchOutcome = { kind: 'unknownHandler' };
    metrics
      .watch({ handler: 'made up', responseType: RESPONSE_ACK, id: ID, headers: undefined }, undefined, 1)
      .ended(unknown, planReply(RESPONSE_ACK, undefined, 'made up', unknown), false);
    const refused: DispatchOutcome = { kind: 'refused', text: 'too many' };
    arrive('am', RESPONSE_ACK).ended(refused, planReply(RESPONSE_ACK, 'am', 'h', refused), true);
    expect(failures()).to.deep.equal({
      'deserialize typed_input': 1,
      'response_send typed_deserialize': 1,
      'serialize typed_output': 1,
      'response_send typed_unary': 1,
      'response_send unary': 2,
      'response_send unary_error': 1,
      'response_send ack_nack': 1,
      'dispatch handler_panic': 1,
      'dispatch unknown_handler': 1,
      'dispatch too_many_in_flight': 1,
    });
    expect([...metrics.handlers.keys()], 'never a name that a peer made up').to.deep.equal(['h']);
  });

  it('what the system serves has no series, and its failures count all the same', () => {
    const watch = arrive('unary', RESPONSE_UNARY, 'none', '_hello');
    watch.started();
    watch.ended(OK, { reply: 'response', bytes: undefined }, false);
    expect(metrics.handlers.size).to.equal(0);
    expect(failures()).to.deep.equal({ 'response_send unary': 1 });
  });
});
