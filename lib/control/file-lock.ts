// A lock between processes that is a file: made by whoever finds none, removed by its maker. It must never wait for a holder that
// is gone, and never let a holder that was given up change anything.
//
// A holder needs milliseconds. A lock that a waiter sees unchanged for STALE_MS, by its own clock, belongs to a process that was
// killed or stopped: the waiter takes it away. A stopped holder that goes on finds that out by `held`, right before it acts.

import { randomBytes } from 'node:crypto';
import { readFileSync, renameSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { VeloError } from '../errors.js';

const STALE_MS = 5_000;
/** A lock with living holders passes on long before this. */
const WAIT_MS = 60_000;
const LOOK_MS_MIN = 1;
const LOOK_MS_MAX = 20;
const TOKEN_BYTES = 16;

export interface FileLockOptions {
  /** How long a lock may stand unchanged before its holder counts as gone. Default 5,000. */
  readonly staleMs?: number | undefined;
}

export class FileLock {
  private constructor(
    private readonly path: string,
    private readonly token: string,
  ) {}

  /** Waits for the lock. Rejects with `ERR_TIMEOUT` after a minute, and with what the file system says. */
  static async take(path: string, { staleMs = STALE_MS }: FileLockOptions = {}): Promise<FileLock> {
    const token = randomBytes(TOKEN_BYTES).toString('hex');
    const start = performance.now();
    let seen: string | undefined;
    let seenSince = start;
    for (let lookMs = LOOK_MS_MIN; ; lookMs = Math.min(lookMs * 2, LOOK_MS_MAX)) {
      if (create(path, token)) return new FileLock(path, token);
      const now = performance.now();
      if (now - start > WAIT_MS)
        throw new VeloError('ERR_TIMEOUT', `the lock ${path} is held by others for ${WAIT_MS} ms`);
      const there = identity(path);
      if (there === undefined || there !== seen) {
        seen = there;
        seenSince = now;
      } else if (now - seenSince >= staleMs) {
        takeAway(path);
        seen = undefined;
      }
      // Not all in step.
      await sleep(lookMs * (0.5 + Math.random()));
    }
  }

  /** Nobody has taken it away. */
  get held(): boolean {
    return read(this.path) === this.token;
  }

  release(): void {
    if (this.held) unlinkQuietly(this.path);
  }
}

function create(path: string, token: string): boolean {
  try {
    writeFileSync(path, token, { flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Under another name first: of several that find it stale, each removes a lock at most once. */
function takeAway(path: string): void {
  const aside = `${path}.${randomBytes(TOKEN_BYTES).toString('hex')}`;
  try {
    renameSync(path, aside);
  } catch {
    return;
  }
  unlinkQuietly(aside);
}

/** Changes with every holder. */
function identity(path: string): string | undefined {
  try {
    const { ino, mtimeNs } = statSync(path, { bigint: true });
    return `${ino} ${mtimeNs} ${read(path)}`;
  } catch {
    return undefined;
  }
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

function unlinkQuietly(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // Taken away by somebody else.
  }
}
