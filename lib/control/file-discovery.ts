// A directory of nodes in one JSON file that processes share. Owns when the file is read and written, and by whom; it must never
// write over a file that it could not read, or leave a half-written one.

import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { VeloError } from '../errors.js';
import type { PeerInfo } from '../wire/peer-info.js';
import type { Discovery, DiscoveryChanges, DiscoveryRegistration } from './discovery.js';
import { DiscoveryEntries, MAX_DISCOVERY_FILE_BYTES } from './discovery-file.js';
import { FileLock, type FileLockOptions } from './file-lock.js';
import { DEFAULT_POLL_MS, FileWatch, type FileWatchOptions } from './file-watch.js';

/** Changes that wait for the lock in this process. */
const MAX_WAITING_CHANGES = 1_024;
/** A timer takes no more. */
const MAX_TIME_MS = 2 ** 31 - 1;

export interface FileDiscoveryOptions extends FileLockOptions, FileWatchOptions {}

/**
 * Peers in a JSON file, in the format of the reference's file backend. For nodes on one machine, or with one file system.
 *
 * The file is read at every lookup. A missing or an empty one holds no peers. One that is no such file, or is larger than 16 MiB or
 * 16,384 entries, is `ERR_BAD_DISCOVERY_FILE` and stays as it is. A damaged entry hides no other; it is counted (`damagedEntries`),
 * skipped, and kept when the file is written.
 *
 * A change is written beside the file and renamed over it. Changes of this class exclude one another, in all processes, by a lock
 * file (`<file>.lock`); a process that dies while it holds the lock delays the others by five seconds. A Rust node takes no such
 * lock: when it writes in the very moment between reading and renaming here, or the other way round, the later rename wins and the
 * earlier change is lost. The entry of a process that was killed stays until somebody removes it.
 */
export class FileDiscovery implements Discovery {
  /** Absolute. */
  readonly path: string;
  /** Damaged entries that the last look found. */
  damagedEntries = 0;
  private changing: Promise<unknown> = Promise.resolve();
  private waitingChanges = 0;

  /** @throws VeloError `ERR_INVALID_ARGUMENT`. The file need not exist, nor its directory: the first `register` makes them. */
  constructor(
    path: string,
    private readonly options: FileDiscoveryOptions = {},
  ) {
    if (typeof path !== 'string' || path === '' || path.includes('\0'))
      throw new VeloError('ERR_INVALID_ARGUMENT', `path = ${String(path)}: expected the path of a file`);
    this.path = resolve(path);
    for (const field of ['pollMs', 'staleMs'] as const) {
      const value = options[field];
      if (value !== undefined && !(Number.isInteger(value) && value >= 1 && value <= MAX_TIME_MS))
        throw new VeloError(
          'ERR_INVALID_ARGUMENT',
          `${field} = ${value}: expected milliseconds from 1 to ${MAX_TIME_MS}`,
        );
    }
  }

  /**
   * Enters a node. Rejects with `ERR_ALREADY_REGISTERED`, `ERR_BAD_DISCOVERY_FILE` (also when it cannot be written), `ERR_LIMIT`, or
   * `ERR_TIMEOUT` when the lock cannot be had in a minute.
   */
  async register(info: PeerInfo): Promise<DiscoveryRegistration> {
    await this.change((entries, again) => {
      // Written before, and then in doubt.
      if (again && entries.instance(info.instanceId) !== undefined) return false;
      entries.add(info);
      return true;
    });
    let leaving: Promise<void> | undefined;
    const unregister = () => {
      leaving ??= this.remove(info.instanceId).catch((error: unknown) => {
        leaving = undefined;
        throw error;
      });
      return leaving;
    };
    return { unregister, [Symbol.asyncDispose]: unregister };
  }

  private async remove(instanceId: string): Promise<void> {
    await this.change((entries) => entries.remove(instanceId));
  }

  /** Rejects with `ERR_BAD_DISCOVERY_FILE`. */
  async resolve(workerId: bigint): Promise<PeerInfo | undefined> {
    return this.look().worker(workerId);
  }

  /** Rejects with `ERR_BAD_DISCOVERY_FILE`. */
  async resolveInstance(instanceId: string): Promise<PeerInfo | undefined> {
    return this.look().instance(instanceId);
  }

  /** All peers that are there now. Rejects with `ERR_BAD_DISCOVERY_FILE`. */
  async peers(): Promise<PeerInfo[]> {
    return [...this.look().peers().values()];
  }

  /**
   * Tells which peers came, changed their address, or left, until the signal is aborted. Looks when the directory says that the file
   * was replaced, and every `pollMs` (default 2,000) whatever it says. Changes in quick succession are one report. While the file
   * cannot be read nothing is told. Does not keep the process alive.
   */
  watch(listener: (changes: DiscoveryChanges) => void, signal?: AbortSignal): void {
    let known = new Map<string, PeerInfo>();
    let last: Uint8Array = new Uint8Array(0);
    const look = () => {
      let now: Map<string, PeerInfo>;
      try {
        const bytes = this.read();
        if (Buffer.compare(bytes, last) === 0) return;
        now = this.parse(bytes).peers();
        last = bytes;
      } catch {
        return;
      }
      const changes = difference(known, now);
      known = now;
      if (changes !== undefined) listener(changes);
    };
    const watch = new FileWatch(this.path, this.options.pollMs ?? DEFAULT_POLL_MS, look);
    watch.start(signal);
  }

  private look(): DiscoveryEntries {
    return this.parse(this.read());
  }

  private parse(bytes: Uint8Array): DiscoveryEntries {
    const entries = DiscoveryEntries.parse(bytes, this.path);
    this.damagedEntries = entries.damaged;
    return entries;
  }

  private read(): Uint8Array {
    try {
      const stat = statSync(this.path);
      // Anything else may never end, or never begin.
      if (!stat.isFile()) throw this.bad('it is no regular file');
      if (stat.size > MAX_DISCOVERY_FILE_BYTES)
        throw this.bad(`it has ${stat.size} bytes, more than ${MAX_DISCOVERY_FILE_BYTES}`);
      return readFileSync(this.path);
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return new Uint8Array(0);
      throw VeloError.is(cause) ? cause : this.bad('it cannot be read', cause);
    }
  }

  /** One change at a time in this process, and one process at a time. `edit` says whether there is anything to write. */
  private async change(edit: (entries: DiscoveryEntries, again: boolean) => boolean): Promise<void> {
    if (this.waitingChanges >= MAX_WAITING_CHANGES)
      throw new VeloError(
        'ERR_LIMIT',
        `${MAX_WAITING_CHANGES} changes already wait for the discovery file ${this.path}`,
      );
    this.waitingChanges += 1;
    const turn = this.changing.then(() => this.changeLocked(edit));
    this.changing = turn.catch(() => {});
    try {
      await turn;
    } catch (cause) {
      throw VeloError.is(cause) ? cause : this.bad('it cannot be written', cause);
    } finally {
      this.waitingChanges -= 1;
    }
  }

  private async changeLocked(edit: (entries: DiscoveryEntries, again: boolean) => boolean): Promise<void> {
    mkdirSync(dirname(this.path), { recursive: true });
    for (let again = false; ; again = true) {
      const lock = await FileLock.take(`${this.path}.lock`, this.options);
      try {
        // In one go: between reading and renaming this thread does nothing else.
        const entries = this.look();
        if (!edit(entries, again) || this.replace(entries.format(), lock)) return;
      } finally {
        lock.release();
      }
    }
  }

  /** False when the lock was lost: somebody may have read the file before it was replaced, and will replace it in turn. */
  private replace(bytes: Uint8Array, lock: FileLock): boolean {
    const beside = `${this.path}.tmp.${randomUUID()}`;
    try {
      writeFileSync(beside, bytes, { flag: 'wx' });
      if (!lock.held) return false;
      renameSync(beside, this.path);
      return lock.held;
    } finally {
      rmSync(beside, { force: true });
    }
  }

  private bad(why: string, cause?: unknown): VeloError {
    const detail = cause instanceof Error ? `${why}: ${cause.message}` : why;
    return new VeloError('ERR_BAD_DISCOVERY_FILE', `discovery file ${this.path}: ${detail}`, { cause });
  }
}

function difference(before: Map<string, PeerInfo>, now: Map<string, PeerInfo>): DiscoveryChanges | undefined {
  const added: PeerInfo[] = [];
  const changed: PeerInfo[] = [];
  for (const [instanceId, info] of now) {
    const old = before.get(instanceId);
    if (old === undefined) added.push(info);
    else if (Buffer.compare(old.address, info.address) !== 0) changed.push(info);
  }
  const removed = [...before.values()].filter(({ instanceId }) => !now.has(instanceId));
  if (added.length + changed.length + removed.length === 0) return undefined;
  return { added, changed, removed };
}
