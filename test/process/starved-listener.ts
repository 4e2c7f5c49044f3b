// A child with few file descriptors that listens; it reports its port, and its counters whenever it is asked.

import { connectionMetrics } from '../../lib/lanes/connection-metrics.js';
import { Listener } from '../../lib/lanes/listener.js';

const metrics = connectionMetrics();
const listener = new Listener({ metrics, hooks: { onFrame: () => {} } });
process.on('message', () => process.send?.({ connections: listener.connections.size, metrics }));
process.on('disconnect', () => process.exit());
const port = await listener.listen('127.0.0.1', 0);
process.send?.(port);
