// The client's end of a conduit, by itself: what waits when nobody drains its ring, and what it makes of a lane's records.

import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { expect } from 'chai';
import { ClientPlane } from '../../../lib/lanes/client-plane.js';
import type { ClientPort } from '../../../lib/lanes/client-port.js';
import {
  CMD_DATA,
  CMD_FRAME,
  CMD_PEER,
  CMD_STAGE,
  CMD_UNSTAGE,
  EV_ADMITTED,
  EV_UNSTAGED,
  PARCEL,
  readU32,
} from '../../../lib/lanes/commands.js';
import {
  ClientConduit,
  ClientRows,
  createClientRows,
  createConduit,
  WorkerConduit,
} from '../../../lib/plane/conduit.js';
import { ParcelReceiver, ParcelSender } from '../../../lib/plane/parcels.js';
import { errorCode } from '../plane/errors.js';

const SIZES = { ringBytes: 1024, rows: 1024 };
const COMMANDS_THAT_WAIT = 65_536;
const BODY = new Uint8Array(8);

describe('the client end of a conduit', () => {
  let ports: MessagePort[];
  let worker: WorkerConduit;
  let port: ClientPort;
  let admitted: number[];
  let unstaged: number[];
  beforeEach(() => {
    const buffer = createConduit(SIZES);
    const { port1, port2 } = new MessageChannel();
    ports = [port1, port2];
    admitted = [];
    unstaged = [];
    worker = new WorkerConduit(buffer, SIZES);
    const link = {
      conduit: new ClientConduit(buffer, SIZES),
      parcelsOut: new ParcelSender(port1),
      parcelsIn: new ParcelReceiver(port2),
      port: 1,
      hookClient: undefined,
    };
    const events = {
      frame: () => {},
      hello: () => {},
      admitted: (token: number) => admitted.push(token),
      frameFailed: () => {},
      unstaged: (id: number) => unstaged.push(id),
      marked: () => {},
      laneBroken: () => {},
      laneDied: () => {},
    };
    port = new ClientPlane(new ClientRows(createClientRows(SIZES), SIZES), [link], events, 1, false).port(0);
  });
  afterEach(() => {
    for (const end of ports) end.close();
  });

  /** The lane takes everything. */
  function empty(): void {
    const ring = worker.egress;
    if (ring.refresh()) while (ring.next());
    ring.release();
  }

  it('commands that wait have a bound; peers, and payloads let go of, stand outside of it', () => {
    const fill = () => {
      for (let i = 0; i <= COMMANDS_THAT_WAIT * 2; i++) port.command(CMD_FRAME, 0, BODY);
    };
    expect(errorCode(fill)).to.equal('ERR_LIMIT');
    port.command(CMD_PEER, 0, BODY);
    port.command(CMD_UNSTAGE, 0, BODY);
    expect(errorCode(fill)).to.equal('ERR_LIMIT');
  });

  it('a large record of a thread that never yields goes as soon as the commands in front of it can', () => {
    while (port.conduit.egress.reserve(CMD_FRAME, 0, BODY.length) >= 0) port.command(CMD_FRAME, 0, BODY);
    port.command(CMD_FRAME, 0, BODY);
    const large = new Uint8Array(SIZES.ringBytes);
    expect(port.sendParcel(CMD_DATA, 0, large)).to.equal(false);
    empty();
    expect(port.sendParcel(CMD_DATA, 0, large)).to.equal(true);
  });

  it('payloads are handed over as they are, always beside the ring, and named by ids above 2^31 too', () => {
    const id = 2 ** 32 - 2;
    for (const bytes of [new Uint8Array(0), new Uint8Array(3).fill(7), new Uint8Array(SIZES.ringBytes)]) {
      const { length } = bytes;
      port.command(CMD_STAGE, id, bytes);
      expect(bytes.length, 'it is gone from here').to.equal(0);
      worker.egress.refresh();
      expect(worker.egress.next()).to.equal(true);
      expect([worker.egress.kind, worker.egress.tag >>> 0]).to.deep.equal([CMD_STAGE | PARCEL, id]);
      const { offset } = worker.egress;
      expect(readU32(worker.memory.bytes, offset)).to.equal(length);
      worker.egress.release();
    }
    worker.ingress.reserve(EV_UNSTAGED, id, 0);
    worker.ingress.commit();
    worker.ingress.publish();
    port.drain();
    expect(unstaged).to.deep.equal([id]);
  });

  it('an admission finds its sender though its token is above 2^31', () => {
    const token = 2 ** 32 - 2;
    worker.ingress.reserve(EV_ADMITTED, token, 0);
    worker.ingress.commit();
    worker.ingress.publish();
    port.drain();
    expect(admitted).to.deep.equal([token]);
  });
});
