// What lanes keep in queues of their slots, against the bound of their node: two lanes over one node block.

import { expect } from 'chai';
import { NodePressure } from '../../../lib/lanes/node-pressure.js';
import { createNodeBlock, NodeBlock } from '../../../lib/plane/node-block.js';

const LIMIT = 2_000;

function lanes(): [NodePressure, NodePressure] {
  const buffer = createNodeBlock(2, 1);
  const of = (lane: number) => new NodePressure(new NodeBlock(buffer), lane, LIMIT);
  return [of(0), of(1)];
}

describe('bytes that lanes of a node keep', () => {
  it('one direction may keep half of the bound over all lanes; at the bound nothing is over yet', () => {
    const [first, second] = lanes();
    first.egress.bytes = 600;
    second.egress.bytes = 400;
    for (const lane of [first, second, first]) lane.look();
    expect([first.egress.over, second.egress.over]).to.deep.equal([false, false]);
    second.egress.bytes = 401;
    for (const lane of [second, first]) lane.look();
    expect([first.egress.over, second.egress.over]).to.deep.equal([true, true]);
    expect([first.ingress.over, second.ingress.over], 'the other direction').to.deep.equal([false, false]);
    first.egress.bytes = 0;
    for (const lane of [first, second]) lane.look();
    expect([first.egress.over, second.egress.over]).to.deep.equal([false, false]);
  });

  it('a lane that keeps nothing is told nothing, until it does', () => {
    const [first, second] = lanes();
    first.ingress.bytes = 5_000;
    first.look();
    second.look();
    expect([first.ingress.over, second.ingress.over]).to.deep.equal([true, false]);
    second.ingress.bytes = 1;
    second.look();
    expect(second.ingress.over).to.equal(true);
    second.ingress.bytes = 0;
    second.look();
    expect(second.ingress.over, 'as long as the first keeps too much').to.equal(true);
    first.ingress.bytes = 0;
    for (const lane of [first, second]) lane.look();
    expect([first.ingress.over, second.ingress.over]).to.deep.equal([false, false]);
  });

  it('a dead lane weighs on nobody once it is buried', () => {
    const buffer = createNodeBlock(2, 1);
    const block = new NodeBlock(buffer);
    const [dead, living] = [new NodePressure(block, 0, LIMIT), new NodePressure(block, 1, LIMIT)];
    dead.egress.bytes = 10_000;
    dead.look();
    living.egress.bytes = 1;
    living.look();
    expect(living.egress.over).to.equal(true);
    block.buryBytes(0);
    living.look();
    expect(living.egress.over).to.equal(false);
  });
});
