// One series family as a registry wants it: a name, a type, and the values at the moment of a scrape. Several nodes may stand in one
// family, each with labels of its own. It must never load prom-client: a registry asks for no more than these few members.

import type { CellName } from './cells.js';
import type { MetricsSource } from './source.js';

export type Labels = Readonly<Record<string, string>>;

/** One value of a family, in the shape of prom-client. */
export interface Sample {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  /** Differs from the family's name for the parts of a histogram. */
  readonly metricName?: string;
}

/** Where a family's values are written. */
export interface Emit {
  value(labels: Labels, value: number): void;
  /** `buckets` are not cumulative; one more than there are edges. */
  histogram(labels: Labels, edges: readonly number[], buckets: readonly number[], sum: number): void;
}

/** A family of the reference: its name and labels are part of what other programs rely on. */
export interface FamilySpec {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  /** Label names that the values carry. */
  readonly labels: readonly string[];
  read(source: MetricsSource, emit: Emit): void;
}

/** A family that is one cell, without labels. */
export function cellFamily(name: string, type: 'counter' | 'gauge', cell: number, help: string): FamilySpec {
  return { name, type, help, labels: [], read: (source, emit) => emit.value({}, source.cell(cell)) };
}

/** A counter family with one label, a cell to each of its values; one without a cell is 0. */
export function labelledFamily(
  name: string,
  label: string,
  cells: Readonly<Record<string, CellName | undefined>>,
  indexOf: (cell: CellName) => number,
  help: string,
): FamilySpec {
  const entries = Object.entries(cells).map(
    ([value, cell]) => [value, cell === undefined ? undefined : indexOf(cell)] as const,
  );
  return {
    name,
    type: 'counter',
    help,
    labels: [label],
    read: (source, emit) => {
      for (const [value, cell] of entries) emit.value({ [label]: value }, cell === undefined ? 0 : source.cell(cell));
    },
  };
}

interface Member {
  readonly source: MetricsSource;
  readonly labels: Labels;
}

/** The object a registry holds. */
export class Family {
  /** A registry of the OpenMetrics kind shortens it. */
  name: string;
  readonly help: string;
  readonly type: FamilySpec['type'];
  readonly aggregator = 'sum';
  private readonly members = new Map<MetricsSource, Member>();

  constructor(private readonly spec: FamilySpec) {
    this.name = spec.name;
    this.help = spec.help;
    this.type = spec.type;
  }

  get size(): number {
    return this.members.size;
  }

  /** The labels under which nodes stand in the family. */
  takenLabels(): Labels[] {
    return [...this.members.values()].map((member) => member.labels);
  }

  has(source: MetricsSource): boolean {
    return this.members.has(source);
  }

  add(source: MetricsSource, labels: Labels): void {
    this.members.set(source, { source, labels });
  }

  remove(source: MetricsSource): void {
    this.members.delete(source);
  }

  /** What a registry calls at a scrape. All families of one scrape are read in the same turn. */
  async get(): Promise<{ name: string; help: string; type: string; aggregator: string; values: Sample[] }> {
    const values: Sample[] = [];
    for (const { source, labels } of this.members.values())
      this.spec.read(source, emitInto(values, this.spec.name, labels));
    return { name: this.name, help: this.help, type: this.type, aggregator: this.aggregator, values };
  }

  /** The numbers belong to the node: a registry cannot set them back. */
  reset(): void {}
}

function emitInto(values: Sample[], name: string, constant: Labels): Emit {
  return {
    value: (labels, value) => values.push({ value, labels: { ...constant, ...labels } }),
    histogram: (labels, edges, buckets, sum) => {
      const own = { ...constant, ...labels };
      let count = 0;
      for (const [i, edge] of edges.entries()) {
        count += buckets[i]!;
        values.push({ metricName: `${name}_bucket`, value: count, labels: { le: edge, ...own } });
      }
      count += buckets[edges.length]!;
      values.push({ metricName: `${name}_bucket`, value: count, labels: { le: '+Inf', ...own } });
      values.push({ metricName: `${name}_sum`, value: sum, labels: own });
      values.push({ metricName: `${name}_count`, value: count, labels: own });
    },
  };
}
