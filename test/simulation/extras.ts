// What is drawn on top of a scenario, from numbers of its own: options of nodes that change how records travel (large ones, acks,
// policies, budgets, idle batchers), calls beside the streams, anchors that do not wait for ever, lanes that die. Plain data.

import type { VeloOptions } from '../../lib/index.js';
import type { Incident, MessagePlan, Scenario, StreamPlan } from './scenario.js';
import type { Random } from './world/random.js';

/** Larger than what lane 0 lets travel inline. */
const STAGED_SIZES = [262_100, 300_000, 900_000];
/** Streams that send records of these sizes are few: each costs real time. */
const HUGE_STREAMS_MAX = 10;
const LANE_DEATHS_MAX = 3;

export function drawExtras(random: Random, drawn: Scenario): Scenario {
  const nodes = drawn.nodes.map((options) => nodeExtras(random, options, drawn.mood === 'reorder'));
  const some = random.chance(0.25) && drawn.streams.length <= 60;
  let huge = some ? HUGE_STREAMS_MAX : 0;
  const streams = drawn.streams.map((plan) => {
    const made = streamExtras(random, plan);
    return huge > 0 && random.chance(0.4) && huge-- > 0 ? largeStream(random, made) : made;
  });
  const deaths = random.chance(0.25) ? laneDeaths(random, drawn.activeMs) : [];
  const calls = random.chance(0.3) ? messages(random, drawn.activeMs) : [];
  return { ...drawn, nodes, streams, incidents: [...drawn.incidents, ...deaths], messages: calls };
}

function nodeExtras(random: Random, options: VeloOptions, swaps: boolean): VeloOptions {
  const idleTtlMs = random.pick([0, 300, 60_000]);
  const made: VeloOptions = {
    ...options,
    stagedPayloadMax: random.pick([280_000, 500_000, undefined, undefined]),
    acceptWindowMs: random.pick([2_000, undefined]),
    mux: {
      ...options.mux,
      asyncOpenAck: random.chance(0.3),
      // Batches of two batchers that follow each other are never swapped by a connection.
      batcherIdleTtlMs: swaps ? 60_000 : idleTtlMs,
    },
  };
  if (options.flushPolicy !== 'manual' && random.chance(0.25)) {
    made.flushPolicy = {
      onAdmission: false,
      onComplete: random.chance(0.7),
      maxLingerMs: random.pick([1, 8, 20]),
      atBytes: random.pick([undefined, 1, 400, 20_000]),
    };
  }
  return made;
}

function streamExtras(random: Random, plan: StreamPlan): StreamPlan {
  return random.chance(0.08) ? { ...plan, unattachedMs: random.pick([3, 20, 300]) } : plan;
}

function largeStream(random: Random, plan: StreamPlan): StreamPlan {
  return { ...plan, size: 'huge', items: random.between(1, 6) };
}

function laneDeaths(random: Random, activeMs: number): Incident[] {
  const count = random.between(1, LANE_DEATHS_MAX);
  return Array.from({ length: count }, () => ({ at: random.within(20, activeMs), what: 'lane' as const, ms: 1 }));
}

function messages(random: Random, activeMs: number): MessagePlan[] {
  return Array.from({ length: random.between(2, 20) }, () => ({
    at: random.within(10, activeMs),
    bytes: random.chance(0.3) ? random.pick(STAGED_SIZES) : random.between(0, 2_000),
  }));
}
