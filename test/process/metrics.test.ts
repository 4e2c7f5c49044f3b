// What a scrape of real nodes shows after known traffic.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { Registry } from 'prom-client';
import { amHandler, type Discovery, StreamAnchorHandle, typedUnary, unaryHandler, type Velo } from '../../lib/index.js';
import { registerMetrics } from '../../lib/metrics/register.js';
import { BATCH_HEADER_LEN, OPEN_SLOT_BODY_LEN, RECORD_HEADER_LEN } from '../../lib/wire/batch.js';
import { RESPONSE_FIXED_LEN, requestHeaderLength } from '../../lib/wire/envelope.js';
import { encodeHello } from '../../lib/wire/hello.js';
import { BATCH_HANDLERS, HANDLER_ANCHOR_ATTACH, HANDLER_HELLO } from '../../lib/wire/names.js';
import { failure, openStream, pause, range, readAll, streamSuite, until } from '../support/nodes.js';
import { Scrape } from '../support/scrape.js';
import { directoryPerTest } from '../support/socket-files.js';
import { WirePeer } from '../support/wire-peer.js';

const text = (value: string) => new TextEncoder().encode(value);
const HANDLER_EDGES = [...range(0, 16).map((k) => 0.0005 * 2 ** k), Infinity];
const EGRESS_EDGES = [0.0005, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, Infinity];
const MESSAGE_TYPES = ['message', 'response', 'ack', 'event', 'shutting_down'];

/** Every family, with its type and label names, as the reference has them. */
const FAMILIES: Readonly<Record<string, readonly [type: string, ...labels: string[]]>> = {
  velo_transport_frames_total: ['counter', 'direction', 'message_type', 'outcome', 'transport'],
  velo_transport_frame_bytes_total: ['counter', 'direction', 'message_type', 'transport'],
  velo_transport_frames_written_total: ['counter', 'message_type', 'transport'],
  velo_transport_egress_queue_wait_seconds: ['histogram', 'transport'],
  velo_transport_write_duration_seconds: ['histogram', 'transport'],
  velo_transport_rejections_total: ['counter', 'reason', 'transport'],
  velo_transport_send_backpressure_total: ['counter', 'transport'],
  velo_transport_registered_peers: ['gauge', 'transport'],
  velo_transport_active_connections: ['gauge', 'transport'],
  velo_messenger_handler_requests_total: ['counter', 'handler', 'outcome', 'response_type'],
  velo_messenger_handler_duration_seconds: ['histogram', 'handler', 'outcome', 'response_type'],
  velo_messenger_handler_request_bytes_total: ['counter', 'handler', 'response_type'],
  velo_messenger_handler_response_bytes_total: ['counter', 'handler', 'outcome', 'response_type'],
  velo_messenger_handler_in_flight: ['gauge', 'handler'],
  velo_messenger_ordered_lanes: ['gauge', 'handler'],
  velo_messenger_ordered_lane_depth: ['gauge', 'handler'],
  velo_messenger_ordered_lane_wait_seconds: ['histogram', 'handler'],
  velo_messenger_ordered_lanes_created_total: ['counter', 'handler'],
  velo_messenger_dispatch_failures_total: ['counter', 'reason', 'stage'],
  velo_messenger_client_resolution_total: ['counter', 'outcome', 'path'],
  velo_messenger_pending_responses: ['gauge'],
  velo_messenger_response_slot_exhausted_total: ['counter'],
  velo_messenger_inbound_dequeued_total: ['counter'],
  velo_rendezvous_operations_total: ['counter', 'operation', 'outcome'],
  velo_rendezvous_operation_duration_seconds: ['histogram', 'operation', 'outcome'],
  velo_rendezvous_bytes_total: ['counter', 'operation'],
  velo_rendezvous_active_slots: ['gauge'],
  velo_streaming_anchor_operations_total: ['counter', 'operation', 'outcome', 'transport_scheme'],
  velo_streaming_anchor_operation_duration_seconds: ['histogram', 'operation', 'outcome', 'transport_scheme'],
  velo_streaming_anchor_attach_rtt_seconds: ['histogram', 'outcome', 'transport_scheme'],
  velo_streaming_active_anchors: ['gauge'],
  velo_streaming_backpressure_total: ['counter', 'transport_scheme'],
  velo_streaming_reader_pump_backpressure_total: ['counter'],
  velo_streaming_server_pump_backpressure_total: ['counter'],
  velo_streaming_producer_send_backpressure_total: ['counter'],
  velo_streaming_heartbeat_watchdog_firings_total: ['counter'],
  velo_streaming_unclaimed_bind_reaped_total: ['counter'],
  velo_streaming_egress_flushes_total: ['counter'],
  velo_streaming_frames_written_total: ['counter'],
  velo_streaming_slot_credit_exhausted_total: ['counter'],
  velo_streaming_mux_live_slots: ['gauge'],
  velo_streaming_mux_reader_stall_total: ['counter'],
  velo_streaming_mux_generation_mismatch_total: ['counter'],
  velo_streaming_mux_records_dropped_total: ['counter', 'reason'],
  velo_streaming_mux_batches_total: ['counter', 'direction'],
  velo_streaming_mux_records_per_batch: ['histogram', 'direction'],
  velo_streaming_mux_records_sent_total: ['counter', 'record_type'],
  velo_streaming_mux_rendezvous_singletons_total: ['counter'],
  velo_streaming_mux_held_records: ['gauge'],
  velo_streaming_mux_withheld_records: ['gauge'],
  velo_streaming_mux_staged_records: ['gauge'],
  velo_streaming_mux_control_refused_total: ['counter'],
  velo_streaming_mux_hold_overflow_total: ['counter'],
  velo_streaming_mux_epoch_deaths_total: ['counter'],
  velo_streaming_mux_credit_reposted_total: ['counter'],
  velo_streaming_mux_credit_lost_total: ['counter'],
  velo_streaming_mux_batch_seq_gaps_total: ['counter'],
  velo_streaming_mux_drain_visits_total: ['counter'],
  velo_streaming_mux_batcher_wakes_total: ['counter', 'source'],
  velomux_lane_dropped_total: ['counter', 'reason'],
  velomux_diagnostics_dropped_total: ['counter'],
  velomux_spoof_suspected_total: ['counter'],
  velomux_lane_restarts_total: ['counter'],
};

/** A registry with one node in it. */
function registryOf(node: Velo): Registry {
  const registry = new Registry();
  registerMetrics(node, registry);
  return registry;
}

/** Scrapes again until a condition holds: what lanes count, they publish a moment later. */
async function scraped(registry: Registry, what: string, holds: (scrape: Scrape) => boolean): Promise<Scrape> {
  for (let i = 0; i < 1_000; i += 1) {
    const scrape = await Scrape.of(registry);
    if (holds(scrape)) return scrape;
    await pause(5);
  }
  throw new Error(`gave up waiting until ${what}`);
}

const frames = (scrape: Scrape) => scrape.by('velo_transport_frames_total', 'direction', 'message_type');
const bytes = (scrape: Scrape) => scrape.by('velo_transport_frame_bytes_total', 'direction', 'message_type');
const messages = (scrape: Scrape, direction: string) => frames(scrape)[`${direction} message`]!;
const answered = (scrape: Scrape) => frames(scrape)['inbound response']! + frames(scrape)['inbound ack']!;
const answering = (scrape: Scrape) => frames(scrape)['outbound response']! + frames(scrape)['outbound ack']!;
const everyFrameWritten = (scrape: Scrape) => {
  const written = scrape.by('velo_transport_frames_written_total', 'message_type');
  return MESSAGE_TYPES.every((type) => written[type] === frames(scrape)[`outbound ${type}`]);
};

streamSuite('metrics of a node', (host, nodes) => {
  const directory = directoryPerTest();

  it('every family is there, with the type, labels and buckets of the reference', async () => {
    const { consumer, producer } = await nodes.pair(host);
    consumer.registerHandler(
      'ordered',
      amHandler(() => {}, { ordered: true }),
    );
    await producer.sync(consumer.peerInfo, 'ordered');
    // An anchor of its own, and one of the other node: operations here, and a round trip.
    const streams = [
      await openStream<number>({ consumer, producer }),
      await openStream<number>({ consumer: producer, producer: consumer }),
    ];
    const scrape = await Scrape.of(registryOf(consumer));
    for (const { anchor } of streams) anchor.controller.cancel();
    expect([...scrape.types.keys()]).to.have.members(Object.keys(FAMILIES));
    for (const [name, [type, ...labels]] of Object.entries(FAMILIES)) {
      expect(scrape.types.get(name), name).to.equal(type);
      expect(scrape.labelNames(name), name).to.deep.equal(labels);
    }
    expect(scrape.edges('velo_messenger_handler_duration_seconds')).to.deep.equal(HANDLER_EDGES);
    expect(scrape.edges('velo_messenger_ordered_lane_wait_seconds')).to.deep.equal(HANDLER_EDGES);
    expect(scrape.edges('velo_rendezvous_operation_duration_seconds')).to.deep.equal([
      ...range(0, 20).map((k) => 0.0005 * 2 ** k),
      Infinity,
    ]);
    expect(scrape.edges('velo_transport_egress_queue_wait_seconds')).to.deep.equal(EGRESS_EDGES);
    expect(scrape.edges('velo_transport_write_duration_seconds')).to.deep.equal(EGRESS_EDGES);
    expect(scrape.edges('velo_streaming_anchor_operation_duration_seconds')).to.deep.equal(HANDLER_EDGES);
    expect(scrape.edges('velo_streaming_anchor_attach_rtt_seconds')).to.deep.equal([
      ...[0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10],
      Infinity,
    ]);
    expect(scrape.edges('velo_streaming_mux_records_per_batch')).to.deep.equal([
      ...range(0, 12).map((k) => 2 ** k),
      Infinity,
    ]);
    expect(Object.keys(scrape.by('velo_streaming_mux_records_dropped_total', 'reason'))).to.have.members([
      ...['stale_epoch', 'generation', 'unknown_slot', 'closed_slot'],
      ...['slot_collision', 'withheld_overflow', 'stale_singleton', 'duplicate', 'lane_mismatch'],
    ]);
    expect(Object.keys(scrape.by('velo_messenger_client_resolution_total', 'path', 'outcome'))).to.have.members([
      ...['direct success', 'handshake attempt', 'handshake success', 'handshake error'],
      ...['discovery success', 'discovery error', 'send error'],
    ]);
  });

  it('frames and bytes of messages are exact at both ends, by direction and type', async () => {
    const { consumer: server, producer: client } = await nodes.pair(host);
    server.registerHandler(
      'echo',
      unaryHandler((payload) => payload),
    );
    server.registerHandler(
      'note',
      amHandler(() => {}),
    );
    const registries = [registryOf(client), registryOf(server)] as const;
    for (const size of [0, 5, 100]) await client.unary(server.peerInfo, 'echo', new Uint8Array(size));
    await client.sync(server.peerInfo, 'note', new Uint8Array(7));
    await client.send(server.peerInfo, 'note', new Uint8Array(8));

    const sent = [
      requestHeaderLength(HANDLER_HELLO.length, 0) + encodeHello(client.peerInfo).length,
      ...[0, 5, 100].map((size) => requestHeaderLength(4, 0) + size),
      ...[7, 8].map((size) => requestHeaderLength(4, 0) + size),
    ];
    const atClient = await scraped(
      registries[0],
      'the client wrote all and read all answers',
      (scrape) => messages(scrape, 'outbound') === sent.length && answered(scrape) === 5 && everyFrameWritten(scrape),
    );
    const atServer = await scraped(
      registries[1],
      'the server read and wrote all',
      (scrape) => messages(scrape, 'inbound') === sent.length && answering(scrape) === 5 && everyFrameWritten(scrape),
    );
    const outbound = { 'outbound message': 6, 'outbound response': 0, 'outbound ack': 0 };
    expect(frames(atClient)).to.include({ ...outbound, 'inbound message': 0, 'inbound response': 4, 'inbound ack': 1 });
    expect(frames(atServer)).to.include({ 'inbound message': 6, 'outbound message': 0, 'outbound response': 4 });
    expect(frames(atServer)).to.include({ 'outbound ack': 1, 'inbound event': 0, 'outbound shutting_down': 0 });
    const total = sent.reduce((sum, size) => sum + size);
    expect(bytes(atClient)['outbound message']).to.equal(total);
    expect(bytes(atServer)['inbound message']).to.equal(total);
    expect(bytes(atServer)['outbound response']).to.equal(bytes(atClient)['inbound response']);
    expect(bytes(atServer)['outbound ack']).to.equal(bytes(atClient)['inbound ack']);
    const answers = bytes(atClient)['inbound response']! - 3 * RESPONSE_FIXED_LEN - 105;
    expect(answers, 'the list of handlers, and its header').to.be.greaterThan(RESPONSE_FIXED_LEN);

    for (const scrape of [atClient, atServer]) {
      expect(scrape.value('velo_transport_registered_peers', { transport: 'tcp' })).to.equal(1);
      expect(scrape.value('velo_transport_active_connections', { transport: 'tcp' })).to.equal(1);
      const writes = scrape.value('velo_transport_write_duration_seconds_count', { transport: 'tcp' });
      expect(writes).to.be.within(1, 6);
      expect(scrape.value('velo_transport_write_duration_seconds_sum', { transport: 'tcp' })).to.be.greaterThan(0);
      expect(scrape.value('velo_transport_egress_queue_wait_seconds_count', { transport: 'tcp' })).to.be.within(
        1,
        writes,
      );
      expect(Object.values(scrape.by('velo_transport_rejections_total', 'reason')), 'ten reasons').to.deep.equal(
        new Array(10).fill(0),
      );
    }
    const resolutions = { 'direct success': 4, 'handshake attempt': 1, 'handshake success': 1, 'handshake error': 0 };
    expect(atClient.by('velo_messenger_client_resolution_total', 'path', 'outcome')).to.include(resolutions);
    const dequeued = await scraped(
      registries[1],
      'nothing waits',
      (scrape) => scrape.value('velo_messenger_inbound_dequeued_total') === 6,
    );
    expect(messages(dequeued, 'inbound')).to.equal(6);
  });

  it('handlers are counted by name, response type and outcome; what the system serves is not', async () => {
    const { consumer: server, producer: client } = await nodes.pair(host);
    const registry = registryOf(server);
    server.registerHandler(
      'am',
      amHandler((payload) => {
        if (payload.length === 9) throw new Error('nine');
      }),
    );
    server.registerHandler(
      'unary',
      unaryHandler((payload) => {
        if (payload.length === 9) throw 0;
        return payload;
      }),
    );
    server.registerHandler(
      'typed',
      typedUnary((value) => (value === 1 ? () => {} : { value })),
    );
    const to = server.peerInfo;
    await client.send(to, 'am', new Uint8Array(1));
    await client.sync(to, 'am', new Uint8Array(2));
    await failure('ERR_HANDLER_FAILED', client.sync(to, 'am', new Uint8Array(9)));
    await failure('ERR_HANDLER_FAILED', client.unary(to, 'am', new Uint8Array(3)));
    await client.unary(to, 'unary', new Uint8Array(40));
    await client.send(to, 'unary', new Uint8Array(50));
    await failure('ERR_HANDLER_FAILED', client.unary(to, 'unary', new Uint8Array(9)));
    await client.typedUnary(to, 'typed', 22);
    await failure('ERR_HANDLER_FAILED', client.unary(to, 'typed', text('{')));
    await failure('ERR_UNKNOWN_HANDLER', client.unary(to, 'none'));
    const scrape = await scraped(
      registry,
      'every handler is done',
      (now) =>
        now.value('velo_messenger_handler_request_bytes_total', {
          handler: 'unary',
          response_type: 'fire_and_forget',
        }) === 50,
    );
    const runs = scrape.by('velo_messenger_handler_requests_total', 'handler', 'response_type', 'outcome');
    const some = Object.fromEntries(Object.entries(runs).filter(([, count]) => count > 0));
    expect(some).to.deep.equal({
      'am fire_and_forget success': 1,
      'am ack_nack success': 1,
      'am ack_nack error': 1,
      'am unary error': 1,
      'unary unary success': 1,
      'unary unary error': 1,
      'unary fire_and_forget error': 1,
      'typed unary success': 1,
      'typed unary error': 1,
    });
    expect(Object.keys(runs)).to.have.length(3 * 3 * 2);
    const durations = scrape.by('velo_messenger_handler_duration_seconds_count', 'handler', 'response_type', 'outcome');
    expect(durations).to.deep.equal(runs);
    expect(scrape.by('velo_messenger_handler_request_bytes_total', 'handler', 'response_type')).to.include({
      'am fire_and_forget': 1,
      'am ack_nack': 11,
      'am unary': 3,
      'unary unary': 49,
      'typed unary': 3,
      'typed ack_nack': 0,
    });
    expect(scrape.by('velo_messenger_handler_response_bytes_total', 'handler', 'response_type', 'outcome')).to.include({
      'am ack_nack success': 0,
      'am ack_nack error': 4,
      'am unary error': "Unary message incorrectly routed to AM handler 'am'".length,
      'unary unary success': 40,
      'unary unary error': 'Handler failed: handler panicked'.length,
      'typed unary success': '{"value":22}'.length,
    });
    expect(Object.values(scrape.by('velo_messenger_handler_in_flight', 'handler'))).to.deep.equal([0, 0, 0]);
    const failures = scrape.by('velo_messenger_dispatch_failures_total', 'stage', 'reason');
    expect(Object.fromEntries(Object.entries(failures).filter(([, count]) => count > 0))).to.deep.equal({
      'dispatch handler_panic': 1,
      'deserialize typed_input': 1,
    });
    expect(scrape.by('velo_messenger_handler_in_flight', 'handler')).to.have.keys('am', 'unary', 'typed');
  });

  it('a running handler, its ordered lane, and the call that waits for it are gauges', async () => {
    const { consumer: server, producer: client } = await nodes.pair(host);
    const [atServer, atClient] = [registryOf(server), registryOf(client)];
    let release = (): void => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    server.registerHandler(
      'slow',
      amHandler(() => gate, { ordered: true, maxQueueDepth: 2, overflow: 'reject' }),
    );
    const calls = [client.sync(server.peerInfo, 'slow'), client.sync(server.peerInfo, 'slow')];
    const running = await scraped(
      atServer,
      'one runs and one waits',
      (scrape) => scrape.by('velo_messenger_ordered_lane_depth', 'handler').slow === 2,
    );
    expect(running.by('velo_messenger_handler_in_flight', 'handler')).to.deep.equal({ slow: 1 });
    expect(running.by('velo_messenger_ordered_lanes', 'handler')).to.deep.equal({ slow: 1 });
    expect((await Scrape.of(atClient)).value('velo_messenger_pending_responses')).to.equal(2);
    const shed = await failure('ERR_HANDLER_FAILED', client.sync(server.peerInfo, 'slow'));
    expect(shed.message).to.include('ordered lane queue full');
    release();
    await Promise.all(calls);
    const done = await Scrape.of(atServer);
    expect(done.by('velo_messenger_ordered_lane_depth', 'handler')).to.deep.equal({ slow: 0 });
    expect(done.by('velo_messenger_handler_in_flight', 'handler')).to.deep.equal({ slow: 0 });
    expect(done.by('velo_messenger_ordered_lanes_created_total', 'handler')).to.deep.equal({ slow: 1 });
    expect(done.by('velo_messenger_ordered_lane_wait_seconds_count', 'handler')).to.deep.equal({ slow: 2 });
    expect(done.by('velo_messenger_dispatch_failures_total', 'stage', 'reason')['dispatch ordered_lane_shed']).to.equal(
      1,
    );
    expect((await Scrape.of(atClient)).value('velo_messenger_pending_responses')).to.equal(0);
  });

  it('AV-03 batches and records per batch: what a node packs and what it receives stand apart', async () => {
    const pair = await nodes.pair(host, {}, { flushPolicy: 'manual' });
    const registries = [registryOf(pair.producer), registryOf(pair.consumer)] as const;
    const { anchor, sender } = await openStream<number>(pair);
    for (const i of range(0, 7)) expect(sender.trySend(i)).to.equal(true);
    pair.producer.flushBatch();
    expect((await anchor[Symbol.asyncIterator]().next()).value).to.equal(0);
    const name = 'velo_streaming_mux_records_per_batch';
    // Hello, attach, and the batches: frames are published a moment after the batches are.
    const wrote = (scrape: Scrape) => messages(scrape, 'outbound') >= 4 && everyFrameWritten(scrape);
    const atProducer = await scraped(
      registries[0],
      'both batches are written',
      (scrape) => scrape.value(`${name}_count`, { direction: 'sent' }) === 2 && wrote(scrape),
    );
    // What came back is credit, in batches of its own; a lane publishes its numbers a moment after it wrote.
    const back = atProducer.by('velo_streaming_mux_batches_total', 'direction').received!;
    const atConsumer = await scraped(
      registries[1],
      'both batches are read, and what came back is counted',
      (scrape) =>
        scrape.value(`${name}_count`, { direction: 'received' }) === 2 &&
        scrape.by('velo_streaming_mux_batches_total', 'direction').sent! >= back,
    );
    // An OpenSlot by itself, then the pass.
    const bucketsOf = (scrape: Scrape, direction: string) =>
      range(0, 5).map((k) => scrape.value(`${name}_bucket`, { direction, le: String(2 ** k) }));
    expect(atProducer.by('velo_streaming_mux_batches_total', 'direction').sent).to.equal(2);
    expect(atProducer.value(`${name}_sum`, { direction: 'sent' })).to.equal(8);
    expect(bucketsOf(atProducer, 'sent')).to.deep.equal([1, 1, 1, 2, 2]);
    expect(atConsumer.by('velo_streaming_mux_batches_total', 'direction').received).to.equal(2);
    expect(atConsumer.value(`${name}_sum`, { direction: 'received' })).to.equal(8);
    expect(bucketsOf(atConsumer, 'received')).to.deep.equal([1, 1, 1, 2, 2]);
    expect(atConsumer.by('velo_streaming_mux_records_sent_total', 'record_type').data).to.equal(0);
    expect(atProducer.by('velo_streaming_mux_records_sent_total', 'record_type')).to.include({ data: 7, open_slot: 1 });
    const live = [atProducer, atConsumer].map((scrape) => scrape.value('velo_streaming_mux_live_slots'));
    expect(live).to.deep.equal([1, 1]);
    expect(atConsumer.value('velo_streaming_active_anchors')).to.equal(1);

    const opening = BATCH_HEADER_LEN + RECORD_HEADER_LEN + OPEN_SLOT_BODY_LEN;
    const batchHeader = requestHeaderLength(BATCH_HANDLERS[0]!.length, 0);
    const controlNames = HANDLER_HELLO.length + HANDLER_ANCHOR_ATTACH.length;
    expect(bytes(atProducer)['outbound message']).to.be.greaterThan(2 * batchHeader + opening + controlNames);
    await sender.finalize();
    pair.producer.flushBatch();
    expect((await readAll(anchor)).error).to.equal(undefined);
    for (const registry of registries)
      await scraped(registry, 'no slot lives', (scrape) => scrape.value('velo_streaming_mux_live_slots') === 0);
  });

  it('two lanes, each with its connection, are one sum, and every gauge is zero after the close', async () => {
    const pair = await nodes.pair(host, { lanes: 2 }, { lanes: 2 });
    const registry = registryOf(pair.producer);
    const streams = nodes.keep(await Promise.all(range(0, 8).map((k) => openStream<number>(pair, { key: BigInt(k) }))));
    for (const { sender } of streams) await sender.send(1);
    const both = await scraped(
      registry,
      'all is written',
      (scrape) =>
        everyFrameWritten(scrape) &&
        scrape.value('velo_transport_active_connections', { transport: 'tcp' }) === 2 &&
        scrape.by('velo_streaming_mux_records_sent_total', 'record_type').data === 8,
    );
    expect(both.value('velo_streaming_mux_live_slots')).to.equal(8);
    expect(both.by('velo_streaming_mux_records_sent_total', 'record_type').open_slot).to.equal(8);
    await pair.producer.close();
    const closed = await Scrape.of(registry);
    const gauges = [...closed.types].filter(([, type]) => type === 'gauge').map(([name]) => name);
    for (const { name, value } of closed.samples)
      if (gauges.includes(name) && name !== 'velo_transport_registered_peers') expect(value, name).to.equal(0);
    expect(closed.by('velo_streaming_mux_records_sent_total', 'record_type').data).to.be.at.least(8);
  });

  it('what arrives and makes no sense is counted by reason', async () => {
    const { consumer: node } = await nodes.pair(host);
    const registry = registryOf(node);
    const peer = (await WirePeer.listen()).faces(node);
    await peer.write(text('this is no frame of any version'));
    const garbage = await scraped(
      registry,
      'the connection is closed',
      (scrape) => scrape.by('velo_transport_rejections_total', 'reason').decode_error === 1,
    );
    expect(messages(garbage, 'inbound')).to.equal(0);
    peer.hangUp();
    // Nobody knows this peer: its batch finds no table, and the answer to its call nobody to go to.
    await peer.batch(0, () => {});
    await peer.fire('nobody serves this', '');
    await scraped(registry, 'both are counted', (scrape) => {
      const failures = scrape.by('velo_messenger_dispatch_failures_total', 'stage', 'reason');
      const drops = scrape.by('velomux_lane_dropped_total', 'reason');
      return failures['dispatch unknown_handler'] === 1 && drops.unknown_peer === 1;
    });
    await peer.close();
  });

  it('a request that a draining node refuses was not accepted: it counts as rejected alone', async () => {
    const { consumer: node } = await nodes.pair(host);
    const registry = registryOf(node);
    node.beginDrain();
    const peer = (await WirePeer.listen()).faces(node);
    for (let i = 0; i < 3; i += 1) await peer.fire('x', 'refused');
    // Exempt: its table does not exist, but it came in.
    await peer.batch(0, () => {});
    const scrape = await scraped(
      registry,
      'all are counted',
      (now) =>
        now.by('velo_transport_rejections_total', 'reason').drain_rejected === 3 &&
        now.by('velomux_lane_dropped_total', 'reason').unknown_peer === 1 &&
        messages(now, 'inbound') > 0,
    );
    expect(messages(scrape, 'inbound')).to.equal(1);
    expect(bytes(scrape)['inbound message']).to.equal(
      requestHeaderLength(BATCH_HANDLERS[0]!.length, 0) + BATCH_HEADER_LEN,
    );
    expect(scrape.value('velo_messenger_inbound_dequeued_total')).to.equal(1);
    expect(frames(scrape)['outbound shutting_down'], 'echoes are not counted').to.equal(0);
    await peer.close();
  });

  it('a reply to nobody, and a peer that cannot be asked, are failures', async () => {
    const { consumer: node } = await nodes.pair(host);
    const registry = registryOf(node);
    node.registerHandler(
      'am',
      amHandler(() => {}),
    );
    node.registerHandler(
      'unary',
      unaryHandler(() => {}),
    );
    const stranger = (await WirePeer.listen()).faces(node);
    void stranger.call('am', undefined, 1);
    void stranger.call('am');
    void stranger.call('unary');
    await scraped(registry, 'three replies went nowhere', (scrape) => {
      const failures = scrape.by('velo_messenger_dispatch_failures_total', 'stage', 'reason');
      return (
        failures['response_send ack_nack'] === 1 &&
        failures['response_send unary_error'] === 1 &&
        failures['response_send unary'] === 1
      );
    });
    node.registerPeer(stranger.info);
    await stranger.close();
    await failure(['ERR_CONNECT_FAILED', 'ERR_CONNECTION_CLOSED'], node.send(stranger.workerId, 'x'));
    const scrape = await Scrape.of(registry);
    expect(scrape.by('velo_messenger_client_resolution_total', 'path', 'outcome')).to.include({
      'handshake attempt': 1,
      'handshake success': 0,
      'handshake error': 1,
      'send error': 0,
    });
    await scraped(
      registry,
      'its hello is lost',
      (now) => now.by('velo_transport_rejections_total', 'reason').send_error === 1,
    );
    expect(scrape.value('velo_transport_registered_peers', { transport: 'tcp' })).to.equal(2);
  });

  it('transports stand apart: what went over Unix sockets did not go over TCP', async () => {
    const { consumer: a, producer: b } = await nodes.pair(
      host,
      { udsPath: directory.at('a') },
      { udsPath: directory.at('b') },
    );
    const registry = registryOf(b);
    a.registerHandler(
      'note',
      amHandler(() => {}),
    );
    await b.sync(a.peerInfo, 'note');
    const name = 'velo_transport_frames_total';
    const scrape = await scraped(
      registry,
      'the hello, the call, and what came back',
      (now) => now.by(name, 'transport', 'direction', 'message_type')['uds inbound ack'] === 1,
    );
    expect(scrape.by(name, 'transport', 'direction', 'message_type')).to.include({
      'uds outbound message': 2,
      'uds inbound response': 1,
      'tcp outbound message': 0,
      'tcp inbound response': 0,
      'tcp inbound ack': 0,
    });
    expect(scrape.by('velo_transport_registered_peers', 'transport')).to.deep.equal({ tcp: 0, uds: 1 });
    expect(scrape.by('velo_transport_active_connections', 'transport')).to.deep.equal({ tcp: 0, uds: 1 });
  });

  it('a large payload is a register here and a get there, with its bytes; registered data is a slot until it is released', async () => {
    const { consumer, producer } = await nodes.pair(host);
    consumer.registerHandler(
      'take',
      amHandler(() => {}),
    );
    const [owner, reader] = [registryOf(producer), registryOf(consumer)];
    const operations = (scrape: Scrape) => scrape.by('velo_rendezvous_operations_total', 'operation', 'outcome');
    const moved = (scrape: Scrape) => scrape.by('velo_rendezvous_bytes_total', 'operation');
    await producer.sync(consumer.peerInfo, 'take', new Uint8Array(300_000));
    const handle = producer.registerData(new Uint8Array(1_000));
    const atOwner = await scraped(
      owner,
      'the message is gone and the data is there',
      (scrape) => scrape.value('velo_rendezvous_active_slots') === 1 && operations(scrape)['register success'] === 2,
    );
    expect(moved(atOwner)).to.deep.equal({ register: 301_000, get: 0 });
    const lease = await consumer.get(handle);
    await lease.release();
    const atReader = await scraped(
      reader,
      'both were fetched',
      (scrape) => operations(scrape)['get success'] === 2 && operations(scrape)['release success'] === 2,
    );
    expect(moved(atReader)).to.deep.equal({ register: 0, get: 301_000 });
    const took = { operation: 'get', outcome: 'success' };
    expect(atReader.value('velo_rendezvous_operation_duration_seconds_count', took)).to.equal(2);
    expect(atReader.value('velo_rendezvous_operation_duration_seconds_sum', took)).to.be.greaterThan(0);
    await failure('ERR_UNKNOWN_DATA', consumer.get(handle));
    await scraped(owner, 'nothing is kept', (scrape) => scrape.value('velo_rendezvous_active_slots') === 0);
    await scraped(reader, 'the failure is counted', (scrape) => operations(scrape)['get error'] === 1);
    const all = await scraped(
      reader,
      'every message was dequeued',
      (scrape) => scrape.value('velo_messenger_inbound_dequeued_total') === messages(scrape, 'inbound'),
    );
    expect(messages(all, 'inbound')).to.be.greaterThan(0);
  });

  it('a peer that the directory knows, or does not, is a lookup that counts', async () => {
    const server = await nodes.make({ host: 'inline' });
    server.registerHandler(
      'note',
      amHandler(() => {}),
    );
    const directoryOfOne: Discovery = {
      register: async () => ({ unregister: async () => {}, [Symbol.asyncDispose]: async () => {} }),
      resolve: async (workerId) => (workerId === server.workerId ? server.peerInfo : undefined),
    };
    const node = await nodes.make({ host, discovery: directoryOfOne });
    const registry = registryOf(node);
    await failure('ERR_UNKNOWN_PEER', node.sync(7n, 'note'));
    await node.sync(server.workerId, 'note');
    await node.sync(server.workerId, 'note');
    const scrape = await Scrape.of(registry);
    expect(scrape.by('velo_messenger_client_resolution_total', 'path', 'outcome')).to.deep.equal({
      'direct success': 1,
      'handshake attempt': 1,
      'handshake success': 1,
      'handshake error': 0,
      'discovery success': 1,
      'discovery error': 1,
      'send error': 0,
    });
  });

  it('AA-06 a peer that stops reading parks its batcher; its producers wait in send, and go on when it reads', async () => {
    const node = await nodes.make({ host, connectionQueueBytes: 70_000 });
    const registry = registryOf(node);
    const peer = (await WirePeer.listen()).faces(node);
    await peer.hello();
    const sender = await node.attachAnchor<Uint8Array>(StreamAnchorHandle.pack(peer.workerId, 5n, 'spsc'));
    // More credit than the test needs: only the connection can make a sender wait.
    await peer.batch(0, (batch) => batch.creditUpdate(0, 100_000));
    await scraped(
      registry,
      'the grant is there',
      (scrape) => scrape.by('velo_streaming_mux_batches_total', 'direction').received === 1,
    );
    peer.pauseReading();
    const total = 1_500;
    let sent = 0;
    const sending = (async () => {
      for (; sent < total; sent += 1) await sender.send(new Uint8Array(20_000).fill(sent));
    })();
    for (let before = -1; before !== sent; await pause(200)) before = sent;
    expect(sent, 'it waits').to.be.below(total);
    expect(sender.trySend(new Uint8Array(20_000))).to.equal(false);
    const parked = await scraped(
      registry,
      'a batch waits for admission',
      (scrape) => scrape.value('velo_transport_send_backpressure_total', { transport: 'tcp' }) > 0,
    );
    expect(parked.value('velo_streaming_slot_credit_exhausted_total'), 'not for credit').to.equal(0);
    peer.resumeReading();
    await sending;
    await sender.close();
    const arrived = () => peer.records.filter(({ body }) => body.length >= 20_000).map(({ frameSeq }) => frameSeq);
    await until('all came', () => arrived().length === total);
    expect(arrived()).to.deep.equal(range(arrived()[0]!, arrived()[0]! + total));
    await peer.close();
  });
});

describe('metrics: registries', () => {
  it('the package works where prom-client is not installed', async () => {
    const forbid = `data:text/javascript,${encodeURIComponent(
      `export async function resolve(name, context, next) {
         if (name === 'prom-client' || name.startsWith('prom-client/')) throw new Error('prom-client is not installed');
         return next(name, context);
       }`,
    )}`;
    const program = `
      import { register } from 'node:module';
      register(${JSON.stringify(forbid)});
      const { Velo } = await import('velomux');
      const { registerMetrics } = await import('velomux/metrics');
      const velo = await Velo.create({ host: 'inline' });
      const kept = new Map();
      const registry = {
        getSingleMetric: (name) => kept.get(name),
        registerMetric: (metric) => kept.set(metric.name, metric),
        removeSingleMetric: (name) => kept.delete(name),
      };
      const dispose = registerMetrics(velo, registry);
      const some = await kept.get('velo_transport_registered_peers').get();
      dispose();
      await velo.close();
      const missing = await import('prom-client').catch((error) => error.message);
      console.log(JSON.stringify({ values: some.values.length, left: kept.size, missing }));
    `;
    const cwd = fileURLToPath(new URL('.', import.meta.url));
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { cwd });
    let out = '';
    let problems = '';
    child.stdout.on('data', (chunk) => (out += chunk));
    child.stderr.on('data', (chunk) => (problems += chunk));
    const [code] = await once(child, 'close');
    expect(code, problems).to.equal(0);
    expect(JSON.parse(out)).to.deep.equal({ values: 1, left: 0, missing: 'prom-client is not installed' });
  });
});
