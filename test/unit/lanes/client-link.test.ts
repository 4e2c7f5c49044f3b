// The lane's end of a conduit, by itself: what it writes to rows and rings when a client is slow, or done with a row already.

import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { expect } from 'chai';
import { ClientLink, type LinkLane } from '../../../lib/lanes/client-link.js';
import { EV_ADMITTED, EV_DATA, EV_FRAME, EV_RETIRED, PARCEL } from '../../../lib/lanes/commands.js';
import { EgressStream } from '../../../lib/lanes/egress-stream.js';
import { IngressStream } from '../../../lib/lanes/ingress-stream.js';
import { ByteMeter } from '../../../lib/mux/byte-meter.js';
import type { EgressSlot } from '../../../lib/mux/egress-slot.js';
import type { IngressTable } from '../../../lib/mux/ingress-table.js';
import { DELIVERED } from '../../../lib/mux/ingress-types.js';
import type { PeerBatcher } from '../../../lib/mux/peer-batcher.js';
import {
  ClientConduit,
  ClientRows,
  createClientRows,
  createConduit,
  WorkerConduit,
} from '../../../lib/plane/conduit.js';
import { ParcelReceiver, ParcelSender } from '../../../lib/plane/parcels.js';
import { SENDER_OPENED, SENDER_RETIRED, SENDER_SENT } from '../../../lib/plane/rows.js';
import { DROPPED_BYTES } from '../../../lib/wire/frame.js';
import { FRAME_MESSAGE } from '../../../lib/wire/transport-frame.js';

const SIZES = { ringBytes: 1024, rows: 1024 };
const ROW = 3;
const CREDIT = 64;
const RECORD = new Uint8Array(100);

describe('the lane end of a conduit', () => {
  let ports: MessagePort[];
  let link: ClientLink;
  let client: ClientConduit;
  let rows: ClientRows;
  beforeEach(() => {
    const buffer = createConduit(SIZES);
    const shared = createClientRows(SIZES);
    const { port1, port2 } = new MessageChannel();
    ports = [port1, port2];
    client = new ClientConduit(buffer, SIZES);
    rows = new ClientRows(shared, SIZES);
    link = new ClientLink(
      {} as LinkLane,
      0,
      new WorkerConduit(buffer, SIZES),
      new ClientRows(shared, SIZES),
      new ParcelSender(port1),
      new ParcelReceiver(port2),
      0,
    );
  });
  afterEach(() => {
    for (const port of ports) port.close();
  });

  /** Kinds of the records that the client finds. */
  function read(): number[] {
    const kinds: number[] = [];
    const ring = client.ingress;
    if (ring.refresh()) while (ring.next()) kinds.push(ring.kind);
    ring.release();
    return kinds;
  }

  it('a stream that ended with records waiting for room says so once, behind them', () => {
    const bind = { row: ROW, generation: 1, credit: CREDIT, byteBudget: 0, heartbeatMs: 5_000 };
    const stream = new IngressStream(link, {} as IngressTable, bind, 0, ROW, 0, () => {
      throw new Error('no slot is opened here');
    });
    link.receivers[ROW] = stream;
    const sent = 12;
    for (let i = 0; i < sent; i++) expect(stream.deliver(RECORD, 0, RECORD.length, false)).to.equal(DELIVERED);
    expect(stream.listed, 'some did not fit').to.equal(true);
    link.publish();
    const kinds = read();
    // Room came, and the slot closes before the lane has moved what waits.
    stream.slotClosed();
    for (let turn = 0; turn < sent; turn++) {
      link.publish();
      kinds.push(...read());
    }
    expect(kinds).to.deep.equal([...Array.from({ length: sent }, () => EV_DATA), EV_RETIRED]);
    expect(link.receivers[ROW]).to.equal(undefined);
  });

  it('AH-07 a stream whose sender fell silent drops what waits for room, and its last record says that the rest is void', () => {
    const bind = { row: ROW, generation: 1, credit: CREDIT, byteBudget: 0, heartbeatMs: 5_000 };
    const meter = new ByteMeter();
    const watch = () => {
      throw new Error('no slot is opened here');
    };
    const stream = new IngressStream(link, {} as IngressTable, bind, 0, ROW, 0, watch, meter);
    link.receivers[ROW] = stream;
    for (let i = 0; i < 12; i++) stream.deliver(RECORD, 0, RECORD.length, false);
    expect(stream.standing).to.be.greaterThan(0);
    expect(meter.bytes).to.equal(stream.standing * RECORD.length);
    const fitted = 12 - stream.standing;
    stream.silent();
    expect([stream.standing, meter.bytes]).to.deep.equal([0, 0]);
    stream.deliver(DROPPED_BYTES, 0, DROPPED_BYTES.length, true);
    stream.slotClosed();
    const found: [number, number][] = [];
    for (let turn = 0; turn < 4; turn++) {
      link.publish();
      const ring = client.ingress;
      if (ring.refresh()) while (ring.next()) found.push([ring.kind, ring.length]);
      ring.release();
    }
    const data = Array.from({ length: fitted }, () => [EV_DATA, RECORD.length]);
    expect(found).to.deep.equal([...data, [EV_DATA, DROPPED_BYTES.length], [EV_RETIRED, 1]]);
    expect(link.receivers[ROW]).to.equal(undefined);
  });

  it('a message that the client took makes room for the next, though the ring never runs empty', () => {
    const message = new Uint8Array(SIZES.ringBytes);
    expect(link.messages.frame(FRAME_MESSAGE, message, 10, false), 'one always fits').to.equal(true);
    link.publish();
    expect(link.messages.frame(FRAME_MESSAGE, message, 10, false), 'the client has not taken it').to.equal(false);
    client.ingress.refresh();
    while (client.ingress.next());
    link.event(EV_ADMITTED, 1, new Uint8Array(0));
    link.publish();
    client.ingress.release();
    expect(client.ingress.hasWork(), 'something stands there').to.equal(true);
    expect(link.messages.frame(FRAME_MESSAGE, message, 10, false)).to.equal(true);
    expect(link.messages.frame(FRAME_MESSAGE, message, 10, false)).to.equal(false);
  });

  it('pulled messages wait for their room, in order, and say when they wait no longer', () => {
    const body = () => new Uint8Array(2 * SIZES.ringBytes);
    const taken: number[] = [];
    for (const n of [0, 1, 2]) link.messages.give(FRAME_MESSAGE, body(), () => taken.push(n));
    const kinds: number[] = [];
    for (const turn of [0, 1, 2]) {
      expect(taken).to.deep.equal([0, 1, 2].slice(0, turn + 1));
      link.publish();
      expect(
        link.messages.frame(FRAME_MESSAGE, new Uint8Array(SIZES.ringBytes), 10, false),
        'others are refused',
      ).to.equal(false);
      kinds.push(...read());
      if (turn < 2) expect(link.roomCame(), 'the lane looks again').to.equal(true);
      link.publish();
    }
    expect(kinds).to.deep.equal([EV_FRAME | PARCEL, EV_FRAME | PARCEL, EV_FRAME | PARCEL]);
  });

  it('a stream that is over never writes to its row again: the row may belong to another', () => {
    const first = rows.senders.allocate(ROW);
    const stream = new EgressStream(link, ROW, first, {} as PeerBatcher, CREDIT);
    const slot = { pulledTotal: 20 } as EgressSlot;
    stream.slot = slot;
    link.senders[ROW] = stream;
    expect(link.publishPulled(stream)).to.equal(true);
    expect(rows.senders.pulled(ROW)).to.equal(20);
    slot.pulledTotal = 40;
    stream.retired(slot, 'discarded');
    rows.senders.allocate(ROW);
    expect(link.publishPulled(stream)).to.equal(false);
    expect(rows.senders.pulled(ROW)).to.equal(0);
  });

  /** True when the lane's end of a turn woke the client, which had gone to sleep. */
  function wakesClient(act: () => void): boolean {
    let woken = false;
    link.conduit.clientBell.hook = () => {
      woken = true;
    };
    client.clientBell.park();
    act();
    link.publish();
    client.clientBell.unpark();
    return woken;
  }

  function retire(generation: number): void {
    const stream = new EgressStream(link, ROW, generation, {} as PeerBatcher, CREDIT);
    link.senders[ROW] = stream;
    stream.retired({} as EgressSlot, 'sent');
  }

  it('AQ-06 a stream that nobody watches retires without a wake, and its row is named all the same', () => {
    const generation = rows.senders.allocate(ROW);
    expect(wakesClient(() => retire(generation))).to.equal(false);
    expect(rows.senders.flags(ROW)).to.equal(SENDER_RETIRED | SENDER_SENT);
    expect(client.attention.take(new Int32Array(SIZES.rows))).to.equal(1);
  });

  it('AQ-06 a stream that somebody waits for wakes them once', () => {
    const generation = rows.senders.allocate(ROW);
    rows.senders.watch(ROW);
    expect(wakesClient(() => retire(generation))).to.equal(true);
    expect(wakesClient(() => retire(generation))).to.equal(false);
  });

  it('a row that was named without a wake still wakes its client for the next life', () => {
    retire(rows.senders.allocate(ROW));
    const next = rows.senders.allocate(ROW);
    expect(wakesClient(() => void link.flagSender(ROW, next, SENDER_OPENED))).to.equal(true);
    expect(
      wakesClient(() => retire(next)),
      'nobody watches this one',
    ).to.equal(false);
  });
});
