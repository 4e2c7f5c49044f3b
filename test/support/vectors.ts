// Loads the byte vectors under test/vectors and turns hex into bytes and back. For tests only.

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { VeloError } from '../../lib/errors.js';

/** The folder that has package.json, found by walking up from this (compiled) file. */
export const projectRoot: string = findRoot(dirname(fileURLToPath(import.meta.url)));

/** The `vectors` list of test/vectors/<name>.json. 64-bit integers stand there as text. */
export function loadVectors<T>(name: string): T[] {
  return loadVectorFile<{ vectors: T[] }>(name).vectors;
}

/** A whole vector file. */
export function loadVectorFile<T>(name: string): T {
  return JSON.parse(readFileSync(join(projectRoot, 'test', 'vectors', `${name}.json`), 'utf8')) as T;
}

export function fromHex(hex: string): Uint8Array {
  return new Uint8Array(Buffer.from(hex, 'hex'));
}

export function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}

/** Runs `run` and returns the VeloError it must raise. */
export function veloErrorOf(run: () => unknown): VeloError {
  try {
    run();
  } catch (error) {
    if (VeloError.is(error)) return error;
    throw error;
  }
  throw new Error('expected a VeloError, nothing was raised');
}

/** The code of the VeloError that `run` must raise. */
export function codeOf(run: () => unknown): string {
  return veloErrorOf(run).code;
}

function findRoot(from: string): string {
  if (existsSync(join(from, 'package.json'))) return from;
  const parent = dirname(from);
  if (parent === from) throw new Error('no package.json above this file');
  return findRoot(parent);
}
