// Names that travel: handler names, transport keys, header keys. Owns the spelling and nothing else; it must never hold
// behaviour beyond looking a name up in its lists.

/** Transport key of the mux this package speaks. */
export const MESSENGER_MUX_KEY = 'messenger-mux-v2';

/** WorkerAddress key of the messenger's TCP listener (lane 0). */
export const ADDRESS_KEY_TCP = 'tcp';
/** WorkerAddress key of the messenger's Unix socket (lane 0). */
export const ADDRESS_KEY_UDS = 'uds';
/** WorkerAddress key of this package's own list of lane ports; peers that do not know it ignore it. */
export const ADDRESS_KEY_LANES = 'velomux-lanes';

/** Header of a staged request: its data handle, as a decimal u128. */
export const HEADER_RENDEZVOUS = '_rv';
/** Header of a staged batch: whose record it holds, see `formatMuxSlot`. */
export const HEADER_MUX_SLOT = '_mux_slot';

/** Names that start so are the system's; applications may neither register nor call them. */
export const SYSTEM_PREFIX = '_';

export const HANDLER_HELLO = '_hello';
export const HANDLER_LIST = '_list_handlers';

export const HANDLER_ANCHOR_ATTACH = '_anchor_attach';
export const HANDLER_ANCHOR_DETACH = '_anchor_detach';
export const HANDLER_ANCHOR_FINALIZE = '_anchor_finalize';
export const HANDLER_ANCHOR_CANCEL = '_anchor_cancel';
/** From a sender whose attach was answered and whose slot could not be opened. */
export const HANDLER_ANCHOR_ABORT_ATTACH = '_anchor_abort_attach';
export const HANDLER_ANCHOR_RENEW = '_anchor_renew';
export const HANDLER_MPSC_DETACH = '_mpsc_anchor_detach';
export const HANDLER_MPSC_CANCEL = '_mpsc_anchor_cancel';
export const HANDLER_STREAM_CANCEL = '_stream_cancel';
export const HANDLER_STREAM_STOP = '_stream_stop';

export const HANDLER_RV_ACQUIRE = '_rv_acquire';
export const HANDLER_RV_PULL = '_rv_pull';
export const HANDLER_RV_DETACH = '_rv_detach';
export const HANDLER_RV_RELEASE = '_rv_release';
export const HANDLER_RV_LEASE_RENEW = '_rv_lease_renew';
export const HANDLER_RV_METADATA = '_rv_metadata';
export const HANDLER_RV_REF = '_rv_ref';

/** What the owner of staged payloads serves. */
export const RENDEZVOUS_HANDLERS: readonly string[] = [
  HANDLER_RV_METADATA,
  HANDLER_RV_ACQUIRE,
  HANDLER_RV_PULL,
  HANDLER_RV_REF,
  HANDLER_RV_DETACH,
  HANDLER_RV_RELEASE,
  HANDLER_RV_LEASE_RENEW,
];

export const HANDLER_EVENT_TRIGGER = '_event_trigger';
export const HANDLER_EVENT_TRIGGER_REQUEST = '_event_trigger_request';
export const HANDLER_EVENT_SUBSCRIBE = '_event_subscribe';

/** Most lanes a peer can have; the batch header gives a lane four bits. */
export const MAX_LANES = 16;

/** Handler of batches on lane 0; the others append `.k`. */
export const HANDLER_STREAM_BATCH = '_stream_batch';

/** Batch handler of each lane, by lane. */
export const BATCH_HANDLERS: readonly string[] = Array.from({ length: MAX_LANES }, (_, lane) =>
  lane === 0 ? HANDLER_STREAM_BATCH : `${HANDLER_STREAM_BATCH}.${lane}`,
);

/** Still served while a node drains. Attaches, `_hello`, `_rv_metadata`, `_rv_ref` and application handlers are not. */
export const DRAIN_EXEMPT_HANDLERS: readonly string[] = [
  ...BATCH_HANDLERS,
  HANDLER_STREAM_CANCEL,
  HANDLER_STREAM_STOP,
  HANDLER_ANCHOR_DETACH,
  HANDLER_ANCHOR_FINALIZE,
  HANDLER_ANCHOR_CANCEL,
  HANDLER_ANCHOR_ABORT_ATTACH,
  HANDLER_ANCHOR_RENEW,
  HANDLER_MPSC_DETACH,
  HANDLER_MPSC_CANCEL,
  HANDLER_RV_ACQUIRE,
  HANDLER_RV_PULL,
  HANDLER_RV_DETACH,
  HANDLER_RV_RELEASE,
  HANDLER_RV_LEASE_RENEW,
  HANDLER_EVENT_TRIGGER,
  HANDLER_EVENT_TRIGGER_REQUEST,
  HANDLER_EVENT_SUBSCRIBE,
];

/** True for a name only the system may register and call. */
export function isSystemHandler(handler: string): boolean {
  return handler.startsWith(SYSTEM_PREFIX);
}
