// Builds the Rust peer with Cargo, in a cache outside the checkout, and knows where the result lies. What a machine lacks is told
// apart from what is wrong: no toolchain or no network is a reason to skip, an error of the compiler is a failure.

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, copyFile, mkdir, readdir, readFile, rename } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const PEER = fileURLToPath(new URL('../../../test/interop/peer/', import.meta.url));
const BINARY = process.platform === 'win32' ? 'velomux-interop-peer.exe' : 'velomux-interop-peer';
const DEFAULT_BUILD_SECONDS = 600;
/** What Cargo and rustc say when a tool or the network is missing, and nothing is wrong with the sources. */
const MISSING: readonly RegExp[] = [
  /linker `[^`]+` not found/,
  /feature `edition2024` is required/,
  /requires rustc [\d.]+ or newer|cannot be built because it requires rustc/,
];

/** Why there is no peer, in one line. */
export class Skipped extends Error {}

/** Of the crate velo that the peer is built on. */
export async function veloVersion(): Promise<string> {
  const manifest = await readFile(join(PEER, 'Cargo.toml'), 'utf8');
  const version = /^velo = \{ version = "=([^"]+)"/m.exec(manifest)?.[1];
  if (version === undefined) throw new Error('test/interop/peer/Cargo.toml pins no version of velo');
  return version;
}

async function cacheDirectory(): Promise<string> {
  const base = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  return join(base, 'velomux-interop');
}

/** Where the peer of these very sources lies, built or not. */
export async function peerBinary(): Promise<string> {
  const sources = (await readdir(join(PEER, 'src'), { recursive: true })).filter((name) => name.endsWith('.rs')).sort();
  const hash = createHash('sha256');
  for (const name of ['Cargo.toml', 'Cargo.lock', ...sources.map((source) => join('src', source))])
    hash.update(`${name}\0`).update(await readFile(join(PEER, name)));
  const tag = `${await veloVersion()}-${hash.digest('hex').slice(0, 16)}`;
  return join(await cacheDirectory(), tag, BINARY);
}

/**
 * Builds the peer unless it is there.
 *
 * @returns the path of the binary.
 * @throws Skipped when this machine cannot build it; any other error when the build itself is wrong.
 */
export async function buildPeer(): Promise<string> {
  const binary = await peerBinary();
  if (await exists(binary)) return binary;
  const cargo = await findCargo();
  if (cargo === undefined) throw new Skipped('no cargo in PATH or ~/.cargo/bin');
  const target = join(await cacheDirectory(), `target-${await veloVersion()}`);
  const deadline = Date.now() + buildSeconds() * 1000;

  const fetched = await run(cargo, ['fetch', '--locked'], target, deadline);
  if (fetched.code !== 0) {
    // A lock file that does not fit the manifest is our own mistake.
    if (/--locked/.test(fetched.stderr)) throw new Error(fetched.stderr);
    throw new Skipped(`cargo could not fetch the peer's crates: ${reasonOf(fetched)}`);
  }
  const built = await run(cargo, ['build', '--release', '--locked', '--offline'], target, deadline);
  if (built.code !== 0) {
    if (built.timedOut || MISSING.some((sign) => sign.test(built.stderr)))
      throw new Skipped(`cargo could not build the peer: ${reasonOf(built)}`);
    throw new Error(`the peer does not build\n${built.stderr}`);
  }
  await mkdir(join(binary, '..'), { recursive: true });
  // Renamed into place: another run must never start half a file.
  const partial = `${binary}.${process.pid}`;
  await copyFile(join(target, 'release', BINARY), partial);
  await rename(partial, binary);
  return binary;
}

function buildSeconds(): number {
  const given = process.env.VELOMUX_INTEROP_BUILD_SECONDS;
  if (given === undefined || given === '') return DEFAULT_BUILD_SECONDS;
  const seconds = Number(given);
  if (!(seconds > 0)) throw new Error(`VELOMUX_INTEROP_BUILD_SECONDS = ${given}: expected a number of seconds`);
  return seconds;
}

async function findCargo(): Promise<string | undefined> {
  const directories = [...(process.env.PATH ?? '').split(delimiter), join(homedir(), '.cargo', 'bin')];
  const name = process.platform === 'win32' ? 'cargo.exe' : 'cargo';
  for (const directory of directories) {
    if (directory !== '' && (await exists(join(directory, name)))) return join(directory, name);
  }
  return undefined;
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}

interface Ran {
  readonly code: number | null;
  readonly stderr: string;
  readonly timedOut: boolean;
}

/** Runs Cargo in the peer's folder, until the deadline at most. */
function run(cargo: string, args: readonly string[], target: string, deadline: number): Promise<Ran> {
  return new Promise((resolve) => {
    const child = spawn(cargo, args, {
      cwd: PEER,
      env: { ...process.env, CARGO_TARGET_DIR: target, CARGO_TERM_COLOR: 'never' },
      stdio: ['ignore', 'ignore', 'pipe'],
      // A group of its own: the time box ends rustc as well.
      detached: process.platform !== 'win32',
    });
    let stderr = '';
    let timedOut = false;
    const timer = setTimeout(
      () => {
        timedOut = true;
        if (process.platform === 'win32' || child.pid === undefined) child.kill('SIGKILL');
        else process.kill(-child.pid, 'SIGKILL');
      },
      Math.max(0, deadline - Date.now()),
    );
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    const settle = (code: number | null) => {
      clearTimeout(timer);
      resolve({ code, stderr, timedOut });
    };
    child.on('error', (error) => {
      stderr += error.message;
      settle(null);
    });
    child.on('close', settle);
  });
}

/** One line of it. */
function reasonOf({ stderr, timedOut }: Ran): string {
  if (timedOut) return `it took more than ${buildSeconds()} s (VELOMUX_INTEROP_BUILD_SECONDS)`;
  const lines = stderr.split('\n').map((line) => line.trim());
  return lines.find((line) => line.startsWith('error')) ?? lines.findLast((line) => line !== '') ?? 'no reason given';
}
