// Which streams a writer may still hold although its readers have all ended: those whose reader cannot tell it any more. A killed reader
// tells nothing and takes no record, and a node does not look after the health of its peers yet; the refusal of an opening that was on a
// connection when that was cut is not said again. Every other stream must be gone at rest.

import type { Role, StreamReport } from './protocol.js';
import type { Excuse } from './verdict.js';

/** A cancel is under way for so long, at the most, before it counts as heard. */
const UNDER_WAY_MS = 1_000;
/** Endings of a reader that are told to the writer by a cancel. */
const NOT_TOLD: ReadonlySet<string> = new Set(['finalized', 'dropped as planned']);

export class Ledger {
  /** Streams that only their writer, or only their reader, has reported. */
  private readonly writersOnly = new Map<number, string>();
  private readonly readersOnly = new Set<number>();
  private cancelled: StreamReport[] = [];
  /** Streams of earlier rounds, per writer. */
  private readonly before = new Map<string, number>();

  report(role: Role, report: StreamReport): void {
    const { stream, writer, outcome } = report;
    if (role === 'writer') {
      if (!this.readersOnly.delete(stream)) this.writersOnly.set(stream, writer);
      return;
    }
    if (!this.writersOnly.delete(stream)) this.readersOnly.add(stream);
    if (!NOT_TOLD.has(outcome)) this.cancelled.push(report);
  }

  /** How many streams a writer may hold at the most, once everybody has reported. */
  mayHold(writer: string, excuses: readonly Excuse[]): number {
    let count = this.before.get(writer) ?? 0;
    for (const name of this.writersOnly.values()) if (name === writer) count += 1;
    for (const report of this.cancelled) if (report.writer === writer && wasCut(report, excuses)) count += 1;
    return count;
  }

  /** The next round begins. */
  carryOver(excuses: readonly Excuse[]): void {
    const writers = new Set([...this.writersOnly.values(), ...this.cancelled.map(({ writer }) => writer)]);
    for (const writer of writers) this.before.set(writer, this.mayHold(writer, excuses));
    this.writersOnly.clear();
    this.readersOnly.clear();
    this.cancelled = [];
  }
}

/** A connection to the writer was cut while the cancel may have been on it. */
export function wasCut({ writer, to }: StreamReport, excuses: readonly Excuse[]): boolean {
  return excuses.some(
    ({ kind, names, from, to: until }) =>
      kind.startsWith('cut') &&
      names.includes(writer) &&
      from - UNDER_WAY_MS <= to &&
      (until ?? to) + UNDER_WAY_MS >= to,
  );
}
