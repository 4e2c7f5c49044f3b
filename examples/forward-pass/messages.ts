// What the processes say to each other: over the fork's channel to set the run up, and in the one request over velomux.

import type { Options } from './options.js';

/** A node's address as plain JSON: what `PeerInfo.fromJSON` reads. */
export type PeerJson = unknown;

/** What the parent tells a child, in this order. */
export type ToChild =
  | { kind: 'start'; index: number; options: Options; pieces: string[]; showcase: number }
  | { kind: 'peers'; peers: PeerJson[] }
  | { kind: 'go' }
  | { kind: 'stop' };

/** What a child tells the parent. */
export type ToParent =
  | { kind: 'ready'; peer: PeerJson }
  | { kind: 'joined' }
  | { kind: 'progress'; tokens: number }
  | { kind: 'received'; tokens: number; firstTokenMs: number[]; interTokenMs: number[]; showcaseText: string }
  | { kind: 'sent'; tokens: number; passes: number; writes: number }
  | { kind: 'failed'; message: string };

/** What a frontend asks of an engine: stream `budget` tokens of `request` to the anchor behind `handle`. */
export interface GenerateRequest {
  request: number;
  budget: number;
  handle: { hi: bigint; lo: bigint };
}
