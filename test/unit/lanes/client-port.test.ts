// The client's end of a conduit, by itself: what waits when nobody drains its ring, and what it makes of a lane's records.

import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { expect } from 'chai';
import { ClientPlane } from '../../../lib/lanes/client-plane.js';
import type { ClientPort } from '../../../lib/lanes/client-port.js';
import { CMD_DATA, CMD_FRAME, CMD_PEER, EV_ADMITTED } from '../../../lib/lanes/commands.js';
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
  beforeEach(() => {
    const buffer = createConduit(SIZES);
    const { port1, port2 } = new MessageChannel();
    ports = [port1, port2];
    admitted = [];
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

  it('commands that wait have a bound, and peers stand outside of it', () => {
    const fill = () => {
      for (let i = 0; i <= COMMANDS_THAT_WAIT * 2; i++) port.command(CMD_FRAME, 0, BODY);
    };
    expect(errorCode(fill)).to.equal('ERR_LIMIT');
    port.command(CMD_PEER, 0, BODY);
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

  it('an admission finds its sender though its token is above 2^31', () => {
    const token = 2 ** 32 - 2;
    worker.ingress.reserve(EV_ADMITTED, token, 0);
    worker.ingress.commit();
    worker.ingress.publish();
    port.drain();
    expect(admitted).to.deep.equal([token]);
  });
});
