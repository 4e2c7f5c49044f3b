// That the page on observability leaves nothing out: every series, every field of `stats()` and of `streams()`, every channel.

import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { Registry } from 'prom-client';
import { registerMetrics } from '../../lib/metrics/register.js';
import { nodesOfSuite } from '../support/nodes.js';

const PAGE = new URL('../../../docs/observability.md', import.meta.url);
const CHANNELS = ['stream:open', 'stream:close', 'epoch:death', 'watchdog', 'refusal', 'lane:death'];

describe('the page on observability', () => {
  const nodes = nodesOfSuite();

  it('names every series, statistic, field of a stream and channel', async () => {
    const page = await readFile(PAGE, 'utf8');
    const node = await nodes.make({ host: 'inline' });
    const anchor = node.createAnchor();
    const sender = await node.attachAnchor(anchor.handle);
    const registry = new Registry();
    registerMetrics(node, registry);
    const names = [
      ...registry.getMetricsAsArray().map(({ name }) => name),
      ...Object.keys(node.stats()),
      ...(await node.streams()).flatMap((row) => Object.keys(row)),
      ...CHANNELS.map((channel) => `velomux:${channel}`),
    ];
    const missing = [...new Set(names)].filter((name) => !page.includes(`\`${name}\``));
    expect(missing).to.deep.equal([]);
    await sender.close();
    anchor.controller.cancel();
  });
});
