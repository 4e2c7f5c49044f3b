// Parcels: the copy belongs to the receiver, and a marker without its parcel is fatal.

import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { expect } from 'chai';
import { ParcelReceiver, ParcelSender } from '../../../lib/plane/parcels.js';
import { errorCode } from './errors.js';

describe('parcels', () => {
  let channel: MessageChannel;
  beforeEach(() => {
    channel = new MessageChannel();
  });
  afterEach(() => {
    channel.port1.close();
    channel.port2.close();
  });

  it('arrive in order, in memory of their own', () => {
    const sender = new ParcelSender(channel.port1);
    const receiver = new ParcelReceiver(channel.port2);
    const source = Buffer.from('..first, then the second..');
    sender.send(source, 2, 5);
    sender.send(source, 14, 10);
    sender.send(source, 0, 0);
    source.fill(0);
    const text = (length: number): string => Buffer.from(receiver.take(length)).toString();
    expect([text(5), text(10), text(0)]).to.deep.equal(['first', 'the second', '']);
  });

  it('come out of shared memory as private bytes', () => {
    const shared = new Uint8Array(new SharedArrayBuffer(8)).fill(7);
    new ParcelSender(channel.port1).send(shared, 0, 8);
    const parcel = new ParcelReceiver(channel.port2).take(8);
    expect(parcel.buffer).to.be.instanceOf(ArrayBuffer);
    expect(parcel.byteLength).to.equal(parcel.buffer.byteLength);
  });

  it('a send leaves the source with its owner', () => {
    const source = new Uint8Array(16).fill(3);
    new ParcelSender(channel.port1).send(source, 0, 16);
    expect(source.byteLength).to.equal(16);
    const message: unknown = receiveMessageOnPort(channel.port2)?.message;
    expect(message).to.be.instanceOf(ArrayBuffer);
  });

  it('a marker whose parcel is missing, of another length or no parcel at all breaks the conduit', () => {
    const receiver = new ParcelReceiver(channel.port2);
    expect(errorCode(() => receiver.take(1))).to.equal('ERR_CONDUIT_BROKEN');
    new ParcelSender(channel.port1).send(new Uint8Array(4), 0, 4);
    expect(errorCode(() => receiver.take(5))).to.equal('ERR_CONDUIT_BROKEN');
    channel.port1.postMessage('hello');
    expect(errorCode(() => receiver.take(5))).to.equal('ERR_CONDUIT_BROKEN');
  });
});
