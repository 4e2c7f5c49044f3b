// `velomux/metrics`: puts the series of a node into a prom-client registry. Nothing is copied and nothing runs between scrapes. It
// must never load prom-client itself: the registry that is given in is all it needs.

import type { OpenMetricsContentType, PrometheusContentType, Registry } from 'prom-client';
import { VeloError } from '../errors.js';
import { Family, type FamilySpec, type Labels } from './family.js';
import { MESSENGER_FAMILIES } from './messenger-families.js';
import { RENDEZVOUS_FAMILIES } from './rendezvous-families.js';
import { METRICS_SOURCE, type Measured, type MetricsSource } from './source.js';
import { STREAMING_FAMILIES } from './streaming-families.js';
import { TRANSPORT_FAMILIES } from './transport-families.js';

/** Every family, in the order of the scrape. */
const FAMILIES: readonly FamilySpec[] = [
  ...TRANSPORT_FAMILIES,
  ...MESSENGER_FAMILIES,
  ...RENDEZVOUS_FAMILIES,
  ...STREAMING_FAMILIES,
];

const LABEL_NAME = /^[a-zA-Z_][a-zA-Z0-9_]*$/;
const TAKEN_NAMES: ReadonlySet<string> = new Set(['le', ...FAMILIES.flatMap((family) => family.labels)]);

/** A registry of prom-client, of either content type. */
export type MetricsRegistry = Registry<PrometheusContentType> | Registry<OpenMetricsContentType>;

export interface MetricsOptions {
  /**
   * Labels that every value of this node carries, `{ node: 'a' }` say. Default none. Nodes in one registry must differ in them. A
   * name may not be one that the series use.
   */
  labels?: Readonly<Record<string, string>> | undefined;
}

/**
 * Adds the series of a node to a registry: `velo_transport_*`, `velo_messenger_*`, `velo_rendezvous_*`, `velo_streaming_*`, with the names, labels and
 * label values of velo, and those of its own, `velomux_*`. What each of them means: `docs/observability.md`. Times are in seconds.
 * Counters count from the node's creation, also when it is registered later, and stay readable when it is closed;
 * `registry.resetMetrics()` does not touch them. What lanes count of frames, connections, batch sizes and their waits is at most some
 * 20 ms old.
 *
 * Per-handler series exist for handlers that were called, the system's (`_...`) excepted, for at most 1,024 names.
 *
 * Returns a function that takes the node out of the registry again; calling it twice does nothing.
 *
 * @throws VeloError `ERR_INVALID_ARGUMENT` for labels that are malformed, or that another node of the registry has;
 * `ERR_INVALID_STATE` when the node is in the registry already, or something else there bears the name of one of its series. Nothing
 * is added then.
 */
export function registerMetrics(velo: Measured, registry: MetricsRegistry, options: MetricsOptions = {}): () => void {
  const source = velo[METRICS_SOURCE];
  const labels = checkLabels(options.labels ?? {});
  const families = FAMILIES.map((spec) => familyIn(registry, spec) ?? new Family(spec));
  for (const family of families) checkFree(family, source, labels);
  for (const [i, { name }] of FAMILIES.entries()) {
    const family = families[i]!;
    // prom-client types its own classes; what a registry calls is `get`. A family that is in it must not be given again: the
    // registry may have shortened its name since, and would keep it under both.
    if (entry(registry, name) === undefined) registry.registerMetric(family as never);
    family.add(source, labels);
  }
  return () => {
    for (const [i, { name }] of FAMILIES.entries()) {
      const family = families[i]!;
      family.remove(source);
      if (family.size === 0 && entry(registry, name) === family) registry.removeSingleMetric(name);
    }
  };
}

function entry(registry: MetricsRegistry, name: string): unknown {
  return registry.getSingleMetric(name);
}

/** The family of that name in the registry, if it is one of ours. */
function familyIn(registry: MetricsRegistry, { name }: FamilySpec): Family | undefined {
  const found = entry(registry, name);
  if (found === undefined || found instanceof Family) return found;
  throw new VeloError('ERR_INVALID_STATE', `the registry already has a metric named ${name}`);
}

function checkFree(family: Family, source: MetricsSource, labels: Labels): void {
  if (family.has(source)) throw new VeloError('ERR_INVALID_STATE', 'this node is in the registry already');
  if (family.takenLabels().some((taken) => sameLabels(taken, labels)))
    throw new VeloError(
      'ERR_INVALID_ARGUMENT',
      `labels ${JSON.stringify(labels)}: another node of this registry has the same`,
    );
}

function sameLabels(a: Labels, b: Labels): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}

function checkLabels(labels: Readonly<Record<string, string>>): Labels {
  for (const [name, value] of Object.entries(labels)) {
    if (!LABEL_NAME.test(name) || TAKEN_NAMES.has(name))
      throw new VeloError('ERR_INVALID_ARGUMENT', `labels: "${name}" cannot be the name of a label here`);
    if (typeof value !== 'string')
      throw new VeloError('ERR_INVALID_ARGUMENT', `labels.${name} = ${String(value)}: expected a string`);
  }
  return { ...labels };
}
