// The header of a staged batch that names the stream its record is for: `<epoch>:<slot>:<session>`, each a decimal number. Owns its
// text and nothing else; it must never look anything up.

import { MAX_U32, MAX_U64, u64From, u64High, u64Low } from './bytes.js';

/** The stream a staged record belongs to, as its sender names it. */
export interface MuxSlotName {
  /** Epoch of the sender's batcher. */
  readonly epochHi: number;
  readonly epochLo: number;
  /** Full id: index and generation. */
  readonly slot: number;
  /** The routing session that the slot was opened with. */
  readonly sessionHi: number;
  readonly sessionLo: number;
}

/** Three numbers of 20, 10 and 20 digits, and two colons: whatever is longer names nothing. */
const MAX_TEXT = 52;
const SHAPE = /^(0|[1-9]\d{0,19}):(0|[1-9]\d{0,9}):(0|[1-9]\d{0,19})$/;

export function formatMuxSlot({ epochHi, epochLo, slot, sessionHi, sessionLo }: MuxSlotName): string {
  return `${u64From(epochHi, epochLo)}:${slot}:${u64From(sessionHi, sessionLo)}`;
}

/** Reads the header back. Any text may come from a peer; what is not exactly such a name gives undefined. */
export function parseMuxSlot(text: string): MuxSlotName | undefined {
  const parts = text.length > MAX_TEXT ? null : SHAPE.exec(text);
  if (parts === null) return undefined;
  const epoch = BigInt(parts[1]!);
  const slot = Number(parts[2]);
  const session = BigInt(parts[3]!);
  if (epoch > MAX_U64 || slot > MAX_U32 || session > MAX_U64) return undefined;
  return {
    epochHi: u64High(epoch),
    epochLo: u64Low(epoch),
    slot,
    sessionHi: u64High(session),
    sessionLo: u64Low(session),
  };
}
