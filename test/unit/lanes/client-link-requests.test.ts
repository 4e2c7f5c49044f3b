// What a consumer asks of its slot stands in its row, beside the drains: each wish is passed on once.

import { MessageChannel } from 'node:worker_threads';
import { expect } from 'chai';
import { ClientLink, type LinkLane } from '../../../lib/lanes/client-link.js';
import { tagRow } from '../../../lib/lanes/commands.js';
import { IngressStream } from '../../../lib/lanes/ingress-stream.js';
import type { IngressSlot } from '../../../lib/mux/ingress-slot.js';
import type { IngressTable } from '../../../lib/mux/ingress-table.js';
import type { SlotWatch } from '../../../lib/mux/watchdog.js';
import {
  ClientConduit,
  ClientRows,
  createClientRows,
  createConduit,
  WorkerConduit,
} from '../../../lib/plane/conduit.js';
import { ParcelReceiver, ParcelSender } from '../../../lib/plane/parcels.js';
import { RECEIVER_STOP } from '../../../lib/plane/rows.js';

const SIZES = { ringBytes: 1024, rows: 1024 };
const ROW = 3;

describe('the wishes of a consumer', () => {
  const { port1, port2 } = new MessageChannel();
  after(() => {
    port1.close();
    port2.close();
  });

  function linked() {
    const heard: string[] = [];
    const lane = {
      stopReceiver: () => heard.push('stop'),
      drained: () => heard.push('drained'),
      drainsTaken: () => {},
    } as unknown as LinkLane;
    const buffer = createConduit(SIZES);
    const shared = createClientRows(SIZES);
    const { receivers } = new ClientRows(shared, SIZES);
    receivers.allocate(ROW);
    const link = new ClientLink(
      lane,
      0,
      new WorkerConduit(buffer, SIZES),
      new ClientRows(shared, SIZES),
      new ParcelSender(port1),
      new ParcelReceiver(port2),
      0,
    );
    const bind = { row: ROW, generation: 1, credit: 8, byteBudget: 0, heartbeatMs: 5_000 };
    const stream = new IngressStream(link, {} as IngressTable, bind, 0, ROW, 0, () => ({}) as SlotWatch);
    link.receivers[ROW] = stream;
    const conduit = new ClientConduit(buffer, SIZES);
    const drain = () => {
      receivers.addDrained(ROW, 1);
      conduit.drains.add(ROW);
      link.drain();
    };
    return { heard, receivers, stream, drain };
  }

  it('a stop is passed on once, however often records are taken after it', () => {
    const { heard, receivers, stream, drain } = linked();
    stream.opened({} as IngressSlot);
    drain();
    receivers.request(ROW, RECEIVER_STOP);
    for (let i = 0; i < 3; i++) drain();
    expect(heard).to.deep.equal(['drained', 'stop', 'drained', 'drained', 'drained']);
  });

  it('a stop that the slot found at its opening is not passed on again', () => {
    const { heard, receivers, stream, drain } = linked();
    receivers.request(ROW, RECEIVER_STOP);
    expect(stream.earlyStop).to.equal(true);
    stream.opened({} as IngressSlot);
    drain();
    expect(heard).to.deep.equal(['drained']);
  });
});

describe('thousands of streams that wait for room', () => {
  const { port1, port2 } = new MessageChannel();
  after(() => {
    port1.close();
    port2.close();
  });

  it('a turn without room looks at one of them, and all move in order once there is some', () => {
    const buffer = createConduit(SIZES);
    const client = new ClientConduit(buffer, SIZES);
    const link = new ClientLink(
      {} as LinkLane,
      0,
      new WorkerConduit(buffer, SIZES),
      new ClientRows(createClientRows(SIZES), SIZES),
      new ParcelSender(port1),
      new ParcelReceiver(port2),
      0,
    );
    const count = 1_000;
    const record = new Uint8Array(50);
    let looks = 0;
    for (let row = 0; row < count; row++) {
      const bind = { row, generation: 1, credit: 8, byteBudget: 0, heartbeatMs: 5_000 };
      const stream = new IngressStream(link, {} as IngressTable, bind, 0, row, 0, () => ({}) as SlotWatch);
      const flush = stream.flush.bind(stream);
      stream.flush = () => {
        looks += 1;
        return flush();
      };
      for (let i = 0; i < 3; i++) stream.deliver(record, 0, record.length, false);
    }
    link.publish();
    looks = 0;
    for (let turn = 0; turn < 10; turn++) link.publish();
    expect(looks, 'one look before room is asked for, one after').to.equal(20);
    const got: number[] = [];
    for (let turn = 0; got.length < 3 * count; turn++) {
      expect(turn).to.be.below(3 * count);
      client.ingress.refresh();
      while (client.ingress.next()) got.push(tagRow(client.ingress.tag));
      client.ingress.release();
      link.publish();
    }
    const places = new Map<number, number>();
    for (const row of got) places.set(row, (places.get(row) ?? 0) + 1);
    expect(places.size).to.equal(count);
    expect([...places.values()].every((records) => records === 3)).to.equal(true);
    expect(link.roomCame()).to.equal(false);
  });
});
