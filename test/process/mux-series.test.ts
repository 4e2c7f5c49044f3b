// Every series that the mux must have, and every reason for which it drops a record, each moved by its real cause: bytes of a
// foreign peer, streams between nodes, and sends that find no room.

import { expect } from 'chai';
import { Registry } from 'prom-client';
import { StreamAnchorHandle, type Velo } from '../../lib/index.js';
import { registerMetrics } from '../../lib/metrics/register.js';
import { CLOSE_TERMINAL_SENT } from '../../lib/wire/batch.js';
import { ITEM_PREFIX } from '../../lib/wire/frame.js';
import { failure, openStream, pause, range, readAll, streamSuite, take, until } from '../support/nodes.js';
import { Scrape } from '../support/scrape.js';
import { accept, dataRecord, openRecord, WirePeer } from '../support/wire-peer.js';

const DROPPED = 'velo_streaming_mux_records_dropped_total';
const WAIT = 'velo_messenger_ordered_lane_wait_seconds';
const SLOT = 0x100;
const ITEM = Uint8Array.of(...ITEM_PREFIX, 1);

/** The series that a mux has at the least, and their labels' values. */
const REQUIRED: readonly (readonly [name: string, label?: string, ...values: string[]])[] = [
  ['velo_streaming_mux_batches_total', 'direction', 'sent', 'received'],
  ['velo_streaming_mux_records_per_batch_count', 'direction', 'sent', 'received'],
  ['velo_streaming_mux_live_slots'],
  ['velo_streaming_mux_reader_stall_total'],
  ['velo_streaming_mux_generation_mismatch_total'],
  [
    DROPPED,
    'reason',
    ...['stale_epoch', 'lane_mismatch', 'slot_collision', 'unknown_slot'],
    ...['closed_slot', 'duplicate', 'generation', 'stale_singleton', 'withheld_overflow'],
  ],
  ['velo_streaming_mux_rendezvous_singletons_total'],
  ['velo_streaming_mux_held_records'],
  ['velo_streaming_mux_withheld_records'],
  ['velo_streaming_mux_staged_records'],
  ['velo_streaming_mux_control_refused_total'],
  ['velo_streaming_mux_hold_overflow_total'],
  ['velo_streaming_mux_epoch_deaths_total'],
  ['velo_streaming_mux_credit_reposted_total'],
  ['velo_streaming_mux_credit_lost_total'],
  ['velo_streaming_mux_batch_seq_gaps_total'],
  ['velo_streaming_mux_drain_visits_total'],
  [
    'velo_streaming_mux_records_sent_total',
    'record_type',
    ...['data', 'open_slot', 'close_slot', 'credit_update', 'slot_heartbeat', 'lifecycle'],
  ],
  ['velo_streaming_mux_batcher_wakes_total', 'source', 'open', 'control', 'frame', 'inlet_closed', 'linger'],
  ['velo_streaming_slot_credit_exhausted_total'],
  ['velo_streaming_unclaimed_bind_reaped_total'],
  ['velo_streaming_heartbeat_watchdog_firings_total'],
  ['velo_streaming_producer_send_backpressure_total'],
  ['velo_streaming_backpressure_total', 'transport_scheme', 'messenger-mux-v2', 'velo'],
];

function registryOf(node: Velo): Registry {
  const registry = new Registry();
  registerMetrics(node, registry);
  return registry;
}

/** Scrapes until a condition holds: what lanes count, they publish a moment later. */
async function scraped(registry: Registry, what: string, holds: (scrape: Scrape) => boolean): Promise<Scrape> {
  for (let i = 0; i < 2_000; i += 1) {
    const scrape = await Scrape.of(registry);
    if (holds(scrape)) return scrape;
    await pause(5);
  }
  throw new Error(`gave up waiting until ${what}`);
}

streamSuite('series of the mux', (host, nodes) => {
  let peer: WirePeer;
  beforeEach(async () => {
    peer = await WirePeer.listen();
  });
  afterEach(() => peer.close());

  it('AV-07 every required series is there from the first scrape on, at zero', async () => {
    const node = await nodes.make({ host });
    const scrape = await Scrape.of(registryOf(node));
    for (const [name, label, ...values] of REQUIRED) {
      const samples = scrape.samples.filter((sample) => sample.name === name);
      if (label === undefined)
        expect(
          samples.map(({ labels }) => labels),
          name,
        ).to.deep.equal([{}]);
      else
        expect(
          samples.map(({ labels }) => labels[label]),
          name,
        ).to.have.members(values);
      for (const { value } of samples) expect(value, name).to.equal(0);
    }
  });

  it('AV-07 a starved, then silent stream moves the series that tell of it', async () => {
    const node = await nodes.make({ host });
    const registry = registryOf(node);
    node.registerPeer(peer.info);
    peer.faces(node);
    peer.onAttach = () => accept({ routingSessionId: 3n, initialCredit: 4, slotByteBudget: 8 });
    const sender = await node.attachAnchor<number>(StreamAnchorHandle.pack(peer.workerId, 3n, 'spsc'));
    const sent: number[] = [];
    while (sender.trySend(sent.length)) {
      sent.push(0);
      await pause(1);
    }
    const sending = sender.send(1).catch(() => {});
    const starved = await scraped(
      registry,
      'one slot starves and one send waits',
      (scrape) =>
        scrape.value('velo_streaming_producer_send_backpressure_total') === 1 &&
        scrape.value('velo_streaming_mux_withheld_records') > 0,
    );
    expect(starved.value('velo_streaming_slot_credit_exhausted_total')).to.equal(1);
    expect(starved.by('velo_streaming_backpressure_total', 'transport_scheme')).to.deep.equal({
      'messenger-mux-v2': 1,
      velo: 0,
    });
    expect(node.stats().sendsThatWaited).to.equal(1);
    await sender.close();
    await sending;

    await peer.hello();
    const anchor = node.createAnchor<number>({ heartbeatIntervalMs: 20 });
    await peer.open(anchor.handle, SLOT);
    const ended = failure('ERR_SENDER_DROPPED', take(anchor, 1));
    await scraped(
      registry,
      'the watchdog fires',
      (scrape) => scrape.value('velo_streaming_heartbeat_watchdog_firings_total') === 1,
    );
    await ended;
  });

  it('a sender within the node that finds its channel full counts under the scheme of no transport', async () => {
    const node = await nodes.make({ host });
    const registry = registryOf(node);
    const anchor = node.createAnchor<number>();
    const sender = await node.attachAnchor<number>(anchor.handle);
    const sending = (async () => {
      for (const i of range(0, 300)) await sender.send(i);
      await sender.finalize();
    })();
    await until('it waits', () => node.stats().sendsThatWaited === 1);
    expect((await readAll(anchor)).items).to.have.length(300);
    await sending;
    const scrape = await Scrape.of(registry);
    expect(scrape.by('velo_streaming_backpressure_total', 'transport_scheme').velo).to.be.at.least(1);
    expect(scrape.by('velo_streaming_anchor_operations_total', 'operation', 'outcome', 'transport_scheme')).to.include({
      'attach success velo': 1,
    });
  });

  it('operations on anchors are counted where the anchor is, by outcome and scheme; round trips where they are asked', async () => {
    const node = await nodes.make({ host });
    const registry = registryOf(node);
    await peer.faces(node).hello();
    const anchor = node.createAnchor<number>();
    expect((await peer.attach(anchor.handle)).ok).to.equal(true);
    expect((await peer.attach(anchor.handle)).ok).to.equal(false);
    const reference = new TextEncoder().encode(`{"handle":{"hi":${anchor.handle.worker},"lo":${anchor.handle.local}}}`);
    for (const handler of ['_anchor_detach', '_anchor_finalize', '_anchor_cancel']) await peer.call(handler, reference);
    node.registerPeer(peer.info);
    peer.onAttach = () => ({ ok: false, reason: 'no' });
    await failure('ERR_ATTACH_REFUSED', node.attachAnchor(StreamAnchorHandle.pack(peer.workerId, 3n, 'spsc')));
    peer.onAttach = () => accept({ routingSessionId: 3n });
    const sender = await node.attachAnchor(StreamAnchorHandle.pack(peer.workerId, 3n, 'spsc'));
    const scrape = await Scrape.of(registry);
    const labels = ['operation', 'outcome', 'transport_scheme'];
    const operations = scrape.by('velo_streaming_anchor_operations_total', ...labels);
    expect(operations).to.deep.equal({
      'attach success messenger-mux-v2': 1,
      'attach error unknown': 1,
      'detach success velo': 1,
      'finalize success velo': 1,
      // The finalize had taken the anchor away.
      'cancel error velo': 1,
    });
    const durations = scrape.by('velo_streaming_anchor_operation_duration_seconds_count', ...labels);
    expect(durations).to.deep.equal(operations);
    const trips = scrape.by('velo_streaming_anchor_attach_rtt_seconds_count', 'outcome', 'transport_scheme');
    expect(trips).to.deep.equal({ 'error unknown': 1, 'success messenger-mux-v2': 1 });
    await sender.close();
  });

  it('AV-02 a batch is one sample of the ordered lane wait, however many records it has', async () => {
    const pair = await nodes.pair(host, { lanes: 2 }, { lanes: 2, flushPolicy: 'manual' });
    const registry = registryOf(pair.consumer);
    const { anchor, sender } = await openStream<number>(pair, { key: 1n });
    const lane = (await pair.producer.streams())[0]!.lane;
    const handler = lane === 0 ? '_stream_batch' : `_stream_batch.${lane}`;
    const samples = (scrape: Scrape) => scrape.by(`${WAIT}_count`, 'handler')[handler] ?? 0;
    const records = (scrape: Scrape) =>
      scrape.value('velo_streaming_mux_records_per_batch_sum', { direction: 'received' });
    const opened = await scraped(
      registry,
      'the opening came',
      (scrape) => samples(scrape) === 1 && records(scrape) === 1,
    );
    expect(Object.keys(opened.by(`${WAIT}_count`, 'handler')), 'a lane without a batch is no series').to.deep.equal([
      handler,
    ]);
    for (const i of range(0, 8)) expect(sender.trySend(i)).to.equal(true);
    pair.producer.flushBatch();
    // Batches and records are published with the turn, waits a moment later.
    const flushed = await scraped(
      registry,
      'the flush came',
      (scrape) => records(scrape) === 9 && samples(scrape) >= 2,
    );
    expect(samples(flushed)).to.equal(2);
    expect(flushed.by('velo_streaming_mux_batches_total', 'direction').received).to.equal(2);
    expect(flushed.value(`${WAIT}_bucket`, { handler, le: '+Inf' })).to.equal(2);
    expect(flushed.value(`${WAIT}_sum`, { handler })).to.be.at.least(0);
    await sender.finalize();
    pair.producer.flushBatch();
    expect((await readAll(anchor)).items).to.have.length(8);
    const done = await scraped(registry, 'the last batch came', (scrape) => samples(scrape) >= 3);
    expect(samples(done)).to.equal(done.by('velo_streaming_mux_batches_total', 'direction').received);
  });

  it('each reason for which a received record is dropped has its cause, and moves alone', async () => {
    const node = await nodes.make({ host });
    const registry = registryOf(node);
    await peer.faces(node).hello();
    const anchor = node.createAnchor<number>();
    const other = node.createAnchor<number>();
    await peer.open(anchor.handle, SLOT, { epoch: 5n });
    const answer = await peer.attach(other.handle);
    const session = answer.ok ? answer.value.routingSessionId : 0n;
    const epoch = 5n;
    const causes: readonly [reason: string, act: () => Promise<void>][] = [
      ['stale_epoch', () => peer.batch(0, (batch) => dataRecord(batch, SLOT, 1, ITEM), { epoch: 4n })],
      ['lane_mismatch', () => peer.batch(3, (batch) => dataRecord(batch, SLOT, 1, ITEM), { epoch, headerLane: 2 })],
      ['generation', () => peer.batch(0, (batch) => dataRecord(batch, SLOT + 1, 1, ITEM), { epoch })],
      ['closed_slot', () => peer.batch(0, (batch) => dataRecord(batch, 0x900, 1, ITEM), { epoch })],
      ['unknown_slot', () => peer.batch(0, (batch) => openRecord(batch, 0x900, 1n, 1n), { epoch })],
      // The slot's index is live under another generation.
      [
        'slot_collision',
        () => peer.batch(0, (batch) => openRecord(batch, SLOT + 1, other.handle.local, session), { epoch }),
      ],
      [
        'duplicate',
        () =>
          peer.batch(
            0,
            (batch) => {
              dataRecord(batch, SLOT, 1, ITEM);
              dataRecord(batch, SLOT, 1, ITEM);
            },
            { epoch },
          ),
      ],
    ];
    const expected: Record<string, number> = Object.fromEntries(
      REQUIRED.find(([name]) => name === DROPPED)!
        .slice(2)
        .map((reason) => [reason!, 0]),
    );
    for (const [reason, act] of causes) {
      await act();
      expected[reason]! += 1;
      const scrape = await scraped(registry, `${reason} moves`, (now) => now.by(DROPPED, 'reason')[reason] === 1);
      expect(scrape.by(DROPPED, 'reason'), reason).to.deep.equal(expected);
    }
    expect(node.stats()).to.include({ generationMismatch: 1, droppedGeneration: 1 });
    expect(await take(anchor, 1)).to.deep.equal([1]);
    await peer.batch(0, (batch) => batch.closeSlot(SLOT, 2, CLOSE_TERMINAL_SENT), { epoch });
    anchor.controller.cancel();
    other.controller.cancel();
  });

  it('streams of the mux that flow leave every backpressure counter alone', async () => {
    const pair = await nodes.pair(host);
    const { anchor, sender } = await openStream<number>(pair);
    const reading = readAll(anchor);
    for (const i of range(0, 16)) {
      await sender.send(i);
      await pause(1);
    }
    await sender.finalize();
    expect((await reading).items).to.have.length(16);
    for (const node of [pair.consumer, pair.producer]) {
      const scrape = await Scrape.of(registryOf(node));
      for (const name of ['reader_pump_backpressure', 'server_pump_backpressure', 'producer_send_backpressure'])
        expect(scrape.value(`velo_streaming_${name}_total`), name).to.equal(0);
      expect(scrape.by('velo_streaming_backpressure_total', 'transport_scheme')).to.deep.equal({
        'messenger-mux-v2': 0,
        velo: 0,
      });
    }
  });
});
