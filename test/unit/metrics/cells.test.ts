// Numbers on their way into the cells: buckets, groups that are skipped while nothing moved, lanes that died.

import { expect } from 'chai';
import { LaneMetrics } from '../../../lib/lanes/lane-metrics.js';
import { CELL_NAMES } from '../../../lib/metrics/cells.js';
import { EGRESS_SECONDS, HANDLER_SECONDS, Histogram } from '../../../lib/metrics/histogram.js';
import {
  BATCH_BUCKETS_SENT,
  buryCells,
  CELL_COUNT,
  MESSAGES_ENDED,
  readHistogram,
  TRANSPORT_CELLS,
} from '../../../lib/metrics/series-cells.js';
import { createNodeBlock, NodeBlock } from '../../../lib/plane/node-block.js';

/** Counts the cells that are written. */
class CountingBlock extends NodeBlock {
  writes = 0;

  override setCell(lane: number, cell: number, value: number): void {
    this.writes += 1;
    super.setCell(lane, cell, value);
  }
}

describe('metrics: cells', () => {
  it('a value on an edge belongs below it, one above every edge to the last bucket', () => {
    const histogram = new Histogram([1, 2, 4]);
    for (const value of [0, 1, 1.5, 2, 4, 4.1]) histogram.observe(value);
    expect(histogram.buckets).to.deep.equal([2, 2, 1, 1]);
    expect([histogram.count, histogram.sum]).to.deep.equal([6, 12.6]);
    expect([HANDLER_SECONDS[0], HANDLER_SECONDS.length, HANDLER_SECONDS.at(-1)]).to.deep.equal([0.0005, 16, 16.384]);
  });

  it('no two numbers share a cell', () => {
    const block = new NodeBlock(createNodeBlock(1, CELL_COUNT));
    const lane = new LaneMetrics(block, 0);
    const { tcp, uds } = lane.sockets;
    let next = 1;
    const fill = (array: number[]) => {
      for (const i of array.keys()) array[i] = next++;
    };
    for (const sockets of [tcp, uds]) {
      for (const array of [
        ...[sockets.framesSent, sockets.framesWritten, sockets.bytesSent, sockets.framesReceived],
        ...[sockets.bytesReceived, sockets.writeSeconds.buckets, sockets.queueWaitSeconds.buckets],
      ])
        fill(array);
      sockets.writeSeconds.count = next;
      sockets.drainRejected = next++;
      sockets.framesReceived[0]! += sockets.drainRejected;
      sockets.dialed = next++;
    }
    fill(lane.mux.sent.buckets);
    lane.mux.sent.count = 1;
    const last = next;
    for (const { framesReceived, drainRejected } of [tcp, uds])
      lane.messagesToClients += framesReceived[0]! - drainRejected;
    lane.publishAll();
    const cells = Array.from({ length: CELL_COUNT - CELL_NAMES.length }, (_, i) => block.total(CELL_NAMES.length + i));
    for (let value = 1; value < last; value += 1)
      expect(cells.filter((cell) => cell === value).length, `${value}`).to.equal(1);
    expect(block.total(TRANSPORT_CELLS.uds.dialed)).to.equal(uds.dialed);
    expect(block.total(BATCH_BUCKETS_SENT + 12)).to.equal(lane.mux.sent.buckets[12]);
    const read = (cell: number) => block.total(cell);
    const wait = readHistogram(read, TRANSPORT_CELLS.uds.queueWaitSeconds, EGRESS_SECONDS);
    expect(wait.buckets).to.deep.equal(uds.queueWaitSeconds.buckets);
  });

  it('only what moved is written', () => {
    const block = new CountingBlock(createNodeBlock(2, CELL_COUNT));
    const lane = new LaneMetrics(block, 1);
    lane.publishAll();
    expect(block.writes).to.equal(0);
    const { tcp } = lane.sockets;
    tcp.framesSent[0]! += 1;
    tcp.bytesSent[0]! += 90;
    lane.publishAll();
    expect(block.writes).to.equal(2);
    expect(block.readCell(1, TRANSPORT_CELLS.tcp.bytesSent)).to.equal(90);
    expect(block.readCell(0, TRANSPORT_CELLS.tcp.bytesSent)).to.equal(0);
    tcp.writeSeconds.observe(0.25);
    lane.mux.sent.observe(3);
    lane.publishAll();
    const written = readHistogram((cell) => block.total(cell), TRANSPORT_CELLS.tcp.writeSeconds, EGRESS_SECONDS);
    expect([written.buckets[8], written.sum]).to.deep.equal([1, 0.25]);
    expect(block.total(BATCH_BUCKETS_SENT + 2)).to.equal(1);
    // Two cells of the time, and count, sum and bucket of the batch.
    expect(block.writes).to.equal(2 + 2 + 3);
    lane.publishAll();
    expect(block.writes).to.equal(7);
  });

  it('a turn writes what stats() shows, and leaves the rest for later', () => {
    const block = new CountingBlock(createNodeBlock(1, CELL_COUNT));
    const lane = new LaneMetrics(block, 0);
    lane.sockets.tcp.framesSent[0] = 1;
    lane.sockets.tcp.writes = 1;
    lane.publish();
    expect(block.writes).to.equal(1);
    lane.publishAll();
    expect(block.writes).to.equal(2);
  });

  it('what a lane took and did not hand on is ended', () => {
    const block = new NodeBlock(createNodeBlock(1, CELL_COUNT));
    const lane = new LaneMetrics(block, 0);
    lane.sockets.tcp.framesReceived[0] = 5;
    lane.sockets.uds.framesReceived[0] = 4;
    lane.sockets.tcp.framesReceived[1] = 100;
    lane.messagesToClients = 3;
    lane.publishAll();
    expect(block.total(MESSAGES_ENDED)).to.equal(6);
  });

  it('what moved is published soon, without a turn', async () => {
    const block = new NodeBlock(createNodeBlock(1, CELL_COUNT));
    const { tcp } = new LaneMetrics(block, 0).sockets;
    tcp.framesWritten[0] = 1;
    tcp.changed();
    tcp.changed();
    expect(block.total(TRANSPORT_CELLS.tcp.framesWritten)).to.equal(0);
    const deadline = Date.now() + 10_000;
    while (block.total(TRANSPORT_CELLS.tcp.framesWritten) === 0 && Date.now() < deadline)
      await new Promise((resolve) => setTimeout(resolve, 5));
    expect(block.total(TRANSPORT_CELLS.tcp.framesWritten)).to.equal(1);
  });

  it('a lane that died holds nothing, and its counts stay', () => {
    const block = new NodeBlock(createNodeBlock(2, CELL_COUNT));
    for (const lane of [0, 1]) {
      const metrics = new LaneMetrics(block, lane);
      metrics.mux.liveSlots = 3;
      metrics.mux.epochDeaths = 2;
      metrics.sockets.tcp.dialed = 1;
      metrics.sockets.tcp.connectionsOpened = 1;
      metrics.publishAll();
    }
    buryCells(block, 1);
    const total = (name: (typeof CELL_NAMES)[number]) => block.total(CELL_NAMES.indexOf(name));
    expect([total('liveSlots'), total('epochDeaths')]).to.deep.equal([3, 4]);
    expect(block.total(TRANSPORT_CELLS.tcp.dialed)).to.equal(1);
    const next = new LaneMetrics(block, 1);
    next.mux.liveSlots = 5;
    next.mux.epochDeaths = 1;
    next.publishAll();
    expect([total('liveSlots'), total('epochDeaths')], 'the next lane counts on').to.deep.equal([8, 5]);
    next.stop();
    next.mux.epochDeaths = 100;
    next.publishAll();
    expect(total('epochDeaths'), 'a lane that is gone writes nothing').to.equal(5);
  });
});
