// One peer that means harm, and what it does to the machines of one of its lanes: honest traffic that chance has changed, and batches
// that nobody honest would write. Beside it a stream of the same peer on another lane, which must not notice. After every step the
// real ingress must agree with its model, and everything that could grow is looked at.

import { expect } from 'chai';
import { ControlInbox } from '../../lib/mux/batcher-control.js';
import type { ControlSink } from '../../lib/mux/batcher-types.js';
import { ByteBudget } from '../../lib/mux/byte-budget.js';
import { type EgressSlot, SLOT_CLOSED } from '../../lib/mux/egress-slot.js';
import { REJECT_LANE_LIMIT } from '../../lib/mux/mux-config.js';
import { DETACHED_BYTES, DROPPED_BYTES, FINALIZED_BYTES, isTerminalSentinel } from '../../lib/wire/frame.js';
import { slotIndex } from '../../lib/wire/slot-id.js';
import { BatchBuilder } from '../support/batch-builder.js';
import { CoreNode, frameText, itemFrame } from '../support/core-pair.js';
import { decodeBatch, FakeOwner, type FakeReceiver, VirtualClock } from '../support/mux-fakes.js';
import { type IngressCounts, IngressModel, ModelReceiver, NO_COUNTS } from './ingress-model.js';
import { EDGES, mutate } from './mutate.js';
import { type FuzzTarget, Random } from './random.js';

const STEPS_PER_RUN = 400;
const WINDOW = 4;
const SLOT_BYTES = 300;
const PEER_BYTES = 500;
const ANCHOR = 0x8123_4567_89ab_cdefn;
const HEALTHY_LANE = 1;
const MAX_STREAMS = 6;
const MAX_OWN = 4;
const KEPT_BATCHES = 40;
const MAX_U64 = 0xffff_ffff_ffff_ffffn;

const STEPS = {
  honest: 14,
  deliver: 14,
  mutated: 12,
  replayed: 3,
  forged: 14,
  bindOnly: 2,
  refused: 3,
  pressure: 1,
  consumer: 10,
  own: 8,
  transport: 3,
  time: 2,
  epoch: 1,
} as const;

const RECORDS = { data: 8, open: 5, close: 4, credit: 4, lifecycle: 3, heartbeat: 2 } as const;

export const INGRESS_TARGET: FuzzTarget = {
  name: 'ingress',
  run: (seed) => new IngressWorld(seed).run(STEPS_PER_RUN),
};

/** A stream's consumer at the victim, and its double. */
interface Reader {
  readonly session: bigint;
  readonly real: FakeReceiver;
  readonly model: ModelReceiver;
}

interface OwnSlot {
  readonly owner: FakeOwner;
  readonly slot: EgressSlot;
  readonly session: bigint;
  accepted: number;
}

class IngressWorld {
  private readonly random: Random;
  private readonly clock = new VirtualClock();
  private readonly budget = new ByteBudget(PEER_BYTES);
  private readonly victim: CoreNode;
  private readonly model: IngressModel;
  private readonly honest: CoreNode;
  private readonly readers: Reader[] = [];
  private readonly streams: { readonly slot: EgressSlot; sent: number; ended: boolean }[] = [];
  private readonly own: OwnSlot[] = [];
  private readonly queue: Uint8Array[] = [];
  private readonly seen: Uint8Array[] = [];
  private readonly calls: string[] = [];
  private readonly credit = new Map<number, number>();
  private readonly healthy: HealthyStream;
  /** The epoch that the victim knows. */
  private epoch = 1n;
  private nextSession = 0xfedc_ba98_0000_0001n;
  private unallocated = 0;
  private checkedBatches = 0;
  private readonly sentEpoch = { epoch: 0n, seq: -1 };
  private readonly frameSeqs = new Map<number, number>();
  /** Credit that the peer granted to our slots, true or not, and the data records they sent. */
  private readonly granted = new Map<number, number>();
  private readonly spent = new Map<number, number>();

  constructor(seed: number) {
    this.random = new Random(seed);
    const lane = this.random.pick([0, 3]);
    const mux = { initialCredit: WINDOW, slotByteBudget: SLOT_BYTES };
    const { clock, budget } = this;
    this.victim = new CoreNode({ clock, lane, mux, firstEpoch: 5, peerBudget: budget });
    this.honest = new CoreNode({ clock, lane, mux });
    this.model = new IngressModel(lane, new ByteBudget(PEER_BYTES), () => this.victim.hasBatcher);
    this.victim.tap = (sink) => this.listen(sink);
    this.honest.port.onAdmitted = (batch) => this.queue.push(batch);
    this.healthy = new HealthyStream(clock, budget);
  }

  run(steps: number): void {
    for (let i = 0; i < steps; i += 1) {
      this.step();
      this.healthy.step();
      this.check();
    }
    this.leave();
  }

  private step(): void {
    const { random } = this;
    switch (random.weighted(STEPS)) {
      case 'honest':
        this.honestStep();
        return;
      case 'deliver':
        this.feed(this.next(false));
        return;
      case 'mutated':
        this.feed(mutate(random, this.next(true), this.seen));
        return;
      case 'replayed':
        if (this.seen.length > 0) this.feed(random.pick(this.seen));
        return;
      case 'forged':
        this.feed(this.forge());
        return;
      case 'bindOnly':
        this.bind();
        return;
      case 'refused':
        this.refuse();
        return;
      case 'pressure':
        this.victim.meter.over = !this.victim.meter.over;
        this.model.pressed = this.victim.meter.over;
        return;
      case 'consumer':
        this.consumerStep();
        return;
      case 'own':
        this.ownStep();
        return;
      case 'transport':
        this.transportStep();
        return;
      case 'time':
        this.clock.now += random.below(400);
        this.victim.advance(0);
        this.honest.advance(0);
        this.turn();
        return;
      case 'epoch':
        this.epoch = random.oneIn(12) ? MAX_U64 : this.epoch < MAX_U64 ? this.epoch + 1n : MAX_U64;
        return;
    }
  }

  // -- what the peer sends

  private honestStep(): void {
    const { random, honest } = this;
    const live = this.streams.filter(({ slot, ended }) => slot.state !== SLOT_CLOSED && !ended);
    if (live.length < MAX_STREAMS && (live.length === 0 || random.oneIn(3))) {
      const { session, real } = this.bind();
      const slot = honest.open(new FakeOwner(), ANCHOR, session, real.limit, real.byteBudget);
      this.streams.push({ slot, sent: 0, ended: false });
    } else {
      const stream = random.pick(live);
      if (random.oneIn(6)) {
        stream.ended = true;
        if (random.oneIn(3)) honest.batcher.inletClosed(stream.slot);
        else honest.batcher.terminal(stream.slot, random.pick([FINALIZED_BYTES, DETACHED_BYTES, DROPPED_BYTES]));
      } else if (stream.sent - stream.slot.pulledTotal < stream.slot.inletLimit) {
        honest.sendItem(stream.slot, stream.sent, random.pick([4, 4, 40, 130]));
        stream.sent += 1;
      }
    }
    honest.turn();
  }

  private bind(): Reader {
    const { random } = this;
    const session = this.nextSession++;
    const real = this.victim.bind(ANCHOR, session, {
      limit: WINDOW,
      byteBudget: SLOT_BYTES,
      earlyCancel: random.oneIn(20),
      earlyStop: random.oneIn(20),
    });
    const model = new ModelReceiver(real);
    this.model.binds.set(`${ANCHOR}:${session}`, model);
    const reader = { session, real, model };
    this.readers.push(reader);
    return reader;
  }

  /** The next honest batch, stamped with the epoch that the victim knows; one of the past when there is none, or for `any`. */
  private next(any: boolean): Uint8Array {
    const { random, queue, seen } = this;
    const at = random.oneIn(8) && queue.length > 1 ? 1 : 0;
    const [batch] = any && seen.length > 0 && random.oneIn(3) ? [random.pick(seen)] : queue.splice(at, 1);
    if (batch === undefined) return this.forge();
    if (batch.length >= 12) new DataView(batch.buffer, batch.byteOffset).setBigUint64(4, this.epoch);
    return batch;
  }

  /** A batch of records that chance wrote, over ids, numbers and sessions that mean something. */
  private forge(): Uint8Array {
    const { random } = this;
    const epoch = random.oneIn(10) ? random.pick([0n, this.epoch - 1n, this.epoch + 1n, 1n << 53n]) : this.epoch;
    const flags = random.oneIn(20) ? random.below(256) : this.victim.lane;
    const batch = new BatchBuilder({ epoch: epoch < 0n ? 0n : epoch, seq: this.number(), flags });
    for (let left = 1 + random.below(12); left > 0; left -= 1) this.forgeRecord(batch);
    const { bytes } = batch;
    if (epoch > this.epoch) this.epoch = epoch;
    return bytes;
  }

  /** A record that the peer staged is refused; the stream it names may be none of its own. */
  private refuse(): void {
    const { random } = this;
    const epoch = random.oneIn(4) ? random.pick([0n, this.epoch - 1n, this.epoch + 1n]) : this.epoch;
    const reader = this.readers.length > 0 && !random.oneIn(4) ? random.pick(this.readers.slice(-6)) : undefined;
    const slot = reader?.real.slot?.id ?? this.slotId();
    const session = random.oneIn(4) ? this.session() : (reader?.session ?? random.u64());
    this.model.refuseStaged(epoch, slot, session, 'too large');
    this.victim.table.refuseStaged({ epoch, slot, session }, 'too large');
    this.turn();
  }

  private forgeRecord(batch: BatchBuilder): void {
    const { random } = this;
    const id = this.slotId();
    switch (random.weighted(RECORDS)) {
      case 'data':
        batch.data(id, this.frameSeq(id), this.frame());
        return;
      case 'open':
        batch.open(id, random.oneIn(6) ? random.u64() : ANCHOR, this.session(), random.oneIn(3) ? this.number() : 0);
        return;
      case 'close':
        batch.close(id, this.frameSeq(id), random.below(4));
        return;
      case 'credit':
        batch.credit(id, this.number());
        return;
      case 'lifecycle':
        batch.lifecycle(id, this.session(), random.below(2));
        return;
      case 'heartbeat':
        batch.heartbeat(id, this.frameSeq(id));
        return;
    }
  }

  private slotId(): number {
    const { random } = this;
    const known = [
      ...this.readers.map(({ real }) => real.slot?.id),
      ...this.own.map(({ slot }) => slot.id),
      ...this.streams.map(({ slot }) => slot.id),
    ].filter((id) => id !== undefined);
    const way = random.below(6);
    if (way < 3 && known.length > 0) return random.pick(known.slice(-12));
    // Another generation of one of them; a low index; the edges of the table and of the type.
    if (way === 3 && known.length > 0) return (random.pick(known) + random.below(3)) >>> 0;
    if (way === 4) return ((random.below(4) << 8) | random.below(3)) >>> 0;
    return random.pick([0xffff_00, 0x00ff_ff00, 0x0100_0000, 0x0100_00ff, 0xffff_ffff, random.u32()]);
  }

  private frameSeq(id: number): number {
    const next = this.readers.find(({ real }) => real.slot?.live && real.slot.id === id)?.real.slot?.next;
    const way = this.random.below(8);
    if (next === undefined || way === 0) return this.number();
    return Math.max(0, next + [0, 0, 0, 0, 1, 2, -1, 5][way]!) >>> 0;
  }

  private number(): number {
    return this.random.oneIn(4) ? this.random.u32() : this.random.pick(EDGES);
  }

  private session(): bigint {
    const { random } = this;
    const known = [...this.readers, ...this.own].map(({ session }) => session);
    return known.length === 0 || random.oneIn(6) ? random.u64() : random.pick(known.slice(-10));
  }

  private frame(): Uint8Array {
    const { random } = this;
    const way = random.below(8);
    if (way < 4) return itemFrame(random.u32(), random.pick([4, 4, 60, 250, 320]));
    if (way === 4) return random.pick([FINALIZED_BYTES, DETACHED_BYTES, DROPPED_BYTES]);
    return way === 5 ? new Uint8Array(0) : random.bytes(random.below(30));
  }

  private feed(batch: Uint8Array): void {
    const { random } = this;
    this.seen.push(batch.slice());
    if (this.seen.length > KEPT_BATCHES) this.seen.shift();
    this.model.batch(batch);
    this.victim.receive(batch);
    if (batch.length >= 12) {
      const stamped = new DataView(batch.buffer, batch.byteOffset).getBigUint64(4);
      const forUs = (batch[1]! & 0x0f) === this.victim.lane && batch.length >= 16;
      if (forUs && stamped > this.epoch) this.epoch = stamped;
    }
    if (!random.oneIn(4)) this.turn();
  }

  /** Ends the turn of the victim; the peer's honest half hears what is owed to it, sometimes spoilt. */
  private turn(): void {
    const { random, victim, honest } = this;
    victim.turn();
    const batches = victim.port.sent.slice(this.checkedBatches);
    this.checkedBatches = victim.port.sent.length;
    for (const batch of batches) {
      this.checkSent(batch);
      honest.receive(random.oneIn(12) ? mutate(random, batch, this.seen) : batch);
    }
    honest.turn();
  }

  // -- what the victim does

  private consumerStep(): void {
    const { random, victim, model } = this;
    const open = this.readers.filter(({ real }) => real.slot?.live);
    if (random.oneIn(8)) {
      victim.table.sweep();
      model.sweep();
    } else if (random.oneIn(5)) {
      victim.table.visitDrained();
      model.visitDrained();
    } else if (open.length > 0) this.readerStep(random.pick(open));
    this.turn();
  }

  private readerStep({ real, model }: Reader): void {
    const { random, victim } = this;
    const slot = real.slot!;
    const way = random.below(16);
    if (way < 12) {
      const got = real.take(1 + random.below(WINDOW));
      model.took(got);
      if (got === 0) return;
      victim.table.noteDrained(slot);
      this.model.noteDrained(slot.id);
    } else if (way === 12) {
      victim.table.closeSlot(slot);
      this.model.closeSlot(slot.id);
    } else if (way === 13) {
      victim.table.requestStop(slot);
      this.model.requestStop(slot.id);
    } else if (way === 14) {
      victim.table.giveUp(slot);
      this.model.giveUp(slot.id);
    } else if (random.oneIn(4)) real.gone = true;
  }

  private ownStep(): void {
    const { random, victim } = this;
    const live = this.own.filter(({ slot }) => slot.state !== SLOT_CLOSED && slot.inletState === 0);
    if (live.length < MAX_OWN && (live.length === 0 || random.oneIn(3))) {
      const owner = new FakeOwner();
      const session = this.nextSession++;
      const slot = victim.open(owner, ANCHOR, session, WINDOW, SLOT_BYTES);
      this.own.push({ owner, slot, session, accepted: 0 });
    } else {
      this.ownRecord(random.pick(live));
    }
    this.turn();
  }

  private ownRecord(mine: OwnSlot): void {
    const { random, victim } = this;
    const way = random.below(30);
    if (way < 3) victim.finalize(mine.slot);
    else if (way < 6) victim.batcher.inletClosed(mine.slot);
    else if (way < 8) victim.batcher.abandon(mine.slot);
    else if (mine.accepted - mine.slot.pulledTotal < mine.slot.inletLimit) {
      victim.sendItem(mine.slot, mine.accepted, random.pick([4, 4, 200, 70_000]));
      mine.accepted += 1;
    }
  }

  private transportStep(): void {
    const { port, batcher } = this.victim;
    if (port.hasPending) {
      this.victim.admit(!this.random.oneIn(4));
      // One that was refused stands in the list no more.
      this.checkedBatches = Math.min(this.checkedBatches, port.sent.length);
    } else port.mode = this.random.pick(['admit', 'admit', 'pend', 'refuse']);
    if (this.random.oneIn(10)) batcher.epochDeath('health');
    this.turn();
  }

  /** Writes down what the table tells our control inbox, and passes it on. */
  private listen(sink: ControlSink): ControlSink {
    const note = (call: string) => this.calls.push(call);
    const post = (id: number) => {
      const allocated = this.own.reduce((most, { slot }) => Math.max(most, slot.index + 1), 0);
      if (slotIndex(id) >= allocated) this.unallocated += 1;
    };
    return {
      postCredit: (id, delta) => {
        note(`post credit ${id} ${delta}`);
        post(id);
        this.granted.set(id, (this.granted.get(id) ?? 0) + delta);
        sink.postCredit(id, delta);
      },
      postClose: (id, reason) => {
        note(`post close ${id} ${reason}`);
        post(id);
        sink.postClose(id, reason);
      },
      postLifecycle: (id, hi, lo, action) => {
        note(`post lifecycle ${id} ${hi}:${lo} ${action}`);
        post(id);
        sink.postLifecycle(id, hi, lo, action);
      },
      replyCredit: (id, delta) => {
        this.credit.set(id, (this.credit.get(id) ?? 0) + delta);
        sink.replyCredit(id, delta);
      },
      replyClose: (id, hi, lo, reason) => {
        note(`close ${id} ${reason}`);
        sink.replyClose(id, hi, lo, reason);
      },
      replyLifecycle: (id, hi, lo, action) => {
        note(`lifecycle ${id} ${hi}:${lo} ${action}`);
        sink.replyLifecycle(id, hi, lo, action);
      },
      reject: (id, reason) => {
        note(`reject ${id} ${reason}`);
        sink.reject(id, reason);
      },
      forgetReplies: () => {
        note('forget');
        sink.forgetReplies();
      },
    };
  }

  // -- what must hold

  private check(): void {
    const { victim, model } = this;
    const ownLive = this.own.filter(({ slot }) => slot.state !== SLOT_CLOSED).length;
    const expected = { ...model.counts, liveSlots: model.counts.liveSlots + ownLive };
    expect(countsOf(victim), 'counters').to.deep.equal(expected);
    const refused = model.calls.filter((call) => call === 'refused').length;
    expect(this.calls, 'control, closes and refusals').to.deep.equal(model.calls.filter((call) => call !== 'refused'));
    expect(victim.metrics.controlRefused, 'control refused').to.equal(refused + this.unallocated);
    expect([...this.credit].sort(byFirst), 'credit').to.deep.equal([...model.credit].sort(byFirst));
    for (const { session, real, model: double } of this.readers) {
      const frames = real.frames;
      expect(frames.length, `frames of session ${session}`).to.equal(double.frames.length);
      frames.forEach((frame, i) => {
        if (!sameBytes(frame, double.frames[i]!)) expect(frame).to.deep.equal(double.frames[i]);
      });
      expect(real.closedCalls > 0, `session ${session} is over`).to.equal(double.closed);
      expect(real.maxBuffered).to.be.at.most(real.limit + 1);
    }
    this.checkBounds();
  }

  private checkBounds(): void {
    const { victim, budget, readers, own } = this;
    expect(budget.used).to.be.at.most(PEER_BYTES);
    expect(victim.table.liveSlots).to.equal(this.model.counts.liveSlots);
    expect(victim.metrics.heldRecords).to.be.at.most(victim.table.liveSlots * (WINDOW + 1));
    if (victim.hasBatcher) {
      const inbox = victim.batcher.control;
      if (!(inbox instanceof ControlInbox)) throw new Error('a batcher without an inbox');
      expect(inbox.size).to.be.at.most(REJECT_LANE_LIMIT + 2 * readers.length + own.length);
    }
    for (const { slot } of own) {
      expect(slot.inlet.length).to.be.at.most(slot.inletLimit);
      expect(slot.credit).to.be.at.most(0xffff_ffff);
    }
  }

  /** Whatever the victim was told, what it says is in order. */
  private checkSent(bytes: Uint8Array): void {
    const { epoch, seq, records } = decodeBatch(bytes);
    const last = this.sentEpoch;
    if (epoch === last.epoch) expect(seq, 'batch_seq').to.equal(last.seq + 1);
    else {
      expect(epoch > last.epoch, 'epochs rise').to.equal(true);
      expect(seq).to.equal(0);
    }
    last.epoch = epoch;
    last.seq = seq;
    for (const { type, slot, seq: frameSeq, reason, body } of records) {
      if (type === 'open') this.frameSeqs.set(slot, 0);
      const ours = type === 'data' || (type === 'close' && reason! < 2);
      if (!ours) continue;
      expect(frameSeq, `frame_seq of slot ${slot}`).to.equal(this.frameSeqs.get(slot)! + 1);
      this.frameSeqs.set(slot, frameSeq);
      if (type !== 'data' || isTerminalSentinel(body, 0, body.length)) continue;
      this.spent.set(slot, (this.spent.get(slot) ?? 0) + 1);
      expect(this.spent.get(slot), `data of slot ${slot}`).to.be.at.most(WINDOW + (this.granted.get(slot) ?? 0));
    }
  }

  /** The peer is gone: nothing of it may be left. */
  private leave(): void {
    const { victim } = this;
    victim.table.retireAll();
    this.model.retireAll();
    this.check();
    if (victim.port.hasPending) victim.admit(false);
    if (victim.hasBatcher) victim.batcher.shutdown();
    victim.turn();
    const { liveSlots, heldRecords, withheldRecords, stagedRecords } = victim.metrics;
    expect([liveSlots, heldRecords, withheldRecords, stagedRecords], 'gauges').to.deep.equal([0, 0, 0, 0]);
    expect(victim.port.buffersOut, 'buffers').to.equal(0);
    expect(this.budget.used, 'held bytes').to.equal(0);
    expect(victim.meter.bytes, 'bytes in queues of the node').to.equal(0);
    for (const { real } of this.readers) {
      expect(real.closedCalls).to.equal(real.slot === undefined ? 0 : 1);
      expect(real.terminals).to.be.at.most(1);
    }
    for (const { owner } of this.own) {
      for (const event of ['opened', 'closed', 'retired'])
        expect(
          owner.events.filter((text) => text.startsWith(event)),
          event,
        ).to.have.length(1);
    }
    this.healthy.end();
  }
}

/** A stream of the same peer on another lane: the lanes share the byte budget, and nothing else. */
class HealthyStream {
  private readonly producer: CoreNode;
  private readonly consumer: CoreNode;
  private readonly receiver: FakeReceiver;
  private readonly slot: EgressSlot;
  private sent = 0;

  constructor(clock: VirtualClock, peerBudget: ByteBudget) {
    this.producer = new CoreNode({ clock, lane: HEALTHY_LANE });
    this.consumer = new CoreNode({ clock, lane: HEALTHY_LANE, firstEpoch: 9, peerBudget });
    this.receiver = this.consumer.bind(ANCHOR, 1n, { limit: WINDOW });
    this.producer.port.onAdmitted = (batch) => this.consumer.receive(batch);
    this.consumer.port.onAdmitted = (batch) => this.producer.receive(batch);
    this.slot = this.producer.open(new FakeOwner(), ANCHOR, 1n, WINDOW);
  }

  step(): void {
    this.producer.sendItem(this.slot, this.sent);
    this.sent += 1;
    this.producer.turn();
    this.receiver.take(WINDOW);
    this.consumer.table.sweep();
    this.consumer.turn();
    this.consumer.batcher.kick();
    this.producer.turn();
  }

  end(): void {
    this.producer.finalize(this.slot);
    this.producer.turn();
    const texts = this.receiver.frames.map(frameText);
    expect(texts).to.deep.equal([...Array.from({ length: this.sent }, (_, i) => String(i)), 'Finalized']);
  }
}

function countsOf({ metrics }: CoreNode): IngressCounts {
  const names = Object.keys(NO_COUNTS) as (keyof IngressCounts)[];
  return Object.fromEntries(names.map((name) => [name, metrics[name]])) as unknown as IngressCounts;
}

function byFirst([a]: readonly [number, number], [b]: readonly [number, number]): number {
  return a - b;
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}
