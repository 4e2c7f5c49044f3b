// The header of a staged batch that names the stream its record is for: `<epoch>:<slot>:<session>`, each a decimal number. Owns its
// text and nothing else; it must never look anything up.

import { MAX_U32, MAX_U64 } from './bytes.js';

/** The stream a staged record belongs to, as its sender names it. */
export interface MuxSlotName {
  /** Epoch of the sender's batcher. */
  readonly epoch: bigint;
  /** Full id: index and generation. */
  readonly slot: number;
  /** The routing session that the slot was opened with. */
  readonly session: bigint;
}

/** Three numbers of 20, 10 and 20 digits, and two colons: whatever is longer names nothing. */
const MAX_TEXT = 52;
const SHAPE = /^(0|[1-9]\d{0,19}):(0|[1-9]\d{0,9}):(0|[1-9]\d{0,19})$/;

export function formatMuxSlot({ epoch, slot, session }: MuxSlotName): string {
  return `${epoch}:${slot}:${session}`;
}

/** Reads the header back. Any text may come from a peer; what is not exactly such a name gives undefined. */
export function parseMuxSlot(text: string): MuxSlotName | undefined {
  const parts = text.length > MAX_TEXT ? null : SHAPE.exec(text);
  if (parts === null) return undefined;
  const epoch = BigInt(parts[1]!);
  const slot = Number(parts[2]);
  const session = BigInt(parts[3]!);
  return epoch > MAX_U64 || slot > MAX_U32 || session > MAX_U64 ? undefined : { epoch, slot, session };
}
