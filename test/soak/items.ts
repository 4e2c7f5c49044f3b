// The items of a soak. Each says which stream it is of, where it stands there, how long it is and whether it is the last, and carries
// a checksum over all of that: no item of another stream, no repetition, no gap and no changed byte goes unnoticed.

import { sizeOf } from './plan.js';

const STREAM = 0;
const SEQUENCE = 4;
const LAST = 8;
const LENGTH = 12;
const SUM = 16;
const HEAD = 20;
const FNV_BASIS = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

function checksum(item: Uint8Array): number {
  let hash = FNV_BASIS;
  for (let i = 0; i < SUM; i++) hash = Math.imul(hash ^ item[i]!, FNV_PRIME);
  for (let i = HEAD; i < item.length; i++) hash = Math.imul(hash ^ item[i]!, FNV_PRIME);
  return hash >>> 0;
}

function viewOf(item: Uint8Array): DataView {
  return new DataView(item.buffer, item.byteOffset, item.byteLength);
}

export function makeItem(stream: number, sequence: number, last: boolean): Uint8Array {
  const item = new Uint8Array(HEAD + sizeOf(stream, sequence));
  const view = viewOf(item);
  view.setUint32(STREAM, stream);
  view.setUint32(SEQUENCE, sequence);
  view.setUint32(LAST, last ? 1 : 0);
  view.setUint32(LENGTH, item.length);
  let state = (stream ^ Math.imul(sequence, FNV_PRIME)) >>> 0;
  for (let i = HEAD; i < item.length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    item[i] = state >>> 24;
  }
  view.setUint32(SUM, checksum(item));
  return item;
}

/** Checks the items of one stream as they are read: they are a prefix of what was sent, or it says what is wrong. */
export class PrefixCheck {
  count = 0;
  /** The item marked as the last was read. */
  complete = false;

  constructor(private readonly stream: number) {}

  /** What is wrong with the next item, or undefined. */
  fault(item: Uint8Array): string | undefined {
    if (item.length < HEAD) return `an item of ${item.length} bytes`;
    const view = viewOf(item);
    const [stream, sequence] = [view.getUint32(STREAM), view.getUint32(SEQUENCE)];
    const at = `item ${this.count} of stream ${this.stream}`;
    if (view.getUint32(SUM) !== checksum(item)) return `${at}: the checksum does not match`;
    if (view.getUint32(LENGTH) !== item.length) return `${at}: its length does not match`;
    if (stream !== this.stream) return `${at}: it is of stream ${stream}`;
    if (sequence !== this.count) return `${at}: it is number ${sequence}`;
    if (this.complete) return `${at}: it stands behind the last`;
    this.count += 1;
    this.complete = view.getUint32(LAST) === 1;
    return undefined;
  }
}
