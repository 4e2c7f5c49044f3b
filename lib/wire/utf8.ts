// Text of the wire: strict UTF-8 both ways. Owns the one encoder and the one decoder of the layer; it must never replace
// bad bytes silently, and never strip a byte order mark.

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Up to this many ASCII bytes a loop beats the decoder. */
const ASCII_LOOP_MAX_BYTES = 24;

/** UTF-8 of `text`. A lone surrogate becomes U+FFFD: no other string can carry it. */
export function encodeUtf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Writes `text` at `offset`; the target must have room for three bytes per character. Returns the bytes written. */
export function writeUtf8(target: Uint8Array, offset: number, text: string): number {
  return encoder.encodeInto(text, target.subarray(offset)).written;
}

/** Text of `bytes[start..end)`, or undefined when it is not UTF-8. */
export function decodeUtf8(bytes: Uint8Array, start: number, end: number): string | undefined {
  if (end - start <= ASCII_LOOP_MAX_BYTES) {
    let text = '';
    let at = start;
    for (; at < end; at++) {
      const byte = bytes[at]!;
      if (byte > 0x7f) break;
      text += String.fromCharCode(byte);
    }
    if (at === end) return text;
  }
  try {
    return decoder.decode(privateView(bytes, start, end));
  } catch {
    return undefined;
  }
}

/** TextDecoder refuses shared memory: such bytes are copied first. */
function privateView(bytes: Uint8Array, start: number, end: number): Uint8Array {
  return bytes.buffer instanceof ArrayBuffer ? bytes.subarray(start, end) : new Uint8Array(bytes.subarray(start, end));
}
