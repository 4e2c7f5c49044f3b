// Two cores joined by hand: whole streams, credit that comes back, ends of every kind, and the bytes in between.

import { expect } from 'chai';
import { FINALIZED_BYTES, HEARTBEAT_BYTES } from '../../../lib/wire/frame.js';
import { CorePair, frameText, type PairStream } from '../../support/core-pair.js';
import { FakeOwner } from '../../support/mux-fakes.js';

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

function texts(stream: PairStream): string[] {
  return stream.receiver.frames.map(frameText);
}

function upTo(n: number): string[] {
  return Array.from({ length: n }, (_, i) => String(i));
}

/** Sends `total` items and finalizes, the consumer taking up to `appetite` frames per millisecond. */
function run(pair: CorePair, stream: PairStream, total: number, appetite: number, returnCredit: () => void): void {
  let sent = 0;
  for (let ms = 0; stream.receiver.terminals === 0 || stream.receiver.buffered.length > 0; ms++) {
    if (ms > 20_000) throw new Error('the stream does not end');
    while (sent < total && stream.slot.inlet.length === 0 && stream.slot.withheld.length < 4) {
      pair.producer.sendItem(stream.slot, sent++);
    }
    if (sent === total) pair.producer.finalize(stream.slot);
    pair.settle();
    pair.take(stream, appetite);
    returnCredit();
    pair.advance(1);
  }
}

/** Everything that must be zero when nothing lives. */
function leftovers(pair: CorePair): number[] {
  return [pair.producer, pair.consumer].flatMap(({ metrics, port, peerBudget, table, batcher }) => [
    metrics.liveSlots,
    metrics.heldRecords,
    metrics.withheldRecords,
    metrics.stagedRecords,
    metrics.readerStalls,
    metrics.creditLost,
    port.buffersOut,
    (peerBudget as unknown as { used: number }).used,
    table.liveSlots,
    batcher.liveSlots,
  ]);
}

const NOTHING_LEFT = new Array<number>(20).fill(0);

describe('mux cores, two of them', () => {
  it('the whole stream of the conformance plan, byte for byte', () => {
    const pair = new CorePair();
    const receiver = pair.consumer.bind(0x0123_4567_89ab_cdefn, 77n);
    const slot = pair.producer.open(new FakeOwner(), 0x0123_4567_89ab_cdefn, 77n);
    const stream = { owner: new FakeOwner(), slot, receiver };
    const sent = (): string[] => pair.toConsumer.map(hex);
    expect(sent()).to.deep.equal([
      '02000001000000000000000100000000010000000000000000000000100123456789abcdef000000000000004d',
    ]);
    pair.settle();
    pair.producer.send(slot, Buffer.from('81a44974656da568656c6c6f', 'hex'));
    pair.producer.send(slot, Buffer.from('81a44974656d2a', 'hex'));
    pair.producer.turn();
    expect(sent()).to.deep.equal([
      '020000020000000000000001000000010000000000000000010000000c81a44974656da568656c6c6f0000000000000000020000000781a44974656d2a',
    ]);
    pair.settle();
    pair.take(stream, 2);
    pair.consumer.table.visitDrained();
    pair.consumer.turn();
    expect(pair.toProducer).to.have.length(0);
    pair.consumer.advance(1);
    expect(pair.toProducer.map(hex)).to.deep.equal([
      '020000010000000000000007000000000300000000000000000000000400000002',
    ]);
    pair.settle();
    pair.producer.send(slot, HEARTBEAT_BYTES);
    pair.producer.turn();
    expect(sent()).to.deep.equal(['020000010000000000000001000000020000000000000000030000000aa9486561727462656174']);
    pair.settle();
    pair.producer.finalize(slot);
    pair.producer.turn();
    expect(sent()).to.deep.equal([
      '020000020000000000000001000000030000000000000000040000000aa946696e616c697a65640200000000000000050000000100',
    ]);
  });

  it('AC-11 with a window of 4 all 200 items pass although the producer must stop every window', () => {
    const pair = new CorePair();
    const stream = pair.stream({ limit: 4 });
    run(pair, stream, 200, 100, () => pair.consumer.table.sweep());
    expect(texts(stream)).to.deep.equal([...upTo(200), 'Finalized']);
    expect(stream.receiver.maxBuffered).to.be.at.most(5);
    expect(pair.producer.metrics.creditExhausted).to.be.above(10);
    expect(leftovers(pair)).to.deep.equal(NOTHING_LEFT);
  });

  it('AC-12 credit comes back from draining alone, without a sweep', () => {
    const pair = new CorePair();
    const stream = pair.stream({ limit: 4 });
    run(pair, stream, 200, 3, () => pair.consumer.table.visitDrained());
    expect(texts(stream)).to.deep.equal([...upTo(200), 'Finalized']);
    expect(leftovers(pair)).to.deep.equal(NOTHING_LEFT);
  });

  it('AC-14 AC-33 sweep, doorbell and arrivals together never overspend the window', () => {
    const pair = new CorePair();
    const stream = pair.stream({ limit: 4 });
    let turn = 0;
    run(pair, stream, 500, 2, () => {
      turn += 1;
      if (turn % 2 === 0) pair.consumer.table.visitDrained();
      if (turn % 3 === 0) pair.consumer.table.sweep();
    });
    expect(texts(stream)).to.deep.equal([...upTo(500), 'Finalized']);
    expect(stream.receiver.maxBuffered).to.be.at.most(5);
    expect(leftovers(pair)).to.deep.equal(NOTHING_LEFT);
  });

  it('AC-26 a consumer that never polls holds its sender to the window; then all arrive in order', () => {
    const pair = new CorePair();
    const stream = pair.stream({ limit: 8 });
    for (let i = 0; i < 300; i++) pair.producer.sendItem(stream.slot, i);
    pair.advance(50);
    expect(stream.receiver.buffered).to.have.length(8);
    expect(pair.consumer.metrics.received.sum).to.equal(9);
    for (let ms = 0; stream.receiver.taken.length < 300 && ms < 1_000; ms++) {
      pair.take(stream, 100);
      pair.consumer.table.visitDrained();
      pair.advance(2);
    }
    expect(stream.receiver.taken.map(frameText)).to.deep.equal(upTo(300));
  });

  it('AO-04 an orphan hears that its channel is closed while a live stream to the same anchor goes on', () => {
    const pair = new CorePair();
    const live = pair.stream();
    const orphan = new FakeOwner();
    const slot = pair.producer.open(orphan, 0x8123_4567_89ab_cdefn, 4_711n);
    pair.settle();
    expect(orphan.events).to.deep.equal(['opened true', 'closed unknownSlot', 'retired discarded']);
    pair.producer.sendItem(slot, 1);
    pair.producer.sendItem(live.slot, 2);
    pair.settle();
    expect(texts(live)).to.deep.equal(['2']);
    expect(live.owner.events).to.deep.equal(['opened true']);
  });

  it('AT-07 a producer that vanishes gives Dropped, never TransportError', () => {
    const pair = new CorePair();
    const streams = [pair.stream(), pair.stream()];
    for (const stream of streams) pair.producer.sendItem(stream.slot, 0);
    pair.producer.batcher.inletClosed(streams[0]!.slot);
    pair.producer.batcher.abandon(streams[1]!.slot);
    pair.settle();
    expect(streams.map(texts)).to.deep.equal([
      ['0', 'Dropped'],
      ['0', 'Dropped'],
    ]);
    expect(leftovers(pair)).to.deep.equal(NOTHING_LEFT);
  });

  it('AT-09 eight items and a terminal make the round trip, then nothing is live on either side', () => {
    const pair = new CorePair();
    const stream = pair.stream();
    for (let i = 0; i < 8; i++) pair.producer.sendItem(stream.slot, i);
    pair.producer.finalize(stream.slot);
    pair.settle();
    expect(texts(stream)).to.deep.equal([...upTo(8), 'Finalized']);
    expect(stream.owner.events).to.deep.equal(['opened true', 'closed terminal', 'retired sent']);
    expect(leftovers(pair)).to.deep.equal(NOTHING_LEFT);
  });

  it('AT-13 a consumer that cancels closes its slot, and the sender hears it by session', () => {
    const pair = new CorePair();
    const stream = pair.stream({ limit: 2 });
    for (let i = 0; i < 9; i++) pair.producer.sendItem(stream.slot, i);
    pair.settle();
    pair.consumer.table.closeSlot(stream.receiver.slot!);
    pair.settle();
    expect(stream.owner.events).to.deep.equal(['opened true', 'cancelled', 'closed cancelled', 'retired discarded']);
    expect(leftovers(pair)).to.deep.equal(NOTHING_LEFT);
  });

  it('a stop reaches the sender and the rest of its output still arrives', () => {
    const pair = new CorePair();
    const stream = pair.stream();
    pair.producer.sendItem(stream.slot, 0);
    pair.settle();
    pair.consumer.table.requestStop(stream.receiver.slot!);
    pair.settle();
    expect(stream.owner.events).to.deep.equal(['opened true', 'stopped']);
    pair.producer.sendItem(stream.slot, 1);
    pair.producer.finalize(stream.slot);
    pair.settle();
    expect(texts(stream)).to.deep.equal(['0', '1', 'Finalized']);
  });

  it('AS-07 after an epoch death the readers get Dropped with the first batch of the new epoch', () => {
    const pair = new CorePair();
    const old = [pair.stream(), pair.stream()];
    for (const stream of old) pair.producer.sendItem(stream.slot, 0);
    pair.settle();
    pair.producer.batcher.epochDeath('health');
    pair.settle();
    expect(old.map((stream) => stream.receiver.terminals)).to.deep.equal([0, 0]);
    const fresh = pair.stream();
    pair.producer.sendItem(fresh.slot, 5);
    pair.settle();
    expect(old.map(texts)).to.deep.equal([
      ['0', 'Dropped'],
      ['0', 'Dropped'],
    ]);
    expect(texts(fresh)).to.deep.equal(['5']);
    expect(pair.consumer.table.liveSlots).to.equal(1);
  });

  it('a lost batch stops only the streams whose records it carried', () => {
    const pair = new CorePair();
    const [hurt, well] = [pair.stream({ limit: 4 }), pair.stream({ limit: 4 })];
    pair.settle();
    pair.producer.sendItem(hurt!.slot, 0);
    pair.producer.turn();
    pair.toConsumer.length = 0;
    for (let i = 1; i < 4; i++) {
      pair.producer.sendItem(hurt!.slot, i);
      pair.producer.sendItem(well!.slot, i);
    }
    pair.producer.send(well!.slot, FINALIZED_BYTES);
    pair.settle();
    expect(texts(hurt!)).to.deep.equal([]);
    expect(texts(well!)).to.deep.equal(['1', '2', '3', 'Finalized']);
    expect([pair.consumer.metrics.batchSeqGaps, pair.consumer.metrics.heldRecords]).to.deep.equal([1, 3]);
    expect(pair.producer.metrics.epochDeaths).to.equal(0);
  });

  it('both directions share one lane: credit for one stream rides with the data of another', () => {
    const pair = new CorePair();
    const there = pair.stream({ limit: 4 });
    const receiver = pair.producer.bind(3n, 8n);
    const back = pair.consumer.open(new FakeOwner(), 3n, 8n, 4);
    for (let i = 0; i < 3; i++) pair.producer.sendItem(there.slot, i);
    pair.settle();
    pair.take(there, 3);
    pair.consumer.table.visitDrained();
    pair.consumer.sendItem(back, 70);
    pair.consumer.turn();
    expect(pair.toProducer).to.have.length(1);
    pair.settle();
    expect(there.slot.credit).to.equal(4);
    expect(receiver.frames.map(frameText)).to.deep.equal(['70']);
  });
});
