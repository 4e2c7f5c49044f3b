// The public surface of the package, and nothing else.

export type { AttachOptions } from './control/attach.js';
export type { CallOptions, SendOptions } from './control/calls.js';
export { type DataInfo, DataLease, type GetOptions } from './control/data-client.js';
export type {
  EpochDeathEvent,
  LaneDeathEvent,
  RefusalEvent,
  StreamCloseEvent,
  StreamEvent,
  WatchdogEvent,
} from './control/diagnostics.js';
export type { Discovery, DiscoveryChanges, DiscoveryRegistration } from './control/discovery.js';
export { FileDiscovery, type FileDiscoveryOptions } from './control/file-discovery.js';
export type { AcceptPeer } from './control/hello-gate.js';
export type { AskOptions } from './control/hellos.js';
export type { PeerTarget } from './control/peer-book.js';
export type { RetiredOutcome } from './control/sender-core.js';
export type { CloseOptions, CloseReport } from './control/shutdown.js';
export type { StreamInfo } from './control/stream-census.js';
export { type ErrorCode, VeloError } from './errors.js';
export type { LaneHostKind } from './lanes/host.js';
export type { SocketInfo } from './lanes/socket-info.js';
export {
  type AmFunction,
  amHandler,
  type HandlerContext,
  type HandlerOptions,
  type MessageHandler,
  type OverflowPolicy,
  type TypedUnaryFunction,
  typedUnary,
  type UnaryFunction,
  unaryHandler,
} from './messenger/handlers.js';
export type { FlushPolicyOption, MuxOptions } from './mux/mux-config.js';
export type { VeloStats } from './node-stats.js';
export type { VeloOptions } from './options.js';
export { type AnchorFrame, type ReadOptions, StreamAnchor, type StreamController } from './streaming/stream-anchor.js';
export { StreamSender, type WaitOptions } from './streaming/stream-sender.js';
export { type AnchorOptions, type AttachStreamOptions, Velo } from './velo.js';
export {
  type CustomCodecFunctions,
  customCodec,
  exactMsgpackCodec,
  type ItemCodec,
  msgpackCodec,
  rawCodec,
} from './wire/codec.js';
export { type AnchorKind, DataHandle, type HandleJson, StreamAnchorHandle } from './wire/handle.js';
export { parseJson, stringifyJson } from './wire/json.js';
export { MESSENGER_MUX_KEY } from './wire/names.js';
export { PeerInfo, type PeerInfoJson } from './wire/peer-info.js';
