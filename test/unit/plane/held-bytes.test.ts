// The bytes that lanes hold per peer and keep in all, on one thread, against plain sums.

import { expect } from 'chai';
import fc from 'fast-check';
import { ByteBudget } from '../../../lib/mux/byte-budget.js';
import { PEER_ROWS } from '../../../lib/plane/held-bytes.js';
import { BUFFERED_IN, BUFFERED_OUT, createNodeBlock, NodeBlock } from '../../../lib/plane/node-block.js';
import { errorCode } from './errors.js';

const LIMIT = 1_000;

/** The shares of each lane in one peer's budget. */
function shares(block: NodeBlock, peer: number, limit = LIMIT) {
  return Array.from({ length: block.lanes }, (_, lane) => block.heldBytes(peer, lane, limit));
}

describe('bytes held per peer', () => {
  it('AC-28 lanes fill one budget together, whatever does not fit changes nothing, and a release never goes below zero', () => {
    const step = fc.record({
      lane: fc.nat(2),
      bytes: fc.oneof(fc.nat(400), fc.constantFrom(LIMIT, LIMIT + 1, 16 * 2 ** 20)),
      release: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const lanes = shares(new NodeBlock(createNodeBlock(3, 1)), 7);
        const model = new ByteBudget(LIMIT);
        const own = [0, 0, 0];
        for (const { lane, bytes, release } of steps) {
          if (release) {
            const given = Math.min(bytes, own[lane]!);
            lanes[lane]!.release(bytes);
            model.release(given);
            own[lane]! -= given;
          } else {
            const took = model.tryReserve(bytes);
            expect(lanes[lane]!.tryReserve(bytes)).to.equal(took);
            if (took) own[lane]! += bytes;
          }
          expect(lanes.map(({ used }) => used)).to.deep.equal([model.used, model.used, model.used]);
        }
      }),
    );
  });

  it('peers do not share, from the first row to the last, and lanes of any number have room', () => {
    for (const lanes of [1, 2, 3, 5, 16]) {
      const block = new NodeBlock(createNodeBlock(lanes, 3));
      const rows = [0, 1, PEER_ROWS - 1];
      for (const row of rows) for (const share of shares(block, row)) expect(share.tryReserve(10)).to.equal(true);
      for (const row of rows) expect(block.heldBytes(row, 0, LIMIT).used).to.equal(10 * lanes);
      expect(block.readCell(lanes - 1, 2), 'the cells lie elsewhere').to.equal(0);
    }
    const block = new NodeBlock(createNodeBlock(2, 1));
    for (const row of [-1, PEER_ROWS])
      expect(errorCode(() => block.heldBytes(row, 0, 1))).to.equal('ERR_CONDUIT_BROKEN');
  });

  it('a bound beyond the words of the table is 2 GiB, up to the last byte', () => {
    const [first, second] = shares(new NodeBlock(createNodeBlock(2, 1)), 0, Number.MAX_SAFE_INTEGER);
    expect(first!.tryReserve(2 ** 31)).to.equal(false);
    expect(first!.tryReserve(2 ** 31 - 2)).to.equal(true);
    expect([second!.tryReserve(2), second!.tryReserve(1), first!.tryReserve(1)]).to.deep.equal([false, true, false]);
    expect(first!.used).to.equal(2 ** 31 - 1);
  });

  it('a buried lane holds and keeps nothing, for any peer; the others hold what they held', () => {
    const block = new NodeBlock(createNodeBlock(3, 1));
    for (const row of [0, 5, PEER_ROWS - 1]) for (const share of shares(block, row)) share.tryReserve(100);
    for (let lane = 0; lane < 3; lane++) {
      block.setBuffered(lane, BUFFERED_OUT, 1_000);
      block.setBuffered(lane, BUFFERED_IN, 10);
    }
    block.buryBytes(1);
    for (const row of [0, 5, PEER_ROWS - 1]) expect(block.heldBytes(row, 0, LIMIT).used).to.equal(200);
    expect([block.bufferedBytes(BUFFERED_OUT), block.bufferedBytes(BUFFERED_IN)]).to.deep.equal([2_000, 20]);
  });
});
