// Requests and answers of this thread on their way to lane 0: builds the frame, and stages a payload that is too large for one.
// It must never wait, and never know who waits for an answer.

import { VeloError } from '../errors.js';
import type { ClientPlane } from '../lanes/client-plane.js';
import {
  CMD_FRAME,
  CMD_HELLO_ANSWER,
  CMD_STAGED_FRAME,
  FRAME_HEAD_BYTES,
  MESSENGER_LANE,
  STAGED_HEAD_BYTES,
  writeU32,
} from '../lanes/commands.js';
import type { Claim } from '../messenger/fifo-budget.js';
import type { ResponseSlot } from '../messenger/response-table.js';
import { requestHeaderLength, writeRequestHeader } from '../wire/envelope.js';
import { encodeHeaderMap } from '../wire/header-map.js';
import { HEADER_RENDEZVOUS } from '../wire/names.js';
import { STAGING_THRESHOLD } from '../wire/rendezvous-messages.js';
import { FRAME_MESSAGE, PREAMBLE_LEN, writePreamble } from '../wire/transport-frame.js';
import { encodeUtf8 } from '../wire/utf8.js';
import type { Peer } from './peer-book.js';
import type { Staging } from './staging.js';

const NO_BYTES = new Uint8Array(0);

/** One request on its way out. */
export interface Outgoing {
  readonly peer: Peer;
  readonly slot: ResponseSlot;
  readonly handler: string;
  readonly responseType: number;
  readonly payload: Uint8Array;
  readonly headers: Readonly<Record<string, string>> | undefined;
}

export class Outbox {
  constructor(
    private readonly plane: ClientPlane,
    private readonly workerHi: number,
    private readonly workerLo: number,
    readonly staging: Staging,
  ) {}

  /**
   * Hands a request to the lane: its payload in the frame, or staged beside it under `share`, or under what room there is.
   * `token`: the admission is reported under it; 0: nobody waits. Returns the id of what was staged, or 0.
   *
   * @throws VeloError `ERR_PAYLOAD_TOO_LARGE`, `ERR_LIMIT`, `ERR_LANE_DIED`, and what a header map may be refused with.
   */
  submit(token: number, request: Outgoing, share: Claim | undefined): number {
    const { peer, payload } = request;
    const port = this.plane.port(MESSENGER_LANE);
    if (payload.length <= STAGING_THRESHOLD) {
      const body = this.encode(request, FRAME_HEAD_BYTES, payload, request.headers);
      writeU32(body, 0, peer.number);
      port.command(CMD_FRAME, token, body);
      return 0;
    }
    const handle = this.staging.mint();
    const headers = { ...request.headers, [HEADER_RENDEZVOUS]: handle.toText() };
    const body = this.encode(request, STAGED_HEAD_BYTES, NO_BYTES, headers);
    const id = Number(handle.local);
    writeU32(body, 0, peer.number);
    writeU32(body, FRAME_HEAD_BYTES, id);
    this.staging.stage(id, payload, share);
    try {
      port.command(CMD_STAGED_FRAME, token, body);
    } catch (error) {
      this.staging.drop(id);
      throw error;
    }
    return id;
  }

  /** Sends a finished frame (an answer) to a peer. */
  sendFrame(peer: Peer, frame: Uint8Array): void {
    const body = new Uint8Array(FRAME_HEAD_BYTES + frame.length);
    body.set(frame, FRAME_HEAD_BYTES);
    writeU32(body, 0, peer.number);
    this.plane.port(MESSENGER_LANE).command(CMD_FRAME, 0, body);
  }

  /** Answers a hello on the socket it came in on; without a frame, lets its lane forget that socket. */
  answerHello(lane: number, token: number, frame: Uint8Array | undefined): void {
    try {
      this.plane.port(lane).command(CMD_HELLO_ANSWER, token, frame ?? NO_BYTES);
    } catch (error) {
      // The lane is gone, and the socket with it; or it is so far behind that whoever asked has given up.
      if (!VeloError.is(error)) throw error;
    }
  }

  /** A whole frame, with `room` bytes before it. */
  private encode(
    { slot, handler, responseType }: Outgoing,
    room: number,
    payload: Uint8Array,
    headers: Readonly<Record<string, string>> | undefined,
  ): Uint8Array {
    const name = encodeUtf8(handler);
    const map = headers === undefined ? NO_BYTES : encodeHeaderMap(Object.entries(headers));
    const headerLength = requestHeaderLength(name.length, map.length);
    const at = room + PREAMBLE_LEN;
    const body = new Uint8Array(at + headerLength + payload.length);
    writePreamble(body, room, FRAME_MESSAGE, headerLength, payload.length);
    writeRequestHeader(body, at, responseType, this.workerHi, this.workerLo, slot.slot, slot.generation, name, map);
    body.set(payload, at + headerLength);
    return body;
  }
}
