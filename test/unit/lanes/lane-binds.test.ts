// How a lane finds the bind that a peer's OpenSlot names: thread and row come out of the session, the rest is the row's own answer.

import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { expect } from 'chai';
import { ClientLink, type LinkLane } from '../../../lib/lanes/client-link.js';
import { identityRow, identityThread, routeNumber, rowIdentity } from '../../../lib/lanes/commands.js';
import { LaneBinds } from '../../../lib/lanes/lane-binds.js';
import { Liveness } from '../../../lib/lanes/liveness.js';
import { NodePressure } from '../../../lib/lanes/node-pressure.js';
import type { IngressSlot } from '../../../lib/mux/ingress-slot.js';
import type { IngressTable } from '../../../lib/mux/ingress-table.js';
import { MuxMetrics } from '../../../lib/mux/mux-metrics.js';
import { ClientRows, createClientRows, createConduit, WorkerConduit } from '../../../lib/plane/conduit.js';
import { createNodeBlock, NodeBlock } from '../../../lib/plane/node-block.js';
import { ParcelReceiver, ParcelSender } from '../../../lib/plane/parcels.js';

const SIZES = { ringBytes: 1024, rows: 1024 };
const LANE = 1;
const PEER = 7;
const MUX_LANE = 3;
const ROW = 5;
const ANCHOR_HI = 0xffff_fffe;
const ANCHOR_LO = 0x8000_0001;

/** Only named: nothing is asked of it here. */
const table = { lane: MUX_LANE } as IngressTable;

describe('the binds of a lane', () => {
  let ports: MessagePort[];
  let links: ClientLink[];
  let lane: { lane: number; links: ClientLink[]; pressure: NodePressure; isOver: boolean };
  let binds: LaneBinds;

  beforeEach(() => {
    const { port1, port2 } = new MessageChannel();
    ports = [port1, port2];
    links = [0, 1].map((thread) => {
      const conduit = new WorkerConduit(createConduit(SIZES), SIZES);
      const rows = new ClientRows(createClientRows(SIZES), SIZES);
      const parcels = [new ParcelSender(port1), new ParcelReceiver(port2)] as const;
      return new ClientLink({} as LinkLane, thread, conduit, rows, ...parcels, 0);
    });
    const pressure = new NodePressure(new NodeBlock(createNodeBlock(2, 0)), LANE, 1024);
    const living = { now: () => 0, guard: (turn: () => void) => turn(), beforeFrames: () => {}, endTurn: () => {} };
    lane = { lane: LANE, links, pressure, isOver: false };
    binds = new LaneBinds(lane, new Liveness(living, new MuxMetrics()));
  });
  afterEach(() => {
    for (const port of ports) port.close();
  });

  /** Binds a row of a client thread, and gives the two halves of its session. */
  function bind(thread: number, row = ROW): [number, number] {
    const { receivers } = links[thread]!.rows;
    const identity = rowIdentity(receivers.allocate(row), thread, row);
    const session: [number, number] = [Math.floor(identity / 2 ** 32), identity >>> 0];
    receivers.bind(row, ANCHOR_HI, ANCHOR_LO, ...session, 8, 1000, 5000);
    return session;
  }

  it('a session names one row of one thread, and its claimer gets what was bound there', () => {
    bind(0);
    const session = bind(1);
    const stream = binds.claim(PEER, table, ANCHOR_HI, ANCHOR_LO, ...session);
    expect([stream?.row, stream?.limit, stream?.byteBudget, stream?.heartbeatMs]).to.deep.equal([ROW, 8, 1000, 5000]);
    expect(links[1]!.receivers[ROW]).to.equal(stream);
    expect(links[0]!.receivers[ROW], 'the same row of another thread').to.equal(undefined);
    expect(links[1]!.rows.receivers.claimedBy(ROW)).to.equal(LANE);
    stream!.opened({ id: 9 } as IngressSlot);
    const { route, slot } = links[1]!.rows.receivers.slotOf(ROW)!;
    expect([route, slot]).to.deep.equal([routeNumber(PEER, MUX_LANE), 9]);
  });

  it('a bind is claimed once, and is bound until then', () => {
    const session = bind(0);
    expect(binds.isBound(...session)).to.equal(true);
    expect(binds.claim(PEER, table, ANCHOR_HI, ANCHOR_LO + 1, ...session), 'another anchor').to.equal(undefined);
    expect(binds.isBound(...session)).to.equal(true);
    expect(binds.claim(PEER, table, ANCHOR_HI, ANCHOR_LO, ...session)).not.to.equal(undefined);
    expect(binds.isBound(...session)).to.equal(false);
    expect(binds.claim(PEER, table, ANCHOR_HI, ANCHOR_LO, ...session)).to.equal(undefined);
  });

  it('a session that no thread or row of this node has is nobody', () => {
    const [high, low] = bind(0);
    const made: [number, number][] = [
      [high, (low & ~0xf_ffff) | (2 << 16) | ROW],
      [high, (low & ~0xf_ffff) | (15 << 16) | ROW],
      [high, (low & ~0xffff) | SIZES.rows],
      [high, low | 0xffff],
      [high + 1, low],
      [0, 0],
      [0xffff_ffff, 0xffff_ffff],
    ];
    for (const session of made) {
      const name = `thread ${identityThread(session[1])}, row ${identityRow(session[1])}`;
      expect(binds.isBound(...session), name).to.equal(false);
      expect(binds.claim(PEER, table, ANCHOR_HI, ANCHOR_LO, ...session), name).to.equal(undefined);
    }
    expect(links.flatMap(({ receivers }) => receivers)).to.deep.equal([]);
  });

  it('a lane that is over claims nothing: the next one may have begun', () => {
    const session = bind(0);
    lane.isOver = true;
    expect(binds.claim(PEER, table, ANCHOR_HI, ANCHOR_LO, ...session)).to.equal(undefined);
    expect(binds.isBound(...session), 'it stays for the next').to.equal(true);
  });
});
