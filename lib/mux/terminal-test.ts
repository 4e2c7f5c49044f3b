// Tells terminal frames from the rest, as cheaply as the fast paths need it. Owns the shortcut; the full test is the
// wire's.

import { isTerminalSentinel } from '../wire/frame.js';

/** Second byte of an item frame: the head of its four-letter name. No terminal has it there. */
const ITEM_NAME_HEAD = 0xa4;

/**
 * True for Finalized, Detached, Dropped and TransportError. One load for items; allocates nothing for those and the
 * first three.
 */
export function isTerminal(src: Uint8Array, off: number, len: number): boolean {
  return src[off + 1] !== ITEM_NAME_HEAD && isTerminalSentinel(src, off, len);
}
