// Captures: what a velo node and its peer said to each other, as text files under test/vectors/captures. Owns their format and the
// story that a header tells; recording and replaying stand elsewhere.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { bytesOf } from '../interop/payload.js';
import { fromHex, projectRoot, toHex } from './vectors.js';

export const CAPTURES = join(projectRoot, 'test', 'vectors', 'captures');
const SUFFIX = '.txt';

/** A call of an application's handler. */
export interface CapturedCall {
  readonly from: string;
  readonly handler: string;
  readonly payload: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** What came back; `nothing` for fire-and-forget. */
  readonly answer: 'response' | 'ack' | 'shuttingDown' | 'nothing';
  readonly ok: boolean;
  /** Payload of the answer. */
  readonly text: string;
}

/** A stream from its first attachment to its end. */
export interface CapturedStream {
  /** Upper and lower half of the anchor's handle, in decimal. */
  readonly anchor: readonly [hi: string, lo: string];
  readonly producer: string;
  readonly kind: 'bytes' | 'token';
  /** Byte items by size and seed; tokens by number and seed. See test/interop/payload.ts. */
  readonly sizes?: readonly number[];
  readonly tokens?: number;
  readonly seed: number;
  /** Positions of Detached and of soft errors, by the number of items before them. */
  readonly marks: readonly (readonly [before: number, what: string])[];
  /** `cancelled`: by the consumer, once it had read every item. */
  readonly end: 'finalized' | 'dropped' | 'cancelled';
  readonly lanes: number;
}

export interface CaptureHeader {
  /** Of the crate velo. */
  readonly velo: string;
  readonly about: string;
  /** Names of the two sides and what each is. */
  readonly sides: Readonly<Record<string, string>>;
  readonly calls: readonly CapturedCall[];
  readonly streams: readonly CapturedStream[];
}

/** A frame, in the order in which a proxy between the two saw it. */
export interface CapturedFrame {
  readonly from: string;
  readonly connection: number;
  /** Sent on a connection that its sender had accepted. */
  readonly back: boolean;
  readonly bytes: Uint8Array;
}

export interface Capture {
  readonly name: string;
  readonly header: CaptureHeader;
  readonly frames: readonly CapturedFrame[];
}

/** A payload too long to be written out: see test/interop/payload.ts. */
export interface GeneratedPayload {
  readonly length: number;
  readonly seed: number;
}

/**
 * A comment, the header as JSON, and a line per frame: sender, connection, `>` on a connection the sender had dialed or `<` on one
 * it had accepted, the whole frame in hex. A frame that ends in one of the generated payloads has `+length:seed` in its place.
 */
export function formatCapture({ header, frames }: Capture, generated: readonly GeneratedPayload[] = []): string {
  const tails = generated.map(({ length, seed }) => ({
    hex: toHex(bytesOf(length, seed)),
    name: `+${length}:${seed}`,
  }));
  const lines = frames.map(({ from, connection, back, bytes }) => {
    const hex = toHex(bytes);
    const tail = tails.find((candidate) => hex.endsWith(candidate.hex));
    const text = tail === undefined ? hex : hex.slice(0, -tail.hex.length) + tail.name;
    return [from, connection, back ? '<' : '>', text].join(' ');
  });
  return ['# Made by `npm run interop:record`; not to be edited.', JSON.stringify(header), ...lines, ''].join('\n');
}

export function parseCapture(name: string, text: string): Capture {
  const [header, ...lines] = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  if (header === undefined) throw new Error(`${name} is empty`);
  const frames = lines.map((line) => {
    const [from, connection, direction, text] = line.split(' ');
    if (text === undefined) throw new Error(`${name}: not a frame: ${line.slice(0, 60)}`);
    return { from: from!, connection: Number(connection), back: direction === '<', bytes: frameBytes(text) };
  });
  return { name, header: JSON.parse(header) as CaptureHeader, frames };
}

function frameBytes(text: string): Uint8Array {
  const [hex, generated] = text.split('+') as [string, string?];
  const head = fromHex(hex);
  if (generated === undefined) return head;
  const [length, seed] = generated.split(':').map(Number) as [number, number];
  const bytes = new Uint8Array(head.length + length);
  bytes.set(head);
  bytes.set(bytesOf(length, seed), head.length);
  return bytes;
}

export function loadCaptures(): Capture[] {
  const names = readdirSync(CAPTURES).filter((name) => name.endsWith(SUFFIX));
  return names
    .sort()
    .map((name) => parseCapture(name.slice(0, -SUFFIX.length), readFileSync(join(CAPTURES, name), 'utf8')));
}

export function captureFile(name: string): string {
  return join(CAPTURES, `${name}${SUFFIX}`);
}
