// Notices that a file may have changed. Its directory is watched, because a rename puts another file in its place; and because a
// directory may say nothing (network mounts, no watches left, made later), the file is looked at every now and then anyway.

import { type FSWatcher, watch } from 'node:fs';
import { basename, dirname } from 'node:path';

export const DEFAULT_POLL_MS = 2_000;
/** Events in quick succession are one. */
const COALESCE_MS = 20;

export interface FileWatchOptions {
  /** How often the file is looked at whatever its directory says, in milliseconds. Default 2,000. */
  readonly pollMs?: number | undefined;
}

export class FileWatch {
  private watcher: FSWatcher | undefined;
  private soon: NodeJS.Timeout | undefined;
  private poll: NodeJS.Timeout | undefined;

  constructor(
    private readonly path: string,
    private readonly pollMs: number,
    /** Looks at the file. Also called when nothing changed. */
    private readonly look: () => void,
  ) {}

  /** Looks once soon, and then as said above, until the signal is aborted. Keeps no process alive. */
  start(signal?: AbortSignal): void {
    if (signal?.aborted) return;
    signal?.addEventListener('abort', () => this.stop(), { once: true });
    this.poll = setInterval(() => {
      this.listen();
      this.hint();
    }, this.pollMs);
    this.poll.unref();
    this.listen();
    this.hint();
  }

  private stop(): void {
    clearInterval(this.poll);
    clearTimeout(this.soon);
    this.watcher?.close();
    this.watcher = undefined;
  }

  private listen(): void {
    if (this.watcher !== undefined) return;
    const name = basename(this.path);
    try {
      const watcher = watch(dirname(this.path), { persistent: false }, (_event, changed) => {
        if (changed === null || changed === name) this.hint();
      });
      watcher.on('error', () => {
        watcher.close();
        if (this.watcher === watcher) this.watcher = undefined;
      });
      this.watcher = watcher;
    } catch {
      // The directory is not there yet, or cannot be watched: the poll tries again.
    }
  }

  private hint(): void {
    this.soon ??= setTimeout(() => {
      this.soon = undefined;
      this.look();
    }, COALESCE_MS);
    this.soon.unref();
  }
}
