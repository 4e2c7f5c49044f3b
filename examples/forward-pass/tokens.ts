// The text as tokens, and which token stands at which position of which request. Both ends compute it; neither trusts the other.

import { decode, encode } from 'gpt-tokenizer/encoding/r50k_base';
import { TEXT } from './text.js';

/** How far apart two neighbouring requests start in the text. Prime, so that requests do not repeat each other soon. */
const OFFSET_STEP = 37;

/** One item of a stream: the text of a token, and where it belongs. */
export interface Token {
  request: number;
  position: number;
  text: string;
}

/** The pieces of the text, one per token; joined they are the text again. */
export function tokenise(): string[] {
  return encode(TEXT).map((id) => decode([id]));
}

/** The piece at `position` of `request`. */
export function pieceAt(pieces: readonly string[], request: number, position: number): string {
  return pieces[(request * OFFSET_STEP + position) % pieces.length] ?? '';
}

/** Why `token` is not the one that belongs at `position` of `request`, or undefined when it is. */
export function faultOf(
  token: Token,
  request: number,
  position: number,
  pieces: readonly string[],
): string | undefined {
  if (token.request !== request) return `request ${request} received a token of request ${token.request}`;
  if (token.position !== position) {
    return `request ${request} received position ${token.position} where ${position} was due`;
  }
  const expected = pieceAt(pieces, request, position);
  if (token.text !== expected) {
    return `request ${request} position ${position} reads ${JSON.stringify(token.text)}, not ${JSON.stringify(expected)}`;
  }
  return undefined;
}
