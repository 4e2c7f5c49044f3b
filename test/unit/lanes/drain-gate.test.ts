// When a lane sends a mark back, and what the gate asks of the socket a request came from.

import { expect } from 'chai';
import type { ClientLink } from '../../../lib/lanes/client-link.js';
import { EV_MARK } from '../../../lib/lanes/commands.js';
import { connectionMetrics } from '../../../lib/lanes/connection-metrics.js';
import { DrainGate } from '../../../lib/lanes/drain-gate.js';
import { createNodeBlock, NodeBlock } from '../../../lib/plane/node-block.js';
import { encodeRequestHeader, RESPONSE_NONE } from '../../../lib/wire/envelope.js';
import { FRAME_SHUTTING_DOWN, PREAMBLE_LEN } from '../../../lib/wire/transport-frame.js';

const ID = { workerHi: 1, workerLo: 2, slot: 3, generation: 4 };

describe('the drain gate of a lane', () => {
  let node: NodeBlock;
  let gate: DrainGate;
  let events: number[][];
  const link = { event: (kind: number, tag: number) => events.push([kind, tag]) } as unknown as ClientLink;
  beforeEach(() => {
    node = new NodeBlock(createNodeBlock(1, 0));
    gate = new DrainGate(node);
    events = [];
  });

  it('a mark comes back at once when the lane holds nothing', () => {
    gate.mark(link, 5);
    expect(events).to.deep.equal([[EV_MARK, 5]]);
  });

  it('marks wait for everything that the lane holds, also for what came behind them', () => {
    gate.hold();
    gate.hold();
    gate.mark(link, 5);
    gate.release();
    gate.hold();
    gate.mark(link, 6);
    gate.release();
    expect(events).to.deep.equal([]);
    gate.release();
    expect(events).to.deep.equal([
      [EV_MARK, 5],
      [EV_MARK, 6],
    ]);
    gate.hold();
    gate.release();
    expect(events).to.have.length(2);
  });

  it('lets everything in until the gate is closed, then the exempt; the rest is counted where it came in', () => {
    const metrics = connectionMetrics();
    const written: Uint8Array[] = [];
    const ends = { transport: 'tcp', remoteAddress: undefined, remotePort: undefined, localPort: undefined } as const;
    const socket = { remote: '', ends, claimedHosts: undefined, suspect: false };
    const accepted = {
      ...socket,
      dialed: false,
      metrics,
      writeBack: (bytes: Uint8Array) => written.push(bytes) > 0,
    };
    const dialed = { ...socket, dialed: true, metrics: connectionMetrics(), writeBack: () => false };
    const mine = encodeRequestHeader(RESPONSE_NONE, ID, 'mine');
    const exempt = encodeRequestHeader(RESPONSE_NONE, ID, '_rv_pull');
    const admits = (header: Uint8Array, source: Parameters<DrainGate['admits']>[4]) =>
      gate.admits(header, 0, header.length, 5, source);
    expect(admits(mine, accepted)).to.equal(true);
    node.closeGate();
    expect([admits(exempt, accepted), admits(exempt, dialed)]).to.deep.equal([true, true]);
    expect([admits(mine, accepted), admits(mine, dialed)]).to.deep.equal([false, false]);
    for (const counts of [metrics, dialed.metrics])
      expect(counts).to.include({ drainRejected: 1, drainRejectedBytes: mine.length + 5 });
    expect(written).to.have.length(1);
    expect(written[0]![2]).to.equal(FRAME_SHUTTING_DOWN);
    expect(written[0]!.slice(PREAMBLE_LEN)).to.deep.equal(mine);
  });
});
