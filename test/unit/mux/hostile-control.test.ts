// Control that no honest peer sends, against the batcher it is about.

import { expect } from 'chai';
import type { ControlInbox } from '../../../lib/mux/batcher-control.js';
import { MAX_TABLE_SLOTS, REPLY_LIMIT } from '../../../lib/mux/mux-config.js';
import { CLOSE_UNKNOWN_SLOT, LIFECYCLE_CANCEL } from '../../../lib/wire/batch.js';
import { slotId } from '../../../lib/wire/slot-id.js';
import { BatchBuilder } from '../../support/batch-builder.js';
import { CoreNode } from '../../support/core-pair.js';
import { FakeOwner } from '../../support/mux-fakes.js';

const ANCHOR = 5n;

describe('control for a slot whose OpenSlot still waits', () => {
  const endings: [string, string[], (batch: BatchBuilder, id: number) => void][] = [
    ['close', ['opened false', 'closed unknownSlot'], (batch, id) => batch.close(id, 0, CLOSE_UNKNOWN_SLOT)],
    [
      'cancel',
      ['cancelled', 'opened false', 'closed cancelled'],
      (batch, id) => batch.lifecycle(id, 2n, LIFECYCLE_CANCEL),
    ],
  ];
  for (const [what, heard, record] of endings) {
    it(`a ${what} ends it for good: it is never opened, and its sender may end it without harm`, () => {
      const node = new CoreNode();
      node.port.mode = 'pend';
      const first = node.open(new FakeOwner(), ANCHOR, 1n);
      const owner = new FakeOwner();
      const waiting = node.open(owner, ANCHOR, 2n);
      const batch = new BatchBuilder();
      // Nobody told the peer of this slot. The next id is no secret.
      record(batch, slotId(1, 0));
      node.receive(batch.bytes);
      node.turn();
      expect(owner.events).to.deep.equal([...heard, 'retired discarded']);
      node.port.mode = 'admit';
      node.admit();
      node.turn();
      node.send(waiting, Uint8Array.of(1));
      node.finalize(waiting);
      node.finalize(first);
      node.turn();
      const records = node.port.take().flatMap((sent) => sent.records);
      expect(records.filter(({ slot }) => slot === waiting.id)).to.deep.equal([]);
      expect(node.metrics.liveSlots).to.equal(0);
      expect(node.open(new FakeOwner(), ANCHOR, 3n).state).to.equal(1);
    });
  }
});

describe('a peer that reads nothing while streams come and go', () => {
  /** More streams than the limit, over the generations of every index. */
  const STREAMS = REPLY_LIMIT + 100;
  const idOf = (i: number) => slotId(i % MAX_TABLE_SLOTS, Math.floor(i / MAX_TABLE_SLOTS));

  function parked(): CoreNode {
    const node = new CoreNode();
    node.port.mode = 'pend';
    node.open(new FakeOwner(), ANCHOR, 1n);
    expect(node.batcher.parked).to.equal(true);
    return node;
  }

  function waiting(node: CoreNode): number {
    return (node.batcher.control as ControlInbox).size;
  }

  it('cancels owed to it are bounded, the newest stay, and what is dropped is counted', () => {
    const node = parked();
    for (let i = 0; i < STREAMS; i++) node.batcher.control.replyLifecycle(idOf(i), 0, i, LIFECYCLE_CANCEL);
    expect(waiting(node)).to.equal(REPLY_LIMIT);
    expect(node.metrics.controlRefused).to.equal(STREAMS - REPLY_LIMIT);
    node.port.mode = 'admit';
    node.admit();
    node.turn();
    const records = node.port.take().flatMap((batch) => batch.records.filter(({ type }) => type === 'lifecycle'));
    expect(records).to.have.length(REPLY_LIMIT);
    expect(records.at(-1)!.session).to.equal(BigInt(STREAMS - 1));
  });

  it('credit and closes owed to it are bounded: one for each slot a table can hold, and one before it', () => {
    const node = parked();
    const { control } = node.batcher;
    for (let i = 0; i < REPLY_LIMIT; i++) control.replyCredit(idOf(i), 1);
    expect(node.metrics.controlRefused, 'none of what may be live is refused').to.equal(0);
    for (let i = REPLY_LIMIT; i < STREAMS; i++) control.replyClose(idOf(i), CLOSE_UNKNOWN_SLOT);
    expect(waiting(node)).to.equal(REPLY_LIMIT);
    expect(node.metrics.controlRefused).to.equal(STREAMS - REPLY_LIMIT);
  });
});
