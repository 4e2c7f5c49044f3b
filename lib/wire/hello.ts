// The handshake of the messenger: `_hello` and the handler list. Owns their JSON; it must never register a peer.

import { VeloError } from '../errors.js';
import { encodeJson, parseJson } from './json.js';
import { JsonFields } from './json-fields.js';
import { PeerInfo } from './peer-info.js';

const FIELD_PEER_INFO = 'peer_info';
const FIELD_HANDLERS = 'handlers';

/** The four bytes a handler without a result answers, and the payload of `_list_handlers`. */
export const JSON_NULL: Uint8Array = encodeJson(null);

export function encodeHello(peer: PeerInfo): Uint8Array {
  return encodeJson({ [FIELD_PEER_INFO]: peer });
}

/** @throws VeloError `ERR_BAD_JSON`, `ERR_BAD_CONTROL_MESSAGE` or `ERR_BAD_ADDRESS`. */
export function decodeHello(bytes: Uint8Array): PeerInfo {
  return PeerInfo.fromJSON(new JsonFields(parseJson(bytes), 'Hello').get(FIELD_PEER_INFO));
}

/** The answer of `_hello` and `_list_handlers`. */
export function encodeHandlerList(handlers: readonly string[]): Uint8Array {
  return encodeJson({ [FIELD_HANDLERS]: handlers });
}

/** @throws VeloError `ERR_BAD_JSON` or `ERR_BAD_CONTROL_MESSAGE`. */
export function decodeHandlerList(bytes: Uint8Array): string[] {
  return new JsonFields(parseJson(bytes), 'HandlerList').strings(FIELD_HANDLERS);
}

/** Checks the payload of `_list_handlers`: nothing, or null. @throws VeloError `ERR_BAD_CONTROL_MESSAGE`. */
export function expectNull(bytes: Uint8Array): void {
  if (parseJson(bytes) !== null) throw new VeloError('ERR_BAD_CONTROL_MESSAGE', 'expected null');
}
