// A real node, a foreign one that means harm, and an honest one beside it, over real sockets. What the foreign node says is captured
// traffic and its own, with bytes, headers, messages and records that chance has changed. The honest one streams through all of it.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { StreamAnchorHandle, Velo } from '../../lib/index.js';
import { type BatchEncoder, CLOSE_UNKNOWN_SLOT, RECORD_OPEN_SLOT } from '../../lib/wire/batch.js';
import { u64From, u64High, u64Low } from '../../lib/wire/bytes.js';
import { anchorAttachResponse } from '../../lib/wire/control.js';
import {
  decodeRequestHeader,
  encodeAckHeader,
  encodeResponseHeader,
  RESPONSE_NONE,
  RESPONSE_UNARY,
} from '../../lib/wire/envelope.js';
import { FINALIZED_BYTES, ITEM_PREFIX } from '../../lib/wire/frame.js';
import { encodeHello } from '../../lib/wire/hello.js';
import { parseJson, stringifyJson } from '../../lib/wire/json.js';
import { BATCH_HANDLERS, DRAIN_EXEMPT_HANDLERS, HANDLER_HELLO, HANDLER_LIST } from '../../lib/wire/names.js';
import { PeerInfo } from '../../lib/wire/peer-info.js';
import {
  encodeFrame,
  FRAME_ACK,
  FRAME_MESSAGE,
  FRAME_RESPONSE,
  MAX_FRAME_BODY,
} from '../../lib/wire/transport-frame.js';
import { generateInstanceId } from '../../lib/wire/worker-id.js';
import { loadCaptures } from '../support/captures.js';
import { bytesInUse } from '../support/memory.js';
import { failure, holdsNothing, introduce, range, readAll, until, within } from '../support/nodes.js';
import { accept, dataRecord, openRecord, recordsOf, WirePeer } from '../support/wire-peer.js';
import { spoiltJson } from './control-text.js';
import { EDGES, join, mutate } from './mutate.js';
import { type FuzzTarget, Random } from './random.js';

const STEPS_PER_RUN = 120;
const PATIENCE_MS = 10_000;
/** Code that was compiled, and what the runtime keeps, are in it. */
const MAX_LEFT_BYTES = 8 * 1024 * 1024;
const HONEST_HEARTBEAT_MS = 60_000;
const MAX_ANCHORS = 4;
const MAX_U64 = 0xffff_ffff_ffff_ffffn;
const ITEM = Uint8Array.of(...ITEM_PREFIX, 1);
const NO_BYTES = new Uint8Array(0);

const STEPS = {
  captured: 8,
  batch: 12,
  records: 14,
  control: 14,
  header: 6,
  answer: 4,
  anchor: 3,
  attach: 3,
  stream: 2,
  bytes: 2,
} as const;

export const WIRE_TARGET: FuzzTarget = {
  name: 'wire',
  run: async (seed) => {
    const before = bytesInUse();
    const world = await WireWorld.create(seed);
    try {
      await world.run(STEPS_PER_RUN);
    } finally {
      await world.close();
    }
    expect(bytesInUse() - before, 'bytes that a run leaves').to.be.below(MAX_LEFT_BYTES);
  },
};

interface OpenSlot {
  readonly slot: number;
  readonly anchor: bigint;
  readonly session: bigint;
  next: number;
}

class WireWorld {
  private readonly slots: OpenSlot[] = [];
  private readonly anchors: ReturnType<Velo['createAnchor']>[] = [];
  private readonly sent: Uint8Array[] = [];
  private readonly captured: Uint8Array[];
  private readonly attaching: Promise<unknown>[] = [];
  private dirty: Socket | undefined;
  /** Who says hello with addresses that chance has changed: the peer itself must stay where the node can tell it what it opens. */
  private readonly decoy: PeerInfo;
  private nextSlot = 0;
  private epoch = 1n;

  private constructor(
    private readonly random: Random,
    private readonly node: Velo,
    private readonly honest: Velo,
    private readonly peer: WirePeer,
    private readonly witness: WirePeer,
  ) {
    this.captured = capturedFrames(peer.workerId, node.workerId);
    peer.onAttach = () => this.attachAnswer();
    this.decoy = new PeerInfo(
      generateInstanceId((length) => random.bytes(length)),
      peer.info.address,
    );
  }

  static async create(seed: number): Promise<WireWorld> {
    const random = new Random(seed);
    const host = random.oneIn(3) ? 'piscina' : 'inline';
    // Short enough that a stream which lost records is over before the run is.
    const lanes = random.pick([1, 1, 3]);
    const options = { host, lanes, heartbeatIntervalMs: 100, callTimeoutMs: 1_000 } as const;
    const node = await Velo.create({ ...options, stagedPayloadMax: 100_000, messageQueueBytes: 1024 * 1024 });
    const honest = await Velo.create({ host: 'inline', heartbeatIntervalMs: 100 });
    introduce(node, honest);
    const peer = await WirePeer.listen();
    const witness = await WirePeer.listen();
    await witness.faces(node).hello();
    await peer.faces(node).hello();
    return new WireWorld(random, node, honest, peer, witness);
  }

  async run(steps: number): Promise<void> {
    const { node, honest } = this;
    // A machine that is busy must not look like a sender that is dead.
    const anchor = node.createAnchor<number>({ heartbeatIntervalMs: HONEST_HEARTBEAT_MS });
    const sender = await honest.attachAnchor<number>(anchor.handle);
    const read = readAll(anchor);
    for (let i = 0; i < steps; i += 1) {
      await this.step();
      await within(PATIENCE_MS, sender.send(i));
      if (i % 20 === 19) await this.expectServed();
    }
    await sender.finalize();
    expect(await within(PATIENCE_MS, read), 'the honest stream').to.deep.equal({
      items: range(0, steps),
      error: undefined,
    });
    await this.leave();
  }

  async close(): Promise<void> {
    await Promise.all([this.node.close({ timeoutMs: 500 }), this.honest.close({ timeoutMs: 500 })]);
    await Promise.all([this.peer.close(), this.witness.close()]);
  }

  private async step(): Promise<void> {
    const { random } = this;
    switch (random.weighted(STEPS)) {
      case 'captured':
        await this.spill(mutate(random, random.pick(this.captured), this.captured));
        return;
      case 'batch':
        await this.honestBatch();
        return;
      case 'records':
        await this.records();
        return;
      case 'control':
        await this.control();
        return;
      case 'header':
        await this.header();
        return;
      case 'answer':
        await this.answer();
        return;
      case 'anchor':
        await this.openAnchor();
        return;
      case 'attach':
        this.attach();
        return;
      case 'stream':
        await this.replay();
        return;
      case 'bytes':
        await this.spill(random.bytes(random.below(200)));
        return;
    }
  }

  // -- what the peer says

  /** A whole frame, sometimes in two pieces. */
  private async say(frame: Uint8Array): Promise<void> {
    const { random, peer } = this;
    this.sent.push(frame);
    const cut = random.oneIn(4) ? random.below(frame.length + 1) : frame.length;
    await peer.write(frame.slice(0, cut));
    await peer.write(frame.slice(cut));
  }

  /** Bytes that may be no frame, on a socket of their own: what follows them there may be taken for the rest of one. */
  private async spill(bytes: Uint8Array): Promise<void> {
    const { random, peer } = this;
    if (this.dirty === undefined || this.dirty.destroyed || !this.dirty.writable) {
      this.dirty = connect({ host: '127.0.0.1', port: peer.nodePorts[0]! }).on('error', () => {});
      this.dirty.resume();
      await once(this.dirty, 'connect');
    }
    this.dirty.write(bytes);
    const way = random.below(6);
    if (way === 0) this.dirty.end();
    else if (way === 1) this.dirty.destroy();
  }

  private async replay(): Promise<void> {
    if (this.sent.length > 0) await this.spill(this.random.pick(this.sent));
  }

  /** Data for slots that are open, in order; sometimes spoilt. */
  private async honestBatch(): Promise<void> {
    const { random } = this;
    const fill = (batch: BatchEncoder) => {
      for (let left = 1 + random.below(4); left > 0 && this.slots.length > 0; left -= 1) {
        const open = random.pick(this.slots);
        dataRecord(batch, open.slot, open.next, random.oneIn(15) ? FINALIZED_BYTES : ITEM);
        open.next += 1;
      }
    };
    const spoil = random.oneIn(2)
      ? (bytes: Uint8Array) => mutate(random, bytes, this.sent)
      : (bytes: Uint8Array) => bytes;
    await this.peer.batch(0, fill, { epoch: this.epoch, spoil });
  }

  /** Records that nobody honest writes. */
  private async records(): Promise<void> {
    const { random } = this;
    const number = () => (random.oneIn(3) ? random.u32() : random.pick(EDGES));
    const id = () =>
      this.slots.length > 0 && !random.oneIn(3)
        ? random.pick(this.slots).slot
        : random.pick([0, 0x100, 0xff_ff00, 0x100_0000, 0xffff_ffff]);
    const session = () => (this.slots.length > 0 && random.oneIn(2) ? random.pick(this.slots).session : random.u64());
    if (random.oneIn(15)) this.epoch += BigInt(random.below(3));
    const fill = (batch: BatchEncoder) => {
      for (let left = 1 + random.below(30); left > 0; left -= 1) {
        const way = random.below(6);
        if (way === 0) dataRecord(batch, id(), number(), random.bytes(random.below(60)));
        else if (way === 1) openRecord(batch, id(), this.slots[0]?.anchor ?? 1n, session());
        else if (way === 2) batch.closeSlot(id(), number(), random.below(4));
        else if (way === 3) batch.creditUpdate(id(), number());
        else if (way === 4) batch.slotHeartbeat(id(), number());
        else batch.lifecycle(id(), u64High(session()), u64Low(session()), random.below(2));
      }
    };
    const lane = random.oneIn(10) ? random.below(16) : 0;
    const headerLane = random.oneIn(10) ? random.below(16) : lane;
    const epoch = random.oneIn(8) ? random.pick([0n, 1n, this.epoch + 1n]) : this.epoch;
    await this.peer.batch(lane, fill, { epoch, headerLane, seq: number() });
  }

  /** A request for a handler of the system, with a payload that is nearly right. */
  private async control(): Promise<void> {
    const { random } = this;
    const handler = random.pick([
      ...DRAIN_EXEMPT_HANDLERS.slice(BATCH_HANDLERS.length),
      '_anchor_attach',
      '_anchor_attach',
      HANDLER_HELLO,
      HANDLER_LIST,
      '_rv_metadata',
      '_rv_ref',
      'nobody',
    ]);
    const payload = spoiltJson(random, this.message(handler));
    // Names of its own for calls, or the answers would be taken for those of others.
    const slot = 30_000 + random.below(30_000);
    await this.say(
      this.peer.request(
        handler,
        payload,
        random.pick([RESPONSE_NONE, RESPONSE_UNARY, 1, 2, 3, 255]),
        slot,
        this.headers(),
      ),
    );
  }

  private message(handler: string): Record<string, unknown> {
    const { random, node, peer } = this;
    const anchor =
      this.anchors.length > 0 ? random.pick(this.anchors).handle : StreamAnchorHandle.pack(node.workerId, 5n, 'spsc');
    const handle = { hi: anchor.worker, lo: anchor.local };
    const cancel = { hi: peer.workerId, lo: random.u64() };
    if (handler === HANDLER_HELLO) return parseJson(encodeHello(this.decoy)) as Record<string, unknown>;
    if (handler === '_stream_cancel' || handler === '_stream_stop')
      return { sender_stream_id: random.oneIn(2) ? random.u64() : BigInt(random.below(3)) };
    return {
      handle,
      session_id: random.u64(),
      stream_cancel_handle: cancel,
      supported_transport_keys: ['messenger-mux-v2'],
      lane_key: random.u64(),
      sender_id: random.below(5),
    };
  }

  private headers(): Record<string, string> | undefined {
    const { random } = this;
    if (!random.oneIn(3)) return undefined;
    const mine = (BigInt(this.peer.workerId) << 64n) | BigInt(random.below(5));
    const values = [
      '',
      '0',
      String(mine),
      '9'.repeat(39),
      '-1',
      '1e3',
      '1:2',
      '1:2:3',
      `${random.u64()}:${random.u32()}:${random.u64()}`,
      'x'.repeat(1_000),
      ' 1',
      '1\n',
    ];
    const names = ['_rv', '_mux_slot', 'traceparent', '', 'x'.repeat(200)];
    return Object.fromEntries(
      Array.from({ length: 1 + random.below(3) }, () => [random.pick(names), random.pick(values)]),
    );
  }

  /** An envelope that is nearly one, before a payload that may be a batch. */
  private async header(): Promise<void> {
    const { random, peer } = this;
    const handler = random.pick([...BATCH_HANDLERS.slice(0, 3), '_stream_cancel', '_rv_acquire', 'nobody']);
    const good = peer.request(handler, random.bytes(random.below(40)), RESPONSE_NONE, 0, this.headers());
    const body = mutate(random, good.slice(11), this.sent);
    const headerLength = Math.min(
      body.length,
      random.oneIn(3) ? random.below(body.length + 1) : good[5]! * 256 + good[6]!,
    );
    await this.say(encodeFrame(FRAME_MESSAGE, body.subarray(0, headerLength), body.subarray(headerLength)));
  }

  /** Answers to calls, guessed: of the node's own, and of nobody's. */
  private async answer(): Promise<void> {
    const { random, node } = this;
    const workerId = random.oneIn(5) ? random.u64() : node.workerId;
    const id = {
      workerHi: u64High(workerId),
      workerLo: u64Low(workerId),
      slot: random.oneIn(3) ? random.below(65_536) : random.below(4),
      generation: random.oneIn(3) ? random.u32() * 65_536 : random.below(8),
    };
    const payload = random.bytes(random.below(50));
    const frame = random.oneIn(2)
      ? encodeFrame(FRAME_RESPONSE, encodeResponseHeader(id, random.oneIn(2)), payload)
      : encodeFrame(FRAME_ACK, encodeAckHeader(id, random.oneIn(2), random.oneIn(2)), payload);
    if (random.oneIn(3)) await this.spill(mutate(random, frame));
    else await this.say(frame);
  }

  /** A bind that the peer claims as it should. Its anchor is left unread. */
  private async openAnchor(): Promise<void> {
    const { random, node, peer } = this;
    if (this.anchors.length >= MAX_ANCHORS) {
      const [anchor] = this.anchors.splice(random.below(MAX_ANCHORS), 1);
      anchor!.controller.cancel();
      return;
    }
    const anchor = node.createAnchor();
    this.anchors.push(anchor);
    const answer = await within(PATIENCE_MS, peer.attach(anchor.handle));
    if (!answer.ok) throw new Error(answer.reason);
    const session = answer.value.routingSessionId;
    const slot = this.nextSlot;
    this.nextSlot = (this.nextSlot + 0x100) >>> 0;
    await peer.batch(0, (batch) => openRecord(batch, slot, anchor.handle.local, session), { epoch: this.epoch });
    this.slots.push({ slot, anchor: anchor.handle.local, session, next: 1 });
    if (this.slots.length > 8) this.slots.shift();
  }

  /** The node attaches to the peer, whose answers are no better. */
  private attach(): void {
    const { random, node, peer } = this;
    const stream = async () => {
      const sender = await node.attachAnchor<number>(
        StreamAnchorHandle.pack(peer.workerId, BigInt(1 + random.below(5)), 'spsc'),
      );
      // The peer may have closed it already: then a send fails, and its application ends it all the same.
      try {
        for (let i = 0; i < 5 && sender.trySend(i); i += 1);
      } finally {
        await sender.close();
      }
    };
    // Whatever comes of it has a code.
    this.attaching.push(stream().catch((error: unknown) => failureOf(error)));
  }

  private attachAnswer() {
    const { random } = this;
    if (random.oneIn(8)) return undefined;
    const number = () => random.pick(EDGES);
    const good = anchorAttachResponse.encodeJson(
      accept({
        routingSessionId: random.u64(),
        initialCredit: number(),
        slotByteBudget: number(),
        heartbeatIntervalMs: number(),
      }),
    );
    return random.oneIn(2) ? good : spoiltJson(random, parseJson(good) as Record<string, unknown>);
  }

  // -- what must hold

  /** The node answers somebody who means well. */
  private async expectServed(): Promise<void> {
    const { ok } = await within(PATIENCE_MS, this.witness.call(HANDLER_LIST));
    expect(ok, 'the witness is answered').to.equal(true);
    const { peers } = this.node.stats();
    // A hello whose bytes were changed may have brought others in, but one each at most.
    expect(peers).to.be.at.most(3 + STEPS_PER_RUN);
  }

  /** What the node opened at the peer ends with a close each, in an epoch above every other. */
  private async closeSenders(): Promise<void> {
    const { node, peer } = this;
    let closed = 0;
    await until('the node holds no sender', () => {
      const opened = recordsOf(peer, RECORD_OPEN_SLOT);
      if (opened.length > closed)
        for (const lane of new Set(opened.map((record) => record.lane))) {
          const slots = opened.filter((record) => record.lane === lane).map(({ slot }) => slot);
          const close = (batch: BatchEncoder) => {
            for (const slot of slots) batch.closeSlot(slot, 0, CLOSE_UNKNOWN_SLOT);
          };
          void peer.batch(lane, close, { epoch: MAX_U64 });
        }
      closed = opened.length;
      return node.stats().senders === 0;
    }).catch(async (error: unknown) => {
      const opened = recordsOf(peer, RECORD_OPEN_SLOT).map(({ lane, slot }) => [lane, slot]);
      throw new Error(`${String(error)}: ${stringifyJson([node.stats(), opened, await node.streams()])}`);
    });
  }

  /** The peer is gone, and so is everything it had here. */
  private async leave(): Promise<void> {
    const { node, peer } = this;
    await within(PATIENCE_MS, Promise.all(this.attaching));
    await this.closeSenders();
    peer.answers = false;
    this.dirty?.destroy();
    await peer.close();
    for (const anchor of this.anchors) anchor.controller.cancel();
    await until('the node holds nothing of the peer', () => holdsNothing(node)).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${JSON.stringify(node.stats())}`);
    });
    // No frame made its handler throw: what closed a connection was its framing.
    expect(node.stats()).to.include({ handlerErrors: 0, readerStalls: 0, stagedRecords: 0 });
    await this.expectServed();
  }
}

/** What an attach may come to: a code, not a crash. */
async function failureOf(error: unknown): Promise<void> {
  await failure(
    [
      'ERR_ATTACH_REFUSED',
      'ERR_UNSUPPORTED_TRANSPORT',
      'ERR_NO_WINDOW',
      'ERR_TIMEOUT',
      'ERR_CHANNEL_CLOSED',
      'ERR_BAD_JSON',
      'ERR_BAD_CONTROL_MESSAGE',
      'ERR_CONNECT_FAILED',
      'ERR_CONNECTION_CLOSED',
      'ERR_UNKNOWN_HANDLER',
      'ERR_HANDLER_FAILED',
      'ERR_PEER_SHUTTING_DOWN',
      'ERR_UNKNOWN_PEER',
      'ERR_LIMIT',
      'ERR_CLOSED',
    ],
    Promise.reject(error),
  );
}

/** Every captured frame, said by the peer to the node: the worker ids of the two sides are theirs. */
function capturedFrames(from: bigint, to: bigint): Uint8Array[] {
  return loadCaptures().flatMap(({ frames }) => {
    const ids = new Map<string, bigint>();
    for (const { from: side, bytes } of frames) {
      if (bytes[2] !== FRAME_MESSAGE || ids.has(side)) continue;
      const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(3);
      const { id } = decodeRequestHeader(bytes, 11, length);
      ids.set(side, u64From(id.workerHi, id.workerLo));
    }
    return frames
      .filter(({ bytes }) => bytes.length < MAX_FRAME_BODY / 64)
      .map(({ from: side, bytes }) => {
        const others = [...ids].filter(([name]) => name !== side).map(([, id]) => id);
        const own = ids.get(side);
        const renamed = own === undefined ? bytes : renameWorker(bytes, own, from);
        return others.reduce((frame, other) => renameWorker(frame, other, to), renamed);
      });
  });
}

function renameWorker(bytes: Uint8Array, old: bigint, renamed: bigint): Uint8Array {
  const [find, put] = [old, renamed].map((id) => {
    const text = Buffer.alloc(8);
    text.writeBigUInt64BE(id);
    return text;
  }) as [Buffer, Buffer];
  const at = Buffer.from(bytes).indexOf(find);
  return at < 0 ? bytes : join(bytes.subarray(0, at), put, bytes.subarray(at + 8), NO_BYTES);
}
