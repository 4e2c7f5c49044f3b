// A scrape as a Prometheus server reads it: the text of a registry, parsed and looked up by name and labels.

import { expect } from 'chai';
import type { MetricsRegistry } from '../../lib/metrics/register.js';

const SAMPLE = /^([a-zA-Z_][a-zA-Z0-9_]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)/g;

type Labels = Readonly<Record<string, string>>;

interface Sample {
  readonly name: string;
  readonly labels: Labels;
  readonly value: number;
}

export class Scrape {
  readonly types = new Map<string, string>();
  readonly samples: Sample[] = [];

  constructor(readonly text: string) {
    const seen = new Set<string>();
    for (const line of text.split('\n')) {
      if (line === '' || line.startsWith('# HELP ')) continue;
      if (line.startsWith('# TYPE ')) {
        const [name, type] = line.slice(7).split(' ') as [string, string];
        expect(this.types.has(name), `${name} is described once`).to.equal(false);
        this.types.set(name, type);
        continue;
      }
      const match = SAMPLE.exec(line);
      if (match === null) throw new Error(`not a sample: ${line}`);
      const labels = Object.fromEntries(
        [...(match[2] ?? '').matchAll(LABEL)].map(([, name, value]) => [name!, value!]),
      );
      const sample = { name: match[1]!, labels, value: Number(match[3]) };
      const key = keyOf(sample.name, labels);
      expect(seen.has(key), `${key} is there once`).to.equal(false);
      seen.add(key);
      this.samples.push(sample);
    }
  }

  static async of(registry: MetricsRegistry): Promise<Scrape> {
    return new Scrape(await registry.metrics());
  }

  /** The one value with exactly these labels. */
  value(name: string, labels: Labels = {}): number {
    const key = keyOf(name, labels);
    const found = this.samples.find((sample) => keyOf(sample.name, sample.labels) === key);
    if (found === undefined) throw new Error(`no ${key}`);
    return found.value;
  }

  /** The values of one name, by the values of the given labels, joined by a space. */
  by(name: string, ...labels: string[]): Record<string, number> {
    const found = this.samples.filter((sample) => sample.name === name);
    return Object.fromEntries(found.map(({ labels: own, value }) => [labels.map((l) => own[l]).join(' '), value]));
  }

  /** Label names of a family's values, sorted; `le` left out. */
  labelNames(name: string): string[] {
    const suffix = this.types.get(name) === 'histogram' ? '_count' : '';
    const names = this.samples
      .filter((sample) => sample.name === name + suffix)
      .map(({ labels }) => Object.keys(labels));
    return [...new Set(names.flat())].sort();
  }

  /** Bucket edges of a histogram, in order, of its first label set. */
  edges(name: string): number[] {
    const all = this.samples
      .filter((sample) => sample.name === `${name}_bucket`)
      .map(({ labels }) => Number(labels.le === '+Inf' ? Infinity : labels.le));
    return all.slice(0, all.indexOf(Infinity) + 1);
  }
}

function keyOf(name: string, labels: Labels): string {
  const pairs = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  return `${name}{${pairs.sort().join(',')}}`;
}
