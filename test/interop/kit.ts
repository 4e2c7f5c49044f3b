// What the interop tests share: Rust peers, velomux nodes and proxies that end with their test, and readings of a stream in the form
// in which a Rust consumer reports them.

import {
  type ItemCodec,
  type PeerInfo,
  rawCodec,
  type StreamAnchor,
  type Velo,
  VeloError,
  type VeloOptions,
} from '../../lib/index.js';
import { decodeTcpEndpoints } from '../../lib/wire/address.js';
import { ADDRESS_KEY_TCP } from '../../lib/wire/names.js';
import { holdsNothing, nodesOfSuite, until } from '../support/nodes.js';
import { bytesOf, type Fingerprint, fingerprint } from './payload.js';
import { RecordingProxy } from './recording-proxy.js';
import { type Consumed, type RustNodeOptions, RustPeer } from './rust-peer.js';

export const RUST = 'rust';
export const OURS = 'velomux';

/** The port of a node's plain TCP listener. */
export function tcpPort(info: PeerInfo): number {
  return decodeTcpEndpoints(info.entries().get(ADDRESS_KEY_TCP)!)[0]!.port;
}

/** A velomux node and a Rust node that have registered each other. */
export interface MixedPair {
  readonly node: Velo;
  readonly rust: RustPeer;
}

export class Interop {
  private readonly peers: RustPeer[] = [];
  private readonly proxies: RecordingProxy[] = [];
  private readonly nodes = nodesOfSuite();

  node(options: VeloOptions = {}): Promise<Velo> {
    return this.nodes.make(options);
  }

  async rust(options: RustNodeOptions = {}): Promise<RustPeer> {
    const peer = await RustPeer.start(options);
    this.peers.push(peer);
    return peer;
  }

  async pair(node: VeloOptions = {}, rust: RustNodeOptions = {}): Promise<MixedPair> {
    const pair = { node: await this.node(node), rust: await this.rust(rust) };
    await pair.rust.introduce(pair.node);
    return pair;
  }

  /** A pair that reaches each other through a proxy only. */
  async recordedPair(
    node: VeloOptions = {},
    rust: RustNodeOptions = {},
  ): Promise<MixedPair & { readonly proxy: RecordingProxy }> {
    const pair = { node: await this.node(node), rust: await this.rust(rust) };
    const proxy = await this.proxy(pair);
    pair.node.registerPeer(proxy.infoOf(RUST));
    await pair.rust.register(proxy.infoOf(OURS));
    return { ...pair, proxy };
  }

  /** A proxy between the two; nobody is told of it yet. */
  async proxy({ node, rust }: MixedPair): Promise<RecordingProxy> {
    const proxy = await RecordingProxy.between([RUST, rust.info], [OURS, node.peerInfo]);
    this.proxies.push(proxy);
    return proxy;
  }

  /** After a test. */
  async end(): Promise<void> {
    await Promise.all(this.proxies.splice(0).map((proxy) => proxy.close()));
    await Promise.all(this.peers.splice(0).map((peer) => peer.kill()));
  }
}

/** The Rust peers, nodes and proxies of the surrounding suite. */
export function interop(): Interop {
  const kit = new Interop();
  afterEach(() => kit.end());
  return kit;
}

const IDLE_GAUGES = [
  'velo_streaming_active_anchors',
  'velo_streaming_mux_live_slots',
  'velo_streaming_mux_withheld_records',
  'velo_streaming_mux_held_records',
  'velo_messenger_pending_responses',
];
const PATIENCE_MS = 15_000;

/** Both nodes are as if nothing had happened: no stream, no slot, no call. */
export async function bothIdle({ node, rust }: MixedPair): Promise<void> {
  await until('our node holds nothing', () => holdsNothing(node));
  for (const gauge of IDLE_GAUGES) await rustReaches(rust, gauge, 0);
}

/** Polls a series of the Rust node until it has the value. */
export async function rustReaches(
  rust: RustPeer,
  name: string,
  value: number,
  labels?: Readonly<Record<string, string>>,
): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const now = await rust.metric(name, labels);
    if (now === value) return;
    if (Date.now() > deadline) throw new Error(`${name} of the Rust node is ${now}, not ${value}`);
  }
}

/** Reads an anchor to its end, or until `max` items, and reports it as a Rust consumer does. */
export async function consume<T = Uint8Array, I = Fingerprint>(
  anchor: StreamAnchor<T>,
  options: { report?: (item: T) => I; delayMs?: number; delayEvery?: number; max?: number } = {},
): Promise<Consumed<I>> {
  const { report = (item: T) => fingerprint(item as Uint8Array) as I, delayMs = 0, delayEvery = 1, max } = options;
  const items: I[] = [];
  const marks: (readonly [number, string])[] = [];
  const frames = anchor.frames();
  let end: string | null = null;
  try {
    while (max === undefined || items.length < max) {
      if (delayMs > 0 && items.length % delayEvery === delayEvery - 1)
        await new Promise((resolve) => setTimeout(resolve, delayMs));
      const { done, value: frame } = await frames.next();
      if (done) return { items, marks, end: end ?? 'closed' };
      if (frame.kind === 'item') items.push(report(frame.value));
      else if (frame.kind === 'senderError') marks.push([items.length, frame.message]);
      else if (frame.kind === 'detached') marks.push([items.length, 'detached']);
      else end = frame.kind;
    }
  } catch (error) {
    if (!VeloError.is(error)) throw error;
    return { items, marks, end: error.code };
  }
  return { items, marks, end };
}

/** What a consumer must report of items that (sizes, seed) name. */
export function expected(sizes: readonly number[], seed: number, from = 0): Fingerprint[] {
  return sizes.map((size, i) => fingerprint(bytesOf(size, seed + from + i)));
}

export const bytes: { readonly codec: ItemCodec<Uint8Array> } = { codec: rawCodec() };
