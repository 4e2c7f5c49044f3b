// A TCP listener in front of a node that can lose what comes in and cut every connection. It passes bytes on as they are, and never
// looks into them.

import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { PeerInfo } from '../../lib/index.js';
import { decodeTcpEndpoints, encodeTcpEndpoints, encodeWorkerAddress } from '../../lib/wire/address.js';
import { ADDRESS_KEY_TCP } from '../../lib/wire/names.js';

const LOOPBACK = '127.0.0.1';

export class CuttingProxy {
  /** Bytes towards the node that were lost. */
  lostBytes = 0;
  private readonly sockets = new Set<Socket>();
  /** Dialed ones whose bytes are lost. */
  private losing = new WeakSet<Socket>();

  private constructor(
    private readonly server: Server,
    /** The node, at the address of this proxy. */
    readonly info: PeerInfo,
    private readonly nodePort: number,
  ) {
    server.on('connection', (socket: Socket) => this.accept(socket));
  }

  static async before(node: PeerInfo): Promise<CuttingProxy> {
    const server = createServer({ noDelay: true });
    server.listen(0, LOOPBACK);
    await once(server, 'listening');
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('a TCP listener has a port');
    const endpoint = { name: '', host: LOOPBACK, port: address.port, prefixLength: 32, numaNode: null };
    const entries = encodeWorkerAddress([[ADDRESS_KEY_TCP, encodeTcpEndpoints([endpoint])]]);
    const { port } = decodeTcpEndpoints(node.entries().get(ADDRESS_KEY_TCP)!)[0]!;
    return new CuttingProxy(server, new PeerInfo(node.instanceId, entries), port);
  }

  /** Loses everything that comes towards the node on the connections that stand now. Who sends it hears nothing of that. */
  lose(): void {
    this.losing = new WeakSet(this.sockets);
  }

  /** Ends every connection; new ones are whole. */
  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private accept(dialer: Socket): void {
    const node = connect({ host: LOOPBACK, port: this.nodePort, noDelay: true });
    dialer.setNoDelay(true);
    dialer.on('data', (chunk) => {
      if (this.losing.has(dialer)) this.lostBytes += chunk.length;
      else node.write(chunk);
    });
    node.on('data', (chunk) => dialer.write(chunk));
    for (const [one, other] of [
      [dialer, node],
      [node, dialer],
    ] as const) {
      this.sockets.add(one);
      one.on('error', () => {});
      one.on('close', () => {
        this.sockets.delete(one);
        other.destroy();
      });
    }
  }
}
