// What a lane is started with, and the few words that go over its control port. The control port carries nothing else; its
// closing means that the lane is dead.

import { MessageChannel, type MessagePort } from 'node:worker_threads';
import type { ErrorCode } from '../errors.js';
import { ClientConduit, createConduit } from '../plane/conduit.js';
import { ParcelReceiver, ParcelSender } from '../plane/parcels.js';
import type { LaneLink, LaneMemory, LaneOptions } from './host.js';
import type { LanePort, MeshPort } from './lane-mesh.js';
import type { SocketFile } from './socket-file.js';
import type { StreamEnds } from './streams-end.js';

/** Handed to the lane's thread. Its ports must be in the transfer list. */
export interface LaneBoot {
  options: LaneOptions;
  memory: LaneMemory;
  control: MessagePort;
  parcelsIn: MessagePort;
  parcelsOut: MessagePort;
  /** To the other lanes, see `meshPorts`. */
  mesh: readonly MeshPort[];
}

/** What `workers/pool-lane.cts` is called with: a lane's file, by its URL, and what it is handed. */
export interface PoolLane {
  file: string;
  boot: LaneBoot;
}

/** What a lane that listens says of itself. */
export interface ListeningLane {
  port: number;
  /** The file of its Unix socket, for whoever outlives the lane. */
  socketFile: SocketFile | undefined;
}

export type LaneReport =
  | ({ type: 'listening' } & ListeningLane)
  | { type: 'failed'; code: ErrorCode; message: string }
  | { type: 'fatal'; message: string }
  | { type: 'closed'; ends: StreamEnds };

/**
 * `close` may come again, with less time. `mesh`: the lane at the other end has started again; the port must be transferred. `alone`:
 * lane 0 stays dead.
 */
export type LaneOrder =
  | { type: 'go' }
  | { type: 'close'; timeoutMs: number }
  | { type: 'mesh'; mesh: MeshPort }
  | { type: 'alone' };

/** The client's half of a lane that is about to start. */
export interface PreparedLane {
  boot: LaneBoot;
  control: MessagePort;
  /** Completes the link once the lane's port is known. */
  link(port: number, hookClient?: (wake: () => void) => void): LaneLink;
  /** Closes the client's ports. */
  dispose(): void;
}

/** Makes the two ends of a port between two lanes. */
export type MakeChannel = () => { readonly port1: LanePort; readonly port2: LanePort };

/** The ports of every lane to the others: lane 0 has one to each, each has one to lane 0. */
export function meshPorts(lanes: number, channel: MakeChannel): MeshPort[][] {
  const ports: MeshPort[][] = [[]];
  for (let lane = 1; lane < lanes; lane++) {
    const { port1, port2 } = channel();
    ports[0]!.push({ lane, port: port1 });
    ports.push([{ lane: 0, port: port2 }]);
  }
  return ports;
}

/**
 * Ports for a lane that starts again. `give` hands the far end of each to the lane it belongs to; false: that lane does not run, and
 * makes the port itself when it starts.
 */
export function rejoinMesh(
  lane: number,
  lanes: number,
  channel: MakeChannel,
  give: (to: number, mesh: MeshPort) => boolean,
): MeshPort[] {
  const ports: MeshPort[] = [];
  const others = lane === 0 ? Array.from({ length: lanes - 1 }, (_, i) => i + 1) : [0];
  for (const other of others) {
    const { port1, port2 } = channel();
    if (give(other, { lane, port: port2 })) ports.push({ lane: other, port: port1 });
  }
  return ports;
}

/** Makes the conduit and the ports of one lane. */
export function prepareLane(
  options: LaneOptions,
  node: SharedArrayBuffer,
  rows: SharedArrayBuffer,
  mesh: readonly MeshPort[],
): PreparedLane {
  const buffer = createConduit(options.sizes);
  const control = new MessageChannel();
  const toLane = new MessageChannel();
  const toClient = new MessageChannel();
  return {
    boot: {
      options,
      memory: { node, rows: [rows], conduits: [buffer] },
      control: control.port2,
      parcelsIn: toLane.port2,
      parcelsOut: toClient.port2,
      mesh,
    },
    control: control.port1,
    link: (port, hookClient) => ({
      conduit: new ClientConduit(buffer, options.sizes),
      parcelsOut: new ParcelSender(toLane.port1),
      parcelsIn: new ParcelReceiver(toClient.port1),
      port,
      hookClient,
    }),
    dispose: () => {
      control.port1.close();
      toLane.port1.close();
      toClient.port1.close();
    },
  };
}

export function transferList(boot: LaneBoot): MessagePort[] {
  return [boot.control, boot.parcelsIn, boot.parcelsOut, ...boot.mesh.map(({ port }) => port as MessagePort)];
}
