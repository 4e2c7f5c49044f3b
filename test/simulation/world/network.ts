// The network of a world: who listens where, which connections stand, and what happens to them. Faults that end a connection or
// lose a frame are noted between the two processes they befell.

import { Incidents, Link, type Weather } from './link.js';
import { Pipe, type PipeWatcher } from './pipe.js';
import { type Process, RANK_NET, type Schedule } from './schedule.js';
import { netError, type Ports, SimServer, SimSocket } from './socket.js';

const FIRST_PORT = 20_000;
/** How long an end may go on without hearing that its connection was cut, in milliseconds. */
const CUT_HEARD_MS_MAX = 60;

interface Connection {
  readonly client: SimSocket;
  readonly server: SimSocket;
}

export class Network implements Ports {
  readonly incidents = new Incidents();
  readonly links = new Map<string, Link>();
  private readonly servers = new Map<string, SimServer>();
  private readonly connections = new Set<Connection>();
  private nextPort = FIRST_PORT;

  constructor(
    private readonly schedule: Schedule,
    private readonly weather: () => Weather,
    private readonly watcher: Omit<PipeWatcher, 'fault'>,
    private readonly owner: (what: string) => Process,
  ) {}

  link(from: Process, to: Process): Link {
    const key = `${from.number}>${to.number}`;
    let link = this.links.get(key);
    if (link === undefined) {
      link = new Link(from, to, this.weather());
      this.links.set(key, link);
    }
    return link;
  }

  /** The weather clears everywhere: nothing is lost, stalled or refused any more. */
  clear(): void {
    for (const { weather } of this.links.values())
      Object.assign(weather, { lose: 0, duplicate: 0, swap: 0, refuse: 0, ignore: 0 });
    for (const link of this.links.values()) link.stalledUntil = 0;
  }

  // -- what stands for node:net

  readonly connect = (to: { host: string; port: number }): SimSocket => {
    const owner = this.owner('connect');
    const socket = new SimSocket(owner, true);
    socket.remoteAddress = to.host;
    socket.remotePort = to.port;
    this.schedule.after(this.schedule.random.within(0.1, 1.5), RANK_NET, undefined, 'dial', () =>
      this.dialed(socket, to),
    );
    return socket;
  };

  readonly createServer = (): SimServer => new SimServer(this.owner('createServer'), this.schedule, this);

  take(host: string, port: number, server: SimServer): number {
    const wanted = port === 0 ? this.nextPort++ : port;
    const key = `${host}:${wanted}`;
    if (this.servers.has(key)) return 0;
    this.servers.set(key, server);
    return wanted;
  }

  free(host: string, port: number): void {
    this.servers.delete(`${host}:${port}`);
  }

  private dialed(socket: SimSocket, to: { host: string; port: number }): void {
    if (socket.destroyed || socket.owner.dead) return;
    const server = this.servers.get(`${to.host}:${to.port}`);
    const { random } = this.schedule;
    if (server !== undefined) {
      const { weather } = this.link(socket.owner, server.owner);
      if (weather.ignore > 0 && random.chance(weather.ignore)) {
        this.incidents.note(socket.owner, server.owner, 'connect ignored');
        return;
      }
      if (!(weather.refuse > 0 && random.chance(weather.refuse))) {
        this.establish(socket, server, to);
        return;
      }
      this.incidents.note(socket.owner, server.owner, 'connect refused');
    }
    this.schedule.after(0.1, RANK_NET, socket.owner, 'refused', () => {
      socket.connecting = false;
      socket.destroy(netError('ECONNREFUSED', 'connect'));
    });
  }

  private establish(client: SimSocket, listener: SimServer, to: { host: string; port: number }): void {
    const { schedule } = this;
    const server = new SimSocket(listener.owner, false);
    const port = this.nextPort++;
    Object.assign(server, {
      remoteAddress: client.owner.host,
      remotePort: port,
      localAddress: to.host,
      localPort: to.port,
    });
    client.localAddress = client.owner.host;
    client.localPort = port;
    const watcher: PipeWatcher = {
      ...this.watcher,
      fault: (link, what) => this.incidents.note(link.from, link.to, what),
    };
    const there = new Pipe(schedule, this.link(client.owner, listener.owner), client, server, watcher);
    const back = new Pipe(schedule, this.link(listener.owner, client.owner), server, client, watcher);
    client.outgoing = there;
    server.incoming = there;
    server.outgoing = back;
    client.incoming = back;
    const connection = { client, server };
    this.connections.add(connection);
    client.once('close', () => this.forget(connection));
    server.once('close', () => this.forget(connection));
    schedule.after(0.02, RANK_NET, listener.owner, 'accept', () => listener.emit('connection', server));
    schedule.after(0.05, RANK_NET, client.owner, 'connect', () => {
      if (!client.destroyed) client.established();
    });
  }

  private forget(connection: Connection): void {
    if (connection.client.destroyed && connection.server.destroyed) this.connections.delete(connection);
  }

  // -- what happens to connections

  /** Connections between living processes that nobody has closed. */
  standing(): Connection[] {
    return [...this.connections].filter(
      ({ client, server }) =>
        !client.destroyed && !server.destroyed && !client.connecting && !client.owner.dead && !server.owner.dead,
    );
  }

  /** Breaks a connection. Its ends hear of it later; what they write meanwhile is taken, and lost. */
  cut({ client, server }: Connection, what: string): void {
    const { random } = this.schedule;
    this.incidents.note(client.owner, server.owner, what);
    const first = random.pick([client, server]);
    for (const end of [client, server]) {
      // One end may have a new connection in use before the other knows that this one is gone, and reads its rest.
      const heardMs = random.within(0.1, end === first ? 1 : CUT_HEARD_MS_MAX);
      end.incoming!.break(random.real(), heardMs);
      this.schedule.after(heardMs, RANK_NET, end.owner, 'reset', () => {
        if (!end.destroyed) end.destroy(netError('ECONNRESET', 'read'));
      });
    }
  }

  /** A process is gone: everything it holds goes with it, and its peers hear of it. */
  kill(gone: Process, everybody: readonly Process[]): void {
    for (const other of everybody) if (other !== gone) this.incidents.note(gone, other, 'process killed');
    const open = this.standing().filter(({ client, server }) => client.owner === gone || server.owner === gone);
    gone.dead = true;
    for (const connection of open) this.cut(connection, 'process killed');
    for (const holding of [...gone.holdings]) holding.die();
    gone.holdings.clear();
  }
}
