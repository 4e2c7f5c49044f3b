// Lines for people who debug, written under NODE_DEBUG=velomux and nowhere else. It must never be the only sign of a thing: what
// is logged is counted too.

import { performance } from 'node:perf_hooks';
import { debuglog } from 'node:util';

/** Between two lines of one kind. */
const LINE_EVERY_MS = 1_000;
const write = debuglog('velomux');

/** Whether anybody reads lines: to ask before a text is even described. */
export function isDebugging(): boolean {
  return write.enabled;
}

/** Lines of one kind, at most one a second: what peers cause must not fill a disk. */
export class DebugLog {
  private last = Number.NEGATIVE_INFINITY;
  private left = 0;

  line(text: () => string): void {
    if (!write.enabled) return;
    const now = performance.now();
    if (now - this.last < LINE_EVERY_MS) {
      this.left += 1;
      return;
    }
    write('%s', this.left > 0 ? `${text()} (and ${this.left} more since the last line)` : text());
    this.last = now;
    this.left = 0;
  }
}
