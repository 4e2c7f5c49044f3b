// Owns the list of rows and the modes each has. A row's module is loaded only by the processes that run it.
// Must never load a row when it is only listed.

import type { Mode, Row } from './row.js';

interface RowEntry {
  /** True for velomux itself: it also has the mode that reads one item at a time. */
  readonly ours: boolean;
  readonly load: () => Promise<Row>;
}

const velomux = async (): Promise<Row> => (await import('./velomux.js')).velomuxRow;

const ROWS: ReadonlyMap<string, RowEntry> = new Map([
  ['velomux', { ours: true, load: velomux }],
  ['velomux-256', { ours: true, load: velomux }],
  ['velomux-2', { ours: true, load: velomux }],
  ['velomux-inline', { ours: true, load: velomux }],
  ['net-per-stream', { ours: false, load: async () => (await import('./net-per-stream.js')).netPerStreamRow }],
  ['net-batch', { ours: false, load: async () => (await import('./net-batch.js')).netBatchRow }],
  ['net-token', { ours: false, load: async () => (await import('./net-token.js')).netTokenRow }],
]);

export const ROW_NAMES: readonly string[] = [...ROWS.keys()];

/** The row that is also measured with a reader that takes one item at a time. */
const ITEMS_ROW = 'velomux';

export function hasMode(name: string, mode: Mode): boolean {
  return mode !== 'throughput-items' || name === ITEMS_ROW;
}

/** True for the project's own rows, which get no help from the environment that the rivals get. */
export function isOurs(name: string): boolean {
  return ROWS.get(name)?.ours === true;
}

export function loadRow(name: string): Promise<Row> {
  const entry = ROWS.get(name);
  if (entry === undefined) throw new Error(`no row named ${name}`);
  return entry.load();
}
