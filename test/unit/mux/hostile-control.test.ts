// Control that no honest peer sends, against the batcher it is about.

import { expect } from 'chai';
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
