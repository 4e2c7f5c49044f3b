// Unix sockets for tests: a directory of its own per test, sockets that nobody answers at any more, and what stands in a directory.

import { linkSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A directory that is removed with everything in it after each test of the surrounding suite. */
export function directoryPerTest(): { readonly path: string; at(name: string): string; names(): string[] } {
  let path = '';
  beforeEach(() => {
    path = mkdtempSync(join(tmpdir(), 'velomux-'));
  });
  afterEach(() => rmSync(path, { recursive: true, force: true }));
  return {
    get path() {
      return path;
    },
    at: (name) => join(path, name),
    names: () => readdirSync(path).sort(),
  };
}

export async function listenOn(path: string, server = createServer()): Promise<Server> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, resolve);
  });
  return server;
}

export async function closed(server: Server): Promise<void> {
  await new Promise((resolve) => server.close(resolve));
}

/** A socket file as a killed process leaves it: nobody listens there. */
export async function leaveSocket(path: string): Promise<void> {
  const server = await listenOn(`${path}~`);
  // The runtime removes the name it bound, and no other.
  linkSync(`${path}~`, path);
  await closed(server);
}
