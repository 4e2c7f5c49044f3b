// Worlds in which one kind of fault matters sooner than a seed alone would have it: what the seed drew, with weather, options or
// applications changed. Plain data; nothing may fail under any of them where there is no fault.

import type { Scenario } from './scenario.js';

export function calm(scenario: Scenario): Scenario {
  return withWeather(scenario, { lose: 0, duplicate: 0, swap: 0, refuse: 0, ignore: 0 }, 'calm');
}

function withWeather(scenario: Scenario, weather: Partial<Scenario['weather']>, mood: Scenario['mood']): Scenario {
  const harmless = scenario.incidents.filter(({ what }) => what === 'flush');
  const sky = { ...scenario.weather, slowWrite: 0.1, slowWriteMs: 3, lose: 0, refuse: 0, ignore: 0, ...weather };
  return { ...scenario, mood, weather: sky, saturated: false, incidents: harmless };
}

/** Batches overtake each other, and the holds must make it good. */
export function reorder(scenario: Scenario): Scenario {
  const made = withWeather(scenario, { duplicate: 0, swap: 0.3, swapsAreFine: true }, 'reorder');
  const budgets = { slotByteBudget: 4_000_000, peerByteBudget: 64_000_000 };
  return { ...made, nodes: made.nodes.map((node) => ({ ...node, mux: { ...node.mux, ...budgets } })) };
}

/** Late copies of batches of streams that are over, on indices that live again. */
export function repeats(scenario: Scenario): Scenario {
  const made = withWeather(scenario, { duplicate: 0.5, swap: 0.2, swapsAreFine: false }, 'lossy');
  return { ...made, reuses: 150, nodes: made.nodes.slice(0, 2).map((node) => ({ ...node, lanes: 1 })) };
}

/** Manual producers whose batches wait for admission and meet clamps. */
export function congested(scenario: Scenario): Scenario {
  const made = withWeather(scenario, { duplicate: 0, swap: 0, slowWrite: 0.6, slowWriteMs: 0.6 }, 'calm');
  const nodes = made.nodes.map((node) => ({
    ...node,
    flushPolicy: 'manual' as const,
    connectionQueueBytes: 1_000,
    mux: { ...node.mux, maxBatchBytes: 100 },
  }));
  return { ...made, nodes };
}

/** Writes that take long, so that frames queue behind them and are joined. */
export function crowded(scenario: Scenario): Scenario {
  const made = withWeather(scenario, { slowWrite: 1, slowWriteMs: 8, duplicate: 0, swap: 0 }, 'cuts');
  return { ...made, saturated: true, nodes: made.nodes.map((node) => ({ ...node, connectionQueueBytes: 8_000_000 })) };
}

/** Slow readers in front of small windows, with nothing between them and the lane. */
export function slowReaders(scenario: Scenario): Scenario {
  const made = calm(scenario);
  return {
    ...made,
    streams: made.streams.map((plan) => ({ ...plan, readMs: 15, read: 'items' as const, breakAfter: -1 })),
  };
}

/** Connections break while batches wait, so that epochs end. */
export function cuts(scenario: Scenario): Scenario {
  const slow = { slowWrite: 0.7, slowWriteMs: 8, latencyMs: 3, jitterMs: 8, duplicate: 0, swap: 0 };
  const made = withWeather(scenario, slow, 'cuts');
  const incidents = Array.from({ length: 20 }, (_, i) => ({ at: 50 + i * 60, what: 'cut' as const, ms: 1 }));
  const nodes = made.nodes.slice(0, 2).map((node) => ({ ...node, lanes: 1, connectionQueueBytes: 1_000 }));
  const streams = made.streams.map((plan) => ({ ...plan, items: 80, gapMs: 1, size: 'mixed' as const }));
  return { ...made, saturated: true, incidents, nodes, streams };
}

/** Several lanes, records that their consumers fetch or refuse, and opens that nobody waits for. */
export function largeRecords(scenario: Scenario): Scenario {
  const made = calm(scenario);
  const nodes = made.nodes.slice(0, 3).map((node) => ({
    ...node,
    lanes: 3,
    stagedPayloadMax: 500_000,
    mux: { ...node.mux, asyncOpenAck: true, initialCredit: 32 },
  }));
  const streams = made.streams.slice(0, 12).map((plan, i) => {
    const size = i % 3 === 2 ? ('token' as const) : ('huge' as const);
    const whole = { cancelAt: -1, stopAt: -1, breakAfter: -1, unattachedMs: -1 };
    return { ...plan, ...whole, at: 10 * i, key: BigInt(i), size, items: size === 'huge' ? 5 : 60, gapMs: 1, burst: 2 };
  });
  return { ...made, nodes, streams, reuses: 0 };
}

/** The same on connections that are always full: batches of one record wait for their admission, and their streams behind them. */
export function fenced(scenario: Scenario): Scenario {
  const made = largeRecords(scenario);
  const weather = { ...made.weather, slowWrite: 1, slowWriteMs: 3 };
  const nodes = made.nodes.map((node) => ({ ...node, lanes: 2, connectionQueueBytes: 1_000 }));
  const streams = made.streams.map((plan) => (plan.size === 'token' ? { ...plan, size: 'mixed' as const } : plan));
  return { ...made, weather, nodes, streams };
}

/** Lanes die under streams that are in full flow, and start again. */
export function dyingLanes(scenario: Scenario): Scenario {
  const made = calm(scenario);
  const incidents = [60, 260, 460].map((at) => ({ at, what: 'lane' as const, ms: 1 }));
  const nodes = made.nodes.slice(0, 3).map((node) => ({ ...node, lanes: 2 }));
  const streams = made.streams.map((plan, i) => ({ ...plan, at: (i * 20) % 700, items: 60, gapMs: 3, burst: 1 }));
  return { ...made, activeMs: 800, incidents, nodes, streams };
}

/** What faults make of a seed; without a fault nothing may fail under any of them. */
export const ADJUSTMENTS: Readonly<Record<string, (scenario: Scenario) => Scenario>> = {
  calm,
  reorder,
  repeats,
  congested,
  crowded,
  slowReaders,
  cuts,
  largeRecords,
  fenced,
  dyingLanes,
};
