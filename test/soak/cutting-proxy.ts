// Stands in front of every TCP listener of every node of a soak, passes bytes on, and cuts connections: between two frames, or within
// one. A hello says where its node is reached, so its address is exchanged for the proxy's; nothing else is ever changed.

import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { PeerInfo } from '../../lib/index.js';
import {
  decodeLanePorts,
  decodeTcpEndpoints,
  encodeLanePorts,
  encodeTcpEndpoints,
  encodeWorkerAddress,
} from '../../lib/wire/address.js';
import { decodeRequestHeader } from '../../lib/wire/envelope.js';
import { decodeHello, encodeHello } from '../../lib/wire/hello.js';
import { ADDRESS_KEY_LANES, ADDRESS_KEY_TCP, HANDLER_HELLO } from '../../lib/wire/names.js';
import { encodeFrame, FRAME_MESSAGE, FrameReader } from '../../lib/wire/transport-frame.js';

const LOOPBACK = '127.0.0.1';

/** Where a connection is cut. */
export interface Cut {
  /** Frames that pass before. */
  readonly frames: number;
  /** How much of the next one passes: from 0 (nothing) to 1. */
  readonly within: number;
}

/** One connection: the socket of who dialed, and ours to the node. */
interface Relay {
  readonly dialer: Socket;
  readonly upstream: Socket;
  cut: { frames: number; readonly within: number; readonly done: () => void } | undefined;
}

/** The fronts of one node. */
class Fronts {
  readonly relays = new Set<Relay>();
  /** Connections are taken and dropped at once. */
  drops = false;
  /** Connections that were dropped so. */
  dropped = 0;
  private servers: readonly Server[] = [];
  info!: PeerInfo;

  constructor(
    private readonly real: PeerInfo,
    private readonly infoOf: (info: PeerInfo) => PeerInfo,
  ) {}

  async listen(): Promise<void> {
    const entries = this.real.entries();
    const realPorts = decodeLanePorts(entries.get(ADDRESS_KEY_LANES)!);
    const [endpoint] = decodeTcpEndpoints(entries.get(ADDRESS_KEY_TCP)!);
    this.servers = await Promise.all(realPorts.map((port) => this.front(port)));
    const ports = this.servers.map((server) => {
      const address = server.address();
      if (address === null || typeof address === 'string') throw new Error('a TCP listener has a port');
      return address.port;
    });
    entries.set(ADDRESS_KEY_TCP, encodeTcpEndpoints([{ ...endpoint!, port: ports[0]! }]));
    entries.set(ADDRESS_KEY_LANES, encodeLanePorts(ports));
    this.info = new PeerInfo(this.real.instanceId, encodeWorkerAddress([...entries]));
  }

  close(): void {
    for (const server of this.servers) server.close();
    for (const relay of this.relays) hangUp(relay);
  }

  /** Every connection is cut, and every new one refused for so long. */
  async beAway(ms: number): Promise<void> {
    const ports = this.servers.map((server) => (server.address() as AddressInfo).port);
    this.close();
    await pause(ms);
    for (const [i, server] of this.servers.entries()) server.listen(ports[i], LOOPBACK);
    await Promise.all(this.servers.map((server) => once(server, 'listening')));
  }

  private async front(port: number): Promise<Server> {
    const server = createServer({ noDelay: true, allowHalfOpen: false }, (dialer) => {
      if (this.drops) {
        this.dropped += 1;
        dialer.destroy();
        return;
      }
      const upstream = connect({ host: LOOPBACK, port, noDelay: true });
      const relay: Relay = { dialer, upstream, cut: undefined };
      this.relays.add(relay);
      this.passOn(relay);
    });
    server.listen(0, LOOPBACK);
    await once(server, 'listening');
    return server;
  }

  private passOn(relay: Relay): void {
    const { dialer, upstream } = relay;
    const reader = new FrameReader((type, buffer, headerAt, headerLength, payloadAt, payloadLength) => {
      if (dialer.destroyed) return;
      const header = buffer.subarray(headerAt, headerAt + headerLength);
      const payload = buffer.subarray(payloadAt, payloadAt + payloadLength);
      this.frame(relay, encodeFrame(type, header, this.rewritten(type, header, payload)));
    });
    dialer.on('data', (chunk) => reader.push(chunk));
    upstream.on('data', (chunk) => dialer.write(chunk));
    upstream.on('drain', () => dialer.resume());
    for (const [socket, other] of [
      [dialer, upstream],
      [upstream, dialer],
    ] as const) {
      socket.on('error', () => {});
      socket.on('close', () => {
        this.relays.delete(relay);
        relay.cut?.done();
        other.destroySoon();
      });
    }
  }

  private frame(relay: Relay, bytes: Uint8Array): void {
    const { cut } = relay;
    if (cut !== undefined && cut.frames-- <= 0) {
      // Never the whole frame.
      relay.upstream.write(bytes.subarray(0, Math.min(bytes.length - 1, Math.floor(cut.within * bytes.length))));
      hangUp(relay);
      return;
    }
    if (!relay.upstream.write(bytes)) relay.dialer.pause();
  }

  private rewritten(type: number, header: Uint8Array, payload: Uint8Array): Uint8Array {
    if (type !== FRAME_MESSAGE || decodeRequestHeader(header, 0, header.length).handler !== HANDLER_HELLO)
      return payload;
    return encodeHello(this.infoOf(decodeHello(payload)));
  }
}

/** What was written before still arrives; nothing more does, in either direction. */
function hangUp({ dialer, upstream }: Relay): void {
  dialer.destroy();
  upstream.destroySoon();
}

export class CuttingProxy {
  private readonly fronts = new Map<string, Fronts>();

  /** A node that is reached through the proxy from now on; how, is the answer. */
  async add(real: PeerInfo): Promise<PeerInfo> {
    const fronts = new Fronts(real, (info) => this.fronts.get(info.instanceId)?.info ?? info);
    await fronts.listen();
    this.fronts.set(real.instanceId, fronts);
    return fronts.info;
  }

  /** The node is gone, and so are its listeners. */
  remove(instanceId: string): void {
    this.fronts.get(instanceId)?.close();
    this.fronts.delete(instanceId);
  }

  /** Cuts one connection to a node, by number. Resolves with whether there was one, once it is cut or closed by itself. */
  async cut(instanceId: string, number: number, { frames, within }: Cut, patienceMs: number): Promise<boolean> {
    const relays = [...(this.fronts.get(instanceId)?.relays ?? [])];
    const relay = relays[number % relays.length];
    if (relay === undefined) return false;
    let late: NodeJS.Timeout | undefined;
    await new Promise<void>((done) => {
      relay.cut = { frames, within, done };
      // A connection without frames is cut as it is.
      late = setTimeout(() => hangUp(relay), patienceMs);
    });
    clearTimeout(late);
    return true;
  }

  /** Nobody reaches the node for so long; every connection to it is cut first. */
  async beAway(instanceId: string, ms: number): Promise<void> {
    await this.fronts.get(instanceId)!.beAway(ms);
  }

  /** Takes every new connection to the node and drops it at once, or no longer. Returns how many it has dropped so. */
  drop(instanceId: string, drops: boolean): number {
    const fronts = this.fronts.get(instanceId)!;
    fronts.drops = drops;
    return fronts.dropped;
  }

  close(): void {
    for (const fronts of this.fronts.values()) fronts.close();
    this.fronts.clear();
  }
}
