// The care for batchers: peers are asked while they have slots, idle batchers are let go, and nothing that is posted meanwhile is lost.

import { expect } from 'chai';
import { BatcherCare, type CaredPeer, HEALTH_PERIOD_MS } from '../../../lib/lanes/batcher-care.js';
import type { Endpoint } from '../../../lib/lanes/endpoint.js';
import { resolveMuxConfig } from '../../../lib/mux/mux-config.js';
import { MuxMetrics } from '../../../lib/mux/mux-metrics.js';
import { PeerBatcher } from '../../../lib/mux/peer-batcher.js';
import { RECENT_CANCEL_MS } from '../../../lib/mux/recent-cancels.js';
import { LIFECYCLE_CANCEL } from '../../../lib/wire/batch.js';
import { FakeOwner, FakePort, VirtualClock } from '../../support/mux-fakes.js';

const SWEEP_MS = 200;
const TICKS_TO_LIVE = 300;
const LANE = 3;

/** One peer and the batcher that is found for it, as a peer link keeps it. */
class Peer implements CaredPeer {
  /** How often its staged batches were let go of. */
  dropped = 0;
  readonly label = 'peer';
  connected = false;
  slots = 0;
  asked = 0;
  current: PeerBatcher | undefined;
  readonly forgotten: { readonly closed: boolean }[] = [];

  constructor(private readonly make: () => PeerBatcher) {}

  batcher(): PeerBatcher {
    this.current ??= this.make();
    return this.current;
  }

  isConnected(lane: number): boolean {
    expect(lane).to.equal(LANE);
    return this.connected;
  }

  endpoint(): Endpoint {
    return { host: 'nowhere', port: 1 };
  }

  dropStaged(): void {
    this.dropped += 1;
  }

  ingressSlots(): number {
    this.asked += 1;
    return this.slots;
  }

  forgetBatcher(batcher: PeerBatcher): void {
    this.forgotten.push({ closed: batcher.closed });
    if (this.current === batcher) this.current = undefined;
  }
}

class Lane {
  readonly metrics = new MuxMetrics();
  readonly clock = new VirtualClock();
  private epoch = 0;
  readonly port = new FakePort(this.clock, () => ++this.epoch);
  readonly care: BatcherCare;
  readonly peer: Peer;
  readonly probes: ((alive: boolean) => void)[] = [];

  constructor(readonly config = resolveMuxConfig()) {
    this.care = new BatcherCare(this, () => new Promise((resolve) => this.probes.push(resolve)));
    this.peer = new Peer(() => {
      const { config, port, metrics } = this;
      const batcher = new PeerBatcher({ peerLabel: 'peer', lane: LANE, config, port, metrics });
      this.care.made(batcher, this.peer);
      return batcher;
    });
  }

  now(): number {
    return this.clock.now;
  }

  guard(turn: () => void): void {
    turn();
  }

  endTurn(): void {
    for (const runnable of [...this.port.scheduled]) {
      this.port.scheduled.delete(runnable);
      runnable.run();
    }
  }

  open(): FakeOwner {
    const owner = new FakeOwner();
    const batcher = this.peer.batcher();
    owner.slot = batcher.open(owner, 0, 1, 0, 2, 8, 0);
    this.care.opened(batcher);
    return owner;
  }

  pass(ms: number): void {
    this.clock.now += ms;
    if (this.care.deadline() <= this.clock.now) this.care.run(this.clock.now);
  }

  sweeps(count: number): void {
    for (let i = 0; i < count; i += 1) {
      this.clock.now += SWEEP_MS;
      this.care.evictIdle();
    }
  }

  async answer(alive: boolean): Promise<void> {
    this.probes.shift()!(alive);
    await Promise.resolve();
  }
}

describe('the health of peers', () => {
  let lane: Lane;
  beforeEach(() => {
    lane = new Lane();
  });

  it('AK-09 a peer is asked every 5 s while the batcher has live slots, and not at all without one', async () => {
    lane.peer.batcher().control.replyCredit(1, 2);
    lane.endTurn();
    expect(lane.care.deadline(), 'a node that only receives').to.equal(Number.POSITIVE_INFINITY);
    const owner = lane.open();
    lane.open();
    expect(lane.care.deadline()).to.equal(HEALTH_PERIOD_MS);
    lane.pass(HEALTH_PERIOD_MS - 1);
    expect(lane.probes).to.have.length(0);
    lane.pass(1);
    expect([lane.probes.length, lane.metrics.wakesLinger]).to.deep.equal([1, 1]);
    await lane.answer(true);
    lane.pass(HEALTH_PERIOD_MS);
    expect(lane.probes).to.have.length(1);
    await lane.answer(true);
    expect([owner.count('closed epochDeath'), lane.metrics.epochDeaths]).to.deep.equal([0, 0]);
    for (let i = 0; i < 2; i += 1) lane.peer.batcher().epochDeath('test');
    lane.pass(HEALTH_PERIOD_MS);
    expect([lane.probes.length, lane.care.deadline()]).to.deep.equal([0, Number.POSITIVE_INFINITY]);
    lane.open();
    expect(lane.care.deadline(), 'asked again with the next slot').to.equal(lane.now() + HEALTH_PERIOD_MS);
  });

  it('AK-09 a peer that does not answer ends the epoch: idle senders hear of it too', async () => {
    const owners = [lane.open(), lane.open(), lane.open()];
    lane.pass(HEALTH_PERIOD_MS);
    await lane.answer(false);
    for (const owner of owners) expect(owner.events.slice(1)).to.deep.equal(['closed epochDeath', 'retired discarded']);
    expect([lane.metrics.epochDeaths, lane.peer.batcher().liveSlots, lane.peer.batcher().epoch]).to.deep.equal([
      1, 0, 2,
    ]);
    expect(lane.peer.dropped, 'what lay staged for it is let go of').to.equal(1);
  });

  it('AK-09 a connection that stands is proof, also one that came while the peer was asked', async () => {
    const owner = lane.open();
    lane.peer.connected = true;
    lane.pass(HEALTH_PERIOD_MS);
    expect(lane.probes).to.have.length(0);
    lane.peer.connected = false;
    lane.pass(HEALTH_PERIOD_MS);
    lane.peer.connected = true;
    await lane.answer(false);
    expect(owner.count('closed epochDeath')).to.equal(0);
  });

  it('a peer is asked one question at a time', async () => {
    lane.open();
    for (let i = 0; i < 3; i += 1) lane.pass(HEALTH_PERIOD_MS);
    expect(lane.probes).to.have.length(1);
    await lane.answer(true);
    lane.pass(HEALTH_PERIOD_MS);
    expect(lane.probes).to.have.length(1);
  });
});

describe('idle batchers', () => {
  let lane: Lane;
  beforeEach(() => {
    lane = new Lane();
  });

  it('AK-15 a batcher that was idle for 60 s of sweeps is let go, and an idle node looks at nothing any more', () => {
    const owner = lane.open();
    lane.peer.batcher().terminal(owner.slot!, new Uint8Array([0x81]));
    lane.endTurn();
    const first = lane.peer.batcher();
    expect(first.liveSlots).to.equal(0);
    lane.sweeps(TICKS_TO_LIVE - 1);
    expect(lane.peer.current).to.equal(first);
    lane.sweeps(1);
    expect([lane.peer.current, first.closed, lane.care.batchers.length]).to.deep.equal([undefined, true, 0]);
    const { asked } = lane.peer;
    const reads = lane.port.clockReads;
    lane.sweeps(1_000);
    expect([lane.peer.asked, lane.port.clockReads]).to.deep.equal([asked, reads]);
    expect(lane.metrics.epochDeaths).to.equal(0);
  });

  it('a cancel that may have to be said again outlives any idle time: a lost connection still finds it', () => {
    lane = new Lane(resolveMuxConfig({ batcherIdleTtlMs: 1_000 }));
    const batcher = lane.peer.batcher();
    batcher.control.replyLifecycle(0x100, 0, 7, LIFECYCLE_CANCEL);
    lane.endTurn();
    expect(lane.port.take().flatMap(({ records }) => records.map(({ type }) => type))).to.deep.equal(['lifecycle']);
    lane.sweeps(RECENT_CANCEL_MS / SWEEP_MS);
    expect(lane.peer.current).to.equal(batcher);
    batcher.repeatCancels();
    lane.endTurn();
    expect(lane.port.take()[0]!.records).to.have.length(1);
    lane.sweeps(RECENT_CANCEL_MS / SWEEP_MS + 1);
    expect([lane.peer.current, batcher.closed]).to.deep.equal([undefined, true]);
  });

  it('AK-15 whatever it does starts its time anew: a record, a reply, a slot of its own or of the peer', () => {
    const owner = lane.open();
    const batcher = lane.peer.batcher();
    lane.sweeps(2 * TICKS_TO_LIVE);
    expect(lane.peer.current, 'a live slot').to.equal(batcher);
    batcher.terminal(owner.slot!, new Uint8Array([0x81]));
    lane.endTurn();
    for (let i = 0; i < 3; i += 1) {
      lane.sweeps(TICKS_TO_LIVE - 1);
      batcher.control.replyCredit(1, 1);
      lane.endTurn();
      lane.clock.now += 10;
      batcher.run();
    }
    expect(lane.peer.current, 'it wrote replies between two sweeps').to.equal(batcher);
    lane.peer.slots = 1;
    lane.sweeps(2 * TICKS_TO_LIVE);
    expect(lane.peer.current, 'the peer has a slot here').to.equal(batcher);
    lane.peer.slots = 0;
    lane.sweeps(1);
    expect(lane.peer.current).to.equal(undefined);
  });

  it('AK-14 a batcher is not found any more before it refuses: 64 replies and opens around it all go, in ever higher epochs', () => {
    let epoch = 0;
    for (let attempt = 0; attempt < 64; attempt += 1) {
      const old = lane.peer.batcher();
      lane.sweeps(attempt % 2 === 0 ? TICKS_TO_LIVE : TICKS_TO_LIVE - 1);
      lane.port.take();
      lane.peer.batcher().control.replyCredit(attempt, 7);
      const owner = lane.open();
      lane.endTurn();
      lane.clock.now += 10;
      lane.peer.batcher().run();
      expect(owner.events).to.deep.equal(['opened true']);
      const batches = lane.port.take();
      expect(batches.flatMap(({ records }) => records.map(({ type }) => type)).sort()).to.deep.equal([
        'credit',
        'open',
      ]);
      for (const batch of batches) expect(Number(batch.epoch)).to.equal(lane.peer.batcher().epoch);
      if (attempt % 2 === 0) {
        expect(lane.peer.batcher()).to.not.equal(old);
        expect(lane.peer.batcher().epoch).to.be.greaterThan(epoch);
      } else expect(lane.peer.batcher()).to.equal(old);
      ({ epoch } = lane.peer.batcher());
      lane.peer.batcher().terminal(owner.slot!, new Uint8Array([0x81]));
      lane.endTurn();
      if (attempt % 2 === 1) lane.sweeps(TICKS_TO_LIVE);
    }
    expect(
      lane.peer.forgotten.every(({ closed }) => !closed),
      'it was open when it was forgotten',
    ).to.equal(true);
    expect(lane.peer.forgotten.length).to.be.greaterThan(32);
    expect(lane.care.batchers.length).to.be.lessThan(2);
  });
});
