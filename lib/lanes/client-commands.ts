// What a client may ask of a lane by a record in its ring, other than to carry a stream's data: reads the body of a command and calls
// the lane for it. It must never keep anything, and the bytes it is given are the ring's: what outlives the call is copied.

import { VeloError } from '../errors.js';
import type { ClientLink } from './client-link.js';
import {
  CMD_CANCEL_SLOT,
  CMD_FRAME,
  CMD_HELLO_ANSWER,
  CMD_MARK,
  CMD_OPEN,
  CMD_PEER,
  CMD_REGISTER,
  CMD_SHOW_EPOCH,
  CMD_STAGE,
  CMD_STAGED_FRAME,
  CMD_STREAMS,
  CMD_UNSTAGE,
  decodeOpen,
  decodeText,
  EV_STREAMS,
  encodeText,
  FRAME_HEAD_BYTES,
  type OpenCommand,
  type PeerRoute,
  readU32,
  STAGED_HEAD_BYTES,
} from './commands.js';
import type { LaneRendezvous } from './rendezvous.js';
import type { ReportPlace, StreamReport } from './stream-report.js';

/** What commands ask of the lane. */
export interface CommandedLane {
  /** Staged payloads, on the lane that messages ride. */
  readonly rendezvous: LaneRendezvous | undefined;
  peer(number: number, route: PeerRoute): void;
  /** The lane before this one had batches for the peer on that mux lane: it must hear that their epoch is over. */
  showEpoch(peer: number, lane: number): void;
  /** The peer's slot was open on the lane before this one. */
  cancelSlot(peer: number, lane: number, slot: number, sessionHi: number, sessionLo: number): void;
  open(link: ClientLink, row: number, command: OpenCommand): void;
  /** `dataId` names the staged payload of the frame; 0: it has none. */
  sendFrame(link: ClientLink, token: number, peer: number, frame: Uint8Array, dataId: number): void;
  /** Answers a hello on the socket it came in on; without bytes, forgets that socket. */
  answerHello(token: number, frame: Uint8Array): void;
  /** Sends the mark back behind everything that was admitted for this client. */
  mark(link: ClientLink, tag: number): void;
  /** A piece of the report on live streams. */
  reportStreams(from: ReportPlace): StreamReport;
}

/**
 * One command of `link`'s client; `kind` is without its parcel mark.
 *
 * @throws VeloError `ERR_CONDUIT_BROKEN` for a kind that no client sends.
 */
export function carryOut(
  lane: CommandedLane,
  link: ClientLink,
  kind: number,
  tag: number,
  bytes: Uint8Array,
  offset: number,
  length: number,
): void {
  switch (kind) {
    case CMD_OPEN:
      lane.open(link, tag, decodeOpen(bytes, offset));
      return;
    case CMD_PEER:
      lane.peer(tag, JSON.parse(decodeText(bytes, offset, length)) as PeerRoute);
      return;
    case CMD_FRAME: {
      const frame = bytes.slice(offset + FRAME_HEAD_BYTES, offset + length);
      lane.sendFrame(link, tag, readU32(bytes, offset), frame, 0);
      return;
    }
    case CMD_STAGED_FRAME: {
      const frame = bytes.slice(offset + STAGED_HEAD_BYTES, offset + length);
      lane.sendFrame(link, tag, readU32(bytes, offset), frame, readU32(bytes, offset + FRAME_HEAD_BYTES));
      return;
    }
    case CMD_STAGE:
      lane.rendezvous?.stagePayload(link, tag >>> 0, bytes, 'message');
      return;
    case CMD_REGISTER:
      lane.rendezvous?.stagePayload(link, tag >>> 0, bytes, 'registered');
      return;
    case CMD_UNSTAGE:
      lane.rendezvous?.over(tag >>> 0);
      return;
    case CMD_HELLO_ANSWER:
      lane.answerHello(tag >>> 0, bytes.slice(offset, offset + length));
      return;
    case CMD_CANCEL_SLOT: {
      const [muxLane, slot, hi, lo] = [0, 4, 8, 12].map((at) => readU32(bytes, offset + at));
      lane.cancelSlot(tag, muxLane!, slot!, hi!, lo!);
      return;
    }
    case CMD_SHOW_EPOCH:
      lane.showEpoch(tag, readU32(bytes, offset));
      return;
    case CMD_MARK:
      lane.mark(link, tag);
      return;
    case CMD_STREAMS: {
      const from = JSON.parse(decodeText(bytes, offset, length)) as ReportPlace;
      // One at a time for each client: it asks for the next piece when it has this one.
      link.event(EV_STREAMS, tag, encodeText(JSON.stringify(lane.reportStreams(from))));
      return;
    }
    default:
      throw new VeloError('ERR_CONDUIT_BROKEN', `client sent a record of kind ${kind}`);
  }
}
