// What crosses between a client and a lane besides records: bodies are read where they lie, and what is handed on is a copy.

import { expect } from 'chai';
import { type CommandedLane, carryOut } from '../../../lib/lanes/client-commands.js';
import type { ClientLink } from '../../../lib/lanes/client-link.js';
import {
  CMD_CANCEL_SLOT,
  CMD_DATA,
  CMD_FRAME,
  CMD_HELLO_ANSWER,
  CMD_SHOW_EPOCH,
  CMD_STAGED_FRAME,
  EV_DATA,
  EV_FRAME,
  EV_FRAME_FAILED,
  encodeOutcome,
  encodeText,
  FRAME_HEAD_BYTES,
  KIND_MASK,
  RESPONSE_ID_BYTES,
  STAGED_HEAD_BYTES,
  writeU32,
} from '../../../lib/lanes/commands.js';
import { type MessageEvents, tellMessages } from '../../../lib/lanes/message-events.js';
import { FRAME_MESSAGE } from '../../../lib/wire/transport-frame.js';
import { errorCode } from '../plane/errors.js';

/** In front of each body, as in a ring: nothing may be read from there. */
const OFFSET = 24;
const FRAME = Uint8Array.from({ length: 40 }, (_, i) => i + 1);

/** A body as it lies in a ring: shared, with something before and behind it. */
function inRing(...parts: (number | Uint8Array)[]): { bytes: Uint8Array; length: number } {
  const bytes = new Uint8Array(new SharedArrayBuffer(256)).fill(0xee);
  let at = OFFSET;
  for (const part of parts) {
    if (typeof part === 'number') writeU32(bytes, at, part);
    else bytes.set(part, at);
    at += typeof part === 'number' ? 4 : part.length;
  }
  return { bytes, length: at - OFFSET };
}

/** Notes each call by name. */
function noting<T>(calls: unknown[][]): T {
  return new Proxy({} as object, {
    get: (_, name) => (name === 'rendezvous' ? undefined : (...given: unknown[]) => calls.push([name, ...given])),
  }) as T;
}

describe('what a client asks of its lane', () => {
  const link = {} as ClientLink;
  const asked = (kind: number, tag: number, ...parts: (number | Uint8Array)[]): unknown[][] => {
    const calls: unknown[][] = [];
    const { bytes, length } = inRing(...parts);
    carryOut(noting<CommandedLane>(calls), link, kind, tag, bytes, OFFSET, length);
    bytes.fill(0);
    return calls;
  };

  it('frames are copies of the ring, without what stands before them', () => {
    expect(STAGED_HEAD_BYTES).to.equal(2 * FRAME_HEAD_BYTES);
    expect(asked(CMD_FRAME, 3, 0xffff_fff0, FRAME)).to.deep.equal([['sendFrame', link, 3, 0xffff_fff0, FRAME, 0]]);
    expect(asked(CMD_STAGED_FRAME, 3, 8, 0x8000_0001, FRAME)).to.deep.equal([
      ['sendFrame', link, 3, 8, FRAME, 0x8000_0001],
    ]);
    expect(asked(CMD_HELLO_ANSWER, -1, FRAME)).to.deep.equal([['answerHello', 0xffff_ffff, FRAME]]);
  });

  it('what a dead lane left is named with its peer and mux lane', () => {
    expect(asked(CMD_CANCEL_SLOT, 5, 1, 2, 0xffff_fffe, 4)).to.deep.equal([['cancelSlot', 5, 1, 2, 0xffff_fffe, 4]]);
    expect(asked(CMD_SHOW_EPOCH, 5, 15)).to.deep.equal([['showEpoch', 5, 15]]);
  });

  it('a kind that no client sends breaks the conduit, and so does data, which the link takes itself', () => {
    for (const kind of [0, CMD_DATA, KIND_MASK]) expect(errorCode(() => asked(kind, 0))).to.equal('ERR_CONDUIT_BROKEN');
  });
});

describe('what a lane tells a client', () => {
  const told = (kind: number, tag: number, bytes: Uint8Array, offset: number, length: number): unknown[][] => {
    const calls: unknown[][] = [];
    tellMessages(noting<MessageEvents>(calls), 2, kind, tag, bytes, offset, length);
    return calls;
  };

  it('a frame in the ring is copied, and one in a parcel is handed on as it is', () => {
    const ring = inRing(10, FRAME);
    const [first] = told(EV_FRAME, FRAME_MESSAGE, ring.bytes, OFFSET, ring.length);
    ring.bytes.fill(0);
    expect(first).to.deep.equal(['frame', FRAME_MESSAGE, FRAME, 10, 2]);
    const parcel = new Uint8Array(FRAME_HEAD_BYTES + FRAME.length);
    writeU32(parcel, 0, 10);
    parcel.set(FRAME, FRAME_HEAD_BYTES);
    const [second] = told(EV_FRAME, FRAME_MESSAGE, parcel, 0, parcel.length);
    expect(second).to.deep.equal(first);
    expect((second![2] as Uint8Array).buffer).to.equal(parcel.buffer);
  });

  it('a frame that was not written always comes with an error', () => {
    const id = FRAME.slice(0, RESPONSE_ID_BYTES);
    const { bytes, length } = inRing(id, encodeOutcome(undefined));
    const [call] = told(EV_FRAME_FAILED, FRAME_MESSAGE, bytes, OFFSET, length);
    expect(call!.slice(0, 3)).to.deep.equal(['frameFailed', FRAME_MESSAGE, id]);
    expect(call![3]).to.have.property('code', 'ERR_CONNECTION_CLOSED');
  });

  it('a kind that no lane sends breaks the conduit', () => {
    const body = encodeText('{}');
    for (const kind of [0, EV_DATA, 29])
      expect(errorCode(() => told(kind, 0, body, 0, body.length))).to.equal('ERR_CONDUIT_BROKEN');
  });
});
