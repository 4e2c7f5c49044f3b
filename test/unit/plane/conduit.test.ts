// The layouts: both ends of a conduit see the same words, no two parts share any, and memory of other sizes is refused.

import { expect } from 'chai';
import {
  ClientConduit,
  ClientRows,
  checkPlaneSizes,
  createClientRows,
  createConduit,
  MAX_ROWS,
  WorkerConduit,
} from '../../../lib/plane/conduit.js';
import { invariant } from '../../../lib/plane/invariant.js';
import { SharedMemory } from '../../../lib/plane/memory.js';
import type { RowSet } from '../../../lib/plane/row-set.js';
import { errorCode } from './errors.js';

const SIZES = { ringBytes: 1024, rows: 2048 };

function fill(set: RowSet): void {
  for (let row = 0; row < SIZES.rows; row++) set.add(row);
}

describe('conduit', () => {
  it('carries records both ways at once', () => {
    const buffer = createConduit(SIZES);
    const [client, worker] = [new ClientConduit(buffer, SIZES), new WorkerConduit(buffer, SIZES)];
    for (const [from, to, tag] of [
      [client.egress, worker.egress, 11],
      [worker.ingress, client.ingress, 22],
    ] as const) {
      const at = from.reserve(5, tag, 3);
      client.memory.copyIn(at, Uint8Array.of(1, 2, tag), 0, 3);
      from.commit();
      from.publish();
      expect(to.refresh() && to.next()).to.equal(true);
      expect([to.kind, to.tag, to.length, worker.memory.bytes[to.offset + 2]]).to.deep.equal([5, tag, 3, tag]);
    }
  });

  it('AC-23 drains are never refused: 100,000 of them, of 50 rows, are 50 names and all of their counts', () => {
    const [buffer, shared] = [createConduit(SIZES), createClientRows(SIZES)];
    const [client, worker] = [new ClientConduit(buffer, SIZES), new WorkerConduit(buffer, SIZES)];
    const [here, there] = [new ClientRows(shared, SIZES).receivers, new ClientRows(shared, SIZES).receivers];
    let named = 0;
    for (let i = 0; i < 100_000; i++) {
      here.addDrained(i % 50, 1);
      if (client.drains.add(i % 50)) named += 1;
    }
    const rows = new Int32Array(SIZES.rows);
    expect([named, worker.drains.take(rows)]).to.deep.equal([50, 50]);
    let drained = 0;
    for (const row of rows.subarray(0, 50)) drained += there.takeDrained(row);
    expect(drained).to.equal(100_000);
    expect(worker.drains.isEmpty()).to.equal(true);
  });

  it('no part overwrites another', () => {
    const buffer = createConduit(SIZES);
    const [client, worker] = [new ClientConduit(buffer, SIZES), new WorkerConduit(buffer, SIZES)];
    for (const ring of [client.egress, worker.ingress]) {
      for (let n = 0; n < 8; n++) {
        const at = ring.reserve(1, n, ring.maxInline);
        client.memory.copyIn(at, new Uint8Array(ring.maxInline).fill(0xff), 0, ring.maxInline);
        ring.commit();
      }
      expect(ring.reserve(1, 0, 0)).to.equal(-1);
      ring.kick();
      ring.wantRoom();
    }
    for (const set of [client.drains, client.endings, worker.attention]) fill(set);
    worker.drainMute.set();
    const bells = [worker.workerBell.park(), client.clientBell.park()];
    client.workerBell.ring();
    worker.clientBell.ring();
    expect(bells).to.deep.equal([0, 0]);
    const out = new Int32Array(SIZES.rows);
    for (const set of [worker.drains, worker.endings, client.attention]) expect(set.take(out)).to.equal(SIZES.rows);
    for (const ring of [worker.egress, client.ingress]) {
      ring.refresh();
      for (let n = 0; n < 8; n++) {
        expect(ring.next() && ring.tag).to.equal(n);
        const body = client.memory.bytes.slice(ring.offset, ring.offset + ring.length);
        expect(body.every((byte) => byte === 0xff)).to.equal(true);
      }
      expect(ring.next()).to.equal(false);
      expect(ring.kickAtTail()).to.equal(true);
    }
    expect(client.drainMute.isSet).to.equal(true);
    worker.drainMute.clear();
    expect(client.drainMute.isSet).to.equal(false);
    expect(() => new ClientConduit(buffer, SIZES), 'the header is whole').to.not.throw();
  });

  it('sender and receiver rows lie apart', () => {
    const buffer = createClientRows(SIZES);
    const rows = new ClientRows(buffer, SIZES);
    const other = new ClientRows(buffer, SIZES);
    for (const row of [0, SIZES.rows - 1]) {
      rows.senders.allocate(row);
      rows.receivers.allocate(row);
      rows.receivers.allocate(row);
      expect([other.senders.generation(row), other.receivers.generation(row)]).to.deep.equal([1, 2]);
      other.senders.setFlags(row, 1, 1);
      other.receivers.addDrained(row, 5);
      expect([rows.senders.flags(row), rows.receivers.takeDrained(row)]).to.deep.equal([1, 5]);
    }
  });

  it('refuses memory that was laid out otherwise', () => {
    const cases = [
      () => new WorkerConduit(createConduit(SIZES), { ...SIZES, rows: 1024 }),
      () => new ClientConduit(createConduit(SIZES), { ...SIZES, ringBytes: 2048 }),
      () => new ClientRows(createClientRows(SIZES), { ...SIZES, rows: 1024 }),
      () => new ClientConduit(new SharedArrayBuffer(createConduit(SIZES).byteLength), SIZES),
      () => new ClientConduit(createClientRows(SIZES), SIZES),
    ];
    for (const make of cases) expect(errorCode(make)).to.equal('ERR_CONDUIT_BROKEN');
  });

  it('refuses sizes that no layout has', () => {
    for (const sizes of [
      { ringBytes: 1000, rows: 1024 },
      { ringBytes: 1024, rows: 1000 },
      { ringBytes: 1024, rows: 0 },
      { ringBytes: 1024, rows: MAX_ROWS + 1024 },
      { ringBytes: 1024, rows: 1024.5 },
    ])
      expect(errorCode(() => checkPlaneSizes(sizes))).to.equal('ERR_INVALID_ARGUMENT');
    checkPlaneSizes({ ringBytes: 1024, rows: MAX_ROWS });
  });

  it('a layout that contradicts itself is refused when it is loaded', () => {
    invariant(true, 'nothing');
    expect(errorCode(() => invariant(false, 'a field overlaps another'))).to.equal('ERR_INTERNAL');
  });
});

describe('shared memory', () => {
  it('copies every length and offset, short ones and long ones alike', () => {
    const memory = new SharedMemory(new SharedArrayBuffer(4096));
    const source = Uint8Array.from({ length: 2048 }, (_, i) => (i * 7) & 0xff);
    for (const length of [0, 1, 7, 8, 9, 63, 64, 65, 71, 1000]) {
      for (const offset of [0, 3]) {
        memory.bytes.fill(0xee);
        memory.copyIn(100 + offset, source, offset, length);
        const out = new Uint8Array(length + 2).fill(0xdd);
        memory.copyOut(100 + offset, out, 1, length);
        expect([...out.subarray(1, length + 1)]).to.deep.equal([...source.subarray(offset, offset + length)]);
        expect([out[0], out[length + 1]]).to.deep.equal([0xdd, 0xdd]);
        expect([memory.bytes[99 + offset], memory.bytes[100 + offset + length]]).to.deep.equal([0xee, 0xee]);
      }
    }
  });
});

describe('drains without number', () => {
  it('AC-23 100,000 drains are never refused, take no room, name their rows once, and are all counted', () => {
    const buffer = createConduit(SIZES);
    const [client, worker] = [new ClientConduit(buffer, SIZES), new WorkerConduit(buffer, SIZES)];
    const shared = createClientRows(SIZES);
    const [consumer, lane] = [new ClientRows(shared, SIZES).receivers, new ClientRows(shared, SIZES).receivers];
    const rows = [0, 1, 63, 64, SIZES.rows - 1];
    for (const row of rows) consumer.allocate(row);
    const drains = 100_000;
    let wakes = 0;
    // The lane looks at nothing meanwhile.
    for (let i = 0; i < drains; i++) {
      const row = rows[i % rows.length]!;
      consumer.addDrained(row, 1);
      if (client.drains.add(row)) {
        wakes += 1;
        client.workerBell.ring();
      }
    }
    expect(wakes, 'a wake for each row that was not listed').to.equal(rows.length);
    const listed = new Int32Array(SIZES.rows);
    expect(worker.drains.take(listed)).to.equal(rows.length);
    expect([...listed.subarray(0, rows.length)].sort((a, b) => a - b)).to.deep.equal(rows);
    expect(rows.map((row) => lane.takeDrained(row))).to.deep.equal(rows.map(() => drains / rows.length));
    expect(worker.drains.isEmpty()).to.equal(true);
    expect(client.drains.add(rows[0]!), 'the next one lists its row again').to.equal(true);
  });
});
