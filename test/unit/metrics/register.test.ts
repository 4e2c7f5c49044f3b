// Nodes in registries: labels that keep them apart, coded errors that change nothing, and the way out again.

import { expect } from 'chai';
import { Counter, type OpenMetricsContentType, Registry } from 'prom-client';
import { amHandler } from '../../../lib/messenger/handlers.js';
import { MAX_HANDLER_SERIES, MessengerMetrics } from '../../../lib/metrics/messenger-metrics.js';
import { registerMetrics } from '../../../lib/metrics/register.js';
import { RendezvousMetrics } from '../../../lib/metrics/rendezvous-metrics.js';
import { METRICS_SOURCE, type Measured } from '../../../lib/metrics/source.js';
import { Scrape } from '../../support/scrape.js';
import { errorCode } from '../plane/errors.js';

/** A node whose every cell holds the same number. */
function nodeOf(cell: number): Measured {
  return {
    [METRICS_SOURCE]: {
      cell: () => cell,
      transports: ['tcp', 'uds'],
      messenger: new MessengerMetrics(() => 0),
      rendezvous: new RendezvousMetrics(),
      peers: (transport) => (transport === 'tcp' ? 3 : 1),
      orderedLanes: () => ({ lanes: 0, created: 0 }),
      pendingResponses: () => 0,
      responseSlotsExhausted: () => 0,
      bindsNeverOpened: () => 0,
      bindsReaped: () => 0,
      activeAnchors: () => 0,
    },
  };
}

const LIVE = 'velo_streaming_mux_live_slots';

describe('metrics: registration', () => {
  it('reads at the scrape, and takes itself out again', async () => {
    const registry = new Registry();
    const dispose = registerMetrics(nodeOf(7), registry);
    const scrape = await Scrape.of(registry);
    expect(scrape.value(LIVE)).to.equal(7);
    expect(scrape.by('velo_transport_registered_peers', 'transport')).to.deep.equal({ tcp: 3, uds: 1 });
    expect(await registry.getSingleMetricAsString(LIVE)).to.include(`# TYPE ${LIVE} gauge`);
    registry.resetMetrics();
    expect((await Scrape.of(registry)).value(LIVE)).to.equal(7);
    dispose();
    dispose();
    expect(registry.getMetricsAsArray()).to.deep.equal([]);
    registerMetrics(nodeOf(8), registry)();
    expect((await registry.metrics()).trim()).to.equal('');
  });

  it('two nodes stand side by side by their labels, and leave one by one', async () => {
    const registry = new Registry();
    const first = registerMetrics(nodeOf(1), registry, { labels: { node: 'a' } });
    const second = registerMetrics(nodeOf(2), registry, { labels: { node: 'b' } });
    const both = await Scrape.of(registry);
    expect(both.by(LIVE, 'node')).to.deep.equal({ a: 1, b: 2 });
    expect(both.by('velo_streaming_mux_records_per_batch_sum', 'node', 'direction')).to.deep.equal({
      'a sent': 1,
      'a received': 1,
      'b sent': 2,
      'b received': 2,
    });
    first();
    expect((await Scrape.of(registry)).by(LIVE, 'node')).to.deep.equal({ b: 2 });
    second();
    expect(registry.getMetricsAsArray()).to.deep.equal([]);
  });

  it('refuses what would collide, and adds nothing then', async () => {
    const registry = new Registry();
    const node = nodeOf(1);
    registerMetrics(node, registry, { labels: { node: 'a' } });
    const before = await registry.metrics();
    const code = (other: Measured, labels?: Record<string, string>) =>
      errorCode(() => registerMetrics(other, registry, { labels }));
    expect(code(nodeOf(2), { node: 'a' })).to.equal('ERR_INVALID_ARGUMENT');
    expect(code(node, { node: 'b' })).to.equal('ERR_INVALID_STATE');
    for (const name of ['le', 'handler', 'transport', '1st', 'a-b', ''])
      expect(code(nodeOf(2), { [name]: 'x' }), name).to.equal('ERR_INVALID_ARGUMENT');
    expect(code(nodeOf(2), { node: 5 as unknown as string })).to.equal('ERR_INVALID_ARGUMENT');
    expect(await registry.metrics()).to.equal(before);

    const taken = new Registry();
    new Counter({ name: 'velo_streaming_mux_batches_total', help: 'of somebody else', registers: [taken] });
    expect(errorCode(() => registerMetrics(nodeOf(1), taken))).to.equal('ERR_INVALID_STATE');
    expect(taken.getMetricsAsArray()).to.have.length(1);
  });

  it('a registry that was cleared takes the node again', async () => {
    const registry = new Registry();
    const node = nodeOf(4);
    const dispose = registerMetrics(node, registry);
    registry.clear();
    registerMetrics(node, registry);
    dispose();
    expect((await Scrape.of(registry)).value(LIVE), 'the first registration took nothing along').to.equal(4);
  });

  it('OpenMetrics and merged registries show the same values', async () => {
    const open = new Registry<OpenMetricsContentType>();
    open.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
    const dispose = registerMetrics(nodeOf(5), open);
    for (const text of [await open.metrics(), await open.metrics()]) {
      expect(text).to.include(
        '# TYPE velo_messenger_inbound_dequeued counter\nvelo_messenger_inbound_dequeued_total 5\n',
      );
      expect(text.endsWith('# EOF\n')).to.equal(true);
    }
    dispose();
    expect(open.getMetricsAsArray()).to.deep.equal([]);

    const registry = new Registry();
    registerMetrics(nodeOf(6), registry);
    expect((await Scrape.of(Registry.merge([registry]))).value(LIVE)).to.equal(6);
    const json = await registry.getMetricsAsJSON();
    expect(json.find(({ name }) => name === LIVE)).to.deep.include({ type: 'gauge', aggregator: 'sum' });
  });

  it('a registry of OpenMetrics that was scraped takes further nodes, and lets them go', async () => {
    const open = new Registry<OpenMetricsContentType>();
    open.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
    const first = registerMetrics(nodeOf(1), open, { labels: { node: 'a' } });
    const families = open.getMetricsAsArray().length;
    await open.metrics();
    const second = registerMetrics(nodeOf(2), open, { labels: { node: 'b' } });
    expect(open.getMetricsAsArray()).to.have.length(families);
    const scrape = new Scrape((await open.metrics()).replace('# EOF\n', ''));
    expect(scrape.by('velo_messenger_inbound_dequeued_total', 'node')).to.deep.equal({ a: 1, b: 2 });
    first();
    second();
    expect(open.getMetricsAsArray()).to.deep.equal([]);
  });

  it('names of handlers are escaped, and no more than 1,024 of them have series', async () => {
    const metrics = new MessengerMetrics(() => 0);
    const node = nodeOf(0);
    const registry = new Registry();
    registerMetrics({ [METRICS_SOURCE]: { ...node[METRICS_SOURCE], messenger: metrics } }, registry);
    const run = (handler: string) =>
      metrics
        .watch(
          { handler, responseType: 0, id: { workerHi: 0, workerLo: 0, slot: 0, generation: 0 }, headers: undefined },
          amHandler(() => {}),
          0,
        )
        .started();
    run('a "quoted" \\ name\nof two lines');
    const running = (await Scrape.of(registry)).by('velo_messenger_handler_in_flight', 'handler');
    expect(running).to.deep.equal({ 'a \\"quoted\\" \\\\ name\\nof two lines': 1 });
    for (let i = 0; i < 2 * MAX_HANDLER_SERIES; i += 1) run(`handler ${i}`);
    expect(metrics.handlers.size).to.equal(MAX_HANDLER_SERIES);
  });
});
