// What main counts about messages: runs of handlers by name, failures of dispatch, how sends found their peer. Names come from the
// node's own registrations, never from a peer, and are bounded all the same. It must never decide anything.

import { performance } from 'node:perf_hooks';
import type { DispatchOutcome, ReplyPlan } from '../messenger/dispatch-plan.js';
import type { DispatchRequest, RequestWatch } from '../messenger/handler-table.js';
import type { MessageHandler } from '../messenger/handlers.js';
import { RESPONSE_NONE, RESPONSE_UNARY } from '../wire/envelope.js';
import { isSystemHandler } from '../wire/names.js';
import { encodeUtf8 } from '../wire/utf8.js';
import { HANDLER_SECONDS, Histogram } from './histogram.js';

/** Handlers that get series of their own. Those named later run uncounted. */
export const MAX_HANDLER_SERIES = 1_024;
/** Fire, ack and unary, the response types of a request: the first index of the arrays below. */
export const RESPONSE_TYPES = 3;
const MILLISECONDS = 1_000;

/** Runs of one handler by outcome, for one response type. */
export interface HandlerRuns {
  readonly seconds: Histogram;
  responseBytes: number;
}

function runs(): HandlerRuns {
  return { seconds: new Histogram(HANDLER_SECONDS), responseBytes: 0 };
}

/** Everything about one handler. The count of `seconds` is the number of runs. */
export class HandlerSeries {
  /** By response type. */
  readonly requestBytes: number[] = new Array<number>(RESPONSE_TYPES).fill(0);
  readonly succeeded: readonly HandlerRuns[] = Array.from({ length: RESPONSE_TYPES }, runs);
  readonly failed: readonly HandlerRuns[] = Array.from({ length: RESPONSE_TYPES }, runs);
  /** Gauge: runs now, their replies included. */
  inFlight = 0;
  /** Gauge: requests on ordered lanes, the running ones included. */
  laneDepth = 0;
  /** From a request's arrival on an ordered lane to its turn; undefined for a handler that never had a lane. */
  laneWait: Histogram | undefined;
}

/** Why a request came to nothing, by the labels (stage, reason). */
export interface DispatchFailures {
  'dispatch unknown_handler': number;
  'dispatch ordered_lane_shed': number;
  'dispatch ordered_handler_panic': number;
  'dispatch handler_panic': number;
  /** Ours alone: the table's bounds on requests in flight, and on those that wait for `maxConcurrent`. */
  'dispatch too_many_in_flight': number;
  'response_send ack_nack': number;
  'response_send unary': number;
  'response_send unary_error': number;
  'response_send typed_deserialize': number;
  'response_send typed_unary': number;
  'deserialize typed_input': number;
  'serialize typed_output': number;
}

/** How sends found their peer, by the labels (path, outcome). */
export interface ClientResolutions {
  'direct success': number;
  'handshake attempt': number;
  'handshake success': number;
  'handshake error': number;
  'discovery success': number;
  'discovery error': number;
  'send error': number;
}

export class MessengerMetrics {
  readonly handlers = new Map<string, HandlerSeries>();
  readonly failures: DispatchFailures = {
    'dispatch unknown_handler': 0,
    'dispatch ordered_lane_shed': 0,
    'dispatch ordered_handler_panic': 0,
    'dispatch handler_panic': 0,
    'dispatch too_many_in_flight': 0,
    'response_send ack_nack': 0,
    'response_send unary': 0,
    'response_send unary_error': 0,
    'response_send typed_deserialize': 0,
    'response_send typed_unary': 0,
    'deserialize typed_input': 0,
    'serialize typed_output': 0,
  };
  readonly resolutions: ClientResolutions = {
    'direct success': 0,
    'handshake attempt': 0,
    'handshake success': 0,
    'handshake error': 0,
    'discovery success': 0,
    'discovery error': 0,
    'send error': 0,
  };
  /** Messages that came from the lanes and were taken up. */
  messagesTaken = 0;

  constructor(readonly now: () => number = () => performance.now()) {}

  /** A request has come: the table's `observe`. */
  watch(request: DispatchRequest, handler: MessageHandler | undefined, payloadBytes: number): RequestWatch {
    if (handler === undefined) return new Watch(this, undefined, undefined, request.responseType, payloadBytes);
    const series = isSystemHandler(request.handler) ? undefined : this.seriesOf(request.handler);
    return new Watch(this, series, handler, request.responseType, payloadBytes);
  }

  private seriesOf(name: string): HandlerSeries | undefined {
    let series = this.handlers.get(name);
    if (series === undefined && this.handlers.size < MAX_HANDLER_SERIES) {
      series = new HandlerSeries();
      this.handlers.set(name, series);
    }
    return series;
  }
}

class Watch implements RequestWatch {
  private readonly arrivedAt: number;
  private startedAt = 0;
  private running = false;

  constructor(
    private readonly metrics: MessengerMetrics,
    private readonly series: HandlerSeries | undefined,
    private readonly handler: MessageHandler | undefined,
    private readonly responseType: number,
    private readonly payloadBytes: number,
  ) {
    this.arrivedAt = this.ordered ? metrics.now() : 0;
    if (series === undefined || !this.ordered) return;
    series.laneDepth += 1;
    series.laneWait ??= new Histogram(HANDLER_SECONDS);
  }

  private get ordered(): boolean {
    return this.handler !== undefined && this.handler.order !== 'none';
  }

  turn(): void {
    if (this.ordered) this.series?.laneWait?.observe((this.metrics.now() - this.arrivedAt) / MILLISECONDS);
  }

  started(): void {
    const { series } = this;
    this.running = true;
    if (series === undefined) return;
    this.startedAt = this.metrics.now();
    series.inFlight += 1;
  }

  ended(outcome: DispatchOutcome, plan: ReplyPlan, replied: boolean): void {
    this.countFailures(outcome, replied);
    const { series, responseType } = this;
    if (series === undefined) return;
    if (this.ordered) series.laneDepth -= 1;
    if (!this.running) return;
    series.inFlight -= 1;
    const side = this.succeeded(outcome) ? series.succeeded : series.failed;
    const { seconds, responseBytes } = side[responseType]!;
    seconds.observe((this.metrics.now() - this.startedAt) / MILLISECONDS);
    series.requestBytes[responseType]! += this.payloadBytes;
    side[responseType]!.responseBytes = responseBytes + replyBytes(plan);
  }

  /** A handler that was asked for what it cannot give has failed, though it ran well. */
  private succeeded(outcome: DispatchOutcome): boolean {
    if (outcome.kind !== 'ok') return false;
    const { kind } = this.handler!;
    if (this.responseType === RESPONSE_NONE) return kind === 'am';
    return this.responseType !== RESPONSE_UNARY || kind !== 'am';
  }

  private countFailures(outcome: DispatchOutcome, replied: boolean): void {
    const { failures } = this.metrics;
    if (outcome.kind === 'unknownHandler') failures['dispatch unknown_handler'] += 1;
    else if (outcome.kind === 'laneFull') failures['dispatch ordered_lane_shed'] += 1;
    else if (outcome.kind === 'refused') failures['dispatch too_many_in_flight'] += 1;
    else if (outcome.kind === 'badInput') failures['deserialize typed_input'] += 1;
    else if (outcome.kind === 'badOutput') failures['serialize typed_output'] += 1;
    else if (outcome.kind === 'panicked')
      failures[this.ordered ? 'dispatch ordered_handler_panic' : 'dispatch handler_panic'] += 1;
    if (!replied && this.running) failures[this.unsentReply(outcome)] += 1;
  }

  private unsentReply(outcome: DispatchOutcome): keyof DispatchFailures {
    const { kind } = this.handler!;
    if (kind === 'am')
      return this.responseType === RESPONSE_UNARY ? 'response_send unary_error' : 'response_send ack_nack';
    if (kind === 'unary') return 'response_send unary';
    return outcome.kind === 'badInput' ? 'response_send typed_deserialize' : 'response_send typed_unary';
  }
}

function replyBytes(plan: ReplyPlan): number {
  switch (plan.reply) {
    case 'response':
      return plan.bytes?.length ?? 0;
    case 'nack':
    case 'responseError':
      return encodeUtf8(plan.text).length;
    default:
      return 0;
  }
}
