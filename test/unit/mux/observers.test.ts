// What the machines tell whoever observes them: refusals, epochs that end, senders that are silent. Each once, with its streams, and
// nothing at all when nothing of the kind happens.

import { expect } from 'chai';
import { ByteBudget } from '../../../lib/mux/byte-budget.js';
import { IngressTable } from '../../../lib/mux/ingress-table.js';
import type { Receiver } from '../../../lib/mux/ingress-types.js';
import { resolveMuxConfig } from '../../../lib/mux/mux-config.js';
import { MuxMetrics } from '../../../lib/mux/mux-metrics.js';
import { DETECTION_MULTIPLIER, Watchdog } from '../../../lib/mux/watchdog.js';
import { FINALIZED_BYTES } from '../../../lib/wire/frame.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode, itemFrame } from '../../support/core-pair.js';
import { FakeOwner, FakeReceiver } from '../../support/mux-fakes.js';

const ANCHOR = 5n;

/** A table that writes down what it tells. */
class ObservedTable {
  readonly told: unknown[] = [];
  readonly receivers: FakeReceiver[] = [];
  readonly table: IngressTable;
  readonly metrics = new MuxMetrics();
  private seq = 0;

  constructor() {
    const config = resolveMuxConfig();
    this.table = new IngressTable({
      peerLabel: 'a peer',
      lane: 2,
      config,
      metrics: this.metrics,
      peerBudget: new ByteBudget(config.peerByteBudget),
      port: {
        now: () => 0,
        claim: (_anchorHi, anchorLo, _sessionHi, sessionLo) => this.claim(anchorLo, sessionLo),
        isBound: () => false,
        control: () => undefined,
        refused: (slot, reason) => this.told.push(['refused', slot, reason]),
        epochEnded: (slots) => this.told.push(['epoch', slots]),
      },
    });
  }

  private claim(anchor: number, session: number): Receiver | undefined {
    if (BigInt(anchor) !== ANCHOR) return undefined;
    const receiver = new FakeReceiver({ limit: 2, session: BigInt(session) });
    this.receivers.push(receiver);
    return receiver;
  }

  receive(fill: (batch: BatchBuilder) => BatchBuilder, epoch = 1n): void {
    const { bytes } = fill(new BatchBuilder({ seq: this.seq++, epoch, flags: 2 }));
    this.table.handleBatch(bytes, 0, bytes.length);
  }
}

describe('observers of the mux', () => {
  it('an ingress table names its peer and lane, and is silent while all goes well', () => {
    const quiet = new ObservedTable();
    expect([quiet.table.peer, quiet.table.lane]).to.deep.equal(['a peer', 2]);
    quiet.receive((batch) => batch.open(slotId(0, 0), ANCHOR, 1n).data(slotId(0, 0), 1, itemFrame(1)));
    quiet.receive((batch) => batch.data(slotId(0, 0), 2, FINALIZED_BYTES).close(slotId(0, 0), 3, 1));
    expect(quiet.told).to.deep.equal([]);
  });

  it('an opening for nobody, an index in use, and a window overspent are refusals', () => {
    const observed = new ObservedTable();
    observed.receive((batch) => batch.open(slotId(4, 0), 99n, 1n));
    observed.receive((batch) => batch.open(slotId(0, 0), ANCHOR, 1n));
    observed.receive((batch) => batch.open(slotId(0, 1), ANCHOR, 2n));
    observed.receive((batch) => {
      for (let i = 1; i <= 3; i += 1) batch.data(slotId(0, 0), i, itemFrame(i));
      return batch;
    });
    expect(observed.told).to.deep.equal([
      ['refused', slotId(4, 0), 'unknownSlot'],
      ['refused', slotId(0, 1), 'protocolError'],
      ['refused', slotId(0, 0), 'protocolError'],
    ]);
    expect(observed.receivers[0]!.slot).to.include({ droppedHere: true, terminalDelivered: true });
  });

  it('a staged record that cannot be had is a refusal of its stream, and of no other', () => {
    const observed = new ObservedTable();
    observed.receive((batch) => batch.open(slotId(0, 0), ANCHOR, 1n).open(slotId(1, 0), ANCHOR, 2n), 7n);
    observed.table.refuseStaged({ epoch: 7n, slot: slotId(0, 0), session: 99n }, 'no room');
    expect(observed.told).to.deep.equal([]);
    observed.table.refuseStaged({ epoch: 7n, slot: slotId(0, 0), session: 1n }, 'no room');
    expect(observed.told).to.deep.equal([['refused', slotId(0, 0), 'stagedRecord']]);
    expect(observed.receivers[0]!.slot).to.include({ live: false, droppedHere: true });
    expect(observed.receivers[1]!.slot).to.include({ live: true, droppedHere: false });
  });

  it('a new epoch of the peer ends the old one, once, with the slots it had', () => {
    const observed = new ObservedTable();
    observed.receive((batch) => batch.open(slotId(0, 0), ANCHOR, 1n).open(slotId(1, 0), ANCHOR, 2n), 3n);
    observed.receive((batch) => batch.open(slotId(0, 0), ANCHOR, 3n), 4n);
    observed.receive((batch) => batch.data(slotId(0, 0), 1, itemFrame(1)), 4n);
    observed.receive((batch) => batch.data(slotId(0, 0), 2, itemFrame(1)), 3n);
    expect(observed.told).to.deep.equal([['epoch', 2]]);
  });

  it('a batcher tells of its epoch’s end with the reason, before its slots are gone', () => {
    const node = new CoreNode();
    const told: unknown[] = [];
    const observe = (reason: string, slots: number) => told.push([reason, slots]);
    Object.assign(node.port, { epochEnded: observe });
    node.open(new FakeOwner(), ANCHOR, 1n);
    node.open(new FakeOwner(), ANCHOR, 2n);
    node.batcher.epochDeath('the peer is dead');
    expect(node.metrics.epochDeaths).to.equal(1);
    const slot = node.open(new FakeOwner(), ANCHOR, 3n);
    node.port.mode = 'refuse';
    node.sendItem(slot, 1);
    node.turn();
    node.advance(1_000);
    expect(told).to.deep.equal([
      ['the peer is dead', 2],
      ['a batch was refused', 1],
    ]);
  });

  it('a watchdog tells of the slots that it gives up, not of those that had their end', () => {
    const silent: number[] = [];
    const node = new CoreNode();
    const dog = new Watchdog(node.metrics, (slot) => silent.push(slot.id));
    const batch = new BatchBuilder({ seq: 0 });
    const receivers = [1n, 2n].map((session, index) => {
      batch.open(slotId(index, 0), ANCHOR, session);
      return node.bind(ANCHOR, session);
    });
    node.receive(batch.data(slotId(1, 0), 1, FINALIZED_BYTES).bytes);
    for (const receiver of receivers) dog.watch(node.table, receiver.slot!, 10, 0);
    // The terminal counts as a sign of life in its own window.
    for (let now = 10; now <= 10 * (DETECTION_MULTIPLIER + 2); now += 10) if (dog.run(now)) dog.decide();
    expect(silent).to.deep.equal([slotId(0, 0)]);
    expect(node.metrics.watchdogFirings).to.equal(1);
  });
});
