// The files that Unix sockets stand in: their names, who may take one, and taking it away again. A file is removed only while it
// is the very one that was made: between two looks it may have become somebody else's.
//
// A socket is bound under a name of its own and then linked to where peers look for it. So a path is taken by one of two starters
// and not by both; and when the runtime closes a server it unlinks the name it bound, whoever owns that name by then.

import { randomBytes } from 'node:crypto';
import { linkSync, lstatSync, statSync, unlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname, isAbsolute, join } from 'node:path';
import { VeloError } from '../errors.js';

/** Bytes of a path in a socket address, less its closing zero. Longer ones would be cut without a word. */
export const MAX_SOCKET_PATH_BYTES = process.platform === 'linux' || process.platform === 'android' ? 107 : 103;
/** How long a socket file may take to answer before its listener counts as dead. */
const PROBE_MS = 100;
const BOUND_NAME_BYTES = 4;

/** Which file a listener made. Structured-clonable. */
export interface SocketFile {
  readonly path: string;
  readonly device: bigint;
  readonly inode: bigint;
  readonly bornNs: bigint;
}

/** Where lane `k` of a node listens: lane 0 at the path itself, every other one beside it. */
export function lanePath(path: string, lane: number): string {
  return lane === 0 ? path : `${path}.${lane}`;
}

/** What is wrong with the path for a node of so many lanes; undefined when nothing is. */
export function socketPathFault(path: unknown, lanes: number): string | undefined {
  if (process.platform === 'win32') return 'no path: this platform has no Unix sockets';
  if (typeof path !== 'string' || !isAbsolute(path) || path.includes('\0')) return 'an absolute path';
  const longest = Math.max(bytesOf(lanePath(path, lanes - 1)), bytesOf(boundName(path)));
  if (longest <= MAX_SOCKET_PATH_BYTES) return undefined;
  return `a path that needs no more than the ${MAX_SOCKET_PATH_BYTES} bytes of a socket address (lanes and binding make it ${longest})`;
}

/** There is a socket at this path, for us to see. Never throws: the path may be a peer's. */
export function isSocket(path: string): boolean {
  if (bytesOf(path) > MAX_SOCKET_PATH_BYTES) return false;
  try {
    return statSync(path).isSocket();
  } catch {
    return false;
  }
}

/** A name in the same directory, to bind before the path is taken. */
export function boundName(path: string): string {
  return join(dirname(path), `.${randomBytes(BOUND_NAME_BYTES).toString('hex')}`);
}

/**
 * Makes way for a listener: a socket file that nobody answers at is removed.
 *
 * @throws VeloError `ERR_LISTEN_FAILED` when there is something else, or somebody answers or may.
 */
export async function clearStale(path: string): Promise<void> {
  const found = identify(path);
  if (found === undefined) return;
  if (!isSocket(path)) throw refused(path, 'it exists and is not a socket');
  const alive = await probe(path);
  if (alive !== undefined) throw refused(path, alive);
  removeSocketFile(found);
}

/**
 * Links a bound socket to the path where peers look for it.
 *
 * @throws VeloError `ERR_LISTEN_FAILED`, also when somebody else took the path meanwhile.
 */
export function publishSocket(bound: string, path: string): SocketFile {
  try {
    linkSync(bound, path);
  } catch (cause) {
    throw refused(path, cause instanceof Error ? cause.message : String(cause), cause);
  } finally {
    unlinkQuietly(bound);
  }
  const file = identify(path);
  if (file === undefined) throw refused(path, 'it was removed at once');
  return file;
}

/** Removes the file if it still is the one that was made. Best before its server is closed: until then its inode cannot be another's. */
export function removeSocketFile(file: SocketFile): void {
  const now = identify(file.path);
  if (now?.device !== file.device || now.inode !== file.inode || now.bornNs !== file.bornNs) return;
  unlinkQuietly(file.path);
}

function identify(path: string): SocketFile | undefined {
  try {
    const { dev, ino, birthtimeNs } = lstatSync(path, { bigint: true });
    return { path, device: dev, inode: ino, bornNs: birthtimeNs };
  } catch {
    return undefined;
  }
}

/** Undefined when nobody listens there any more, else why it must be left alone. */
function probe(path: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ path });
    const done = (why: string | undefined) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(why);
    };
    const timer = setTimeout(() => done(undefined), PROBE_MS);
    socket.once('connect', () => done('somebody listens there'));
    // Not once: a socket that is being destroyed may report again.
    socket.on('error', ({ code, message }: NodeJS.ErrnoException) =>
      // Any other error (no permission, a full backlog, another kind of socket) comes from a socket that may well be alive.
      done(code === 'ECONNREFUSED' || code === 'ENOENT' ? undefined : `nobody can tell if it is in use: ${message}`),
    );
  });
}

function unlinkQuietly(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // Gone already, or not ours to remove: nobody is helped by an error here.
  }
}

function refused(path: string, why: string, cause?: unknown): VeloError {
  return new VeloError(
    'ERR_LISTEN_FAILED',
    `cannot listen on uds://${path}: ${why}`,
    cause === undefined ? {} : { cause },
  );
}

function bytesOf(path: string): number {
  return Buffer.byteLength(path);
}
