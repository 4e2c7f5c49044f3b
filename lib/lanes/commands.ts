// The records that travel between a client thread and a lane, and their bodies. Both ends import this file; it owns the
// numbers and the byte layouts and nothing else.

import { type ErrorCode, VeloError } from '../errors.js';
import { MAX_LANES } from '../wire/names.js';
import type { SocketEnds } from './socket-info.js';

/** The lane that messages and payloads ride. */
export const MESSENGER_LANE = 0;

// ---- client → lane (record kinds of the egress ring) -----------------------------------------------------------------
/** tag: sender row; body: one stream frame. */
export const CMD_DATA = 1;
/** tag: sender row; body: `OpenCommand`. */
export const CMD_OPEN = 2;
/** tag: peer number; body: JSON of `PeerRoute`. A lane knows a peer from here on. */
export const CMD_PEER = 3;
/** tag: token (0: nobody waits for the admission); body: u32 peer number, then one whole transport frame. */
export const CMD_FRAME = 4;
/** tag: data id; body, always a parcel: the payload of the `CMD_STAGED_FRAME` that follows. */
export const CMD_STAGE = 5;
/** tag: data id; no body. The message of a staged payload is over: nobody waits for it any more. */
export const CMD_UNSTAGE = 6;
/** tag: token; body: u32 peer number, u32 data id, then one whole transport frame whose payload is staged under that id. */
export const CMD_STAGED_FRAME = 7;
/** tag: data id; body, always a parcel: data that the application registers. */
export const CMD_REGISTER = 8;
/** tag: token of an `EV_HELLO`; body: the frame to write on its socket, or nothing: the answer went another way. */
export const CMD_HELLO_ANSWER = 9;
/** tag: any; no body. Comes back as `EV_MARK` once everything that was admitted before is out of the lane's hands. */
export const CMD_MARK = 10;
/** tag: peer number; body: u32 mux lane. A lane that died had batches for it; the peer learns that their epoch is over. */
export const CMD_SHOW_EPOCH = 11;
/**
 * tag: peer number; body: u32 mux lane, slot, session high, session low. The peer's slot was open on a lane that died: its sender is
 * told to cancel.
 */
export const CMD_CANCEL_SLOT = 12;

/** tag: token; body: JSON of `ReportPlace`. A piece of the report on live streams, from there on. */
export const CMD_STREAMS = 13;

// ---- lane → client (record kinds of the ingress ring) ----------------------------------------------------------------
/** tag: receiver tag; body: one stream frame. */
export const EV_DATA = 1;
/**
 * tag: receiver tag; body: empty, or any byte. The row's last record: the slot is gone and everything it delivered stands before this. With
 * a byte, what was not read of that is thrown away.
 */
export const EV_RETIRED = 2;
/** tag: transport frame type; body: u32 header length, header, payload. */
export const EV_FRAME = 3;
/** tag: token; body: `encodeOutcome`. */
export const EV_ADMITTED = 4;
/** tag: transport frame type of a frame that was admitted but not written; body: 16 bytes response id, then `encodeOutcome`. */
export const EV_FRAME_FAILED = 5;
/** tag: data id; no body. The lane let go of that payload. */
export const EV_UNSTAGED = 6;
/** tag: token for `CMD_HELLO_ANSWER`; body: `encodeHelloEvent`. A `_hello` request. */
export const EV_HELLO = 7;
/** tag: that of the `CMD_MARK` it answers; no body. */
export const EV_MARK = 8;
/** tag: token of the `CMD_STREAMS` it answers; body: JSON of `StreamReport`. */
export const EV_STREAMS = 9;
/** tag: any; body: JSON of `LaneEvent`. Nobody relies on it: what finds no room is left out. */
export const EV_DIAGNOSTIC = 10;

/** Of a `CMD_FRAME` or an `EV_FRAME` body, before the frame. */
export const FRAME_HEAD_BYTES = 4;
/** Of a `CMD_STAGED_FRAME` body, before the frame. */
export const STAGED_HEAD_BYTES = 8;

/** Added to a kind when the body stands in the parcel port instead of the ring. */
export const PARCEL = 32;
/** Body of a parcel's record in the ring: u32 length of the parcel. */
export const PARCEL_MARK_BYTES = 4;
/** The kind without its parcel mark. */
export const KIND_MASK = 31;

/** In place of a peer number: the frame is a request to this node's own data, answered by the lane itself. */
export const SELF_PEER = 0xffff_ffff;

/** The longest response id plus fixed envelope that `EV_FRAME_FAILED` carries. */
export const RESPONSE_ID_BYTES = 16;

// ---- receiver tags: row in the low half, the low half of its generation above it ---------------------------------------
export function receiverTag(row: number, generation: number): number {
  return (row & 0xffff) | ((generation & 0xffff) << 16);
}
export function tagRow(tag: number): number {
  return tag & 0xffff;
}
export function tagGeneration(tag: number): number {
  return tag >>> 16;
}

// ---- identities that name a row ---------------------------------------------------------------------------------------
// A u64 of at most 52 bits: generation (32) ‖ client thread (4) ‖ row (16). Never reused, because a row's generation is not.
const ROW_BITS = 16;
const THREAD_BITS = 4;
const IDENTITY_SHIFT = 2 ** (ROW_BITS + THREAD_BITS);

export interface RowIdentity {
  generation: number;
  thread: number;
  row: number;
}

/** The u64 that names one life of a row to peers: a routing session, or a sender stream id. */
export function rowIdentity(generation: number, thread: number, row: number): number {
  return generation * IDENTITY_SHIFT + thread * 2 ** ROW_BITS + row;
}

/** Reads an identity back. Any u64 may come from a peer; what no node of ours made gives undefined. */
export function parseRowIdentity(identity: bigint): RowIdentity | undefined {
  if (identity <= 0n || identity > BigInt(Number.MAX_SAFE_INTEGER)) return undefined;
  const value = Number(identity);
  const low = value % IDENTITY_SHIFT;
  return { generation: Math.floor(value / IDENTITY_SHIFT), thread: low >>> ROW_BITS, row: low & (2 ** ROW_BITS - 1) };
}

/** Client thread and row of a session of this node, from its low half. Any bits may come from a peer: whether they name a row is to be asked. */
export function identityThread(low: number): number {
  return (low >>> ROW_BITS) & (2 ** THREAD_BITS - 1);
}
export function identityRow(low: number): number {
  return low & (2 ** ROW_BITS - 1);
}

/** One number for a peer and one of its mux lanes. */
export function routeNumber(peer: number, muxLane: number): number {
  return peer * MAX_LANES + muxLane;
}
export function routePeer(route: number): number {
  return Math.floor(route / MAX_LANES);
}
export function routeLane(route: number): number {
  return route % MAX_LANES;
}

// ---- bodies -------------------------------------------------------------------------------------------------------------

/** Opens a mux slot for a sender row. */
export interface OpenCommand {
  peer: number;
  lane: number;
  generation: number;
  anchorHi: number;
  anchorLo: number;
  sessionHi: number;
  sessionLo: number;
  /** Data records the peer granted at the start (C). */
  credit: number;
  /** Bytes that may stand withheld before the inlet is paused (B). */
  byteBudget: number;
  /** How often the slot beats, in milliseconds. */
  heartbeatMs: number;
}

const OPEN_FIELDS = [
  'peer',
  'lane',
  'generation',
  'anchorHi',
  'anchorLo',
  'sessionHi',
  'sessionLo',
  'credit',
  'byteBudget',
  'heartbeatMs',
] as const;

export function encodeOpen(command: OpenCommand): Uint8Array {
  const body = new Uint8Array(OPEN_FIELDS.length * 4);
  const view = new DataView(body.buffer);
  OPEN_FIELDS.forEach((field, i) => {
    view.setUint32(i * 4, command[field], true);
  });
  return body;
}

export function decodeOpen(bytes: Uint8Array, offset: number): OpenCommand {
  const view = new DataView(bytes.buffer, bytes.byteOffset + offset, OPEN_FIELDS.length * 4);
  const command = {} as OpenCommand;
  OPEN_FIELDS.forEach((field, i) => {
    command[field] = view.getUint32(i * 4, true);
  });
  return command;
}

/** What a lane must know of a peer to reach it. */
export interface PeerRoute {
  /** The peer's worker id, as two halves (this text travels as plain JSON). */
  workerHi: number;
  workerLo: number;
  /** Instance id, for messages. */
  label: string;
  /** Empty, and `port` 0, for a peer that is reached over its Unix socket. */
  host: string;
  /** The plain listener: lane 0 and everything that is not a batch. */
  port: number;
  /** Listener per lane of a peer that publishes them, else empty: then every lane dials `port`. */
  lanePorts: number[];
  /** Unix socket of the plain listener, if everything to this peer goes over Unix sockets; its lanes listen beside it. */
  udsPath?: string | undefined;
  /** Addresses that its messages may be expected from: those it advertises, and where its hello came from. */
  hosts: readonly string[];
}

const utf8 = new TextEncoder();
const fromUtf8 = new TextDecoder();

export function encodeText(value: string): Uint8Array {
  return utf8.encode(value);
}

/** Text out of shared memory: copied first, because a TextDecoder does not read shared bytes. */
export function decodeText(bytes: Uint8Array, offset: number, length: number): string {
  return fromUtf8.decode(bytes.slice(offset, offset + length));
}

/** A hello and where it came in. */
export interface HelloEvent {
  readonly ends: SocketEnds;
  readonly headerLength: number;
  /** Header, then payload. */
  readonly frame: Uint8Array;
}

const HELLO_HEAD_BYTES = 8;

export function encodeHelloEvent(event: HelloEvent): Uint8Array {
  const ends = encodeText(JSON.stringify(event.ends));
  const body = new Uint8Array(HELLO_HEAD_BYTES + ends.length + event.frame.length);
  writeU32(body, 0, event.headerLength);
  writeU32(body, 4, ends.length);
  body.set(ends, HELLO_HEAD_BYTES);
  body.set(event.frame, HELLO_HEAD_BYTES + ends.length);
  return body;
}

/** The frame is a copy. */
export function decodeHelloEvent(bytes: Uint8Array, offset: number, length: number): HelloEvent {
  const endsLength = readU32(bytes, offset + 4);
  const frameAt = offset + HELLO_HEAD_BYTES + endsLength;
  return {
    ends: JSON.parse(decodeText(bytes, offset + HELLO_HEAD_BYTES, endsLength)) as SocketEnds,
    headerLength: readU32(bytes, offset),
    frame: bytes.slice(frameAt, offset + length),
  };
}

/** An outcome as text: empty for success, else the code, a newline and the message. */
export function encodeOutcome(error: VeloError | undefined): Uint8Array {
  return utf8.encode(error === undefined ? '' : `${error.code}\n${error.message}`);
}

export function decodeOutcome(text: string): VeloError | undefined {
  if (text === '') return undefined;
  const newline = text.indexOf('\n');
  return new VeloError(text.slice(0, newline) as ErrorCode, text.slice(newline + 1));
}

export function readU32(bytes: Uint8Array, offset: number): number {
  return (bytes[offset]! | (bytes[offset + 1]! << 8) | (bytes[offset + 2]! << 16) | (bytes[offset + 3]! << 24)) >>> 0;
}

export function writeU32(bytes: Uint8Array, offset: number, value: number): void {
  bytes[offset] = value;
  bytes[offset + 1] = value >>> 8;
  bytes[offset + 2] = value >>> 16;
  bytes[offset + 3] = value >>> 24;
}
