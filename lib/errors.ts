// The one error class of the project and the closed set of its codes. Below every layer; imports nothing.

/**
 * Every error that velomux raises carries one of these codes. Codes are stable; messages are for people.
 *
 * Wire (a peer's or caller's bytes): `ERR_BAD_*`, `ERR_UNSUPPORTED_VERSION`, `ERR_FRAME_TOO_LARGE`, `ERR_UNKNOWN_TYPE`.
 * Callers: `ERR_INVALID_ARGUMENT` (the message names the field), `ERR_CLOSED`, `ERR_ABORTED`.
 * Discovery: `ERR_ALREADY_REGISTERED` (this instance, or another with its worker id), `ERR_BAD_DISCOVERY_FILE` (cannot be read as
 * one, or cannot be written; it is left as it is).
 * Rendezvous: `ERR_UNKNOWN_DATA` (the owner has no such payload), `ERR_LEASE_USED` (a lease ends once), `ERR_PAYLOAD_TOO_LARGE`
 * (the message names the size and the limit).
 * Streams: `ERR_CHANNEL_CLOSED` (the consumer cancelled, the slot was closed, the lane's epoch ended), `ERR_SENDER_ERROR`,
 * `ERR_SENDER_DROPPED`, `ERR_TRANSPORT`, `ERR_DESERIALIZATION`, `ERR_SERIALIZATION`.
 */
export type ErrorCode =
  // callers
  | 'ERR_INVALID_ARGUMENT'
  | 'ERR_INVALID_STATE'
  | 'ERR_CLOSED'
  | 'ERR_ABORTED'
  | 'ERR_LIMIT'
  | 'ERR_TIMEOUT'
  // wire
  | 'ERR_BAD_HANDLE'
  | 'ERR_BAD_FRAME'
  | 'ERR_BAD_ENVELOPE'
  | 'ERR_BAD_ADDRESS'
  | 'ERR_BAD_JSON'
  | 'ERR_BAD_MSGPACK'
  | 'ERR_BAD_CONTROL_MESSAGE'
  | 'ERR_UNSUPPORTED_VERSION'
  | 'ERR_UNKNOWN_TYPE'
  | 'ERR_FRAME_TOO_LARGE'
  | 'ERR_BATCH_FULL'
  | 'ERR_BODY_TOO_LARGE'
  // messenger
  | 'ERR_UNKNOWN_PEER'
  | 'ERR_UNKNOWN_HANDLER'
  | 'ERR_HANDLER_FAILED'
  | 'ERR_PEER_SHUTTING_DOWN'
  | 'ERR_CONNECTION_CLOSED'
  | 'ERR_CONNECT_FAILED'
  | 'ERR_LISTEN_FAILED'
  | 'ERR_RESPONSE_SLOTS_EXHAUSTED'
  // discovery
  | 'ERR_ALREADY_REGISTERED'
  | 'ERR_BAD_DISCOVERY_FILE'
  // rendezvous
  | 'ERR_UNKNOWN_DATA'
  | 'ERR_LEASE_USED'
  | 'ERR_PAYLOAD_TOO_LARGE'
  // attach
  | 'ERR_ANCHOR_NOT_FOUND'
  | 'ERR_ALREADY_ATTACHED'
  | 'ERR_WRONG_HANDLE_KIND'
  | 'ERR_ATTACH_REFUSED'
  | 'ERR_NO_WINDOW'
  | 'ERR_UNSUPPORTED_TRANSPORT'
  | 'ERR_SLOTS_EXHAUSTED'
  // streams
  | 'ERR_CHANNEL_CLOSED'
  | 'ERR_SERIALIZATION'
  | 'ERR_DESERIALIZATION'
  | 'ERR_SENDER_ERROR'
  | 'ERR_SENDER_DROPPED'
  | 'ERR_TRANSPORT'
  // lanes and shared memory
  | 'ERR_LANE_DIED'
  | 'ERR_WORKER_FILE'
  | 'ERR_CONDUIT_BROKEN'
  | 'ERR_INTERNAL';

/** The base class of every error this package raises. `code` decides; `message` names the peer, lane, slot or limit. */
export class VeloError extends Error {
  override readonly name = 'VeloError';
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }

  /** True for an error of this package, also one that came from another realm or another copy of the package. */
  static is(error: unknown, code?: ErrorCode): error is VeloError {
    if (!(error instanceof Error) || error.name !== 'VeloError') return false;
    return code === undefined || (error as VeloError).code === code;
  }
}
