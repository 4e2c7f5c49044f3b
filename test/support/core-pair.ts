// Two nodes made of mux machines alone, joined by byte buffers and a virtual clock: each has the batcher and the
// ingress table of one (peer, lane). Nothing moves unless the test says so.

import type { ControlSink } from '../../lib/mux/batcher-types.js';
import { ByteBudget } from '../../lib/mux/byte-budget.js';
import { ByteMeter } from '../../lib/mux/byte-meter.js';
import type { EgressSlot } from '../../lib/mux/egress-slot.js';
import { IngressTable, isForLane } from '../../lib/mux/ingress-table.js';
import type { ByteReservation, Receiver } from '../../lib/mux/ingress-types.js';
import { type MuxConfig, type MuxOptions, resolveMuxConfig } from '../../lib/mux/mux-config.js';
import { MuxMetrics } from '../../lib/mux/mux-metrics.js';
import { PeerBatcher } from '../../lib/mux/peer-batcher.js';
import type { Singleton } from '../../lib/mux/singletons.js';
import { DROPPED_BYTES, FINALIZED_BYTES } from '../../lib/wire/frame.js';
import { FakeOwner, FakePort, FakeReceiver, type FakeReceiverOptions, VirtualClock } from './mux-fakes.js';

/** `Item(x)` frames: the item prefix and `size` bytes (at least 4) that name the item. */
export function itemFrame(value: number, size = 4): Uint8Array {
  const bytes = new Uint8Array(6 + Math.max(4, size));
  bytes.set([0x81, 0xa4, 0x49, 0x74, 0x65, 0x6d]);
  new DataView(bytes.buffer).setUint32(6, value);
  return bytes;
}

/** The value of an item frame, or the name of any other one. */
export function frameText(frame: Uint8Array): string {
  if (frame[1] === 0xa4) return String(new DataView(frame.buffer, frame.byteOffset).getUint32(6));
  return new TextDecoder().decode(frame.subarray(1)).replaceAll(/[^ -~]/g, '');
}

export interface NodeOptions {
  readonly clock?: VirtualClock;
  readonly mux?: MuxOptions;
  readonly lane?: number;
  /** Lanes to the peer. */
  readonly lanes?: number;
  readonly firstEpoch?: number;
  readonly peerBudget?: ByteReservation;
  /** Of both directions. */
  readonly meter?: ByteMeter;
}

/** One side: what it sends goes through `port`, what it receives through `receive`. */
export class CoreNode {
  readonly clock: VirtualClock;
  readonly config: MuxConfig;
  readonly metrics = new MuxMetrics();
  readonly port: FakePort;
  readonly peerBudget: ByteReservation;
  readonly table: IngressTable;
  readonly binds = new Map<string, Receiver>();
  readonly lane: number;
  readonly lanes: number;
  readonly meter: ByteMeter;
  /** Claims asked for, found or not. */
  claims = 0;
  /** What the table is given for our control inbox: a test may listen in. */
  tap: (sink: ControlSink) => ControlSink = (sink) => sink;
  private made: PeerBatcher | undefined;
  private epoch: number;

  constructor(options: NodeOptions = {}) {
    this.clock = options.clock ?? new VirtualClock();
    this.config = resolveMuxConfig(options.mux);
    this.lane = options.lane ?? 0;
    this.lanes = options.lanes ?? 1;
    this.meter = options.meter ?? new ByteMeter();
    this.epoch = (options.firstEpoch ?? 1) - 1;
    this.port = new FakePort(this.clock, () => ++this.epoch);
    this.peerBudget = options.peerBudget ?? new ByteBudget(this.config.peerByteBudget);
    this.table = new IngressTable({
      peerLabel: 'test',
      lane: this.lane,
      config: this.config,
      metrics: this.metrics,
      peerBudget: this.peerBudget,
      meter: this.meter,
      port: {
        now: () => this.clock.now,
        claim: (anchorHi, anchorLo, sessionHi, sessionLo) => this.claim(anchorHi, anchorLo, sessionHi, sessionLo),
        isBound: (sessionHi, sessionLo) => this.isBound(sessionHi, sessionLo),
        control: (create) => this.control(create),
      },
    });
  }

  get hasBatcher(): boolean {
    return this.made !== undefined;
  }

  /** The batcher, made at first use. */
  get batcher(): PeerBatcher {
    if (this.made === undefined) {
      const { lane, lanes, config, port, metrics, meter } = this;
      this.made = new PeerBatcher({ peerLabel: 'test', lane, lanes, config, port, metrics, meter });
    }
    return this.made;
  }

  /** Registers a bind. */
  bind(anchor: bigint, session: bigint, options: FakeReceiverOptions = {}): FakeReceiver {
    const receiver = new FakeReceiver({ limit: this.config.initialCredit, ...options, session });
    this.binds.set(`${anchor}:${session}`, receiver);
    return receiver;
  }

  /** Opens a slot of ours. */
  open(owner: FakeOwner, anchor: bigint, session: bigint, credit = 32, byteBudget = 1_048_576): EgressSlot {
    const [anchorHi, anchorLo] = halves(anchor);
    const [sessionHi, sessionLo] = halves(session);
    const slot = this.batcher.open(owner, anchorHi, anchorLo, sessionHi, sessionLo, credit, byteBudget);
    owner.slot = slot;
    return slot;
  }

  send(slot: EgressSlot, frame: Uint8Array): void {
    this.batcher.accept(slot, frame, 0, frame.length);
  }

  sendItem(slot: EgressSlot, value: number, size = 4): void {
    this.send(slot, itemFrame(value, size));
  }

  finalize(slot: EgressSlot): void {
    this.batcher.terminal(slot, FINALIZED_BYTES);
  }

  drop(slot: EgressSlot): void {
    this.batcher.terminal(slot, DROPPED_BYTES);
  }

  /** The end of a turn: runs whoever asked for it. */
  turn(): void {
    for (const runnable of [...this.port.scheduled]) {
      this.port.scheduled.delete(runnable);
      runnable.run();
    }
  }

  /** Moves time and runs the batcher if its deadline has passed. */
  advance(ms: number): void {
    this.clock.now += ms;
    if (this.made !== undefined && this.made.deadline() <= this.clock.now) this.made.run();
  }

  /** The transport answers the pending batch. */
  admit(ok = true): void {
    const singleton = this.port.resolve(ok);
    if (singleton === undefined) this.batcher.admission(ok);
    else {
      singleton.admission(ok);
      // The port lets go of what its peer will never ask for.
      if (!ok && singleton.staged) this.port.fetch(singleton);
    }
  }

  /** The transport answers everything that waits. */
  admitAll(ok = true): void {
    while (this.port.hasPending) this.admit(ok);
  }

  receive(batch: Uint8Array): void {
    // A copy inside a larger buffer, so that offsets are never zero by luck.
    const padded = new Uint8Array(batch.length + 13);
    padded.set(batch, 7);
    this.receiveAt(this.lane, padded, 7, 7 + batch.length);
  }

  /** A batch at the handler of `lane`, as a router gives it to the table of that lane. */
  receiveAt(lane: number, buffer: Uint8Array, start: number, end: number): void {
    if (isForLane(buffer, start, end, lane, this.metrics)) this.table.handleBatch(buffer, start, end);
  }

  private control(create: boolean): ControlSink | undefined {
    const sink = create ? this.batcher.control : this.made?.control;
    return sink === undefined ? undefined : this.tap(sink);
  }

  private isBound(hi: number, lo: number): boolean {
    const session = `:${(BigInt(hi) << 32n) | BigInt(lo)}`;
    for (const key of this.binds.keys()) if (key.endsWith(session)) return true;
    return false;
  }

  private claim(anchorHi: number, anchorLo: number, sessionHi: number, sessionLo: number): Receiver | undefined {
    this.claims += 1;
    const key = `${(BigInt(anchorHi) << 32n) | BigInt(anchorLo)}:${(BigInt(sessionHi) << 32n) | BigInt(sessionLo)}`;
    const receiver = this.binds.get(key);
    this.binds.delete(key);
    return receiver;
  }
}

function halves(value: bigint): [hi: number, lo: number] {
  return [Number(value >> 32n), Number(value & 0xffff_ffffn)];
}

/** A stream between the two nodes of a pair, both ends in hand. */
export interface PairStream {
  readonly owner: FakeOwner;
  readonly slot: EgressSlot;
  readonly receiver: FakeReceiver;
}

/** A producer and a consumer. Batches wait in `wire` arrays until `deliver`. */
export class CorePair {
  readonly clock = new VirtualClock();
  readonly producer: CoreNode;
  readonly consumer: CoreNode;
  readonly toConsumer: Uint8Array[] = [];
  readonly toProducer: Uint8Array[] = [];
  /** Staged batches of the producer whose handles the consumer has. */
  readonly staged: { readonly batch: Uint8Array; readonly singleton: Singleton }[] = [];
  private nextSession = 1n;

  constructor(
    options: {
      producer?: MuxOptions;
      consumer?: MuxOptions;
      lane?: number;
      lanes?: number;
      peerBudget?: ByteReservation;
    } = {},
  ) {
    const { lane = 0, lanes = 1 } = options;
    this.producer = new CoreNode({ clock: this.clock, lane, lanes, firstEpoch: 1, ...wrap(options.producer) });
    const budget = options.peerBudget === undefined ? {} : { peerBudget: options.peerBudget };
    this.consumer = new CoreNode({ clock: this.clock, lane, firstEpoch: 7, ...wrap(options.consumer), ...budget });
    this.producer.port.onAdmitted = (batch) => this.toConsumer.push(batch);
    this.consumer.port.onAdmitted = (batch) => this.toProducer.push(batch);
    this.producer.port.onStaged = (batch, singleton) => this.staged.push({ batch, singleton });
  }

  /** The consumer pulls one of the staged batches, after it has read what was on the wire: its handle came behind some of that. */
  pull(index = 0): void {
    const [one] = this.staged.splice(index, 1);
    if (one === undefined) return;
    for (const batch of this.toConsumer.splice(0)) this.consumer.receive(batch);
    this.consumer.receive(one.batch);
    this.producer.port.fetch(one.singleton);
    this.producer.batcher.stagingFreed();
  }

  /** Binds at the consumer and opens at the producer on the terms of the bind. */
  stream(options: FakeReceiverOptions = {}): PairStream {
    // Above 2^53 on purpose: a session that loses bits finds no bind.
    const session = 0xfedc_ba98_0000_0000n + this.nextSession++;
    const anchor = 0x8123_4567_89ab_cdefn;
    const receiver = this.consumer.bind(anchor, session, options);
    const owner = new FakeOwner();
    const slot = this.producer.open(owner, anchor, session, receiver.limit, receiver.byteBudget);
    return { owner, slot, receiver };
  }

  /** Delivers everything on the wire, both ways, and runs both nodes, until nothing moves. Time stands still. */
  settle(): void {
    for (let moved = true; moved; ) {
      this.producer.turn();
      this.consumer.turn();
      moved = this.toConsumer.length > 0 || this.toProducer.length > 0 || this.staged.length > 0;
      for (const batch of this.toConsumer.splice(0)) this.consumer.receive(batch);
      for (const batch of this.toProducer.splice(0)) this.producer.receive(batch);
      this.pull();
    }
  }

  /** Lets `ms` pass in steps of one, settling at each. */
  advance(ms: number): void {
    for (let i = 0; i < ms; i++) {
      this.producer.advance(1);
      this.consumer.advance(0);
      this.settle();
    }
  }

  /** The consumer of a stream takes up to `n` frames, and its table hears of it as by a doorbell. */
  take(stream: PairStream, n: number): number {
    const got = stream.receiver.take(n);
    const slot = stream.receiver.slot;
    if (got > 0 && slot !== undefined) this.consumer.table.noteDrained(slot);
    return got;
  }
}

function wrap(mux: MuxOptions | undefined): { mux?: MuxOptions } {
  return mux === undefined ? {} : { mux };
}
