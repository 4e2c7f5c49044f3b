// A child that listens with the shortest backlog, on a Unix socket if it is given one, and tells its port; its parent then stops it.

import { createServer } from 'node:net';

const server = createServer();
const path = process.argv[2];
server.listen(path === undefined ? { host: '127.0.0.1', port: 0, backlog: 1 } : { path, backlog: 1 }, () => {
  const address = server.address();
  process.send?.(typeof address === 'object' && address !== null ? address.port : 0);
});
process.on('disconnect', () => process.exit());
