// The control messages of streams: attach, detach, finalize, cancel, stop, and the ticket (streaming specification
// §3.2). Owns their fields; it must never answer one.

import type { StreamAnchorHandle, StreamCancelHandle } from './handle.js';
import { type FieldSpec, MessageCodec, type Outcome, OutcomeCodec } from './message-codec.js';

/** Heartbeat interval of an answer that names none, in milliseconds. */
export const DEFAULT_HEARTBEAT_INTERVAL_MS = 5000;

/** Asks an anchor's node for a way in; `_anchor_attach` and `_mpsc_anchor_attach`. */
export interface AttachRequest {
  handle: StreamAnchorHandle;
  /** The sender's own stream id; opaque to the receiver. */
  sessionId: bigint;
  streamCancelHandle: StreamCancelHandle;
  /** Sorted ascending; empty from senders of before the negotiation. */
  supportedTransportKeys: readonly string[];
  laneKey?: bigint | undefined;
}

/** The terms of an attachment. Credit and budget are 0 for a per-stream transport. */
export interface AttachAccepted {
  streamingTransportKey: string;
  heartbeatIntervalMs: number;
  /** 0 from receivers of before routing sessions: use the request's own session id. */
  routingSessionId: bigint;
  initialCredit: number;
  slotByteBudget: number;
  lane: number;
}

export interface MpscAttachAccepted extends AttachAccepted {
  senderId: bigint;
}

/** A pre-bound slot, carried in an application's own envelope. */
export interface StreamOpenTicket {
  streamingTransportKey: string;
  heartbeatIntervalMs: number;
  routingSessionId: bigint;
  initialCredit: number;
  slotByteBudget: number;
  lane: number;
}

/** Payload of `_anchor_detach`, `_anchor_finalize`, `_anchor_cancel` and `_mpsc_anchor_cancel`. */
export interface AnchorReference {
  handle: StreamAnchorHandle;
}

/** Payload of `_anchor_abort_attach`: the attachment is the one of this sender, or already gone. */
export interface AbortAttach extends AnchorReference {
  streamCancelHandle: StreamCancelHandle;
}

/** Payload of `_mpsc_anchor_detach`. */
export interface MpscDetach extends AnchorReference {
  senderId: bigint;
}

/** Payload of `_stream_cancel` and `_stream_stop`. */
export interface StreamSignal {
  senderStreamId: bigint;
}

const HANDLE: FieldSpec = { wire: 'handle', name: 'handle', kind: 'anchorHandle' };
const CANCEL_HANDLE: FieldSpec = { wire: 'stream_cancel_handle', name: 'streamCancelHandle', kind: 'cancelHandle' };
const SENDER_ID: FieldSpec = { wire: 'sender_id', name: 'senderId', kind: 'u64' };
const TRANSPORT_KEY: FieldSpec = { wire: 'streaming_transport_key', name: 'streamingTransportKey', kind: 'string' };
const HEARTBEAT: FieldSpec = { wire: 'heartbeat_interval_ms', name: 'heartbeatIntervalMs', kind: 'millis' };
const SESSION: FieldSpec = { wire: 'routing_session_id', name: 'routingSessionId', kind: 'u64' };
const CREDIT: FieldSpec = { wire: 'initial_credit', name: 'initialCredit', kind: 'u32' };
const BUDGET: FieldSpec = { wire: 'slot_byte_budget', name: 'slotByteBudget', kind: 'u32' };
/** Newest field: last, and not written for lane 0, so that lane-0 messages are the bytes of before lanes. */
const LANE: FieldSpec = { wire: 'lane', name: 'lane', kind: 'u16', absent: { value: 0, omit: true } };

function defaulting(field: FieldSpec, value: unknown): FieldSpec {
  return { ...field, absent: { value } };
}

const TERMS: readonly FieldSpec[] = [defaulting(SESSION, 0n), defaulting(CREDIT, 0), defaulting(BUDGET, 0), LANE];

function attachRequestCodec(what: string): MessageCodec<AttachRequest> {
  return new MessageCodec<AttachRequest>(what, [
    HANDLE,
    { wire: 'session_id', name: 'sessionId', kind: 'u64' },
    CANCEL_HANDLE,
    {
      wire: 'supported_transport_keys',
      name: 'supportedTransportKeys',
      kind: 'strings',
      absent: { value: Object.freeze([]) },
    },
    { wire: 'lane_key', name: 'laneKey', kind: 'u64', absent: { value: undefined, omit: true } },
  ]);
}

export const anchorAttachRequest: MessageCodec<AttachRequest> = attachRequestCodec('AnchorAttachRequest');
export const mpscAttachRequest: MessageCodec<AttachRequest> = attachRequestCodec('MpscAnchorAttachRequest');

export type AnchorAttachResponse = Outcome<AttachAccepted>;
export const anchorAttachResponse: OutcomeCodec<AttachAccepted> = new OutcomeCodec(
  'AnchorAttachResponse',
  new MessageCodec<AttachAccepted>('AnchorAttachResponse.Ok', [
    TRANSPORT_KEY,
    defaulting(HEARTBEAT, DEFAULT_HEARTBEAT_INTERVAL_MS),
    ...TERMS,
  ]),
);

export type MpscAnchorAttachResponse = Outcome<MpscAttachAccepted>;
export const mpscAttachResponse: OutcomeCodec<MpscAttachAccepted> = new OutcomeCodec(
  'MpscAnchorAttachResponse',
  new MessageCodec<MpscAttachAccepted>('MpscAnchorAttachResponse.Ok', [TRANSPORT_KEY, HEARTBEAT, SENDER_ID, ...TERMS]),
);

/** No field but the lane has a default: a ticket without its terms is none. */
export const streamOpenTicket: MessageCodec<StreamOpenTicket> = new MessageCodec<StreamOpenTicket>('StreamOpenTicket', [
  TRANSPORT_KEY,
  HEARTBEAT,
  SESSION,
  CREDIT,
  BUDGET,
  LANE,
]);

export const anchorReference: MessageCodec<AnchorReference> = new MessageCodec<AnchorReference>('AnchorReference', [
  HANDLE,
]);

export const abortAttach: MessageCodec<AbortAttach> = new MessageCodec<AbortAttach>('AnchorAbortAttach', [
  HANDLE,
  CANCEL_HANDLE,
]);

export const mpscDetach: MessageCodec<MpscDetach> = new MessageCodec<MpscDetach>('MpscAnchorDetach', [
  HANDLE,
  SENDER_ID,
]);

export const streamSignal: MessageCodec<StreamSignal> = new MessageCodec<StreamSignal>('StreamSignal', [
  { wire: 'sender_stream_id', name: 'senderStreamId', kind: 'u64' },
]);
