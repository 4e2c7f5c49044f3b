// Which lane a node names to unkeyed senders, while streams open, end, are cancelled, collide and die with their epochs: the counts are
// those of a walk over everything that lives, by the lane that was chosen and not by the lane that batches arrive on.

import { expect } from 'chai';
import fc from 'fast-check';
import type { StreamAnchor, Velo } from '../../lib/index.js';
import { CLOSE_PROTOCOL_ERROR, CLOSE_TERMINAL_SENT, RECORD_CLOSE_SLOT } from '../../lib/wire/batch.js';
import { abortAttach } from '../../lib/wire/control.js';
import { FINALIZED_BYTES, ITEM_PREFIX } from '../../lib/wire/frame.js';
import { StreamCancelHandle } from '../../lib/wire/handle.js';
import { HANDLER_ANCHOR_ABORT_ATTACH } from '../../lib/wire/names.js';
import { nodesOfSuite, range, readAll, streamSuite, take, until } from '../support/nodes.js';
import { dataRecord, openRecord, recordsOf, WirePeer } from '../support/wire-peer.js';

const LANES = 4;
const item = (value: number) => Uint8Array.of(...ITEM_PREFIX, value);

interface Stream {
  readonly anchor: StreamAnchor<number>;
  readonly session: bigint;
  readonly streamId: bigint;
  /** Lane that the node named. */
  readonly chosen: number;
  /** Lane that its batches travel on, and its slot there, once it is open. */
  arrival: number;
  slot: number;
  state: 'bound' | 'open' | 'over';
}

/** A peer of one port, whose batches of every lane reach worker 0, and what lives of its streams. */
class Walk {
  readonly streams: Stream[] = [];
  private readonly epochs = range(0, LANES).map(() => 1n);
  private readonly slots = range(0, LANES).map(() => 0);
  private nextStream = 1n;

  private constructor(
    readonly node: Velo,
    readonly peer: WirePeer,
  ) {}

  static async of(node: Velo): Promise<Walk> {
    const peer = await WirePeer.listen();
    await peer.faces(node).hello();
    return new Walk(node, peer);
  }

  get living(): Stream[] {
    return this.streams.filter(({ state }) => state !== 'over');
  }

  /** Streams that live, by the lane that was chosen for each. */
  loads(): number[] {
    const loads = range(0, LANES).map(() => 0);
    for (const { chosen } of this.living) loads[chosen]! += 1;
    return loads;
  }

  /** Attaches without a key. The lane named must be the least loaded of a walk, the lowest of those. */
  async attach(): Promise<Stream> {
    const loads = this.loads();
    const anchor = this.node.createAnchor<number>();
    const streamId = this.nextStream++;
    const answer = await this.peer.attach(anchor.handle, { sessionId: streamId });
    if (!answer.ok) throw new Error(answer.reason);
    const { lane, routingSessionId: session } = answer.value;
    expect(lane, `with ${loads}`).to.equal(loads.indexOf(Math.min(...loads)));
    const stream: Stream = { anchor, session, streamId, chosen: lane, arrival: 0, slot: 0, state: 'bound' };
    this.streams.push(stream);
    return stream;
  }

  async open(stream: Stream, arrival: number): Promise<void> {
    stream.arrival = arrival;
    stream.slot = this.slots[arrival]!++ << 8;
    stream.state = 'open';
    await this.send(arrival, (batch) => openRecord(batch, stream.slot, stream.anchor.handle.local, stream.session));
  }

  /** The same id with the same bind, and with none: refused, and the slot goes on. */
  async openAgain(stream: Stream): Promise<void> {
    await this.send(stream.arrival, (batch) => {
      openRecord(batch, stream.slot, stream.anchor.handle.local, stream.session);
      openRecord(batch, stream.slot, 1n, 1n);
    });
  }

  async finish(stream: Stream): Promise<void> {
    stream.state = 'over';
    await this.send(stream.arrival, (batch) => {
      dataRecord(batch, stream.slot, 1, FINALIZED_BYTES);
      batch.closeSlot(stream.slot, 2, CLOSE_TERMINAL_SENT);
    });
    expect((await readAll(stream.anchor)).error).to.equal(undefined);
  }

  /** The consumer leaves. Its lane hears before it reads another frame, so the next attach finds the slot closed. */
  cancel(stream: Stream): void {
    stream.state = 'over';
    stream.anchor.controller.cancel();
  }

  async abort(stream: Stream): Promise<void> {
    stream.state = 'over';
    const streamCancelHandle = new StreamCancelHandle(this.peer.workerId, stream.streamId);
    await this.peer.call(
      HANDLER_ANCHOR_ABORT_ATTACH,
      abortAttach.encodeJson({ handle: stream.anchor.handle, streamCancelHandle }),
    );
  }

  /** The first batch of a new epoch on a lane ends every slot that arrived there. */
  async newEpoch(arrival: number): Promise<void> {
    this.epochs[arrival]! += 1n;
    for (const stream of this.streams) if (stream.state === 'open' && stream.arrival === arrival) stream.state = 'over';
    await this.send(arrival, (batch) => batch.creditUpdate(0, 1));
  }

  async end(): Promise<void> {
    for (const stream of this.living) this.cancel(stream);
    await this.peer.close();
  }

  private send(arrival: number, fill: Parameters<WirePeer['batch']>[1]): Promise<void> {
    return this.peer.batch(arrival, fill, { epoch: this.epochs[arrival]! });
  }
}

/** What may happen, by a number; each picks the stream or lane it happens to by another. */
const STEPS = [
  'attach',
  'attach',
  'attach',
  'open',
  'open',
  'openAgain',
  'finish',
  'cancel',
  'abort',
  'newEpoch',
] as const;

async function step(walk: Walk, what: (typeof STEPS)[number], pick: number): Promise<void> {
  const bound = walk.living.filter(({ state }) => state === 'bound');
  const open = walk.living.filter(({ state }) => state === 'open');
  const oneOf = (streams: Stream[]) => streams[pick % streams.length];
  switch (what) {
    case 'attach':
      await walk.attach();
      return;
    case 'newEpoch':
      await walk.newEpoch(pick % LANES);
      return;
    case 'open': {
      const stream = oneOf(bound);
      if (stream !== undefined) await walk.open(stream, Math.floor(pick / 16) % LANES);
      return;
    }
    case 'abort': {
      const stream = oneOf(bound);
      if (stream !== undefined) await walk.abort(stream);
      return;
    }
    case 'cancel': {
      const stream = oneOf(walk.living);
      if (stream !== undefined) walk.cancel(stream);
      return;
    }
    default: {
      const stream = oneOf(open);
      if (stream !== undefined) await walk[what](stream);
    }
  }
}

streamSuite('loads of lanes', (host, nodes) => {
  let walk: Walk;
  afterEach(() => walk.end());

  it('AL-18 a one-lane peer still spreads: what counts is the lane that was named, until the slot closes', async () => {
    walk = await Walk.of(await nodes.make({ host, lanes: LANES }));
    const placed: Stream[] = [];
    for (const _ of range(0, 6)) placed.push(await walk.attach());
    for (const stream of placed) await walk.open(stream, 0);
    await until('all are open', () => walk.node.stats().liveSlots === placed.length);
    expect(walk.loads()).to.deep.equal([2, 2, 1, 1]);
    await walk.openAgain(placed[3]!);
    await until('both openings were refused', () => recordsOf(walk.peer, RECORD_CLOSE_SLOT).length > 0);
    await walk.attach();
    await walk.finish(placed[0]!);
    walk.cancel(placed[4]!);
    for (const _ of range(0, 3)) await walk.attach();
    await walk.newEpoch(0);
    expect(walk.loads(), 'unclaimed binds are left').to.deep.equal([2, 0, 1, 1]);
    for (const _ of range(0, 6)) await walk.attach();
  });

  it('AL-24 a sender that gives up after the answer, and a reader that leaves, free bind and lane at once', async () => {
    walk = await Walk.of(await nodes.make({ host, lanes: LANES }));
    const placed: Stream[] = [];
    for (const _ of range(0, 4)) placed.push(await walk.attach());
    await walk.abort(placed[2]!);
    expect((await walk.attach()).chosen).to.equal(2);
    walk.cancel(placed[1]!);
    expect((await walk.attach()).chosen).to.equal(1);
    const { slot } = placed[2]!;
    await walk.open(placed[2]!, 0);
    await until('it is refused', () => recordsOf(walk.peer, RECORD_CLOSE_SLOT).some((record) => record.slot === slot));
    placed[2]!.state = 'over';
    expect(walk.node.stats().liveSlots).to.equal(0);
  });

  it('AL-18 whatever happens in whatever order, the counts are those of a walk', async () => {
    const node = await nodes.make({ host, lanes: LANES });
    const steps = fc.array(fc.tuple(fc.constantFrom(...STEPS), fc.nat(1_000)), { minLength: 20, maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(steps, async (plan) => {
        walk = await Walk.of(node);
        try {
          for (const [what, pick] of plan) await step(walk, what, pick);
          for (const _ of range(0, 2 * LANES)) await walk.attach();
        } finally {
          await walk.end();
        }
      }),
      { numRuns: 6 },
    );
  });

  it('AL-18 a peer that hangs up keeps its counts, and a node that closes ends everything', async () => {
    const node = await nodes.make({ host, lanes: LANES });
    walk = await Walk.of(node);
    for (const arrival of range(0, 3)) await walk.open(await walk.attach(), arrival);
    await until('they are open', () => node.stats().liveSlots === 3);
    walk.peer.hangUp();
    // Its connections are gone, its streams are not: nobody has said so.
    await walk.attach();
    expect(walk.loads()).to.deep.equal([1, 1, 1, 1]);
    const ended = walk.living.map(({ anchor }) => readAll(anchor));
    await node.close({ timeoutMs: 1_000 });
    for (const { error } of await Promise.all(ended)) expect(error).to.not.equal(undefined);
    expect(node.stats()).to.include({ liveSlots: 0, anchors: 0 });
    for (const stream of walk.streams) stream.state = 'over';
  });
});

describe('slots of a one-lane sender', () => {
  const nodes = nodesOfSuite();

  it('AL-21 indices 4,096 and 65,535 open on lane 0 of a node with sixteen lanes, 65,536 does not', async () => {
    const node = await nodes.make({ host: 'inline', lanes: 16 });
    const peer = await WirePeer.listen();
    try {
      await peer.faces(node).hello();
      const slots = [4_096, 65_535, 65_536].map((index) => index * 256);
      const anchors = slots.map(() => node.createAnchor<number>());
      for (const [i, slot] of slots.entries()) await peer.open(anchors[i]!.handle, slot);
      await peer.batch(0, (batch) => {
        for (const [i, slot] of slots.entries()) dataRecord(batch, slot, 1, item(i + 1));
      });
      expect(await take(anchors[0]!, 1)).to.deep.equal([1]);
      expect(await take(anchors[1]!, 1)).to.deep.equal([2]);
      await until('the third was refused', () => recordsOf(peer, RECORD_CLOSE_SLOT).length === 1);
      const refused = recordsOf(peer, RECORD_CLOSE_SLOT)[0]!;
      expect([refused.slot, refused.closeReason, refused.lane]).to.deep.equal([slots[2], CLOSE_PROTOCOL_ERROR, 0]);
      expect(node.stats().liveSlots).to.equal(2);
      for (const anchor of anchors) anchor.controller.cancel();
    } finally {
      await peer.close();
    }
  });
});
