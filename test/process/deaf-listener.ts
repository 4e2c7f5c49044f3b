// A child that listens with the shortest backlog and tells its port; its parent then stops it.

import { createServer } from 'node:net';

const server = createServer();
server.listen({ host: '127.0.0.1', port: 0, backlog: 1 }, () => {
  const address = server.address();
  if (typeof address === 'object' && address !== null) process.send?.(address.port);
});
process.on('disconnect', () => process.exit());
