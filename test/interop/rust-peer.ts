// A real velo node in a process of its own, driven by JSON lines. One method per operation of test/interop/peer; nothing is decided
// here.

import { PeerInfo, StreamAnchorHandle, type Velo } from '../../lib/index.js';
import { peerBinary } from './build.js';
import { LineProcess } from './line-process.js';
import type { Fingerprint } from './payload.js';

export interface RustNodeOptions {
  /** A TCP listener on loopback. Default true. */
  readonly tcp?: boolean;
  /** Connections it dials per peer. Default 1. */
  readonly lanes?: number;
  /** Path of a Unix socket, preferred to TCP. */
  readonly uds?: string;
  readonly mux?: boolean;
  readonly initialCredit?: number;
  readonly slotByteBudget?: number;
  readonly maxBatchBytes?: number;
  readonly replyLingerMs?: number;
  readonly asyncOpenAck?: boolean;
  readonly flush?: 'auto' | 'manual' | { readonly lingerMs: number };
  readonly prebindTimeoutMs?: number;
  /** Path of a directory of peers: it asks it and enters itself. */
  readonly discovery?: string;
}

export interface RustCall {
  readonly length?: number;
  readonly seed?: number;
  readonly text?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

export interface RustAnswer {
  readonly length: number;
  readonly sum: number;
  /** Of short answers that are UTF-8. */
  readonly text: string | null;
}

/** A message as a Rust handler saw it. */
export interface SeenMessage {
  readonly length: number;
  readonly sum: number;
  readonly headers: Readonly<Record<string, string>> | null;
  readonly sender: bigint;
}

export type ItemKind = 'bytes' | 'token';

export interface RustAnchor {
  readonly anchor: number;
  readonly handle: StreamAnchorHandle;
}

export interface Consumed<I = Fingerprint> {
  /** Fingerprints of byte items, tokens as they are. */
  readonly items: readonly I[];
  /** Soft errors (their text) and `detached`, each with the number of items before it. */
  readonly marks: readonly (readonly [before: number, what: string])[];
  /** `finalized`, `closed`, the text of the error, or null when reading stopped at `max`. */
  readonly end: string | null;
}

export interface ConsumeOptions {
  readonly delayMs?: number;
  readonly delayEvery?: number;
  readonly max?: number;
}

export interface ProduceOptions {
  readonly sizes?: readonly number[];
  readonly tokens?: number;
  readonly seed?: number;
  /** Position of the first item. */
  readonly from?: number;
  readonly flushEvery?: number;
}

export interface Series {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number | { readonly count: number; readonly sum: number };
}

export class RustPeer {
  /** Of the node, set by `start`. */
  info!: PeerInfo;
  private readonly waiters = new Map<string, (() => void)[]>();
  private readonly line: LineProcess;

  private constructor(binary: string) {
    this.line = new LineProcess('the Rust peer', binary, ['peer'], { onEvent: (name) => this.onEvent(name) });
  }

  get exited(): Promise<void> {
    return this.line.exited;
  }

  static async start(options: RustNodeOptions = {}): Promise<RustPeer> {
    const peer = new RustPeer(await peerBinary());
    try {
      peer.info = PeerInfo.fromJSON(await peer.op('start', options));
      return peer;
    } catch (error) {
      await peer.kill();
      throw error;
    }
  }

  get instanceId(): string {
    return this.info.instanceId;
  }

  /** Sends an operation and resolves with its answer. */
  op<T = unknown>(op: string, args: unknown = null): Promise<T> {
    return this.line.ask<T>(op, args);
  }

  /** Resolves at the next event of that name. */
  event(name: string): Promise<void> {
    return new Promise((resolve) => this.waiters.set(name, [...(this.waiters.get(name) ?? []), resolve]));
  }

  /** Ends the process at once, as a crash would. */
  async kill(): Promise<void> {
    this.line.child.kill('SIGKILL');
    await this.exited;
  }

  /** Stops the process where it stands, until `thaw`. */
  freeze(): void {
    this.line.child.kill('SIGSTOP');
  }

  thaw(): void {
    this.line.child.kill('SIGCONT');
  }

  register(info: PeerInfo): Promise<void> {
    return this.op('register', info);
  }

  /** Registers both nodes with each other. */
  async introduce(node: Velo): Promise<void> {
    node.registerPeer(this.info);
    await this.register(node.peerInfo);
  }

  handlersOf(node: Velo): Promise<string[]> {
    return this.op('handlersOf', node.instanceId);
  }

  unary(node: Velo, handler: string, call: RustCall = {}): Promise<RustAnswer> {
    return this.op('unary', { instance: node.instanceId, handler, ...call });
  }

  typed(node: Velo, handler: string, value: unknown): Promise<unknown> {
    return this.op('typed', { instance: node.instanceId, handler, value });
  }

  sync(node: Velo, handler: string, call: RustCall = {}): Promise<void> {
    return this.op('sync', { instance: node.instanceId, handler, ...call });
  }

  send(node: Velo, handler: string, call: RustCall & { readonly count?: number } = {}): Promise<void> {
    return this.op('send', { instance: node.instanceId, handler, ...call });
  }

  /** Messages that `count` and `ordered` handled since the last call. */
  seen(): Promise<{ counted: SeenMessage[]; ordered: SeenMessage[] }> {
    return this.op('seen');
  }

  async anchor(kind: ItemKind = 'bytes', heartbeatMs?: number): Promise<RustAnchor> {
    const made = await this.op<{ anchor: number; handle: unknown }>('anchor', { kind, heartbeatMs });
    return { anchor: made.anchor, handle: StreamAnchorHandle.fromJSON(made.handle) };
  }

  consume<I = Fingerprint>({ anchor }: RustAnchor, options: ConsumeOptions = {}): Promise<Consumed<I>> {
    return this.op('consume', { anchor, ...options });
  }

  cancelAnchor({ anchor }: RustAnchor): Promise<void> {
    return this.op('cancelAnchor', { number: anchor });
  }

  stopAnchor({ anchor }: RustAnchor): Promise<void> {
    return this.op('stopAnchor', { number: anchor });
  }

  dropAnchor({ anchor }: RustAnchor): Promise<void> {
    return this.op('dropAnchor', { number: anchor });
  }

  /** Resolves with the number of the sender. */
  async attach(handle: StreamAnchorHandle, options: { kind?: ItemKind; key?: bigint } = {}): Promise<number> {
    const { sender, transport } = await this.op<{ sender: number; transport: string }>('attach', {
      handle,
      ...options,
    });
    if (transport !== 'messenger-mux-v2') throw new Error(`the attach settled on ${transport}`);
    return sender;
  }

  produce(sender: number, options: ProduceOptions): Promise<number> {
    return this.op('produce', { sender, ...options });
  }

  softError(sender: number, text: string): Promise<void> {
    return this.op('softError', { number: sender, text });
  }

  /** Ends a sender; resolves with how its output left the node. */
  end(sender: number, how: 'finalize' | 'detach' | 'drop'): Promise<'sent' | 'discarded'> {
    return this.op('end', { sender, how });
  }

  cancelled(sender: number): Promise<void> {
    return this.op('cancelled', { number: sender });
  }

  stopped(sender: number): Promise<void> {
    return this.op('stopped', { number: sender });
  }

  flush(): Promise<void> {
    return this.op('flush');
  }

  beginDrain(): Promise<void> {
    return this.op('beginDrain');
  }

  shutdown(timeoutMs: number): Promise<void> {
    return this.op('shutdown', timeoutMs);
  }

  metrics(): Promise<Series[]> {
    return this.op('metrics');
  }

  /** The sum of a counter's or gauge's series that carry these labels. */
  async metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
    let sum = 0;
    for (const series of await this.metrics()) {
      if (series.name !== name || typeof series.value !== 'number') continue;
      if (Object.entries(labels).every(([label, value]) => series.labels[label] === value)) sum += series.value;
    }
    return sum;
  }

  private onEvent(name: string): void {
    const waiting = this.waiters.get(name) ?? [];
    this.waiters.delete(name);
    for (const wake of waiting) wake();
  }
}
