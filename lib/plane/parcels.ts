// Records too large for a ring travel beside it: the bytes go over a message port, and a marker record in the ring holds their
// place. It owns the copy, the hand-over and the check that both agree; the marker itself belongs to the ring's owner.
//
// Order on the sending side: reserve the marker, `send` the parcel, then commit and publish. A marker that is visible has its
// parcel in the port already. Reserving first means that a full ring leaves no parcel behind without a marker.

import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { VeloError } from '../errors.js';

/** The sending end of a parcel port. The port carries nothing else. */
export class ParcelSender {
  constructor(private readonly port: MessagePort) {}

  /** Copies `length` bytes into memory of their own and hands that memory over. The source stays the caller's. */
  send(source: Uint8Array, offset: number, length: number): void {
    const parcel = new ArrayBuffer(length);
    new Uint8Array(parcel).set(source.subarray(offset, offset + length));
    this.give(parcel);
  }

  /** Hands memory over as it is: it is gone from this thread afterwards. */
  give(parcel: ArrayBuffer): void {
    this.port.postMessage(parcel, [parcel]);
  }
}

/** The receiving end. Never start the port or listen on it: its messages are taken by `take` and by nothing else. */
export class ParcelReceiver {
  constructor(private readonly port: MessagePort) {}

  /**
   * Takes the parcel of the marker just read; `length` is what the marker says. The memory is the caller's alone.
   * Throws `ERR_CONDUIT_BROKEN` when no parcel is there or it has another length: then no later marker can be trusted either.
   */
  take(length: number): Uint8Array {
    const received: { message: unknown } | undefined = receiveMessageOnPort(this.port);
    if (received === undefined)
      throw new VeloError('ERR_CONDUIT_BROKEN', `no parcel for a marker that announced ${length} bytes`);
    const parcel = received.message;
    if (!(parcel instanceof ArrayBuffer) || parcel.byteLength !== length)
      throw new VeloError('ERR_CONDUIT_BROKEN', `the parcel is not the ${length} bytes that its marker announced`);
    return new Uint8Array(parcel);
  }
}
