// Owns the little statistics the benchmarks need: median, quantile, spread over rounds, and the way numbers are written for people.
// Must never touch a process, a clock or a file.

/** The median of one figure over the rounds, with its least and greatest value. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** Middle value; mean of the two middle values of an even count. `values` must not be empty. */
export function median(values: readonly number[]): number {
  if (values.length === 0) throw new RangeError('median of nothing');
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  const upper = sorted[half]!;
  return sorted.length % 2 === 1 ? upper : (sorted[half - 1]! + upper) / 2;
}

/** Nearest-rank quantile of values that are sorted already, `q` in [0, 1]. */
export function quantile(sorted: ArrayLike<number>, q: number): number {
  if (sorted.length === 0) throw new RangeError('quantile of nothing');
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]!;
}

/** Spread of the rounds that have the figure; null when none has. */
export function spread(values: readonly (number | null)[]): Spread | null {
  const present = values.filter((value) => value !== null);
  if (present.length === 0) return null;
  return { median: median(present), min: Math.min(...present), max: Math.max(...present) };
}

/** `a / b`, or null when either is missing or `b` is zero. */
export function ratio(a: number | null | undefined, b: number | null | undefined): number | null {
  return a == null || b == null || b === 0 ? null : a / b;
}

/** A number with `digits` decimals and thousands separators. */
export function formatNumber(value: number, digits: number): string {
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** `median (min–max)`, or a dash for a figure that the row does not have. */
export function formatSpread(value: Spread | null, digits: number): string {
  if (value === null) return '–';
  const [mid, low, high] = [value.median, value.min, value.max].map((n) => formatNumber(n, digits));
  return low === high ? `${mid}` : `${mid} (${low}–${high})`;
}

/** Lines of a table whose first column is left-aligned and whose others are right-aligned. */
export function formatTable(head: readonly string[], body: readonly (readonly string[])[]): string {
  const widths = head.map((title, column) => Math.max(title.length, ...body.map((row) => row[column]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)))
      .join('  ')
      .trimEnd();
  return [line(head), widths.map((width) => '-'.repeat(width)).join('  '), ...body.map(line)].join('\n');
}
