// Why records of a peer reach no stream: each reason provoked a number of times of its own, and read back from a scrape.

import { expect } from 'chai';
import { Registry } from 'prom-client';
import { registerMetrics } from '../../lib/metrics/register.js';
import { CLOSE_TERMINAL_SENT } from '../../lib/wire/batch.js';
import { FINALIZED_BYTES, ITEM_PREFIX } from '../../lib/wire/frame.js';
import { range, readAll, streamSuite, take, until } from '../support/nodes.js';
import { Scrape } from '../support/scrape.js';
import { dataRecord, openRecord, WirePeer } from '../support/wire-peer.js';

const SLOT = 0x100;
const item = (value: number) => Uint8Array.of(...ITEM_PREFIX, value);

streamSuite('records that reach no stream', (host, nodes) => {
  it('AV-08 every reason has a count of its own, and a record is counted once', async () => {
    const peer = await WirePeer.listen();
    try {
      const node = await nodes.make({ host });
      const registry = new Registry();
      registerMetrics(node, registry);
      await peer.faces(node).hello();
      const anchors = range(0, 2).map(() => node.createAnchor<number>());
      const [anchor, other] = anchors as [(typeof anchors)[0], (typeof anchors)[0]];
      await peer.open(anchor.handle, SLOT, { epoch: 2n });
      const records = (slot: number, frameSeqs: readonly number[], options = {}) =>
        peer.batch(
          0,
          (batch) => {
            for (const seq of frameSeqs) dataRecord(batch, slot, seq, item(seq));
          },
          { epoch: 2n, ...options },
        );
      const opens = (slots: readonly number[]) =>
        peer.batch(
          0,
          (batch) => {
            for (const slot of slots) openRecord(batch, slot, 1n, 1n);
          },
          { epoch: 2n },
        );
      await records(SLOT, [1]);
      await records(SLOT, [1], { epoch: 1n }); // 1 stale_epoch
      await records(SLOT, [2, 3], { headerLane: 1 }); // 2 lane_mismatch
      await opens(range(0, 3).map(() => SLOT + 1)); // 3 slot_collision
      await opens(range(9, 13).map((index) => index << 8)); // 4 unknown_slot
      await records(0x700, range(1, 6)); // 5 closed_slot
      await records(SLOT, [0, 1, 1, 1, 0, 1]); // 6 duplicate
      await records(SLOT + 2, range(1, 8)); // 7 generation
      await records(SLOT, [2]);
      expect(await take(anchor, 2)).to.deep.equal([1, 2]);

      const scrape = await Scrape.of(registry);
      expect(scrape.by('velo_streaming_mux_records_dropped_total', 'reason')).to.deep.equal({
        ...{ stale_epoch: 1, lane_mismatch: 2, slot_collision: 3, unknown_slot: 4, closed_slot: 5, duplicate: 6 },
        ...{ generation: 7, stale_singleton: 0, withheld_overflow: 0 },
      });
      expect(scrape.value('velo_streaming_mux_generation_mismatch_total')).to.equal(7);
      await peer.batch(
        0,
        (batch) => {
          dataRecord(batch, SLOT, 3, FINALIZED_BYTES);
          batch.closeSlot(SLOT, 4, CLOSE_TERMINAL_SENT);
        },
        { epoch: 2n },
      );
      expect(await readAll(anchor)).to.deep.equal({ items: [], error: undefined });
      other.controller.cancel();
      await until('nothing lives', () => node.stats().liveSlots === 0);
    } finally {
      await peer.close();
    }
  });
});
